"""Generated parts of deploy/charts, and deploy/manifests: `python -m atoll.cli.chart_files [--check]`.

Accounts, rights, policies and CRDs come from the code of `init` and `join`; values.schema.json from values.yaml;
helpers, alerts and dashboards are copies. Manifests are what Helm makes of the charts, so only Helm can write them:
their first line holds a digest of the charts, which --check compares without it.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from atoll import install
from atoll.cli import chart_embedded
from atoll.install.rendering import HostValues, MemberValues
from atoll.model.release import VERSION

Json = dict[str, Any]

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
"""Its Go module: manifests depend on the version."""
KUBERNETES: Final = "--kube-version=1.36"
"""Helm that Go built takes an ancient one for the cluster's where it asks none."""
IMAGE: Final = "registry.example.org/atoll"
"""Stands in manifests for the user's registry."""
CHARTS: Final = {
    "atoll-crds": "CRDs of Atoll, for who brings CRDs apart from the processes.",
    "atoll": "Host of an Atoll federation: webhook, control, dispatcher.",
    "atoll-agent": "Agent of Atoll in a member cluster.",
    "atoll-topology": "Operator of HyperNodes: status, health, admission, discovery.",
}
_NOT_EDITED: Final = "Generated; to change it, edit its source and run: make generate"
_NOT_IN_CHARTS: Final = ("CustomResourceDefinition", "Namespace", "Queue", "EndpointSlice")
"""Written by hooks: they must outlive a release, or change while it runs."""
_HELPERS: Final = ("_process.tpl", "_network-policy.tpl", "_monitoring.tpl")
_MANIFESTS: Final = {
    "crds": ("atoll-crds", {"keep": False}),
    "host": ("atoll", {"image": {"repository": IMAGE}}),
    "member": ("atoll-agent", {"image": {"repository": IMAGE}, "cluster": "member-name"}),
    "descheduler": (
        "atoll-agent",
        {
            "image": {"repository": IMAGE},
            "cluster": "unused",
            "descheduler": {"enabled": True, "policyFrom": "volcano-system/volcano-descheduler"},
        },
    ),
    "topology": ("atoll-topology", {"image": {"repository": IMAGE}}),
}

_PARTS: Final = {"descheduler": ("--show-only=templates/descheduler.yaml",)}
"""Manifest -> flags that choose a part of its chart."""

