"""The core: what was told, what is decided.

All state lives in one `Dispatcher` and is changed only by `handle`. Nothing here reads a clock or does I/O, and every
order is total, so the same events always give the same commands. Never change an attribute from outside.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from atoll.dispatcher.core import invariants
from atoll.dispatcher.core.binding import (
    Binding,
    bound_in,
)
from atoll.dispatcher.core.books import HELD, Avoided, estimate
from atoll.dispatcher.core.choice import Choice, always, choose, nowhere
from atoll.dispatcher.core.commands import Command, Commit, Dispatch, Evict, Explain, Part
from atoll.dispatcher.core.elastic import full, smaller, spares
from atoll.dispatcher.core.events import (
    Event,
    Pass,
    QueueView,
    Strategy,
)
from atoll.dispatcher.core.members import Member
from atoll.dispatcher.core.node import Node, Standing, path
from atoll.dispatcher.core.promises import SETTLE, Pods, Promise, Stay
from atoll.dispatcher.core.reclaim import PROTECTION, Claimant, Victim, plan
from atoll.dispatcher.core.resizing import Resizing
from atoll.dispatcher.core.shapes import Shape, shape_key
from atoll.dispatcher.core.waiting import ShapeClass, differs
from atoll.model.decision import Decision, Line, Phase
from atoll.model.gang import Gang
from atoll.model.timestamps import rfc3339
from atoll.model.verdict import Blocker, Reason, Verdict, blocker

COMMIT_TIMEOUT = 30.0
"""Seconds within which all pods of a dispatched gang must be bound, else it is taken back."""
AVOID_FIRST, AVOID_MAX = 5.0, 300.0
"""Seconds that a member is avoided for a shape that it failed, doubled with each failure."""
RENEWAL = 1.0
"""Seconds after which a promise without a known time, or whose time has passed, is computed again."""
RESERVE_TIMEOUT = 10.0
"""Seconds within which all members must have reserved their parts."""
PASS_LIMIT = 128
"""Decisions after which a pass ends early, so that the first are written while the next are made."""
PLAN_BURST = 4.0
PLANS_PER_SECOND = 2.0
"""Searches for workloads that should go for others: each looks at all that runs."""
HELPLESS, HELPLESS_MAX = 10.0, 60.0
"""Seconds before that is tried again for one whom nobody's departure helps, doubled with each failure."""
PATIENCE = 60.0
"""Seconds that room is kept for a workload while those that were evicted for it end."""
EXPLAIN_BURST = 50.0
EXPLAIN_PER_DISPATCH = 0.1
EXPLAIN_PER_SECOND = 10.0
EXPLAIN_LOOKS = 1000
"""Bindings that a pass looks at for one that does not know its reason."""


_ROOM = (Reason.INSUFFICIENT_RESOURCES, Reason.NO_DOMAIN_FITS)
"""Verdicts that the departure of others can change."""


