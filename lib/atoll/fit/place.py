"""Place a gang on nodes: whole or not at all, as near together as possible, in the tightest gap that holds it.

0. Where all replicas fit on nodes without taints that they should rather avoid (PreferNoSchedule), they go there.
1. All replicas before the bare minimum: a domain for the whole workload is worth more than a tighter one for its
   floor. Where only that fits and it must stay in a domain, one that it can grow in; then as many more as fit
   there and in ever wider domains that it may span.
2. Tier by tier from the nearest; in a tier the domain with the least sufficient capacity, so that large empty ones
   stay whole.
3. Inside a domain the same rule downwards: the smallest part that holds the rest, else the largest part and go
   on, which uses few parts. Where the workload, its queue or the member has a scoring, the best nodes by that instead.
4. A gang with a scoring and no topology wish chooses among all nodes, if it is one pod or the scoring disperses pods.

A gang of several tasks is tried task by task, the greediest first, on what the earlier ones left, and where that fails
in a tier pod by pod (`sparing`); one whose pods are in groups with wishes of their own group by group (`groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Literal, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from atoll.fit import balanced
from atoll.fit.groups import in_whole_groups, put_in_groups
from atoll.fit.nodes import Nodes
from atoll.fit.placement import UNBOUNDED, Ints, Placement
from atoll.fit.pods import joined
from atoll.fit.scored import fill_by_score
from atoll.fit.sizes import Several, addition, with_room
from atoll.fit.sizes import fill as fill_up
from atoll.fit.sparing import put_sparingly
from atoll.fit.stepwise import put_in_turn
from atoll.model import quantity
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.topology import NO_DOMAIN
from atoll.model.verdict import Reason

ALL = NO_DOMAIN
"""The "domain" that is every node."""
_FEW = 64
_SPARED = 4
"""Domains of a tier, the tightest, in which a second way is tried to place several tasks."""
_EVERYWHERE: Ints = np.array([ALL], np.int64)


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a gang does not fit, by its nearest miss."""

    reason: Reason
    requested: int
    """Pods wanted at least."""
    available: int
    """Pods that the best domain holds."""
    domain: str = ""
    """The best domain; empty where tiers do not matter."""
    resource: str = ""
    """The resource in shortage; empty where it is not one resource."""
    needed: int = 0
    """Units of it that the pods still miss."""
    by_numa: bool = False
    """Whether it would fit, but for the NUMA nodes of nodes."""
    by_rules: bool = False
    """Whether it would fit, but for rules of its pods and others about pods beside them."""
    empty: bool = False
    """Whether there are no nodes at all."""
    apart: str = ""
    """The tier of which its groups must share no domain, where it would fit but for that."""

    def sentence(self) -> str:
        """The miss for a person."""
        if self.empty:
            return "it has no nodes"
        if self.reason is Reason.NO_NODE_MATCHES and self.by_numa:
            return "no node could align the CPUs and devices of its pods to NUMA nodes, even if it were empty"
        if self.reason is Reason.NO_NODE_MATCHES:
            return "no node accepts the selectors and tolerations of its pods"
        if self.reason is Reason.NO_TOPOLOGY:
            return "it has no topology domain (HyperNode) of a tier that the gang allows"
        if self.by_rules:
            return "pod affinity, anti-affinity or topology spread, of its pods or of others, leave no nodes for them"
        if self.apart:
            return f"there would be room, but not for each of its groups in domains of tier {self.apart} of its own"
        if self.by_numa:
            return (
                "nodes would have room, but can't align the CPUs and devices of its pods to NUMA nodes as the policies"
                " of their kubelets, or of its pods, demand, or have its devices together"
            )
        if self.requested == 1:
            text = f"domain {self.domain} has no room for its pod" if self.domain else "there is no room for its pod"
        else:
            where = f"domain {self.domain} holds" if self.domain else "there is room for"
            text = f"{where} {self.available} of the {self.requested} pods that must start together"
        if self.resource:
            text += f"; {self.resource} is short by {quantity.format_units(self.resource, self.needed)}"
        return text


