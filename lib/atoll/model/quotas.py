"""ResourceQuotas with scopes: which pods count against them.

A quota without scopes is for all pods of its namespace. As in Kubernetes, one with several scopes is for the pods that
match them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, cast

from atoll.model.gang import CLASS_IS
from atoll.model.vector import Vector

Scopes = tuple[str, ...]
"""Of a pod: see `atoll.model.gang.scopes_of`."""
Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

_CLASS: Final = "PriorityClass"
_OPPOSITES: Final = {"NotTerminating": "Terminating", "NotBestEffort": "BestEffort"}


class Scope(NamedTuple):
    """One condition of a quota."""

    name: str
    operator: Operator = "Exists"
    values: tuple[str, ...] = ()

    def matches(self, pod: Sequence[str]) -> bool:
        """Whether a pod of these scopes meets it; a scope that is not of pods is met by none."""
        if self.name in _OPPOSITES:
            return _OPPOSITES[self.name] not in pod
        if self.name != _CLASS:
            return self.name in pod
        found = next((each.removeprefix(CLASS_IS) for each in pod if each.startswith(CLASS_IS)), "")
        match self.operator:
            case "Exists":
                return bool(found)
            case "DoesNotExist":
                return not found
            case "In":
                return found in self.values
            case "NotIn":
                return found not in self.values
        return False


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota with scopes."""

    name: str
    hard: Vector
    """A resource that is not named is unlimited."""
    scopes: tuple[Scope, ...] = field(default=())

    def counts(self, pod: Sequence[str]) -> bool:
        """Whether pods of these scopes count against it."""
        return all(scope.matches(pod) for scope in self.scopes)


def scopes_in(scopes: Iterable[str], selector: Mapping[str, Any] | None) -> tuple[Scope, ...]:
    """The conditions of a quota: its `spec.scopes` and `spec.scopeSelector`."""
    terms = (selector or {}).get("matchExpressions") or ()
    return (
        *(Scope(name) for name in scopes),
        *(
            Scope(str(term.get("scopeName")), cast(Operator, term.get("operator")), tuple(term.get("values") or ()))
            for term in terms
        ),
    )
