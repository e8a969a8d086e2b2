"""Label selectors, node affinity and tolerations: which nodes and clusters a pod accepts, on plain dicts.

The corner cases follow the Kubernetes documentation: no selector matches nothing where a nil pointer would be, an
empty one everything, an empty node selector term nothing, and NotIn matches where the key is absent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from atoll.model.labels import int64
from atoll.model.timestamps import is_time, to_seconds

Labels = Mapping[str, str]
Json = Mapping[str, Any]
NODE_NAME = "metadata.name"
"""The one field of a node that an affinity can select by."""


class _Expression(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] | None = None


class _Selector(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


_decoder = msgspec.json.Decoder(_Selector)


class NodeSelectorRequirement(msgspec.Struct, frozen=True):
    """One expression of a term, as Kubernetes calls it."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel"):
    """One term of a required node affinity: the form that all else here relies on."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


def check_node_terms(terms: object) -> None:
    """Refuse the nodeSelectorTerms of a required node affinity that Kubernetes would not take.

    Raises:
        ValueError: they have another form; the message says where, with `$` for the list of terms.
    """
    msgspec.convert(terms, list[NodeSelectorTerm])


def label_selector_matches(selector: Json | None, labels: Labels) -> bool:
    """metav1.LabelSelector against labels; None matches nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_requirement(item, labels) for item in selector.get("matchExpressions") or ())


def parse(text: str) -> dict[str, Any]:
    """A LabelSelector from its JSON, as annotations carry one.

    Raises:
        ValueError: not JSON, or not a LabelSelector.
    """
    try:
        selector = msgspec.to_builtins(_decoder.decode(text))
    except msgspec.MsgspecError as error:
        raise ValueError('is not a label selector in JSON, such as {"matchLabels": {"team": "vision"}}') from error
    return cast(dict[str, Any], selector)


def node_affinity_matches(terms: Sequence[Json], labels: Labels, name: str, unknown: Collection[str] = ()) -> bool:
    """Required node affinity: any term matches, each by all of its expressions and fields.

    Args:
        terms: its nodeSelectorTerms.
        labels: of the node.
        name: of the node.
        unknown: label keys, or the field, of which the node's value is not known: what is asked of them counts as met.
    """
    return any(_term(term, labels, name, unknown) for term in terms)


def selected_keys(selector: Labels, terms: Sequence[Json]) -> set[str]:
    """Keys of the labels, and fields, that a node selector and the terms of an affinity ask for."""
    found = set(selector)
    for term in terms:
        for name in ("matchExpressions", "matchFields"):
            found.update(str(item.get("key", "")) for item in term.get(name) or ())
    return found


def required_node_terms(pod_spec: Json) -> list[dict[str, Any]]:
    """The nodeSelectorTerms of the pod's required node affinity; empty when it has none."""
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return []
    # Required without terms is a selector that nothing satisfies, which an empty term says as well.
    return list(required.get("nodeSelectorTerms") or ({},))


def untolerated(taints: Iterable[Json], tolerations: Sequence[Json], *, compare: bool = False) -> Json | None:
    """The first NoSchedule or NoExecute taint that nothing tolerates, or None.

    `compare`: operators Gt and Lt count, as where the cluster has TaintTolerationComparisonOperators on.
    """
    for taint in taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerated(taint, tolerations, compare=compare):
            return taint
    return None


def is_soft(taint: Json) -> bool:
    """Whether pods that do not tolerate it should rather be elsewhere."""
    return taint.get("effect") == "PreferNoSchedule"


def disliked(taints: Iterable[Json], tolerations: Sequence[Json]) -> int:
    """How many such taints nothing tolerates."""
    return sum(is_soft(taint) and not tolerated(taint, tolerations) for taint in taints)


def tolerated(taint: Json, tolerations: Sequence[Json], *, compare: bool = False) -> bool:
    """Whether some toleration is for this taint; `compare` as of `untolerated`."""
    return any(_tolerates(each, taint, compare) for each in tolerations)


def tolerated_for(taint: Json, tolerations: Sequence[Json]) -> float:
    """Seconds that a NoExecute taint is tolerated: as Kubernetes counts, the shortest of those that name a time."""
    fitting = [each for each in tolerations if tolerated(taint, [each])]
    if not fitting:
        return 0.0
    return min((float(each["tolerationSeconds"]) for each in fitting if "tolerationSeconds" in each), default=math.inf)


def added(taint: Json) -> float:
    """Since when a taint is there, in seconds since the epoch; infinite while nobody has written that."""
    text = str(taint.get("timeAdded") or "")
    return to_seconds(text) if is_time(text) else math.inf


def _term(term: Json, labels: Labels, name: str, unknown: Collection[str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(item.get("key") in unknown or _requirement(item, labels) for item in expressions) and all(
        item.get("key") in unknown or _requirement(item, {NODE_NAME: name}) for item in fields
    )


def _requirement(item: Json, labels: Labels) -> bool:
    key, operator, values = item.get("key", ""), item.get("operator"), list(item.get("values") or ())
    present = key in labels
    match operator:
        case "In":
            return present and labels[key] in values
        case "NotIn":
            return not present or labels[key] not in values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "Gt" | "Lt":
            have, want = int64(labels.get(key, "")), int64(values[0] if values else "")
            if have is None or want is None:
                return False
            return have > want if operator == "Gt" else have < want
        case _:
            return False


def _tolerates(toleration: Json, taint: Json, compare: bool) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    bound, value = toleration.get("value") or "", taint.get("value") or ""
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(bound == value)
        case "Gt" | "Lt" if compare:
            have, limit = int64(value), int64(bound)
            if have is None or limit is None:
                return False
            return have > limit if toleration["operator"] == "Gt" else have < limit
        case _:
            return False


def text(selector: Mapping[str, Any]) -> str:
    """A label selector as kubectl takes it, more or less."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        values = f" ({','.join(each['values'])})" if each.get("values") else ""
        parts.append(f"{each.get('key')} {str(each.get('operator')).lower()}{values}")
    return ", ".join(parts)
