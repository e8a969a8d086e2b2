"""What must hold after every event; tests verify it, the live dispatcher does not pay for it."""

from __future__ import annotations

from collections.abc import Mapping

from atoll.dispatcher.core.binding import Binding
from atoll.dispatcher.core.members import Member
from atoll.dispatcher.core.queues import Queue
from atoll.model.decision import Phase


def verify(queues: Mapping[str, Queue], members: Mapping[str, Member], bindings: Mapping[str, Binding]) -> None:
    """Quota is the sum of its charges, every binding waits or is charged once, members count only what is theirs.

    Raises:
        AssertionError: naming the invariant and the object.
    """
    for queue in queues.values():
        expected: dict[str, int] = {}
        for uid, amount in queue.charges.items():
            binding = bindings[uid]
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
                waiting = bindings[key[2]]
                assert waiting.phase is Phase.SUSPENDED, f"{key[2]} waits in phase {waiting.phase}"
                assert waiting.queue == queue.name, f"{key[2]} waits in a queue that is not its own"
    waiting_total = sum(len(group.members) for queue in queues.values() for group in queue.classes.values())
    pending = sum(b.phase is Phase.SUSPENDED and b.wish is not None and not b.gang.hold for b in bindings.values())
    assert waiting_total == pending, "a suspended binding waits nowhere or twice"
    charged = sum(len(queue.charges) for queue in queues.values())
    live = sum(b.phase.charged and b.wish is not None for b in bindings.values())
    assert charged == live, "a live binding is not charged, or twice"
    for member in members.values():
        assert member.inflight.keys() <= member.expected, f"{member.name} counts what it does not expect"
        for uid in member.expected:
            assert member.name in bindings[uid].parts, f"{uid} is counted in {member.name} but is not there"
