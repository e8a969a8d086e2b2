"""Namespaces as users: what their ResourceQuotas on the host allow, and what their workloads are charged."""

from __future__ import annotations

from atoll.model import vector
from atoll.model.vector import Vector


class Namespaces:
    """Limits and use of every namespace."""

    def __init__(self) -> None:
        #: namespace -> what it may use; only those that are limited
        self.limits: dict[str, Vector] = {}
        #: namespace -> sum of the charges of its workloads
        self.used: dict[str, Vector] = {}

    def set(self, name: str, limits: Vector | None) -> None:
        """The namespace is limited so; None for not at all."""
        if limits is None:
            self.limits.pop(name, None)
        else:
            self.limits[name] = limits

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
