"""What the core decides; each is written as one patch, guarded by the epoch and generation it was decided on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from atoll.model.decision import Decision
from atoll.model.failover import EvictionTask


@dataclass(frozen=True, slots=True)
class _Write:
    only_tells: ClassVar[bool] = False
    """It changes nothing but what the binding says: whatever its generation is by then, only the epoch is tested."""

    uid: str
    namespace: str
    name: str
    generation: int
    """metadata.generation that the decision was made on."""
    epoch: int
    """The epoch that it was made on."""
    decision: Decision
    """What to write; its epoch is the new one."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one member gets."""

    cluster: str
    tasks: tuple[tuple[str, int], ...]
    """(task, pods)."""

    @property
    def pods(self) -> int:
        return sum(count for _, count in self.tasks)


@dataclass(frozen=True, slots=True)
class Dispatch(_Write):
    """Lift the suspension and name the clusters; in phase Reserving the members only reserve."""

    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit(_Write):
    """All parts are reserved: let them start; the epoch stays."""


@dataclass(frozen=True, slots=True)
class Resize(_Write):
    """More or fewer of its pods run; the epoch stays, and so do the other pods."""

    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Evict(_Write):
    """Take it back: no clusters, suspended again."""

    tasks: tuple[EvictionTask, ...] = ()
    """All that it is to have: members that it is kept from, and what becomes of its copies there."""


@dataclass(frozen=True, slots=True)
class Explain(_Write):
    """Say on the binding why it waits; the epoch stays."""

    only_tells: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Nominate(_Write):
    """Say on the binding what capacity is its own though it waits: that which others leave for it, or its reservation.
    The next leader goes by it; the epoch stays.
    """

    only_tells: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Ask(_Write):
    """Ask members whether it would fit once others have gone: a new epoch, under which nothing of it ever runs."""


Command = Dispatch | Commit | Resize | Evict | Explain | Nominate | Ask
