"""Queues, namespaces and members as events report them, and their consequences."""

from __future__ import annotations

from atoll.dispatcher.core.backlog.backlog import ShapeClass
from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.backlog.wake_index import MEMBERS, SETTINGS, Cause, Trigger
from atoll.dispatcher.core.events import CapacityView, Circuit, ClusterView, NamespaceView, QueueView
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.quota.queue import Queue, Standing, path, subtree


class Surroundings:
    """Takes in queues, namespaces and members."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.tree, self.waiting, self.members, self.bindings = state.tree, state.waiting, state.members, state.bindings
        self.namespaces, self.reservations, self.wakes = state.namespaces, state.reservations, state.wakes
        self.refusals, self.breakers, self.failures = state.refusals, state.breakers, state.failures

    def set_queue(self, name: str, view: QueueView | None) -> None:
        """A queue was made or changed, or with None deleted."""
        self._queue_changed(name, view)
        self._tell_of_change()

    def _queue_changed(self, name: str, view: QueueView | None) -> None:
        queue = self.tree.queue(name)
        self._state.left[queue] = None
        if queue.view == view:
            return
        if queue.parent is not None:
            self._state.left[queue.parent] = None
        estimated = queue.said.estimate
        moved: list[Binding] = []
        if view is None or queue.view is None or _place_of(view) != _place_of(queue.view):
            moved = [self.bindings[key[2]] for group in self._classes_below(queue, name) for key in group.members]
            moved += [self.bindings[uid] for uid in self._state.outsiders if self.bindings[uid].leaf is queue]
            for binding in moved:
                self._state.leave(binding)
        changed = self.tree.drop_queue(name) if view is None else self.tree.set_queue(view)
        for binding in moved:
            self._state.enter(binding)
        if view is not None and view.estimate != estimated:
            for uid in self._state.charges.of.get(queue, ()):
                self.reservations.timeline.enter(
                    uid, self._state.allocation(self.bindings[uid], self.reservations.timeline.get(uid))
                )
        for each in subtree(queue):
            for uid in self._state.charges.of.get(each, ()):
                self._state.times.watch(self.bindings[uid], self._state.now)
        for group in self.waiting.classes(queue).values():
            group.shortest = 0.0
        for each in changed:
            self.wakes.limits_changed(each)
        for each in (*changed, *path(queue)):
            if self.tree.standing(each) is not Standing.OPEN:
                # It has another reason to wait now.
                for group in list(self.waiting.classes(each).values()):
                    self.waiting.refresh(group)
        self._state.order_flavors()
        self.wakes.fire(SETTINGS)

    def _classes_below(self, queue: Queue, name: str) -> list[ShapeClass]:
        """Classes of the queues below the queue, of queues that name it as their parent, and of queues in a circle of
        parents with it, which hang below each other once it leaves that.
        """
        naming = (each for each in self.tree.queues.values() if each.said.parent == name)
        circle = (self.tree.queues[each] for each in queue.circle)
        below = {each: None for root in (queue, *naming, *circle) for each in subtree(root)}
        return [group for each in below for group in self.waiting.classes(each).values()]

    def set_namespace(self, view: NamespaceView) -> None:
        """A namespace has these labels and limits."""
        before, limited = self.namespaces.view(view.name), self.namespaces.is_limited(view.name)
        if before == view:
            return
        if before.labels != view.labels or limited != bool(view.limits or view.scoped):
            # Whether a namespace has limits is part of the shape of what waits in it; its labels open queues to it.
            self._state.file_again(view.name, lambda: self.namespaces.set(view))
        else:
            self.namespaces.set(view)
        if before.weight != view.weight:
            self._state.fair.weighed(view.name)
        self.wakes.fire(Trigger(Cause.NAMESPACE, view.name))

    def set_cluster(self, view: ClusterView, circuit: Circuit | None) -> None:
        """A Cluster was made or changed."""
        before = self.members.member(view.name).view
        self.breakers.take_over(view.name, circuit)
        if before is not None and before.cordoned and not view.cordoned:
            # Whoever kept work away from it says that it may have some.
            self.breakers.forget(view.name)
            self.refusals.try_again(member=view.name)
        if self.members.set_view(view.name, view):
            self._members_changed()

    def drop_cluster(self, name: str) -> None:
        """It is no member any more."""
        self.breakers.leave(name)
        if self.members.set_view(name, None):
            self._members_changed()

    def _members_changed(self) -> None:
        """A member came, went, or is another one now: every answer that names members may be another one."""
        self._tell_tree_of_members()
        for changed in self._state.on_members:
            changed()
        self.wakes.fire(MEMBERS)
        self.wakes.fire(SETTINGS)

    def set_capacity(self, name: str, root: str, capacity: CapacityView | None) -> None:
        """A member publishes this of one top domain, or nothing any more."""
        member = self.members.member(name)
        before, total = member.generation, member.total()
        self.members.set_root(name, root, capacity)
        self.reservations.timeline.republished(name)
        if member.generation != before:
            for shape in self.failures.moved_on(name):
                self.waiting.wake_shape(shape)
        if member.total() != total:
            self._tell_tree_of_members()
        self._state.assumed.settle_member(member)
        self.wakes.fire(Trigger(Cause.MEMBER, name))

    def _tell_tree_of_members(self) -> None:
        members = self.members.by_name.values()
        known = {member.name: (member.total(), member.view.labels) for member in members if member.view is not None}
        self.tree.set_ceilings({each.name: each.view.ceiling for each in members if each.view and each.view.ceiling})
        for node in self.tree.set_members(known):
            self.wakes.limits_changed(node)
        self._state.order_flavors()
        self._tell_of_change()

    def _tell_of_change(self) -> None:
        for changed in self._state.on_changed:
            changed()


def _place_of(view: QueueView) -> object:
    """Facts that decide a queue's place in the tree, its users, its limits, and how workloads wait."""
    return view.parent, view.members, view.affinity, view.namespaces, view.strategy, view.patience, view.order
