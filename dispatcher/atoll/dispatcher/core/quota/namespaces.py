"""Namespaces as users: what their ResourceQuotas on the host allow, what their workloads are charged, and which queues
are open to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.model import vector
from atoll.model.selectors import label_selector_matches
from atoll.model.vector import Vector


class Namespaces:
    """Limits and use of every namespace."""

    def __init__(self) -> None:
        #: namespace -> what it may use; only those that are limited
        self.limits: dict[str, Vector] = {}
        #: namespace -> its labels; only those that have some
        self._labels: dict[str, Mapping[str, str]] = {}
        #: namespace -> sum of the charges of its workloads
        self.used: dict[str, Vector] = {}

    def set(self, name: str, limits: Vector | None) -> None:
        """The namespace is limited so; None for not at all."""
        if limits is None:
            self.limits.pop(name, None)
        else:
            self.limits[name] = limits

    def label(self, name: str, labels: Mapping[str, str]) -> bool:
        """The namespace has these labels; whether it had others."""
        before = self._labels.pop(name, {})
        if labels:
            self._labels[name] = labels
        return before != labels

    def selected(self, name: str, selector: Mapping[str, Any]) -> bool:
        """Whether a label selector is for the namespace; one that is not known has no labels."""
        return label_selector_matches(selector, self._labels.get(name, {}))

    def charge(self, name: str, amount: Vector, times: int = 1) -> None:
        """Add a charge, or take it back with `times=-1`."""
        used = self.used.setdefault(name, {})
        vector.add(used, amount, times)
        if not used:
            del self.used[name]

    def shortage(self, name: str, request: Vector) -> tuple[str, int, int] | None:
        """The first resource that the namespace lacks: (resource, requested, available); None when it may have it."""
        limits = self.limits.get(name)
        return vector.shortage(self.used.get(name, {}), request, limits) if limits is not None else None
