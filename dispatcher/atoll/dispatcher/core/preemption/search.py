"""Which running workloads must go so that one that waits fits: preemption in a queue, reclaim between queues.

*Preemption* takes from workloads of the same queue and a strictly lower priority. *Reclaim* takes from other queues
what they use beyond what they deserve, for a queue that stays within what it deserves; a queue that is not entitled
does not first give up work of its own to become so, because two workloads would stop for one. Whole gangs go, or the
surplus of elastic ones.

1. A necessary condition: with every candidate gone, is there quota and are there nodes? Most answers are no.
2. A bounded search. Wherever the claimant could go (a member, a domain of a hard topology, all members together), pod
   by pod, the node is emptied that needs the fewest victims; then whatever the queues' limits still lack.
3. Every victim whose return still fits returns, the least suitable first: what is left is irreducible.
4. Smaller sets are tried one by one, the smallest first, as many as may be: where that reaches the size of the plan, it
   is the smallest there is, and the first such by the order of victims. Where there is no plan, they are tried if all
   of them can be. "No" is certain where the condition failed or all sets were tried; else the search found nothing.
5. Reserved capacity is tried last, and most often stays reserved whatever is evicted: after a few refusals the
   search ends.

No two workloads evict each other for ever: a claimant of one resource stays within its entitlement while a victim's
queue was above its own, so their roles can't be exchanged; where several resources make that possible, a workload
that was evicted for another never evicts that one, and each workload is evicted only so often.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.placement.rules import ANYWHERE, Rules
from atoll.dispatcher.core.preemption.candidates import Victim, candidates, ordered
from atoll.dispatcher.core.preemption.trial import Bundle, Claimant, Pods, Site, Trial
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.core.settings import PreemptionSettings
from atoll.fit.placement import Ints
from atoll.model import vector
from atoll.model.vector import Vector
from atoll.model.verdict import Blocker, Reason, Verdict

__all__ = ["Claimant", "Loss", "Plan", "Victim", "departures", "plan"]


class Loss(NamedTuple):
    """What one workload loses."""

    uid: str
    reason: Reason
    """Preempted or Reclaimed."""
    surplus: tuple[Bundle, ...] | None = None
    """The steps by which it shrinks; None when the whole workload goes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who goes, and where the claimant then goes."""

    losses: tuple[Loss, ...]
    """In order of their UIDs."""
    choice: Choice
    awaited: tuple[str, ...] = ()
    """UIDs of what leaves already, with room that it can't do without."""

    @property
    def victims(self) -> tuple[str, ...]:
        """UIDs of the workloads that go whole."""
        return tuple(loss.uid for loss in self.losses if loss.surplus is None)


def plan(
    claimant: Claimant,
    victims: Iterable[Victim],
    tree: Tree,
    world: Members,
    *,
    now: float,
    leaving: Sequence[Victim] = (),
    rules: Rules = ANYWHERE,
    why: bool = True,
    settings: PreemptionSettings = PreemptionSettings(),
) -> Plan | Verdict:
    """The victims without which the claimant fits, or why no eviction would help.

    Args:
        claimant: what waits; its demand is counted in the tree, and its shape enrolled in the world.
        victims: all that run, in any order.
        tree: unchanged afterwards; no thread may read it meanwhile.
        world: up to date; not changed.
        now: seconds since the epoch.
        leaving: what was evicted before and has not ended, with room that no claim has yet: it counts as gone.
        rules: asked to permit each choice, while the tree shows the use without the victims.
        why: False where the verdict is not read: that no eviction helps is quicker to say than what is missing.
        settings: bounds of the search, and of evictions.
    """
    found = list(victims)

    def search(trial: Trial) -> Plan | Verdict:
        willing = candidates(trial, found, now)
        spare = [victim.spare_only() for victim in willing if victim.surplus]
        if spare:
            # Nothing stops for what others can spare.
            outcome = _hopeless(trial, spare) or _search(trial, ordered(trial, spare), why)
            if isinstance(outcome, Plan):
                return outcome
        return _hopeless(trial, willing) or _search(trial, ordered(trial, willing), why)

    return _somewhere(claimant, tree, world, rules, search, settings, leaving)


def departures(
    claimant: Claimant,
    running: Sequence[Victim],
    tree: Tree,
    world: Members,
    *,
    rules: Rules = ANYWHERE,
    settings: PreemptionSettings = PreemptionSettings(),
) -> Plan | Verdict:
    """As `plan`, of what would have to end by itself: no rights count, and what is named first goes first."""

    def search(trial: Trial) -> Plan | Verdict:
        pool = [Bundle(each.uid, each.leaf, each.amount, each.parts) for each in running]
        for position, bundle in enumerate(pool):
            bundle.position = position
        return _hopeless(trial, list(running)) or _search(trial, pool)

    return _somewhere(claimant, tree, world, rules, search, settings)


