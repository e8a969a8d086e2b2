"""Templates of `-o jsonpath=`, each construct compared with what kubectl prints."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.cli import jsonpath
from atoll.local.binaries import ensure

POD = yaml.safe_load("""
apiVersion: v1
kind: Pod
metadata:
  name: p
  labels: {app: web, tier/x.y: front}
  annotations: {a: b}
spec:
  priority: 7
  hostNetwork: true
  containers:
  - {name: a, image: "i:1", ports: [{containerPort: 80}, {containerPort: 443}]}
  - {name: b, image: "i:2", command: [run, it]}
  - {name: c, image: "i:2"}
""")
TEMPLATES = (
    "{.metadata.name}",
    "name: {.metadata.name}, {.kind}",
    "{@.metadata.name}{$.kind}",
    ".metadata.name",
    "{}",
    "{.nope.more}",
    "{.spec.priority} {.spec.hostNetwork}",
    "{.metadata.labels}",
    r"{.metadata.labels.tier/x\.y}",
    r"{.metadata.labels['tier/x\.y']}",
    "{.metadata.labels['tier/x.y']}",
    "{.spec.containers[0].ports}",
    "{.spec.containers[*].name}",
    "{.spec.containers[0,2].name}",
    "{.spec.containers[-1].name}",
    "{.spec.containers[0:2].name}",
    "{.spec.containers[:-1].name}",
    "{.spec.containers[::2].name}",
    "{.spec.containers[1:1].name}",
    "{.spec.containers.name}",
    "{.spec.containers[*]['name','image']}",
    '{.spec.containers[?(@.name=="b")].image}',
    "{.spec.containers[?(@.name!='b')].name}",
    "{.spec.containers[?(@.command)].name}",
    '{.spec.containers[?(@.nope=="b")].image}',
    "{.spec.containers[*].ports[?(@.containerPort>100)].containerPort}",
    "{.spec.containers[?(@.ports[0].containerPort<=80)].name}",
    "{..containerPort}",
    "{.spec..name}",
    "{.spec.containers[*]..containerPort}",
    '{range .spec.containers[*]}{.name}{"\\t"}{.image}{"\\n"}{end}',
    "{range .spec.containers[*]}{range .ports[*]}{.containerPort},{end};{end}",
    "{'x'}{\"a\\\\b\"}{true}{5}",
)
REFUSED = {
    "{.metadata.name": "unclosed action",
    "{end}": "not in range, nothing to end",
    "{metadata.name}": "unrecognized identifier metadata",
    "{.spec.containers[9].name}": "array index out of bounds: index 9, length 3",
    "{.spec.containers[0:9].name}": "array index out of bounds: index 8, length 3",
    "{.spec.containers[2:1].name}": "starting index 2 is greater than ending index 1",
    "{.spec.containers[0:3:0].name}": "step must be > 0",
    "{.spec.containers[x].name}": "invalid array index x",
    '{.spec["containers"][0]}': 'invalid array index "containers"',
    "{[": "unterminated array",
    '{.spec.containers[?(@.name=="b"&&@.image=="x")].name}': "unrecognized character in action",
}


def kubectl(file: Path, template: str) -> subprocess.CompletedProcess[str]:
    binary = ensure(report=lambda _: None).kubectl
    command = [str(binary), "annotate", "--local", "-f", str(file), "a=b", "--overwrite", "-o", f"jsonpath={template}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("jsonpath") / "pod.yaml"
    file.write_text(yaml.safe_dump(POD))
    return file


def test_templates_give_what_kubectl_prints(pod: Path) -> None:
    # One call for all: each template is fenced, so that a difference names its own.
    fence = '{"\\n--\\n"}'
    said = kubectl(pod, fence.join(TEMPLATES)).stdout.split("\n--\n")
    assert dict(zip(TEMPLATES, said, strict=True)) == {each: jsonpath.render(each, POD) for each in TEMPLATES}


@pytest.mark.parametrize(("template", "message"), REFUSED.items())
def test_what_is_wrong_is_said_in_kubectls_words(template: str, message: str, pod: Path) -> None:
    with pytest.raises(jsonpath.JsonPathError) as caught:
        jsonpath.render(template, POD)
    assert message in str(caught.value)


def test_kubectl_refuses_the_same(pod: Path) -> None:
    said = {template: kubectl(pod, template) for template in list(REFUSED)[:5]}
    assert {template: REFUSED[template] in each.stderr for template, each in said.items()} == dict.fromkeys(said, True)


@pytest.mark.parametrize("path", [".metadata.name", "metadata.name", "{.metadata.name}", "{metadata.name}"])
def test_a_column_may_be_written_without_braces_and_dot(path: str) -> None:
    assert jsonpath.find(jsonpath.relaxed(path), POD) == ["p"]


@pytest.mark.parametrize("path", ["", "{", "a}{b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(jsonpath.JsonPathError, match="is no path"):
        jsonpath.relaxed(path)


def test_values_of_all_kinds_are_printed() -> None:
    content: dict[str, Any] = {"a": None, "b": 1.5, "c": False, "d": [1, {"z": 1, "y": "ü"}]}
    assert jsonpath.render("{.a}|{.b}|{.c}|{.d}", content) == 'null|1.5|false|[1,{"y":"ü","z":1}]'
