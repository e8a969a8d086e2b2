"""Namespaces as users: limits of their ResourceQuotas on the host, charges of their workloads, and the queues
open to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from atoll.dispatcher.core.events import NamespaceView
from atoll.model import vector
from atoll.model.gang import Gang
from atoll.model.quotas import Quota, Scopes
from atoll.model.selectors import label_selector_matches
from atoll.model.vector import Vector
from atoll.model.verdict import Reason, Verdict, blocker

Charges = Mapping[Scopes, Vector]
"""What pods of the same scopes request together."""


class Bound(NamedTuple):
    """What a namespace's quotas say of some of the pods that are asked for."""

    kind: str
    """`Namespace` for all of its quotas without scopes, else `ResourceQuota`."""
    name: str
    hard: Vector
    used: Vector
    request: Vector
    """Of those pods that count against it."""


class Namespaces:
    """Limits and use of every namespace."""

    def __init__(self) -> None:
        #: namespaces with any declaration
        self._views: dict[str, NamespaceView] = {}
        #: namespace -> its quotas, the ones for all of its pods first; only limited namespaces
        self._quotas: dict[str, tuple[Quota, ...]] = {}
        #: namespace -> sum of the charges of its workloads
        self.used: dict[str, dict[Scopes, Vector]] = {}

    def set(self, view: NamespaceView) -> None:
        """Replace the declaration of the namespace."""
        self._views.pop(view.name, None)
        self._quotas.pop(view.name, None)
        if view != NamespaceView(view.name):
            self._views[view.name] = view
        if quotas := (*([Quota("", view.limits)] if view.limits else []), *view.scoped):
            self._quotas[view.name] = quotas

    def view(self, name: str) -> NamespaceView:
        """Declaration of a namespace."""
        return self._views.get(name) or NamespaceView(name)

    def weight(self, name: str) -> float:
        """Its part of queues that are ordered by the shares of namespaces."""
        return self.view(name).weight

    def is_limited(self, name: str) -> bool:
        """Whether the namespace has quotas."""
        return name in self._quotas

    def selected(self, name: str, selector: Mapping[str, Any]) -> bool:
        """Whether a label selector is for the namespace; one that is not known has no labels."""
        return label_selector_matches(selector, self.view(name).labels)

    def charge(self, name: str, charges: Charges, times: int = 1) -> None:
        """Add charges, or take them back with `times=-1`."""
        used = self.used.setdefault(name, {})
        vector.add_each(used, charges, times)
        if not used:
            del self.used[name]

    def bounds(self, name: str, charges: Charges) -> Iterator[Bound]:
        """Bounds that the namespace's quotas set for a request."""
        for quota in self._quotas.get(name, ()):
            asked = vector.total(amount for scopes, amount in charges.items() if quota.counts(scopes))
            if asked:
                used = vector.total(each for pod, each in self.used.get(name, {}).items() if quota.counts(pod))
                kind, named = ("ResourceQuota", quota.name) if quota.name else ("Namespace", name)
                yield Bound(kind, named, quota.hard, used, asked)

    def shortage(self, name: str, charges: Charges) -> Verdict | None:
        """The first quota, with its first resource, that lacks so much more; None when the namespace may have it."""
        for bound in self.bounds(name, charges):
            if (missing := vector.shortage(bound.used, bound.request, bound.hard)) is not None:
                return Verdict(Reason.QUOTA_EXCEEDED, blocker(bound.kind, bound.name, *missing))
        return None


def by_scopes(gangs: Iterable[Gang], amount: Vector) -> Charges:
    """What these gangs request, which is this amount in all."""
    tasks = [(gang, task) for gang in gangs for task in gang.tasks]
    found: dict[Scopes, Vector] = {tuple(task.scopes): {} for _, task in tasks}
    if len(found) < 2:
        return dict.fromkeys(found or ((),), amount)
    for gang, task in tasks:
        vector.add(found[tuple(task.scopes)], gang.charge(task), task.replicas)
    return found