def _somewhere(
    claimant: Claimant,
    tree: Tree,
    world: Members,
    rules: Rules,
    search: Callable[[Trial], Plan | Verdict],
    settings: PreemptionSettings,
    leaving: Sequence[Victim] = (),
) -> Plan | Verdict:
    """Search in the members of the first affinity that leads anywhere; the verdict on the last if none does."""
    outcome: Plan | Verdict = Verdict(Reason.NO_CLUSTER)
    for allowed in world.allowed(claimant.shape):
        names = [world.order[column].name for column in np.flatnonzero(rules.serves(allowed & world.ready))]
        sites = {
            name: Site(world.members[name], claimant, world) for name in names if name not in rules.avoided
        }  # fmt: skip
        if sites:
            with Trial(claimant, tree, sites, rules, settings) as trial:
                gone = [each.whole(foreign=False) for each in leaving]
                for bundle in gone:
                    trial.move(bundle)
                outcome = search(trial)
                if gone and isinstance(outcome, Plan):
                    outcome = _awaiting(trial, outcome, gone)
            if isinstance(outcome, Plan):
                return outcome
    return outcome


def _awaiting(trial: Trial, outcome: Plan, gone: Sequence[Bundle]) -> Plan:
    """The plan, and what of that which leaves already it can't do without."""
    awaited = []
    for bundle in gone:
        trial.move(bundle, -1)
        if not trial.fits():
            trial.move(bundle)
            awaited.append(bundle.uid)
    choice = trial.choice()
    assert choice is not None, "what fits beside the same others fits again"
    return replace(outcome, choice=choice, awaited=tuple(awaited))


def _search(trial: Trial, pool: list[Bundle], why: bool = True) -> Plan | Verdict:
    best: list[Bundle] | None = None
    if trial.fits():
        best = []
    else:
        for chosen in itertools.islice(_greedy_plans(trial, pool), trial.settings.places):
            if best is None or _cost(chosen) < _cost(best):
                best = chosen
            if len(best) == 1 and len(pool) <= trial.settings.exhaustive:
                # Whoever else can go alone, in whatever place, is found below.
                break
        best = _smallest(trial, pool, best) or best
    if best is None:
        return _nearest(trial, pool) if why else Verdict(Reason.INSUFFICIENT_RESOURCES)
    for bundle in best:
        trial.take(bundle)
    choice = trial.choice()
    if choice is None:
        trial.put_all()
        return Verdict(Reason.WOULD_DELAY)
    return Plan(_losses(best), choice)


# -- the necessary condition -------------------------------------------------------------------------------------------


def _hopeless(trial: Trial, victims: list[Victim]) -> Verdict | None:
    """The verdict when the claimant would not fit even with all candidates gone; None when it might."""
    totals: dict[Queue, Vector] = {}
    for kind, times in Counter(victim.kind for victim in victims).items():
        leaf, _, _, amount = kind
        vector.add(totals.setdefault(leaf, {}), dict(amount), times)
    gone: list[tuple[Queue, Vector, Mapping[str, Pods]]] = [(leaf, total, {}) for leaf, total in totals.items()]
    if trial.capped:
        gone += [(victim.leaf, {}, victim.parts) for victim in victims]
    for each in gone:
        trial.release(*each)
    verdict = short.verdict() if (short := trial.shortage()) is not None else _roomless(trial, victims)
    for each in gone:
        trial.release(*each, -1)
    return verdict


def _roomless(trial: Trial, victims: list[Victim]) -> Verdict | None:
    """The verdict when the nodes would not hold the claimant even without the pods of these; None when they might."""
    if trial.may_fit():
        return None
    #: member -> requests of one pod -> (nodes, pods there)
    freed: dict[str, dict[tuple[tuple[str, int], ...], tuple[list[int], list[int]]]] = {}
    for victim in victims:
        for member, pods in victim.parts.items():
            if member in trial.sites:
                here = freed.setdefault(member, {})
                for node, request, count in pods:
                    nodes, counts = here.setdefault(tuple(request.items()), ([], []))
                    nodes.append(node)
                    counts.append(count)
    before = {name: (trial.sites[name].nodes.free, list(trial.sites[name].room)) for name in freed}
    for member, groups in freed.items():
        site = trial.sites[member]
        site.nodes.free = site.nodes.free.copy()
        for items, (indices, counts) in groups.items():
            more = np.bincount(indices, counts, len(site.nodes)).astype(np.int64)[: len(site.nodes)]
            site.nodes.free += site.nodes.column(dict(items))[:, None] * more
        site.refill()
    verdict = None if trial.may_fit() else _best_verdict(trial)
    for name, (free, room) in before.items():
        site = trial.sites[name]
        site.nodes.free, site.room = free, room
        site.recount()
    return verdict


