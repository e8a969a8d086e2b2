"""What a CRD says of a kind's fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atoll.api.shipped import load_crds

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in load_crds()}


def schema(kind: str) -> dict[str, Any]:
    """The root schema of a shipped CRD."""
    (version,) = CRDS[kind]["spec"]["versions"]
    root: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return root


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]" if key == "items" else f"{path}.*")
