"""The core: what was told, what is decided.

All state lives in one `Dispatcher` and is changed only by `handle`. Nothing here reads a clock or does I/O, and every
order is total, so the same events always give the same commands. Never change an attribute from outside.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from atoll.dispatcher.core import invariants
from atoll.dispatcher.core.backfill.policy import Policy
from atoll.dispatcher.core.backfill.reservation import SETTLE, Pods, Stay
from atoll.dispatcher.core.backlog.backlog import ROOM, ShapeClass, differs, lacks_room
from atoll.dispatcher.core.backlog.binding import REGAIN_TIMEOUT, Binding, bound_in, estimate, paused, withheld
from atoll.dispatcher.core.backlog.wakeups import capping
from atoll.dispatcher.core.capacity.refusals import MOST_REFUSALS, MOST_WORDS, concerns_namespace
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.claims import Claims
from atoll.dispatcher.core.commands import Command, Commit, Dispatch, Part
from atoll.dispatcher.core.elastic.resizing import Resizing
from atoll.dispatcher.core.events import (
    Event,
    Pass,
)
from atoll.dispatcher.core.placement.choice import Choice, choose, nowhere, spots
from atoll.dispatcher.core.preemption.dry_run import RESERVE_TIMEOUT, DryRuns
from atoll.dispatcher.core.preemption.triggers import EXPLAIN_BURST, Triggers
from atoll.dispatcher.core.quota.queue import Queue, Standing
from atoll.dispatcher.core.quota.tree import Shortage
from atoll.dispatcher.core.state import State
from atoll.model.decision import Decision, Line, Phase, Spots
from atoll.model.gang import Gang
from atoll.model.verdict import Blocker, Reason, Verdict, blocker, reason_of_refusal
from atoll.model.words import counted

COMMIT_TIMEOUT = 30.0
"""Seconds within which all pods of a dispatched gang must be bound, else it is taken back."""
PASS_LIMIT = 128
"""Decisions after which a pass ends early, so that the first are written while the next are made."""
EXPLAIN_PER_DISPATCH = 0.1
EXPLAIN_PER_SECOND = 10.0
EXPLAIN_LOOKS = 1000
"""Bindings that a pass looks at for one that does not know its reason."""


class Obstacle(NamedTuple):
    """What is in the way of a workload that waits."""

    verdict: Verdict
    short: Shortage | None = None
    """The limit of a queue that it would exceed."""
    sought: bool = False
    """It was looked for in the members."""


class Dispatcher:
    """Orders, admits, places; see `handle`."""

    def __init__(self, *, commit_timeout: float = COMMIT_TIMEOUT, most_refusals: int = MOST_REFUSALS) -> None:
        """Begin empty.

        Args:
            commit_timeout: seconds within which all pods of a dispatched gang must be bound.
            most_refusals: of a workload by one member, after which it is not tried there any more; 0 for no end.
        """
        self.state = state = State()
        self.tree, self.waiting, self.world, self.bindings = state.tree, state.waiting, state.world, state.bindings
        self.namespaces, self.promises = state.namespaces, state.promises
        self.breakers, self.refusals = state.breakers, state.refusals
        self.refusals.most = most_refusals
        self.wakeups = state.wakeups
        self.claims = Claims(state)
        self.resizing = Resizing(state, self.claims)
        self.policy = Policy(state, self.claims, self.resizing)
        self.triggers = Triggers(state, self.claims, self.policy)
        self.dry_runs = DryRuns(state, self.claims, self.resizing, self.policy, self.triggers)
        self._commit_timeout = commit_timeout
        #: time of the first pass, before which it has heard of no member
        self._began = math.inf

    def handle(self, event: Event) -> list[Command]:
        """Take an event in; only `Pass` decides."""
        if isinstance(event, Pass):
            return self._pass(event.now)
        self.state.tell(event)
        return []

    @property
    def next_deadline(self) -> float | None:
        """When a `Pass` is due even if nothing happens."""
        if self.triggers.unfinished:
            return self.state.now
        while self.state.deadlines:
            when, uid = self.state.deadlines[0]
            binding = self.bindings.get(uid)
            if binding is not None and binding.deadline == when:
                break
            heapq.heappop(self.state.deadlines)
        unsaid = self.state.untold or self.resizing.stopped or self.policy.unwritten or self.waiting.unsaid
        explain = self.state.now + 0.2 if unsaid else None
        first = self.state.deadlines[0][0] if self.state.deadlines else None
        patience = self.policy.patience[0][0] if self.policy.patience else None
        renewal = self.policy.next_renewal()
        again = min([each.forgotten if each.over else each.until for each in self.state.avoid.values()], default=None)
        search = self.triggers.searches.next_due(self.state.now)
        asked = (self.triggers.next_look_at_rights, self.dry_runs.next_answer_due)
        due = (
            explain, first, patience, renewal, again, search, self.state.pauses.first, self.state.ready_by.first,
            self.state.gone_by.first, *asked, self.refusals.next, self.breakers.next,
        )  # fmt: skip
        return min((when for when in due if when is not None), default=None)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _pass(self, now: float) -> list[Command]:
        """1. Take back what was not reserved or bound, or does not run, in time. 2. Commit or release what members
        answered. 3. Dispatch while something fits. 4. Let those go that must make room and whose room is enough as
        members say; ask about others. 5. Give what is left to what runs with fewer pods than it asks for. 6. Say why
        the rest waits.
        """
        self.triggers.explain_tokens = min(
            EXPLAIN_BURST, self.triggers.explain_tokens + max(now - self.state.now, 0.0) * EXPLAIN_PER_SECOND
        )
        self.triggers.searches.pass_begins(now - self.state.now, now)
        self.state.now = now
        self._began = min(self._began, now)
        self.triggers.texts.clear()
        self.promises.pass_begins(now)
        self.world.refresh()
        self.state.renumber_moved()
        if self.state.avoid:
            self._try_again()
        self.state.forget_refusals()
        self.breakers.pass_begins(now)
        if self.claims.nominated:
            self.triggers.take_up_nominations()
        if self.policy.kept_before:
            self.policy.keep_as_before()
        if not self.promises.empty or self.policy.patience or self.policy.unpromised:
            self.policy.renew_promises()
        self._end_pauses()
        commands: list[Command] = [
            *self._overdue(),
            *self._not_running(),
            *self._not_gone(),
            *self.dry_runs.mend_claims(),
            *self._settle_answers(),
            *self.resizing.keep_to_wishes(),
            *self.resizing.shrink_again(),
        ]
        self.resizing.name_kept_sizes()
        self.state.heed_breakers()
        self.wakeups.wake_grown()
        self.triggers.unfinished = parked = False
        while (group := self.waiting.first(parked=parked)) is not None:
            if len(commands) >= PASS_LIMIT:
                self.triggers.unfinished = True
                # Members may tell of something else until then.
                self.wakeups.woken = dict.fromkeys(self.wakeups.woken)
                return commands
            command = self._examine(group)
            parked = command is None
            if command is not None:
                commands.append(command)
                self.triggers.explain_tokens = min(EXPLAIN_BURST, self.triggers.explain_tokens + EXPLAIN_PER_DISPATCH)
                self.wakeups.sleep_again(part.cluster for part in command.parts)
        self.wakeups.woken.clear()
        self.policy.keep_room_for_new_heads()
        commands.extend(self.dry_runs.settle_questions())
        for group in self.triggers.headed:
            # It may sleep on without being looked at, and others may have to go for this one who had not to before.
            if _helpable(group):
                self.triggers.searches.look_anew(group)
        self.triggers.headed.clear()
        commands.extend(self.dry_runs.ask_for_room())
        for leaf in self.resizing.grow_all(commands):
            # Whoever waits there may be helped by what these can spare now.
            for group in filter(_helpable, self.waiting.classes(leaf).values()):
                self.triggers.searches.look_soon(group)
        commands.extend(self._name_stuck_victims())
        commands.extend(self._explanations())
        self.state.forget_unnamed_queues()
        return commands

    def _examine(self, group: ShapeClass) -> Dispatch | None:
        """Dispatch the first workload of the class, or park the class on what blocks it."""
        binding = self.bindings[group.members[0][2]]
        leaf, shape = group.leaf, group.shape
        found = self.admit(
            leaf,
            shape,
            binding.view.namespace,
            lambda: self.waiting.asleep(shape.key) or self._choose(group, binding),
        )
        if isinstance(found, Choice):
            return self._dispatch(binding, found)
        if shape.others and (command := self._with_other_flavor(group, binding)) is not None:
            return command
        verdict, short, sought = found
        if short is not None and shape.others:
            self.wakeups.block(shape)
            self.waiting.park_on_shape(group, verdict)
            self.triggers.searches.consider(group)
            self.policy.keep_room(group)
        elif short is not None:
            self.waiting.park_on_limit(group, verdict, short)
            self.triggers.searches.consider(group)
            self.policy.keep_room(group)
        elif not sought:
            self.wakeups.idle[group] = None
            self.waiting.park_until_told(group, verdict)
        elif verdict.reason is Reason.WOULD_DELAY:
            command = self._let_pass(group)
            if command is not None:
                return command
            self.wakeups.idle[group] = None
            self.waiting.park_until_told(group, verdict)
            self.policy.keep_room(group, certain=True)
        elif verdict.reason is Reason.QUOTA_EXCEEDED:
            # A ceiling in a member. No room is kept there: it could not be used before its queue uses less.
            self.wakeups.block(shape, capping(leaf))
            self.waiting.park_on_shape(group, verdict)
            self.triggers.searches.consider(group)
        else:
            self.wakeups.block(shape)
            self.waiting.park_on_shape(group, verdict)
            if verdict.reason in ROOM:
                self.triggers.searches.consider(group)
            self.policy.keep_room(group)
        return None

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
        """Where a workload of this shape goes now, or the first that is in its way: the one list of what it must pass,
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
        return choice if isinstance(choice, Choice) else Obstacle(choice, sought=True)

    def _let_pass(self, group: ShapeClass) -> Dispatch | None:
        """Dispatch the next one of the class whose own the room is, for others went for it; or that is known to end
        before those are due for whom room is kept.
        """
        for key in group.members[1:] if self.claims.awaiting and group.behind is None else ():
            if key[2] in self.claims.awaiting and key[2] not in self.claims.asking and self.claims.all_gone(key[2]):
                other = self.bindings[key[2]]
                choice = self._choose(group, other)
                if not isinstance(choice, Verdict):
                    return self._dispatch(other, choice)
        latest = self.promises.latest_end
        if self.state.now + group.shortest + SETTLE > latest:
            return None
        shortest = math.inf
        for key in group.members[1:]:
            other = self.bindings[key[2]]
            lasts = estimate(other)
            if self.state.now + lasts + SETTLE <= latest:
                choice = self._choose(group, other)
                return None if isinstance(choice, Verdict) else self._dispatch(other, choice)
            shortest = min(shortest, lasts)
        group.shortest = shortest
        return None

    def _choose(self, group: ShapeClass, binding: Binding, shape: Shape | None = None) -> Choice | Verdict:
        """Where it goes, its quota aside. `shape`: with another flavor than the one that it waits for."""
        self.promises.latest_end = -math.inf
        found = choose(
            shape or group.shape,
            binding.gang,
            self.world,
            serving=self.state.serves(group.leaf),
            avoided=self.dry_runs.avoided(binding, group.shape),
            permits=self.policy.settles(binding),
            barred=nowhere if self.promises.empty else self.policy.barred(binding),
            capped=partial(self.policy.capped, group.leaf),
            times=partial(self.policy.times, group.leaf),
        )
        return found if isinstance(found, Choice) else self.dry_runs.in_words(binding, group.shape, found)

    def _dispatch(self, binding: Binding, choice: Choice) -> Dispatch:
        view = binding.view
        binding.variants = binding.variants[:1]
        phase, reason, patience = Phase.BOUND, Reason.DISPATCHED, self._commit_timeout
        assert binding.shape is not None, f"{view.uid} does not wait"
        if choice.divided or any(binding.shape.asks(member) for member in choice.members):
            phase, reason, patience = Phase.RESERVING, Reason.RESERVING, RESERVE_TIMEOUT
        deadline = self.state.now + patience
        line = Line(self.triggers.text(self.state.now), phase, reason, choice.sentence())
        expected = self._expected(choice)
        decision = Decision(
            binding.epoch + 1,
            phase,
            reason,
            None,
            self.triggers.text(deadline),
            view.decision.told(line),
            rounds=view.decision.rounds,
            expected=expected,
            dispatched=self.triggers.text(self.state.now),
            evicted=view.decision.evictions,
            refused=view.decision.refused,
            flavors=binding.flavors,
        )
        placed = list(zip(choice.members, choice.gangs, choice.placements, strict=True))
        parts = tuple(
            [
                Part(member.name, tuple([(task.name, task.replicas) for task in part.tasks]))
                for member, part, _ in placed
            ]
        )
        command = Dispatch(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision, parts=parts)
        self.policy.overtake()
        kept = self.promises.drop(view.uid)
        self.policy.impatient.pop(view.uid, None)
        self.state.stop_waiting(binding, binding.shape)
        if self.claims.asking.pop(view.uid, None) is not None:
            # It starts without anybody having to go; the question is withdrawn by this.
            self.claims.awaiting.pop(view.uid, None)
        elif view.uid in self.claims.awaiting:
            self.claims.cleared[view.uid] = tuple(self.claims.awaiting.pop(view.uid))
        binding.epoch, binding.phase = decision.epoch, phase
        binding.told, binding.deadline, binding.bound = None, deadline, False
        heapq.heappush(self.state.deadlines, (deadline, view.uid))
        self.state.untold.pop(view.uid, None)
        if phase is Phase.RESERVING:
            self.state.unsettled[view.uid] = None
        binding.parts = {member.name: part for member, part, _ in placed}
        self.tree.start(binding.leaf, binding.amount, binding.where())
        self.waiting.limits_changed(binding.leaf)
        self.namespaces.charge(view.namespace, binding.charges())
        self.state.list_charged(binding)
        for member, part, placement in placed:
            self.world.assume(member, view.uid, part, placement)
            self.breakers.sent(member.name, view.uid)
        pods: dict[str, tuple[Gang, Pods]] = {member.name: (part, placement.pods) for member, part, placement in placed}
        self.promises.enter(
            view.uid, Stay(binding.leaf, binding.amount, self.state.now, self.state.now + estimate(binding), pods)
        )
        self.state.sizes.file(binding)
        if kept:
            self.wakeups.refresh_idle()
        return command

    def _expected(self, choice: Choice) -> dict[str, Spots]:
        """Where it is to be in its member, lest it is where others are promised room, or were made room for."""
        if choice.divided or (self.promises.empty and not self.claims.cleared):
            return {}
        [member], [gang], [placement] = choice.members, choice.gangs, choice.placements
        return spots(member, gang, placement)

    def _settle_answers(self) -> Iterator[Command]:
        """Commit what all members have reserved, take back what one refused or what its user holds.

        Whatever must still be answered is looked at again once its binding is seen again, not before.
        """
        unsettled, self.state.unsettled = self.state.unsettled, {}
        for uid in unsettled:
            binding = self.bindings[uid]
            if binding.epoch != binding.view.epoch or binding.phase is Phase.EVICTING:
                continue
            if binding.gang.hold:
                why = withheld(binding.gang)
                yield self.triggers.evict(binding, why.reason, why.sentence())
                continue
            if refusing := self.state.refusing(binding):
                yield self._refuse(binding, refusing)
                continue
            if binding.phase is not Phase.RESERVING:
                continue
            answers = binding.view.reserved
            refusals = [name for name in binding.parts if name in answers and not answers[name].granted]
            if refusals:
                name, answer = refusals[0], answers[refusals[0]]
                self.dry_runs.avoid_member(binding, name)
                text = f"{name} holds {answer.available} of the {counted(answer.requested, 'pod')} of its part"
                counts = blocker("Cluster", name, "pods", answer.requested, answer.available)
                yield self.triggers.evict(binding, Reason.PART_REFUSED, text, counts)
            elif all(name in answers for name in binding.parts):
                away = [name for name in binding.parts if not self.claims.is_ready(name)]
                if away:
                    text = f"{away[0]} reserved its part and is not ready any more"
                    yield self.triggers.evict(binding, Reason.CLUSTERS_NOT_READY, text, Blocker("Cluster", away[0]))
                else:
                    yield self._commit(binding)

    def _refuse(self, binding: Binding, refusing: Mapping[str, str]) -> Command:
        """Take back what members refused, and avoid them: for it, or for its namespace where that is why."""
        view = binding.view
        for name, words in refusing.items():
            if concerns_namespace(words) and self.refusals.by_namespace(view.namespace, name, words, self.state.now):
                self.state.file_again(view.namespace)
        name, words = next(iter(refusing.items()))
        why = Blocker("Cluster", name, message=words[:MOST_WORDS])
        verdict = Verdict(reason_of_refusal(words), why)
        refused = self.refusals.after(view, refusing)
        return self.triggers.evict(binding, verdict.reason, verdict.sentence(), why, refused=refused)

    def _commit(self, binding: Binding) -> Command:
        deadline = self.state.now + self._commit_timeout
        view = binding.view
        line = Line(self.triggers.text(self.state.now), Phase.BOUND, Reason.DISPATCHED, "all parts are reserved")
        decision = Decision(
            binding.epoch,
            Phase.BOUND,
            Reason.DISPATCHED,
            None,
            self.triggers.text(deadline),
            view.decision.told(line),
            rounds=view.decision.rounds,
            dispatched=view.decision.dispatched,
            evicted=view.decision.evictions,
            refused=view.decision.refused,
            flavors=binding.flavors,
        )
        binding.phase, binding.deadline = Phase.BOUND, deadline
        heapq.heappush(self.state.deadlines, (deadline, view.uid))
        return Commit(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision)

    def _overdue(self) -> Iterator[Command]:
        while self.state.deadlines and self.state.deadlines[0][0] <= self.state.now:
            when, uid = heapq.heappop(self.state.deadlines)
            binding = self.bindings.get(uid)
            if binding is None or binding.deadline != when:
                continue
            binding.deadline = None
            if binding.epoch != binding.view.epoch:
                continue
            if binding.phase is Phase.RESERVING:
                silent = [name for name in binding.parts if name not in binding.view.reserved]
                for name in silent:
                    self.dry_runs.avoid_member(binding, name)
                    self.breakers.not_bound(name, binding.view.namespace, uid, self.state.now)
                text = f"no answer from {', '.join(silent)} within {RESERVE_TIMEOUT:g} s"
                yield self.triggers.evict(binding, Reason.DEADLINE_EXCEEDED, text)
            elif binding.phase is Phase.BOUND and not binding.bound:
                late = [name for name in binding.parts if not bound_in(binding, name)]
                if self._has_its_turn_to_come(binding):
                    binding.deadline = self.state.now + self._commit_timeout / 2
                    heapq.heappush(self.state.deadlines, (binding.deadline, uid))
                    continue
                for name in late:
                    self.dry_runs.avoid_member(binding, name, pods=True)
                    self.breakers.not_bound(name, binding.view.namespace, uid, self.state.now)
                text = f"not all of its pods were bound in {', '.join(late)} within {self._commit_timeout:g} s"
                yield self.triggers.evict(binding, Reason.DEADLINE_EXCEEDED, text + _why(binding))
            elif binding.phase is Phase.BOUND:
                # Whatever of its growth is not there by now waits in the member like anything else.
                self.state.settle_binding(binding)

    def _not_running(self) -> Iterator[Command]:
        """Take back what was bound and does not run in time; it waits longer after each round, and keeps no member from
        others: what its containers lack is most often its own fault.
        """
        for uid in self.state.ready_by.due(self.state.now):
            binding = self.bindings[uid]
            view = binding.view
            if binding.phase is not Phase.BOUND or binding.epoch != view.epoch:
                continue
            if view.lost_at:
                if all(self.claims.is_ready(name) for name in binding.parts):
                    yield self._incomplete(binding)
                else:
                    # What its members say is old; what becomes of work in a member that is away is decided elsewhere.
                    self.state.ready_by.set(uid, self.state.now + REGAIN_TIMEOUT)
                continue
            if view.started:
                continue
            why = "; ".join(f"{name}: {text}" for name, text in sorted(view.held_up.items()))
            names = ", ".join(binding.parts)
            text = f"its minimum was bound in {names} and did not run in time"
            block = Blocker("Clusters" if len(binding.parts) > 1 else "Cluster", names, message=why)
            late = [name for name in binding.parts if name in view.held_up] or list(binding.parts)
            words = {name: f"{_NOT_RUN}: {view.held_up[name]}" if name in view.held_up else _NOT_RUN for name in late}
            refused = self.refusals.after(view, words)
            yield self.triggers.evict(
                binding, Reason.NOT_READY_IN_TIME, f"{text}: {why}" if why else text, block, refused=refused
            )

    def _not_gone(self) -> Iterator[Command]:
        """Return the quota of what was taken back long ago: its queue does not pay for what a member can't do. Its
        nodes stay taken, for the members' figures contain its pods.
        """
        for uid in self.state.gone_by.due(self.state.now):
            binding = self.bindings[uid]
            view = binding.view
            if binding.phase is not Phase.EVICTING or binding.epoch != view.epoch:
                continue
            names = ", ".join(binding.parts)
            for name in binding.parts:
                self.breakers.not_removed(name, view.namespace, uid, self.state.now)
            self.state.leave(binding)
            binding.phase = Phase.LEAVING
            self.state.put(uid, binding)
            self.state.settle_binding(binding)
            block = Blocker("Clusters" if "," in names else "Cluster", names, message=view.stuck) if names else None
            yield self.triggers.explain(binding, Verdict(Reason.EVICTION_OVERDUE, block))

    def _name_stuck_victims(self) -> Iterator[Command]:
        """Tell claimants what keeps the pods that are to make room for them."""
        stuck, self.claims.stuck_victims = self.claims.stuck_victims, {}
        for uid in stuck:
            binding = self.bindings.get(uid)
            if binding is None or binding.told is None or binding.told.reason is not Reason.AWAITING_VICTIMS:
                continue
            if binding.epoch != binding.view.epoch or binding.told.blocker is None:
                continue
            victims = (self.bindings.get(each) for each in self.claims.awaiting.get(uid, ()))
            kept = [(each.view.name, each.view.stuck) for each in victims if each is not None and each.view.stuck]
            text = "; ".join(f"{name} does not end: {why}" for name, why in sorted(kept))
            told = Verdict(Reason.AWAITING_VICTIMS, msgspec.structs.replace(binding.told.blocker, message=text))
            if told != binding.told:
                yield self.triggers.explain(binding, told, binding.view.decision.nominated)

    def _incomplete(self, binding: Binding) -> Command:
        """Take back a gang that runs below its minimum: its members found no nodes for the pods that it lost."""
        names = sorted(binding.view.waiting) or list(binding.parts)
        for name in names:
            if name in binding.parts:
                self.dry_runs.avoid_member(binding, name, pods=True)
        text = (
            f"pods of its minimum lost their nodes in {', '.join(names)} and got no others within {REGAIN_TIMEOUT:g} s"
        )
        return self.triggers.evict(binding, Reason.DEADLINE_EXCEEDED, text + _why(binding))

    def _end_pauses(self) -> None:
        for uid in self.state.pauses.due(self.state.now):
            self.state.enter(self.bindings[uid])

    def _has_its_turn_to_come(self, binding: Binding) -> bool:
        """Whether its member still binds what was sent to it before.

        To take such work back would make a member that is behind do it twice. Parts in several members are not waited
        for: what of them runs already would wait, too.
        """
        stay, half = self.promises.stay(binding.view.uid), self._commit_timeout / 2
        if stay is None or len(binding.parts) != 1:
            return False
        [name] = binding.parts
        member = self.world.member(name)
        return self.state.now - max(member.heard_at, self._began) < half and member.heard_of < stay.start + half

    def _try_again(self) -> None:
        """Members that were avoided long enough may be tried again; what they failed is forgotten much later."""
        for key, avoided in list(self.state.avoid.items()):
            if avoided.forgotten <= self.state.now:
                del self.state.avoid[key]
                namespace = avoided.namespace
                if namespace in self.state.failing and all(
                    each.namespace != namespace for each in self.state.avoid.values()
                ):
                    del self.state.failing[namespace]
                    self.state.file_again(namespace)
            elif not avoided.over and avoided.until <= self.state.now:
                avoided.over = True
                self.wakeups.wake(key[0])

    def _explanations(self) -> Iterator[Command]:
        """Reasons for the bindings that do not carry theirs yet, within the budget for such writes."""
        looks = EXPLAIN_LOOKS
        while self.state.untold and self.triggers.explain_tokens >= 1:
            uid = next(iter(self.state.untold))
            del self.state.untold[uid]
            binding = self.bindings.get(uid)
            verdict = self.verdict(uid)
            if binding is not None and verdict is not None and differs(binding.told, verdict):
                yield self.triggers.explain(binding, verdict)
        while self.resizing.stopped and self.triggers.explain_tokens >= 1:
            uid = next(iter(self.resizing.stopped))
            verdict, binding = self.resizing.stopped.pop(uid), self.bindings.get(uid)
            if binding is not None and self.resizing.may_resize(binding) and differs(binding.told, verdict):
                yield self.triggers.explain(binding, verdict)
        unsaid = self.waiting.unsaid
        while unsaid and self.triggers.explain_tokens >= 1 and looks:
            group = next(iter(unsaid))
            del unsaid[group]
            verdict = group.parked
            if verdict is None:
                # The next pass looks at it, and what it says then is to be told.
                continue
            if not group.first_told:
                group.first_told = True
                binding = self.bindings[group.members[0][2]]
                if differs(binding.told, verdict) and binding.view.uid not in self.claims.awaiting:
                    yield self.triggers.explain(binding, verdict)
            while group.told < len(group.members) and looks and self.triggers.explain_tokens >= 1:
                looks -= 1
                binding = self.bindings[group.members[group.told][2]]
                first, group.told = group.told == 0, group.told + 1
                mine = verdict if first else group.behind or verdict
                if not first and lacks_room(binding.told) and lacks_room(mine):
                    # Which of these it is changes with every start and every end.
                    continue
                if differs(binding.told, mine) and binding.view.uid not in self.claims.awaiting:
                    yield self.triggers.explain(binding, mine)
                    break
            if group.told < len(group.members):
                # The first of every class hears before the second of any.
                unsaid[group] = None

        while self.policy.unwritten and self.triggers.explain_tokens >= 1:
            uid = next(iter(self.policy.unwritten))
            del self.policy.unwritten[uid]
            binding, verdict = self.bindings.get(uid), self.verdict(uid)
            if binding is None or verdict is None or uid in self.claims.awaiting or binding.epoch != binding.view.epoch:
                continue
            if binding.view.decision.kept != self.triggers.kept(uid) and binding.told is not None:
                yield self.triggers.explain(binding, binding.told)

    # -- looking in --------------------------------------------------------------------------------------------------

    def verdict(self, uid: str) -> Verdict | None:
        """Why this binding waits; None when it does not wait or was not looked at yet."""
        binding = self.bindings.get(uid)
        if binding is None or binding.phase is not Phase.SUSPENDED:
            return None
        if binding.wish is None:
            return Verdict(Reason.INVALID_GANG)
        if (kept := self.state.withheld(binding)) is not None:
            return kept
        if uid in self.state.pauses:
            return paused(binding.view)
        assert binding.shape is not None, f"{uid} waits without a shape"
        if uid in self.claims.awaiting:
            return binding.told
        return self.waiting.classes(binding.leaf)[binding.shape.key].verdict(binding.key)

    def check(self) -> None:
        """Verify what must always hold; tests call it after every event.

        Raises:
            AssertionError: naming the invariant and the object.
        """
        invariants.verify(self)

    def check_sums(self) -> None:
        """The part of `check` that a live dispatcher can afford.

        Raises:
            AssertionError: naming the invariant and the object.
        """
        invariants.verify_sums(self)


_NOT_RUN = "its pods were bound there and did not run in time"


def _helpable(group: ShapeClass) -> bool:
    """Whether the departure of others could change what blocks it."""
    return bool(group.members) and group.parked is not None and group.parked.reason in (*ROOM, Reason.QUOTA_EXCEEDED)


def standing_verdict(queue: str, standing: Standing) -> Verdict:
    """Why a queue that is not open admits nothing."""
    reason = {
        Standing.CLOSED: Reason.QUEUE_CLOSED,
        Standing.MISSING: Reason.QUEUE_NOT_FOUND,
        Standing.INVALID: Reason.QUEUE_INVALID,
        Standing.PARENT: Reason.QUEUE_NOT_LEAF,
    }[standing]
    return Verdict(reason, Blocker("Queue", queue))


def _why(binding: Binding) -> str:
    """What its members say of pods that have no node, to be added to a sentence."""
    said = "; ".join(f"{name}: {text}" for name, text in sorted(binding.view.waiting.items()))
    return f": {said}" if said else ""