def _best_verdict(trial: Trial) -> Verdict:
    """By the member that would come nearest."""
    floor = trial.claimant.shape.floor
    held = {
        name: max(
            (sum(min(has, wants) for has, wants in zip(cell, floor, strict=True)) for cell in site.held), default=0
        )
        for name, site in trial.sites.items()
    }
    name = min(held, key=lambda each: (-held[each], each))
    wanted = sum(floor)
    if held[name] >= wanted and (short := trial.shortage(name)) is not None:
        return short.verdict()
    reason = Reason.NO_DOMAIN_FITS if trial.claimant.shape.limited else Reason.INSUFFICIENT_RESOURCES
    return Verdict(reason, Blocker("Cluster", name, "pods", str(wanted), str(min(held[name], wanted))))


def _nearest(trial: Trial, pool: Sequence[Bundle]) -> Verdict:
    """What is missing when all have gone that may go together."""
    for bundle in pool:
        trial.take(bundle)
    short = trial.shortage()
    verdict = _best_verdict(trial)
    trial.put_all()
    return verdict if short is None else short.verdict()


# -- the search --------------------------------------------------------------------------------------------------------


def _cost(bundles: Sequence[Bundle]) -> tuple[int, list[int]]:
    """Fewest victims, then the earliest in the order of victims."""
    return len(bundles), sorted(bundle.position for bundle in bundles)


def _losses(bundles: Sequence[Bundle]) -> tuple[Loss, ...]:
    losses = []
    for uid, group in itertools.groupby(sorted(bundles, key=lambda each: (each.uid, each.position)), lambda b: b.uid):
        mine = list(group)
        reason = Reason.RECLAIMED if mine[0].foreign else Reason.PREEMPTED
        if not mine[-1].surplus:
            losses.append(Loss(uid, reason))
            continue
        losses.append(Loss(uid, reason, tuple(mine)))
    return tuple(losses)


def _greedy_plans(trial: Trial, pool: Sequence[Bundle]) -> Iterator[list[Bundle]]:
    """Irreducible sets, one for each place where the claimant could go; afterwards nothing is taken."""
    index: dict[tuple[str, int], list[Bundle]] = {}
    for bundle in pool:
        for spot in bundle.spots:
            if spot[0] in trial.sites:
                index.setdefault(spot, []).append(bundle)
    for place, want in _places(trial):
        if trial.refused >= trial.settings.forbidden:
            return
        only = next(iter(place)) if len(place) == 1 else ""
        if _Emptying(trial, place, want, index).run() and _make_quota(trial, pool, only) and trial.fits():
            _reduce(trial)
            chosen = list(trial.taken)
            trial.put_all()
            yield chosen
        else:
            trial.put_all()


Place = dict[str, Ints]
"""Member -> indices of the nodes to empty there."""


def _places(trial: Trial) -> Iterator[tuple[Place, Sequence[int]]]:
    """(nodes, pods per task) for each place where the claimant could go; the one that lacks the fewest pods first."""
    shape = trial.claimant.shape
    if shape.least_clusters <= 1:
        ranked: list[tuple[int, str, int, Ints]] = []
        for name, site in trial.sites.items():
            for cell in range(site.cells):
                lacks = sum(max(want - has, 0) for has, want in zip(site.held[cell], shape.floor, strict=True))
                nodes = np.flatnonzero(np.any([row == cell for row in site.cells_of], axis=0))
                if nodes.size:
                    ranked.append((lacks, name, cell, nodes))
        for _, name, _, nodes in sorted(ranked, key=lambda each: each[:3]):
            yield {name: nodes}, shape.floor
    if shape.divided:
        yield {name: np.arange(len(site.nodes)) for name, site in trial.sites.items()}, shape.full