@dataclass(frozen=True, slots=True)
class OneRoom:
    """Where there are places for a gang of one pod: most workloads are one, and few nodes matter to it."""

    held: Sequence[int]
    """D + 1 sums of the places in each domain; the last entry, of no domain, is zero."""
    at: Callable[[Ints], Ints]
    """int64[K], how many such pods each of int64[K] nodes holds."""
    stocked: Ints | None = None
    """int64[N], how many of its images each node has; None where that makes no difference."""


@overload
def place(
    nodes: Nodes, gang: Gang, *, within: int | None = None, room: Sequence[Ints] | None = None
) -> Placement | Miss: ...


@overload
def place(
    nodes: Nodes,
    gang: Gang,
    *,
    room: Sequence[Ints] | OneRoom | None = None,
    held: Sequence[Ints] | None = None,
    explain: Literal[False],
) -> Placement | None: ...


def place(
    nodes: Nodes,
    gang: Gang,
    *,
    within: int | None = None,
    room: Sequence[Ints] | OneRoom | None = None,
    held: Sequence[Ints] | None = None,
    explain: bool = True,
) -> Placement | Miss | None:
    """Find places for a gang.

    Args:
        nodes: not changed.
        gang: its tasks, minimum and topology wish.
        within: index of the domain to stay inside, for a gang that partly runs; of the tree that its wish is about.
        room: per task int64[N], how many of its pods each node holds, where the caller knows that already.
        held: per task int64[D + 1], the sums of these over each domain, likewise; the last entry, of no domain, is
            zero.
        explain: whether to explain a miss, which costs as much as a search.

    Returns:
        A placement of all replicas where they fit, of at least the floor otherwise; or the nearest miss, None where
        that is not asked for. The domain of a placement is one of `nodes.tree`.
    """
    seen = nodes.seen_by(gang.network_topology)
    if seen is not nodes:
        rooms = None if isinstance(room, OneRoom) else room
        found = (
            place(seen, gang, within=within, room=rooms) if explain else place(seen, gang, room=rooms, explain=False)
        )
        if isinstance(found, Placement):
            found.domain, found.tier = covering(nodes, found.arrays()[1])
        return found
    if isinstance(room, OneRoom):
        return _place_one(nodes, gang, room.held, room.at, room.stocked)
    known = room is not None
    if room is None:
        room = _room(nodes, gang)
    if within is not None:
        inside = _members(nodes, within)
        room = [np.where(inside, each, 0) for each in room]
    if not known and (placement := _find_liked(nodes, gang, room)) is not None:
        return placement
    floor = gang.floor()
    placement = _find(nodes, gang, floor, room, held if held is not None else [_held(nodes, each) for each in room])
    if placement is not None or not explain:
        return placement
    return _nearest_miss(nodes, gang, _counted(nodes, gang, room), floor, _levels(nodes, gang))


def _counted(nodes: Nodes, gang: Gang, room: Sequence[Ints]) -> Sequence[Ints]:
    """The part of the capacity that counts for the choice of a domain."""
    return in_whole_groups(nodes, gang, room) if gang.grouped else room


def _find(
    nodes: Nodes, gang: Gang, floor: Sequence[int], room: Sequence[Ints], held: Sequence[Ints]
) -> Placement | None:
    full, levels = gang.full(), _levels(nodes, gang)
    counted = _counted(nodes, gang, room)
    if counted is not room:
        held = [_held(nodes, each) for each in counted]
    elif full == floor == [1] and not nodes.in_turn(gang) and nodes.scoring_of(gang) is None:
        return _place_one(nodes, gang, held[0].tolist(), room[0].take, _stocked(nodes, gang.tasks[0]))
    turns = nodes.in_turn(gang) and not gang.grouped
    scoring = nodes.scoring_of(gang)
    if scoring is not None and not scoring.packs and gang.network_topology is None:
        levels = [_EVERYWHERE]
    if (turns or scoring is not None) and sum(full) == 1:
        # One pod is near itself wherever it is: it may choose among all nodes.
        return _try(nodes, gang, room, full, full, _reach(nodes, levels))
    for want in (full, floor) if full != floor else (full,):
        for domains in levels:
            fitting = _by_tightness(nodes, domains, counted, held, want)
            if want is not full and len(fitting) > 1 and gang.network_topology is not None:
                fitting = _growing_first(nodes, gang, fitting, held, full)
            for domain in _preferred_first(nodes, gang, fitting, room) if turns else fitting:
                placement = _try(nodes, gang, room, want, full, _members(nodes, int(domain)), int(domain))
                if placement is not None:
                    return _widened(nodes, gang, room, levels, placement, _around(nodes, int(domain))[1:])
            if len(gang.tasks) > 1 and not turns and not gang.grouped:
                for domain in fitting[:_SPARED]:
                    placement = _try_sparingly(nodes, gang, room, want, int(domain))
                    if placement is not None:
                        return _widened(nodes, gang, room, levels, placement, _around(nodes, int(domain)))
    return None


