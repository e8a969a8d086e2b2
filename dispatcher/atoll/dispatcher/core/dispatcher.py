"""The core: what was told, what is decided.

All state lives in one `Dispatcher` and is changed only by `handle`. Nothing here reads a clock or does I/O, and
every order is total, so the same events always give the same commands. Never change an attribute from outside.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from atoll.dispatcher.core.choice import Choice, choose
from atoll.dispatcher.core.commands import Command, Commit, Dispatch, Evict, Explain, Part
from atoll.dispatcher.core.events import (
    BindingGone,
    BindingSet,
    BindingView,
    CapacityGone,
    CapacitySet,
    ClusterGone,
    ClusterSet,
    Event,
    Pass,
    QueueGone,
    QueueSet,
    Refused,
)
from atoll.dispatcher.core.members import Member
from atoll.dispatcher.core.queues import QUEUE_REASONS, Key, Queue, ShapeClass, order_key, shape_of
from atoll.fit import Placement, place
from atoll.model.decision import Decision, Line, Phase
from atoll.model.gang import Gang, divide
from atoll.model.timestamps import rfc3339, to_seconds
from atoll.model.verdict import Blocker, Reason, Verdict, blocker

COMMIT_TIMEOUT = 30.0
"""Seconds within which all pods of a dispatched gang must be bound, else it is taken back."""
RESERVE_TIMEOUT = 10.0
"""Seconds within which all members must have reserved their parts."""
PASS_LIMIT = 128
"""Decisions after which a pass ends early, so that the first are written while the next are made."""
EXPLAIN_BURST = 50.0
EXPLAIN_PER_DISPATCH = 0.1
EXPLAIN_PER_SECOND = 10.0


@dataclass(slots=True)
class Binding:
    """One binding: what was last seen of it and what was decided since."""

    view: BindingView
    #: newest of what was seen and what was decided; `epoch` above `view.epoch` means that a write is under way
    epoch: int
    phase: Phase
    #: member -> the gang of its part; empty unless it is dispatched
    parts: dict[str, Gang]
    #: what it asks for, as last seen; None when that can't be read
    wish: Gang | None
    shape: bytes
    key: Key
    #: the queue in which it waits or is charged
    queue: str
    #: seconds since the epoch, while parts must still be reserved or pods bound
    deadline: float | None = None
    #: its minimum was bound once in this epoch
    bound: bool = False
    #: what the binding says about why it waits
    told: Verdict | None = None

    @property
    def gang(self) -> Gang:
        assert self.wish is not None, f"binding {self.view.uid} has no gang and can't be decided on"
        return self.wish


class Dispatcher:
    """Orders, admits, places; see `handle`."""

    def __init__(self, *, commit_timeout: float = COMMIT_TIMEOUT) -> None:
        self._commit_timeout = commit_timeout
        #: name -> queue; also queues that only workloads name
        self.queues: dict[str, Queue] = {}
        self.members: dict[str, Member] = {}
        #: UID -> binding
        self.bindings: dict[str, Binding] = {}
        #: (shape, member) -> capacity generation at which a gang of that shape was not bound in time there
        self._avoid: dict[tuple[bytes, str], int] = {}
        #: UIDs of bindings in phase Reserving, and of those that run against the user's wish; looked at in every pass
        self._unsettled: dict[str, None] = {}
        #: (deadline, UID); stale entries are skipped when popped
        self._deadlines: list[tuple[float, str]] = []
        #: UIDs whose binding may not yet say why they wait, oldest first
        self._untold: dict[str, None] = {}
        self._explain_tokens = EXPLAIN_BURST
        #: the last pass ended at PASS_LIMIT
        self._unfinished = False
        self._now = 0.0

    # -- events ------------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Take an event in; only `Pass` decides."""
        match event:
            case BindingSet(binding):
                self._set_binding(binding)
            case BindingGone(uid):
                self._drop_binding(uid)
            case Refused(uid, epoch):
                self._refused(uid, epoch)
            case QueueSet(view):
                queue = self._queue(view.name)
                if queue.view != view:
                    queue.view = view
                    queue.wake(QUEUE_REASONS)
            case QueueGone(name):
                if name in self.queues:
                    self.queues[name].view = None
                    self.queues[name].wake()
            case ClusterSet(cluster):
                member = self._member(cluster.name)
                if member.view != cluster:
                    member.view = cluster
                    self._wake_all()
            case ClusterGone(name):
                if name in self.members:
                    self.members[name].view = None
                    self._wake_all()
            case CapacitySet(capacity):
                member = self._member(capacity.cluster)
                before = member.generation
                if member.set_root(capacity):
                    self._wake_all()
                if member.generation != before:
                    self._forgive(member)
                self._settle(member)
            case CapacityGone(name, root):
                if name in self.members:
                    self.members[name].drop_root(root)
            case Pass(now):
                return self._pass(now)
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
        explain = self._now + 0.2 if self._untold else None
        first = self._deadlines[0][0] if self._deadlines else None
        return min((when for when in (explain, first) if when is not None), default=None)

    # -- taking in ---------------------------------------------------------------------------------------------------

    def _set_binding(self, view: BindingView) -> None:
        old = self.bindings.get(view.uid)
        if old is not None and _behind(view, old):
            # The watch is behind our own decision; keep the newest object for the case that the write is refused.
            old.view = view
            return
        self._observe(view, old)

    def _observe(self, view: BindingView, old: Binding | None) -> None:
        """Go by what was seen, whatever was decided before."""
        if old is not None:
            self._leave(old)
        phase = _phase_of(view)
        told = Verdict(view.decision.reason, view.decision.blocker) if phase is Phase.SUSPENDED else None
        binding = Binding(
            view,
            view.epoch,
            phase,
            _parts_of(view) if phase.charged else {},
            view.gang,
            shape_of(view),
            order_key(view),
            view.gang.queue if view.gang else "",
            told=told,
        )
        binding.bound = _all_bound(binding) or (old is not None and old.bound and old.epoch == view.epoch)
        if phase is Phase.EVICTING and old is not None:
            # What the member has still to let go of.
            binding.parts = old.parts
        self.bindings[view.uid] = binding
        self._enter(binding)
        if old is not None and old.phase.charged and (not phase.charged or old.wish != view.gang):
            self._queue(old.queue).wake(QUEUE_REASONS)

    def _drop_binding(self, uid: str) -> None:
        binding = self.bindings.pop(uid, None)
        if binding is not None:
            self._leave(binding)
            self._untold.pop(uid, None)
            if binding.phase.charged:
                self._queue(binding.queue).wake(QUEUE_REASONS)
            for member in self.members.values():
                if member.forget(uid):
                    self._wake_all()

    def _refused(self, uid: str, epoch: int) -> None:
        binding = self.bindings.get(uid)
        if binding is None or binding.epoch != epoch:
            return
        # Back to what was last seen; if somebody else decided, the watch is about to say so.
        self._observe(binding.view, binding)

    def _enter(self, binding: Binding) -> None:
        """File a binding under its phase: waiting, charged, or neither."""
        if binding.wish is None:
            self._untold[binding.view.uid] = None
        elif binding.phase is Phase.SUSPENDED and binding.gang.hold:
            if _differs(binding.told, _HELD):
                self._untold[binding.view.uid] = None
        elif binding.phase is Phase.SUSPENDED:
            group = self._queue(binding.queue).add(binding.shape, binding.key)
            if group.parked is not None and _differs(binding.told, group.parked):
                self._untold[binding.view.uid] = None
        elif binding.phase.charged:
            self._queue(binding.queue).charge(binding.view.uid, binding.gang.total())
            self._watch_deadline(binding)
            if binding.phase is Phase.RESERVING or binding.gang.hold:
                self._unsettled[binding.view.uid] = None
        self._settle_binding(binding)

    def _leave(self, binding: Binding) -> None:
        """The inverse of `_enter`."""
        if binding.wish is None:
            return
        queue = self._queue(binding.queue)
        if binding.phase.charged:
            queue.release(binding.view.uid)
            self._unsettled.pop(binding.view.uid, None)
        elif binding.phase is Phase.SUSPENDED and not binding.gang.hold:
            queue.remove(binding.shape, binding.key)

    def _watch_deadline(self, binding: Binding) -> None:
        waiting = binding.phase is Phase.RESERVING or (binding.phase is Phase.BOUND and not binding.bound)
        if waiting and binding.view.decision.deadline:
            binding.deadline = to_seconds(binding.view.decision.deadline)
            heapq.heappush(self._deadlines, (binding.deadline, binding.view.uid))

    def _settle_binding(self, binding: Binding) -> None:
        """Let go of what was assumed in a member once the member's own figures contain it, or once it is over."""
        uid = binding.view.uid
        for member in self.members.values():
            if uid in member.expected and _contained(binding, member) and member.forget(uid):
                self._wake_all()
        for name in binding.parts:
            member = self._member(name)
            if not _contained(binding, member):
                member.expected.add(uid)
                self._assume_late(binding, member)

    def _settle(self, member: Member) -> None:
        for uid in sorted(member.expected):
            binding = self.bindings.get(uid)
            if binding is None or _contained(binding, member):
                if member.forget(uid):
                    self._wake_all()
            else:
                self._assume_late(binding, member)

    def _assume_late(self, binding: Binding, member: Member) -> None:
        """Count a part that an earlier leader decided and the member's figures lack, where it would go now."""
        uid = binding.view.uid
        if uid not in member.inflight and len(member.nodes):
            placement = place(member.nodes, binding.parts[member.name])
            if isinstance(placement, Placement):
                member.assume(uid, binding.parts[member.name], placement)

    def _forgive(self, member: Member) -> None:
        """The member's figures moved on: shapes that were not bound in time there may try it again."""
        for key in [key for key, at in self._avoid.items() if key[1] == member.name and at != member.generation]:
            del self._avoid[key]
            self._wake_all()

    def _wake_all(self) -> None:
        """Something may fit now that did not: look at everything again that was blocked by members."""
        for queue in self.queues.values():
            for group in queue.classes.values():
                if group.parked is not None and group.parked.reason not in QUEUE_REASONS:
                    group.parked = None

    def _queue(self, name: str) -> Queue:
        return self.queues.setdefault(name, Queue(name))

    def _member(self, name: str) -> Member:
        return self.members.setdefault(name, Member(name))

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _pass(self, now: float) -> list[Command]:
        """1. Take back what was not reserved or bound in time. 2. Commit or release what members answered.
        3. Dispatch while something fits. 4. Say why the rest waits.
        """
        self._explain_tokens = min(EXPLAIN_BURST, self._explain_tokens + max(now - self._now, 0.0) * EXPLAIN_PER_SECOND)
        self._now = now
        commands: list[Command] = [*self._overdue(), *self._settle_answers()]
        order = [(*queue.rank(), queue.name) for queue in self.queues.values() if queue.classes]
        heapq.heapify(order)
        self._unfinished = False
        while order:
            if len(commands) >= PASS_LIMIT:
                self._unfinished = True
                return commands
            *_, name = heapq.heappop(order)
            queue = self.queues[name]
            command = self._dispatch_one(queue)
            if command is not None:
                commands.append(command)
                self._explain_tokens = min(EXPLAIN_BURST, self._explain_tokens + EXPLAIN_PER_DISPATCH)
                heapq.heappush(order, (*queue.rank(), name))
        commands.extend(self._explanations())
        return commands

    def _dispatch_one(self, queue: Queue) -> Command | None:
        """The first workload of the queue, in its order, that fits; classes that don't are parked on the way."""
        while True:
            group = min(queue.candidates(), key=lambda each: each.members[0], default=None)
            if group is None:
                return None
            binding = self.bindings[group.members[0][2]]
            verdict = queue.admits(binding.gang.total())
            if verdict is None:
                members = [self.members[name] for name in sorted(self.members)]
                avoided = {m.name for m in members if (binding.shape, m.name) in self._avoid}
                choice = choose(binding.view, members, avoided)
                if not isinstance(choice, Verdict):
                    return self._dispatch(queue, binding, choice)
                verdict = choice
            self._park(group, verdict)

    def _dispatch(self, queue: Queue, binding: Binding, choice: Choice) -> Command:
        gang, view = binding.gang, binding.view
        phase, reason, patience = Phase.BOUND, Reason.DISPATCHED, self._commit_timeout
        if choice.divided:
            phase, reason, patience = Phase.RESERVING, Reason.RESERVING, RESERVE_TIMEOUT
        deadline = self._now + patience
        line = Line(rfc3339(self._now), phase, reason, choice.sentence())
        decision = Decision(binding.epoch + 1, phase, reason, None, rfc3339(deadline), view.decision.told(line))
        parts = tuple(
            Part(member.name, tuple((task.name, task.replicas) for task in part.tasks))
            for member, part in zip(choice.members, choice.gangs, strict=True)
        )
        command = Dispatch(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision, parts=parts)
        self._leave(binding)
        binding.epoch, binding.phase = decision.epoch, phase
        binding.told, binding.deadline, binding.bound = None, deadline, False
        heapq.heappush(self._deadlines, (deadline, view.uid))
        self._untold.pop(view.uid, None)
        queue.charge(view.uid, gang.total())
        if phase is Phase.RESERVING:
            self._unsettled[view.uid] = None
        binding.parts = {member.name: part for member, part in zip(choice.members, choice.gangs, strict=True)}
        for member, part, placement in zip(choice.members, choice.gangs, choice.placements, strict=True):
            member.assume(view.uid, part, placement)
        return command

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
                yield self._commit(binding)

    def _commit(self, binding: Binding) -> Command:
        deadline = self._now + self._commit_timeout
        view = binding.view
        line = Line(rfc3339(self._now), Phase.BOUND, Reason.DISPATCHED, "all parts are reserved")
        decision = Decision(
            binding.epoch, Phase.BOUND, Reason.DISPATCHED, None, rfc3339(deadline), view.decision.told(line)
        )
        del self._unsettled[view.uid]
        binding.phase, binding.deadline = Phase.BOUND, deadline
        heapq.heappush(self._deadlines, (deadline, view.uid))
        return Commit(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision)

    def _park(self, group: ShapeClass, verdict: Verdict) -> None:
        group.parked = verdict
        for *_, uid in group.members:
            if _differs(self.bindings[uid].told, verdict):
                self._untold[uid] = None

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
                late = [name for name in binding.parts if not _bound_in(binding, name)]
                for name in late:
                    self._avoid_member(binding, name)
                text = f"not all of its pods were bound in {', '.join(late)} within {self._commit_timeout:g} s"
                yield self._evict(binding, Reason.DEADLINE_EXCEEDED, text)

    def _avoid_member(self, binding: Binding, name: str) -> None:
        """Don't choose this member for the shape again until its capacity changes."""
        if name in self.members:
            self._avoid[binding.shape, name] = self.members[name].generation

    def _evict(self, binding: Binding, reason: Reason, text: str, why: Blocker | None = None) -> Command:
        view = binding.view
        self._unsettled.pop(view.uid, None)
        line = Line(rfc3339(self._now), Phase.EVICTING, reason, text)
        decision = Decision(binding.epoch + 1, Phase.EVICTING, reason, why, story=view.decision.told(line))
        command = Evict(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision)
        binding.epoch, binding.phase, binding.deadline = decision.epoch, Phase.EVICTING, None
        return command

    def _explanations(self) -> Iterator[Command]:
        """Reasons for the bindings that do not carry theirs yet, within the budget for such writes."""
        while self._untold and self._explain_tokens >= 1:
            uid = next(iter(self._untold))
            del self._untold[uid]
            binding = self.bindings.get(uid)
            verdict = self.verdict(uid)
            if binding is None or verdict is None or not _differs(binding.told, verdict):
                continue
            self._explain_tokens -= 1
            binding.told = verdict
            view = binding.view
            line = Line(rfc3339(self._now), Phase.SUSPENDED, verdict.reason, verdict.sentence())
            decision = Decision(
                binding.epoch, Phase.SUSPENDED, verdict.reason, verdict.blocker, "", view.decision.told(line)
            )
            yield Explain(uid, view.namespace, view.name, view.generation, binding.epoch, decision)

    # -- looking in --------------------------------------------------------------------------------------------------

    def verdict(self, uid: str) -> Verdict | None:
        """Why this binding waits; None when it does not wait or was not looked at yet."""
        binding = self.bindings.get(uid)
        if binding is None or binding.phase is not Phase.SUSPENDED:
            return None
        if binding.wish is None:
            return Verdict(Reason.INVALID_GANG)
        if binding.gang.hold:
            return _HELD
        return self.queues[binding.queue].classes[binding.shape].parked

    def check(self) -> None:
        """Verify what must always hold; tests call it after every event.

        Raises:
            AssertionError: naming the invariant and the object.
        """
        for queue in self.queues.values():
            expected: dict[str, int] = {}
            for uid, amount in queue.charges.items():
                binding = self.bindings[uid]
                assert binding.phase.charged, f"{uid} is charged to {queue.name} in phase {binding.phase}"
                for name, value in amount.items():
                    expected[name] = expected.get(name, 0) + value
            assert {k: v for k, v in expected.items() if v} == queue.used, (
                f"queue {queue.name}: used differs from its charges"
            )
            for group in queue.classes.values():
                assert group.members, f"queue {queue.name}: an empty class"
                assert group.members == sorted(group.members), f"queue {queue.name}: a class out of order"
                for key in group.members:
                    waiting = self.bindings[key[2]]
                    assert waiting.phase is Phase.SUSPENDED, f"{key[2]} waits in phase {waiting.phase}"
                    assert waiting.queue == queue.name, f"{key[2]} waits in a queue that is not its own"
        waiting_total = sum(len(group.members) for queue in self.queues.values() for group in queue.classes.values())
        pending = sum(
            b.phase is Phase.SUSPENDED and b.wish is not None and not b.gang.hold for b in self.bindings.values()
        )
        assert waiting_total == pending, "a suspended binding waits nowhere or twice"
        charged = sum(len(queue.charges) for queue in self.queues.values())
        live = sum(b.phase.charged and b.wish is not None for b in self.bindings.values())
        assert charged == live, "a live binding is not charged, or twice"
        for member in self.members.values():
            assert member.inflight.keys() <= member.expected, f"{member.name} counts what it does not expect"
            for uid in member.expected:
                assert member.name in self.bindings[uid].parts, f"{uid} is counted in {member.name} but is not there"


