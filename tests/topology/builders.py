"""HyperNodes and nodes in one line each."""

from __future__ import annotations

from typing import Any


def hyper_node(
    name: str, tier: int, *, nodes: str = "", below: str = "", pattern: str = "", tree: str = ""
) -> dict[str, Any]:
    """One HyperNode; members with spaces between."""
    named = [("Node", each) for each in nodes.split()] + [("HyperNode", each) for each in below.split()]
    members: list[dict[str, Any]] = [{"type": kind, "selector": {"exactMatch": {"name": n}}} for kind, n in named]
    if pattern:
        members.append({"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}})
    metadata: dict[str, Any] = {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    if tree:
        metadata["labels"] = {"atoll.sh/topology-tree": tree}
    return {"metadata": metadata, "spec": {"tier": tier, "members": members}}


def nodes(*names: str) -> dict[str, dict[str, str]]:
    """Nodes without labels."""
    return {name: {} for name in names}