def _widened(
    nodes: Nodes, gang: Gang, room: Sequence[Ints], levels: Sequence[Ints], placement: Placement, around: Sequence[int]
) -> Placement:
    """A placement with as many more pods of the gang as fit in these domains, nearest first, so far as it
    may span them. Groups are placed anew: their separation is decided for all of them.
    """
    full, allowed = gang.full(), {int(each) for domains in levels for each in domains}
    for domain in around:
        if placement.counts == full:
            break
        if domain not in allowed:
            continue
        inside = _members(nodes, domain)
        if gang.grouped:
            anew = _try(nodes, gang, room, placement.counts, full, inside, domain)
            if anew is not None and sum(anew.counts) > sum(placement.counts):
                placement = anew
            continue
        free = nodes.copy()
        free.put(gang.tasks, placement)
        missing = [most - have for most, have in zip(full, placement.counts, strict=True)]
        left = room
        if not free.in_turn(gang):
            tasks = zip(gang.tasks, room, strict=True)
            left = [np.where(each > 0, free.room_left(task), 0) for task, each in tasks]
        more = _try(free, gang, left, [0] * len(full), missing, inside, domain)
        if more is not None and more.pods:
            placement = joined(placement, more)
            placement.domain, placement.tier = covering(nodes, placement.arrays()[1])
    return placement


def _around(nodes: Nodes, domain: int) -> list[int]:
    """A domain and those around it, nearest first; at last all nodes."""
    return [*nodes.tree.ancestors(domain), ALL] if domain != ALL else [ALL]


def _find_liked(nodes: Nodes, gang: Gang, room: Sequence[Ints]) -> Placement | None:
    """All replicas on nodes without a taint that they should rather avoid, and on the fewest NUMA nodes; None where
    that makes no difference, or they don't fit so. Pods that go one by one weigh that with what else they prefer.
    """
    disliked = [nodes.disliked(task) for task in gang.tasks]
    narrow = [nodes.narrow(task) for task in gang.tasks]
    tainted = any(each is not None and each.any() for each in disliked)
    if nodes.in_turn(gang) or not (tainted or any(each is not None for each in narrow)):
        return None
    liked = [here if each is None else np.where(each, 0, here) for each, here in zip(disliked, room, strict=True)]
    liked = [here if each is None else np.minimum(each, here) for each, here in zip(narrow, liked, strict=True)]
    return _find(nodes, gang, gang.full(), liked, [_held(nodes, each) for each in liked])


def _place_one(
    nodes: Nodes, gang: Gang, held: Sequence[int], room: Callable[[Ints], Ints], stocked: Ints | None = None
) -> Placement | None:
    """A single pod: all of it is the choice of a domain and of a node in it. See `OneRoom` and `_fill`."""
    for domains in _levels(nodes, gang):
        domain = ALL if domains is _EVERYWHERE else _tightest(nodes, domains, held)
        if domain is None:
            continue
        inside = nodes.layout.inside(domain)
        if not inside.size:
            continue
        here = room(inside)
        tight = np.where(here > 0, here, UNBOUNDED)
        if stocked is not None:
            tight = np.where(tight == tight.min(), -stocked.take(inside), 1)
        best = tight.argmin()
        if here[best] <= 0:
            continue
        node = int(inside[best])
        for level, tier in enumerate(nodes.tree.tiers):
            around = int(nodes.domain[level, node])
            if around != NO_DOMAIN:
                return Placement([(0, node, 1)], [1], around, tier)
        return Placement([(0, node, 1)], [1])
    return None


