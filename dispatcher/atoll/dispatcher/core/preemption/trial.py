"""What queues and nodes would hold if some workloads went: tried out on copies, and undone without a trace.

Apart from the plan that uses it because it is arithmetic: each step costs the nodes and queues that it touches, so a
plan may try thousands of them. The quota tree itself is asked, with other figures of use, so that its rules are written
once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from types import TracebackType
from typing import Self

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.placement.ranking import Rank, rank
from atoll.dispatcher.core.placement.rules import ANYWHERE, Rules
from atoll.dispatcher.core.quota.lending import entitled, lends
from atoll.dispatcher.core.quota.queue import Queue, Supposed, path
from atoll.dispatcher.core.quota.tree import Shortage, Tree
from atoll.dispatcher.core.settings import PreemptionSettings
from atoll.dispatcher.split import Division, divide_natively
from atoll.fit import Placement, place
from atoll.fit.site import Pods, Site
from atoll.fit.victims import Wanted, spots
from atoll.model.vector import Vector


@dataclass(frozen=True, slots=True)
class Claimant:
    """A workload that waits and can't start."""

    uid: str
    leaf: Queue
    priority: int
    shape: Shape
    """Enrolled."""


@dataclass(slots=True, eq=False)
class Bundle:
    """The smallest thing that can go: a workload, or what one elastic workload can spare on one node."""

    uid: str
    leaf: Queue
    amount: Vector
    """Amount that its queue gets back."""
    pods: Mapping[str, Pods]
    """Member -> the pods that go."""
    after: Bundle | None = field(default=None, repr=False)
    """What of the same elastic workload goes first."""
    surplus: bool = False
    foreign: bool = False
    """It goes to another queue: reclaim, not preemption."""
    position: int = 0
    """Its place in the order of victims."""
    kind: tuple[Queue, tuple[tuple[str, int], ...]] = field(init=False)
    """Equal kinds, equal answers of the quota tree."""
    spots: Collection[tuple[str, int]] = field(init=False)
    """(member, node) of its pods, each once."""

    def __post_init__(self) -> None:
        self.kind = (self.leaf, tuple(self.amount.items()))
        self.spots = spots(self.pods)


