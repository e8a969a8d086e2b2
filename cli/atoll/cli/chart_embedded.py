"""The embedded host as a template of chart `atoll`: objects of `atoll.install.embedded` whose values Helm fills in.

The objects are made with a mark such as @storage@ in the place of each value; in their YAML the expression of a
template replaces it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import orjson

from atoll.install import EmbeddedValues, embedded

Json = dict[str, Any]

_ETCD_POD: Final = "@pod@"
_PLAIN: Final = (
    *("endpoint", "serviceType", "etcdReplicas", "storage", "replicas", "apiserverFlags"),
    *("etcdImage", "apiserverImage", "controllerManagerImage"),
)
_OPTIONAL: Final = ("storageClass", "serviceAnnotations", "priorityClassName", "imagePullSecrets")
"""Fields without these are left out."""
_EXPRESSIONS: Final = {
    **{each: f"$embedded.{each}" for each in (*_PLAIN, "storageClass", "serviceAnnotations")},
    **{each: f"$embedded.{each}" for each in ("backup.schedule", "backup.keep", "backup.storage")},
    **{each: f"$.Values.{each}" for each in ("priorityClassName", "imagePullSecrets")},
    "image": 'include "atoll.image" $',
    "namespace": "$.Release.Namespace",
    # The template of a Job can't change.
    "init": f'printf "{embedded.INIT}-%s" (printf "%s%s" $.Chart.Version (toJson $.Values) | sha256sum | trunc 8)',
}
_NOT_EMBEDDED: Final = (
    *("webhook", "control", "dispatcher", "crds", "logLevel", "commonLabels", "nodeSelector", "tolerations"),
    *("web", "spreadOver", "proxy", "networkPolicy", "monitoring"),
)
"""Values that pods of an embedded host don't have."""
_WHOLE: Final = re.compile(r"( *)(- )?(?:(\w+): )?'@([\w.-]+)@'")
_OF_EACH_POD: Final = re.compile(r"( *- --[\w-]+=)(.*@pod@.*)")


class _Resources(dict[str, Json]):
    """Notes the defaults that are asked for."""

    def get(self, name: str, default: Any = None) -> Any:
        self[name] = default
        return f"@resources.{name}@"


class _Marked(EmbeddedValues, frozen=True, rename="camel"):
    def etcd_pods(self) -> list[str]:
        return [_ETCD_POD]


def objects() -> tuple[list[Json], list[Json], dict[str, str]]:
    """Objects of a release and of its hooks' account with marks, and the expressions of the marks."""
    resources = _Resources()
    backup = {each: f"@backup.{each}@" for each in ("schedule", "keep", "storage")}
    marks: Json = {
        **{each.name: f"@{each.encode_name}@" for each in msgspec.structs.fields(EmbeddedValues)},
        "backup": msgspec.structs.replace(embedded.Backup(), **backup),
        "priority_class": "@priorityClassName@",
        "image_pull_secrets": [],
        "apiserver_flags": ["@apiserverFlags@"],
        "resources": resources,
    }
    values = msgspec.structs.replace(_Marked(), **marks)
    made = []
    for each in embedded.objects(values):
        metadata = each["metadata"]
        match each["kind"]:
            case "Namespace" | "ConfigMap":
                # Helm makes the first, and the hook that needs it the second.
                continue
            case "Job":
                metadata["name"] = "@init@"
            case "PersistentVolumeClaim":
                metadata["annotations"] = {"helm.sh/resource-policy": "keep"}
        _pull_by_secrets(each)
        made.append(each)
    asked = {
        f"resources.{name}": f'index $embedded.resources "{name}" | default (fromJson `{orjson.dumps(each).decode()}`)'
        for name, each in resources.items()
    }
    return made, embedded.installer(values), _EXPRESSIONS | asked


def fill(text: str, expressions: dict[str, str], defaults: Json) -> str:
    """YAML with expressions in the place of marks; it refuses values that an embedded host does not have."""
    known = orjson.dumps({each: defaults[each] for each in _NOT_EMBEDDED}).decode()
    lines = [
        '{{- if eq .Values.host.mode "embedded" }}',
        "{{- $embedded := .Values.host.embedded }}",
        f"{{{{- range $name, $default := fromJson `{known}` }}}}",
        "{{- if ne (toJson (index $.Values $name)) (toJson $default) }}",
        '{{- fail (printf "%s: an embedded host does not have it; host.embedded is what it has" $name) }}',
        "{{- end }}",
        "{{- end }}",
    ]
    for line in text.splitlines():
        if found := _OF_EACH_POD.fullmatch(line):
            each = found[2].replace(_ETCD_POD, f"{embedded.ETCD}-{{{{ $index }}}}")
            pods = "{{ range $index := until (int $embedded.etcdReplicas) }}{{ if $index }},{{ end }}"
            lines.append(f"{found[1]}{pods}{_inline(each, expressions)}{{{{ end }}}}")
        elif found := _WHOLE.fullmatch(line):
            indent, dash, key, mark = found.groups(default="")
            if mark in _OPTIONAL:
                field = f"{indent}{dash}{key}: {{{{ toJson . }}}}"
                lines += [f"{{{{- with {expressions[mark]} }}}}", field, "{{- end }}"]
            elif dash and not key:
                lines += [f"{{{{- range {expressions[mark]} }}}}", f"{indent}- {{{{ toJson . }}}}", "{{- end }}"]
            else:
                lines.append(f"{indent}{dash}{key}: {{{{ {expressions[mark]} | toJson }}}}")
        else:
            lines.append(_inline(line, expressions))
    return "\n".join([*lines, "{{- end }}", ""])


def _inline(text: str, expressions: dict[str, str]) -> str:
    return re.sub(r"@([\w.-]+)@", lambda found: f"{{{{ {expressions[found[1]]} }}}}", text)


def _pull_by_secrets(value: Any) -> None:
    if isinstance(value, list):
        for each in value:
            _pull_by_secrets(each)
    elif isinstance(value, dict):
        if "containers" in value:
            value["imagePullSecrets"] = "@imagePullSecrets@"
        for each in value.values():
            _pull_by_secrets(each)
