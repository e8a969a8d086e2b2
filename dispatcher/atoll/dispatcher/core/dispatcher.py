"""The core: what was told, what is decided.

All state lives in one `Dispatcher` and is changed only by `handle`. Nothing here reads a clock or does I/O, and every
order is total, so the same events always give the same commands. Never change an attribute from outside.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core import invariants
from atoll.dispatcher.core.binding import (
    Binding,
    alike,
    all_bound,
    behind,
    bound_in,
    contained,
    order_key,
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
    NamespaceGone,
    NamespaceSet,
    Pass,
    QueueGone,
    QueueSet,
    QueueView,
    Refused,
    Strategy,
)
from atoll.dispatcher.core.members import Member
from atoll.dispatcher.core.namespaces import Namespaces
from atoll.dispatcher.core.node import Node, Standing, path, subtree
from atoll.dispatcher.core.promises import SETTLE, Pods, Promises, Stay, where_seen
from atoll.dispatcher.core.shapes import Shape, Shapes, shape_key
from atoll.dispatcher.core.tree import Tree
from atoll.dispatcher.core.waiting import ShapeClass, Waiting, differs
from atoll.dispatcher.core.world import World
from atoll.model.decision import Decision, Line, Phase
from atoll.model.gang import Gang
from atoll.model.timestamps import rfc3339, to_seconds
from atoll.model.verdict import Blocker, Reason, Verdict, blocker

COMMIT_TIMEOUT = 30.0
"""Seconds within which all pods of a dispatched gang must be bound, else it is taken back."""
RENEWAL = 1.0
"""Seconds after which a promise without a known time, or whose time has passed, is computed again."""
RESERVE_TIMEOUT = 10.0
"""Seconds within which all members must have reserved their parts."""
PASS_LIMIT = 128
"""Decisions after which a pass ends early, so that the first are written while the next are made."""
EXPLAIN_BURST = 50.0
EXPLAIN_PER_DISPATCH = 0.1
EXPLAIN_PER_SECOND = 10.0
EXPLAIN_LOOKS = 1000
"""Bindings that a pass looks at for one that does not know its reason."""


class Dispatcher:
    """Orders, admits, places; see `handle`."""

    def __init__(self, *, commit_timeout: float = COMMIT_TIMEOUT) -> None:
        self._commit_timeout = commit_timeout
        self.tree = Tree()
        self.waiting = Waiting(self.tree)
        self.world = World()
        self.namespaces = Namespaces()
        self.promises = Promises(self.world)
        self._shapes = Shapes()
        #: UID -> binding
        self.bindings: dict[str, Binding] = {}
        #: (shape, member) -> capacity generation at which a gang of that shape was not bound in time there
        self._avoid: dict[tuple[bytes, str], int] = {}
        #: row of the world -> shapes that wait for room and use it
        self._blocked: dict[int, dict[Shape, None]] = {}
        #: shapes that were woken in this pass and not looked at yet
        self._woken: dict[Shape, None] = {}
        #: classes that wait for a change of a Queue, of a namespace, or of a member's ceiling
        self._idle: dict[ShapeClass, None] = {}
        #: leaf -> bool[members] that it may use, None for all; of `_serving_version`
        self._serving: dict[Node, NDArray[np.bool_] | None] = {}
        self._serving_version = -1
        #: (time at which a workload has waited long enough to be kept room for, UID); stale ones are skipped
        self._patience: list[tuple[float, str]] = []
        #: UIDs of waiting bindings that have waited that long
        self._impatient: dict[str, None] = {}
        #: UIDs of bindings in phase Reserving, and of those that run against the user's wish; looked at in every pass
        self._unsettled: dict[str, None] = {}
        #: (deadline, UID); stale entries are skipped when popped
        self._deadlines: list[tuple[float, str]] = []
        #: UIDs of held and unreadable bindings that may not yet say so, oldest first
        self._untold: dict[str, None] = {}
        self._explain_tokens = EXPLAIN_BURST
        #: the last pass ended at PASS_LIMIT
        self._unfinished = False
        self._now = 0.0
        self._texts: dict[float, str] = {}

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
                self._set_queue(view.name, view)
            case QueueGone(name):
                self._set_queue(name, None)
            case NamespaceSet(namespace):
                self._set_namespace(namespace.name, namespace.limits)
            case NamespaceGone(name):
                self._set_namespace(name, None)
            case ClusterSet(cluster):
                if self.world.set_view(cluster.name, cluster):
                    self._members_changed()
            case ClusterGone(name):
                if self.world.set_view(name, None):
                    self._members_changed()
            case CapacitySet(capacity):
                member = self.world.member(capacity.cluster)
                before, total = member.generation, member.total()
                self.world.set_root(capacity)
                self.promises.republished(member.name)
                if member.generation != before:
                    self._forgive(member)
                if member.total() != total:
                    self._tell_tree_of_members()
                self._settle(member)
            case CapacityGone(name, root):
                self.world.drop_root(name, root)
                self._tell_tree_of_members()
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
        explain = self._now + 0.2 if self._untold or self.waiting.unsaid else None
        first = self._deadlines[0][0] if self._deadlines else None
        patience = self._patience[0][0] if self._patience else None
        renewal = self._next_renewal()
        return min((when for when in (explain, first, patience, renewal) if when is not None), default=None)

    # -- taking in: queues, namespaces, members ------------------------------------------------------------------------

    def _set_queue(self, name: str, view: QueueView | None) -> None:
        node = self.tree.node(name)
        if node.view == view:
            return
        moved: list[Binding] = []
        if view is None or node.view is None or _place_of(view) != _place_of(node.view):
            moved = [self.bindings[key[2]] for group in self._classes_below(node, name) for key in group.members]
            for binding in moved:
                self._leave(binding)
        changed = self.tree.drop_queue(name) if view is None else self.tree.set_queue(view)
        self._serving.clear()
        for binding in moved:
            self._enter(binding)
        for each in changed:
            self.waiting.limit_changed(each)
        self._refresh_idle()

    def _classes_below(self, node: Node, name: str) -> list[ShapeClass]:
        """Classes of the queues below the node, and of those that name it as their parent."""
        naming = (each for each in self.tree.nodes.values() if each.view is not None and each.view.parent == name)
        below = {each: None for root in (node, *naming) for each in subtree(root)}
        return [group for each in below for group in self.waiting.classes(each).values()]

    def _set_namespace(self, name: str, limits: dict[str, int] | None) -> None:
        known = name in self.namespaces.limits
        if known == (limits is not None):
            self.namespaces.set(name, limits)
            self._refresh_idle()
            return
        # Whether a namespace has limits is part of the shape of what waits in it.
        waiting = [self.bindings[key[2]] for group in self.waiting.all() for key in group.members]
        moved = [binding for binding in waiting if binding.view.namespace == name]
        for binding in moved:
            self._leave(binding)
        self.namespaces.set(name, limits)
        for binding in moved:
            self._enter(binding)

    def _members_changed(self) -> None:
        """A member came, went, or is another one now: every answer that names members may be another one."""
        self._tell_tree_of_members()
        self._serving.clear()
        self._wake_all()

    def _tell_tree_of_members(self) -> None:
        members = self.world.members.values()
        known = {member.name: (member.total(), member.view.labels) for member in members if member.view is not None}
        for node in self.tree.set_members(known):
            self.waiting.limit_changed(node)

    def _serves(self, leaf: Node) -> NDArray[np.bool_] | None:
        """bool[members]: which members the queue may use; None for all."""
        if self._serving_version != self.world.version:
            self._serving.clear()
            self._serving_version = self.world.version
        if leaf not in self._serving:
            mask = np.array([self.tree.serves(leaf, member.name) for member in self.world.order], np.bool_)
            self._serving[leaf] = None if mask.all() else mask
        return self._serving[leaf]

    # -- taking in: bindings -----------------------------------------------------------------------------------------

    def _set_binding(self, view: BindingView) -> None:
        old = self.bindings.get(view.uid)
        if old is not None and behind(view, old):
            # The watch is behind our own decision; keep the newest object for the case that the write is refused.
            old.view = view
            return
        self._observe(view, old)

    def _observe(self, view: BindingView, old: Binding | None) -> None:
        """Go by what was seen, whatever was decided before."""
        phase = phase_of(view)
        told = None
        if phase is Phase.SUSPENDED and view.decision.phase is Phase.SUSPENDED:
            told = Verdict(view.decision.reason, view.decision.blocker)
        if old is not None and old.shape is not None and phase is Phase.SUSPENDED and alike(view, old.view):
            # It waits as before; most often this is the echo of its reason.
            old.view, old.epoch, old.told = view, view.epoch, told
            self.waiting.tell_again(old.leaf, old.shape, old.key, told)
            return
        binding = Binding(
            view,
            view.epoch,
            phase,
            parts_of(view) if phase.charged else {},
            view.gang,
            None,
            order_key(view),
            self.tree.node(view.gang.queue) if view.gang else self.tree.root,
            view.gang.total() if view.gang else {},
            told=told,
        )
        binding.bound = all_bound(binding) or (old is not None and old.bound and old.epoch == view.epoch)
        if phase is Phase.EVICTING and old is not None:
            # What the member has still to let go of.
            binding.parts = old.parts
        stay = self.promises.stay(view.uid)
        if old is not None and _charged_alike(binding, old):
            # Most often the echo of a dispatch, or a report of where its pods are.
            self.bindings[view.uid] = binding
            self._enter_charged(binding, stay)
            self._settle_binding(binding)
            return
        if old is not None:
            self._leave(old)
        self.bindings[view.uid] = binding
        self._enter(binding, stay)

    def _drop_binding(self, uid: str) -> None:
        binding = self.bindings.pop(uid, None)
        if binding is not None:
            self._leave(binding)
            self._untold.pop(uid, None)
            self._impatient.pop(uid, None)
            if self.promises.drop(uid) is not None:
                self._refresh_idle()
            for member in list(self.world.holders.get(uid, ())):
                self.world.forget(member, uid)

    def _refused(self, uid: str, epoch: int) -> None:
        binding = self.bindings.get(uid)
        if binding is None or binding.epoch != epoch:
            return
        # Back to what was last seen; if somebody else decided, the watch is about to say so.
        self._observe(binding.view, binding)

    def _enter(self, binding: Binding, before: Stay | None = None) -> None:
        """File a binding under its phase: waiting, charged, or neither; `before` is where it ran as last known."""
        uid = binding.view.uid
        if binding.wish is None:
            self._untold[uid] = None
        elif binding.phase is Phase.SUSPENDED and binding.gang.hold:
            if differs(binding.told, _HELD):
                self._untold[uid] = None
        elif binding.phase is Phase.SUSPENDED:
            binding.leaf = self.tree.node(binding.gang.queue)
            binding.shape = self._shapes.take(binding.view, self._restricted(binding))
            self.world.enroll(binding.shape)
            self.tree.wait(binding.leaf, binding.shape.request)
            group = self.waiting.add(binding.leaf, binding.shape, binding.key)
            if binding.leaf.view is not None and binding.leaf.view.patience is not None:
                heapq.heappush(self._patience, (to_seconds(binding.key[1]) + binding.leaf.view.patience, uid))
            if group in self._idle:
                # Perhaps it is short enough for the room that is kept for others.
                del self._idle[group]
                self.waiting.refresh(group)
            if group.parked is not None and differs(binding.told, group.parked):
                self.waiting.unsaid[group] = None
        elif binding.phase.charged:
            self._charge(binding)
            self._enter_charged(binding, before)
        self._settle_binding(binding)

    def _enter_charged(self, binding: Binding, before: Stay | None) -> None:
        """File a binding whose charge is right."""
        uid = binding.view.uid
        self._unsettled.pop(uid, None)
        self.promises.enter(uid, self._stay(binding, before))
        self._watch_deadline(binding)
        if binding.phase is Phase.RESERVING or binding.gang.hold:
            self._unsettled[uid] = None

    def _leave(self, binding: Binding) -> None:
        """The inverse of `_enter`."""
        if binding.wish is None:
            return
        if binding.phase.charged:
            self.promises.leave(binding.view.uid)
            self._charge(binding, -1)
            self._unsettled.pop(binding.view.uid, None)
        elif binding.shape is not None:
            self.tree.wait(binding.leaf, binding.shape.request, -1)
            self._stop_waiting(binding, binding.shape)

    def _stop_waiting(self, binding: Binding, shape: Shape) -> None:
        binding.shape = None
        self.waiting.remove(binding.leaf, shape, binding.key)
        if shape.enrolled == 1:
            self._unblock(shape)
        self.world.release(shape)
        self._shapes.drop(shape)

    def _stay(self, binding: Binding, old: Stay | None) -> Stay:
        """Where it runs and until when, as far as that is known."""
        view = binding.view
        start = old.start if old is not None else _dispatched_at(view, self._now)
        parts: dict[str, tuple[Gang, Pods]] = {}
        for name, gang in binding.parts.items():
            member = self.world.members.get(name)
            seen = view.nodes.get(name)
            if seen and member is not None and member.index:
                parts[name] = (gang, where_seen(gang, seen, member.index))
            elif old is not None and name in old.parts:
                parts[name] = old.parts[name]
            else:
                parts[name] = (gang, [])
        return Stay(binding.leaf, binding.amount, start, start + _estimate(binding), parts)

    def _restricted(self, binding: Binding) -> str:
        """What limits the binding apart from its own wishes: part of its shape."""
        namespace = binding.view.namespace if binding.view.namespace in self.namespaces.limits else ""
        queue = binding.leaf.name if self._serves(binding.leaf) is not None else ""
        return f"{queue}/{namespace}" if queue or namespace else ""

    def _charge(self, binding: Binding, times: int = 1) -> None:
        """Charge the binding to its queue and namespace, or take that back."""
        self.tree.charge(binding.leaf, binding.amount, binding.where(), times)
        self.waiting.limits_changed(binding.leaf)
        self.namespaces.charge(binding.view.namespace, binding.amount, times)
        if times < 0 and self._idle:
            self._refresh_idle()

    def _watch_deadline(self, binding: Binding) -> None:
        waiting = binding.phase is Phase.RESERVING or (binding.phase is Phase.BOUND and not binding.bound)
        if waiting and binding.view.decision.deadline:
            binding.deadline = to_seconds(binding.view.decision.deadline)
            heapq.heappush(self._deadlines, (binding.deadline, binding.view.uid))

    def _settle_binding(self, binding: Binding) -> None:
        """Let go of what was assumed in a member once the member's own figures contain it, or once it is over."""
        uid = binding.view.uid
        for member in list(self.world.holders.get(uid, ())):
            if contained(binding, member):
                self.world.forget(member, uid)
        for name in binding.parts:
            member = self.world.member(name)
            if not contained(binding, member):
                self.world.expect(member, uid)
                self._assume_late(binding, member)

    def _settle(self, member: Member) -> None:
        for uid in sorted(member.expected):
            binding = self.bindings.get(uid)
            if binding is None or contained(binding, member):
                self.world.forget(member, uid)
            else:
                self._assume_late(binding, member)

    def _assume_late(self, binding: Binding, member: Member) -> None:
        """Count a part that an earlier leader decided and the member's figures lack, where it would go now."""
        uid = binding.view.uid
        if uid not in member.inflight and member.roots:
            self.world.assume_late(member, uid, binding.parts[member.name])

    def _forgive(self, member: Member) -> None:
        """The member's figures moved on: shapes that were not bound in time there may try it again."""
        for key in [key for key, at in self._avoid.items() if key[1] == member.name and at != member.generation]:
            del self._avoid[key]
            self._wake(key[0])

    # -- waking ------------------------------------------------------------------------------------------------------

    def _wake(self, shape: bytes) -> None:
        self.waiting.wake_shape(shape)

    def _wake_grown(self) -> None:
        """Look again at the shapes for which members have more room, where that may be enough."""
        for name, rows in self.world.take_grown():
            column = self.world.column(name)
            for row in sorted(rows & self._blocked.keys()):
                for shape in list(self._blocked[row]):
                    counts = self.world.counts[list(shape.rows), column]
                    if shape.divided or (counts >= shape.floor).all():
                        self._unblock(shape)
                        self._woken[shape] = None
                        self._wake(shape.key)

    def _sleep_again(self) -> None:
        """Of what was woken, that for which a dispatch took the room sleeps again without being looked at."""
        shapes = list(self._woken)
        if shapes:
            for shape, fits in zip(shapes, self.world.may_fit(shapes), strict=True):
                if not fits:
                    self.waiting.sleep_shape(shape.key)
                    self._block(shape)

    def _wake_all(self) -> None:
        """Look at everything again that was blocked by members."""
        for shape in {shape: None for shapes in self._blocked.values() for shape in shapes}:
            self._wake(shape.key)
        self._blocked.clear()
        self._refresh_idle()

    def _block(self, shape: Shape) -> None:
        self._woken.pop(shape, None)
        for row in shape.rows:
            self._blocked.setdefault(row, {})[shape] = None

    def _unblock(self, shape: Shape) -> None:
        self._woken.pop(shape, None)
        for row in shape.rows:
            shapes = self._blocked.get(row)
            if shapes is not None:
                shapes.pop(shape, None)
                if not shapes:
                    del self._blocked[row]

    def _refresh_idle(self) -> None:
        idle, self._idle = self._idle, {}
        for group in idle:
            if group.members and group.lot is None:
                self.waiting.refresh(group)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _pass(self, now: float) -> list[Command]:
        """1. Take back what was not reserved or bound in time. 2. Commit or release what members answered.
        3. Dispatch while something fits. 4. Say why the rest waits.
        """
        self._explain_tokens = min(EXPLAIN_BURST, self._explain_tokens + max(now - self._now, 0.0) * EXPLAIN_PER_SECOND)
        self._now = now
        self._texts.clear()
        self.world.refresh()
        if self.promises.made or self._patience:
            self._renew_promises()
        commands: list[Command] = [*self._overdue(), *self._settle_answers()]
        self._wake_grown()
        self._unfinished = False
        while (group := self.waiting.first()) is not None:
            if len(commands) >= PASS_LIMIT:
                self._unfinished = True
                return commands
            command = self._examine(group)
            if command is not None:
                commands.append(command)
                self._explain_tokens = min(EXPLAIN_BURST, self._explain_tokens + EXPLAIN_PER_DISPATCH)
                self._sleep_again()
        self._woken.clear()
        commands.extend(self._explanations())
        return commands

    def _examine(self, group: ShapeClass) -> Command | None:
        """Dispatch the first workload of the class, or park the class on what blocks it."""
        binding = self.bindings[group.members[0][2]]
        leaf, shape = group.leaf, group.shape
        standing = self.tree.standing(leaf)
        if standing is not Standing.OPEN:
            self._idle[group] = None
            self.waiting.park_until_told(group, _standing_verdict(leaf, standing))
            return None
        short = self.tree.shortage(leaf, shape.request)
        if short is not None:
            verdict = Verdict(
                Reason.QUOTA_EXCEEDED,
                blocker("Queue", short.node.name, short.resource, short.requested, short.available),
            )
            self.waiting.park_on_limit(group, verdict, short.node, short.resource, short.requested)
            self._keep_room(group)
            return None
        missing = self.namespaces.shortage(binding.view.namespace, shape.request)
        if missing is not None:
            self._idle[group] = None
            self.waiting.park_until_told(
                group, Verdict(Reason.QUOTA_EXCEEDED, blocker("Namespace", binding.view.namespace, *missing))
            )
            return None
        choice = self._choose(group, binding)
        if isinstance(choice, Verdict) and choice.reason is Reason.WOULD_DELAY:
            # What is known to end in time may still pass.
            for key in group.members[1:]:
                other = self.bindings[key[2]]
                if self._now + _estimate(other) + SETTLE <= self.promises.latest_end:
                    second = self._choose(group, other)
                    if not isinstance(second, Verdict):
                        return self._dispatch(other, second)
                    break
        if not isinstance(choice, Verdict):
            return self._dispatch(binding, choice)
        if choice.reason is Reason.WOULD_DELAY:
            self._idle[group] = None
            self.waiting.park_until_told(group, choice)
        else:
            self._block(shape)
            self.waiting.park_on_shape(group, choice)
            self._keep_room(group)
        return None

    def _choose(self, group: ShapeClass, binding: Binding) -> Choice | Verdict:
        shape = group.shape
        avoided = {name for name in self.world.members if (shape.key, name) in self._avoid} if self._avoid else ()
        self.promises.latest_end = -math.inf
        return choose(
            shape,
            binding.gang,
            self.world,
            serving=self._serves(group.leaf),
            avoided=avoided,
            permits=self._permits(binding),
        )

    def _permits(self, binding: Binding) -> Callable[[Choice], bool]:
        """Whether the queue's ceilings in members, and the room that is kept for others, allow a choice."""
        leaf, end = binding.leaf, self._now + _estimate(binding)

        def permits(choice: Choice) -> bool:
            if any(
                self.tree.shortage_in(leaf, member.name, gang.total()) is not None
                for member, gang in zip(choice.members, choice.gangs, strict=True)
            ):
                return False
            if not self.promises.made:
                return True
            broken = self.promises.refuses(binding.view.uid, leaf, binding.amount, choice, end)
            better = [promise for promise in broken if self._goes_before(binding, self.bindings[promise.uid])]
            for promise in better:
                promise.overtaken = True
            return len(better) == len(broken)

        return permits

    def _goes_before(self, binding: Binding, other: Binding) -> bool:
        """Whether room that is kept for another workload does not bind this one: a higher class, or guaranteed."""
        if binding.key[0] != other.key[0]:
            return binding.key[0] < other.key[0]
        return self._below_guarantee(binding.leaf) and not self._below_guarantee(other.leaf)

    def _below_guarantee(self, leaf: Node) -> bool:
        levels = (node for node in path(leaf) if node is not self.tree.root and node.guarantee)
        return any(node.below_guarantee() for node in levels)

    # -- room kept for heads -----------------------------------------------------------------------------------------

    def _keep_room(self, group: ShapeClass) -> None:
        """The first of the class does not go now: keep room for it if it is a head that must not be delayed."""
        leaf, uid = group.leaf, group.members[0][2]
        if uid not in self._impatient:
            if leaf.view is None or leaf.view.strategy is not Strategy.BACKFILL or self.waiting.head(leaf) is not group:
                return
            for other in [p for p in self.promises.made.values() if p.leaf is leaf and p.uid != uid]:
                if other.uid not in self._impatient:
                    self.promises.drop(other.uid)
                    self._refresh_idle()
        known = self.promises.made.get(uid)
        if known is None:
            self._promise(group.shape, self.bindings[uid])

    def _promise(self, shape: Shape, binding: Binding) -> None:
        serving = self._serves(binding.leaf)
        mask = self.world.allowed(shape)[0] & self.world.ready
        if serving is not None:
            mask = mask & serving
        members = [self.world.order[column] for column in np.flatnonzero(mask)]
        self.promises.promise(binding.view.uid, binding.leaf, shape, binding.gang, members, self._now)

    def _renew_promises(self) -> None:
        """Compute times again that have passed, or that nobody knew; what has waited long enough gets one."""
        for promise in list(self.promises.made.values()):
            binding = self.bindings[promise.uid]
            if promise.at < self._now or (promise.at == math.inf and promise.looked + RENEWAL <= self._now):
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
            promise.looked + RENEWAL if promise.at == math.inf else promise.at + RENEWAL
            for promise in self.promises.made.values()
        ]
        return min(times, default=None)

    def _dispatch(self, binding: Binding, choice: Choice) -> Command:
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
        kept = self.promises.drop(view.uid)
        self._impatient.pop(view.uid, None)
        self._stop_waiting(binding, binding.shape)
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
        for member, part, placement in zip(choice.members, choice.gangs, choice.placements, strict=True):
            self.world.assume(member, view.uid, part, placement)
        pods: dict[str, tuple[Gang, Pods]] = {
            member.name: (part, placement.pods)
            for member, part, placement in zip(choice.members, choice.gangs, choice.placements, strict=True)
        }
        self.promises.enter(
            view.uid, Stay(binding.leaf, binding.amount, self._now, self._now + _estimate(binding), pods)
        )
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
                yield self._commit(binding)

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

    def _avoid_member(self, binding: Binding, name: str) -> None:
        """Don't choose this member for the shape again until its capacity changes."""
        member = self.world.members.get(name)
        if member is not None:
            restricted = self._restricted(binding)
            self._avoid[shape_key(binding.view, restricted), name] = member.generation

    def _evict(self, binding: Binding, reason: Reason, text: str, why: Blocker | None = None) -> Command:
        view = binding.view
        self._unsettled.pop(view.uid, None)
        line = Line(self._text(self._now), Phase.EVICTING, reason, text)
        decision = Decision(binding.epoch + 1, Phase.EVICTING, reason, why, story=view.decision.told(line))
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
        unsaid = self.waiting.unsaid
        while unsaid and self._explain_tokens >= 1 and looks:
            group = next(iter(unsaid))
            del unsaid[group]
            verdict = group.parked
            while verdict is not None and group.told < len(group.members) and looks:
                looks -= 1
                binding = self.bindings[group.members[group.told][2]]
                group.told += 1
                if differs(binding.told, verdict):
                    yield self._explain(binding, verdict)
                    break
            if group.told < len(group.members):
                # The first of every class hears before the second of any.
                unsaid[group] = None

    def _explain(self, binding: Binding, verdict: Verdict) -> Command:
        self._explain_tokens -= 1
        binding.told = verdict
        view = binding.view
        line = Line(self._text(self._now), Phase.SUSPENDED, verdict.reason, verdict.sentence())
        decision = Decision(
            binding.epoch, Phase.SUSPENDED, verdict.reason, verdict.blocker, "", view.decision.told(line)
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
            return _HELD
        assert binding.shape is not None, f"{uid} waits without a shape"
        return self.waiting.classes(binding.leaf)[binding.shape.key].parked

    def check(self) -> None:
        """Verify what must always hold; tests call it after every event.

        Raises:
            AssertionError: naming the invariant and the object.
        """
        self.world.refresh()
        invariants.verify(self)


def _charged_alike(binding: Binding, old: Binding) -> bool:
    """Whether two states of a binding cost its queue, its namespace and its members the same."""
    return (
        binding.phase.charged
        and old.phase.charged
        and binding.wish is not None
        and old.wish is not None
        and binding.leaf is old.leaf
        and binding.amount == old.amount
        and binding.parts.keys() == old.parts.keys()
        and (len(binding.parts) == 1 or binding.parts == old.parts)
    )


def _estimate(binding: Binding) -> float:
    """Seconds that it is expected to run; infinite where nobody says."""
    own, view = binding.gang.running_estimate, binding.leaf.view
    if own is not None:
        return own
    return view.estimate if view is not None and view.estimate is not None else math.inf


def _dispatched_at(view: BindingView, now: float) -> float:
    """When it was dispatched, by its story."""
    for line in reversed(view.decision.story):
        if line.phase in (Phase.BOUND, Phase.RESERVING):
            return to_seconds(line.at)
    return now


def _place_of(view: QueueView) -> object:
    """What decides where a queue is in the tree, whom it may use and which of its workloads are looked at."""
    return view.parent, view.members, view.affinity, view.strategy


def _standing_verdict(leaf: Node, standing: Standing) -> Verdict:
    reason = {
        Standing.CLOSED: Reason.QUEUE_CLOSED,
        Standing.MISSING: Reason.QUEUE_NOT_FOUND,
        Standing.INVALID: Reason.QUEUE_INVALID,
        Standing.PARENT: Reason.QUEUE_NOT_LEAF,
    }[standing]
    return Verdict(reason, blocker("Queue", leaf.name, "", 0, 0))


_HELD = Verdict(Reason.HELD)
