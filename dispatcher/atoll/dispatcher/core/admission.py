"""The next workload: whether and where it starts now, or the reason why it waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from atoll.dispatcher.core.backfill.allocation import Allocation
from atoll.dispatcher.core.backfill.policy import Policy
from atoll.dispatcher.core.backlog.backlog import ROOM, ShapeClass
from atoll.dispatcher.core.backlog.binding import Binding, estimate
from atoll.dispatcher.core.backlog.wake_index import KEPT, Cause, Trigger, capping
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.commands import Dispatch
from atoll.dispatcher.core.groups.together import domains_of, weight_of
from atoll.dispatcher.core.lifecycle.decisions import Decisions
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.placement.choice import Choice, spots
from atoll.dispatcher.core.placement.choosing import choose
from atoll.dispatcher.core.placement.rules import ANYWHERE, Rules
from atoll.dispatcher.core.preemption.claims import Claims
from atoll.dispatcher.core.preemption.defragmentation import Defragmentation
from atoll.dispatcher.core.preemption.triggers import Triggers
from atoll.dispatcher.core.quota.namespaces import by_scopes
from atoll.dispatcher.core.quota.queue import Queue, Standing, path
from atoll.dispatcher.core.quota.tree import Shortage
from atoll.fit.pods import Pods
from atoll.model.decision import Phase, Spots
from atoll.model.gang import Gang
from atoll.model.plurals import counted
from atoll.model.verdict import Blocker, Reason, Verdict

BEGINNINGS = 8
"""Members from which a gang group is tried that is kept to few of them: it costs as much again each time."""


class Obstacle(NamedTuple):
    """Reason why a workload waits."""

    verdict: Verdict
    short: Shortage | None = None
    """The limit of a queue that it would exceed."""
    sought: bool = False
    """It was looked for in the members."""


class Admission:
    """Starts permitted workloads."""

    def __init__(
        self, state: State, claims: Claims, decisions: Decisions, policy: Policy, triggers: Triggers,
        defragmentation: Defragmentation,
    ) -> None:  # fmt: skip
        self._state, self._claims, self._decisions = state, claims, decisions
        self._policy, self._triggers, self._defragmentation = policy, triggers, defragmentation
        #: by which the last choice was made
        self._rules: Rules = ANYWHERE
        self.tree, self.waiting, self.members, self.bindings = state.tree, state.waiting, state.members, state.bindings
        #: how often a class was looked at
        self.examined = 0
        self.namespaces, self.reservations, self.breakers = state.namespaces, state.reservations, state.breakers

    def examine(self, group: ShapeClass) -> Sequence[Dispatch]:
        """Dispatch the first workload of the class, with all that must start together with it, or park the class on
        what blocks it.
        """
        self.examined += 1
        binding = self.bindings[group.members[0][2]]
        if binding.gang.together is not None and self._state.together.incomplete(binding):
            return self._examine_group(group, binding)
        command = self._examine_one(group, binding)
        return (command,) if command is not None else ()

    def _examine_one(self, group: ShapeClass, binding: Binding) -> Dispatch | None:
        leaf, shape = group.leaf, group.shape
        found = self.admit(
            leaf,
            shape,
            binding.view.namespace,
            lambda: self._state.wakeups.asleep(shape) or self._choose(group, binding),
        )
        if isinstance(found, Choice):
            return self._dispatch(binding, found)
        if shape.others and (command := self._with_other_flavor(group, binding)) is not None:
            return command
        verdict, short, sought = found
        would_delay = verdict.reason is Reason.WOULD_DELAY
        if would_delay and (command := self._let_pass(group)) is not None:
            return command
        capped = sought and verdict.reason is Reason.QUOTA_EXCEEDED
        if would_delay:
            self.waiting.park_on_delay(group, verdict)
        elif not (sought or short):
            self.waiting.park_until_told(group, verdict, Trigger(Cause.NAMESPACE, binding.view.namespace))
        elif short is not None and not shape.others:
            self.waiting.park_on_limit(group, verdict, short)
        else:
            self._state.wakeups.block(shape, capping(leaf) if capped else None)
            self.waiting.park_on_shape(group, verdict)
        if short is not None or capped or verdict.reason in ROOM:
            self._triggers.searches.consider(group)
        if verdict.reason is Reason.NO_DOMAIN_FITS:
            self._defragmentation.consider(group)
        if short is not None or (sought and not capped):
            # A ceiling in a member keeps no capacity for it: the capacity could not be used before its queue uses less.
            self._policy.keep_room(group, certain=would_delay)
        return None

    def _examine_group(self, group: ShapeClass, first: Binding) -> Sequence[Dispatch]:
        """Dispatch as much of its gang group as fits, if that is enough to start; else park the class on what blocks
        it.
        """
        together = self._state.together
        waits = [each for each in together.of(first) if each.shape is not None]
        least, found = together.least(first), together.weight(first, ())
        if found + sum(map(weight_of, waits)) < least:
            there = found + sum(map(weight_of, waits))
            message = f"{there} of the {least} that start together wait"
            verdict = Verdict(Reason.GANG_GROUP_INCOMPLETE, Blocker("Workload", first.view.name, message=message))
            # Another one of the group that comes has all of them looked at again.
            self.waiting.park_until_told(group, verdict)
            return ()
        chosen, obstacles = start = self._suppose_group(waits)
        begun: dict[str, None] = {}
        while domains_of(first) and chosen and found + _weight(chosen) < least and len(begun) < BEGINNINGS:
            begun.update((member.name, None) for member in chosen[0][1].members)
            with together.beginning_elsewhere(begun):
                chosen, _ = self._suppose_group(waits)
        if found + _weight(chosen) >= least:
            commands = []
            for each, choice, self._rules in chosen:
                commands.append(self._dispatch(each, choice))
            together.look_again(first)
            return commands
        chosen, obstacles = start
        # Each class waits for what blocks its own; what blocks another one wakes the class of that.
        blocked, obstacle = next((each for each in obstacles if each[0].shape is group.shape), obstacles[0])
        message = obstacle.verdict.sentence()
        if most := domains_of(first):
            message += f"; its gang group may use {counted(most, 'member')} at most"
        verdict = Verdict(Reason.GANG_GROUP_INCOMPLETE, Blocker("Workload", blocked.view.name, message=message))
        short = obstacle.short
        if short is not None and short.queue in path(group.leaf) and not group.shape.others:
            self.waiting.park_on_limit(group, verdict, _with_all(short, chosen))
        elif obstacle.sought and obstacle.verdict.reason is not Reason.WOULD_DELAY:
            capped = obstacle.verdict.reason is Reason.QUOTA_EXCEEDED
            self._state.wakeups.block(group.shape, capping(group.leaf) if capped else None)
            self.waiting.park_on_shape(group, verdict)
        elif obstacle.sought:
            self.waiting.park_on_delay(group, verdict)
        else:
            left = () if short is None else (Trigger(Cause.LEFT, short.queue),)
            self.waiting.park_until_told(group, verdict, Trigger(Cause.NAMESPACE, first.view.namespace), *left)
        return ()

    def _suppose_group(
        self, waits: Sequence[Binding]
    ) -> tuple[list[tuple[Binding, Choice, Rules]], list[tuple[Binding, Obstacle]]]:
        """Members for the workloads of a gang group, each beside the ones before, and obstacles of the others."""
        chosen: list[tuple[Binding, Choice, Rules]] = []
        obstacles: list[tuple[Binding, Obstacle]] = []
        with ExitStack() as supposed:
            for each in waits:
                assert each.shape is not None, f"{each.view.uid} does not wait"
                its = self.waiting.classes(each.leaf)[each.shape.key]
                outcome = self.admit(each.leaf, each.shape, each.view.namespace, partial(self._choose, its, each))
                if isinstance(outcome, Choice):
                    chosen.append((each, outcome, self._rules))
                    self._suppose(supposed, each, outcome)
                else:
                    obstacles.append((each, outcome))
        return chosen, obstacles

    def _suppose(self, supposed: ExitStack, binding: Binding, choice: Choice) -> None:
        """Count it as dispatched until the end of that stack."""
        namespace, total = binding.view.namespace, choice.total()
        where = {member.name: gang.total() for member, gang in zip(choice.members, choice.gangs, strict=True)}
        charges = by_scopes(choice.gangs, total)
        supposed.enter_context(self.tree.supposing(self.tree.start, binding.leaf, total, where))
        supposed.enter_context(self._state.together.supposing([*where]))
        self.namespaces.charge(namespace, charges)
        supposed.callback(self.namespaces.charge, namespace, charges, -1)
        for member, gang, placement in zip(choice.members, choice.gangs, choice.placements, strict=True):
            supposed.enter_context(self.members.table.supposing(member, gang, placement))

    def _with_other_flavor(self, group: ShapeClass, binding: Binding) -> Dispatch | None:
        """Dispatch the first workload of a class with another flavor than the one that it waits for."""
        first = binding.wish, binding.amount
        for variant, shape in zip(binding.variants[1:], group.shape.others, strict=True):
            binding.wish, binding.amount = variant.gang, shape.request
            find = partial(self._choose, group, binding, shape)
            found = self.admit(group.leaf, shape, binding.view.namespace, find)
            if isinstance(found, Choice):
                self.tree.wait(group.leaf, group.shape.request, -1)
                self.tree.wait(group.leaf, shape.request)
                binding.variants = (variant,)
                return self._dispatch(binding, found)
        binding.wish, binding.amount = first
        return None

    def admit(
        self, leaf: Queue, shape: Shape, namespace: str, find: Callable[[], Choice | Verdict]
    ) -> Choice | Obstacle:
        """Where a workload of this shape goes now, or the first that is in its way: the one list of the checks,
        for passes and for questions alike.

        `find`: where it would go, its quota aside; asked once at most.
        """
        standing = self.tree.standing(leaf)
        if standing is not Standing.OPEN:
            return Obstacle(standing_verdict(leaf.name, standing))
        choice: Choice | Verdict | None = None
        short = self.tree.shortage(leaf, shape.request)
        if short is not None:
            declared = self.tree.declared_shortage(leaf, shape.request)
            # What follows from the members' totals says less than where in them it does not fit.
            choice = None if declared is not None else find()
            if not isinstance(choice, Verdict):
                short = declared or short
                return Obstacle(short.verdict(), short)
        missing = self.namespaces.shortage(namespace, shape.charges)
        if missing is not None:
            return Obstacle(missing)
        if choice is None:
            choice = find()
        if isinstance(choice, Verdict):
            return Obstacle(choice, sought=True)
        return self._short_of_copies(leaf, namespace, choice) or choice

    def _short_of_copies(self, leaf: Queue, namespace: str, choice: Choice) -> Obstacle | None:
        """The limit that copies in several members exceed, where one of them would not."""
        if not (choice.divided and choice.gangs[0].copies):
            return None
        if (short := self.tree.shortage(leaf, choice.total())) is not None:
            return Obstacle(short.verdict(), short)
        missing = self.namespaces.shortage(namespace, by_scopes(choice.gangs, choice.total()))
        return Obstacle(missing) if missing is not None else None

    def _let_pass(self, group: ShapeClass) -> Dispatch | None:
        """Dispatch the next one of the class whose own the capacity is, for others were evicted for it, it is moved, or
        it has a reservation; or that is known to end before those with reservations are due.
        """
        latest = self.reservations.latest_end
        for key in group.members[1:] if self.reservations.claims and group.behind is None else ():
            if self.reservations.moves(key[2]) or (self._claims.awaits(key[2]) and self._claims.all_gone(key[2])):
                other = self.bindings[key[2]]
                choice = self._choose(group, other)
                if not isinstance(choice, Verdict):
                    return self._dispatch(other, choice)
        known = self.reservations.made.values() if group.behind is None else ()
        for uid in [each.uid for each in known if each.leaf is group.leaf]:
            other = self.bindings[uid]
            if other.shape is group.shape and other.key != group.members[0] and uid not in self.reservations.claims:
                choice = self._choose(group, other)
                if not isinstance(choice, Verdict):
                    return self._dispatch(other, choice)
        if self._state.now + group.shortest + self._state.settings.backfill.settle > latest:
            return None
        shortest = math.inf
        for key in group.members[1:]:
            other = self.bindings[key[2]]
            lasts = estimate(other)
            if self._state.now + lasts + self._state.settings.backfill.settle <= latest:
                choice = self._choose(group, other)
                return None if isinstance(choice, Verdict) else self._dispatch(other, choice)
            shortest = min(shortest, lasts)
        group.shortest = shortest
        return None

    def _choose(self, group: ShapeClass, binding: Binding, shape: Shape | None = None) -> Choice | Verdict:
        """Where it goes, its quota aside. `shape`: with another flavor than the one that it waits for."""
        self.reservations.latest_end = -math.inf
        self._rules = self._policy.rules(binding, group.shape)
        found = choose(shape or group.shape, binding.gang, self.members, self._rules)
        return found if isinstance(found, Choice) else self._state.exclusions.in_words(binding, group.shape, found)

    def _dispatch(self, binding: Binding, choice: Choice) -> Dispatch:
        view = binding.view
        binding.variants = binding.variants[:1]
        phase, reason, patience = Phase.DISPATCHED, Reason.DISPATCHED, self._state.settings.progress.commit
        assert binding.shape is not None, f"{view.uid} does not wait"
        held = binding.gang.together is not None and self._state.together.is_held(binding)
        if held or choice.divided or any(binding.shape.asks(member) for member in choice.members):
            phase, reason, patience = Phase.RESERVING, Reason.RESERVING, self._state.settings.progress.reserve
        deadline = self._state.now + patience
        placed = list(zip(choice.members, choice.gangs, choice.placements, strict=True))
        parts = {member.name: part for member, part, _ in placed}
        expected = self._expected(choice)
        command = self._decisions.dispatch(binding, phase, reason, choice.sentence(), deadline, parts, expected)
        self._rules.overtake()
        self.reservations.follow()
        kept = self.reservations.drop(view.uid)
        self._policy.impatient.pop(view.uid, None)
        self._state.stop_waiting(binding, binding.shape)
        self._claims.started(view.uid)
        binding.epoch = command.decision.epoch
        self._state.change_phase(binding, phase)
        binding.told, binding.bound = None, False
        self._state.times.set_deadline(binding, deadline)
        self._state.untold.pop(view.uid, None)
        if phase is Phase.RESERVING:
            self._state.unsettled[view.uid] = None
        binding.parts = binding.charged = parts
        if choice.divided and binding.gang.copies:
            self.tree.wait(binding.leaf, binding.amount, -1)
            binding.amount = choice.total()
            self.tree.wait(binding.leaf, binding.amount)
        self._state.charges.start(binding)
        for member, part, placement in placed:
            self.members.assume(member, view.uid, part, placement)
            self.breakers.sent(member.name, view.kind, view.uid)
        pods: dict[str, tuple[Gang, Pods]] = {member.name: (part, placement.pods) for member, part, placement in placed}
        now, ends = self._state.now, self._state.now + estimate(binding)
        self.reservations.timeline.enter(
            view.uid, Allocation(binding.leaf, binding.amount, now, ends, pods, self._state.settings.backfill)
        )
        self._state.sizes.file(binding)
        if kept:
            self._state.wakes.fire(KEPT)
        return command

    def _expected(self, choice: Choice) -> dict[str, Spots]:
        """Its planned nodes in its member, lest it takes reserved ones, or ones that victims left for others."""
        if choice.divided or (self.reservations.empty and not self._claims.any_cleared):
            return {}
        [member], [gang], [placement] = choice.members, choice.gangs, choice.placements
        return spots(member, gang, placement)


def _weight(chosen: Iterable[tuple[Binding, Choice, Rules]]) -> int:
    return sum(weight_of(binding) for binding, _, _ in chosen)


def _with_all(short: Shortage, chosen: Iterable[tuple[Binding, Choice, Rules]]) -> Shortage:
    """What a limit lacks for all that start together."""
    taken = sum(
        choice.total().get(short.resource, 0) for binding, choice, _ in chosen if short.queue in path(binding.leaf)
    )
    return short._replace(requested=short.requested + taken, available=short.available + taken)


def standing_verdict(queue: str, standing: Standing) -> Verdict:
    """Why a queue that is not open admits nothing."""
    reason = {
        Standing.CLOSED: Reason.QUEUE_CLOSED,
        Standing.MISSING: Reason.QUEUE_NOT_FOUND,
        Standing.INVALID: Reason.QUEUE_INVALID,
        Standing.PARENT: Reason.QUEUE_NOT_LEAF,
    }[standing]
    return Verdict(reason, Blocker("Queue", queue))
