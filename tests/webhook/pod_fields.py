"""The table of pod fields anew: `kubectl get --raw /openapi/v3/api/v1 | python -m tests.webhook.pod_fields 1.36`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_ROOT = "io.k8s.api.core.v1.PodTemplateSpec"
_FILE = Path(__file__).parents[2] / "lib" / "atoll" / "admission" / "pod_fields.txt"
_HEAD = """\
# The fields of a pod template in Kubernetes {version}, by type; `name:Type` is an object, or a list of such objects.
# Generated from an API server's OpenAPI; to change it: kubectl get --raw /openapi/v3/api/v1 | python -m tests.webhook.pod_fields VERSION
"""


def table(openapi: Json) -> str:
    """One line for each type that is reached from a pod template: its name, then its fields."""
    schemas = openapi["components"]["schemas"]
    lines: dict[str, str] = {}
    todo = [_ROOT]
    while todo:
        name = todo.pop()
        fields = []
        for field, schema in sorted(schemas[name]["properties"].items()):
            child = _type_of(schema)
            if child and schemas[child].get("properties"):
                fields.append(f"{field}:{_short(child)}")
                todo += [child] if _short(child) not in lines else []
            else:
                fields.append(field)
        lines[_short(name)] = " ".join([_short(name), *fields])
    return "".join(f"{lines[name]}\n" for name in sorted(lines))


def _type_of(schema: Json) -> str:
    """The type of a field, or of the items of a list; empty for maps and plain values."""
    inner = schema.get("items", schema)
    for one in (inner, *inner.get("allOf", ())):
        if "$ref" in one:
            return str(one["$ref"]).rsplit("/", 1)[-1]
    return ""


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


if __name__ == "__main__":
    _FILE.write_text(_HEAD.format(version=sys.argv[1]) + table(json.load(sys.stdin)))