_FREE: Final = {"type": "object"}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_LIST: Final = {"type": "array", "items": {"type": "object"}}
_SCHEMAS: Final[dict[str, Json]] = {
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "logLevel": {"enum": ["debug", "info", "warning", "error"]},
    "host.mode": {"enum": ["cluster", "embedded"]},
    "embedded.serviceType": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "embedded.etcdReplicas": {"enum": [1, 3, 5]},
    "embedded.endpoint": {"type": "string", "pattern": "^(https://.+)?$"},
    "embedded.apiserverFlags": {"type": "array", "items": {"type": "string"}},
    "embedded.serviceAnnotations": _TEXTS,
    "topology.replicas": {"type": "integer", "minimum": 0, "maximum": 1},
    "replicas": {"type": "integer", "minimum": 0},
    "resources": _FREE,
    "cluster": {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", "maxLength": 48},
    "webhook.url": {"type": "string", "pattern": "^(https://.+)?$"},
    "host.url": {"type": "string", "pattern": "^(https://.+)?$"},
    "host.caHash": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "apiServerPorts": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
    "extraArgs": {"type": "array", "items": {"type": "string"}},
    "web.names": {"type": "array", "items": {"type": "string"}},
    "spreadOver": {"type": "array", "items": {"type": "string"}},
    **dict.fromkeys(("labels", "podLabels", "podAnnotations", "annotations", "commonLabels", "nodeSelector"), _TEXTS),
}
"""Values whose default does not say all of their type, by the end of their path."""


def schema(value: Any, path: str = "") -> Json:
    """The JSON schema of a value of values.yaml; unknown names are refused, except where any may stand."""
    for known, found in _SCHEMAS.items():
        if path == known or path.endswith(f".{known}"):
            return found
    if isinstance(value, dict):
        if not value:
            return _FREE
        inner = {name: schema(each, f"{path}.{name}".lstrip(".")) for name, each in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": inner}
    if isinstance(value, list):
        return _LIST
    return {"type": {bool: "boolean", int: "integer"}.get(type(value), "string")}


def files() -> dict[Path, str]:
    """Every generated file but the manifests, below deploy/charts."""
    found: dict[Path, str] = {}
    charts = DEPLOY / "charts"
    for name, text in CHARTS.items():
        found[charts / name / "Chart.yaml"] = _yaml([_chart(name, text)], separated=False)
        values = yaml.safe_load((charts / name / "values.yaml").read_text())
        described = {"$schema": "https://json-schema.org/draft-07/schema#", **schema(values)}
        found[charts / name / "values.schema.json"] = (
            orjson.dumps(described, option=orjson.OPT_INDENT_2).decode() + "\n"
        )
        if name not in ("atoll", "atoll-crds"):
            for helper in _HELPERS:
                source = (charts / "atoll" / "templates" / helper).read_text()
                found[charts / name / "templates" / helper] = f"{{{{/* {_NOT_EDITED} */}}}}\n{source}"
    for file in sorted((DEPLOY / "monitoring" / "dashboards").glob("*.json")):
        found[charts / "atoll" / "files" / "dashboards" / file.name] = file.read_text()
    found[charts / "atoll" / "files" / "rules.yaml"] = (DEPLOY / "monitoring" / "rules.yaml").read_text()

    member = {each["metadata"]["name"] for each in install.member_crds()}
    kept = "  annotations:\n    {{- if .Values.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n"
    for crd in install.host_crds():
        body = _yaml([crd]).replace("  annotations:\n", kept, 1)
        if (crd_name := crd["metadata"]["name"]) not in member:
            body = f"{{{{- if not .Values.member }}}}\n{body}{{{{- end }}}}\n"
        found[charts / "atoll-crds" / "templates" / f"{crd_name}.yaml"] = f"# {_NOT_EDITED}\n{body}"

    host = asyncio.run(install.render_host(HostValues(runs_deployments=True)))
    found[charts / "atoll" / "templates" / "rendered.yaml"] = _in_cluster_mode(_template(_charted(host)))
    found[charts / "atoll" / "templates" / "installer.yaml"] = _in_cluster_mode(_template(_installer(member=False)))
    released, account, expressions = chart_embedded.objects()
    text = _template([*released, *_as_hooks(account)])
    defaults = yaml.safe_load((charts / "atoll" / "values.yaml").read_text())
    found[charts / "atoll" / "templates" / "embedded.yaml"] = chart_embedded.fill(text, expressions, defaults)
    plain, with_exec = (_in_member(allow_exec=allowed) for allowed in (False, True))
    more = [each for each in with_exec if each not in plain]
    text = f"{_template(plain)}{{{{- if .Values.allowExec }}}}\n{_yaml(more)}{{{{- end }}}}\n"
    found[charts / "atoll-agent" / "templates" / "rendered.yaml"] = text
    found[charts / "atoll-agent" / "templates" / "installer.yaml"] = _template(_installer(member=True))
    return found


def manifests(helm: str) -> Iterator[tuple[Path, str]]:
    """What Helm makes of the charts, for kubectl."""
    for name, (chart, values) in _MANIFESTS.items():
        folder = DEPLOY / "charts" / chart
        words = [
            helm,
            "template",
            chart,
            str(folder),
            "--namespace=atoll-system",
            "--values=-",
            "--skip-tests",
            KUBERNETES,
            *_PARTS.get(name, ()),
        ]
        made = subprocess.run(words, input=yaml.safe_dump(values), capture_output=True, text=True, check=True).stdout
        # Whoever applies all of it must not uninstall it.
        made = "".join(f"---\n{each}" for each in made.split("---\n")[1:] if "helm.sh/hook: pre-delete\n" not in each)
        if name != "crds":
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "atoll-system"}}
            made = _yaml([space]) + made
        yield DEPLOY / "manifests" / f"{name}.yaml", f"{_first_line(chart)}\n{made}"


def stale() -> list[str]:
    """Generated files that differ from their sources."""
    known = files()
    wrong = [path for path, text in known.items() if not path.exists() or path.read_text() != text]
    wrong += _leftovers(known)
    for name, (chart, _) in _MANIFESTS.items():
        path = DEPLOY / "manifests" / f"{name}.yaml"
        if not path.exists() or path.read_text().partition("\n")[0] != _first_line(chart):
            wrong.append(path)
    return [str(path.relative_to(DEPLOY.parent)) for path in wrong]


