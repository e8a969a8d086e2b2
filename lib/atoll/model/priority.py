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

    @property
    def preempts(self) -> bool:
        """Whether others may be evicted for its workloads."""
        return self.preemption_policy != "Never"


decode_priority_class = msgspec.json.Decoder(PriorityClassObject).decode


_NO_CLASS = PriorityClassObject()


def class_of(name: str, classes: Iterable[PriorityClassObject]) -> PriorityClassObject:
    """The class of this name; the global default where there is none, else one of value 0."""
    default = _NO_CLASS
    for each in classes:
        if name and each.metadata.name == name:
            return each
        if each.global_default and default is _NO_CLASS:
            default = each
    return default


def default_class(classes: Iterable[PriorityClassObject]) -> str:
    """Name of the class of pods that name none; empty where there is none."""
    return next((each.metadata.name for each in classes if each.global_default), "")
