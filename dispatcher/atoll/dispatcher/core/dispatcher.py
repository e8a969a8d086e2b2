"""The core: what was told, what is decided.

All state lives in one `Dispatcher` and is changed only by `handle`. Nothing here reads a clock or does I/O, and every
order is total, so the same events always give the same commands. Never change an attribute from outside.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from atoll.dispatcher.core import invariants
from atoll.dispatcher.core.binding import (
    Binding,
    all_bound,
    behind,
    bound_in,
    contained,
    differs,
    parts_of,
    phase_of,
)
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
from atoll.dispatcher.core.queues import MEMBER_REASONS, QUEUE_REASONS, Queue, ShapeClass, order_key, shape_of
from atoll.fit import Placement, place
from atoll.model.decision import Decision, Line, Phase
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
        if old is not None and behind(view, old):
            # The watch is behind our own decision; keep the newest object for the case that the write is refused.
            old.view = view
            return
        self._observe(view, old)

    def _observe(self, view: BindingView, old: Binding | None) -> None:
        """Go by what was seen, whatever was decided before."""
        if old is not None:
            self._leave(old)
        phase = phase_of(view)
        told = None
        if phase is Phase.SUSPENDED and view.decision.phase is Phase.SUSPENDED:
            told = Verdict(view.decision.reason, view.decision.blocker)
        binding = Binding(
            view,
            view.epoch,
            phase,
            parts_of(view) if phase.charged else {},
            view.gang,
            shape_of(view),
            order_key(view),
            view.gang.queue if view.gang else "",
            told=told,
        )
        binding.bound = all_bound(binding) or (old is not None and old.bound and old.epoch == view.epoch)
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
            if differs(binding.told, _HELD):
                self._untold[binding.view.uid] = None
        elif binding.phase is Phase.SUSPENDED:
            group = self._queue(binding.queue).add(binding.shape, binding.key)
            if group.parked is not None and differs(binding.told, group.parked):
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
            if uid in member.expected and contained(binding, member) and member.forget(uid):
                self._wake_all()
        for name in binding.parts:
            member = self._member(name)
            if not contained(binding, member):
                member.expected.add(uid)
                self._assume_late(binding, member)

    def _settle(self, member: Member) -> None:
        for uid in sorted(member.expected):
            binding = self.bindings.get(uid)
            if binding is None or contained(binding, member):
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
            queue.wake(MEMBER_REASONS)

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
            if differs(self.bindings[uid].told, verdict):
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
                late = [name for name in binding.parts if not bound_in(binding, name)]
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
            if binding is None or verdict is None or not differs(binding.told, verdict):
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
        invariants.verify(self.queues, self.members, self.bindings)


_HELD = Verdict(Reason.HELD)
