"""The dispatcher's decisions as a pure state machine: `Dispatcher.handle(event) -> list[Command]`.

The same object runs in the live dispatcher, the simulator, the property tests and the benchmarks.
"""

from __future__ import annotations

from atoll.dispatcher.core.commands import Ask, Command, Commit, Dispatch, Evict, Explain, Part, Resize
from atoll.dispatcher.core.dispatcher import Dispatcher
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
    NamespaceGone,
    NamespaceSet,
    NamespaceView,
    Pass,
    QueueGone,
    QueueSet,
    QueueView,
    Refused,
    Reservation,
    Strategy,
)

__all__ = [
    "Ask",
    "BindingGone",
    "BindingSet",
    "BindingView",
    "CapacityGone",
    "CapacitySet",
    "CapacityView",
    "Ceiling",
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
    "NamespaceGone",
    "NamespaceSet",
    "NamespaceView",
    "Part",
    "Pass",
    "QueueGone",
    "QueueSet",
    "QueueView",
    "Refused",
    "Reservation",
    "Resize",
    "Strategy",
]
