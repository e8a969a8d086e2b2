"""Nodes as arrays: free amounts on each, its domain, and pods that it accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from atoll.fit.company import Company
from atoll.fit.constraints import Cards, Exact, Numa, Profile, taints
from atoll.fit.constraints import resources as resource_amounts
from atoll.fit.placement import UNBOUNDED, Ints, Placement
from atoll.fit.scores import Amounts, OfCards, Typical
from atoll.fit.trees import Layout, Trees
from atoll.model import selectors
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.scoring import Scoring, parse
from atoll.model.topology import NO_DOMAIN, Tree
from atoll.model.vector import Vector

_MOST = int(UNBOUNDED)
_ALL = slice(None)
_FEW = 8
"""Changes of nodes that are as quick one by one."""


class Nodes:
    """The nodes of one member.

    `free` is int64[R, N] in integer units, one row per resource; `profile` is int64[N]; `domain` is int64[L, N], the
    index of the node's domain at each tier of the tree, NO_DOMAIN where it has none. `tree` is the one without a name
    among the member's; `seen_by` looks at another one.
    """

    def __init__(
        self,
        tree: Tree,
        lowest: Sequence[int],
        names: Sequence[str],
        profiles: Sequence[Profile],
        profile: Sequence[int],
        free: Sequence[Vector],
        others: Mapping[str, tuple[Tree, Sequence[int]]] | None = None,
    ) -> None:
        """Build the arrays.

        Args:
            tree: the domains.
            lowest: per node the index of its lowest domain, or NO_DOMAIN.
            names: per node.
            profiles: the distinct ones.
            profile: per node the index of its profile.
            free: per node; a resource that a node does not name is zero there.
            others: name of each further tree -> it, and per node the index of its lowest domain there.
        """
        resources = tuple(sorted({name for vector in free for name in vector}))
        none: Ints = np.zeros((len(resources), len(names)), np.int64)
        self._build(tree, np.array(lowest, np.int64), names, profiles, np.array(profile, np.int64), resources, none)
        self.free = self.matrix(free)
        for name, (each, where) in (others or {}).items():
            self.trees.add(name, each, np.array(where, np.int64))

    @classmethod
    def of_arrays(
        cls,
        tree: Tree,
        lowest: Ints,
        profiles: Sequence[Profile],
        profile: Ints,
        resources: tuple[str, ...],
        free: Ints,
        names: Sequence[str] | None = None,
    ) -> Self:
        """Nodes, without names if none are given, over arrays that are made already; `free` is used as it is, not
        copied.
        """
        nodes = cls.__new__(cls)
        nodes._build(tree, lowest, [""] * len(lowest) if names is None else names, profiles, profile, resources, free)
        return nodes

    def _build(
        self,
        tree: Tree,
        lowest: Ints,
        names: Sequence[str],
        profiles: Sequence[Profile],
        profile: Ints,
        resources: tuple[str, ...],
        free: Ints,
    ) -> None:
        self.names = list(names)
        self.profiles, self.profile = list(profiles), profile
        self.resources, self.free = resources, free
        #: constraints counted piece by piece; not shared by copies
        self.exact: tuple[Exact, ...] = ()
        #: the pods that are there, where rules between pods are looked at; not shared by copies
        self.company: Company | None = None
        #: int64[R, N] what the nodes offer; None where that is not known, and no scoring is looked at
        self.capacity: Ints | None = None
        #: see `Amounts`
        self.measured: Ints | None = None
        #: what pods of the member ask for; None where no scoring may look at that
        self.typical: Typical | None = None
        #: of the member, for gangs that have none of their own
        self.scoring = Scoring()
        self._row = {name: row for row, name in enumerate(resources)}
        #: whether some profile has a taint with PreferNoSchedule; None while that is not known
        self._tainted: bool | None = None
        #: whether some profile is closed to pods of low priority; None while that is not known
        self._hot: bool | None = None
        #: shared by copies
        self.trees = Trees(self.names, tree, lowest)
        self._look_at(self.trees.unnamed)

    def _look_at(self, layout: Layout) -> None:
        self.layout, self.tree, self.domain = layout, layout.tree, layout.domain

    def __len__(self) -> int:
        return len(self.names)

    def seen_by(self, wish: TopologyWish | None) -> Nodes:
        """The same nodes with that tree as `tree` which a wish is about; everything but the tree is shared."""
        layout = self.trees.about(wish) if wish is not None and wish.limited else None
        if layout is None or layout.tree is self.tree:
            return self
        twin = self.with_free(self.free)
        twin._look_at(layout)
        return twin

    def at(self, wish: TopologyWish) -> Ints | None:
        """int64[N]: the domain of each node of the tier that a wish names, NO_DOMAIN where it is in none; None where
        there is no such tier.
        """
        seen = self.seen_by(wish)
        level = seen.tree.level_of(wish)
        return None if level is None else seen.domain[level]

    def like(self, other: Nodes) -> bool:
        """Whether both count the same resources on as many nodes."""
        return self.resources == other.resources and len(self) == len(other)

    def copy(self) -> Nodes:
        """Independent free amounts and pieces over shared names, profiles and domains."""
        twin = self.with_free(self.free.copy())
        twin.exact = tuple(each.copy() for each in self.exact)
        twin.company = self.company.copy() if self.company is not None else None
        return twin

    def with_free(self, free: Ints) -> Nodes:
        """The same nodes with these free amounts, which are used as they are, not copied."""
        twin = Nodes.__new__(Nodes)
        twin.__dict__.update(self.__dict__)
        twin.free = free
        return twin

    def at_most(self, amounts: Mapping[str, Vector]) -> Nodes:
        """A copy in which no more is free on each node than this, by name; nothing where it is not named."""
        twin = self.copy()
        most: Ints = np.zeros_like(twin.free)
        for column, name in enumerate(self.names):
            if name in amounts:
                most[:, column] = self.column(amounts[name])
        np.minimum(twin.free, most, out=twin.free)
        return twin

    def without(self, amounts: Iterable[Mapping[str, Vector]]) -> Nodes:
        """A copy in which so much less is free on each node, by name, but never less than nothing."""
        twin = self.copy()
        columns = {name: column for column, name in enumerate(self.names)}
        for each in amounts:
            for name, amount in each.items():
                if name in columns:
                    twin.free[:, columns[name]] -= self.column(amount)
        np.maximum(twin.free, 0, out=twin.free)
        return twin

    def matrix(self, vectors: Sequence[Vector]) -> Ints:
        """int64[R, N] of one vector per node; a resource that one does not name is zero there."""
        found: Ints = np.zeros((len(self.resources), len(self)), np.int64)
        for column, vector in enumerate(vectors):
            for name, amount in vector.items():
                found[self._row[name], column] = amount
        return found

    def set_free(self, column: int, vector: Vector) -> bool:
        """Set free amounts of one node; False when it names a resource that has no row, and the arrays must be
        rebuilt.
        """
        if any(name not in self._row for name in vector):
            return False
        self.free[:, column] = [vector.get(name, 0) for name in self.resources]
        return True

    def accepting(self, task: Task) -> NDArray[np.bool_]:
        """bool[N]: which nodes the task's selectors, tolerations and domain allow."""
        if task.domain:
            return self.trees.within(task.domain) & self.accepting(replace(task, domain=""))
        if task.away:
            there: NDArray[np.bool_] = np.logical_or.reduce([self.trees.within(name) for name in task.away])
            return ~there & self.accepting(replace(task, away=[]))
        if task.node_terms and any("matchFields" in term for term in task.node_terms):
            verdicts = [self.profiles[p].accepts(task, name) for p, name in zip(self.profile, self.names, strict=True)]
            return np.array(verdicts, np.bool_)
        by_profile = [profile.accepts(task, "") for profile in self.profiles]
        if all(by_profile):
            return np.ones(len(self.names), np.bool_)
        return np.array(by_profile, np.bool_)[self.profile]

    def disliked(self, task: Task) -> NDArray[np.bool_] | None:
        """bool[N]: which nodes have a taint with PreferNoSchedule that the task does not tolerate; None for none."""
        if self._tainted is None:
            self._tainted = any(selectors.is_soft(taint) for profile in self.profiles for taint in profile.taints)
        if not self._tainted:
            return None
        by_profile = [selectors.disliked(profile.taints, task.tolerations) > 0 for profile in self.profiles]
        return np.array(by_profile, np.bool_)[self.profile]

    @property
    def hot(self) -> bool:
        """Whether some node is so hot that it takes no pods of low priority."""
        if self._hot is None:
            self._hot = any(taints.least_priority(profile.taints) is not None for profile in self.profiles)
        return self._hot

    def too_hot(self, task: Task) -> int:
        """Nodes that would accept the task at a higher priority."""
        if task.priority is None or not self.hot:
            return 0
        return int((self.accepting(replace(task, priority=None)) & ~self.accepting(task)).sum())

    def room(self, requests: Mapping[str, int]) -> Ints:
        """int64[N]: how many pods of these requests each node still holds."""
        return resource_amounts.room(requests, self.free, self._row)

    def room_on(self, node: int, requests: Iterable[tuple[str, int]]) -> int:
        """As `room` of the node with this index alone; amounts above 0."""
        free = self.free[:, node].tolist()
        room = _MOST
        for name, amount in requests:
            row = self._row.get(name)
            room = min(room, free[row] // amount if row is not None and amount <= _MOST else 0)
        return max(room, 0)

    def room_for(self, task: Task) -> Ints:
        """int64[N]: how many pods of the task each node still holds, by every constraint."""
        return np.where(self.accepting(task), self.room_left(task), 0)

    def narrow(self, task: Task) -> Ints | None:
        """int64[N]: how many pods of the task get as few NUMA nodes as they ever could; None where all do."""
        for each in self.exact:
            if isinstance(each, Numa):
                return each.narrow(task, len(self))
        return None

    def room_left(self, task: Task) -> Ints:
        """As `room_for`, for nodes that are known to accept it."""
        room = self._room_of_pieces(task)
        if self.company is not None and (most := self.company.room(task)) is not None:
            np.minimum(room, most, out=room)
        return room

    def bound_for(self, task: Task, gang: Gang) -> Ints:
        """As `room_for`, at most, whichever other pods of the gang are put there before."""
        room = np.where(self.accepting(task), self._room_of_pieces(task), 0)
        if self.company is not None and (most := self.company.bound(task, gang)) is not None:
            np.minimum(room, most, out=room)
        return room

    def room_by_rules(self, task: Task, node: int) -> bool:
        """Whether what pods say of each other allows one of the task on this node."""
        room = self.company.room(task) if self.company is not None else None
        return room is None or bool(room[node] > 0)

    def _room_of_pieces(self, task: Task) -> Ints:
        room = self.room(task.requests)
        for each in self.exact:
            if (most := each.room(task, len(self.names))) is not None:
                np.minimum(room, most, out=room)
        return room

    def in_turn(self, gang: Gang) -> bool:
        """Whether pods of the gang are put on nodes one by one."""
        return self.company is not None and self.company.matters_to(gang)

    def scoring_of(self, gang: Gang) -> Scoring | None:
        """By which nodes are preferred for a gang; None where its pods go to the tightest gap."""
        if self.capacity is None or not (gang.scoring or self.scoring.terms):
            return None
        return self.scoring.but(parse(gang.scoring)) if gang.scoring else self.scoring

    def amounts(self, columns: Ints | slice = _ALL) -> Amounts:
        """What a scoring looks at, of all nodes or these."""
        assert self.capacity is not None, "else no scoring is looked at"
        measured = self.measured[:, columns] if self.measured is not None else None
        return Amounts(self._row, self.free[:, columns], self.capacity[:, columns], measured, self._cards(columns))

    def _cards(self, columns: Ints | slice) -> OfCards | None:
        found = next((each for each in self.exact if isinstance(each, Cards)), None)
        if found is None or self.typical is None:
            return None
        self.typical.weigh(self.profiles)
        of_all = OfCards(self.typical, found.free, self.profile)
        return of_all.at(columns)

    def column(self, requests: Mapping[str, int]) -> Ints:
        """int64[R]: the requests in row order; resources without a row are left out."""
        amounts = [requests.get(name, 0) for name in self.resources]
        if amounts and max(amounts) > _MOST:
            amounts = [min(amount, _MOST) for amount in amounts]
        return np.array(amounts, np.int64)

    def take(self, requests: Sequence[Mapping[str, int]], placement: Placement, times: int = 1) -> None:
        """Subtract a placement's pods; `requests` per task index."""
        if len(placement.pods) == 1:
            [(task, node, count)] = placement.pods
            for name, amount in requests[task].items():
                if name in self._row:
                    self.free[self._row[name], node] -= min(amount, _MOST) * count * times
            return
        columns = [self.column(request) for request in requests]
        if len(placement.pods) <= _FEW:
            for task, node, count in placement.pods:
                self.free[:, node] -= columns[task] * (count * times)
            return
        tasks, nodes, counts = placement.arrays()
        amounts = np.array(columns)[tasks].T * (counts * times)
        for free, amount in zip(self.free, amounts, strict=True):
            # A node may be named more than once.
            np.subtract.at(free, nodes, amount)

    def put(self, tasks: Sequence[Task], placement: Placement) -> None:
        """As `take`, of every constraint."""
        self.take([task.requests for task in tasks], placement)
        for index, node, count in placement.pods:
            self.count_pieces(tasks[index], node, count)

    def count_pieces(self, task: Task, node: int, count: int) -> None:
        """Pods of the task are put on a node: what of that is no amount of a resource."""
        for each in self.exact:
            each.take(task, node, count)
        if self.company is not None:
            self.company.take(task, node, count)

    def take_all(self, several: Sequence[tuple[Sequence[Mapping[str, int]], Placement]]) -> bool:
        """Subtract the pods of several placements, each with the requests per task index, if all nodes that they name
        can take them; otherwise nothing is done, and it is False.
        """
        taken: dict[int, list[int]] = {}
        for requests, placement in several:
            for task, node, count in placement.pods:
                amounts = [min(requests[task].get(name, 0), _MOST) * count for name in self.resources]
                # A node may be named more than once.
                known = taken.get(node)
                taken[node] = amounts if known is None else [a + b for a, b in zip(known, amounts, strict=True)]
        if not taken:
            return True
        columns = list(taken)
        left = self.free[:, columns] - np.array(list(taken.values()), np.int64).T
        if (left < 0).any():
            return False
        self.free[:, columns] = left
        return True

    def holds(self, requests: Sequence[Mapping[str, int]], placement: Placement) -> bool:
        """Whether each node is there, and has what a placement takes of it; `requests` per task index."""
        columns = [node for _, node, _ in placement.pods]
        if max(columns, default=-1) >= len(self):
            return False
        after = self.copy()
        after.take(requests, placement)
        before, left = self.free[:, columns], after.free[:, columns]
        return bool(((left >= 0) | (left == before)).all())

    def take_anywhere(self, task: Task, pods: int) -> None:
        """Subtract what so many pods request, or all that there is, on nodes that accept them, in pieces that hold no
        pod perhaps: pods without a place now get one once other pods have gone.
        """
        accepting = np.flatnonzero(self.accepting(task))
        for row, name in enumerate(self.resources):
            if missing := min(task.requests.get(name, 0) * pods, _MOST):
                free = np.maximum(self.free[row, accepting], 0)
                # The freest first, so that the rest is in few pieces.
                order = np.argsort(-free, kind="stable")
                before = free[order].cumsum() - free[order]
                self.free[row, accepting[order]] -= np.minimum(free[order], np.maximum(missing - before, 0))

    def domain_around(self, wish: TopologyWish | None, pods: Iterable[tuple[int, int, int]]) -> int | None:
        """For a topology with a highest tier, the largest allowed domain around what runs, which is (task, node, pods);
        None for anywhere.
        """
        nodes = self.seen_by(wish)
        here = next((node for _, node, _ in pods if node < len(nodes)), None)
        levels = nodes.tree.levels(wish)
        if levels is None or here is None:
            return None
        around = [int(nodes.domain[level, here]) for level in levels if nodes.domain[level, here] != NO_DOMAIN]
        return around[-1] if around else None
