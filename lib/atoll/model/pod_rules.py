"""What a pod says of the pods beside it: affinity, anti-affinity and topology spread, read once and comparable.

The corner cases are Kubernetes': a term without a label selector means no pod; without namespaces and a selector of
them it means those of the pod's own namespace; an empty selector of namespaces means all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from atoll.model import numbers

Json = Mapping[str, Any]
Labels = Mapping[str, str]
Requirement = tuple[str, str, tuple[str, ...]]
"""(key, operator, values) of a label selector."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Selection(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which pods are meant."""

    labels: tuple[Requirement, ...] | None
    """None means none."""
    namespaces: tuple[str, ...] = ()
    of_namespaces: tuple[Requirement, ...] | None = None
    """Namespaces with these labels, too; None for no more than those that are named."""
    staying: bool = False
    """Whether pods that are being removed do not count."""

    def selects(self, namespace: str, labels: Labels, namespaces: Mapping[str, Labels]) -> bool:
        """Whether a pod is meant; `namespaces`: their labels."""
        if self.labels is None:
            return False
        if namespace not in self.namespaces and (
            self.of_namespaces is None or not matches(self.of_namespaces, namespaces.get(namespace, {}))
        ):
            return False
        return matches(self.labels, labels)

    def keys(self) -> set[str]:
        """Of the labels of pods that it reads."""
        return {key for key, _, _ in self.labels or ()}


class Term(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods, and the label by which nodes are in one place with them."""

    key: str
    pods: Selection
    weight: int = 0
    """Of a preference; below 0 to be away from them."""


class Spread(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One topologySpreadConstraint."""

    key: str
    pods: Selection
    max_skew: int
    hard: bool
    min_domains: int = 1
    by_affinity: bool = True
    """Whether only nodes that the pod's selectors allow count."""
    by_taints: bool = False
    """Whether only nodes count whose taints it tolerates."""


class PodRules(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one pod says of others, and what others' rules read of it."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    """Sorted; perhaps only those that some rule reads."""
    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()
    spread: tuple[Spread, ...] = ()

    @property
    def says(self) -> bool:
        """Whether it says anything, and is not only read by others."""
        return bool(self.affinity or self.anti_affinity or self.preferred or self.spread)

    def keys(self) -> set[str]:
        """Of the labels of pods that these rules read."""
        terms: Iterable[Term | Spread] = (*self.affinity, *self.anti_affinity, *self.preferred, *self.spread)
        return set().union(*[each.pods.keys() for each in terms])

    def seen_by(self, keys: set[str]) -> PodRules:
        """The same, with no labels but these."""
        return msgspec.structs.replace(self, labels=tuple(each for each in self.labels if each[0] in keys))


def matches(requirements: Iterable[Requirement], labels: Labels) -> bool:
    """Whether labels meet all requirements."""
    for key, operator, values in requirements:
        value = labels.get(key)
        match operator:
            case "In":
                met = value is not None and value in values
            case "NotIn":
                met = value is None or value not in values
            case "Exists":
                met = value is not None
            case "DoesNotExist":
                met = value is None
            case _:
                met = False
        if not met:
            return False
    return True


def of(pod_spec: Json, labels: Labels, namespace: str) -> PodRules | None:
    """What the spec of a pod with these labels says; None where that is nothing. Malformed parts say nothing."""
    affinity, spread = _mapping(pod_spec.get("affinity")), _list(pod_spec.get("topologySpreadConstraints"))
    near, away = _mapping(affinity.get("podAffinity")), _mapping(affinity.get("podAntiAffinity"))
    if not (near or away or spread):
        return None
    found = PodRules(
        namespace,
        tuple(sorted((str(key), str(value)) for key, value in labels.items())),
        tuple(_term(each, labels, namespace) for each in _list(near.get(_REQUIRED))),
        tuple(_term(each, labels, namespace) for each in _list(away.get(_REQUIRED))),
        (
            *(_weighted(each, labels, namespace, 1) for each in _list(near.get(_PREFERRED))),
            *(_weighted(each, labels, namespace, -1) for each in _list(away.get(_PREFERRED))),
        ),
        tuple(_spread(each, labels, namespace) for each in spread),
    )
    return found if found.says else None


def node_preferences(pod_spec: Json) -> list[dict[str, Any]]:
    """The preferredSchedulingTerms of the pod's node affinity that can be read."""
    affinity = _mapping(_mapping(pod_spec.get("affinity")).get("nodeAffinity"))
    return [dict(each) for each in _list(affinity.get(_PREFERRED)) if isinstance(each, Mapping)]


def bare(labels: Labels, namespace: str) -> PodRules:
    """Of a pod that says nothing, for the rules of others."""
    return PodRules(namespace, tuple(sorted(labels.items())))


def _term(term: object, labels: Labels, namespace: str, weight: int = 0) -> Term:
    term = _mapping(term)
    selector = _selector(term.get("labelSelector"))
    if selector is not None:
        selector = _with_keys(selector, term.get("matchLabelKeys"), labels, "In")
        selector = _with_keys(selector, term.get("mismatchLabelKeys"), labels, "NotIn")
    named = tuple(sorted(map(str, _list(term.get("namespaces")))))
    of_namespaces = _selector(term.get("namespaceSelector"))
    if not named and of_namespaces is None:
        named = (namespace,)
    return Term(str(term.get("topologyKey", "")), Selection(selector, named, of_namespaces), weight)


def _weighted(preference: object, labels: Labels, namespace: str, sign: int) -> Term:
    weighted = _mapping(preference)
    weight = numbers.whole(str(weighted.get("weight", 0))) or 0
    return _term(weighted.get("podAffinityTerm"), labels, namespace, sign * weight)


def _spread(constraint: object, labels: Labels, namespace: str) -> Spread:
    given = _mapping(constraint)
    selector = _selector(given.get("labelSelector"))
    if selector is not None:
        selector = _with_keys(selector, given.get("matchLabelKeys"), labels, "In")
    return Spread(
        str(given.get("topologyKey", "")),
        Selection(selector, (namespace,), staying=True),
        numbers.whole(str(given.get("maxSkew", 1))) or 1,
        given.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        numbers.whole(str(given.get("minDomains") or 1)) or 1,
        given.get("nodeAffinityPolicy", "Honor") == "Honor",
        given.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def _selector(selector: object) -> tuple[Requirement, ...] | None:
    if not isinstance(selector, Mapping):
        return None
    wanted: list[Requirement] = [
        (str(key), "In", (str(value),)) for key, value in sorted(_mapping(selector.get("matchLabels")).items())
    ]
    for each in map(_mapping, _list(selector.get("matchExpressions"))):
        values = tuple(sorted(map(str, _list(each.get("values")))))
        wanted.append((str(each.get("key", "")), str(each.get("operator", "")), values))
    return tuple(wanted)


def _with_keys(
    selector: tuple[Requirement, ...], keys: object, labels: Labels, operator: str
) -> tuple[Requirement, ...]:
    """With the pod's own values of these labels; an API server that has added them already adds nothing more."""
    more = [(str(key), operator, (str(labels[key]),)) for key in _list(keys) if key in labels]
    there = {(key, operator) for key, operator, _ in selector}
    return (*selector, *(each for each in more if each[:2] not in there))


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
