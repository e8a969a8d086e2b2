"""More and fewer pods for what runs: within its epoch, without touching the other pods.

Growing passes through everything that a dispatch does: the limits of the queues on the path, of the namespace, of the
queue in the member, the member's nodes, and capacity reserved for others. Shrinking gives quota back at once; nodes
are free once the member says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from atoll.dispatcher.core.backlog.backlog import Key
from atoll.dispatcher.core.backlog.binding import Binding, as_it_runs, estimate
from atoll.dispatcher.core.backlog.wake_index import KEPT, Cause, Trigger
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import shape_key
from atoll.dispatcher.core.commands import Command, Dispatch
from atoll.dispatcher.core.elastic.growth import left_to_run, size_kept, size_of
from atoll.dispatcher.core.lifecycle.decisions import Decisions, as_written
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.placement.choice import Choice, spots
from atoll.dispatcher.core.quota.namespaces import Charges
from atoll.dispatcher.core.quota.queue import Queue, Rank, Standing, path
from atoll.dispatcher.core.quota.tree import Shortage
from atoll.fit import Miss, Nodes, Placement, grow, place
from atoll.fit.pods import Counts, Pods, cut, difference, first_pods, joined
from atoll.fit.sizes import Several, addition, fill, full, smaller, with_room
from atoll.model import vector
from atoll.model.decision import Phase, Spots
from atoll.model.gang import Gang, divide
from atoll.model.quotas import Scopes
from atoll.model.topology import NO_DOMAIN
from atoll.model.vector import Vector
from atoll.model.verdict import Blocker, Reason, Verdict


class Stop(NamedTuple):
    """Why something does not grow."""

    verdict: Verdict
    until: tuple[Trigger, ...] = (KEPT,)
    """Triggers that may change that."""


Missed = dict[tuple[str, bytes, str, Counts, int | None], Stop]
"""(member, shape, size, domain to stay in) -> why nothing of that kind grows."""
_SHAPES = 8
"""Shapes of pods of which one is tried where the largest fitting growth would delay others."""


class Resizing:
    """Gives to and takes from running workloads."""

    def __init__(self, state: State, decisions: Decisions) -> None:
        self._state, self._decisions = state, decisions
        self.tree, self.members, self.bindings = state.tree, state.members, state.bindings
        self.namespaces, self.reservations = state.namespaces, state.reservations
        #: growth that did not fit in this pass: (member, shape, size, domain to stay in) -> why
        self._missed: Missed = {}
        #: UIDs of hungry workloads whose turn is still to come, the last first; and when
        self._turns: list[str] = []
        self._due = 0.0

    @property
    def next(self) -> float | None:
        """When the next of those are looked at that want more pods, where a pass left some."""
        return self._due if self._turns else None

    # -- growing -----------------------------------------------------------------------------------------------------

    def grow_all(self, commands: list[Command]) -> list[Queue]:
        """Give the rest to running workloads with fewer pods than requested: users' own requests first, then by
        the order of queues and of the workloads in them. A workload dispatched in this pass starts with its growth.

        Args:
            commands: of this pass; added to, or changed.

        Returns:
            The queues of what grew.
        """
        hungry, bounds = self._state.sizes.hungry, self._state.settings.growth
        if self._turns and self._state.now < self._due:
            return []
        self._missed.clear()
        grew: dict[Queue, None] = {}
        begun = {command.uid: index for index, command in enumerate(commands) if isinstance(command, Dispatch)}
        looks, self._due = bounds.looks, self._state.now + bounds.pause
        looked: set[str] = set()
        while looks > 0 and (self._turns or self._line_up(looked)):
            uid = self._turns.pop()
            looked.add(uid)
            if uid not in hungry.awake:
                continue
            binding = self.bindings[uid]
            looks -= len(binding.gang.tasks)
            if not self.may_resize(binding, begun=uid in begun):
                # It is filed again when something is seen of it.
                hungry.remove(uid)
                continue
            name, growth = self._grow_somewhere(binding, elsewhere=uid not in begun)
            if isinstance(growth, Stop):
                hungry.park(uid, *growth.until)
                self._decisions.stopped[uid] = growth.verdict
                continue
            before = binding.pods
            self._take(binding, name, *growth)
            grew[binding.leaf] = None
            # Lest its new pods go where others are expected, who may be dispatched in this very pass.
            expected = spots(self.members.by_name[name], binding.gang, growth[1])
            if uid in begun:
                command = commands[begun[uid]]
                assert isinstance(command, Dispatch), "what begins is dispatched"
                decision = command.decision
                if decision.expected:
                    at_first = decision.expected[name]
                    both = {name: [*at_first, *expected[name]]} if expected else {}
                    decision = msgspec.structs.replace(decision, expected=both)
                commands[begun[uid]] = msgspec.structs.replace(
                    command, parts=as_written(binding.parts), decision=decision
                )
            else:
                commands.append(self.grown(binding, before, "there is room", expected))
        if not self._turns:
            self._line_up(looked)
        return list(grew)

    def _grow_somewhere(self, binding: Binding, *, elsewhere: bool) -> tuple[str, tuple[Counts, Placement] | Stop]:
        """The member in which it may grow, and its growth; or what stops it in all of its members.

        `elsewhere`: a scattered one may go to further members.
        """
        stops: dict[str, Stop] = {}
        names = dict.fromkeys(binding.parts)
        if elsewhere and binding.view.scattered and binding.scattered:
            failed = self._state.failures.of(shape_key(self._state.filed_as(binding), self._state.restricted(binding)))
            if len(binding.parts) < (binding.view.most_clusters or 1):
                names |= dict.fromkeys(sorted(able_members(self._state, binding)[1].keys() - failed.keys()))
        for name in names:
            nodes, pods = self.members.by_name[name].nodes, self._where(binding, name)
            growth = self.growth(binding, nodes, pods, self._missed, name=name)
            if not isinstance(growth, Stop):
                return name, growth
            stops[name] = growth
        until = dict.fromkeys(trigger for each in stops.values() for trigger in each.until)
        first = next(iter(stops))
        return first, Stop(stops[first].verdict, tuple(until))

    def _line_up(self, looked: Collection[str]) -> bool:
        """Begin another round with all that are awake but these, as some wake while a round lasts; False for none."""
        awake = [self.bindings[uid] for uid in self._state.sizes.hungry.awake if uid not in looked]
        self._turns = [binding.view.uid for binding in sorted(awake, key=self.turn, reverse=True)]
        return bool(self._turns)

    def grown(self, binding: Binding, before: int, text: str, expected: Mapping[str, Spots] | None = None) -> Command:
        """Write that it has more pods than before, and why. `expected`: planned nodes of the new ones."""
        deadline = self._state.now + self._state.settings.progress.grow
        text = f"{binding.pods} pods, not {before}: {text}"
        return self._decisions.resize(binding, Reason.GROWN, text, deadline, expected)

    def may_resize(self, binding: Binding, *, begun: bool = False) -> bool:
        """Whether a decision on its size can be made now; its present size must be written first."""
        settled = binding.bound and binding.written and binding.view.uid not in self._state.sizes.oversized
        return binding.phase is Phase.DISPATCHED and not binding.gang.hold and (settled or begun)

    def growth(
        self,
        binding: Binding,
        nodes: Nodes,
        pods: Pods,
        missed: Missed,
        begins: Placement | None = None,
        *,
        name: str = "",
    ) -> tuple[Counts, Placement] | Stop:
        """The largest size that it may have now in a member and where the additional pods would go.

        Args:
            binding: it wants more than it has.
            nodes: of that member, without its present pods.
            pods: known nodes of its present pods.
            missed: earlier answers while nothing changed; added to.
            begins: planned nodes of its present pods, before their charge.
            name: the member; of one in one member it is known.
        """
        name = name or next(iter(binding.parts))
        left = left_to_run(binding)
        now = full(binding.parts[name]) if name in binding.parts else (0,) * len(left.tasks)
        others = difference(size_of(binding), now)
        whole = as_it_runs(binding.view, name, left.sized(difference(full(left), others)))
        # What runs below its minimum gets all of that, or nothing.
        least = tuple(max(floor - has, 0) for floor, has in zip(whole.floor(), now, strict=True))
        base = tuple(has + more for has, more in zip(now, least, strict=True))
        around = nodes.domain_around(whole.network_topology, pods)
        alike = (name, shape_key(binding.view, ""), repr(binding.view.requests.get(name)), now, around)
        roomy = base
        if alike not in missed:
            inside = nodes.seen_by(whole.network_topology).layout.inside(NO_DOMAIN if around is None else around)
            held = [int(nodes.room_for(task)[inside].sum()) for task in whole.tasks]
            roomy = with_room(whole, base, held)
        admitted, size = _Admitted(self, binding, name, whole), now
        if admitted.take([*enumerate(base if begins is not None else least)]):
            # No quota is spent on pods that don't fit. Where none fits, the reason names quota first.
            size = fill(whole, base, roomy if roomy != base else whole.full(), admitted.take)
        if size == now:
            return admitted.stop()
        if alike in missed:
            return admitted.stop(missed[alike])
        more = addition(whole, least, difference(size, now))
        found = place(nodes, more, within=around) if any(least) else grow(nodes, more, within=around)
        if isinstance(found, Miss):
            if roomy == base:
                missed[alike] = no_room(name, found)
            return admitted.stop(no_room(name, found))
        member = self.members.by_name[name]
        for counts in _fewer(more, found):
            landing = cut(found, counts)
            gang, taken = more.sized(landing.counts), landing
            if begins is not None:
                taken = joined(begins, landing)
                gang = whole.sized(taken.counts)
            choice = Choice((member,), (gang,), (taken,))
            amount, end = whole.sized(taken.counts).total(), self._state.now + estimate(binding)
            if not self.reservations.delayed(binding.view.uid, binding.leaf, amount, choice, end):
                return tuple(has + each for has, each in zip(now, counts, strict=True)), landing
        return admitted.stop(Stop(Verdict(Reason.WOULD_DELAY)))

    def stop(self, binding: Binding, name: str, amount: Vector, charges: Charges) -> Stop | None:
        """What does not admit this much more in a member, nodes apart; `charges` is the same by scopes of quotas."""
        leaf, namespace = binding.leaf, binding.view.namespace
        if self.tree.standing(leaf) is not Standing.OPEN:
            return Stop(Verdict(Reason.QUEUE_CLOSED, Blocker("Queue", leaf.name)))
        if (outside := self._state.outside(leaf, namespace)) is not None:
            return Stop(outside, of_namespace(namespace))
        short = self.tree.shortage(leaf, amount)
        if short is not None:
            return over_limit(short)
        if (there := self.tree.shortage_in(leaf, name, amount)) is not None:
            return Stop(there.verdict())
        if (missing := self.namespaces.shortage(namespace, charges)) is not None:
            return Stop(missing, of_namespace(namespace))
        if not self.members.member(name).ready:
            return Stop(Verdict(Reason.CLUSTERS_NOT_READY, Blocker("Cluster", name)))
        return None

    def _where(self, binding: Binding, name: str) -> Pods:
        stay = self.reservations.timeline.get(binding.view.uid)
        return stay.parts[name][1] if stay is not None and name in stay.parts else ()

    def _take(self, binding: Binding, name: str, size: Counts, placement: Placement) -> None:
        """Count that it has so many pods in a member, the additional ones where they are expected."""
        uid = binding.view.uid
        pods = [*self._where(binding, name), *sorted(placement.pods)]
        if binding.epoch != binding.view.epoch:
            # It is not there yet: the member places all of them at once, by the names of nodes.
            pods.sort()
        gang = as_it_runs(binding.view, name, binding.gang)
        there = {each: (part, self._where(binding, each)) for each, part in binding.parts.items()}
        self.charge(binding, {**binding.parts, name: gang.sized(size)}, {**there, name: (gang, pods)})
        self.members.assume_more(self.members.by_name[name], uid, gang, placement)

    def turn(self, binding: Binding) -> tuple[bool, list[Rank], Key]:
        """What runs below the minimum that its user has raised comes first."""
        urgent = binding.pods < sum(binding.gang.floor())
        above = [*path(binding.leaf)][-2::-1]
        key = self._state.fair.key(binding.leaf, binding.view.namespace, binding.amount, binding.key)
        return not urgent, [node.rank() for node in above], key

    # -- shrinking ---------------------------------------------------------------------------------------------------

    def shrink(self, binding: Binding, size: Counts, text: str) -> Command:
        """Take pods back, the highest indices first."""
        before = binding.pods
        # Of several parts the last one shrinks first.
        sizes = [full(part) for part in binding.parts.values()]
        gangs = divide(binding.gang.sized(size), sizes) if len(sizes) > 1 else [binding.gang.sized(size)]
        parts: dict[str, Gang] = {}
        there: dict[str, tuple[Gang, Pods]] = {}
        for name, part in zip(binding.parts, gangs, strict=True):
            if part.replicas or len(sizes) == 1:
                gang = as_it_runs(binding.view, name, binding.gang)
                parts[name] = gang.sized(full(part))
                there[name] = gang, first_pods(self._where(binding, name), full(part))
        self.charge(binding, parts, there)
        return self.shrunk(binding, before, text)

    def without(self, binding: Binding, gone: Collection[str]) -> dict[str, Gang] | None:
        """The parts of an elastic gang in several members with which it can go on once others are gone; None where that
        is too little, or nothing.
        """
        left = {name: full(part) for name, part in binding.parts.items() if name not in gone}
        if not left or len(left) < binding.view.least_clusters or not self.may_resize(binding):
            return None
        gang, together = binding.gang, [sum(each) for each in zip(*left.values(), strict=True)]
        if any(have < least for have, least in zip(together, gang.floor(), strict=True)):
            return None
        gangs = divide(gang, [*left.values()]) if len(left) > 1 else [gang.sized(together)]
        return {name: as_it_runs(binding.view, name, part) for name, part in zip(left, gangs, strict=True)}

    def drop_parts(self, binding: Binding, parts: dict[str, Gang], text: str) -> Command:
        """Go on with these parts alone; where it has one left, it grows again there."""
        before = binding.pods
        self.charge(binding, parts, {name: (part, self._where(binding, name)) for name, part in parts.items()})
        return self.shrunk(binding, before, text)

    def drop_late_parts(self, late: dict[str, list[str]]) -> Iterator[Command]:
        """Have scattered gangs go on without parts that did not start in these members."""
        for uid, names in [*late.items()]:
            del late[uid]
            binding = self.bindings.get(uid)
            parts = self.without(binding, names) if binding is not None and binding.phase is Phase.DISPATCHED else None
            if binding is not None and parts is not None:
                yield self.drop_parts(binding, parts, f"none of its pods had a node in {', '.join(names)} in time")

    def shrunk(self, binding: Binding, before: int, text: str) -> Command:
        """Write that it has fewer pods than before, and why."""
        self._state.wakes.use_fell(binding.leaf)
        self._state.assumed.settle(binding)
        return self._decisions.resize(binding, Reason.SHRUNK, f"{binding.pods} pods, not {before}: {text}")

    def keep_to_wishes(self) -> Iterator[Command]:
        """Write down that users ask for fewer pods than their workloads run with: it is so already, and must not be
        more again unless it is admitted.
        """
        for uid in list(self._state.sizes.oversized):
            binding = self.bindings[uid]
            if binding.written:
                del self._state.sizes.oversized[uid]
                binding.before = binding.parts
                yield self._decisions.resize(binding, Reason.SHRUNK, f"{binding.pods} pods: no more were asked for")

    def name_kept_sizes(self) -> None:
        """Have workloads in several members say that they keep their size, or have the requested one again."""
        for uid in list(self._state.sizes.kept):
            binding = self.bindings[uid]
            if self.may_resize(binding):
                del self._state.sizes.kept[uid]
                self._decisions.stopped[uid] = size_kept(binding) or Verdict(Reason.DISPATCHED)

    def shrink_again(self) -> Iterator[Command]:
        """Workloads that were to shrink and changed meanwhile give back the quota that others got from them."""
        for uid in list(self._state.unshrunk):
            binding = self.bindings.get(uid)
            if binding is not None and binding.phase is Phase.DISPATCHED and not self.may_resize(binding):
                continue
            del self._state.unshrunk[uid]
            if binding is None or binding.phase is not Phase.DISPATCHED:
                continue
            limits = [(name, queue.left(name)) for queue in path(binding.leaf) for name in binding.amount]
            lacks = [(name, -left) for name, left in limits if left is not None and left < 0]
            now = size_of(binding)
            chosen = None
            for chosen in smaller(binding.gang, now) if lacks else ():
                back = binding.gang.sized(difference(now, chosen)).total()
                if all(back.get(name, 0) >= lack for name, lack in lacks):
                    break
            if chosen is not None:
                yield self.shrink(binding, chosen, "others were given what it was to give up")

    # -- both --------------------------------------------------------------------------------------------------------

    def charge(self, binding: Binding, parts: dict[str, Gang], there: dict[str, tuple[Gang, Pods]]) -> None:
        """Count that it runs with these parts. `there`: member -> (gang of the part, where its pods are)."""
        self._state.charges.resize(binding, parts)
        stay = self.reservations.timeline[binding.view.uid]
        self.reservations.timeline.enter(binding.view.uid, replace(stay, amount=binding.amount, parts=there))
        self._state.sizes.file(binding)


def able_members(
    state: State, binding: Binding, *, fitting: bool = True
) -> tuple[Mapping[str, Any], dict[str, Member]]:
    """The cluster affinity by which it runs where it does, and the members that may have some of it.

    `fitting`: of these only such whose nodes are of the sort that it needs.
    """
    view, serving = binding.view, state.exclusions.usable(binding)
    barred = state.exclusions.refusing(binding)
    here = [state.members.by_name[name] for name in binding.parts]

    def takes(member: Member, affinity: Mapping[str, Any]) -> bool:
        return member.accepts(affinity, view.tolerations)

    affinity = next(
        (each for each in view.affinities if all(takes(member, each) for member in here)), view.affinities[0]
    )
    able = {
        member.name: member
        for column, member in enumerate(state.members.table.order)
        if member in here
        or (
            member.ready
            and takes(member, affinity)
            and (not fitting or member.unfit(binding.gang) is None)
            and member.name not in barred
            and (serving is None or serving[column])
        )
    }
    return affinity, able


def no_room(name: str, miss: Miss) -> Stop:
    """A member has too little capacity for it."""
    about = Blocker("Cluster", name, "pods", str(miss.requested), str(miss.available))
    return Stop(Verdict(miss.reason, about), (Trigger(Cause.MEMBER, name),))


def over_limit(short: Shortage) -> Stop:
    """A queue's limit does not allow it."""
    return Stop(short.verdict(), (Trigger(Cause.FELL, short.queue),))