def _tightest(nodes: Nodes, domains: Ints, held: Sequence[int]) -> int | None:
    """The first of `_by_tightness` for a single pod; few domains are sooner compared one by one than as arrays."""
    if domains.size > _FEW:
        fitting = _by_tightness(nodes, domains, (), (np.array(held),), (1,))
        return int(fitting[0]) if fitting.size else None
    ways = nodes.layout.ways()
    there = [ways[domain] for domain in domains.tolist() if held[domain] > 0]
    return min([([held[each] for each in way], rank, domain) for way, rank, domain in there])[2] if there else None


def find(nodes: Nodes, gang: Gang, where: Placement | None = None) -> Placement | None:
    """As `place`, on the nodes of another placement only if there is one; an explanation would cost as much as
    a search.
    """
    room = [np.where(nodes.accepting(task), nodes.room(task.requests), 0) for task in gang.tasks]
    if where is not None:
        elsewhere = np.ones(len(nodes), np.bool_)
        elsewhere[[node for _, node, _ in where.pods if node < len(nodes)]] = False
        for each in room:
            each[elsewhere] = 0
    for each, floor in zip(room, gang.floor(), strict=True):
        if np.minimum(each, floor).sum() < floor:
            return None
    return place(nodes, gang, room=room, explain=False)


def grow(nodes: Nodes, gang: Gang, *, within: int | None = None) -> Placement | Miss:
    """Where more pods of a gang go whose minimum runs: as many as fit, whichever; at least one unit.

    Args:
        nodes: not changed.
        gang: the pods that are to come; its minimums mean nothing here.
        within: as of `place`.

    Returns:
        A placement, or what the first of them misses.
    """
    full, miss = gang.full(), None
    tried: set[bytes] = set()
    for alike in gang.units():
        least = [0] * len(full)
        for index, size in alike:
            least[index] = min(size, full[index])
        shape = msgspec.json.encode([msgspec.structs.replace(gang.tasks[i], name="", replicas=n) for i, n in alike])
        if not any(least) or shape in tried:
            continue
        tried.add(shape)
        if miss is not None and not all(nodes.room_for(gang.tasks[index]).any() for index, _ in alike if least[index]):
            continue
        found = place(nodes, addition(gang, least, full), within=within)
        if isinstance(found, Placement):
            return found
        miss = miss or found
    assert miss is not None, "there are pods to come"
    return miss


def fill(nodes: Nodes, gang: Gang) -> Placement:
    """Where a gang fits, and how much of it: as many of its pods as fit, anywhere."""
    full = gang.full()
    room = _room(nodes, gang)
    placement = _try(nodes, gang, room, [0] * len(full), full, _members(nodes, ALL))
    assert placement is not None, "nothing is wanted at least, so something is always placed"
    return placement


def _room(nodes: Nodes, gang: Gang) -> list[Ints]:
    if nodes.in_turn(gang):
        return [nodes.bound_for(task, gang) for task in gang.tasks]
    return [nodes.room_for(task) for task in gang.tasks]


def _levels(nodes: Nodes, gang: Gang) -> list[Ints]:
    """Domains to try, tier by tier from the nearest; [ALL] last where the gang may be anywhere."""
    levels = nodes.tree.levels(gang.network_topology)
    at_tier = nodes.layout.at_tier
    return [*at_tier, _EVERYWHERE] if levels is None else [at_tier[level] for level in levels]


def _members(nodes: Nodes, domain: int) -> NDArray[np.bool_]:
    if domain == ALL:
        return np.ones(len(nodes), np.bool_)
    inside: NDArray[np.bool_] = nodes.layout.at_tier_of(domain) == domain
    return inside


def _sums(nodes: Nodes, domains: Ints, room: Ints) -> Ints:
    """Pods that each of these domains holds, all being of one tier (or ALL)."""
    if domains[0] == ALL:
        return np.array([room.sum()], np.int64)
    per_domain = np.zeros(len(nodes.tree.domains) + 1, np.int64)
    np.add.at(per_domain, nodes.layout.at_tier_of(domains[0]), room)
    sums: Ints = per_domain[domains]
    return sums


def _held(nodes: Nodes, room: Ints) -> Ints:
    """int64[D + 1]: pods that each domain holds; the last entry, of no domain, is zero."""
    held = np.zeros(len(nodes.tree.domains) + 1, np.int64)
    for inside in nodes.domain:
        np.add.at(held, inside, room)
    held[NO_DOMAIN] = 0
    return held