class Dispatcher(Resizing):
    """Orders, admits, places; see `handle`."""

    def __init__(self, *, commit_timeout: float = COMMIT_TIMEOUT) -> None:
        super().__init__()
        self._commit_timeout = commit_timeout
        self._explain_tokens = EXPLAIN_BURST
        self._plan_tokens = PLAN_BURST
        #: the last pass ended at PASS_LIMIT
        self._unfinished = False
        #: classes that quota or room blocks, for which it was not looked yet whether others should go
        self._stuck: dict[ShapeClass, None] = {}
        #: those whom nobody's departure helped -> seconds of the last pause; they are in `_stuck` or in `_retries`
        self._helpless: dict[ShapeClass, float] = {}
        #: (when to look again, serial, class): a heap
        self._retries: list[tuple[float, int, ShapeClass]] = []
        self._serial = 0
        #: UID -> (where it runs, what is known of it, both as a victim)
        self._candidates: dict[str, tuple[Stay, Binding, QueueView | None, Victim]] = {}
        #: promises that the choice permitted last breaks, by a better right
        self._overtaking: list[Promise] = []
        #: times of this pass as text
        self._texts: dict[float, str] = {}

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
        while self._retries and not self._retries[0][2].members:
            self._helpless.pop(heapq.heappop(self._retries)[2], None)
        explain = self._now + 0.2 if self._untold or self._stopped or self.waiting.unsaid else None
        first = self._deadlines[0][0] if self._deadlines else None
        patience = self._patience[0][0] if self._patience else None
        renewal = self._next_renewal()
        again = min((each.until for each in self._avoid.values() if not each.over), default=None)
        retry = self._retries[0][0] if self._retries else None
        if self._stuck:
            retry = min(self._now + HELPLESS, math.inf if retry is None else retry)
        due = (explain, first, patience, renewal, again, retry)
        return min((when for when in due if when is not None), default=None)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _pass(self, now: float) -> list[Command]:
        """1. Take back what was not reserved or bound in time. 2. Commit or release what members answered.
        3. Dispatch while something fits. 4. Let those go that must make room. 5. Give what is left to what runs with
        fewer pods than it asks for. 6. Say why the rest waits.
        """
        self._explain_tokens = min(EXPLAIN_BURST, self._explain_tokens + max(now - self._now, 0.0) * EXPLAIN_PER_SECOND)
        self._plan_tokens = min(PLAN_BURST, self._plan_tokens + max(now - self._now, 0.0) * PLANS_PER_SECOND)
        self._now = now
        self._texts.clear()
        self.world.refresh()
        if self._avoid:
            self._try_again()
        if self._nominated:
            self._take_up_nominations()
        if self.promises.made or self._patience:
            self._renew_promises()
        commands: list[Command] = [*self._overdue(), *self._settle_answers(), *self._keep_to_wishes()]
        self._wake_grown()
        self._unfinished = False
        while (group := self.waiting.first()) is not None:
            if len(commands) >= PASS_LIMIT:
                self._unfinished = True
                # Members may tell of something else until then.
                self._woken = dict.fromkeys(self._woken)
                return commands
            command = self._examine(group)
            if command is not None:
                commands.append(command)
                self._explain_tokens = min(EXPLAIN_BURST, self._explain_tokens + EXPLAIN_PER_DISPATCH)
                self._sleep_again(part.cluster for part in command.parts)
        self._woken.clear()
        self._keep_room_for_new_heads()
        commands.extend(self._evict_for_others())
        for leaf in self._grow_all(commands):
            # Whoever waits there may be helped by what these can spare now.
            for group in self.waiting.classes(leaf).values():
                if group.parked is not None and group.parked.reason in (*_ROOM, Reason.QUOTA_EXCEEDED):
                    self._stuck[group] = None
        commands.extend(self._explanations())
        return commands

    def _examine(self, group: ShapeClass) -> Dispatch | None:
        """Dispatch the first workload of the class, or park the class on what blocks it."""
        binding = self.bindings[group.members[0][2]]
        leaf, shape = group.leaf, group.shape
        standing = self.tree.standing(leaf)
        if standing is not Standing.OPEN:
            self._idle[group] = None
            self.waiting.park_until_told(group, standing_verdict(leaf.name, standing))
            return None
        short = self.tree.shortage(leaf, shape.request)
        if short is not None and not (short.declared or isinstance(self._choose(group, binding), Verdict)):
            short = short._replace(declared=True)
        if short is not None and short.declared:
            verdict = Verdict(
                Reason.QUOTA_EXCEEDED,
                blocker("Queue", short.node.name, short.resource, short.requested, short.available),
            )
            self.waiting.park_on_limit(group, verdict, short.node, short.resource, short.requested)
            self._consider(group)
            self._keep_room(group)
            return None
        missing = self.namespaces.shortage(binding.view.namespace, shape.request)
        if missing is not None:
            self._idle[group] = None
            self.waiting.park_until_told(
                group, Verdict(Reason.QUOTA_EXCEEDED, blocker("Namespace", binding.view.namespace, *missing))
            )
            return None
        choice = self.waiting.asleep(shape.key) or self._choose(group, binding)
        if not isinstance(choice, Verdict):
            return self._dispatch(binding, choice)
        if choice.reason is Reason.WOULD_DELAY:
            command = self._let_pass(group)
            if command is not None:
                return command
            self._idle[group] = None
            self.waiting.park_until_told(group, choice)
        else:
            self._block(shape)
            self.waiting.park_on_shape(group, choice)
            if choice.reason in _ROOM:
                self._consider(group)
            self._keep_room(group)
        return None

    def _let_pass(self, group: ShapeClass) -> Dispatch | None:
        """Dispatch the next one of the class that is known to end before those are due for whom room is kept."""
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

    def _choose(self, group: ShapeClass, binding: Binding) -> Choice | Verdict:
        self.promises.latest_end = -math.inf
        return choose(
            group.shape,
            binding.gang,
            self.world,
            serving=self.serves(group.leaf),
            avoided=self.avoided(group.shape.key),
            permits=self._permits(binding),
            barred=self._barred(binding) if self.promises.made else nowhere,
        )

    def avoided(self, shape: bytes) -> set[str]:
        """The members that failed this shape and are not to be tried yet."""
        return {name for (key, name), each in self._avoid.items() if key == shape and not each.over}

    def _barred(self, binding: Binding) -> Callable[[Member], bool]:
        """Whether the room that is kept for others was tried in a member, and is known not to allow the choice."""
        uid, end = binding.view.uid, self._now + estimate(binding)

        def barred(member: Member) -> bool:
            broken = self.promises.refuses_still(uid, member, end)
            return not all(self._goes_before(binding, self.bindings[promise.uid]) for promise in broken)

        return barred

    def _permits(self, binding: Binding) -> Callable[[Choice], bool]:
        """Whether the queue's ceilings in members, and the room that is kept for others, allow a choice."""
        self._overtaking = []
        if not self.promises.made and not any(node.tracks for node in path(binding.leaf)):
            return always

        def permits(choice: Choice) -> bool:
            allowed, self._overtaking = self.judge(binding, choice)
            return allowed

        return permits

    def judge(self, binding: Binding, choice: Choice) -> tuple[bool, list[Promise]]:
        """What `_permits` says of a choice, and the promises to others that it takes from with a better right."""
        leaf, end = binding.leaf, self._now + estimate(binding)
        if any(
            self.tree.shortage_in(leaf, member.name, gang.total()) is not None
            for member, gang in zip(choice.members, choice.gangs, strict=True)
        ):
            return False, []
        if not self.promises.made:
            return True, []
        broken = self.promises.refuses(binding.view.uid, leaf, binding.amount, choice, self._now, end)
        better = [promise for promise in broken if self._goes_before(binding, self.bindings[promise.uid])]
        return len(better) == len(broken), better

    def _goes_before(self, binding: Binding, other: Binding) -> bool:
        """Whether room that is kept for another workload does not bind this one: a higher class, its queue's elder, or
        guaranteed.
        """
        if binding.key[0] != other.key[0]:
            return binding.key[0] < other.key[0]
        if binding.leaf is other.leaf and binding.key < other.key:
            # Older, but nobody could promise it anything: else each would wait for the other.
            return True
        return self._below_guarantee(binding.leaf) and not self._below_guarantee(other.leaf)

    def _below_guarantee(self, leaf: Node) -> bool:
        levels = (node for node in path(leaf) if node is not self.tree.root and node.guarantee)
        return any(node.below_guarantee() for node in levels)

    # -- room made by others -----------------------------------------------------------------------------------------

    def _evict_for_others(self) -> Iterator[Command]:
        """Take back what must go so that blocked workloads of higher priority, or of entitled queues, can start."""
        if self._plan_tokens < 1:
            return
        while self._retries and self._retries[0][0] <= self._now:
            self._stuck[heapq.heappop(self._retries)[2]] = None
        victims: list[Victim] | None = None
        for group in list(self._stuck):
            if self._plan_tokens < 1:
                return
            if not group.members or group.lot is None or not self._may_evict(group):
                del self._stuck[group]
                self._helpless.pop(group, None)
                continue
            binding = self.bindings[group.members[0][2]]
            if binding.view.uid in self._awaiting:
                continue
            del self._stuck[group]
            self._plan_tokens -= 1
            victims = victims if victims is not None else [*self.running()]
            claimant = Claimant(binding.view.uid, group.leaf, -binding.key[0], group.shape, group.shape.least)
            outcome = plan(
                claimant,
                victims,
                self.tree,
                self.world,
                now=self._now,
                serving=self.serves(group.leaf),
                permits=self._permits(binding),
            )
            if isinstance(outcome, Verdict) or not outcome.losses:
                # Time alone may help it: what has just started is protected for a while.
                pause = self._helpless[group] = min(2 * self._helpless.get(group, HELPLESS / 2), HELPLESS_MAX)
                self._serial += 1
                heapq.heappush(self._retries, (self._now + pause, self._serial, group))
                continue
            self._helpless.pop(group, None)
            self._awaiting[binding.view.uid] = tuple(loss.uid for loss in outcome.losses)
            self.promises.drop(binding.view.uid)
            self.promises.keep(
                binding.view.uid, group.leaf, group.shape, group.shape.least, outcome.choice.members, self._now
            )
            for loss in outcome.losses:
                text = f"makes room for {binding.view.namespace}/{binding.view.name} of queue {group.leaf.name}"
                victim = self.bindings[loss.uid]
                if loss.surplus is None:
                    yield self._evict(victim, loss.reason, text, room_for=binding.view.uid)
                else:
                    [part] = victim.parts.values()
                    # Its queue has more by now than when the others were looked at.
                    self._unfinished = True
                    yield self._shrink(victim, smaller(victim.gang, full(part))[len(loss.surplus) - 1], text)
            nominated = [member.name for member in outcome.choice.members]
            awaits = Verdict(Reason.AWAITING_VICTIMS, blocker("Cluster", ", ".join(nominated), "", 0, 0))
            yield self._explain(binding, awaits, nominated)
            victims = None

    def _take_up_nominations(self) -> None:
        """Another leader had others evicted for these: their room stays theirs."""
        nominated, self._nominated = self._nominated, {}
        leaving: dict[str, list[str]] = {}
        for uid, binding in self.bindings.items():
            if binding.phase is Phase.EVICTING:
                leaving.setdefault(binding.view.decision.room_for, []).append(uid)
        for uid in nominated:
            claimant = self.bindings.get(uid)
            if claimant is None or claimant.shape is None or uid in self._awaiting:
                continue
            members = [self.world.members[n] for n in claimant.view.decision.nominated if n in self.world.members]
            if members:
                self._awaiting[uid] = tuple(leaving.get(uid, ()))
                self.promises.keep(uid, claimant.leaf, claimant.shape, claimant.shape.least, members, self._now)

    def _consider(self, group: ShapeClass) -> None:
        """Perhaps others should go for it, unless that was looked at a moment ago."""
        if group not in self._helpless:
            self._stuck[group] = None

    def _may_evict(self, group: ShapeClass) -> bool:
        """Whether anybody could have to go at all: most often nobody does."""
        priority = -group.members[0][0]
        if any(each < priority for each in self._priorities.get(group.leaf, ())):
            return True
        if any(each <= priority for each in self._spare.get(group.leaf, ())):
            return True
        return self.tree.entitled(group.leaf, group.shape.request)

    def running(self) -> Iterator[Victim]:
        """What runs and could go; each is made once."""
        known = self._candidates
        for uid, stay in self.promises.stays():
            victim = known.get(uid)
            binding = self.bindings[uid]
            view = binding.leaf.view
            if victim is None or victim[0] is not stay or victim[1] is not binding or victim[2] is not view:
                victim = known[uid] = (stay, binding, view, _victim(binding, stay, self._cleared.get(uid, ())))
            if binding.phase is Phase.BOUND and binding.epoch == binding.view.epoch and binding.resized_at is None:
                yield victim[3]
        if len(known) > 2 * len(self.promises) + 64:
            self._candidates = {uid: each for uid, each in known.items() if self.promises.stay(uid) is each[0]}

    def _await_victims(self, promise: Promise) -> None:
        """Once all that were evicted are gone, or after too long, the claimant is one that waits as others do."""
        gone = all(self._let_go(uid) for uid in self._awaiting.get(promise.uid, ()))
        # A while longer than that: members tell of the room a moment after the pods are gone.
        if gone and promise.looked + PATIENCE > self._now:
            promise.looked = min(promise.looked, self._now - PATIENCE + SETTLE)
        if promise.looked + PATIENCE <= self._now:
            self._awaiting.pop(promise.uid, None)
            self.promises.drop(promise.uid)
            self._refresh_idle()
            claimant = self.bindings[promise.uid]
            assert claimant.shape is not None, f"{promise.uid} is kept room for and does not wait"
            self.waiting.refresh(self.waiting.classes(claimant.leaf)[claimant.shape.key])

    # -- room kept for heads -----------------------------------------------------------------------------------------

    def _keep_room(self, group: ShapeClass) -> None:
        """The first of the class does not go now: keep room for it if it is a head that must not be delayed."""
        leaf, uid = group.leaf, group.members[0][2]
        if uid not in self._impatient:
            if leaf.view is None or leaf.view.strategy is not Strategy.BACKFILL or self.waiting.head(leaf) is not group:
                return
            for other in [p for p in self.promises.made.values() if p.leaf is leaf and p.uid != uid]:
                if other.uid not in self._impatient:
                    # It is the head no more: an elder came back.
                    other.overtaken = True
                    self.promises.drop(other.uid)
                    self._refresh_idle()
        known = self.promises.made.get(uid)
        if known is None:
            self._promise(group.shape, self.bindings[uid])

    def _keep_room_for_new_heads(self) -> None:
        """One that was parked behind others may be the head now, and nothing wakes it."""
        for leaf in self._left_by:
            if leaf.view is not None and leaf.view.strategy is Strategy.BACKFILL:
                head = self.waiting.head(leaf)
                if head is not None and head.parked is not None and self.tree.standing(leaf) is Standing.OPEN:
                    self._keep_room(head)
        self._left_by.clear()

    def _promise(self, shape: Shape, binding: Binding) -> None:
        serving = self.serves(binding.leaf)
        mask = self.world.allowed(shape)[0] & self.world.ready
        if serving is not None:
            mask = mask & serving
        members = [self.world.order[column] for column in np.flatnonzero(mask)]
        self.promises.promise(binding.view.uid, binding.leaf, shape, shape.least, members, self._now, estimate(binding))

    def _renew_promises(self) -> None:
        """Compute times again that have passed, or that nobody knew; what has waited long enough gets one."""
        for promise in list(self.promises.made.values()):
            binding = self.bindings[promise.uid]
            if promise.victims:
                self._await_victims(promise)
            elif (promise.at < self._now or promise.at == math.inf) and promise.looked + RENEWAL <= self._now:
                assert binding.shape is not None, f"{promise.uid} is kept room for and does not wait"
                self._promise(binding.shape, binding)
                self._refresh_idle()
        while self._patience and self._patience[0][0] <= self._now:
            uid = heapq.heappop(self._patience)[1]
            waiting = self.bindings.get(uid)
            if waiting is not None and waiting.shape is not None and uid not in self._impatient:
                self._impatient[uid] = None
                if uid not in self.promises.made:
                    self._promise(waiting.shape, waiting)

    def _next_renewal(self) -> float | None:
        times = [
            promise.looked + (PATIENCE if promise.victims else RENEWAL)
            if promise.at == math.inf
            else max(promise.at, promise.looked) + RENEWAL
            for promise in self.promises.made.values()
        ]
        return min(times, default=None)

    def _dispatch(self, binding: Binding, choice: Choice) -> Dispatch:
        view = binding.view
        phase, reason, patience = Phase.BOUND, Reason.DISPATCHED, self._commit_timeout
        if choice.divided:
            phase, reason, patience = Phase.RESERVING, Reason.RESERVING, RESERVE_TIMEOUT
        deadline = self._now + patience
        line = Line(self._text(self._now), phase, reason, choice.sentence())
        decision = Decision(binding.epoch + 1, phase, reason, None, self._text(deadline), view.decision.told(line))
        parts = tuple(
            Part(member.name, tuple((task.name, task.replicas) for task in part.tasks))
            for member, part in zip(choice.members, choice.gangs, strict=True)
        )
        command = Dispatch(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision, parts=parts)
        assert binding.shape is not None, f"{view.uid} does not wait"
        for promise in self._overtaking:
            promise.overtaken = True
        kept = self.promises.drop(view.uid)
        group = self.waiting.classes(binding.leaf)[binding.shape.key]
        self._impatient.pop(view.uid, None)
        self._stop_waiting(binding, binding.shape)
        if view.uid in self._awaiting:
            self._cleared[view.uid] = self._awaiting.pop(view.uid)
            if group.members:
                # Others may have to go for the next of the class too, which sleeps on without being looked at.
                self._consider(group)
        binding.epoch, binding.phase = decision.epoch, phase
        binding.told, binding.deadline, binding.bound = None, deadline, False
        heapq.heappush(self._deadlines, (deadline, view.uid))
        self._untold.pop(view.uid, None)
        if phase is Phase.RESERVING:
            self._unsettled[view.uid] = None
        binding.parts = {member.name: part for member, part in zip(choice.members, choice.gangs, strict=True)}
        self.tree.start(binding.leaf, binding.amount, binding.where())
        self.waiting.limits_changed(binding.leaf)
        self.namespaces.charge(view.namespace, binding.amount)
        self._count_priority(binding)
        for member, part, placement in zip(choice.members, choice.gangs, choice.placements, strict=True):
            self.world.assume(member, view.uid, part, placement)
        pods: dict[str, tuple[Gang, Pods]] = {
            member.name: (part, placement.pods)
            for member, part, placement in zip(choice.members, choice.gangs, choice.placements, strict=True)
        }
        self.promises.enter(
            view.uid, Stay(binding.leaf, binding.amount, self._now, self._now + estimate(binding), pods)
        )
        self._file_size(binding)
        if kept is not None:
            self._refresh_idle()
        return command

    def _text(self, at: float) -> str:
        """RFC 3339; the few times that a pass writes are formatted once."""
        text = self._texts.get(at)
        if text is None:
            text = self._texts[at] = rfc3339(at)
        return text

    def _settle_answers(self) -> Iterator[Command]:
        """Commit what all members have reserved, take back what one refused or what its user holds."""
        for uid in list(self._unsettled):
            binding = self.bindings[uid]
            if binding.epoch != binding.view.epoch or binding.phase is Phase.EVICTING:
                continue
            if binding.gang.hold:
                yield self._evict(binding, Reason.HELD, "held by its user")
                continue
            if binding.phase is not Phase.RESERVING:
                continue
            answers = binding.view.reserved
            refusals = [name for name in binding.parts if name in answers and not answers[name].granted]
            if refusals:
                name, answer = refusals[0], answers[refusals[0]]
                self._avoid_member(binding, name)
                text = f"{name} holds {answer.available} of the {answer.requested} pods of its part"
                counts = blocker("Cluster", name, "pods", answer.requested, answer.available)
                yield self._evict(binding, Reason.PART_REFUSED, text, counts)
            elif all(name in answers for name in binding.parts):
                away = [name for name in binding.parts if not self._is_ready(name)]
                if away:
                    text = f"{away[0]} reserved its part and is not ready any more"
                    yield self._evict(binding, Reason.CLUSTERS_NOT_READY, text, blocker("Cluster", away[0], "", 0, 0))
                else:
                    yield self._commit(binding)

    def _is_ready(self, name: str) -> bool:
        member = self.world.members.get(name)
        return member is not None and member.ready

    def _commit(self, binding: Binding) -> Command:
        deadline = self._now + self._commit_timeout
        view = binding.view
        line = Line(self._text(self._now), Phase.BOUND, Reason.DISPATCHED, "all parts are reserved")
        decision = Decision(
            binding.epoch, Phase.BOUND, Reason.DISPATCHED, None, self._text(deadline), view.decision.told(line)
        )
        del self._unsettled[view.uid]
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
                text = f"no answer from {', '.join(silent)} within {RESERVE_TIMEOUT:g} s"
                yield self._evict(binding, Reason.DEADLINE_EXCEEDED, text)
            elif binding.phase is Phase.BOUND and not binding.bound:
                late = [name for name in binding.parts if not bound_in(binding, name)]
                for name in late:
                    self._avoid_member(binding, name)
                text = f"not all of its pods were bound in {', '.join(late)} within {self._commit_timeout:g} s"
                yield self._evict(binding, Reason.DEADLINE_EXCEEDED, text)
            elif binding.phase is Phase.BOUND:
                # Whatever of its growth is not there by now waits in the member like anything else.
                self._settle_binding(binding)

    def _avoid_member(self, binding: Binding, name: str) -> None:
        """Don't choose this member for the shape again until its capacity changes, or a while has passed."""
        member = self.world.members.get(name)
        if member is None:
            return
        key = (shape_key(binding.view, self.restricted(binding)), name)
        before = self._avoid.get(key)
        # What was under way when others failed fails with them: that is one failure.
        anew = before is None or before.over
        failures = (before.failures if before is not None else 0) + anew
        # So many doublings are more than any pause; more would not be a number.
        pause = min(AVOID_FIRST * 2.0 ** min(failures - 1, 30), AVOID_MAX)
        # Jitter that a replay repeats: what failed together is not tried together.
        pause *= 1 + zlib.crc32(b"%s/%s" % (binding.view.uid.encode(), name.encode())) % 100 / 200
        until = self._now + pause if before is None or anew else max(before.until, self._now + pause)
        self._avoid[key] = Avoided(member.generation, until, failures)

    def _try_again(self) -> None:
        """Members that were avoided long enough may be tried again; what they failed is forgotten much later."""
        for key, avoided in list(self._avoid.items()):
            if avoided.until + 2 * AVOID_MAX <= self._now:
                del self._avoid[key]
            elif not avoided.over and avoided.until <= self._now:
                avoided.over = True
                self._wake(key[0])

    def _evict(
        self, binding: Binding, reason: Reason, text: str, why: Blocker | None = None, *, room_for: str = ""
    ) -> Command:
        view = binding.view
        self._unsettled.pop(view.uid, None)
        line = Line(self._text(self._now), Phase.EVICTING, reason, text)
        decision = Decision(
            binding.epoch + 1, Phase.EVICTING, reason, why, story=view.decision.told(line), room_for=room_for
        )
        command = Evict(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision)
        binding.epoch, binding.phase, binding.deadline = decision.epoch, Phase.EVICTING, None
        return command

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
            while verdict is not None and group.told < len(group.members) and looks:
                looks -= 1
                binding = self.bindings[group.members[group.told][2]]
                group.told += 1
                if differs(binding.told, verdict) and binding.view.uid not in self._awaiting:
                    yield self._explain(binding, verdict)
                    break
            if group.told < len(group.members):
                # The first of every class hears before the second of any.
                unsaid[group] = None

    def _explain(self, binding: Binding, verdict: Verdict, nominated: Sequence[str] = ()) -> Command:
        self._explain_tokens -= 1
        binding.told = verdict
        view = binding.view
        line = Line(self._text(self._now), binding.phase, verdict.reason, verdict.sentence())
        until = "" if binding.phase is Phase.SUSPENDED else view.decision.deadline
        decision = Decision(
            binding.epoch, binding.phase, verdict.reason, verdict.blocker, until, view.decision.told(line), [*nominated]
        )
        return Explain(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision)

    # -- looking in --------------------------------------------------------------------------------------------------

    def verdict(self, uid: str) -> Verdict | None:
        """Why this binding waits; None when it does not wait or was not looked at yet."""
        binding = self.bindings.get(uid)
        if binding is None or binding.phase is not Phase.SUSPENDED:
            return None
        if binding.wish is None:
            return Verdict(Reason.INVALID_GANG)
        if binding.gang.hold:
            return HELD
        assert binding.shape is not None, f"{uid} waits without a shape"
        if uid in self._awaiting:
            return binding.told
        return self.waiting.classes(binding.leaf)[binding.shape.key].parked

    def check(self) -> None:
        """Verify what must always hold; tests call it after every event.

        Raises:
            AssertionError: naming the invariant and the object.
        """
        self.world.refresh()
        invariants.verify(self)


