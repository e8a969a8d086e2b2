"""Which nodes a pod selects, requires and prefers, with all checks of Kubernetes: node selectors read once, matched
often.

A term that Kubernetes would not take matches nothing, and so does an empty one; the others of its selector still count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.model.labels import Labels, Requirement, SelectorError, of_expression

NODE_NAME = "metadata.name"
"""The one field of a node that an affinity can select by."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Term:
    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, labels: Labels, name: str) -> bool:
        """A node without a name has no fields, and what is asked of them counts as met."""
        return all(each.matches(labels) for each in self.labels) and (
            not name or all(each.matches({NODE_NAME: name}) for each in self.fields)
        )


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """Terms of which one must match."""

    terms: tuple[_Term, ...]
    problems: tuple[str, ...] = ()
    """What is wrong with terms that were left out."""

    def matches(self, labels: Labels, name: str) -> bool:
        """Whether a node has what some term asks for.

        Raises:
            SelectorError: no term matches, and there are some that can't.
        """
        if any(term.matches(labels, name) for term in self.terms):
            return True
        if self.problems:
            raise SelectorError("; ".join(self.problems))
        return False


@dataclass(frozen=True, slots=True)
class RequiredAffinity:
    """A pod's nodeSelector and its required node affinity."""

    labels: Labels
    affinity: NodeSelector | None

    def matches(self, labels: Labels, name: str) -> bool:
        """Whether the pod may go to a node with these labels and this name.

        Raises:
            SelectorError: as that of `NodeSelector`.
        """
        if any(labels.get(key) != value for key, value in self.labels.items()):
            return False
        return self.affinity is None or self.affinity.matches(labels, name)


def node_selector(terms: Sequence[Json]) -> NodeSelector:
    """A core/v1 NodeSelector of these nodeSelectorTerms."""
    read, problems = [], []
    for place, term in enumerate(terms):
        try:
            if found := _term(term):
                read.append(found)
        except SelectorError as error:
            problems.append(f"nodeSelectorTerms[{place}]: {error}")
    return NodeSelector(tuple(read), tuple(problems))


def required_affinity(pod_spec: Json) -> RequiredAffinity:
    """What a pod's spec requires of nodes' labels."""
    node_affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return RequiredAffinity(
        pod_spec.get("nodeSelector") or {},
        None if required is None else node_selector(required.get("nodeSelectorTerms") or ()),
    )


def preferred_score(terms: Sequence[Json], labels: Labels, name: str) -> int:
    """The sum of the weights of preferred terms that match; what weighs nothing isn't read.

    Raises:
        SelectorError: a term with a weight is one that Kubernetes would not take.
    """
    weighed = [(term.get("weight") or 0, term.get("preference") or {}) for term in terms]
    read = [(weight, _term(preference)) for weight, preference in weighed if weight]
    return sum(weight for weight, term in read if term is not None and term.matches(labels, name))


def _term(term: Json) -> _Term | None:
    """None for an empty one."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return None
    return _Term(tuple(map(of_expression, expressions)), tuple(map(_field, fields)))


def _field(expression: Json) -> Requirement:
    key, operator, values = expression.get("key", ""), expression.get("operator"), list(expression.get("values") or ())
    if operator not in ("In", "NotIn") or len(values) != 1:
        raise SelectorError(f"{key}: a field of a node can only be asked for In or NotIn one value")
    return Requirement(key, operator.lower(), (values[0],))