def _by_tightness(nodes: Nodes, domains: Ints, room: Sequence[Ints], held: Sequence[Ints], want: Sequence[int]) -> Ints:
    """The domains that may hold the wanted pods (each task by itself does), the tightest first.

    Of equally tight ones first the one with less capacity above it, so that broken domains are used up first; then
    by name. `held` is from `_held`.
    """
    if domains.size and domains[0] == ALL:
        return domains if all(each.sum() >= amount for each, amount in zip(room, want, strict=True)) else domains[:0]
    fitting = domains
    for each, amount in zip(held, want, strict=True):
        fitting = fitting[each.take(fitting) >= amount]
    if len(fitting) < 2:
        return fitting
    total = held[0] if len(held) == 1 else np.sum(held, axis=0)
    keys, above = [total.take(fitting)], fitting
    for _ in nodes.tree.tiers[1:]:
        above = nodes.layout.parent.take(above)
        keys.append(total.take(above))
    return fitting.take(np.lexsort((nodes.layout.by_name.take(fitting), *reversed(keys))))


def _try(
    nodes: Nodes,
    gang: Gang,
    room: Sequence[Ints],
    want: Sequence[int],
    full: Sequence[int],
    inside: NDArray[np.bool_],
    domain: int = ALL,
) -> Placement | None:
    """Place `want` on nodes of bool[N], the nodes of a domain, then as many more as fit there."""
    if gang.grouped:
        allowed = [each > 0 for each in room]
        # Groups are listed: no more of them than could fit.
        full = with_room(gang, want, [int(each[inside].sum()) for each in room])
        found = put_in_groups(nodes, gang, want, full, inside & np.logical_or.reduce(allowed), _room, _find_group)
        if found is not None:
            found.domain, found.tier = covering(nodes, found.arrays()[1])
        return found
    if nodes.in_turn(gang):
        return _try_in_turn(nodes, gang, room, want, full, inside, domain)
    put = _Putting(nodes, gang, room, inside, domain, want)
    if not put.all([(index, count) for index, count in enumerate(want) if count]):
        return None
    if want is not full:
        most = full
        if len(full) == 1 and gang.tasks[0].unit == 1:
            most = [min(full[0], want[0] + int(put.room(0).sum()))]
        fill_up(gang, want, most, put.all)
    placement = put.placement
    placement.domain, placement.tier = covering(nodes, placement.arrays()[1])
    return placement


class _Putting:
    """Puts pods of a gang on nodes of a domain, task by task, the greediest first."""

    def __init__(
        self,
        nodes: Nodes,
        gang: Gang,
        room: Sequence[Ints],
        inside: NDArray[np.bool_],
        domain: int,
        want: Sequence[int],
    ) -> None:
        self._nodes, self._gang, self._room, self._inside, self._domain = nodes, gang, room, inside, domain
        self._turns = {index: turn for turn, index in enumerate(_greediest_first(nodes, gang.tasks, want))}
        self._scoring = nodes.scoring_of(gang)
        #: what the placement leaves; None until that is asked for
        self._free: Nodes | None = None
        self.placement = Placement(counts=[0] * len(gang.tasks))

    def all(self, pods: Several) -> bool:
        """Put so many of each task; False, and nothing is done, where some don't fit."""
        before, free = self.placement, self._free
        if len(pods) > 1:
            if any(int(self.room(index).sum()) < count for index, count in pods):
                return False
            self._free = free.copy() if free is not None else None
            self.placement = Placement(list(before.pods), list(before.counts))
        for index, count in sorted(pods, key=lambda each: self._turns[each[0]]):
            here = self.room(index)
            if int(here.sum()) < count:
                self.placement, self._free = before, free
                return False
            self._put(index, here, count)
        return True

    def room(self, index: int) -> Ints:
        """int64[N]: how many more pods of a task each node of the domain holds."""
        if not self.placement.pods:
            return np.where(self._inside, self._room[index], 0)
        if self._free is None:
            self._free = self._nodes.copy()
            self._free.put(self._gang.tasks, self.placement)
        task = self._gang.tasks[index]
        left = np.where(self._inside & (self._room[index] > 0), self._free.room_left(task), 0)
        if task.claims:
            # A host knows how many such pods fit before any is put, not the devices.
            own = np.zeros_like(left)
            for each, node, count in self.placement.pods:
                own[node] += count * (each == index)
            left = np.clip(self._room[index] - own, 0, left)
        return left

    def _put(self, index: int, here: Ints, count: int) -> None:
        gang, task, free = self._gang, self._gang.tasks[index], self._free
        stocked = _stocked(self._nodes, task)
        self.placement.counts[index] += count
        parts = balanced.parts(self._nodes, gang.balanced, here, count) if gang.balanced is not None else ()
        for part, pods in parts or ((here, count),):
            if self._scoring is None:
                chosen, counts = _fill(self._nodes, part, pods, self._domain, stocked)
            else:
                left = free if free is not None else self._nodes
                chosen, counts = fill_by_score(left, task, part, pods, self._scoring, stocked)
            self.placement.pods += zip(repeat(index), chosen.tolist(), counts.tolist())
            if free is not None:
                free.free[:, chosen] -= np.outer(free.column(task.requests), counts)
                if free.exact or free.company is not None:
                    for node, number in zip(chosen.tolist(), counts.tolist(), strict=True):
                        free.count_pieces(task, node, number)


