"""What the core decides; each is written as one patch, guarded by the epoch and generation it was decided on."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from atoll.model.decision import Decision
from atoll.model.failover import EvictionTask


class _Write(Struct, frozen=True, gc=False):
    only_tells: ClassVar[bool] = False
    """It changes nothing but the binding's text: at any later generation, only the epoch is tested."""

    uid: str
    namespace: str
    name: str
    generation: int
    """metadata.generation that the decision was made on."""
    epoch: int
    """The epoch that it was made on."""
    decision: Decision
    """What to write; its epoch is the new one."""


class Part(Struct, frozen=True, gc=False):
    """What one member gets."""

    cluster: str
    tasks: tuple[tuple[str, int], ...]
    """(task, pods)."""

    @property
    def pods(self) -> int:
        return sum(count for _, count in self.tasks)


class Dispatch(_Write, frozen=True, gc=False):
    """Lift the suspension and name the clusters; in phase Reserving the members only reserve."""

    parts: tuple[Part, ...] = ()


class Commit(_Write, frozen=True, gc=False):
    """All parts are reserved: let them start; the epoch stays."""


class Resize(_Write, frozen=True, gc=False):
    """More or fewer of its pods run; the epoch stays, and so do the other pods."""

    parts: tuple[Part, ...] = ()


class Evict(_Write, frozen=True, gc=False):
    """Take it back: no clusters, suspended again."""

    tasks: tuple[EvictionTask, ...] = ()
    """All that it is to have: members that it is kept from, and what becomes of its copies there."""


class Explain(_Write, frozen=True, gc=False):
    """Say on the binding why it waits; the epoch stays."""

    only_tells: ClassVar[bool] = True


class Nominate(_Write, frozen=True, gc=False):
    """Say on the binding what capacity is its own though it waits: that which others leave for it, or its reservation.
    The next leader goes by it; the epoch stays.
    """

    only_tells: ClassVar[bool] = True


class Ask(_Write, frozen=True, gc=False):
    """Ask members whether it would fit once others have gone: a new epoch, under which nothing of it ever runs."""


Command = Dispatch | Commit | Resize | Evict | Explain | Nominate | Ask
