"""Places that the descheduler keeps for pods that leave hot nodes; pure.

Nodes carry them in an annotation, which no tenant may write. A place is charged in the `Room` until its owner's pods
have come, on this node or another one, or until its time is over. Gangs of a higher priority may take it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.gangs import Standing
from atoll.agent.scheduler.core.room import Room
from atoll.model import vector
from atoll.model.gang import Task
from atoll.model.timestamps import is_time, to_seconds
from atoll.model.vector import Vector

MOST: Final = 200
"""Places on one node; further ones are left out."""


class Place(msgspec.Struct, frozen=True):
    """A place for one pod."""

    owner: str
    """UID of the binding, or of the controller, of the pod to come."""
    requests: Vector
    """Integer units, `pods: 1` included."""
    priority: int
    until: str
    """RFC 3339."""

    def __hash__(self) -> int:
        return hash((self.owner, self.until, self.priority, *sorted(self.requests.items())))

    def over(self, clock: float) -> bool:
        """Whether it is kept no longer; `clock` in seconds since 1970."""
        return to_seconds(self.until) <= clock


_decoder = msgspec.json.Decoder(list[Place])


def encode(places: Iterable[Place]) -> str:
    """The annotation of a node; equal places are as many as there are."""
    return msgspec.json.encode([*places], order="sorted").decode()


def decode(text: str) -> list[Place]:
    """Inverse of `encode`; empty for text that is none."""
    try:
        found = _decoder.decode(text) if text else []
    except (msgspec.MsgspecError, RecursionError):
        return []
    sane = (each for each in found if is_time(each.until) and min(each.requests.values(), default=0) >= 0)
    return [*sane][:MOST]


class Kept:
    """All places of a member, always equal to nominations in the `Room`, but for lifted ones."""

    def __init__(self, room: Room) -> None:
        self._room = room
        #: node -> places as it carries them, over or not
        self._told: dict[str, Counter[Place]] = {}
        #: node -> places whose pods have not come
        self._left: dict[str, Counter[Place]] = {}
        #: seconds since 1970 minus seconds of passes
        self._offset = math.inf

    def __bool__(self) -> bool:
        """Whether some place is kept."""
        return bool(self._left)

    @property
    def deadline(self) -> float | None:
        """When the first place is over, in seconds of passes."""
        ends = [to_seconds(place.until) for places in self._left.values() for place in places]
        return min(ends) - self._offset if ends and self._offset < math.inf else None

    def node_changed(self, name: str, text: str) -> None:
        """A node carries these places; empty for none."""
        told, before = Counter(decode(text)), self._told.pop(name, Counter())
        if told:
            self._told[name] = told
        for place, count in (told - before).items():
            self._add(name, place, count)
        for place, count in (before - told).items():
            self._take(name, place, min(count, self._left.get(name, Counter())[place]))

    def expire(self, now: float, clock: float) -> None:
        """Give back places whose time is over; both clocks at one moment, `clock` 0 where it means nothing."""
        self._offset = clock - now if clock else math.inf
        for name, place, count in self._all():
            if place.over(clock):
                self._take(name, place, count)

    def drop(self, owner: str) -> None:
        """Keep nothing for the owner any more: nodes are held for it otherwise."""
        for name, place, count in self._all():
            if place.owner == owner:
                self._take(name, place, count)

    def wanted(self, owners: Collection[str]) -> dict[str, Vector] | None:
        """Node -> sum of the places of these owners; None for none."""
        found: dict[str, Vector] = {}
        for name, place, count in self._all():
            if place.owner in owners:
                vector.add(found.setdefault(name, {}), place.requests, count)
        return found or None

    def lift(self, owners: Collection[str], priority: int) -> list[tuple[str, Place, int]]:
        """Lift for a moment the places that don't bind a gang: its own, and places of a lower priority."""
        lifted = [each for each in self._all() if each[1].owner in owners or each[1].priority < priority]
        for name, place, count in lifted:
            self._room.unnominate(name, _task(place), count, handed_over=True)
        return lifted

    def put_back(self, lifted: Iterable[tuple[str, Place, int]]) -> None:
        """Inverse of `lift`."""
        for name, place, count in lifted:
            self._room.nominate(name, _task(place), count)

    def placed(self, owners: Collection[str], nodes: Sequence[tuple[Pod, str]]) -> None:
        """Pods of these owners are assumed on these nodes: each needs a place less, of its own node if there is one."""
        for _, node in nodes if self._left else ():
            mine = [(name, place) for name, place, _ in self._all() if place.owner in owners]
            if mine:
                name, place = next((each for each in mine if each[0] == node), mine[0])
                self._take(name, place, 1, handed_over=name == node)

    def _all(self) -> list[tuple[str, Place, int]]:
        return [(name, place, count) for name, places in self._left.items() for place, count in places.items()]

    def _add(self, name: str, place: Place, count: int) -> None:
        self._left.setdefault(name, Counter())[place] += count
        self._room.nominate(name, _task(place), count)

    def _take(self, name: str, place: Place, count: int, *, handed_over: bool = False) -> None:
        if not count:
            return
        self._room.unnominate(name, _task(place), count, handed_over=handed_over)
        left = self._left[name]
        left[place] -= count
        if not left[place]:
            del left[place]
        if not left:
            del self._left[name]


def owners_of(view: Standing) -> set[str]:
    """Owners whose places a gang gets."""
    return {view.binding_uid, *(pod.metadata.controller_uid for pod in view.waiting)} - {""}


def _task(place: Place) -> Task:
    return Task("", 1, 1, place.requests)
