"""PriorityClasses as the host's processes read them, and the priority of a workload."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from atoll.model.objects import Slim


class PriorityClassObject(Slim, frozen=True, rename="camel"):
    """A PriorityClass."""

    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None


decode_priority_class = msgspec.json.Decoder(PriorityClassObject).decode


def priority_of(name: str, classes: Iterable[PriorityClassObject]) -> int:
    """The value of the class of this name; of the global default where there is none, else 0."""
    default = 0
    for each in classes:
        if name and each.metadata.name == name:
            return each.value
        if each.global_default and not default:
            default = each.value
    return default


def default_class(classes: Iterable[PriorityClassObject]) -> str:
    """Name of the class of pods that name none; empty where there is none."""
    return next((each.metadata.name for each in classes if each.global_default), "")