class Trial:
    """Use with `with`: on leaving, the tree is as it was, to the object.

    Raises:
        AssertionError: a bundle is put back that was not taken.
    """

    def __init__(
        self,
        claimant: Claimant,
        tree: Tree,
        members: Members,
        among: Iterable[Member] = (),
        rules: Rules = ANYWHERE,
        settings: PreemptionSettings = PreemptionSettings(),
    ) -> None:
        self.claimant, self.tree, self._rules = claimant, tree, rules
        self.settings = settings
        shape, room = claimant.shape, members.table.room
        gang = shape.least
        self._among = {member.name: member for member in among}
        #: by the names of the members that may take it
        self.sites = {
            name: Site(member.nodes.copy(), gang, [each.copy() for each in room(member, shape)], shape.floor)
            for name, member in self._among.items()
        }
        single = shape.least_clusters <= 1
        self.wanted = Wanted(gang.tasks, shape.floor if single else None, shape.full if shape.divided else None)
        self.request = shape.request
        #: queues on the claimant's path have ceilings in members
        self.capped = any(queue.tracks for queue in path(claimant.leaf))
        self._shared = frozenset(path(claimant.leaf))
        #: bundles that went, in the order in which they did
        self.taken: dict[Bundle, None] = {}
        #: kind of foreign bundles that went -> how many
        self._kinds: Counter[tuple[Queue, tuple[tuple[str, int], ...]]] = Counter()
        self._supposed = Supposed()
        #: times that it fitted, and no choice was permitted
        self.refused = 0
        #: resources in which the claimant's queue is entitled to reclaim
        self.entitled = entitled(claimant.leaf, self.request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._supposed.undo()

    # -- what goes ---------------------------------------------------------------------------------------------------

    def lends(self, leaf: Queue, amount: Vector) -> bool:
        """Whether a queue would give this back, in a resource that the claimant's queue is entitled to."""
        return lends(leaf, self.claimant.leaf, amount, self.entitled, whole=self.request)

    def take(self, bundle: Bundle) -> bool:
        """Let a bundle go, unless its queue or the queues of earlier bundles do not lend so much.

        Whichever goes last, its queue is above its entitlement until then: members evict in any order.
        """
        if bundle.after is not None and bundle.after not in self.taken:
            return False
        self.release(bundle.leaf, bundle.amount, bundle.pods)
        if bundle.foreign and not self._all_lent(bundle):
            self.release(bundle.leaf, bundle.amount, bundle.pods, -1)
            return False
        self.taken[bundle] = None
        if bundle.foreign:
            self._kinds[bundle.kind] += 1
        self._give(bundle, 1)
        return True

    def put(self, bundle: Bundle) -> None:
        """Take a bundle's departure back."""
        assert bundle in self.taken, f"{bundle.uid} did not go"
        del self.taken[bundle]
        if bundle.foreign:
            self._kinds[bundle.kind] -= 1
            if not self._kinds[bundle.kind]:
                del self._kinds[bundle.kind]
        self.move(bundle, -1)

    def move(self, bundle: Bundle, times: int = 1) -> None:
        """Count a bundle of another decision as gone; `times` -1 counts it as present again."""
        self.release(bundle.leaf, bundle.amount, bundle.pods, times)
        self._give(bundle, times)

    def put_all(self) -> None:
        """Take all departures back."""
        for bundle in reversed(list(self.taken)):
            self.put(bundle)

    def release(self, leaf: Queue, amount: Vector, pods: Mapping[str, Pods], times: int = 1) -> None:
        """Count an amount of a queue as not used; of `times` -1 as used again."""
        self._supposed.use(leaf, amount, -times)
        for queue in path(leaf):
            if queue.tracks:
                for member, parts in pods.items():
                    there = queue.used_in.setdefault(member, {})
                    for _, requests, count in parts:
                        for name, value in requests.items():
                            there[name] = there.get(name, 0) - value * count * times

    def _all_lent(self, bundle: Bundle) -> bool:
        """Whether each kind that went would be lent if it went last of all."""
        kinds = dict.fromkeys((bundle.kind, *self._kinds))
        top = {queue for queue in path(bundle.leaf) if queue not in self._shared}
        for leaf, items in kinds:
            if leaf is not bundle.leaf and top.isdisjoint(path(leaf)):
                continue
            if not self._lent_last(leaf, items):
                return False
        return True

    def _lent_last(self, leaf: Queue, items: tuple[tuple[str, int], ...]) -> bool:
        amount = dict(items)
        self.release(leaf, amount, {}, -1)
        lent = self.lends(leaf, amount)
        self.release(leaf, amount, {})
        return lent

    def stands(self) -> bool:
        """Whether all that went is lent still: the claimant's queue has a larger share with a workload of its own."""
        return all(self._lent_last(*kind) for kind in self._kinds)

    def _give(self, bundle: Bundle, times: int) -> None:
        for member, pods in bundle.pods.items():
            site = self.sites.get(member)
            if site is not None:
                for node, request, count in pods:
                    if node < len(site.nodes):
                        site.change(node, request, count * times)

    def make_up(self, pool: Iterable[Bundle], member: str) -> bool:
        """Take bundles in order until it fits the limits on the claimant's path, and the ceilings in the one member
        where it goes; False when they never do.
        """
        while (short := self.shortage(member)) is not None:
            before = len(self.taken)
            for bundle in pool:
                if (
                    bundle not in self.taken
                    and bundle.amount.get(short.resource, 0) > 0
                    and short.queue in path(bundle.leaf)
                    and (not short.member or short.member in bundle.pods)
                ):
                    self.take(bundle)
                    now = self.shortage(member)
                    if now is None or now.limit != short.limit:
                        break
            if len(self.taken) == before:
                return False
        return True

    # -- whether it fits ---------------------------------------------------------------------------------------------

    def shortage(self, member: str = "") -> Shortage | None:
        """The queue whose limit still blocks the claimant: at all, or in the one member for all of it."""
        short = self.tree.shortage(self.claimant.leaf, self.request)
        if short is None and member and self.capped:
            short = self.tree.shortage_in(self.claimant.leaf, member, self.request)
        return short

    def may_fit(self) -> bool:
        """A necessary condition, each task by itself; on nodes, and on ceilings in members, alone."""
        shape = self.claimant.shape
        if shape.sharing is not None:
            # Where it goes follows from weights and groups of members, for which no victims are looked for.
            return False
        if shape.least_clusters <= 1 and any(self._roomy(name) for name in self.sites):
            return True
        return shape.divided and self._enough_together()

    def fits(self) -> bool:
        """Whether the claimant has quota and nodes."""
        if self.shortage() is not None or not self.may_fit():
            return False
        return self._exact() or self.choice() is not None

    def choice(self) -> Choice | None:
        """Where the claimant would go: whole in the first member by rank, else divided, else its minimum in one."""
        shape, gang = self.claimant.shape, self.claimant.shape.least
        found: list[tuple[Rank, Choice]] = []
        for name, site in self.sites.items() if shape.least_clusters <= 1 else ():
            placement = place(site.nodes, gang, room=site.room) if self._roomy(name) else None
            if isinstance(placement, Placement):
                left = int(site.room[0].sum()) if site.room else 0
                choice = Choice((self._among[name],), (gang,), (placement,))
                found.append((rank(name, gang, placement, left), choice))
        found.sort(key=itemgetter(0))
        whole = [choice for each, choice in found if not (each.partial and shape.divided)]
        small = [choice for each, choice in found if each.partial and shape.divided]
        for choice in itertools.chain(whole, self._divided(), small):
            if self._rules.permits(choice):
                return choice
        self.refused += bool(found)
        return None

    def _divided(self) -> Iterator[Choice]:
        """The claimant over several members, if it may be and they hold it."""
        shape = self.claimant.shape
        if shape.divided and self._enough_together():
            division = divide_natively(
                shape.least,
                {name: site.nodes for name, site in self.sites.items()},
                at_least=shape.least_clusters,
                at_most=shape.most_clusters,
                room=lambda name: self.sites[name].room,
            )
            if isinstance(division, Division):
                members = tuple(self._among[name] for name in division.clusters)
                yield Choice(members, division.gangs, division.placements)

    def _roomy(self, name: str) -> bool:
        if self.capped and self.tree.shortage_in(self.claimant.leaf, name, self.request) is not None:
            return False
        return bool(self.sites[name].enough)

    def _enough_together(self) -> bool:
        full = self.claimant.shape.full
        for task, wanted in enumerate(full):
            if sum(max((held[task] for held in site.held), default=0) for site in self.sites.values()) < wanted:
                return False
        return True

    def _exact(self) -> bool:
        """Whether `may_fit` is the truth: one task, whose pods don't compete with others."""
        shape = self.claimant.shape
        return len(shape.floor) == 1 and not shape.divided and shape.least_clusters <= 1 and self._rules.permit_all
