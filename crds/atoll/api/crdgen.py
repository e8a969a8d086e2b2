"""CRDs from the models: `python -m atoll.api.crdgen [--check]`.

The YAML beside this module is what installers apply; it is generated so that model and CRD can't
drift apart, and committed so that a change of API is seen in review. The walk knows no kind by
name: whatever a CRD needs is said in the model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from atoll.api.models import KINDS, ApiObject, Resource

YAML_DIR = Path(__file__).parent / "yaml"
HEADER = "# Generated from the models in atoll.api; to change it, edit them and run: python -m atoll.api.crdgen\n"

Schema = dict[str, Any]

_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""That of libyaml takes a tenth of the time; it writes the same, and not every PyYAML has it."""

#: Keywords taken over as they are; every other keyword must have a rule in `_convert`, or be in
#: `_DROPPED`.
_KEPT = {
    *("type", "description", "default", "enum", "format", "pattern", "required"),
    *("minimum", "maximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties"),
}
_DROPPED = {
    *("title", "examples", "discriminator", "propertyNames", "readOnly", "deprecated", "$defs"),
}


class SchemaError(ValueError):
    """A model says something that a CRD can't; names the field path."""

    def __init__(self, trail: tuple[str, ...], problem: str) -> None:
        """Say what the problem is at the field that `trail` leads to."""
        super().__init__(f"{'.'.join(trail)}: {problem}")


def _inline(schema: Mapping[str, Any], defs: Mapping[str, Any], trail: tuple[str, ...]) -> Schema:
    """Resolve $ref, `X | None` and a single allOf until none is left at this node; siblings win."""
    node = dict(schema)
    while True:
        if "$ref" in node:
            target = dict(defs[node.pop("$ref").rsplit("/", 1)[-1]])
        elif "anyOf" in node:
            options = [o for o in node.pop("anyOf") if o != {"type": "null"}]
            if len(options) != 1:
                raise SchemaError(trail, f"no CRD form for a union of {len(options)}; use one type")
            target = dict(options[0])
        elif len(node.get("allOf", ())) == 1:
            target = dict(node.pop("allOf")[0])
        else:
            return node
        node = {**target, **node}


def _convert(
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    trail: tuple[str, ...],
    parents: tuple[str, ...] = (),
) -> Schema:
    """Turn one node of a pydantic schema into the structural form that CRDs allow."""
    node = _inline(schema, defs, trail)
    title = node.get("title")
    if "properties" in node and isinstance(title, str):
        if title in parents:
            raise SchemaError(trail, f"{title} contains itself; make the inner field free-form")
        parents = (*parents, title)
    out: Schema = {}
    for key, value in node.items():
        if key in _KEPT or key.startswith("x-kubernetes-"):
            if key != "default" or value is not None:
                out[key] = " ".join(value.split()) if key == "description" else value
        elif key == "const":
            out["enum"] = [value]
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            out["m" + key[len("exclusiveM") :]] = value
            out[key] = True
        elif key == "uniqueItems":
            out["x-kubernetes-list-type"] = "set"
        elif key == "items":
            out["items"] = _convert(value, defs, (*trail, "[]"), parents)
        elif key == "properties":
            out["properties"] = {name: _convert(child, defs, (*trail, name), parents) for name, child in value.items()}
        elif key == "additionalProperties":
            if isinstance(value, dict):
                out[key] = _convert(value, defs, (*trail, "*"), parents)
        elif key not in _DROPPED:
            raise SchemaError(trail, f"keyword {key!r} has no rule for CRDs; add one")
    if out.get("type") == "integer":
        out.setdefault("format", "int64")
    if out.get("type") == "object" and not {"additionalProperties", "properties"} & out.keys():
        # What no model describes is not ours to prune; elsewhere the API server tells of a misspelt field.
        out["x-kubernetes-preserve-unknown-fields"] = True
    return out


def schema_of(model: type[ApiObject]) -> Schema:
    """Return the openAPIV3Schema of a kind."""
    raw = model.model_json_schema(by_alias=True)
    root = _convert(raw, raw.get("$defs", {}), (model.resource.kind,))
    root["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    return root


def crd_of(model: type[ApiObject]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind: one version, no conversion."""
    res: Resource = model.resource
    version: dict[str, Any] = {
        "name": res.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema_of(model)},
        "additionalPrinterColumns": [
            {"name": c.name, "type": c.type, "jsonPath": c.json_path} | ({"priority": 1} if c.wide else {})
            for c in res.columns
        ],
    }
    if res.status:
        version["subresources"] = {"status": {}}
    if res.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in res.selectable]
    names: dict[str, Any] = {
        "kind": res.kind,
        "listKind": f"{res.kind}List",
        "plural": res.plural,
        "singular": res.singular,
        "categories": list(res.categories),
    }
    if res.short_names:
        names["shortNames"] = list(res.short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": res.crd_name},
        "spec": {
            "group": res.group,
            "names": names,
            "scope": "Namespaced" if res.namespaced else "Cluster",
            "conversion": {"strategy": "None"},
            "versions": [version],
        },
    }


class _Dumper(_SafeDumper):  # type: ignore[misc]
    """Writes shared values in full, since anchors have no place in a manifest."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render_all() -> dict[str, str]:
    """File name -> text of every CRD; the same models always give the same bytes."""
    crds = sorted((crd_of(model) for model in KINDS.values()), key=lambda c: c["metadata"]["name"])
    return {
        f"{crd['metadata']['name']}.yaml": HEADER + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=120)
        for crd in crds
    }


def stale_files(directory: Path = YAML_DIR) -> list[str]:
    """Name the files that are missing, differ from the models, or belong to no model."""
    wanted = render_all()
    found = {path.name: path.read_text("utf-8") for path in directory.glob("*.yaml")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main(argv: list[str] | None = None) -> int:
    """Write the CRD files, or with --check compare them; 1 if any is out of date."""
    parser = argparse.ArgumentParser(prog="python -m atoll.api.crdgen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; 1 on a difference")
    check: bool = parser.parse_args(argv).check
    stale = stale_files()
    if check:
        for name in stale:
            print(f"{name}: differs from the models; run python -m atoll.api.crdgen", file=sys.stderr)
        return 1 if stale else 0
    YAML_DIR.mkdir(exist_ok=True)
    wanted = render_all()
    for name in stale:
        if name in wanted:
            (YAML_DIR / name).write_text(wanted[name], "utf-8")
        else:
            (YAML_DIR / name).unlink()
        print(name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
