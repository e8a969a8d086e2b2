"""Domains from the labels of nodes: one label for each level, or one whose values say the whole path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from atoll.topology.discovery.domains import Found, compressed, named

HOSTNAME = "kubernetes.io/hostname"

PRESETS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "aws": tuple(f"topology.k8s.aws/network-node-layer-{level}" for level in (1, 2, 3)),
        "gcp": tuple(f"cloud.google.com/gce-topology-{level}" for level in ("block", "subblock", "host")),
        "nvlink": ("nvidia.com/gpu.clique",),
        "zones": ("topology.kubernetes.io/region", "topology.kubernetes.io/zone"),
    }
)
"""Labels that clouds and device plugins set, from the top down."""


def by_levels(nodes: Mapping[str, Mapping[str, str]], levels: Sequence[str]) -> list[Found]:
    """The trees that labels make, one label for each level. The same value below two values is two domains.

    Args:
        nodes: name -> labels. A node without some of the labels is in no domain.
        levels: keys from the top down; the host itself is no domain and may be left out.
    """
    keys = [level for level in levels if level != HOSTNAME]
    paths = {name: tuple(labels[key] for key in keys) for name, labels in nodes.items() if labels.keys() >= set(keys)}
    return _below((), paths, keys) if keys else []


def _below(path: tuple[str, ...], paths: Mapping[str, tuple[str, ...]], keys: Sequence[str]) -> list[Found]:
    depth = len(path)
    groups: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for node, values in paths.items():
        groups[values[depth]][node] = values
    found = []
    for value, inside in sorted(groups.items()):
        here = (*path, value)
        last = depth + 1 == len(keys)
        children = () if last else tuple(_below(here, inside, keys))
        label = dict(zip(keys, here, strict=False)) if last else None
        found.append(Found(named(*here), tuple(sorted(inside)), children, label, keys[depth]))
    return found


def by_path(nodes: Mapping[str, Mapping[str, str]], key: str, separator: str) -> list[Found]:
    """The trees that the values of one label make, each of which says the whole path, such as `row1-rack2`.

    Levels that add nothing are left out: in `s0-s1-rack-1` the word `rack` is none.

    Args:
        nodes: name -> labels.
        key: of the label.
        separator: between two levels.

    Raises:
        ValueError: the separator is empty.
    """
    if not separator:
        raise ValueError("the separator of levels is empty; give the character between them, such as -")
    by_value: dict[str, list[str]] = defaultdict(list)
    for node, labels in nodes.items():
        if key in labels:
            by_value[labels[key]].append(node)
    return [compressed(each) for each in _prefixes("", by_value, key, separator)]


def _prefixes(prefix: str, by_value: Mapping[str, list[str]], key: str, separator: str) -> list[Found]:
    """The domains whose names go on after a prefix."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for value, nodes in by_value.items():
        head = value[len(prefix) :].partition(separator)[0]
        groups[f"{prefix}{head}"][value] = nodes
    found = []
    for name, inside in sorted(groups.items()):
        members = tuple(sorted(node for each in inside.values() for node in each))
        own = inside.pop(name, None)
        children = tuple(_prefixes(f"{name}{separator}", inside, key, separator)) if inside else ()
        if own is not None and children:
            # Some nodes say no more than this: they are a domain beside the others.
            children = (Found(named(name, "rest"), tuple(sorted(own)), (), {key: name}), *children)
        label = {key: name} if not children else None
        found.append(Found(named(name), members, children, label))
    return found
