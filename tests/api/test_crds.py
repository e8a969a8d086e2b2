"""The generated CRDs: up to date with the models, structural, and as upstream users expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from pydantic import Field

from atoll.api import base, crdgen
from atoll.api.models import KINDS, ApiModel, ApiObject, Resource
from tests.api.schemas import CRDS, nodes, schema

NODE_KEYWORDS = {
    *("type", "description", "default", "enum", "format", "pattern", "required"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "maxProperties", "properties", "items", "additionalProperties"),
    *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"),
    *("x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
}


def at(kind: str, path: str) -> dict[str, Any]:
    """The node at a path such as `.spec.tasks[].name`."""
    return dict(nodes(schema(kind)))[path]


every_kind = pytest.mark.parametrize("kind", sorted(CRDS))


def test_generated_files_are_up_to_date() -> None:
    assert crdgen.stale_files() == []


def test_check_reports_a_changed_a_missing_and_a_foreign_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crdgen, "YAML_DIR", tmp_path)
    monkeypatch.setattr(crdgen.stale_files, "__defaults__", (tmp_path,))
    assert crdgen.main([]) == 0
    assert crdgen.main(["--check"]) == 0
    (tmp_path / "jobs.batch.volcano.sh.yaml").write_text("kind: Other\n")
    (tmp_path / "queues.scheduling.volcano.sh.yaml").unlink()
    (tmp_path / "foreign.yaml").write_text("kind: Other\n")
    capsys.readouterr()
    assert crdgen.main(["--check"]) == 1
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "foreign.yaml",
        "jobs.batch.volcano.sh.yaml",
        "queues.scheduling.volcano.sh.yaml",
    ]
    assert crdgen.main([]) == 0
    assert crdgen.stale_files(tmp_path) == []


def test_every_registered_kind_is_shipped() -> None:
    shipped = {(c["spec"]["group"], kind) for kind, c in CRDS.items()}
    assert shipped == {(m.resource.group, m.resource.kind) for m in KINDS.values()}


def test_no_name_is_taken_twice_in_one_api_server() -> None:
    names = Counter(
        name
        for crd in CRDS.values()
        for n in [crd["spec"]["names"]]
        for name in {n["singular"], n["plural"], *n.get("shortNames", [])}
    )
    builtin = {"po", "pod", "pods", "svc", "cm", "deploy", "rs", "sts", "ds", "pc", "pdb", "crd"}
    assert [name for name, count in names.items() if count > 1] == []
    assert not builtin & names.keys()


@every_kind
def test_one_version_is_served_and_stored(kind: str) -> None:
    spec = CRDS[kind]["spec"]
    assert CRDS[kind]["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    assert spec["conversion"] == {"strategy": "None"}
    assert [(v["served"], v["storage"]) for v in spec["versions"]] == [(True, True)]


@every_kind
def test_schema_uses_only_keywords_of_structural_schemas(kind: str) -> None:
    for path, node in nodes(schema(kind)):
        assert set(node) <= NODE_KEYWORDS, path
        anything = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
        assert "type" in node or any(node.get(key) is True for key in anything), path
        assert node.get("default", 0) is not None, path
        if node.get("type") == "integer":
            assert node["format"] in ("int32", "int64"), path


@every_kind
def test_unknown_fields_are_kept_in_what_is_not_ours_to_describe_and_nowhere_else(kind: str) -> None:
    for path, node in nodes(schema(kind)):
        kept = node.get("x-kubernetes-preserve-unknown-fields", False)
        assert kept is (path in FREE.get(kind, ())), path
        assert not ("additionalProperties" in node and "properties" in node), path
    assert schema(kind)["properties"]["metadata"] == {"type": "object"}


_RULES = (".spec.overrideRules[].overriders", ".spec.overriders")
_VALUES = {
    f"{rule}.{path}.value"
    for rule in _RULES
    for path in ("plaintext[]", "fieldOverrider[].json[]", "fieldOverrider[].yaml[]")
}
FREE = {
    "OverridePolicy": _VALUES,
    "ClusterOverridePolicy": _VALUES,
    "Job": {".spec.tasks[].template"},
    "CronJob": {".spec.jobTemplate.metadata", ".spec.jobTemplate.spec.tasks[].template", ".status.active[]"},
    "JobArray": {".spec.template.metadata", ".spec.template.spec.tasks[].template"},
    "HyperJob": {".spec.replicatedJobs[].templateSpec.tasks[].template"},
    "JobFlow": {".spec.flows[].patch.jobSpec"},
    "JobTemplate": {".spec.tasks[].template", ".status"},
    "WorkloadKind": {".spec.suspend.suspended", ".spec.suspend.resumed"},
    "Work": {".spec.workload.manifests[]", ".status.manifestStatuses[].status"},
    "ResourceBinding": {
        ".spec.replicaRequirements.nodeClaim.hardNodeAffinity",
        ".spec.replicaRequirements.nodeClaim.tolerations[]",
        ".spec.components[].replicaRequirements.nodeClaim.hardNodeAffinity",
        ".spec.components[].replicaRequirements.nodeClaim.tolerations[]",
        ".status.aggregatedStatus[].status",
        ".status.runs[]",
    },
}
"""Pod templates and what is like them, values of patches, whole objects of any kind, and their statuses."""


@pytest.mark.parametrize("line", (Path(__file__).parent / "upstream_fields.txt").read_text("utf-8").splitlines())
def test_every_field_of_upstream_is_known(line: str) -> None:
    """The API server drops what a CRD does not list: a manifest of Volcano's or Karmada's keeps all that it says."""
    if line.startswith("#"):
        return
    kind, *paths = line.split()
    known = dict(nodes(schema(kind)))
    free = [path for path, node in known.items() if node.get("x-kubernetes-preserve-unknown-fields")]
    missing = [path for path in paths if path not in known and not path.startswith(tuple(free))]
    assert missing == []


@every_kind
def test_list_keys_are_required_or_defaulted(kind: str) -> None:
    for path, node in nodes(schema(kind)):
        for key in node.get("x-kubernetes-list-map-keys", []):
            item = node["items"]
            assert key in item.get("required", []) or "default" in item["properties"][key], path


@every_kind
def test_whatever_a_rule_touches_has_bounds(kind: str) -> None:
    tree = dict(nodes(schema(kind)))
    for path, node in tree.items():
        if "x-kubernetes-validations" not in node:
            continue
        for i in (i for i, c in enumerate(path) if c == "["):
            assert "maxItems" in tree[path[:i]], f"{path}: {path[:i]}"
        for rule in node["x-kubernetes-validations"]:
            assert rule["message"]
            used = [n for n in node["properties"] if f"self.{n}" in rule["rule"]]
            assert used, f"{path}: no field of the object is in {rule['rule']!r}"
            for child in (node["properties"][n] for n in used):
                if child.get("type") == "string":
                    assert "maxLength" in child or "enum" in child, path
                assert child.get("type") != "array" or "maxItems" in child, path


@every_kind
def test_columns_and_selectable_fields_point_at_known_fields(kind: str) -> None:
    (version,) = CRDS[kind]["spec"]["versions"]
    known = dict(nodes(schema(kind)))
    columns = [c["jsonPath"] for c in version["additionalPrinterColumns"]]
    for path in columns:
        plain = path.split("[", 1)[0]
        assert plain in known or plain.startswith(".metadata."), path
    for field in version.get("selectableFields", []):
        assert known[field["jsonPath"]]["type"] in ("string", "integer", "boolean")
    assert ".metadata.creationTimestamp" in columns


def _defaults_in_lists(node: dict[str, Any], path: str = "spec", *, inside: bool = False) -> Iterator[str]:
    if inside and "default" in node:
        yield path
    for name, below in (node.get("properties") or {}).items():
        yield from _defaults_in_lists(below, f"{path}.{name}", inside=inside)
    if "items" in node:
        yield from _defaults_in_lists(node["items"], f"{path}[]", inside=True)
    if isinstance(below := node.get("additionalProperties"), dict):
        yield from _defaults_in_lists(below, f"{path}.*", inside=inside)


@every_kind
def test_no_default_is_inside_a_list(kind: str) -> None:
    """Whoever compares an object with its file takes a list as a whole: such a default would be a difference for ever."""
    assert list(_defaults_in_lists(schema(kind)["properties"].get("spec") or {})) == []


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("Job", {"STATUS", "QUEUE", "REASON", "MESSAGE", "minAvailable", "RUNNINGS"}),
        ("ResourceBinding", {"Reason", "Clusters", "Bound", "Message", "Wanted"}),
        ("Queue", {"Parent", "State", "Pending", "Used", "Deserved", "Capability", "Valid", "Reason"}),
        ("Work", {"Workload-Name", "Applied", "Reason", "Health", "Queue", "Message"}),
        ("Cluster", {"Ready", "Reason", "Placer", "Used", "Allocatable", "Taints"}),
    ],
)
def test_columns_say_where_why_and_how_much(kind: str, columns: set[str]) -> None:
    (version,) = CRDS[kind]["spec"]["versions"]
    assert columns <= {column["name"] for column in version["additionalPrinterColumns"]}


@every_kind
def test_a_status_subresource_has_a_status(kind: str) -> None:
    (version,) = CRDS[kind]["spec"]["versions"]
    if "subresources" in version:
        assert "status" in schema(kind)["properties"]


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        ("Job", ".spec.maxRetry", {"minimum": 0, "format": "int32"}),
        ("Job", ".spec.tasks[].maxRetry", {"minimum": -1}),
        ("Job", ".spec.minSuccess", {"minimum": 1}),
        ("Job", ".spec.networkTopology.mode", {"enum": ["hard", "soft"]}),
        ("Job", ".spec.tasks[].partitionPolicy.minPartitions", {"minimum": 0}),
        ("Queue", ".spec.weight", {"minimum": 1, "maximum": 65535}),
        ("Queue", ".spec.priority", {"minimum": 0}),
        ("Queue", ".spec.dequeueStrategy", {"enum": ["fifo", "traverse", "backfill"]}),
        ("Queue", ".spec.capability.*", {"x-kubernetes-int-or-string": True}),
        ("PodGroup", ".spec.subGroupPolicy[].subGroupSize", {"minimum": 1}),
        ("PodGroup", ".status.conditions[].transitionID", {"type": "string"}),
        ("HyperNode", ".spec.tier", {"minimum": 0}),
        ("ResourceBinding", ".spec.components[].name", {"maxLength": 32}),
        ("ResourceBinding", ".spec.clusters", {"x-kubernetes-list-map-keys": ["name"]}),
        ("ResourceBinding", ".spec.components", {"x-kubernetes-list-map-keys": ["name"]}),
        ("ResourceBinding", ".status.conditions", {"x-kubernetes-list-map-keys": ["type"]}),
        ("Cluster", ".spec.insecureSkipTLSVerification", {"type": "boolean"}),
        ("Cluster", ".spec.proxyURL", {"type": "string"}),
        ("Command", ".action", {"type": "string"}),
        ("Command", ".target", {"required": ["apiVersion", "kind", "name", "uid"]}),
        ("ClusterCapacity", ".spec.generation", {"type": "integer", "format": "int64"}),
        ("ClusterCapacity", ".spec.domains", {"maxItems": 4096}),
        ("ClusterCapacity", ".spec.classes[].free.*", {"type": "integer", "format": "int64"}),
    ],
)
def test_field_has_its_rule(kind: str, path: str, expected: dict[str, Any]) -> None:
    node = at(kind, path)
    assert {key: node.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Job", ".spec.queue"),
        ("Job", ".spec.schedulerName"),
        ("Job", ".spec.minAvailable"),
        ("Queue", ".spec.dequeueStrategy"),
    ],
)
def test_field_is_left_to_the_webhook(kind: str, path: str) -> None:
    assert "default" not in at(kind, path)


@pytest.mark.parametrize("path", [".spec.tasks", ".status.conditions"])
def test_lists_of_a_job_without_a_sure_key_stay_atomic(path: str) -> None:
    assert "x-kubernetes-list-type" not in at("Job", path)


def model_with(**fields: Any) -> type[ApiObject]:
    """A root model with these (annotation, default) fields, not registered."""
    namespace = {"__annotations__": {n: a for n, (a, _) in fields.items()}}
    model: Any = type("Probe", (ApiObject,), {**namespace, **{n: d for n, (_, d) in fields.items()}})
    model.resource = Resource(group="g", version="v1", kind="Probe", plural="probes")
    return cast("type[ApiObject]", model)


class Loop(ApiModel):
    """A model that contains itself."""

    inner: Loop | None = None


class TestGenerator:
    """Translation of single constructs."""

    @pytest.mark.parametrize(
        ("annotation", "problem"),
        [
            pytest.param(int | str, "Probe.field: no CRD form for a union of 2", id="union"),
            pytest.param(Loop, "Probe.field.inner: Loop contains itself", id="recursion"),
            pytest.param(tuple[int, str], "Probe.field: keyword 'prefixItems'", id="tuple"),
        ],
    )
    def test_refuses_what_a_crd_cannot_say_and_names_the_field(self, annotation: Any, problem: str) -> None:
        with pytest.raises(crdgen.SchemaError, match=problem):
            crdgen.schema_of(model_with(field=(annotation, ...)))

    @pytest.mark.parametrize(
        ("annotation", "default", "expected"),
        [
            pytest.param(int | None, None, {"type": "integer", "format": "int64"}, id="optional"),
            pytest.param(
                int,
                Field(gt=0),
                {"type": "integer", "format": "int64", "minimum": 0, "exclusiveMinimum": True},
                id="exclusive bound in the older form",
            ),
            pytest.param(Literal["x"], ..., {"type": "string", "enum": ["x"]}, id="constant becomes enum"),
            pytest.param(
                set[str],
                ...,
                {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                id="set",
            ),
            pytest.param(
                base.FreeForm,
                ...,
                {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                id="free-form",
            ),
            pytest.param(
                dict[str, str],
                ...,
                {"type": "object", "additionalProperties": {"type": "string"}},
                id="map of strings",
            ),
            pytest.param(base.IntOrString, ..., {"x-kubernetes-int-or-string": True}, id="int or string"),
        ],
    )
    def test_translates(self, annotation: Any, default: Any, expected: dict[str, Any]) -> None:
        got = crdgen.schema_of(model_with(field=(annotation, default)))["properties"]["field"]
        assert got == expected


def test_kubectl_apply_on_the_folder_finds_every_crd():
    top = crdgen.YAML_DIR.parents[2]
    assert {link.name: link.resolve() for link in top.glob("*.yaml")} == {
        f.name: f.resolve() for f in crdgen.YAML_DIR.glob("*.yaml")
    }
