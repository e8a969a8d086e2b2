"""Rows of the fit table: one for each kind of pod that waits, and how many of it a node holds.

Apart from the table because a row depends on a pod's requests and on profiles of nodes, not on members or domains.
"""

from __future__ import annotations

import copy

import msgspec
import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.fit import Nodes, Profile
from atoll.fit.layout import higher
from atoll.fit.placement import MANY, UNBOUNDED, Ints
from atoll.fit.requests import Requests
from atoll.model.claim_shapes import is_shape, limited, name_of, shape_of
from atoll.model.gang import Task

_encoder = msgspec.json.Encoder(order="sorted")
_NOTHING: tuple[Ints, Ints] = np.zeros(0, np.int64), np.zeros((0, 1), np.int64)
"""Asked for by no workload."""
_FIRST_ROWS = 64
_IDLE_ROWS = 64
"""Rows that are kept up to date though no workload waits for them now: most shapes come back."""
_ASIDE_ROWS = 4


class Rows:
    """Kinds of pods by row, over these resources and profiles of nodes.

    A state is int64[resources + 1]: free amounts of a node, and the number of its profile.
    """

    def __init__(self) -> None:
        self.resources: tuple[str, ...] = ()
        self.profiles: list[Profile] = []
        #: profile key -> its number
        self._numbers: dict[bytes, int] = {}
        #: member -> int64[]: which profiles its nodes have
        self._profiles_of: dict[str, Ints] = {}
        #: bool[rows, profiles or more]
        self._accepts: NDArray[np.bool_] = np.zeros((0, 0), np.bool_)
        self._empty(_FIRST_ROWS)

    def _empty(self, height: int) -> None:
        #: pod key -> row; a row is free while it is not used
        self._rows: dict[bytes, int] = {}
        self.tasks: list[Task | None] = [None] * height
        self._users = [0] * height
        #: the next one last
        self._vacant = [*reversed(range(height))]
        #: row -> how many of its users have other tasks as well: these fit only beside each other
        self._beside: dict[int, int] = {}
        #: rows without users that are kept, the longest idle first
        self._idle: dict[int, None] = {}
        #: per row: int64[K] the resources that its task asks for, int64[K, 1] the positive amounts
        self._wanted = [_NOTHING] * height
        self._requests = Requests(self.resources, height)
        self._accepts = higher(self._accepts[:0], height)

    def aside(self) -> Rows:
        """No rows yet, over the same resources and profiles."""
        twin = copy.copy(self)
        twin._empty(_ASIDE_ROWS)
        return twin

    def accepts(self, member: Member, shape: Shape) -> bool:
        """Whether some node of the member accepts each task of the shape, free or not."""
        return bool(self._accepts[list(shape.rows)][:, self._profiles_of[member.name]].any(axis=1).all())

    def enroll(self, shape: Shape) -> list[int]:
        """Keep rows for the shape's tasks from now on; gives the new ones. Each enrolment needs a release."""
        shape.enrolled += 1
        fresh: list[int] = []
        if shape.enrolled == 1:
            shape.rows = tuple(self._enroll(task, fresh) for task in shape.gang.tasks)
            for row in shape.rows if len(shape.rows) > 1 else ():
                self._beside[row] = self._beside.get(row, 0) + 1
        for other in shape.others:
            fresh += self.enroll(other)
        return fresh

    def release(self, shape: Shape) -> list[int]:
        """The inverse of `enroll`; gives the rows that are free now."""
        freed = [row for other in shape.others for row in self.release(other)]
        shape.enrolled -= 1
        if shape.enrolled:
            return freed
        for row in shape.rows:
            self._users[row] -= 1
            if not self._users[row]:
                self._idle[row] = None
            if len(shape.rows) > 1:
                self._beside[row] -= 1
                if not self._beside[row]:
                    del self._beside[row]
        shape.rows = shape.wakers = ()
        while len(self._idle) > _IDLE_ROWS:
            row = next(iter(self._idle))
            del self._idle[row]
            task = self.tasks[row]
            assert task is not None, "an idle row has a task"
            del self._rows[_pod_key(task)]
            self.tasks[row] = None
            self._vacant.append(row)
            self._wanted[row] = _NOTHING
            self._requests.set(row, {})
            self._accepts[row] = False
            freed.append(row)
        return freed

    def _enroll(self, task: Task, fresh: list[int]) -> int:
        key = _pod_key(task)
        row = self._rows.get(key)
        if row is None:
            if not self._vacant:
                self._make_higher()
            row = self._rows[key] = self._vacant.pop()
            self.tasks[row] = task
            self._fill(row, task)
            fresh.append(row)
        self._users[row] += 1
        self._idle.pop(row, None)
        return row

    def _make_higher(self) -> None:
        before = len(self.tasks)
        height = 2 * before
        self._vacant = [*reversed(range(before, height))]
        self.tasks += [None] * before
        self._users += [0] * before
        self._wanted += [_NOTHING] * before
        self._accepts = higher(self._accepts, height)
        self._requests.make_higher(height)

    def _fill(self, row: int, task: Task) -> None:
        possible = self.possible(task)
        wanted = {name: amount for name, amount in limited(task).items() if amount > 0} if possible else {}
        asked = [index for index, name in enumerate(self.resources) if name in wanted]
        amounts = [[wanted[self.resources[index]]] for index in asked]
        self._wanted[row] = np.array(asked, np.int64), np.array(amounts, np.int64).reshape(-1, 1)
        self._requests.set(row, wanted)
        for number, profile in enumerate(self.profiles):
            self._accepts[row, number] = possible and profile.accepts(task, "")

    def possible(self, task: Task) -> bool:
        """Whether a member has all resources of a task; the row of a task that no member can serve means nothing."""
        wanted = {name: amount for name, amount in task.requests.items() if amount > 0}
        # Shapes of claims are in figures, and on no node.
        if any(map(is_shape, wanted)):
            return False
        return wanted.keys() <= set(self.resources) and all(amount < UNBOUNDED for amount in wanted.values())

    def lay_out(self, resources: tuple[str, ...]) -> None:
        """Start anew with other resources, and without profiles."""
        height = len(self.tasks)
        self.resources, self._requests = resources, Requests(resources, height)
        self.profiles, self._numbers, self._profiles_of = [], {}, {}
        self._accepts = np.zeros((height, 0), np.bool_)
        for row, task in enumerate(self.tasks):
            if task is not None:
                self._fill(row, task)

    def numbered(self, member: Member, nodes: Nodes) -> Ints:
        """The profile of each node of a member in numbers that all members share."""
        numbers = []
        for profile in nodes.profiles:
            key = _encoder.encode((profile.labels, profile.taints, sorted(profile.unknown), profile.numa))
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self.profiles)
                self.profiles.append(profile)
                if number >= self._accepts.shape[1]:
                    self._accepts = np.ascontiguousarray(higher(self._accepts.T, max(2 * number, 8)).T)
                self._accepts[:, number] = [
                    task is not None and self.possible(task) and profile.accepts(task, "") for task in self.tasks
                ]
            numbers.append(number)
        known = self._profiles_of[member.name] = np.array(numbers, np.int64)
        return known[nodes.profile] if numbers else np.zeros(len(nodes), np.int64)

    def room(self, row: int, states: Ints) -> Ints:
        """int64[K]: pods of the row's task that each node of int64[resources + 1, K] states holds."""
        resources, amounts = self._wanted[row]
        quotients = states.take(resources, axis=0)
        quotients //= amounts
        room: Ints = np.minimum.reduce(quotients, initial=MANY)
        room *= self._accepts[row].take(states[-1])
        return np.maximum(room, 0, out=room)

    def rooms(self, states: Ints) -> Ints:
        """int64[rows, K]: as `room` for every row."""
        rooms = self._requests.rooms(states[:-1])
        rooms *= self._accepts.take(states[-1], axis=1)
        return rooms

    def grown(self, change: Ints, states: Ints) -> NDArray[np.bool_]:
        """bool[rows] of which nodes with int64[rows, K] changes and int64[resources + 1, 2 * K] states, before and now,
        may hold more.
        """
        grown: NDArray[np.bool_] = np.logical_or.reduce(change > 0, axis=1)
        if self._beside:
            # Capacity too small for one more pod may be just enough for the pods of two tasks together.
            free, half = states[:-1], change.shape[1]
            more: NDArray[np.bool_] = np.logical_or.reduce(free[:, half:] > free[:, :half], axis=1)
            asked = self._requests.asking(more)
            grown[[row for row in self._beside if asked[row]]] = True
        return grown


def _pod_key(task: Task) -> bytes:
    aligned = (task.aligned, task.numa, task.devices_in) if task.aligned else None
    shape = name_of(shape_of(task.claims)) if task.claims else None
    return _encoder.encode((task.requests, task.node_selector, task.node_terms, task.tolerations, aligned, shape))