def _victim(binding: Binding, stay: Stay, cleared: tuple[str, ...]) -> Victim:
    view, surplus = binding.leaf.view, []
    if binding.bound and len(binding.parts) == 1 and not binding.view.divided:
        [(name, part)] = binding.parts.items()
        surplus = spares(binding.gang, full(part), name, stay.parts[name][1])
    return Victim(
        binding.view.uid,
        binding.leaf,
        -binding.key[0],
        stay.start,
        binding.amount,
        {
            name: [(node, gang.tasks[task].requests, count) for task, node, count in pods]
            for name, (gang, pods) in stay.parts.items()
        },
        surplus,
        preemptable=binding.gang.preemptable,
        evictions=sum(line.reason in (Reason.PREEMPTED, Reason.RECLAIMED) for line in binding.view.decision.story),
        protection=PROTECTION if view is None or view.protection is None else view.protection,
        cleared=cleared,
    )


def standing_verdict(queue: str, standing: Standing) -> Verdict:
    """Why a queue that is not open admits nothing."""
    reason = {
        Standing.CLOSED: Reason.QUEUE_CLOSED,
        Standing.MISSING: Reason.QUEUE_NOT_FOUND,
        Standing.INVALID: Reason.QUEUE_INVALID,
        Standing.PARENT: Reason.QUEUE_NOT_LEAF,
    }[standing]
    return Verdict(reason, blocker("Queue", queue, "", 0, 0))
