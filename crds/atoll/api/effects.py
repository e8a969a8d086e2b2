"""Which fields that users write have no effect in Atoll, and what happens instead.

They are in the models because upstream's manifests have them. The webhook warns of them, and the API reference says so;
a field leaves this table in the change that makes it act.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Idle:
    """A field without effect."""

    path: str
    """As in the API reference: `spec.tasks[].dependsOn`."""
    instead: str
    """What happens, as a sentence without a full stop."""
    only: tuple[Any, ...] = ()
    """The values that have none, where others act; empty for any."""
    unless: tuple[Any, ...] = ()
    """Values that ask for what happens anyway."""

    def asks(self, value: object) -> bool:
        """Whether whoever wrote this value expects something that does not happen."""
        if value is None or value in ([], {}, "", False):
            return False
        return value not in self.unless and (not self.only or value in self.only)


_POLICY: Final = (
    Idle(
        "spec.schedulerName",
        "Atoll places every workload of the namespaces that opted in",
        unless=("atoll", "default-scheduler"),
    ),
    Idle(
        "spec.failover.application.purgeMode",
        "services alone have two copies meanwhile: what ends by itself goes first; with Never nothing is moved",
        only=("Gracefully", "Graciously", "Never"),
    ),
    Idle(
        "spec.failover.cluster.purgeMode",
        "services alone have two copies meanwhile, and not when a member is lost",
        only=("Gracefully", "Graciously", "Never"),
    ),
    Idle(
        "spec.schedulePriority.priorityClassSource",
        "the priority is that of the workload's own PriorityClass",
        unless=("KubePriorityClass", "PodPriorityClass"),
    ),
)

WITHOUT_EFFECT: Final[Mapping[str, tuple[Idle, ...]]] = {
    "Queue": (
        Idle("spec.affinity", "node groups are not looked at"),
        Idle("spec.type", "it says nothing to the dispatcher"),
        Idle("spec.extendClusters[].weight", "work goes where it fits", unless=(1,)),
    ),
    "PropagationPolicy": _POLICY,
    "ClusterPropagationPolicy": _POLICY,
}
"""Kind -> its fields, each once, in the order of the model."""


@dataclass(frozen=True)
class Found:
    """A field of an object that has no effect."""

    path: str
    """With indices: `spec.tasks[0].dependsOn`."""
    instead: str


def without_effect(kind: str, obj: Json) -> list[Found]:
    """What of an object its user expects something from that does not happen, in the order of `WITHOUT_EFFECT`."""
    return [
        Found(path, idle.instead)
        for idle in WITHOUT_EFFECT.get(kind, ())
        for path, value in _values(obj, _steps(idle.path), "")
        if idle.asks(value)
    ]


@cache
def _steps(path: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^.\[\]]+|\[\]", path))


def _values(value: object, steps: tuple[str, ...], path: str) -> Iterator[tuple[str, object]]:
    if not steps:
        yield path, value
    elif steps[0] == "[]":
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _values(item, steps[1:], f"{path}[{index}]")
    elif isinstance(value, Mapping) and steps[0] in value:
        yield from _values(value[steps[0]], steps[1:], f"{path}.{steps[0]}" if path else steps[0])
