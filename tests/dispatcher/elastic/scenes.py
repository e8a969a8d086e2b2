"""Scenes that several tests begin with."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from atoll.dispatcher.core import Command, Dispatch, Resize
from tests.dispatcher.builders import (
    NEVER,
    BindingBuilder,
    Scene,
    make_binding,
    make_capacity,
    scene,
)


def elastic(name: str, least: int, most: int, **more: int) -> BindingBuilder:
    return make_binding(name).tasks(most, minimum=least, **more)


def started(commands: Iterable[Command], name: str) -> int:
    """Pods that it is dispatched with."""
    [command] = [c for c in commands if isinstance(c, Dispatch) and c.name == name]
    return sum(part.pods for part in command.parts)


def resized(commands: Iterable[Command]) -> dict[str, int]:
    return {c.name: sum(part.pods for part in c.parts) for c in commands if isinstance(c, Resize)}


def runs(s: Scene, name: str, *, generation: int = NEVER) -> None:
    """All pods that it was given are on nodes."""
    [(_, counts)] = s.view(name).parts
    s.bound(name, generation=generation, pods=sum(counts))


def scale(s: Scene, name: str, most: int, least: int | None = None) -> None:
    """Its user asks for another number of pods."""
    view = s.view(name)
    assert view.gang is not None
    [task] = view.gang.tasks
    floor = most if least is None else least
    task = msgspec.structs.replace(task, replicas=most, min_available=floor)
    wish = msgspec.structs.replace(view.gang, tasks=[task], min_available=floor)
    s.change(name, gang=wish, generation=view.generation + 1)


def crowded(priority: int = 0) -> Scene:
    """`a` runs with 3 of 6 pods beside `other` of 5; all is bound and part of the figures that follow."""
    s = scene()
    s.submit(make_binding("other").tasks(5).priority(1), elastic("a", 2, 6).priority(priority))
    assert started(s.run(), "a") == 3
    for name in ("a", "other"):
        runs(s, name, generation=2)
    s.tell(make_capacity("m", [0], generation=2))
    assert resized(s.run()) == {}
    return s