def _try_sparingly(
    nodes: Nodes, gang: Gang, room: Sequence[Ints], want: Sequence[int], domain: int
) -> Placement | None:
    order = _greediest_first(nodes, gang.tasks, want)
    found = put_sparingly(nodes, gang.tasks, room, want, _members(nodes, domain), order)
    if found is not None:
        found.domain, found.tier = covering(nodes, found.arrays()[1])
    return found


def _find_group(nodes: Nodes, gang: Gang, room: Sequence[Ints]) -> Placement | None:
    seen = nodes.seen_by(gang.network_topology)
    return _find(seen, gang, gang.full(), room, [_held(seen, each) for each in room])


def _try_in_turn(
    nodes: Nodes,
    gang: Gang,
    room: Sequence[Ints],
    want: Sequence[int],
    full: Sequence[int],
    inside: NDArray[np.bool_],
    domain: int,
) -> Placement | None:
    """As `_try`, pod by pod, on nodes of bool[N]."""
    order = _greediest_first(nodes, gang.tasks, want)
    found = None
    if gang.balanced is not None:
        evened = [
            _evened(nodes, gang.balanced, np.where(inside, r, 0), n, domain) for r, n in zip(room, want, strict=True)
        ]
        found = put_in_turn(nodes, gang, evened, want, want, inside, order)
    if found is None:
        found = put_in_turn(nodes, gang, room, want, full, inside, order)
    if found is not None:
        found.domain, found.tier = covering(nodes, found.arrays()[1])
    return found


def _evened(nodes: Nodes, wish: TopologyWish, room: Ints, count: int, domain: int) -> Ints:
    """The capacity that so many pods get where they are shared out evenly; all of it where they can't be."""
    parts = balanced.parts(nodes, wish, room, count)
    if not parts:
        return room
    found = np.zeros(len(nodes), np.int64)
    for part, pods in parts:
        chosen, counts = _fill(nodes, part, pods, domain, None)
        found[chosen] = counts
    return found


def _reach(nodes: Nodes, levels: Sequence[Ints]) -> NDArray[np.bool_]:
    """bool[N]: nodes in some domain of these."""
    inside = np.zeros(len(nodes), np.bool_)
    for domains in levels:
        if domains.size:
            inside |= np.isin(nodes.layout.at_tier_of(domains[0]), domains) if domains[0] != ALL else True
    return inside


def _growing_first(nodes: Nodes, gang: Gang, domains: Ints, held: Sequence[Ints], full: Sequence[int]) -> Ints:
    """Domains of one tier for a gang that must stay in one of a tier: first the ones where all of its replicas could be
    if others left, then the ones with the most capacity for them now; of equal ones as they were. What counts is the
    largest domain around each that it may grow into, then the domain itself.
    """
    highest = nodes.tree.ceiling(gang.network_topology)
    if highest is None or gang.network_topology is None or not gang.network_topology.hard:
        return domains
    tiers = np.array([*(domain.tier for domain in nodes.tree.domains), highest + 1], np.int64)
    around = domains
    for _ in nodes.tree.tiers[1:]:
        above = nodes.layout.parent.take(around)
        around = np.where(tiers.take(above) <= highest, above, around)
    now, here = (
        np.sum([np.minimum(each.take(where), want) for each, want in zip(held, full, strict=True)], axis=0)
        for where in (around, domains)
    )
    short = np.zeros(len(domains), np.bool_)
    if nodes.capacity is not None:
        empty = nodes.with_free(nodes.capacity)
        for task, want in zip(gang.tasks, full, strict=True):
            most = np.where(nodes.accepting(task), empty.room(task.requests), 0)
            short |= _held(nodes, most).take(around) < want
    return domains.take(np.lexsort((np.arange(len(domains)), -here, -now, short)))