def of_namespace(name: str) -> tuple[Trigger, ...]:
    """Triggers that may let a namespace have more."""
    return KEPT, Trigger(Cause.NAMESPACE, name)


def _fewer(more: Gang, placement: Placement) -> Iterator[Counts]:
    """Sizes to try where all that fits would delay others: all of it, then one unit of each shape."""
    least, counts = tuple(task.min_available for task in more.tasks), tuple(placement.counts)
    yield counts
    if any(least):
        yield least
        return
    tried: list[Sequence[Vector]] = []
    for alike in more.units():
        one = [0] * len(counts)
        for index, size in alike:
            one[index] = min(size, counts[index])
        requests = [more.tasks[index].requests for index, _ in alike]
        if any(one) and tuple(one) != counts and requests not in tried and len(tried) < _SHAPES:
            tried.append(requests)
            yield tuple(one)


class _Admitted:
    """Permitted growth of a workload beyond its charge: it grows while nothing stops it."""

    def __init__(self, resizing: Resizing, binding: Binding, name: str, gang: Gang) -> None:
        self._resizing, self._binding, self._name, self._gang = resizing, binding, name, gang
        self._amount: Vector = {}
        self._charges: dict[Scopes, Vector] = {}
        #: how many more pods were asked for -> what stopped them first
        self._stops: dict[int, Stop] = {}

    def take(self, pods: Several) -> bool:
        """Admit so many more pods of some tasks; False, and none is, where something stops it."""
        amount, charges = dict(self._amount), {scopes: dict(each) for scopes, each in self._charges.items()}
        for index, count in pods:
            task = self._gang.tasks[index]
            charge = self._gang.charge(task)
            vector.add(amount, charge, count)
            vector.add(charges.setdefault(tuple(task.scopes), {}), charge, count)
        stop = self._resizing.stop(self._binding, self._name, amount, charges)
        if stop is not None:
            self._stops.setdefault(sum(count for _, count in pods), stop)
            return False
        self._amount, self._charges = amount, charges
        return True

    def stop(self, last: Stop | None = None) -> Stop:
        """Why it does not grow: what stopped the rest at last, or else the fewest pods. Whatever stopped some of it may
        change that.
        """
        stops = [*([last] if last is not None else []), *(self._stops[pods] for pods in sorted(self._stops))]
        return Stop(stops[0].verdict, tuple(dict.fromkeys(trigger for each in stops for trigger in each.until)))
