"""The dispatcher's decisions as a pure state machine: `Dispatcher.handle(event) -> list[Command]`.

The same object runs in the live dispatcher, the simulator, the property tests and the benchmarks.

- Events state facts: each carries the whole object, in any order, and may be repeated. A new leader reports
  all queues, namespaces, members, capacities and bindings before the first `Pass`; none of them has an answer.
- Only `Pass(now)` decides, and only it carries the time. One is due after events, and at `next_deadline`.
- Each command is one patch of one binding, guarded by the epoch and generation that it was decided on. It counts from
  the decision on; the watch says so later, and a successful write needs no event.
- A refused write is event `Refused`; the core goes back to its last observation.
- The rest of the program reads no more than `commands`, `changes` (of the last pass), `verdict`, `reasons`,
  `next_deadline`, and the public figures of `tree`, `bindings` and `breakers`; it changes and drains nothing. Who
  needs more, as `atoll.dispatcher.explain` does, asks the components. `check` and `check_sums` verify facts that must
  always hold.

Each folder is one subject: `quota`, `capacity`, `placement`, `backlog`, `backfill`, `elastic`, `preemption`; the
modules that each may import is a contract in pyproject.toml. `state` is where each binding is filed; `surroundings` and
`sightings` take events in; `dispatcher` is the steps of a pass.
"""

from __future__ import annotations

from atoll.dispatcher.core.commands import Ask, Command, Commit, Dispatch, Evict, Explain, Nominate, Part, Resize
from atoll.dispatcher.core.dispatcher import Changes, Dispatcher
from atoll.dispatcher.core.events import (
    BindingGone,
    BindingSet,
    BindingView,
    CapacityGone,
    CapacitySet,
    CapacityView,
    Ceiling,
    ClusterGone,
    ClusterSet,
    ClusterView,
    Event,
    MemberAnswer,
    NamespaceGone,
    NamespaceSet,
    NamespaceView,
    Pass,
    QueueGone,
    QueueSet,
    QueueView,
    Refused,
)
from atoll.model.fairness import Order
from atoll.model.queues import Strategy

__all__ = [
    "Ask",
    "BindingGone",
    "BindingSet",
    "BindingView",
    "CapacityGone",
    "CapacitySet",
    "CapacityView",
    "Ceiling",
    "Changes",
    "ClusterGone",
    "ClusterSet",
    "ClusterView",
    "Command",
    "Commit",
    "Dispatch",
    "Dispatcher",
    "Event",
    "Evict",
    "Explain",
    "MemberAnswer",
    "NamespaceGone",
    "NamespaceSet",
    "NamespaceView",
    "Nominate",
    "Order",
    "Part",
    "Pass",
    "QueueGone",
    "QueueSet",
    "QueueView",
    "Refused",
    "Resize",
    "Strategy",
]