def _preferred_first(nodes: Nodes, gang: Gang, domains: Ints, room: Sequence[Ints]) -> Ints:
    """Domains of one tier, those first whose nodes its pods prefer on average; of equal ones as they were."""
    if len(domains) < 2 or nodes.company is None:
        return domains
    total = np.zeros(len(domains))
    inside = nodes.layout.at_tier_of(domains[0])
    for task, here in zip(gang.tasks, room, strict=True):
        if (score := nodes.company.score(task, here > 0, nodes.scoring)) is not None:
            sums, counts = (np.zeros(len(nodes.tree.domains) + 1) for _ in range(2))
            np.add.at(sums, inside, np.where(here > 0, score, 0))
            np.add.at(counts, inside, here > 0)
            total += (sums / np.maximum(counts, 1)).take(domains) * task.replicas
    return domains.take(np.argsort(-total, kind="stable"))


def _greediest_first(nodes: Nodes, tasks: Sequence[Task], want: Sequence[int]) -> list[int]:
    """Task order by `weights`; then as written."""
    if len(tasks) == 1:
        return [0]
    known = weights(nodes, tasks)
    return sorted(range(len(tasks)), key=lambda i: (-known[i], i))


def weights(nodes: Nodes, tasks: Iterable[Task]) -> list[float]:
    """Per task the largest part of the free amounts of all nodes that one of its pods takes; for comparisons."""
    total = np.maximum(nodes.free.sum(axis=1), 1)
    return [float((nodes.column(task.requests) / total).max(initial=0.0)) for task in tasks]


def _stocked(nodes: Nodes, task: Task) -> Ints | None:
    return nodes.company.stocked(task) if nodes.company is not None else None


def _fill(nodes: Nodes, room: Ints, count: int, domain: int, stocked: Ints | None) -> tuple[Ints, Ints]:
    """(nodes, each once; pods on each) for `count` pods in the domain, by rule 3; `room` is zero outside and holds
    enough. Of nodes with equal capacity the ones with more images go first (int64[N], or None).
    """
    chosen: list[Ints] = []
    counts: list[Ints] = []
    level = len(nodes.tree.tiers) if domain == ALL else nodes.tree.tiers.index(nodes.tree.domains[domain].tier)
    for parts in reversed(nodes.domain[:level]):
        sums = np.zeros(len(nodes.tree.domains) + 1, np.int64)
        np.add.at(sums, parts, room)
        sums[NO_DOMAIN] = 0
        whole, last, count = greedy(sums, count)
        if whole.size:
            used_up = np.zeros(len(sums), np.bool_)
            used_up[whole] = True
            filled = np.where(used_up.take(parts), room, 0)
            chosen.append(filled.nonzero()[0])
            counts.append(filled.take(chosen[-1]))
            room = room - filled
        if last is not None:
            room = np.where(parts == last, room, 0)
    if stocked is None:
        whole, last, count = greedy(room, count)
    else:
        order = np.argsort(-stocked, kind="stable")
        whole, last, count = greedy(room.take(order), count)
        whole, last = order.take(whole), int(order[last]) if last is not None else None
    chosen.append(whole)
    counts.append(room.take(whole))
    if last is not None:
        chosen.append(np.array([last]))
        counts.append(np.array([count]))
    return np.concatenate(chosen), np.concatenate(counts)


