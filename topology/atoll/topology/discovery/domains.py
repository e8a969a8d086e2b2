"""Domains as a discovery finds them, and the HyperNodes that say so."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.model import keys
from atoll.model.apiresource import HYPER_NODES

Json = dict[str, Any]

_NAME_MAX = 63
_HASH = 8
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Found:
    """One domain: nodes or smaller domains that are near each other."""

    name: str
    nodes: tuple[str, ...]
    """All below it, sorted."""
    children: tuple[Found, ...] = ()
    """The domains below; none where its members are nodes."""
    label: Mapping[str, str] | None = None
    """Labels that its nodes and no others have; None where only their names tell them."""
    tier_name: str = ""

    @property
    def tier(self) -> int:
        """1 for a domain of nodes, else one more than the highest below."""
        return 1 + max((child.tier for child in self.children), default=0)


def named(*parts: str) -> str:
    """A name for an object, the same for the same parts: readable, with a hash where that alone would not be unique."""
    plain = "-".join(parts)
    slug = _NOT_IN_NAMES.sub("-", plain.lower()).strip("-")
    if slug == plain and len(slug) <= _NAME_MAX:
        return slug
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_HASH]
    return f"{slug[: _NAME_MAX - _HASH - 1].strip('-')}-{digest}".lstrip("-")


def compressed(domain: Found) -> Found:
    """The domain without levels that add nothing: one child with the same nodes gives its place to its children."""
    while len(domain.children) == 1:
        [only] = domain.children
        label = domain.label if only.label is None or only.children else only.label
        domain = Found(domain.name, domain.nodes, only.children, label, domain.tier_name or only.tier_name)
    children = tuple(map(compressed, domain.children))
    return Found(domain.name, domain.nodes, children, domain.label, domain.tier_name)


def hyper_nodes(roots: Sequence[Found], source: str, tree: str = "") -> list[Json]:
    """The HyperNodes of these domains, by name.

    Args:
        roots: the top domains.
        source: who found them; HyperNodes of another source, or of none, are left alone by `plan`.
        tree: the name of the tree that they are in, with which their names begin; empty for the one without a name.
    """
    return sorted(
        (_manifest(each, source, tree) for root in roots for each in _all(root)), key=lambda m: m["metadata"]["name"]
    )


def _all(domain: Found) -> Iterator[Found]:
    yield domain
    for child in domain.children:
        yield from _all(child)


def _manifest(domain: Found, source: str, tree: str) -> Json:
    def name(each: Found) -> str:
        return named(tree, each.name) if tree else each.name

    if domain.children:
        members = [_member("HyperNode", {"exactMatch": {"name": name(child)}}) for child in domain.children]
    elif domain.label is not None:
        members = [_member("Node", {"labelMatch": {"matchLabels": dict(domain.label)}})]
    else:
        members = [_member("Node", {"exactMatch": {"name": node}}) for node in domain.nodes]
    spec: Json = {"tier": domain.tier, "members": members}
    if domain.tier_name:
        spec["tierName"] = domain.tier_name
    labels = {keys.TOPOLOGY_SOURCE: source}
    if tree:
        labels[keys.TOPOLOGY_TREE] = tree
    return {
        "apiVersion": HYPER_NODES.api_version,
        "kind": HYPER_NODES.kind,
        "metadata": {"name": name(domain), "labels": labels},
        "spec": spec,
    }


def _member(kind: str, selector: Json) -> Json:
    return {"type": kind, "selector": selector}
