"""The API reference from the models: `python -m atoll.api.reference [--check]` writes docs/api.md.

It reads the same schemas that become CRDs, so a page can't promise a field, a default or a rule that the API server
does not know.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from atoll.api.base import QUANTITY_PATTERN
from atoll.api.crdgen import schema_of
from atoll.api.effects import WITHOUT_EFFECT, Idle
from atoll.api.models import KINDS, ApiObject

PAGE: Final = Path(__file__).parents[3] / "docs" / "api.md"
"""Where the page is in a checkout; an installed package has none."""

INTRODUCTION: Final = """\
# API reference

<!-- Generated from the models in atoll.api; to change it, edit them and run: python -m atoll.api.reference -->

Every kind that a host serves; a member serves Job, PodGroup, Queue and HyperNode. Group, version and field names of the
`*.volcano.sh` and `*.karmada.io` kinds are those of Volcano and Karmada, so that their manifests and tools work
unchanged. A field that is accepted and has no effect in Atoll yet says so here, with what happens instead, and earns a
warning when it is written; [concepts.md](concepts.md) and [decisions.md](decisions.md) say what the others do. Of
fields that are not here the API server warns, or refuses them, as `kubectl --validate` asks; templates of pods and
whole manifests are kept as they are.
Verdicts and what-ifs, which are computed and not stored, are in [query.md](query.md).

A path ending in `[]` is an item of a list, one ending in `.*` a value of a map; a dash means that there is nothing to
say.
"""

Schema = dict[str, Any]

_BOUNDS: Final = (
    ("minimum", ">= {}"), ("maximum", "<= {}"), ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"), ("minItems", "at least {} items"), ("maxItems", "at most {} items"),
    ("minProperties", "at least {} entries"), ("maxProperties", "at most {} entries"),
)  # fmt: skip


def render() -> str:
    """The page; the same models always give the same text."""
    models = sorted(KINDS.values(), key=lambda model: (model.resource.kind, model.resource.group))
    parts = [INTRODUCTION, "\n".join(_index(models)) + "\n", *(_section(model) for model in models)]
    return "\n".join(parts)


def main(argv: list[str] | None = None) -> int:
    """Write the page, or with --check compare it; 1 if it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m atoll.api.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; 1 on a difference")
    check: bool = parser.parse_args(argv).check
    if not PAGE.parent.is_dir():
        print(f"no folder {PAGE.parent}: the page is written in a checkout only", file=sys.stderr)
        return 1
    wanted = render()
    if PAGE.is_file() and PAGE.read_text("utf-8") == wanted:
        return 0
    if check:
        print("docs/api.md: differs from the models; run python -m atoll.api.reference", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, "utf-8")
    print("docs/api.md")
    return 0


def _index(models: list[type[ApiObject]]) -> Iterator[str]:
    yield "| kind | apiVersion | scope | short names |"
    yield "|---|---|---|---|"
    for model in models:
        res = model.resource
        scope = "namespace" if res.namespaced else "cluster"
        names = ", ".join(f"`{name}`" for name in res.short_names) or "-"
        yield f"| [{res.kind}](#{res.kind.lower()}) | `{res.api_version}` | {scope} | {names} |"


def _section(model: type[ApiObject]) -> str:
    res, schema = model.resource, schema_of(model)
    lines = [f"## {res.kind}", "", f"`{res.api_version}`, `kubectl get {res.crd_name}`", "", _said(schema)]
    lines += [f"- Rule: {rule['message']}" for rule in schema.get("x-kubernetes-validations", ())]
    lines += ["", "| field | type | default | rule | description |", "|---|---|---|---|---|"]
    idle = {f"`{each.path}`": each for each in WITHOUT_EFFECT.get(res.kind, ())}
    for *row, description in _rows(schema, ""):
        row.append(f"{description} {_no_effect(idle[row[0]])}" if row[0] in idle else description)
        lines.append("| " + " | ".join(_cell(text) for text in row) + " |")
    return "\n".join(lines) + "\n"


def _no_effect(idle: Idle) -> str:
    which = "".join(
        f" of {', '.join(f'`{json.dumps(value)}`' for value in values)}" for values in (idle.only,) if values
    )
    but = f", except {', '.join(f'`{json.dumps(value)}`' for value in idle.unless)}" if idle.unless else ""
    return f"**No effect{which}{but}:** {idle.instead}."


def _rows(schema: Schema, prefix: str) -> Iterator[tuple[str, str, str, str, str]]:
    """One row for each field below a node, depth first in the order of the model."""
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        if not prefix and name in ("apiVersion", "kind", "metadata"):
            continue
        path = f"{prefix}{name}"
        default = f"`{json.dumps(child['default'])}`" if "default" in child else "-"
        yield f"`{path}`", _type(child), default, _rules(child, required=name in required), _said(child)
        yield from _below(child, path)


def _below(schema: Schema, path: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Rows of what a field holds."""
    if schema.get("type") == "array":
        yield from _below(schema["items"], f"{path}[]")
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from _below(schema["additionalProperties"], f"{path}.*")
    else:
        yield from _rows(schema, f"{path}.")


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity" if schema.get("pattern") == QUANTITY_PATTERN else "integer or string"
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object":
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            return f"map to {_type(values)}"
        return "object" if schema.get("properties") else "object, free-form"
    return "time" if schema.get("format") == "date-time" else str(kind)


def _rules(schema: Schema, *, required: bool) -> str:
    rules = ["required"] if required else []
    if "enum" in schema:
        rules.append("one of " + ", ".join(f"`{value}`" for value in schema["enum"]))
    rules += [text.format(schema[keyword]) for keyword, text in _BOUNDS if keyword in schema]
    pattern = schema.get("pattern")
    if pattern and pattern != QUANTITY_PATTERN:
        rules.append(f"matches `{pattern}`")
    if schema.get("x-kubernetes-list-map-keys"):
        rules.append("unique by " + ", ".join(schema["x-kubernetes-list-map-keys"]))
    elif schema.get("x-kubernetes-list-type") == "set":
        rules.append("unique")
    for holder in (schema, schema.get("items") or {}):
        rules += [rule["message"] for rule in holder.get("x-kubernetes-validations", ())]
    item = schema.get("items") or {}
    if "enum" in item or "pattern" in item:
        rules.append("each item: " + _rules(item, required=False))
    return "; ".join(rules) or "-"


def _said(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "-")).split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main())