def greedy(amounts: Ints, count: int) -> tuple[Ints, int | None, int]:
    """Rule 3 for one kind of part: which to use up, which of the others then holds the rest in the tightest gap.

    Returns:
        Indices used up, the largest first; the index that holds the rest, None when none does; the rest.
    """
    if count <= 0:
        return np.zeros(0, np.int64), None, 0
    order = (-amounts).argsort(kind="stable")
    ranked = amounts.take(order)
    held = ranked.cumsum()
    cut = int(held.searchsorted(count))
    if cut == len(held):
        return order[ranked > 0], None, count - int(ranked.sum())
    rest = count - int(held[cut] - ranked[cut])
    rising = ranked[cut:][::-1]
    tightest = rising[rising.searchsorted(rest)]
    # Of equally tight ones the first.
    last = len(rising) - int(rising.searchsorted(tightest, side="right"))
    return order[:cut], int(order[cut + last]), rest


def covering(nodes: Nodes, chosen: Ints | Sequence[int]) -> tuple[int | None, int | None]:
    """The smallest domain that holds all of these nodes, and its tier; (None, None) when none does."""
    for tier, row in zip(nodes.tree.tiers, nodes.domain[:, chosen], strict=True):
        if row.size and row[0] != NO_DOMAIN and (row == row[0]).all():
            return int(row[0]), tier
    return None, None


def _nearest_miss(nodes: Nodes, gang: Gang, room: Sequence[Ints], floor: Sequence[int], levels: Sequence[Ints]) -> Miss:
    wanted = sum(floor)
    if not len(nodes):
        return Miss(Reason.NO_NODE_MATCHES, wanted, 0, empty=True)
    anyhow = [msgspec.structs.replace(task, aligned=[], numa="", devices_in="") for task in gang.tasks]
    if any(want and not nodes.accepting(task).any() for task, want in zip(gang.tasks, floor, strict=True)):
        by_numa = anyhow != gang.tasks and all(nodes.accepting(task).any() for task in anyhow)
        return Miss(Reason.NO_NODE_MATCHES, wanted, 0, by_numa=by_numa)
    near = nodes.tree.ceiling(gang.network_topology) is not None
    if not levels:
        return Miss(Reason.NO_TOPOLOGY, wanted, 0)
    best, best_name, held = ALL, "", -1
    for domains in levels:
        totals = np.zeros(len(domains), np.int64)
        for each, want in zip(room, floor, strict=True):
            totals += np.minimum(_sums(nodes, domains, each), want)
        most = int(totals.argmax())
        if totals[most] > held:
            best, held = int(domains[most]), int(totals[most])
            best_name = nodes.tree.domains[best].name if best != ALL else ""
    reason = Reason.NO_DOMAIN_FITS if near else Reason.INSUFFICIENT_RESOURCES
    if held < 0:
        return Miss(reason, wanted, 0)
    if gang.apart is not None:
        heedless_gang = msgspec.structs.replace(gang, apart=None)
        if place(nodes, heedless_gang, explain=False) is not None:
            return Miss(reason, wanted, max(0, min(held, wanted - 1)), apart=gang.apart.tier)
    # The host knows NUMA nodes by profiles, a member node by node.
    if anyhow != gang.tasks and place(nodes, msgspec.structs.replace(gang, tasks=anyhow), explain=False) is not None:
        return Miss(reason, wanted, max(0, min(held, wanted - 1)), by_numa=True)
    if nodes.in_turn(gang):
        heedless = nodes.copy()
        heedless.company = None
        if place(heedless, gang, explain=False) is not None:
            return Miss(reason, wanted, max(0, min(held, wanted - 1)), by_rules=True)
    if held >= wanted:
        # Each task fits by itself, together they do not.
        held = max(0, wanted - 1)
    resource, needed = _shortest(nodes, gang, floor, best)
    return Miss(reason, wanted, held, best_name if near else "", resource, needed)


def _shortest(nodes: Nodes, gang: Gang, floor: Sequence[int], domain: int) -> tuple[str, int]:
    """The resource that is short in total by the largest part of the wish; empty when only its spread over nodes is."""
    inside = _members(nodes, domain)
    worst, result = 0.0, ("", 0)
    wish: dict[str, int] = {}
    for task, want in zip(gang.tasks, floor, strict=True):
        for name, amount in task.requests.items():
            wish[name] = wish.get(name, 0) + amount * want
    for name, amount in sorted(wish.items()):
        row = nodes.resources.index(name) if name in nodes.resources else None
        free = int(nodes.free[row][inside].clip(min=0).sum()) if row is not None else 0
        if amount > free and (amount - free) / amount > worst:
            worst, result = (amount - free) / amount, (name, amount - free)
    return result
