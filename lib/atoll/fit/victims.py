"""The search for victims: the least that must go so that what waits fits. Who may go at all is the caller's to say.

1. Wherever the claimant could go (a domain of a hard topology, a member, all members together), pod by pod, the node is
   emptied that needs the fewest victims; then other needs that the caller reports.
2. Every victim whose return still fits returns, the least suitable first: the rest is irreducible.
3. Smaller sets are tried one by one, the smallest first, as many as may be: where that reaches the size of the set, it
   is the smallest there is, and the first such by the order of victims. Where there is no set, they are tried if all of
   them can be.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from atoll.fit.placement import Ints
from atoll.fit.site import Pods, Site
from atoll.model.gang import Task

Spot = tuple[str, int]
"""(member, node index)."""


class Bundle(Protocol):
    """The smallest thing that can go; each is one object, compared by identity."""

    @property
    def position(self) -> int:
        """Its place in the order of victims."""

    @property
    def pods(self) -> Mapping[str, Pods]:
        """Member -> the pods that go."""

    @property
    def spots(self) -> Collection[Spot]:
        """See `spots`."""

    @property
    def after(self) -> Self | None:
        """What of the same workload goes first."""


class Wanted(NamedTuple):
    """Pods to place."""

    tasks: Sequence[Task]
    whole: Sequence[int] | None
    """Pods of each task that one cell of a site must hold; None where none may."""
    divided: Sequence[int] | None
    """The same of all sites together."""


class Bounds(NamedTuple):
    """How long it is searched."""

    places: int
    """Places for which a set of victims is found; the best is taken."""
    exhaustive: int
    """Sets of victims that may be tried one by one."""
    forbidden: int
    """Fitting choices that may not be used, after which the search ends."""


B = TypeVar("B", bound=Bundle)


class Trial(Protocol[B]):
    """What there would be if some bundles went."""

    wanted: Wanted

    @property
    def sites(self) -> Mapping[str, Site]:
        """By member; always as they are without the bundles that went."""

    @property
    def taken(self) -> Mapping[B, None]:
        """Bundles that went, in the order in which they did."""

    refused: int
    """Fitting choices that may not be used."""

    def take(self, bundle: B) -> bool:
        """Let a bundle go; False, and nothing is done, where earlier bundles exclude it."""

    def put(self, bundle: B) -> None:
        """Take its departure back."""

    def put_all(self) -> None:
        """Take all departures back."""

    def stands(self) -> bool:
        """Whether all that went may still go, after another one was put back."""

    def make_up(self, pool: Sequence[B], member: str) -> bool:
        """Take bundles in order until nothing but nodes may be missing, in the one member where the claimant goes or,
        without a name, in all; False when that is never so.
        """

    def fits(self) -> bool:
        """Whether the claimant fits."""


def spots(pods: Mapping[str, Pods]) -> Collection[Spot]:
    """(member, node) of these, each once."""
    return dict.fromkeys((member, node) for member, here in pods.items() for node, _, _ in here)


def search(trial: Trial[B], pool: Sequence[B], bounds: Bounds) -> list[B] | None:
    """The bundles that should go, in no order that means anything; None where none were found.

    Args:
        trial: nothing is taken, before and afterwards.
        pool: in the order of victims; their positions rise.
        bounds: of the search.
    """
    if trial.fits():
        return []
    best: list[B] | None = None
    for chosen in itertools.islice(_greedy_plans(trial, pool, bounds), bounds.places):
        if best is None or _cost(chosen) < _cost(best):
            best = chosen
        if len(best) == 1 and len(pool) <= bounds.exhaustive:
            # Whatever else can go alone, in whatever place, is found below.
            break
    return _smallest(trial, pool, best, bounds) or best


def _cost(bundles: Sequence[Bundle]) -> tuple[int, list[int]]:
    """Fewest victims, then the earliest in the order of victims."""
    return len(bundles), sorted(bundle.position for bundle in bundles)


def _chain(bundle: B) -> list[B]:
    """All that goes with it, in order."""
    found = [bundle]
    while (before := found[-1].after) is not None:
        found.append(before)
    return found[::-1]


def _greedy_plans(trial: Trial[B], pool: Sequence[B], bounds: Bounds) -> Iterator[list[B]]:
    """Irreducible sets, one for each place where the claimant could go; afterwards nothing is taken."""
    index: dict[Spot, list[B]] = {}
    for bundle in pool:
        for spot in bundle.spots:
            if spot[0] in trial.sites:
                index.setdefault(spot, []).append(bundle)
    for place, want in _places(trial):
        if trial.refused >= bounds.forbidden:
            return
        only = next(iter(place)) if len(place) == 1 else ""
        if _Emptying(trial, place, want, index).run() and trial.make_up(pool, only) and trial.fits():
            _reduce(trial)
            chosen = list(trial.taken)
            trial.put_all()
            yield chosen
        else:
            trial.put_all()


Place = dict[str, Ints]
"""Member -> indices of the nodes to empty there."""


def _places(trial: Trial[B]) -> Iterator[tuple[Place, Sequence[int]]]:
    """(nodes, pods per task) for each place where the claimant could go; the one that lacks the fewest pods first."""
    _, whole, divided = trial.wanted
    if whole is not None:
        ranked: list[tuple[int, str, int, Ints]] = []
        for name, site in trial.sites.items():
            for cell in range(site.cells):
                lacks = sum(max(want - has, 0) for has, want in zip(site.held[cell], whole, strict=True))
                nodes = np.flatnonzero(np.any([row == cell for row in site.cells_of], axis=0))
                if nodes.size:
                    ranked.append((lacks, name, cell, nodes))
        for _, name, _, nodes in sorted(ranked, key=lambda each: each[:3]):
            yield {name: nodes}, whole
    if divided is not None:
        yield {name: np.arange(len(site.nodes)) for name, site in trial.sites.items()}, divided


class _Emptying(Generic[B]):
    """Capacity for the wanted pods in one place, pod by pod where it takes the fewest victims."""

    def __init__(self, trial: Trial[B], place: Place, want: Sequence[int], index: Mapping[Spot, Sequence[B]]) -> None:
        self._trial, self._index = trial, index
        self._need = list(want)
        #: (member, node) in the place -> free amounts beside placed pods
        self._free: dict[Spot, list[int]] = {}
        for name, nodes in place.items():
            columns = trial.sites[name].nodes.free[:, nodes].T.tolist()
            for node, free in zip(nodes.tolist(), columns, strict=True):
                self._free[name, node] = free
        #: bundles that earlier bundles exclude
        self._kept: set[B] = set()

    def run(self) -> bool:
        """Take bundles until the pods fit; False when they never do."""
        tasks = self._trial.wanted.tasks
        means: dict[int, float] = {}
        for number, task in enumerate(tasks):
            means[number] = max((float(amount) for amount in task.requests.values()), default=0.0)
        return all(self._make_room(task) for task in sorted(means, key=lambda number: (-means[number], number)))

    def _make_room(self, task: int) -> bool:
        for spot in sorted(self._free, key=lambda each: (self._room(task, each), each)):
            self._claim(task, spot)
        # What a node needs only grows while others are emptied, except where a gang's departure empties it as well.
        heap = [(key, spot) for spot in self._index if spot in self._free and (key := self._option(task, spot))]
        heapq.heapify(heap)
        while self._need[task] and heap:
            (count, positions), spot = heapq.heappop(heap)
            option = self._option(task, spot)
            if option is None:
                continue
            if option != (count, positions):
                heapq.heappush(heap, (option, spot))
                continue
            by_position = {bundle.position: bundle for bundle in self._there(spot)}
            touched: dict[Spot, None] = {spot: None}
            for position in sorted(positions):
                bundle = by_position[position]
                if not self._trial.take(bundle):
                    self._kept.add(bundle)
                    break
                touched |= self._went(bundle)
            for other in touched:
                self._claim(task, other)
                if fresh := self._option(task, other):
                    heapq.heappush(heap, (fresh, other))
        return not self._need[task]

    def _room(self, task: int, spot: Spot) -> int:
        site = self._trial.sites[spot[0]]
        return site.room_of(task, self._free[spot]) if site.accepts[task][spot[1]] else 0

    def _claim(self, task: int, spot: Spot) -> None:
        """Put as many pods there as fit."""
        if not self._need[task]:
            return
        pods = min(self._room(task, spot), self._need[task])
        if pods:
            self._need[task] -= pods
            free = self._free[spot]
            for row, amount in self._trial.sites[spot[0]].asks[task] or ():
                free[row] -= amount * pods

    def _went(self, bundle: B) -> dict[Spot, None]:
        """Give back what the bundle held; returns where that was."""
        touched: dict[Spot, None] = {}
        for member, pods in bundle.pods.items():
            for node, request, count in pods:
                free = self._free.get((member, node))
                if free is not None:
                    touched[member, node] = None
                    for row, name in enumerate(self._trial.sites[member].nodes.resources):
                        free[row] += request.get(name, 0) * count
        return touched

    def _there(self, spot: Spot) -> Iterator[B]:
        """What still can go from a node: a rest brings the surplus that must go before it, wherever that is."""
        given: set[B] = set()
        for bundle in self._index[spot]:
            chain = [bundle] if bundle.after is None else _chain(bundle)
            if bundle in self._trial.taken or any(each in self._kept for each in chain):
                continue
            for each in chain:
                if each not in self._trial.taken and each not in given:
                    given.add(each)
                    yield each

    def _option(self, task: int, spot: Spot) -> tuple[int, tuple[int, ...]] | None:
        """(how many, positions from the last) of the bundles that free capacity for one more pod; None where none
        do.
        """
        if spot not in self._index or not self._trial.sites[spot[0]].accepts[task][spot[1]]:
            return None
        free, chosen = list(self._free[spot]), []
        site = self._trial.sites[spot[0]]
        for bundle in self._there(spot):
            self._add(free, bundle, spot, 1)
            chosen.append(bundle)
            if site.room_of(task, free):
                break
        else:
            return None
        bound, kept = {bundle.after for bundle in chosen}, []
        for bundle in sorted(chosen, key=lambda each: -each.position):
            if bundle not in bound:
                self._add(free, bundle, spot, -1)
                if site.room_of(task, free):
                    bound.discard(bundle.after)
                    continue
                self._add(free, bundle, spot, 1)
            kept.append(bundle.position)
        return len(kept), tuple(kept)

    def _add(self, free: list[int], bundle: B, spot: Spot, times: int) -> None:
        member, node = spot
        resources = self._trial.sites[member].nodes.resources
        for other, request, count in bundle.pods.get(member, ()):
            if other == node:
                for row, name in enumerate(resources):
                    free[row] += request.get(name, 0) * count * times


def _reduce(trial: Trial[B]) -> None:
    """Put back every bundle without which the claimant still fits, the least suitable first."""
    changed = True
    while changed:
        changed = False
        bound = {bundle.after for bundle in trial.taken}
        for bundle in sorted(trial.taken, key=lambda each: -each.position):
            if bundle in bound:
                continue
            trial.put(bundle)
            if trial.fits() and trial.stands():
                changed = True
                bound.discard(bundle.after)
            else:
                taken = trial.take(bundle)
                assert taken, "what may go beside the same others may go again"


def _smallest(trial: Trial[B], pool: Sequence[B], best: Sequence[B] | None, bounds: Bounds) -> list[B] | None:
    """The set of lowest cost, none larger than `best`, among the sizes of which all can be tried; None without one."""
    if best is None and 2 ** len(pool) > bounds.exhaustive:
        return None
    tried = 0
    for size in range(1, (len(pool) if best is None else len(best)) + 1):
        tried += math.comb(len(pool), size)
        if tried > bounds.exhaustive:
            return None
        if _any_of(trial, pool, 0, size, bounds):
            chosen = list(trial.taken)
            trial.put_all()
            return chosen
    return None


def _any_of(trial: Trial[B], pool: Sequence[B], start: int, size: int, bounds: Bounds) -> bool:
    """Take the first set of so many more bundles, in their order, with which the claimant fits."""
    if not size:
        return trial.fits()
    for position in range(start, len(pool) - size + 1):
        if trial.refused >= bounds.forbidden:
            return False
        if trial.take(pool[position]):
            if _any_of(trial, pool, position + 1, size - 1, bounds):
                return True
            trial.put(pool[position])
    return False
