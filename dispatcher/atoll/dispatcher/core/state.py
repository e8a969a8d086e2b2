"""What the core was told, filed so that decisions find it without searching.

Every binding is in one place: it waits in a class of its queue, is charged to its queue and namespace, or is over. What
was decided counts from the decision on; what members and the API server say of it later is compared with that.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.backfill.allocation import Allocation, Pods, placed_as_told, where_seen
from atoll.dispatcher.core.backfill.reservations import Reservations
from atoll.dispatcher.core.backlog.backlog import ShapeClass, Waiting, differs
from atoll.dispatcher.core.backlog.binding import (
    Binding,
    alike,
    all_bound,
    behind,
    charged_alike,
    contained,
    echoes,
    estimate,
    evict_timeout,
    evicted_at,
    gang_of,
    newly_bound,
    order_key,
    overtakes,
    parts_of,
    paused,
    paused_until,
    phase_of,
    ready_by,
    variant_of,
    withheld,
)
from atoll.dispatcher.core.backlog.deadlines import Deadlines
from atoll.dispatcher.core.backlog.wake_index import KEPT, MEMBERS, SETTINGS, Cause, Trigger, WakeIndex, capping
from atoll.dispatcher.core.backlog.wakeups import Wakeups
from atoll.dispatcher.core.capacity.breakers import Breakers
from atoll.dispatcher.core.capacity.failures import Failures
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.pods import as_before, last_pods
from atoll.dispatcher.core.capacity.refusals import Refusals
from atoll.dispatcher.core.capacity.shape import Shape, Shapes, shape_key
from atoll.dispatcher.core.elastic.growth import Sizes, grows_until, keep_size, still_grows
from atoll.dispatcher.core.events import (
    BindingGone,
    BindingSet,
    BindingView,
    CapacityGone,
    CapacitySet,
    CapacityView,
    Circuit,
    ClusterGone,
    ClusterSet,
    ClusterView,
    Event,
    NamespaceGone,
    NamespaceSet,
    NamespaceView,
    QueueGone,
    QueueSet,
    QueueView,
    Refused,
)
from atoll.dispatcher.core.placement import excluding
from atoll.dispatcher.core.quota.namespaces import Namespaces
from atoll.dispatcher.core.quota.queue import Queue, Standing, path, subtree
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model import vector
from atoll.model.decision import Phase
from atoll.model.flavors import Variant
from atoll.model.gang import Gang
from atoll.model.timestamps import to_seconds
from atoll.model.vector import Vector
from atoll.model.verdict import REFUSED, Blocker, Reason, Verdict, reason_of_refusal

NEXT: dict[Phase, tuple[Phase, ...]] = {
    Phase.SUSPENDED: (Phase.RESERVING, Phase.DISPATCHED),
    Phase.RESERVING: (Phase.DISPATCHED, Phase.EVICTING),
    Phase.DISPATCHED: (Phase.EVICTING,),
    Phase.EVICTING: (Phase.LEAVING,),
    Phase.LEAVING: (),
    Phase.FINISHED: (),
}
"""Which phases may be decided on in which. Any phase may be seen: another leader may have decided."""


class IllegalTransition(Exception):
    """A phase was decided that does not follow the one before: a defect of the core. The text tells the story."""

    def __init__(self, binding: Binding, phase: Phase) -> None:
        story = "; ".join(f"{line.at} {line.phase} {line.reason} {line.text}" for line in binding.view.decision.story)
        super().__init__(f"{binding.view.namespace}/{binding.view.name}: {binding.phase} -> {phase}; story: {story}")


class State:
    """Queues, members, bindings, and what waits for what; `tell` is the only way in."""

    def __init__(self, settings: CoreSettings = CoreSettings()) -> None:
        self.settings = settings
        self.tree = Tree()
        self.wakes = WakeIndex()
        self.waiting = Waiting(self.tree, self.wakes)
        self.world = Members(settings.unconfirmed)
        self.wakeups = Wakeups(self.wakes, self.tree, self.waiting, self.world)
        self.namespaces = Namespaces()
        self.reservations = Reservations(self.world, settings.backfill)
        self.refusals = Refusals(settings.refused)
        self.breakers = Breakers(settings.breakers)
        self.failures = Failures(settings.avoided)
        #: of the last pass
        self.now = 0.0
        #: called with what is seen of a binding, and what was known of it, before that is filed
        self.on_seen: list[Callable[[BindingView, Binding | None], None]] = []
        #: called with a binding once it is filed under its phase
        self.on_entered: list[Callable[[Binding], None]] = []
        #: called with a binding and its class once it waits there; once it waits there no more, perhaps the last one
        self.on_waits: list[Callable[[Binding, ShapeClass], None]] = []
        self.on_waits_no_more: list[Callable[[Binding, ShapeClass], None]] = []
        #: called with a binding, and 1 once its queue is charged for it, -1 once it is not any more
        self.on_charged: list[Callable[[Binding, int], None]] = []
        #: called with the UID of a binding that was deleted
        self.on_dropped: list[Callable[[str], None]] = []
        #: called after a queue or a member changed
        self.on_changed: list[Callable[[], None]] = []
        self._shapes = Shapes()
        #: UID -> binding; changed by `put` alone
        self.bindings: dict[str, Binding] = {}
        #: queues that a binding or a queue names no longer, and perhaps none does; until the end of a pass
        self._left: dict[Queue, None] = {}
        #: leaf -> bool[members] that it may use, None for all; of `_serving_version`
        self._serving: dict[Queue, NDArray[np.bool_] | None] = {}
        self._serving_version = -1
        #: leaf -> UIDs of the bindings charged to it
        self.charged: dict[Queue, dict[str, None]] = {}
        #: leaf -> priority -> how many of these have it
        self.priorities: defaultdict[Queue, Counter[int]] = defaultdict(Counter)
        #: UIDs of bindings that were evicted and have not ended
        self.leaving: dict[str, None] = {}
        #: UIDs of bindings in phase Reserving, and of those that run against the user's wish; looked at once
        #: whenever their binding is seen
        self.unsettled: dict[str, None] = {}
        #: (deadline, UID); stale entries are skipped when popped
        self.deadlines: list[tuple[float, str]] = []
        #: when the minimum of bindings that are bound must run
        self.ready_by = Deadlines()
        #: when the pods of bindings in phase Evicting must have gone
        self.gone_by = Deadlines()
        #: UIDs of waiting bindings that leave their flavor open
        self._open: dict[str, None] = {}
        #: UIDs of waiting bindings whose queue is not open to their namespace; these are in no class
        self._outside: dict[str, None] = {}
        #: UIDs of held, paused and unreadable bindings that may not yet say so, oldest first
        self.untold: dict[str, None] = {}
        self.sizes = Sizes(self.wakes)
        #: UIDs of what was to shrink, which was not written: others may have its quota by now
        self.unshrunk: dict[str, None] = {}

    def tell(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case BindingSet(binding):
                self._set_binding(binding)
            case BindingGone(uid):
                self._drop_binding(uid)
            case Refused(uid, epoch, generation):
                self._refused(uid, epoch, generation)
            case QueueSet(view):
                self._set_queue(view.name, view)
                self._tell_of_change()
            case QueueGone(name):
                self._set_queue(name, None)
                self._tell_of_change()
            case NamespaceSet(namespace):
                self._set_namespace(namespace)
            case NamespaceGone(name):
                self._set_namespace(NamespaceView(name))
            case ClusterSet(cluster, circuit):
                self._set_cluster(cluster, circuit)
            case ClusterGone(name):
                self.breakers.leave(name)
                if self.world.set_view(name, None):
                    self._members_changed()
            case CapacitySet(capacity):
                self._set_capacity(capacity.cluster, capacity.root, capacity)
            case CapacityGone(name, root):
                self._set_capacity(name, root, None)

    # -- taking in: queues, namespaces, members ------------------------------------------------------------------------

    def _set_queue(self, name: str, view: QueueView | None) -> None:
        queue = self.tree.queue(name)
        self._left[queue] = None
        if queue.view == view:
            return
        if queue.parent is not None:
            self._left[queue.parent] = None
        estimated = queue.view.estimate if queue.view is not None else None
        moved: list[Binding] = []
        if view is None or queue.view is None or _place_of(view) != _place_of(queue.view):
            moved = [self.bindings[key[2]] for group in self._classes_below(queue, name) for key in group.members]
            moved += [self.bindings[uid] for uid in self._outside if self.bindings[uid].leaf is queue]
            for binding in moved:
                self.leave(binding)
        changed = self.tree.drop_queue(name) if view is None else self.tree.set_queue(view)
        self._serving.clear()
        for binding in moved:
            self.enter(binding)
        if queue.view is not None and queue.view.estimate != estimated:
            for uid in self.charged.get(queue, ()):
                self.reservations.timeline.enter(
                    uid, self._stay(self.bindings[uid], self.reservations.timeline.get(uid))
                )
        for each in subtree(queue):
            for uid in self.charged.get(each, ()):
                self.watch_times(self.bindings[uid])
        for group in self.waiting.classes(queue).values():
            group.shortest = 0.0
        for each in changed:
            self.wakes.limits_changed(each)
        for each in (*changed, *path(queue)):
            if self.tree.standing(each) is not Standing.OPEN:
                # It has another reason to wait now, whatever it waited for.
                for group in list(self.waiting.classes(each).values()):
                    self.waiting.refresh(group)
        self._order_flavors()
        self.wakes.fire(SETTINGS)

    def _classes_below(self, queue: Queue, name: str) -> list[ShapeClass]:
        """Classes of the queues below the queue, of those that name it as their parent, and of those in a circle of
        parents with it, which hang below each other once it leaves that.
        """
        naming = (each for each in self.tree.queues.values() if each.view is not None and each.view.parent == name)
        circle = (self.tree.queues[each] for each in queue.circle)
        below = {each: None for root in (queue, *naming, *circle) for each in subtree(root)}
        return [group for each in below for group in self.waiting.classes(each).values()]

    def _set_namespace(self, view: NamespaceView) -> None:
        known = self.namespaces.is_limited(view.name)
        if self.namespaces.label(view.name, view.labels) or known != bool(view.limits or view.scoped):
            # Whether a namespace has limits is part of the shape of what waits in it; its labels open queues to it.
            self.file_again(view.name, lambda: self.namespaces.set(view))
        else:
            self.namespaces.set(view)
        self.wakes.fire(SETTINGS)

    def _set_cluster(self, view: ClusterView, circuit: Circuit | None) -> None:
        before = self.world.member(view.name).view
        self.breakers.take_over(view.name, circuit)
        if before is not None and before.cordoned and not view.cordoned:
            # Whoever kept work away from it says that it may have some.
            self.breakers.forget(view.name)
            self.refusals.try_again(member=view.name)
        if self.world.set_view(view.name, view):
            self._members_changed()

    def _members_changed(self) -> None:
        """A member came, went, or is another one now: every answer that names members may be another one."""
        self._tell_tree_of_members()
        self._serving.clear()
        self.wakes.fire(MEMBERS)
        self.wakes.fire(SETTINGS)

    def _set_capacity(self, name: str, root: str, capacity: CapacityView | None) -> None:
        member = self.world.member(name)
        before, total = member.generation, member.total()
        if capacity is None:
            self.world.drop_root(name, root)
        else:
            self.world.set_root(capacity)
        self.reservations.timeline.republished(name)
        if member.generation != before:
            for shape in self.failures.moved_on(name):
                self.waiting.wake_shape(shape)
        if member.total() != total:
            self._tell_tree_of_members()
        self._settle(member)
        self.wakes.fire(Trigger(Cause.MEMBER, name))

    def _tell_tree_of_members(self) -> None:
        members = self.world.members.values()
        known = {member.name: (member.total(), member.view.labels) for member in members if member.view is not None}
        self.tree.set_ceilings({each.name: each.view.ceiling for each in members if each.view and each.view.ceiling})
        for node in self.tree.set_members(known):
            self.wakes.limits_changed(node)
        self._order_flavors()
        self._tell_of_change()

    def _tell_of_change(self) -> None:
        for changed in self.on_changed:
            changed()

    def serves(self, leaf: Queue) -> NDArray[np.bool_] | None:
        """bool[members]: which members the queue may use; None for all."""
        if self._serving_version != self.world.version:
            self._serving.clear()
            self._serving_version = self.world.version
        if leaf.serving is None:
            return None
        if leaf not in self._serving:
            mask = np.array([self.tree.serves(leaf, member.name) for member in self.world.order], np.bool_)
            self._serving[leaf] = None if mask.all() else mask
        return self._serving[leaf]

    # -- taking in: bindings -----------------------------------------------------------------------------------------

    def _set_binding(self, view: BindingView) -> None:
        old = self.bindings.get(view.uid)
        if old is not None and behind(view, old) and not overtakes(view, old):
            # The watch is behind our own decision; keep the newest object for the case that the write is refused.
            old.view = view
            return
        self._observe(view, old)

    def _observe(self, view: BindingView, old: Binding | None) -> None:
        """Go by what was seen, whatever was decided before."""
        phase = phase_of(view)
        if old is not None and view.gang and old.view.gang and view.gang.attempt != old.view.gang.attempt:
            self.refusals.try_again(namespace=view.namespace)
            self._wake_namespace(view.namespace)
        for seen in self.on_seen:
            seen(view, old)
        told = None
        if phase in (Phase.SUSPENDED, Phase.DISPATCHED) and phase is view.decision.phase:
            told = None if view.decision.reason in _MOVES else Verdict(view.decision.reason, view.decision.blocker)
        goes_on = phase is Phase.SUSPENDED and self.refusals.deactivated(view) is None
        if goes_on and old is not None and old.shape is not None and alike(view, old.view):
            # It waits as before; most often this is the echo of its reason.
            old.view, old.epoch, old.told = view, view.epoch, told
            self.waiting.tell_again(old.leaf, old.shape, old.key, told)
            return
        if old is not None and echoes(view, old):
            self._confirm(view, old)
            return
        binding = Binding(
            view,
            view.epoch,
            phase,
            parts_of(view) if phase.charged else {},
            view.gang if phase is Phase.SUSPENDED else gang_of(view),
            None,
            order_key(view),
            self._leaf_of(view, phase, old),
            {},
            told=told,
            variants=() if phase is Phase.SUSPENDED else variant_of(view),
        )
        if old is not None and phase is old.phase is Phase.DISPATCHED and view.epoch == old.epoch:
            keep_size(binding, old)
            binding.grows_until = old.grows_until
            if old.resized_at is not None and view.decision.reason is Reason.GROWN:
                # Its member hears of it now.
                binding.grows_until = self.now + self.settings.progress.grow
            if old.resized_at is not None and binding.pods > old.pods:
                self.unshrunk[view.uid] = None
        if old is not None and old.phase.charged and binding.parts and binding.parts == old.parts:
            binding.amount = old.amount
        else:
            binding.amount = vector.total(part.total() for part in binding.parts.values())
        binding.bound = all_bound(binding) or (old is not None and old.bound and old.epoch == view.epoch)
        if old is not None and old.phase.going and not phase.going:
            for name in old.parts:
                self.breakers.removed(name)
        if phase.going and old is not None:
            # What the member has still to remove.
            binding.parts, binding.amount = old.parts, old.amount
        elif phase.charged and not binding.parts and binding.wish is not None:
            binding.amount = _leaving(view, binding.wish)
        stay = self.reservations.timeline.get(view.uid)
        if stay is not None and old is not None and newly_bound(binding, old):
            self._hear(old, stay)
        if old is not None and charged_alike(binding, old):
            # Most often the echo of a dispatch, or a report of where its pods are.
            self.put(view.uid, binding)
            self._enter_charged(binding, stay)
            self.settle_binding(binding)
            for entered in self.on_entered:
                entered(binding)
            return
        if old is not None:
            waits = old.shape
            self.leave(old, view.placed)
            if waits is not None and self.reservations.asks_otherwise(view.uid):
                self.wakes.fire(KEPT)
        self.put(view.uid, binding)
        self.enter(binding, stay)

    def _leaf_of(self, view: BindingView, phase: Phase, old: Binding | None) -> Queue:
        """The queue in which a binding waits; or that it is charged to, which is the same until it was released."""
        stays = phase.going or (old is not None and view.epoch == old.epoch)
        if old is not None and old.wish is not None and old.phase.charged and phase.charged and stays:
            return old.leaf
        return self.tree.queue(view.gang.queue) if view.gang else self.tree.root

    def put(self, uid: str, binding: Binding | None) -> None:
        """File a binding in place of what is known of it; None takes it out."""
        old = self.bindings.get(uid)
        if binding is None:
            self.bindings.pop(uid, None)
        else:
            self.bindings[uid] = binding
            binding.leaf.named += 1
        if old is not None:
            old.leaf.named -= 1
            self._left[old.leaf] = None
        if binding is not None and binding.phase is Phase.EVICTING:
            self.leaving[uid] = None
        else:
            self.leaving.pop(uid, None)
        if binding is None or not binding.phase.charged or binding.phase.going:
            self.breakers.withdrawn(uid)

    def forget_unnamed_queues(self) -> None:
        """Users may name as many queues that there are not as they like: each is known for as long as that."""
        for node in self._left:
            if self.tree.unnamed(node):
                self.waiting.forget(node)
                self.tree.drop_unnamed(node)
                for known in (self.charged, self.priorities, self._serving, self.sizes.spare):
                    known.pop(node, None)
        self._left.clear()

    def _hear(self, binding: Binding, stay: Allocation) -> None:
        """Its members have bound what was sent to them, or it has ended there."""
        for name in binding.parts:
            member = self.world.member(name)
            member.heard_at, member.heard_of = self.now, max(member.heard_of, stay.start)
            self.breakers.bound(name, self.now)
            if self.refusals.accepted(binding.view.namespace, name):
                self._wake_namespace(binding.view.namespace)

    def _confirm(self, view: BindingView, old: Binding) -> None:
        """What was decided is written: all that follows from it is filed already."""
        old.view, old.wish, old.told, old.deadline = view, gang_of(view), None, None
        old.resized_at, old.before, old.grows_until = None, {}, 0.0
        self._watch_deadline(old)
        self._settle_soon(old)

    def _settle_soon(self, binding: Binding) -> None:
        """Have what members answered, and what its user wishes, looked at in the next pass."""
        self.unsettled.pop(binding.view.uid, None)
        if binding.phase is Phase.RESERVING or binding.gang.hold or self.refusing(binding):
            self.unsettled[binding.view.uid] = None

    def _drop_binding(self, uid: str) -> None:
        binding = self.bindings.get(uid)
        if binding is not None:
            self.put(uid, None)
            self.leave(binding)
            self.untold.pop(uid, None)
            for dropped in self.on_dropped:
                dropped(uid)
            if self.reservations.drop(uid):
                self.wakes.fire(KEPT)
            for member in list(self.world.holders.get(uid, ())):
                self.world.forget(member, uid)

    def _refused(self, uid: str, epoch: int, generation: int | None) -> None:
        binding = self.bindings.get(uid)
        if binding is None or binding.epoch != epoch:
            return
        if binding.resized_at is not None and generation is not None and generation != binding.resized_at:
            # Another size was decided on since.
            return
        # Back to what was last seen; if another leader decided, the watch is about to say so.
        self._observe(binding.view, binding)

    def enter(self, binding: Binding, before: Allocation | None = None) -> None:
        """File a binding under its phase: waiting, charged, or neither; `before` is where it ran as last known."""
        uid = binding.view.uid
        if binding.wish is None:
            self.untold[uid] = None
        elif binding.phase is Phase.SUSPENDED and (kept := self.withheld(binding)) is not None:
            if kept.reason is Reason.QUEUE_NOT_OPEN:
                self._outside[uid] = None
            if differs(binding.told, kept):
                self.untold[uid] = None
        elif binding.phase is Phase.SUSPENDED and (until := paused_until(binding.view)) > self.now:
            self.wakes.park(uid, self._pauses_end, (Trigger(Cause.TIME, until),))
            if differs(binding.told, paused(binding.view)):
                self.untold[uid] = None
        elif binding.phase is Phase.SUSPENDED:
            self.refusals.enter(binding.view, self.now)
            binding.shape = self._take_shape(binding)
            binding.amount = binding.shape.request
            self.world.enroll(binding.shape)
            self.tree.wait(binding.leaf, binding.shape.request)
            group = self.waiting.add(binding.leaf, binding.shape, binding.key)
            for waits in self.on_waits:
                waits(binding, group)
            if group in self.wakes:
                # Perhaps it is short enough for the room that is kept for others.
                self.waiting.refresh(group)
            verdict = group.verdict(binding.key)
            if verdict is not None and differs(binding.told, verdict):
                self.waiting.unsaid[group] = None
        elif binding.phase.charged:
            self._charge(binding)
            self._enter_charged(binding, before)
        self.settle_binding(binding)
        for entered in self.on_entered:
            entered(binding)

    def _pauses_end(self, uids: list[str], _: Trigger) -> None:
        for uid in sorted(uids):
            self.wakes.drop(uid)
            self.enter(self.bindings[uid])

    def _take_shape(self, binding: Binding) -> Shape:
        """What it waits for: of several flavors the first of which its queues may have as much as it asks for."""
        view = self.filed_as(binding)
        if view.variants:
            binding.wish, binding.variants = view.gang, view.variants
            self._open[view.uid] = None
        return self._shapes.take(view, self.restricted(binding))

    def filed_as(self, binding: Binding) -> BindingView:
        """Its view, with the flavor first that it would wait for now."""
        view = binding.view
        if not view.variants:
            return view
        variants = self.in_order(binding.leaf, view.variants)
        return replace(view, gang=variants[0].gang, variants=variants)

    def in_order(self, leaf: Queue, variants: Sequence[Variant]) -> tuple[Variant, ...]:
        """The flavors that a workload may get, those first of which its queues may have as much as it asks for."""

        def never(variant: Variant) -> bool:
            request = variant.gang.sized(variant.gang.floor()).total()
            return any(
                amount > queue.limit.get(name, amount) for queue in path(leaf) for name, amount in request.items()
            )

        return tuple(sorted(variants, key=never))

    def _order_flavors(self) -> None:
        """What the queues may have of flavors is more or less than before: some waits for another one now."""
        for uid in list(self._open):
            binding = self.bindings[uid]
            if self.in_order(binding.leaf, binding.view.variants) != binding.variants:
                self.leave(binding)
                self.enter(binding)

    def _enter_charged(self, binding: Binding, before: Allocation | None) -> None:
        """File a binding whose charge is right."""
        self.reservations.timeline.enter(binding.view.uid, self._stay(binding, before))
        self._watch_deadline(binding)
        self.watch_times(binding)
        self.sizes.file(binding)
        self._settle_soon(binding)

    def watch_times(self, binding: Binding) -> None:
        if (when := ready_by(binding, self.settings.progress.regain)) is not None:
            self.ready_by.set(binding.view.uid, when)
        else:
            self.ready_by.drop(binding.view.uid)
        if binding.phase is Phase.EVICTING:
            self.gone_by.set(binding.view.uid, evicted_at(binding, self.now) + evict_timeout(binding.leaf))
        else:
            self.gone_by.drop(binding.view.uid)

    def withheld(self, binding: Binding) -> Verdict | None:
        """Why a workload is not to be tried at all: its user holds it, its queue is not open to its namespace, or
        members refused it too often.
        """
        if binding.gang.hold:
            return withheld(binding.gang)
        return self.outside(binding.leaf, binding.view.namespace) or self.refusals.deactivated(binding.view)

    def outside(self, leaf: Queue, namespace: str) -> Verdict | None:
        """Why a queue takes nothing from a namespace; None where it is open to it, or there is no such queue."""
        if leaf.view is None or leaf.view.namespaces is None:
            return None
        if self.namespaces.selected(namespace, leaf.view.namespaces):
            return None
        return Verdict(Reason.QUEUE_NOT_OPEN, Blocker("Queue", leaf.name))

    def refusing(self, binding: Binding) -> dict[str, str]:
        """Member -> its words, of those that refused something of what is dispatched there and not bound yet."""
        if binding.bound or not binding.phase.charged or binding.phase is Phase.EVICTING:
            return {}
        return {name: words for name, words in binding.view.refused.items() if name in binding.parts}

    def file_again(self, namespace: str, change: Callable[[], None] = lambda: None) -> None:
        """File what waits in this namespace anew after a change of what its shapes depend on."""
        waiting = [self.bindings[key[2]] for group in self.waiting.all() for key in group.members]
        waiting += [self.bindings[uid] for uid in self._outside]
        moved = [binding for binding in waiting if binding.view.namespace == namespace]
        for binding in moved:
            self.leave(binding)
        change()
        for binding in moved:
            self.enter(binding)

    def heed_breakers(self) -> None:
        """Look again at what waits where other members may be tried than before."""
        if self.breakers.moved:
            self.breakers.moved = False
            for namespace in self.breakers.to_mark():
                self.file_again(namespace, partial(self.breakers.mark, namespace))
            self.wakes.fire(MEMBERS)
            self.wakes.fire(KEPT)

    def forget_refusals(self) -> None:
        """Look again at what waited for members that may be tried again."""
        uids, namespaces, forgotten = self.refusals.ended(self.now)
        for uid in uids:
            binding = self.bindings.get(uid)
            if binding is not None and binding.shape is not None:
                self.waiting.wake_shape(binding.shape.key)
        for namespace in namespaces:
            self._wake_namespace(namespace)
        for namespace in forgotten:
            self.file_again(namespace)

    def _wake_namespace(self, namespace: str) -> None:
        for group in list(self.waiting.all()):
            if self.bindings[group.members[0][2]].view.namespace == namespace:
                self.waiting.wake_shape(group.shape.key)

    def leave(self, binding: Binding, placed: Mapping[str, tuple[int, int]] | None = None) -> None:
        """The inverse of `_enter`; `placed` is what was seen of its pods since it was filed."""
        if binding.wish is None:
            return
        self.wakes.drop(binding.view.uid)
        self._open.pop(binding.view.uid, None)
        self._outside.pop(binding.view.uid, None)
        if binding.phase.charged:
            self.ready_by.drop(binding.view.uid)
            self.gone_by.drop(binding.view.uid)
            self.reservations.timeline.leave(binding.view.uid, binding.view.placed if placed is None else placed)
            self._charge(binding, -1)
            self.unsettled.pop(binding.view.uid, None)
            self.sizes.forget(binding)
            if binding.view.decision.reason not in REFUSED:
                for name in binding.parts:
                    if self.refusals.eased(binding.view.namespace, name):
                        self._wake_namespace(binding.view.namespace)
        elif binding.shape is not None:
            self.tree.wait(binding.leaf, binding.shape.request, -1)
            self.stop_waiting(binding, binding.shape)

    def stop_waiting(self, binding: Binding, shape: Shape) -> None:
        binding.shape = None
        left = self.waiting.classes(binding.leaf)[shape.key]
        self.waiting.remove(binding.leaf, shape, binding.key)
        self.refusals.leave(binding.view.uid)
        if shape.enrolled == 1:
            self.wakeups.unblock(shape)
        self.world.release(shape)
        self._shapes.drop(shape)
        for waits_no_more in self.on_waits_no_more:
            waits_no_more(binding, left)

    def _stay(self, binding: Binding, old: Allocation | None) -> Allocation:
        """Where it runs and until when, as far as that is known."""
        view = binding.view
        start = old.start if old is not None else _dispatched_at(view, self.now)
        parts: dict[str, tuple[Gang, Pods]] = {}
        for name, gang in binding.parts.items():
            member = self.world.members.get(name)
            seen = view.nodes.get(name)
            if seen and member is not None and not member.index:
                # A leader that begins is told of all bindings before its first pass.
                self.world.refresh()
            if seen and member is not None and member.index:
                self.renumber_moved()
                told = placed_as_told(gang, view.decision.expected.get(name, ()), member.index)
                before = old.parts[name][1] if old is not None and name in old.parts else ()
                pods = where_seen(gang, seen, member.index, (told, before))
                if old is not None and name in old.parts and gang.min_available < gang.replicas:
                    pods = as_before(pods, old.parts[name][1])
                parts[name] = (gang, pods)
            elif binding.bound and view.placed.get(name, (0, -1))[1] == 0:
                # All that ran has ended; its report that it is over may come later than the room.
                parts[name] = (gang, [])
            elif old is not None and name in old.parts:
                parts[name] = old.parts[name]
            else:
                parts[name] = (gang, [])
        return Allocation(binding.leaf, binding.amount, start, start + estimate(binding), parts, self.settings.backfill)

    def renumber_moved(self) -> None:
        """Nodes of some members have other indices since the world was refreshed."""
        for member, moved in self.world.take_moved():
            self.reservations.renumber(member, moved)
            for uid in self.reservations.timeline.running_in(member):
                # A node may be back on which it was all the time.
                binding = self.bindings[uid]
                if binding.view.nodes.get(member.name):
                    self.reservations.timeline.enter(uid, self._stay(binding, self.reservations.timeline.get(uid)))

    def restricted(self, binding: Binding) -> str:
        """What limits the binding apart from its own wishes: part of its shape."""
        namespace, alone = binding.view.namespace, ""
        marked = (
            self.refusals.is_marked(namespace)
            or self.failures.is_marked(namespace)
            or self.breakers.is_marked(namespace)
        )
        if not self.namespaces.is_limited(namespace) and not marked:
            namespace = ""
        if self.refusals.counted(binding.view):
            # No other is kept out of a member, nor waits, because of what one refused of this.
            alone = binding.view.uid
        # Ceilings of queues name the members that serve them; those of members are for all queues alike.
        limited = binding.leaf.serving is not None
        own = limited and (self.serves(binding.leaf) is not None or capping(binding.leaf) is not None)
        # Which flavor it gets, or waits for, is for its queue's quotas to say.
        own = own or bool(binding.view.variants)
        queue = binding.leaf.name if own else ""
        return f"{queue}/{namespace}/{alone}" if queue or namespace or alone else ""

    def _charge(self, binding: Binding, times: int = 1) -> None:
        """Charge the binding to its queue and namespace, or take that back."""
        self.tree.charge(binding.leaf, binding.amount, binding.where(), times)
        self.wakes.use_changed(binding.leaf)
        self.namespaces.charge(binding.view.namespace, binding.charges(), times)
        self.list_charged(binding, times)
        if times < 0:
            self.wakes.use_fell(binding.leaf)

    def list_charged(self, binding: Binding, times: int = 1) -> None:
        charged = self.charged.setdefault(binding.leaf, {})
        if times > 0:
            charged[binding.view.uid] = None
        else:
            del charged[binding.view.uid]
        counts = self.priorities[binding.leaf]
        priority = -binding.key[0]
        counts[priority] += times
        if not counts[priority]:
            del counts[priority]
        for charged_for in self.on_charged:
            charged_for(binding, times)

    def _watch_deadline(self, binding: Binding) -> None:
        if not binding.view.decision.deadline:
            return
        waiting = binding.phase is Phase.RESERVING or (binding.phase is Phase.DISPATCHED and not binding.bound)
        if waiting or still_grows(binding, self.now):
            binding.deadline = to_seconds(binding.view.decision.deadline) if waiting else grows_until(binding)
            heapq.heappush(self.deadlines, (binding.deadline, binding.view.uid))

    def settle_binding(self, binding: Binding) -> None:
        """Let go of what was assumed in a member once the member's own figures contain it, or once it is over."""
        uid = binding.view.uid
        for member in list(self.world.holders.get(uid, ())):
            if contained(binding, member):
                self.world.forget(member, uid)
        for name in binding.parts:
            member = self.world.member(name)
            if binding.phase is Phase.EVICTING and uid not in member.expected:
                # The figures contain what is leaving.
                continue
            if not contained(binding, member):
                self.world.expect(member, uid)
                self.world.assume_no_more(member, uid, binding.parts[name])
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
            part = binding.parts[member.name]
            if binding.bound and binding.phase is Phase.DISPATCHED:
                # Its last pods, for the first ones are there, unless the figures are older than they are.
                generation, pods = binding.view.placed.get(member.name, (0, 0))
                if generation <= member.generation:
                    part = part.sized(last_pods(part, max(part.replicas - pods, 0)))
            self.world.assume_late(member, uid, part)

    def try_again(self) -> None:
        """Members that failed long enough ago may be tried again; what they failed is forgotten much later."""
        for shape, namespace in self.failures.ended(self.now):
            if namespace:
                self.file_again(namespace)
            else:
                self.waiting.wake_shape(shape)

    def failed(self, binding: Binding, name: str, *, pods: bool = False) -> None:
        """Don't choose this member for the shape again until its capacity changes, or a while has passed.

        Args:
            binding: that failed there.
            name: of the member.
            pods: its pods were there and got no nodes. What keeps them from it may be its namespace's own (a claim, a
                webhook): the member is avoided for that namespace alone.
        """
        if name not in self.world.members:
            return
        namespace = binding.view.namespace
        if pods and self.failures.mark(namespace):
            self.file_again(namespace)
        shape = shape_key(self.filed_as(binding), self.restricted(binding))
        self.failures.failed(shape, name, namespace, binding.view.uid, self.now)

    def avoided(self, binding: Binding, shape: Shape) -> set[str]:
        """The members that failed this shape, or refused this workload, and are not to be tried yet."""
        found = self.breakers.barred(binding.view.namespace)
        found.update(self.refusals.avoided(binding.view), self.failures.of(shape.key))
        return found

    def in_words(self, binding: Binding, shape: Shape, verdict: Verdict) -> Verdict:
        """The verdict on a workload; where members that refused it are all that it could go to, in their words."""
        if verdict.reason is Reason.NO_CLUSTER:
            return excluding.verdict(binding.view, shape, binding.leaf, self.world, self.serves(binding.leaf))
        if verdict.reason is not Reason.AVOIDED:
            return verdict
        refused, given_up = binding.view.decision.refused, self.refusals.given_up(binding.view)
        if refused is not None and given_up:
            usable, serving = np.any(self.world.allowed(shape), axis=0), self.serves(binding.leaf)
            if serving is not None:
                usable = usable & serving
            if given_up.issuperset(self.world.order[column].name for column in np.flatnonzero(usable)):
                return Verdict(Reason.DEACTIVATED, Blocker("Cluster", refused.member, message=refused.message))
        words = next(((name, said) for name, said in self.refusals.avoided(binding.view).items() if said), None)
        if words is None:
            barred = self.breakers.barred(binding.view.namespace)
            usable = np.any(self.world.allowed(shape), axis=0) & self.world.ready if barred else np.zeros(0, np.bool_)
            names = [self.world.order[column].name for column in np.flatnonzero(usable)]
            failing = ", ".join(name for name in names if name in barred)
            return Verdict(Reason.MEMBER_FAILING, Blocker("Cluster", failing)) if failing else verdict
        return Verdict(reason_of_refusal(words[1]), Blocker("Cluster", words[0], message=words[1]))

    def change_phase(self, binding: Binding, phase: Phase) -> None:
        """Decide the next phase of a binding.

        Raises:
            IllegalTransition: it does not follow the one that it is in.
        """
        if phase not in NEXT[binding.phase]:
            raise IllegalTransition(binding, phase)
        binding.phase = phase
        if phase is Phase.EVICTING:
            self.leaving[binding.view.uid] = None


_MOVES = (Reason.SUBMITTED, Reason.DISPATCHED, Reason.GROWN, Reason.SHRUNK)
"""Reasons that say what happened, not what keeps something from happening."""


def _leaving(view: BindingView, wish: Gang) -> Vector:
    """What is charged of something that leaves when it is not known any more with how many pods it was dispatched:
    what it asks for, and more where members report more pods than that.
    """
    amount, more = wish.total(), sum(pods for _, pods in view.placed.values()) - wish.replicas
    if more > 0:
        largest: Vector = {}
        for requests in wish.requests():
            largest = vector.larger(largest, requests)
        vector.add(amount, largest, more)
    return amount


def _dispatched_at(view: BindingView, now: float) -> float:
    """When it was dispatched; where an earlier version wrote that, by its story, which is bounded."""
    if view.decision.dispatched:
        return to_seconds(view.decision.dispatched)
    for line in reversed(view.decision.story):
        if line.reason in (Reason.DISPATCHED, Reason.RESERVING):
            return to_seconds(line.at)
    return now


def _place_of(view: QueueView) -> object:
    """What decides where a queue is in the tree, to whose workloads it is open, what it may use, and how they wait."""
    return view.parent, view.members, view.affinity, view.namespaces, view.strategy, view.patience