_HELD = Verdict(Reason.HELD)


def _phase_of(view: BindingView) -> Phase:
    """The phase that an observed binding is in."""
    if view.finished:
        return Phase.FINISHED
    if not view.suspended:
        return Phase.RESERVING if view.decision.phase is Phase.RESERVING else Phase.BOUND
    if view.decision.phase is Phase.EVICTING and view.released < view.generation:
        return Phase.EVICTING
    return Phase.SUSPENDED


def _behind(view: BindingView, binding: Binding) -> bool:
    """Whether an observed binding is older than what was decided since."""
    if view.epoch != binding.epoch:
        return view.epoch < binding.epoch
    return binding.phase is Phase.BOUND and view.decision.phase is Phase.RESERVING and not view.finished


def _parts_of(view: BindingView) -> dict[str, Gang]:
    """Member -> the gang of its part, as the binding says."""
    if view.gang is None or not view.parts:
        return {}
    gangs = divide(view.gang, [counts for _, counts in view.parts]) if len(view.parts) > 1 else [view.gang]
    return {name: part for (name, _), part in zip(view.parts, gangs, strict=True)}


def _bound_in(binding: Binding, name: str) -> bool:
    _, pods = binding.view.placed.get(name, (0, 0))
    return pods >= max(binding.parts[name].min_available, 1)


def _all_bound(binding: Binding) -> bool:
    return binding.view.bound or all(_bound_in(binding, name) for name in binding.parts)


def _contained(binding: Binding, member: Member) -> bool:
    """Whether the member's published figures contain the binding's pods or hold, or never will."""
    if member.name not in binding.parts:
        return True
    if binding.phase is Phase.EVICTING or binding.epoch != binding.view.epoch:
        return False
    generation, _ = binding.view.placed.get(member.name, (-1, 0))
    if binding.bound or _bound_in(binding, member.name):
        return member.generation >= generation
    answer = binding.view.reserved.get(member.name)
    return answer is not None and answer.granted and member.generation >= answer.generation


def _differs(told: Verdict | None, verdict: Verdict) -> bool:
    """Whether the binding must be told anew: another reason or another blocker, not merely another free amount."""
    if told is None or told.reason != verdict.reason:
        return True
    a, b = told.blocker, verdict.blocker
    return (a and (a.kind, a.name, a.resource)) != (b and (b.kind, b.name, b.resource))
