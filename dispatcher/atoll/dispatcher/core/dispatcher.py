"""The core: what was told, what is decided.

All state lives in one `Dispatcher` and is changed only by `handle`. Nothing here reads a clock or does I/O, and
every order is total, so the same events always give the same commands. Never change an attribute from outside.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from atoll.dispatcher.core.choice import Choice, choose
from atoll.dispatcher.core.commands import Command, Dispatch, Evict, Explain
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
from atoll.model.gang import Gang
from atoll.model.timestamps import rfc3339, to_seconds
from atoll.model.verdict import Reason, Verdict

COMMIT_TIMEOUT = 30.0
"""Seconds within which all pods of a dispatched gang must be bound, else it is taken back."""
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
    cluster: str | None
    shape: bytes
    key: Key
    #: the queue in which it waits or is charged
    queue: str
    #: seconds since the epoch, while its pods must still be bound
    deadline: float | None = None
    #: what the binding says about why it waits
    told: Verdict | None = None

    @property
    def gang(self) -> Gang:
        if self.view.gang is None:
            raise AssertionError(f"binding {self.view.uid} has no gang and can't be decided on")
        return self.view.gang


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
        #: (deadline, UID); stale entries are skipped when popped
        self._deadlines: list[tuple[float, str]] = []
        #: UIDs whose binding may not yet say why they wait, oldest first
        self._untold: dict[str, None] = {}
        self._explain_tokens = EXPLAIN_BURST
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
                if self.members.pop(name, None) is not None:
                    self._wake_all()
            case CapacitySet(capacity):
                member = self._member(capacity.cluster)
                if member.set_root(capacity):
                    self._wake_all()
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
        if old is not None and view.epoch < old.epoch:
            # The watch is behind our own decision; keep the newest object for the case that the write is refused.
            old.view = view
            return
        if old is not None:
            self._leave(old)
        phase = _phase_of(view)
        told = Verdict(view.decision.reason, view.decision.blocker) if phase is Phase.SUSPENDED else None
        binding = Binding(
            view,
            view.epoch,
            phase,
            view.clusters[0] if view.clusters and phase.charged else None,
            shape_of(view),
            order_key(view),
            view.gang.queue if view.gang else "",
            told=told,
        )
        self.bindings[view.uid] = binding
        self._enter(binding)
        if old is not None and old.phase.charged and not phase.charged:
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
        binding.epoch = binding.view.epoch
        self._set_binding(binding.view)

    def _enter(self, binding: Binding) -> None:
        """File a binding under its phase: waiting, charged, or neither."""
        if binding.view.gang is None:
            self._untold[binding.view.uid] = None
        elif binding.phase is Phase.SUSPENDED:
            group = self._queue(binding.queue).add(binding.shape, binding.key)
            if group.parked is not None and _differs(binding.told, group.parked):
                self._untold[binding.view.uid] = None
        elif binding.phase.charged:
            self._queue(binding.queue).charge(binding.view.uid, binding.gang.total())
            self._watch_deadline(binding)
        self._settle_binding(binding)

    def _leave(self, binding: Binding) -> None:
        """The inverse of `_enter`."""
        if binding.view.gang is None:
            return
        queue = self._queue(binding.queue)
        if binding.phase is Phase.SUSPENDED:
            queue.remove(binding.shape, binding.key)
        elif binding.phase.charged:
            queue.release(binding.view.uid)

    def _watch_deadline(self, binding: Binding) -> None:
        if binding.phase is Phase.BOUND and binding.view.decision.deadline and not _all_bound(binding):
            binding.deadline = to_seconds(binding.view.decision.deadline)
            heapq.heappush(self._deadlines, (binding.deadline, binding.view.uid))

    def _settle_binding(self, binding: Binding) -> None:
        """Let go of what was assumed in a member once the member's own figures contain it, or once it is over."""
        for member in self.members.values():
            if binding.view.uid in member.inflight and (binding.cluster != member.name or _contained(binding, member)):
                member.forget(binding.view.uid)
                self._wake_all()
        target = self.members.get(binding.cluster or "")
        if target is None or binding.view.uid in target.inflight or _contained(binding, target):
            return
        if binding.phase.charged and binding.phase is not Phase.EVICTING:
            # Decided by an earlier leader and not yet in the member's figures: assume where it would go now.
            placement = place(target.nodes, binding.gang)
            if isinstance(placement, Placement):
                target.assume(binding.view.uid, binding.gang, placement)

    def _settle(self, member: Member) -> None:
        for uid in list(member.inflight):
            binding = self.bindings.get(uid)
            if (binding is None or _contained(binding, member)) and member.forget(uid):
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
        """1. Take back what was not bound in time. 2. Dispatch while something fits. 3. Say why the rest waits."""
        self._explain_tokens = min(EXPLAIN_BURST, self._explain_tokens + max(now - self._now, 0.0) * EXPLAIN_PER_SECOND)
        self._now = now
        commands: list[Command] = [*self._overdue()]
        order = [(*queue.rank(), queue.name) for queue in self.queues.values() if queue.classes]
        heapq.heapify(order)
        while order:
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
                avoided = {m.name for m in members if self._avoid.get((binding.shape, m.name)) == m.generation}
                choice = choose(binding.view, [m for m in members if m.name not in avoided])
                if not isinstance(choice, Verdict):
                    return self._dispatch(queue, binding, choice)
                verdict = choice
            self._park(group, verdict)

    def _dispatch(self, queue: Queue, binding: Binding, choice: Choice) -> Command:
        gang, member = binding.gang, choice.member
        line = Line(rfc3339(self._now), Phase.BOUND, Reason.DISPATCHED, choice.sentence())
        deadline = self._now + self._commit_timeout
        decision = Decision(
            epoch=binding.epoch + 1,
            phase=Phase.BOUND,
            reason=Reason.DISPATCHED,
            deadline=rfc3339(deadline),
            story=binding.view.decision.told(line),
        )
        command = Dispatch(
            binding.view.uid,
            binding.view.namespace,
            binding.view.name,
            binding.view.generation,
            binding.epoch,
            decision,
            ((member.name, gang.replicas),),
        )
        self._leave(binding)
        binding.epoch, binding.phase, binding.cluster = decision.epoch, Phase.BOUND, member.name
        binding.told, binding.deadline = None, deadline
        heapq.heappush(self._deadlines, (deadline, binding.view.uid))
        self._untold.pop(binding.view.uid, None)
        queue.charge(binding.view.uid, gang.total())
        member.assume(binding.view.uid, gang, choice.placement)
        return command

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
            if binding.phase is Phase.BOUND and binding.epoch == binding.view.epoch and not _all_bound(binding):
                yield self._evict(binding)

    def _evict(self, binding: Binding) -> Command:
        member = self.members.get(binding.cluster or "")
        if member is not None:
            self._avoid[binding.shape, member.name] = member.generation
            member.forget(binding.view.uid)
        text = f"not all of its pods were bound in {binding.cluster} within {self._commit_timeout:g} s"
        line = Line(rfc3339(self._now), Phase.EVICTING, Reason.DEADLINE_EXCEEDED, text)
        decision = Decision(
            epoch=binding.epoch + 1,
            phase=Phase.EVICTING,
            reason=Reason.DEADLINE_EXCEEDED,
            story=binding.view.decision.told(line),
        )
        view = binding.view
        command = Evict(view.uid, view.namespace, view.name, view.generation, binding.epoch, decision)
        binding.epoch, binding.phase = decision.epoch, Phase.EVICTING
        return command

    def _explanations(self) -> Iterator[Command]:
        """Reasons for the bindings that do not carry theirs yet, within the budget for such writes."""
        for uid in list(self._untold):
            if self._explain_tokens < 1:
                return
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
        if binding.view.gang is None:
            return Verdict(Reason.INVALID_GANG)
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
        pending = sum(b.phase is Phase.SUSPENDED and b.view.gang is not None for b in self.bindings.values())
        assert waiting_total == pending, "a suspended binding waits nowhere or twice"
        charged = sum(len(queue.charges) for queue in self.queues.values())
        live = sum(b.phase.charged and b.view.gang is not None for b in self.bindings.values())
        assert charged == live, "a live binding is not charged, or twice"
        for member in self.members.values():
            for uid in member.inflight:
                assert self.bindings[uid].cluster == member.name, f"{uid} is counted in {member.name} but is not there"


def _phase_of(view: BindingView) -> Phase:
    """The phase that an observed binding is in."""
    if view.finished:
        return Phase.FINISHED
    if not view.suspended:
        return Phase.BOUND
    if view.decision.phase is Phase.EVICTING and view.released < view.generation:
        return Phase.EVICTING
    return Phase.SUSPENDED


def _all_bound(binding: Binding) -> bool:
    _, pods = binding.view.placed.get(binding.cluster or "", (0, 0))
    return pods >= max(binding.gang.min_available, 1)


def _contained(binding: Binding, member: Member) -> bool:
    """Whether the member's published figures contain the binding's pods, or never will."""
    if not binding.phase.charged or binding.phase is Phase.EVICTING:
        return True
    if binding.epoch != binding.view.epoch:
        return False
    generation, _ = binding.view.placed.get(member.name, (-1, 0))
    return _all_bound(binding) and member.generation >= generation


def _differs(told: Verdict | None, verdict: Verdict) -> bool:
    """Whether the binding must be told anew: another reason or another blocker, not merely another free amount."""
    if told is None or told.reason != verdict.reason:
        return True
    a, b = told.blocker, verdict.blocker
    return (a and (a.kind, a.name, a.resource)) != (b and (b.kind, b.name, b.resource))
