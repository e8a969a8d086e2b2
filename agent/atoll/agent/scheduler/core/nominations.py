"""Nodes that are kept for gangs while their victims leave.

Kept slots are charged in the `Room`, on top of the victims' charges there. Only a gang of a higher priority may
take it; its own gang gets it once the victims are gone, or other nodes where it fits before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from atoll.agent.scheduler.core.room import Room
from atoll.model import vector
from atoll.model.gang import Task
from atoll.model.vector import Vector


@dataclass(frozen=True)
class Nomination:
    """Slots kept for one gang."""

    gang: str
    priority: int
    spots: Sequence[tuple[str, str, str]]
    """(pod key, UID, node)."""
    slots: Sequence[tuple[Task, str, int]]
    """(task, node, pods): charged in the `Room`."""
    victims: Mapping[str, str]
    """Key -> UID of the pods that leave."""
    deadline: float
    """When victims that are still there are not waited for any longer."""

    def wanted(self) -> dict[str, Vector]:
        """Node -> what the gang is to get there."""
        found: dict[str, Vector] = {}
        for task, node, count in self.slots:
            vector.add(found.setdefault(node, {}), task.requests, count)
        return found


@dataclass
class Nominations:
    """All of a member, always equal to nominations in the `Room`, but for lifted ones."""

    room: Room
    _by_gang: dict[str, Nomination] = field(default_factory=dict)

    def get(self, gang: str) -> Nomination | None:
        """Nomination of a gang."""
        return self._by_gang.get(gang)

    @property
    def deadline(self) -> float | None:
        """When the next one has waited long enough."""
        return min((each.deadline for each in self._by_gang.values()), default=None)

    def overdue(self, now: float) -> list[str]:
        """Gangs whose victims took too long."""
        return [each.gang for each in self._by_gang.values() if each.deadline <= now]

    def add(self, nomination: Nomination) -> None:
        """Keep nodes for a gang that has none kept."""
        assert nomination.gang not in self._by_gang, f"{nomination.gang} has nodes already"
        self._by_gang[nomination.gang] = nomination
        self.put_back([nomination])

    def drop(self, gang: str, *, handed_over: bool = False) -> Nomination | None:
        """Keep nothing for the gang any more.

        Args:
            gang: its key.
            handed_over: whether its pods are assumed there in the same breath.
        """
        found = self._by_gang.pop(gang, None)
        for task, node, count in found.slots if found is not None else ():
            self.room.unnominate(node, task, count, handed_over=handed_over)
        return found

    def below(self, priority: int) -> list[Nomination]:
        """Nominations of gangs of a lower priority."""
        return [each for each in self._by_gang.values() if each.priority < priority]

    def lift(self, gang: str, priority: int) -> list[Nomination]:
        """Lift for a moment the nominations that don't bind a gang: its own, and those with lower priority."""
        lifted = [each for each in self._by_gang.values() if each.gang == gang or each.priority < priority]
        for each in lifted:
            for task, node, count in each.slots:
                self.room.unnominate(node, task, count, handed_over=True)
        return lifted

    def put_back(self, lifted: Iterable[Nomination]) -> None:
        """Take it again."""
        for each in lifted:
            for task, node, count in each.slots:
                self.room.nominate(node, task, count)

    def left(self, nomination: Nomination, there: Callable[[str], str | None]) -> int:
        """Victims that still hold their nodes; `there` gives the UID of a pod that does."""
        return sum(1 for key, uid in nomination.victims.items() if there(key) == uid)
