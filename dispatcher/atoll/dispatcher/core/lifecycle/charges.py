"""Charges to the queue and the namespace of each binding, and the charged bindings."""

from __future__ import annotations

from collections.abc import Callable

from atoll.dispatcher.core.backlog.backlog import ShapeClass
from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.backlog.wake_index import Cause, Trigger, WakeIndex
from atoll.dispatcher.core.quota.namespaces import Namespaces
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.quota.tree import Tree
from atoll.model import vector
from atoll.model.gang import Gang
from atoll.model.vector import Vector


class Charges:
    """Charges and releases."""

    def __init__(self, tree: Tree, namespaces: Namespaces, wakes: WakeIndex) -> None:
        self.tree, self.namespaces, self.wakes = tree, namespaces, wakes
        #: leaf -> UIDs of the bindings charged to it
        self.of: dict[Queue, dict[str, None]] = {}
        #: leaf -> priority -> how many of these have it
        self.priorities: dict[Queue, dict[int, int]] = {}
        #: called with a queue, a namespace, an amount, and how many times the queue is charged for that now
        self.on_used: list[Callable[[Queue, str, Vector, int], None]] = []
        #: called with a binding, and 1 once its queue is charged for it, -1 once it is not any more
        self.on_charged: list[Callable[[Binding, int], None]] = []

    def forget(self, leaf: Queue) -> None:
        """The queue is known no more."""
        self.of.pop(leaf, None)
        self.priorities.pop(leaf, None)

    def start(self, binding: Binding) -> None:
        """What waited is dispatched."""
        self.tree.start(binding.leaf, binding.amount, binding.where())
        self._count(binding, 1)

    def resize(self, binding: Binding, parts: dict[str, Gang]) -> None:
        """What runs has another size in its member, or goes on without some of its parts."""
        amount, before = binding.amount, binding.where()
        self.namespaces.charge(binding.view.namespace, binding.charges(), -1)
        binding.before = binding.parts
        binding.charge(parts)
        more = dict(binding.amount)
        vector.add(more, amount, -1)
        where = {name: dict(part) for name, part in binding.where().items()}
        vector.add_each(where, before, -1)
        self.tree.charge(binding.leaf, more, where)
        for used in self.on_used:
            used(binding.leaf, binding.view.namespace, more, 1)
        self.namespaces.charge(binding.view.namespace, binding.charges())
        if any(amount < 0 for amount in more.values()):
            self._namespace_eased(binding.view.namespace)
        self.wakes.use_changed(binding.leaf)

    def _namespace_eased(self, name: str) -> None:
        def enough(item: ShapeClass | str) -> bool:
            # What runs and wants more takes any part of that.
            if not isinstance(item, ShapeClass) or item.shape.gang.together is not None:
                return True
            return self.namespaces.shortage(name, item.shape.charges) is None

        self.wakes.fire(Trigger(Cause.NAMESPACE, name), enough)

    def charge(self, binding: Binding, times: int = 1) -> None:
        """Charge the binding to its queue and namespace, or take that back."""
        self.tree.charge(binding.leaf, binding.amount, binding.where(), times)
        self._count(binding, times)
        if times < 0:
            self.wakes.use_fell(binding.leaf)

    def _count(self, binding: Binding, times: int) -> None:
        """What follows once its queue was charged for it so often."""
        self.wakes.use_changed(binding.leaf)
        self.namespaces.charge(binding.view.namespace, binding.charges(), times)
        if times < 0:
            self._namespace_eased(binding.view.namespace)
        charged = self.of.setdefault(binding.leaf, {})
        if times > 0:
            charged[binding.view.uid] = None
        else:
            del charged[binding.view.uid]
        vector.add(self.priorities.setdefault(binding.leaf, {}), {-binding.key[0]: times})
        for used in self.on_used:
            used(binding.leaf, binding.view.namespace, binding.amount, times)
        for charged_for in self.on_charged:
            charged_for(binding, times)
