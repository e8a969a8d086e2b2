"""Scenes in which a member is asked before anybody is evicted."""

from __future__ import annotations

from atoll.dispatcher.core import Ask, Command, Strategy
from tests.dispatcher.builders import (
    LATE,
    NEVER,
    OLD,
    BindingBuilder,
    Scene,
    evicted,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
)


def asked(commands: list[Command]) -> dict[str, Ask]:
    return {c.name: c for c in commands if isinstance(c, Ask)}


def step(s: Scene, *, after: float = 0.001) -> list[Command]:
    """A pass whose commands are written; nobody answers."""
    commands = s.decide(after=after)
    s.write(*commands)
    return commands


def question(
    *running: BindingBuilder,
    claimant: BindingBuilder | None = None,
    members: tuple[str, ...] = ("m",),
    strategy: Strategy = Strategy.TRAVERSE,
) -> Scene:
    """Members of 8 GPUs are full; `high` is asked about, and that is written."""
    s = Scene(make_queue("q", view={"strategy": strategy}))
    for name in members:
        s.tell(make_cluster(name), make_capacity(name, [4, 4]))
    s.submit(*(running or (make_binding("low").tasks(8),)))
    for binding in names(s.run()):
        s.bound(binding, generation=NEVER)
    s.now += OLD
    s.submit(claimant or make_binding("high").tasks(8).priority(1).submitted(LATE))
    commands = step(s)
    assert [*asked(commands)] == ["high"]
    assert evicted(commands) == []
    return s


def open_questions(s: Scene) -> list[str]:
    return [view.name for view in s.views.values() if view.decision.question is not None]
