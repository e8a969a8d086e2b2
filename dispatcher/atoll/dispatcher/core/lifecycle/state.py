"""Where every binding is: it waits in a class of its queue, is charged to its queue and namespace, or is over.

Decisions count at once; later reports of members and the API server are compared with them
(`sightings.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from atoll.dispatcher.core.backfill.allocation import Allocation
from atoll.dispatcher.core.backfill.reservations import Reservations
from atoll.dispatcher.core.backlog.backlog import ShapeClass, Waiting, differs
from atoll.dispatcher.core.backlog.binding import Binding, estimate, paused, replaced_at, withheld
from atoll.dispatcher.core.backlog.fair_order import FairShares
from atoll.dispatcher.core.backlog.wake_index import Cause, Trigger, WakeIndex, capping
from atoll.dispatcher.core.backlog.wakeups import Wakeups
from atoll.dispatcher.core.capacity.breakers import Breakers
from atoll.dispatcher.core.capacity.failures import Failures
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.refusals import Refusals
from atoll.dispatcher.core.capacity.shape import Shape, Shapes, shape_key
from atoll.dispatcher.core.elastic.growth import Sizes
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.groups.neighbours import Neighbours
from atoll.dispatcher.core.groups.together import GangGroups
from atoll.dispatcher.core.lifecycle.assumed import Assumed
from atoll.dispatcher.core.lifecycle.charges import Charges
from atoll.dispatcher.core.lifecycle.exclusions import Exclusions
from atoll.dispatcher.core.lifecycle.phases import follow
from atoll.dispatcher.core.lifecycle.times import Times
from atoll.dispatcher.core.quota.namespaces import Namespaces
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.core.settings import CoreSettings
from atoll.dispatcher.strategies.budget import Strategies
from atoll.fit.pods import Pods, as_before, placed_as_told, where_seen
from atoll.model.decision import Phase
from atoll.model.fairness import Order
from atoll.model.flavors import Variant
from atoll.model.gang import Gang
from atoll.model.policies import ALL_MEMBERS
from atoll.model.timestamps import seconds_or
from atoll.model.verdict import REFUSED, Blocker, Reason, Verdict


class State:
    """What all components share, and where each binding is filed."""

    def __init__(self, settings: CoreSettings = CoreSettings(), strategies: Strategies | None = None) -> None:
        self.settings = settings
        self.strategies = strategies if strategies is not None else Strategies()
        self.tree = Tree()
        self.wakes = WakeIndex()
        self.waiting = Waiting(self.tree, self.wakes)
        self.members = Members(settings.unconfirmed)
        self.wakeups = Wakeups(self.wakes, self.tree, self.waiting, self.members)
        self.namespaces = Namespaces()
        self.reservations = Reservations(self.members, settings.backfill)
        self.refusals = Refusals(settings.refused)
        self.breakers = Breakers(settings.breakers)
        self.failures = Failures(settings.avoided)
        #: of the last pass
        self.now = 0.0
        #: called with the new and the known view of a binding, before the new one is filed
        self.on_seen: list[Callable[[BindingView, Binding | None], None]] = []
        #: called with a binding once it is filed under its phase
        self.on_entered: list[Callable[[Binding], None]] = []
        #: called with a binding and its class once it waits there; once it waits there no more, perhaps the last one
        self.on_waits: list[Callable[[Binding, ShapeClass], None]] = []
        self.on_waits_no_more: list[Callable[[Binding, ShapeClass], None]] = []
        #: called with the UID of a binding that was deleted
        self.on_dropped: list[Callable[[str], None]] = []
        #: called after a queue or a member changed
        self.on_changed: list[Callable[[], None]] = []
        #: called after a member came, went, or is another one now
        self.on_members: list[Callable[[], None]] = []
        self._shapes = Shapes()
        #: UID -> binding; changed by `put` alone
        self.bindings: dict[str, Binding] = {}
        self.charges = Charges(self.tree, self.namespaces, self.wakes)
        self.neighbours = Neighbours(self.bindings, self.waiting)
        self.together = GangGroups(self.bindings, self.waiting)
        for each in (self.neighbours, self.together):
            self.on_entered.append(each.entered)
            self.on_dropped.append(each.dropped)
            self.charges.on_charged.append(each.charged)
        self.exclusions = Exclusions(
            self.members, self.refusals, self.breakers, self.failures, self.neighbours, self.together
        )
        self.assumed = Assumed(self.members, self.bindings)
        self.times = Times(self.bindings, settings.progress.regain)
        #: queues that a binding or a queue names no longer, and perhaps none does; until the end of a pass
        self.left: dict[Queue, None] = {}
        #: UIDs of bindings that were evicted and have not ended
        self.leaving: dict[str, None] = {}
        #: UIDs of bindings in phase Reserving, and of running ones against the user's wish; looked at once
        #: whenever their binding is seen
        self.unsettled: dict[str, None] = {}
        #: UIDs of waiting bindings that leave their flavor open
        self._open: dict[str, None] = {}
        #: UIDs of waiting bindings whose queue does not exist, or is not open to their namespace; these are in no class
        self.outsiders: dict[str, None] = {}
        #: UIDs of held, paused and unreadable bindings that may not yet say so, oldest first
        self.untold: dict[str, None] = {}
        self.sizes = Sizes(self.wakes)
        self.fair = FairShares(
            self.waiting,
            self.namespaces.weight,
            lambda leaf: [
                (self.bindings[uid].view.namespace, self.bindings[uid].amount) for uid in self.charges.of.get(leaf, ())
            ],
            settings.fair.every,
        )
        self.on_waits.append(lambda binding, group: self.fair.waits(binding.view.namespace, group))
        self.on_waits_no_more.append(lambda binding, group: self.fair.waits_no_more(binding.view.namespace, group))
        self.on_changed.append(self.fair.queues_changed)
        self.charges.on_used.append(self.fair.used)
        #: UIDs of workloads whose shrinking was not written: others may have their quota by now
        self.unshrunk: dict[str, None] = {}

    def put(self, uid: str, binding: Binding | None) -> None:
        """File a binding in place of the known one; None takes it out."""
        old = self.bindings.get(uid)
        if binding is None:
            self.bindings.pop(uid, None)
        else:
            self.bindings[uid] = binding
            binding.leaf.named += 1
        if old is not None:
            old.leaf.named -= 1
            self.left[old.leaf] = None
        if binding is not None and binding.phase is Phase.EVICTING:
            self.leaving[uid] = None
        else:
            self.leaving.pop(uid, None)
        if binding is None or not binding.phase.charged or binding.phase.going:
            self.breakers.withdrawn(uid)

    def forget_unnamed_queues(self) -> None:
        """Users may name as many queues that there are not as they like: each is known for as long as that."""
        for node in self.left:
            if self.tree.unnamed(node):
                self.waiting.forget(node)
                self.tree.drop_unnamed(node)
                self.charges.forget(node)
                self.sizes.spare.pop(node, None)
        self.left.clear()

    def settle_soon(self, binding: Binding) -> None:
        """Look at members' answers and its user's wishes in the next pass."""
        self.unsettled.pop(binding.view.uid, None)
        if binding.phase is Phase.RESERVING or binding.gang.hold or self.refusing(binding):
            self.unsettled[binding.view.uid] = None
        anew = replaced_at(binding.view)
        if anew is not None and anew > self.now:
            self.wakes.park(("anew", binding.view.uid), self._anew, (Trigger(Cause.TIME, anew),))
        elif anew is not None:
            self.unsettled[binding.view.uid] = None

    def _anew(self, items: list[tuple[str, str]], _: Trigger) -> None:
        """The times for a new placement of these have come."""
        for item in items:
            self.wakes.drop(item)
            binding = self.bindings.get(item[1])
            if binding is not None and binding.phase.charged and binding.wish is not None:
                self.settle_soon(binding)

    def enter(self, binding: Binding, before: Allocation | None = None, *, charged: bool = False) -> None:
        """File a binding under its phase: waiting, charged, or neither; `before` is where it ran as last known;
        `charged`: its charge is right.
        """
        uid = binding.view.uid
        if binding.wish is None:
            self.untold[uid] = None
        elif binding.phase is Phase.SUSPENDED and (kept := self.withheld(binding)) is not None:
            if kept.reason in (Reason.QUEUE_NOT_OPEN, Reason.QUEUE_NOT_FOUND):
                self.outsiders[uid] = None
            if differs(binding.told, kept):
                self.untold[uid] = None
        elif (
            binding.phase is Phase.SUSPENDED and (until := seconds_or(binding.view.decision.not_before, 0.0)) > self.now
        ):
            self.wakes.park(uid, self._pauses_end, (Trigger(Cause.TIME, until),))
            if differs(binding.told, paused(binding.view)):
                self.untold[uid] = None
        elif binding.phase is Phase.SUSPENDED:
            self.refusals.enter(binding.view, self.now)
            binding.shape = self._take_shape(binding)
            binding.amount = binding.shape.request
            self.members.enroll(binding.shape)
            self.tree.wait(binding.leaf, binding.shape.request)
            group = self.waiting.add(binding.leaf, binding.shape, binding.key)
            for waits in self.on_waits:
                waits(binding, group)
            if group.lot is None and group in self.wakes:
                # Perhaps it is short enough for a gap before others' reservations.
                self.waiting.refresh(group)
            verdict = group.verdict(binding.key)
            if verdict is not None and differs(binding.told, verdict):
                self.waiting.unsaid[group] = None
        elif binding.phase.charged:
            if not charged:
                self.charges.charge(binding)
            self.reservations.timeline.enter(uid, self.allocation(binding, before))
            self.times.watch_deadline(binding, self.now)
            self.times.watch(binding, self.now)
            self.sizes.file(binding)
            self.settle_soon(binding)
        self.assumed.settle(binding)
        for entered in self.on_entered:
            entered(binding)

    def _pauses_end(self, uids: list[str], _: Trigger) -> None:
        for uid in sorted(uids):
            self.wakes.drop(uid)
            self.enter(self.bindings[uid])

    def _take_shape(self, binding: Binding) -> Shape:
        """Shape to wait with: the first flavor within the limits of its queues."""
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

    def order_flavors(self) -> None:
        """What the queues may have of flavors is more or less than before: some waits for another one now."""
        for uid in list(self._open):
            binding = self.bindings[uid]
            if self.in_order(binding.leaf, binding.view.variants) != binding.variants:
                self.leave(binding)
                self.enter(binding)

    def withheld(self, binding: Binding) -> Verdict | None:
        """Why a workload is not to be tried at all: its user holds it, its queue does not exist or is not open to its
        namespace, or members refused it too often.
        """
        if binding.gang.hold:
            return withheld(binding.gang)
        if ALL_MEMBERS in binding.gang.suspended:
            return Verdict(Reason.POLICY_SUSPENDED)
        return self.outside(binding.leaf, binding.view.namespace) or self.refusals.deactivated(binding.view)

    def outside(self, leaf: Queue, namespace: str) -> Verdict | None:
        """Why a queue takes nothing from a namespace; None where it is open to it."""
        if leaf.view is None and leaf is not self.tree.root:
            return Verdict(Reason.QUEUE_NOT_FOUND, Blocker("Queue", leaf.name))
        selector = leaf.said.namespaces
        if selector is None or self.namespaces.selected(namespace, selector):
            return None
        return Verdict(Reason.QUEUE_NOT_OPEN, Blocker("Queue", leaf.name))

    def refusing(self, binding: Binding) -> dict[str, str]:
        """Member -> its words, of members that refused a part dispatched there and not bound yet."""
        if binding.bound or not binding.phase.charged or binding.phase is Phase.EVICTING:
            return {}
        return {name: words for name, words in binding.view.refused.items() if name in binding.parts}

    def file_again(self, scope: str, change: Callable[[], None] = lambda: None) -> None:
        """File waiting workloads of this namespace or kind anew after a change that their shapes depend on."""
        waiting = [self.bindings[key[2]] for group in self.waiting.all() for key in group.members]
        waiting += [self.bindings[uid] for uid in self.outsiders]
        moved = [binding for binding in waiting if scope in (binding.view.namespace, binding.view.kind)]
        for binding in moved:
            self.leave(binding)
        change()
        for binding in moved:
            self.enter(binding)

    def wake_namespace(self, namespace: str) -> None:
        for group in list(self.waiting.all()):
            if self.bindings[group.members[0][2]].view.namespace == namespace:
                self.waiting.wake_shape(group.shape.key)

    def leave(self, binding: Binding, placed: Mapping[str, tuple[int, int]] | None = None) -> None:
        """The inverse of `_enter`; `placed` is the observed state of its pods since it was filed."""
        if binding.wish is None:
            return
        self.wakes.drop(binding.view.uid)
        self._open.pop(binding.view.uid, None)
        self.outsiders.pop(binding.view.uid, None)
        if binding.phase.charged:
            self.times.forget(binding.view.uid)
            self.reservations.timeline.leave(binding.view.uid, binding.view.placed if placed is None else placed)
            self.charges.charge(binding, -1)
            self.unsettled.pop(binding.view.uid, None)
            self.sizes.forget(binding)
            if binding.view.decision.reason not in REFUSED:
                for name in binding.parts:
                    if self.refusals.eased(binding.view.namespace, name):
                        self.wake_namespace(binding.view.namespace)
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
        self.members.release(shape)
        self._shapes.drop(shape)
        for waits_no_more in self.on_waits_no_more:
            waits_no_more(binding, left)

    def allocation(self, binding: Binding, old: Allocation | None) -> Allocation:
        """Where it runs and until when, as far as that is known."""
        view = binding.view
        # Where nothing is written of its dispatch yet, it was a moment ago.
        start = old.start if old is not None else seconds_or(view.decision.dispatched, self.now)
        parts: dict[str, tuple[Gang, Pods]] = {}
        for name, gang in binding.parts.items():
            member = self.members.by_name.get(name)
            seen = view.nodes.get(name)
            if seen and member is not None and not member.index:
                # A leader that begins gets all bindings before its first pass.
                self.members.refresh()
            if seen and member is not None and member.index:
                self.renumber_moved()
                told = placed_as_told(gang, view.decision.expected.get(name, ()), member.index)
                before = old.parts[name][1] if old is not None and name in old.parts else ()
                pods = where_seen(gang, seen, member.index, (told, before))
                if old is not None and name in old.parts and gang.min_available < gang.replicas:
                    pods = as_before(pods, old.parts[name][1])
                parts[name] = (gang, pods)
            elif binding.bound and view.placed.get(name, (0, -1))[1] == 0:
                # All that ran has ended; its report that it is over may come later than the capacity.
                parts[name] = (gang, [])
            elif old is not None and name in old.parts:
                parts[name] = old.parts[name]
            else:
                parts[name] = (gang, [])
        return Allocation(
            binding.leaf,
            binding.amount,
            start,
            start + estimate(binding),
            parts,
            self.settings.backfill,
            binding.where(),
        )

    def renumber_moved(self) -> None:
        """Nodes of some members have other indices since their figures were refreshed."""
        for member, moved in self.members.table.take_moved():
            self.reservations.renumber(member, moved)
            for uid in self.reservations.timeline.running_in(member):
                # A node may be back on which it was all the time.
                binding = self.bindings[uid]
                if binding.view.nodes.get(member.name):
                    self.reservations.timeline.enter(uid, self.allocation(binding, self.reservations.timeline.get(uid)))

    def restricted(self, binding: Binding) -> str:
        """What limits the binding apart from its own wishes: part of its shape."""
        namespace, alone = binding.view.namespace, ""
        marked = (
            self.refusals.is_marked(namespace)
            or self.failures.is_marked(namespace)
            or self.breakers.is_marked(namespace)
        )
        if self.breakers.is_marked(binding.view.kind):
            alone = binding.view.kind
        ordered = binding.leaf.said.order is Order.FAIR_NAMESPACES
        if not self.namespaces.is_limited(namespace) and not marked and not ordered:
            namespace = ""
        if self.refusals.counted(binding.view):
            # No other is kept out of a member, nor waits, because of what one refused of this.
            alone = binding.view.uid
        elif binding.gang.together is not None:
            # Whether one of its gang group starts is no matter of its shape alone.
            namespace, alone = binding.view.namespace, f"{alone} {binding.gang.together.group}".strip()
        if near := f"{binding.gang.follows} {binding.gang.avoids}".strip():
            namespace, alone = binding.view.namespace, f"{alone} {near}"
        # Ceilings of queues name the members that serve them; ceilings of members are for all queues alike.
        limited = binding.leaf.serving is not None
        own = limited and (self.exclusions.serves(binding.leaf) is not None or capping(binding.leaf) is not None)
        # Which flavor it gets, or waits for, is for its queue's quotas to say.
        own = own or bool(binding.view.variants)
        queue = binding.leaf.name if own else ""
        return f"{queue}/{namespace}/{alone}" if queue or namespace or alone else ""

    def change_phase(self, binding: Binding, phase: Phase) -> None:
        """Decide the next phase of a binding.

        Raises:
            IllegalTransition: it does not follow the one that it is in.
        """
        follow(binding, phase)
        if phase is Phase.EVICTING:
            self.leaving[binding.view.uid] = None

    def failed(self, binding: Binding, name: str, *, pods: bool = False, words: str = "") -> None:
        """Don't choose this member for the shape again until its capacity changes, or a while has passed.

        Args:
            binding: that failed there.
            name: of the member.
            pods: its pods were there and got no nodes. What keeps them from it may be its namespace's own (a claim, a
                webhook): the member is avoided for that namespace alone.
            words: of the member, on why.
        """
        if name not in self.members.by_name:
            return
        namespace = binding.view.namespace
        if pods and self.failures.mark(namespace):
            self.file_again(namespace)
        shape = shape_key(self.filed_as(binding), self.restricted(binding))
        self.failures.failed(shape, name, namespace, binding.view.uid, self.now, words)
