"""Invariants after every event: tests verify all of it, the live dispatcher the sums now and then."""

from __future__ import annotations

from collections import Counter

from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.quota.namespaces import Namespaces
from atoll.dispatcher.core.quota.queue import subtree
from atoll.model import vector
from atoll.model.decision import Phase


def verify(state: State) -> None:
    """All of them.

    Raises:
        AssertionError: naming the invariant and the object.
    """
    state.members.table.check()
    state.waiting.check()
    verify_sums(state)


def verify_sums(state: State) -> None:
    """Quota is the sum of its charges, every binding waits or is charged once, members count only their own: checks
    that cost about as much as there are bindings and queues.

    Raises:
        AssertionError: naming the invariant and the object.
    """
    state.tree.check()
    charged: dict[str, dict[str, int]] = {}
    namespaces = Namespaces()
    pending: set[str] = set()
    named = Counter(binding.leaf for binding in state.bindings.values())
    assert all(state.tree.queues[leaf.name] is leaf for leaf in named), "a binding's queue was forgotten"
    for uid, binding in state.bindings.items():
        if binding.wish is None:
            continue
        if binding.phase.charged:
            vector.add(charged.setdefault(binding.leaf.name, {}), binding.amount)
            namespaces.charge(binding.view.namespace, binding.charges())
            charged_for = vector.total(part.total() for part in binding.charged.values())
            assert not binding.parts or binding.amount == charged_for, f"{uid} is charged other pods than it has"
            # A workload in several members keeps its dispatched size through changes by its user.
            follows = binding.phase is not Phase.EVICTING and len(binding.parts) == 1
            for part in binding.parts.values() if follows else ():
                for task, wished in zip(part.tasks, binding.gang.tasks, strict=True):
                    assert task.replicas <= wished.replicas, f"{uid} has more pods than it asks for"
        elif binding.phase is Phase.SUSPENDED and state.withheld(binding) is None and uid not in state.wakes:
            pending.add(uid)
    for queue in state.tree.queues.values():
        assert queue.named == named[queue], f"queue {queue.name}: {named[queue]} bindings name it, not {queue.named}"
        expected = vector.total(charged.get(each.name, {}) for each in subtree(queue))
        assert expected == queue.used, f"queue {queue.name}: used {queue.used} differs from its charges {expected}"
        groups = [group for each in subtree(queue) for group in state.waiting.classes(each).values()]
        assert queue.waiting == sum(len(group.members) for group in groups), f"queue {queue.name}: counts what waits"
        for group in groups:
            vector.add(expected, group.shape.request, len(group.members))
        assert queue.wanted == expected, f"queue {queue.name}: wanted {queue.wanted}, not {expected}"
    assert state.namespaces.used == namespaces.used, "a namespace's use differs from its charges"
    seen: set[str] = set()
    for group in state.waiting.all():
        assert group.members, f"queue {group.leaf.name}: an empty class"
        assert group.members == sorted(group.members), f"queue {group.leaf.name}: a class out of order"
        for key in group.members:
            binding = state.bindings[key[2]]
            assert key[2] not in seen, f"{key[2]} waits twice"
            assert binding.phase is Phase.SUSPENDED, f"{key[2]} waits in phase {binding.phase}"
            assert binding.gang.queue == group.leaf.name, f"{key[2]} waits in a queue that is not its own"
            seen.add(key[2])
    assert seen == pending, f"suspended bindings that wait nowhere: {sorted(pending - seen)}"
    for member in state.members.by_name.values():
        assert member.inflight.keys() <= member.expected, f"{member.name} counts what it does not expect"
        for uid in member.expected:
            assert member.name in state.bindings[uid].parts, f"{uid} is counted in {member.name} but is not there"
