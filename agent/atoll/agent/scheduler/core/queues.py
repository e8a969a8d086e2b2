"""Queues of the member, for work that enters there: in which order its gangs are planned, and what a queue may use.

What the host sent was ordered by the host's queues and is charged there; here it keeps its priority and age.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from atoll.agent.objects import Pod
from atoll.agent.queues import Queue
from atoll.agent.scheduler.core.gangs import Standing
from atoll.agent.scheduler.core.room import Room
from atoll.model import duration, keys, vector
from atoll.model.quantity import format_units
from atoll.model.timestamps import to_seconds
from atoll.model.vector import Vector

_FIRST = ""
"""In the place of a queue: gangs that have waited too long."""
_Turn = tuple[int, float, tuple[int, str, str, str], Standing]


class _Charge(NamedTuple):
    uid: str
    queue: str
    requests: Vector


class Queues:
    """What each queue of the member uses, and which gang is next."""

    def __init__(self, room: Room) -> None:
        """Begin without queues."""
        self._room = room
        self._queues: dict[str, Queue] = {}
        #: pod key -> its charge, of pods that entered here
        self._charges: dict[str, _Charge] = {}
        #: queue -> use of its pods and of queues below
        self._used: dict[str, Vector] = {}
        #: queue -> its ancestors, from the root down, each with its place and deserved amount; while queues and
        #: nodes are these
        self._paths: dict[str, list[tuple[str, int, Vector]]] = {}
        #: of the `Room`, when that was worked out
        self._layout = -1
        #: seconds after which every gang has waited too long, as the scheduler's configuration says; None for never
        self.waiting_time: float | None = None
        #: gang -> when it will have waited too long, in seconds since 1970; of gangs that wait for capacity
        self._late: dict[str, float] = {}
        #: gangs that have waited too long for capacity that they would have without the others
        self._heads: dict[str, float] = {}
        #: gangs that their queue's capability keeps from growing
        self._capped: set[str] = set()
        #: seconds since 1970 minus the seconds of passes
        self._offset = math.inf

    # -- events ------------------------------------------------------------------------------------------------------

    def changed(self, name: str, queue: Queue | None) -> bool:
        """A queue came, changed or went; whether anything is another for that."""
        known = self._queues.get(name)
        if known is not None and queue is not None and known.alike(queue):
            return False
        if queue is not None:
            self._queues[name] = queue
        else:
            self._queues.pop(name, None)
        self._used, self._paths = {}, {}
        for charge in self._charges.values():
            self._add(charge, 1)
        return True

    def charge(self, pod: Pod, queue: str) -> None:
        """The pod has a node, or is about to."""
        found = _Charge(pod.metadata.uid, queue, pod.requests)
        known = self._charges.get(pod.metadata.key)
        if known == found:
            return
        if known is not None:
            self._add(known, -1)
        self._charges[pod.metadata.key] = found
        self._add(found, 1)

    def release(self, key: str) -> bool:
        """The pod has none any more; whether it had."""
        known = self._charges.pop(key, None)
        if known is not None:
            self._add(known, -1)
        return known is not None

    def capped(self) -> set[str]:
        """Gangs that limits of queues kept from growing since this was asked."""
        capped, self._capped = self._capped, set()
        return capped

    def tell_time(self, now: float, clock: float) -> None:
        """Wall clock at a moment of passes; 0 for unknown."""
        self._offset = clock - now if clock else math.inf

    # -- what a gang is to its queue ---------------------------------------------------------------------------------

    def of(self, view: Standing) -> str:
        """The queue of a gang; empty where it came from the host."""
        if view.binding_uid:
            return ""
        return self._known(view.group.spec.queue if view.group is not None else "")

    def _known(self, name: str) -> str:
        return name if name in self._queues else keys.DEFAULT_QUEUE

    def due(self, view: Standing) -> float:
        """When it will have waited too long, in seconds since 1970; infinite for never."""
        holders = [view.group.metadata] if view.group is not None else [pod.metadata for pod in view.waiting[:1]]
        said = [duration.parse_or_none(each.annotations.get(name)) for each in holders for name in keys.WAITING_TIMES]
        said += [queue.waiting_time for queue in self._upwards(self.of(view))]
        wait = next((each for each in said if each is not None), self.waiting_time)
        return to_seconds(view.created) + wait if wait is not None and view.created else math.inf

    def within(self, view: Standing) -> Standing | str:
        """As much of the gang as its queue may use, or why it may not start."""
        name = self.of(view)
        limits = [queue for queue in self._upwards(name) if queue.capability] if name else []
        if not limits:
            return view
        more: Vector = {}
        fitting = 0
        problem = ""
        for pod in view.waiting:
            vector.add(more, pod.requests)
            for queue in limits:
                short = vector.shortage(self._used.get(queue.metadata.name, {}), more, queue.capability)
                if short is not None:
                    resource, _, left = short
                    problem = f"queue {queue.metadata.name} may use {format_units(resource, left)} more of {resource}"
            if problem:
                break
            fitting += 1
        if not problem:
            return view
        self._capped.add(view.key)
        if fitting < max(1, view.missing):
            return problem
        return replace(view, waiting=view.waiting[:fitting])

    # -- order -------------------------------------------------------------------------------------------------------

    def order(self, views: Iterable[Standing]) -> Iterator[Standing]:
        """One gang after the other; a charge in between counts for the next one.

        Of gangs that entered here: those first that have waited too long; then of the queue whose turn it is, level by
        level of the tree, by priority of the queue and by its dominant share; in a queue by priority, then by the time
        at which they will have waited too long, then by age. What came from the host goes between them by priority and
        age.
        """
        sent: list[Standing] = []
        own: dict[str, list[_Turn]] = {}
        for view in views:
            if (late := self._heads.get(view.key)) is not None:
                own.setdefault(_FIRST, []).append((0, late, view.rank, view))
            elif name := self.of(view):
                own.setdefault(name, []).append((-view.priority, self.due(view), view.rank, view))
            else:
                sent.append(view)
        sent.sort(key=lambda view: view.rank, reverse=True)
        for found in own.values():
            found.sort(key=lambda turn: turn[:3], reverse=True)
        while sent or own:
            mine = self._next(own)
            if mine is None or (sent and sent[-1].rank < own[mine][-1][2]):
                yield sent.pop()
                continue
            view = own[mine].pop()[3]
            if not own[mine]:
                del own[mine]
            yield view

    def _next(self, own: Mapping[str, Sequence[_Turn]]) -> str | None:
        if _FIRST in own or len(own) < 2:
            return _FIRST if _FIRST in own else next(iter(own), None)
        return min(own, key=lambda name: (self._standing(name), own[name][-1][:3]))

    def _standing(self, name: str) -> list[tuple[int, float]]:
        """(priority, dominant share) of the queue at the root that holds it, and so on down to itself; the least is
        served first.
        """
        if self._layout != self._room.layout:
            self._layout, self._paths = self._room.layout, {}
        if (path := self._paths.get(name)) is None:
            path = self._paths[name] = self._path(name)
        return [(place, vector.share(self._used.get(each, {}), deserved)) for each, place, deserved in path]

    def _path(self, name: str) -> list[tuple[str, int, Vector]]:
        found = []
        deserved = self._room.amounts.total()
        deserved.pop("pods", None)
        for each in [queue.metadata.name for queue in self._upwards(name)][::-1] or [name]:
            deserved = self._deserved(each, deserved)
            queue = self._queues.get(each)
            found.append((each, -(queue.spec.priority or 0) if queue is not None else 0, deserved))
        return found

    def _deserved(self, name: str, above: Vector) -> Vector:
        """Its deserved amounts: as declared, and its part by weight where no sibling declares any."""
        queue = self._queues.get(name)
        siblings = [
            each
            for each in self._queues.values()
            if each.metadata.name != keys.ROOT_QUEUE and self._parent(each) == self._parent(queue)
        ]
        said = queue.deserved if queue is not None else {}
        found = {}
        for resource, amount in above.items():
            if resource in said:
                found[resource] = said[resource]
                continue
            left = amount - sum(each.deserved.get(resource, 0) for each in siblings)
            weights = sum(each.weight for each in siblings if resource not in each.deserved)
            weight = queue.weight if queue is not None else 1
            found[resource] = max(left, 0) * weight // max(weights, weight)
        return found

    def _parent(self, queue: Queue | None) -> str:
        # One that does not exist holds nothing.
        return queue.parent if queue is not None and queue.parent in self._queues else ""

    def _upwards(self, name: str) -> list[Queue]:
        """The queue, the one above it and so on, without the root."""
        found: list[Queue] = []
        while (queue := self._queues.get(name)) is not None and queue not in found and name != keys.ROOT_QUEUE:
            found.append(queue)
            name = queue.parent
        return found

    def _add(self, charge: _Charge, times: int) -> None:
        name = self._known(charge.queue)
        for each in [queue.metadata.name for queue in self._upwards(name)] or [name]:
            vector.add(self._used.setdefault(each, {}), charge.requests, times)

    # -- gangs that have waited too long -------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When the next gang will have waited too long, in seconds of passes; None for none."""
        return min(self._late.values()) - self._offset if self._late and self._offset < math.inf else None

    def overdue(self, now: float) -> list[str]:
        """Gangs that have waited too long since they were last looked at."""
        return [key for key, late in self._late.items() if late <= now + self._offset]

    def lacks_room(self, view: Standing, now: float) -> bool:
        """The gang does not fit now; whether it has waited too long."""
        self._late.pop(view.key, None)
        late = self.due(view) if self.of(view) else math.inf
        if late == math.inf or self._offset == math.inf:
            return False
        if late > now + self._offset:
            self._late[view.key] = late
            return False
        return True

    def lead(self, view: Standing) -> None:
        """Nothing that entered here starts before it."""
        self._heads[view.key] = self.due(view)

    def follow(self, key: str) -> bool:
        """Others may start before it; whether some waited."""
        return self._heads.pop(key, None) is not None

    def forget(self, key: str) -> bool:
        """It waits for capacity no longer; whether others waited behind it."""
        self._late.pop(key, None)
        return self.follow(key)

    def before(self, view: Standing) -> str:
        """The gang that it waits behind; empty for none."""
        if not self._heads or not self.of(view):
            return ""
        first = min(self._heads, key=lambda key: (self._heads[key], key))
        return first if first != view.key else ""

    @property
    def own(self) -> Collection[str]:
        """Keys of the pods that entered here and have nodes."""
        return self._charges.keys()
