"""Karmada's ClusterAffinity: which clusters a policy, a queue or a weight speaks of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.model import selectors


def tiers(affinity: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """A cluster affinity, then those that take what it has no room for (`overflowAffinities`), in their order."""
    return (affinity, *(affinity.get("overflowAffinities") or ()))


def matches(
    affinity: Mapping[str, Any], name: str, labels: Mapping[str, str], fields: Mapping[str, Sequence[str]]
) -> bool:
    """Whether a cluster affinity takes a cluster; an empty one takes any.

    Args:
        affinity: clusterNames, exclude, labelSelector and fieldSelector.
        name: of the cluster.
        labels: of the cluster.
        fields: its `provider`, `region` and `zone`, each with all of its values.
    """
    names = affinity.get("clusterNames")
    if (names and name not in names) or name in (affinity.get("exclude") or ()):
        return False
    selector = affinity.get("labelSelector")
    if selector and not selectors.label_selector_matches(selector, labels):
        return False
    for each in (affinity.get("fieldSelector") or {}).get("matchExpressions") or ():
        inside = not set(fields.get(each.get("key", ""), ())).isdisjoint(each.get("values") or ())
        if inside is (each.get("operator") == "NotIn"):
            return False
    return True
