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
from atoll.dispatcher.core.backfill.reservation import SETTLE, Pods, Stay
from atoll.dispatcher.core.backlog.backlog import ROOM, ShapeClass, differs, lacks_room
from atoll.dispatcher.core.backlog.binding import REGAIN_TIMEOUT, Binding, bound_in, estimate, paused, withheld
from atoll.dispatcher.core.backlog.wakeups import capping
from atoll.dispatcher.core.capacity.refusals import MOST_REFUSALS, MOST_WORDS, concerns_namespace
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.commands import Command, Commit, Dispatch, Part
from atoll.dispatcher.core.events import (
    Event,
    Pass,
)
from atoll.dispatcher.core.placement.choice import Choice, choose, nowhere, spots
from atoll.dispatcher.core.preemption.dry_run import RESERVE_TIMEOUT, Asking
from atoll.dispatcher.core.preemption.triggers import EXPLAIN_BURST
from atoll.dispatcher.core.quota.queue import Queue, Standing
from atoll.dispatcher.core.quota.tree import Shortage
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


class Dispatcher(Asking):
    """Orders, admits, places; see `handle`."""

    def __init__(self, *, commit_timeout: float = COMMIT_TIMEOUT, most_refusals: int = MOST_REFUSALS) -> None:
        """Begin empty.

        Args:
            commit_timeout: seconds within which all pods of a dispatched gang must be bound.
            most_refusals: of a workload by one member, after which it is not tried there any more; 0 for no end.
        """
        super().__init__()
        self.refusals.most = most_refusals
        self._commit_timeout = commit_timeout
        #: time of the first pass, before which it has heard of no member
        self._began = math.inf

    def handle(self, event: Event) -> list[Command]:
        """Take an event in; only `Pass` decides."""
        if isinstance(event, Pass):
            return self._pass(event.now)
        self.tell(event)
        return []

    @property
    def next_deadline(self) -> float | None:
        """When a `Pass` is due even if nothing happens."""
        if self._unfinished:
            return self._now
        while self._deadlines:
            when, uid = self._deadlines[0]
            binding = self.bindings.get(uid)
            if binding is not None and binding.deadline == when:
                break
            heapq.heappop(self._deadlines)
        unsaid = self._untold or self._stopped or self._unwritten or self.waiting.unsaid
        explain = self._now + 0.2 if unsaid else None
        first = self._deadlines[0][0] if self._deadlines else None
        patience = self._patience[0][0] if self._patience else None
        renewal = self._next_renewal()
        again = min([each.forgotten if each.over else each.until for each in self._avoid.values()], default=None)
        search = self.searches.next_due(self._now)
        asked = (self._next_look_at_rights, self._next_answer_due)
        due = (
            explain, first, patience, renewal, again, search, self.pauses.first, self._ready_by.first,
            self._gone_by.first, *asked, self.refusals.next, self.breakers.next,
        )  # fmt: skip
        return min((when for when in due if when is not None), default=None)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _pass(self, now: float) -> list[Command]:
        """1. Take back what was not reserved or bound, or does not run, in time. 2. Commit or release what members
        answered. 3. Dispatch while something fits. 4. Let those go that must make room and whose room is enough as
        members say; ask about others. 5. Give what is left to what runs with fewer pods than it asks for. 6. Say why
        the rest waits.
        """
        self._explain_tokens = min(EXPLAIN_BURST, self._explain_tokens + max(now - self._now, 0.0) * EXPLAIN_PER_SECOND)
        self.searches.pass_begins(now - self._now, now)
        self._now = now
        self._began = min(self._began, now)
        self._texts.clear()
        self.promises.pass_begins(now)
        self.world.refresh()
        self._renumber_moved()
        if self._avoid:
            self._try_again()
        self._forget_refusals()
        self.breakers.pass_begins(now)
        if self._nominated:
            self._take_up_nominations()
        if self._kept_before:
            self._keep_as_before()
        if not self.promises.empty or self._patience or self._unpromised:
            self._renew_promises()
        self._end_pauses()
        commands: list[Command] = [
            *self._overdue(),
            *self._not_running(),
            *self._not_gone(),
            *self._mend_claims(),
            *self._settle_answers(),
            *self._keep_to_wishes(),
            *self._shrink_again(),
        ]
        self._heed_breakers()
        self._wake_grown()
        self._unfinished = parked = False
        while (group := self.waiting.first(parked=parked)) is not None:
            if len(commands) >= PASS_LIMIT:
                self._unfinished = True
                # Members may tell of something else until then.
                self._woken = dict.fromkeys(self._woken)
                return commands
            command = self._examine(group)
            parked = command is None
            if command is not None:
                commands.append(command)
                self._explain_tokens = min(EXPLAIN_BURST, self._explain_tokens + EXPLAIN_PER_DISPATCH)
                self._sleep_again(part.cluster for part in command.parts)
        self._woken.clear()
        self._keep_room_for_new_heads()
        commands.extend(self._settle_questions())
        for group in self._headed:
            # It may sleep on without being looked at, and others may have to go for this one who had not to before.
            if _helpable(group):
                self.searches.look_anew(group)
        self._headed.clear()
        commands.extend(self._ask_for_room())
        for leaf in self._grow_all(commands):
            # Whoever waits there may be helped by what these can spare now.
            for group in filter(_helpable, self.waiting.classes(leaf).values()):
                self.searches.look_soon(group)
        commands.extend(self._name_stuck_victims())
        commands.extend(self._explanations())
        self._forget_unnamed_queues()
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
        if (command := self._with_other_flavor(group, binding)) is not None:
            return command
        verdict, short, sought = found
        if short is not None and shape.others:
            self._block(shape)
            self.waiting.park_on_shape(group, verdict)
            self.searches.consider(group)
            self._keep_room(group)
        elif short is not None:
            self.waiting.park_on_limit(group, verdict, short)
            self.searches.consider(group)
            self._keep_room(group)
        elif not sought:
            self._idle[group] = None
            self.waiting.park_until_told(group, verdict)
        elif verdict.reason is Reason.WOULD_DELAY:
            command = self._let_pass(group)
            if command is not None:
                return command
            self._idle[group] = None
            self.waiting.park_until_told(group, verdict)
            self._keep_room(group, certain=True)
        elif verdict.reason is Reason.QUOTA_EXCEEDED:
            # A ceiling in a member. No room is kept there: it could not be used before its queue uses less.
            self._block(shape, capping(leaf))
            self.waiting.park_on_shape(group, verdict)
            self.searches.consider(group)
        else:
            self._block(shape)
            self.waiting.park_on_shape(group, verdict)
            if verdict.reason in ROOM:
                self.searches.consider(group)
            self._keep_room(group)
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
        for key in group.members[1:] if self._awaiting and group.behind is None else ():
            if key[2] in self._awaiting and key[2] not in self._asking and self._all_gone(key[2]):
                other = self.bindings[key[2]]
                choice = self._choose(group, other)
                if not isinstance(choice, Verdict):
                    return self._dispatch(other, choice)
        latest = self.promises.latest_end
        if self._now + group.shortest + SETTLE > latest:
            return None
        shortest = math.inf
        for key in group.members[1:]:
            other = self.bindings[key[2]]
            lasts = estimate(other)
            if self._now + lasts + SETTLE <= latest:
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
            serving=self.serves(group.leaf),
            avoided=self.avoided(binding, group.shape),
            permits=self._settles(binding),
            barred=nowhere if self.promises.empty else self._barred(binding),
            capped=partial(self.capped, group.leaf),
            times=partial(self.times, group.leaf),
        )
        return found if isinstance(found, Choice) else self.in_words(binding, group.shape, found)

    def _dispatch(self, binding: Binding, choice: Choice) -> Dispatch:
        view = binding.view
        binding.variants = binding.variants[:1]
        phase, reason, patience = Phase.BOUND, Reason.DISPATCHED, self._commit_timeout
        assert binding.shape is not None, f"{view.uid} does not wait"
        if choice.divided or any(binding.shape.asks(member) for member in choice.members):
            phase, reason, patience = Phase.RESERVING, Reason.RESERVING, RESERVE_TIMEOUT
        deadline = self._now + patience
        line = Line(self._text(self._now), phase, reason, choice.sentence())
        expected = self._expected(choice)
        decision = Decision(
            binding.epoch + 1,
            phase,
            reason,
            None,
            self._text(deadline),
            view.decision.told(line),
            rounds=view.decision.rounds,
            expected=expected,
            dispatched=self._text(self._now),
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
        self._overtake()
        kept = self.promises.drop(view.uid)
        self._impatient.pop(view.uid, None)
        self._stop_waiting(binding, binding.shape)
        if self._asking.pop(view.uid, None) is not None:
            # It starts without anybody having to go; the question is withdrawn by this.
            self._awaiting.pop(view.uid, None)
        elif view.uid in self._awaiting:
            self._cleared[view.uid] = tuple(self._awaiting.pop(view.uid))
        binding.epoch, binding.phase = decision.epoch, phase
        binding.told, binding.deadline, binding.bound = None, deadline, False
        heapq.heappush(self._deadlines, (deadline, view.uid))
        self._untold.pop(view.uid, None)
        if phase is Phase.RESERVING:
            self._unsettled[view.uid] = None
        binding.parts = {member.name: part for member, part, _ in placed}
        self.tree.start(binding.leaf, binding.amount, binding.where())
        self.waiting.limits_changed(binding.leaf)
        self.namespaces.charge(view.namespace, binding.charges())
        self._list_charged(binding)
        for member, part, placement in placed:
            self.world.assume(member, view.uid, part, placement)
            self.breakers.sent(member.name, view.uid)
        pods: dict[str, tuple[Gang, Pods]] = {member.name: (part, placement.pods) for member, part, placement in placed}
        self.promises.enter(
            view.uid, Stay(binding.leaf, binding.amount, self._now, self._now + estimate(binding), pods)
        )
        self._sizes.file(binding)
        if kept:
            self._refresh_idle()
        return command

    def _expected(self, choice: Choice) -> dict[str, Spots]:
        """Where it is to be in its member, lest it is where others are promised room, or were made room for."""
        if choice.divided or (self.promises.empty and not self._cleared):
            return {}
        [member], [gang], [placement] = choice.members, choice.gangs, choice.placements
        return spots(member, gang, placement)

    def _settle_answers(self) -> Iterator[Command]:
        """Commit what all members have reserved, take back what one refused or what its user holds.

        Whatever must still be answered is looked at again once its binding is seen again, not before.
        """
        unsettled, self._unsettled = self._unsettled, {}
        for uid in unsettled:
            binding = self.bindings[uid]
            if binding.epoch != binding.view.epoch or binding.phase is Phase.EVICTING:
                continue
            if binding.gang.hold:
                why = withheld(binding.gang)
                yield self._evict(binding, why.reason, why.sentence())
                continue
            if refusing := self._refusing(binding):
                yield self._refuse(binding, refusing)
                continue
            if binding.phase is not Phase.RESERVING:
                continue
            answers = binding.view.reserved
            refusals = [name for name in binding.parts if name in answers and not answers[name].granted]
            if refusals:
                name, answer = refusals[0], answers[refusals[0]]
                self._avoid_member(binding, name)
                text = f"{name} holds {answer.available} of the {counted(answer.requested, 'pod')} of its part"
                counts = blocker("Cluster", name, "pods", answer.requested, answer.available)
                yield self._evict(binding, Reason.PART_REFUSED, text, counts)
            elif all(name in answers for name in binding.parts):
                away = [name for name in binding.parts if not self._is_ready(name)]
                if away:
                    text = f"{away[0]} reserved its part and is not ready any more"
                    yield self._evict(binding, Reason.CLUSTERS_NOT_READY, text, Blocker("Cluster", away[0]))
                else:
                    yield self._commit(binding)

    def _refuse(self, binding: Binding, refusing: Mapping[str, str]) -> Command:
        """Take back what members refused, and avoid them: for it, or for its namespace where that is why."""
        view = binding.view
        for name, words in refusing.items():
            if concerns_namespace(words) and self.refusals.by_namespace(view.namespace, name, words, self._now):
                self._file_again(view.namespace)
        name, words = next(iter(refusing.items()))
        why = Blocker("Cluster", name, message=words[:MOST_WORDS])
        verdict = Verdict(reason_of_refusal(words), why)
        refused = self.refusals.after(view, refusing)
        return self._evict(binding, verdict.reason, verdict.sentence(), why, refused=refused)

    def _commit(self, binding: Binding) -> Command:
        deadline = self._now + self._commit_timeout
        view = binding.view
        line = Line(self._text(self._now), Phase.BOUND, Reason.DISPATCHED, "all parts are reserved")
        decision = Decision(
            binding.epoch,
            Phase.BOUND,
            Reason.DISPATCHED,
            None,
            self._text(deadline),
            view.decision.told(line),
            rounds=view.decision.rounds,
            dispatched=view.decision.dispatched,
            evicted=view.decision.evictions,
            refused=view.decision.refused,
            flavors=binding.flavors,
        )
        binding.phase, binding.deadline = Phase.BOUND, deadline
        heapq.heappush(self._deadlines, (deadline, view.uid))
        return Commit(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision)

    def _overdue(self) -> Iterator[Command]:
        while self._deadlines and self._deadlines[0][0] <= self._now:
            when, uid = heapq.heappop(self._deadlines)
            binding = self.bindings.get(uid)
            if binding is None or binding.deadline != when:
                continue
            binding.deadline = None
            if binding.epoch != binding.view.epoch:
                continue
            if binding.phase is Phase.RESERVING:
                silent = [name for name in binding.parts if name not in binding.view.reserved]
                for name in silent:
                    self._avoid_member(binding, name)
                    self.breakers.not_bound(name, binding.view.namespace, uid, self._now)
                text = f"no answer from {', '.join(silent)} within {RESERVE_TIMEOUT:g} s"
                yield self._evict(binding, Reason.DEADLINE_EXCEEDED, text)
            elif binding.phase is Phase.BOUND and not binding.bound:
                late = [name for name in binding.parts if not bound_in(binding, name)]
                if self._has_its_turn_to_come(binding):
                    binding.deadline = self._now + self._commit_timeout / 2
                    heapq.heappush(self._deadlines, (binding.deadline, uid))
                    continue
                for name in late:
                    self._avoid_member(binding, name, pods=True)
                    self.breakers.not_bound(name, binding.view.namespace, uid, self._now)
                text = f"not all of its pods were bound in {', '.join(late)} within {self._commit_timeout:g} s"
                yield self._evict(binding, Reason.DEADLINE_EXCEEDED, text + _why(binding))
            elif binding.phase is Phase.BOUND:
                # Whatever of its growth is not there by now waits in the member like anything else.
                self._settle_binding(binding)

    def _not_running(self) -> Iterator[Command]:
        """Take back what was bound and does not run in time; it waits longer after each round, and keeps no member from
        others: what its containers lack is most often its own fault.
        """
        for uid in self._ready_by.due(self._now):
            binding = self.bindings[uid]
            view = binding.view
            if binding.phase is not Phase.BOUND or binding.epoch != view.epoch:
                continue
            if view.lost_at:
                if all(self._is_ready(name) for name in binding.parts):
                    yield self._incomplete(binding)
                else:
                    # What its members say is old; what becomes of work in a member that is away is decided elsewhere.
                    self._ready_by.set(uid, self._now + REGAIN_TIMEOUT)
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
            yield self._evict(
                binding, Reason.NOT_READY_IN_TIME, f"{text}: {why}" if why else text, block, refused=refused
            )

    def _not_gone(self) -> Iterator[Command]:
        """Return the quota of what was taken back long ago: its queue does not pay for what a member can't do. Its
        nodes stay taken, for the members' figures contain its pods.
        """
        for uid in self._gone_by.due(self._now):
            binding = self.bindings[uid]
            view = binding.view
            if binding.phase is not Phase.EVICTING or binding.epoch != view.epoch:
                continue
            names = ", ".join(binding.parts)
            for name in binding.parts:
                self.breakers.not_removed(name, view.namespace, uid, self._now)
            self._leave(binding)
            binding.phase = Phase.LEAVING
            self._put(uid, binding)
            self._settle_binding(binding)
            block = Blocker("Clusters" if "," in names else "Cluster", names, message=view.stuck) if names else None
            yield self._explain(binding, Verdict(Reason.EVICTION_OVERDUE, block))

    def _name_stuck_victims(self) -> Iterator[Command]:
        """Tell claimants what keeps the pods that are to make room for them."""
        stuck, self._stuck_victims = self._stuck_victims, {}
        for uid in stuck:
            binding = self.bindings.get(uid)
            if binding is None or binding.told is None or binding.told.reason is not Reason.AWAITING_VICTIMS:
                continue
            if binding.epoch != binding.view.epoch or binding.told.blocker is None:
                continue
            victims = (self.bindings.get(each) for each in self._awaiting.get(uid, ()))
            kept = [(each.view.name, each.view.stuck) for each in victims if each is not None and each.view.stuck]
            text = "; ".join(f"{name} does not end: {why}" for name, why in sorted(kept))
            told = Verdict(Reason.AWAITING_VICTIMS, msgspec.structs.replace(binding.told.blocker, message=text))
            if told != binding.told:
                yield self._explain(binding, told, binding.view.decision.nominated)

    def _incomplete(self, binding: Binding) -> Command:
        """Take back a gang that runs below its minimum: its members found no nodes for the pods that it lost."""
        names = sorted(binding.view.waiting) or list(binding.parts)
        for name in names:
            if name in binding.parts:
                self._avoid_member(binding, name, pods=True)
        text = (
            f"pods of its minimum lost their nodes in {', '.join(names)} and got no others within {REGAIN_TIMEOUT:g} s"
        )
        return self._evict(binding, Reason.DEADLINE_EXCEEDED, text + _why(binding))

    def _end_pauses(self) -> None:
        for uid in self.pauses.due(self._now):
            self._enter(self.bindings[uid])

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
        return self._now - max(member.heard_at, self._began) < half and member.heard_of < stay.start + half

    def _try_again(self) -> None:
        """Members that were avoided long enough may be tried again; what they failed is forgotten much later."""
        for key, avoided in list(self._avoid.items()):
            if avoided.forgotten <= self._now:
                del self._avoid[key]
                namespace = avoided.namespace
                if namespace in self._failing and all(each.namespace != namespace for each in self._avoid.values()):
                    del self._failing[namespace]
                    self._file_again(namespace)
            elif not avoided.over and avoided.until <= self._now:
                avoided.over = True
                self._wake(key[0])

    def _explanations(self) -> Iterator[Command]:
        """Reasons for the bindings that do not carry theirs yet, within the budget for such writes."""
        looks = EXPLAIN_LOOKS
        while self._untold and self._explain_tokens >= 1:
            uid = next(iter(self._untold))
            del self._untold[uid]
            binding = self.bindings.get(uid)
            verdict = self.verdict(uid)
            if binding is not None and verdict is not None and differs(binding.told, verdict):
                yield self._explain(binding, verdict)
        while self._stopped and self._explain_tokens >= 1:
            uid = next(iter(self._stopped))
            verdict, binding = self._stopped.pop(uid), self.bindings.get(uid)
            if binding is not None and self._may_resize(binding) and differs(binding.told, verdict):
                yield self._explain(binding, verdict)
        unsaid = self.waiting.unsaid
        while unsaid and self._explain_tokens >= 1 and looks:
            group = next(iter(unsaid))
            del unsaid[group]
            verdict = group.parked
            if verdict is None:
                # The next pass looks at it, and what it says then is to be told.
                continue
            if not group.first_told:
                group.first_told = True
                binding = self.bindings[group.members[0][2]]
                if differs(binding.told, verdict) and binding.view.uid not in self._awaiting:
                    yield self._explain(binding, verdict)
            while group.told < len(group.members) and looks and self._explain_tokens >= 1:
                looks -= 1
                binding = self.bindings[group.members[group.told][2]]
                first, group.told = group.told == 0, group.told + 1
                mine = verdict if first else group.behind or verdict
                if not first and lacks_room(binding.told) and lacks_room(mine):
                    # Which of these it is changes with every start and every end.
                    continue
                if differs(binding.told, mine) and binding.view.uid not in self._awaiting:
                    yield self._explain(binding, mine)
                    break
            if group.told < len(group.members):
                # The first of every class hears before the second of any.
                unsaid[group] = None

        while self._unwritten and self._explain_tokens >= 1:
            uid = next(iter(self._unwritten))
            del self._unwritten[uid]
            binding, verdict = self.bindings.get(uid), self.verdict(uid)
            if binding is None or verdict is None or uid in self._awaiting or binding.epoch != binding.view.epoch:
                continue
            if binding.view.decision.kept != self._kept(uid) and binding.told is not None:
                yield self._explain(binding, binding.told)

    # -- looking in --------------------------------------------------------------------------------------------------

    def verdict(self, uid: str) -> Verdict | None:
        """Why this binding waits; None when it does not wait or was not looked at yet."""
        binding = self.bindings.get(uid)
        if binding is None or binding.phase is not Phase.SUSPENDED:
            return None
        if binding.wish is None:
            return Verdict(Reason.INVALID_GANG)
        if (kept := self.withheld(binding)) is not None:
            return kept
        if uid in self.pauses:
            return paused(binding.view)
        assert binding.shape is not None, f"{uid} waits without a shape"
        if uid in self._awaiting:
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