def find_helm(*, build: bool = True) -> str:
    """The program: `$HELM`, the one on PATH or in the cache if it is the pinned version, else built from its Go module.

    Args:
        build: False: only look.

    Raises:
        OSError: it is not there, and there is no Go or it can't build it.
    """
    version = HELM.partition("@")[2]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atoll" / "tools"
    for program in (os.environ.get("HELM"), shutil.which("helm"), str(folder / f"helm-{version}")):
        if program and Path(program).exists():
            run = subprocess.run([program, "version", "--short"], capture_output=True, text=True, check=False)
            # One that Go built knows no patch level.
            if run.stdout.startswith(version.rpartition(".")[0]):
                return program
    if not build:
        raise OSError(f"Helm {version} is not on PATH, and make generate has not built it yet")
    if shutil.which("go") is None:
        raise OSError(f"neither Helm {version} nor Go, which builds it, is on PATH; HELM=... names the program")
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
    run = subprocess.run(["go", "install", HELM], env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise OSError(f"go install {HELM}: {run.stderr.strip()[-400:]}")
    return str((folder / "helm").rename(folder / f"helm-{version}"))


def _leftovers(known: Container[Path]) -> list[Path]:
    """CRDs that no code has any more."""
    return [each for each in (DEPLOY / "charts" / "atoll-crds" / "templates").glob("*.yaml") if each not in known]


def _chart(name: str, text: str) -> Json:
    return {
        "apiVersion": "v2",
        "name": name,
        "description": text,
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": ">=1.33.0-0",
    }


def _charted(objects: Sequence[Json]) -> list[Json]:
    return [each for each in objects if each["kind"] not in _NOT_IN_CHARTS]


def _in_member(*, allow_exec: bool) -> list[Json]:
    values = MemberValues(endpoint="https://member", allow_exec=allow_exec)
    return _charted(asyncio.run(install.render_member("member", values))[1])


def _installer(*, member: bool) -> list[Json]:
    return _as_hooks(asyncio.run(install.render_installer(member=member)))


def _as_hooks(objects: Sequence[Json]) -> list[Json]:
    """Account and rights of hooks and tests, there while one runs."""
    annotations = {
        "helm.sh/hook": "pre-install,pre-upgrade,post-install,post-upgrade,post-rollback,pre-delete,test",
        "helm.sh/hook-weight": "0",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    }
    return [{**each, "metadata": {**each["metadata"], "annotations": annotations}} for each in objects]


def _in_cluster_mode(text: str) -> str:
    return f'{{{{- if eq .Values.host.mode "cluster" }}}}\n{text}{{{{- end }}}}\n'


def _template(objects: Sequence[Json]) -> str:
    return f"# {_NOT_EDITED}\n{_yaml(objects)}"


def _yaml(objects: Sequence[Json], *, separated: bool = True) -> str:
    # Equal parts are shared objects in the code; aliases would be hard to read.
    dumper = type("Plain", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})
    text = yaml.dump_all(
        objects, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120, explicit_start=separated
    )
    return re.sub(r"\{\{|\}\}", lambda found: f'{{{{ "{found[0]}" }}}}', text)


def _first_line(chart: str) -> str:
    digest = hashlib.sha256(HELM.encode())
    folder = DEPLOY / "charts" / chart
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return f"# {_NOT_EDITED}. Chart {chart}, {digest.hexdigest()[:16]}"


def main(argv: list[str] | None = None) -> int:
    """Write the files, or with --check compare them; 1 if one is out of date."""
    parser = argparse.ArgumentParser(prog="python -m atoll.cli.chart_files", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; 1 on a difference")
    if parser.parse_args(argv).check:
        if found := stale():
            print(f"out of date: {', '.join(found)}; run python -m atoll.cli.chart_files", file=sys.stderr)
        return int(bool(found))
    known = files()
    for path in _leftovers(known):
        path.unlink()
    for path, text in known.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    try:
        made = list(manifests(find_helm()))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
        print(f"manifests are not written: {reason}", file=sys.stderr)
        return 1
    for path, text in made:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