class _Emptying:
    """Room for the wanted pods in one place, pod by pod where it takes the fewest victims."""

    def __init__(
        self, trial: Trial, place: Place, want: Sequence[int], index: Mapping[tuple[str, int], Sequence[Bundle]]
    ) -> None:
        self._trial, self._index = trial, index
        self._need = list(want)
        #: (member, node) in the place -> what is free beside the pods that have found room
        self._free: dict[tuple[str, int], list[int]] = {}
        for name, nodes in place.items():
            columns = trial.sites[name].nodes.free[:, nodes].T.tolist()
            for node, free in zip(nodes.tolist(), columns, strict=True):
                self._free[name, node] = free
        #: bundles that their queues do not lend any more
        self._kept: set[Bundle] = set()

    def run(self) -> bool:
        """Take bundles until there is room; False when there never is."""
        tasks = self._trial.claimant.gang.tasks
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
            touched: dict[tuple[str, int], None] = {spot: None}
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

    def _room(self, task: int, spot: tuple[str, int]) -> int:
        site = self._trial.sites[spot[0]]
        return site.room_of(task, self._free[spot]) if site.accepts[task][spot[1]] else 0

    def _claim(self, task: int, spot: tuple[str, int]) -> None:
        """Put as many pods there as there is room for."""
        if not self._need[task]:
            return
        pods = min(self._room(task, spot), self._need[task])
        if pods:
            self._need[task] -= pods
            free = self._free[spot]
            for row, amount in self._trial.sites[spot[0]].asks[task] or ():
                free[row] -= amount * pods

    def _went(self, bundle: Bundle) -> dict[tuple[str, int], None]:
        """Give back what the bundle held; returns where that was."""
        touched: dict[tuple[str, int], None] = {}
        for member, pods in bundle.pods.items():
            for node, request, count in pods:
                free = self._free.get((member, node))
                if free is not None:
                    touched[member, node] = None
                    for row, name in enumerate(self._trial.sites[member].nodes.resources):
                        free[row] += request.get(name, 0) * count
        return touched

    def _there(self, spot: tuple[str, int]) -> Iterator[Bundle]:
        """What still can go from a node: a rest brings the surplus that must go before it, wherever that is."""
        given: set[Bundle] = set()
        for bundle in self._index[spot]:
            chain = [bundle] if bundle.after is None else bundle.chain()
            if bundle in self._trial.taken or any(each in self._kept for each in chain):
                continue
            for each in chain:
                if each not in self._trial.taken and each not in given:
                    given.add(each)
                    yield each

    def _option(self, task: int, spot: tuple[str, int]) -> tuple[int, tuple[int, ...]] | None:
        """(how many, positions from the last) of the bundles that make room for one more pod; None where none do."""
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
        for bundle in sorted(chosen, key=lambda each: -each.position):
            if any(other.after is bundle for other in chosen):
                continue
            self._add(free, bundle, spot, -1)
            if site.room_of(task, free):
                chosen.remove(bundle)
            else:
                self._add(free, bundle, spot, 1)
        return len(chosen), tuple(sorted((bundle.position for bundle in chosen), reverse=True))

    def _add(self, free: list[int], bundle: Bundle, spot: tuple[str, int], times: int) -> None:
        member, node = spot
        resources = self._trial.sites[member].nodes.resources
        for other, request, count in bundle.pods.get(member, ()):
            if other == node:
                for row, name in enumerate(resources):
                    free[row] += request.get(name, 0) * count * times


def _make_quota(trial: Trial, pool: Sequence[Bundle], member: str) -> bool:
    """Take bundles in order until the limits on the claimant's path, and the ceilings in the one member where it goes,
    have room; False when they never do.
    """
    while (short := trial.shortage(member)) is not None:
        before = len(trial.taken)
        for bundle in pool:
            if (
                bundle not in trial.taken
                and bundle.amount.get(short.resource, 0) > 0
                and short.queue in path(bundle.leaf)
                and (not short.member or short.member in bundle.pods)
            ):
                trial.take(bundle)
                now = trial.shortage(member)
                if now is None or (now.queue, now.resource, now.member) != (short.queue, short.resource, short.member):
                    break
        if len(trial.taken) == before:
            return False
    return True


def _reduce(trial: Trial) -> None:
    """Put back every bundle without which the claimant still fits, the least suitable first."""
    changed = True
    while changed:
        changed = False
        bound = {bundle.after for bundle in trial.taken}
        for bundle in sorted(trial.taken, key=lambda each: -each.position):
            if bundle in bound:
                continue
            trial.put(bundle)
            if trial.fits():
                changed = True
                bound.discard(bundle.after)
            else:
                taken = trial.take(bundle)
                assert taken, "what was lent beside the same others is lent again"


def _smallest(trial: Trial, pool: Sequence[Bundle], best: Sequence[Bundle] | None) -> list[Bundle] | None:
    """The set of lowest cost, none larger than `best`, among the sizes of which all can be tried; None without one."""
    if best is None and 2 ** len(pool) > trial.settings.exhaustive:
        return None
    tried = 0
    for size in range(1, (len(pool) if best is None else len(best)) + 1):
        tried += math.comb(len(pool), size)
        if tried > trial.settings.exhaustive:
            return None
        if _any_of(trial, pool, 0, size):
            chosen = list(trial.taken)
            trial.put_all()
            return chosen
    return None


def _any_of(trial: Trial, pool: Sequence[Bundle], start: int, size: int) -> bool:
    """Take the first set of so many more bundles, in their order, with which the claimant fits."""
    if not size:
        return trial.fits()
    for position in range(start, len(pool) - size + 1):
        if trial.refused >= trial.settings.forbidden:
            return False
        if trial.take(pool[position]):
            if _any_of(trial, pool, position + 1, size - 1):
                return True
            trial.put(pool[position])
    return False
