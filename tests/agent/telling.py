"""What tests of the member's core tell it, and how they read its answers."""

from __future__ import annotations

from typing import TypeVar

from atoll.agent.objects import Node, Pod
from atoll.agent.scheduler.core import Bind, Command, Event, MemberCore, Pass
from atoll.agent.scheduler.core.events import NodeSet, PodGroupSet, PodSet, Whose
from tests.agent.builders import make_group, make_node

C = TypeVar("C")


def core_of(*nodes: Node) -> MemberCore:
    core = MemberCore()
    for node in nodes or (make_node("n"),):
        core.handle(NodeSet(node))
    return core


def gang(core: MemberCore, name: str, *pods: Pod, minimum: int | None = None) -> None:
    core.handle(PodGroupSet(make_group(name, len(pods) if minimum is None else minimum)))
    for pod in pods:
        core.handle(PodSet(pod, Whose.OURS))


def settle(core: MemberCore, now: float = 0.0) -> list[Command]:
    """All commands until nothing is due."""
    commands: list[Command] = []
    while core.due:
        commands += core.handle(Pass(now))
    return commands


def of(kind: type[C], commands: list[Command]) -> list[C]:
    return [each for each in commands if isinstance(each, kind)]


class Placing:
    """A member's core, and the nodes that its pods were bound to."""

    def __init__(self, core: MemberCore | None = None) -> None:
        self.core = core or MemberCore()
        self.bound: dict[str, str] = {}
        self._moment = 0.0

    def handle(self, *events: Event) -> None:
        self._moment += 1
        for event in (*events, Pass(self._moment)):
            for bind in of(Bind, self.core.handle(event)):
                self.bound |= {key: node for key, _, node in bind.pods}
