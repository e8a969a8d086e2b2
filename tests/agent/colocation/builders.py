"""Nodes, online and offline pods, and figures that the tests of colocation start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec.structs import replace

from atoll.agent.colocation.reclaim import Memory, Share, shares
from atoll.agent.colocation.rules import Colocation
from atoll.agent.descheduler.world import Figures, Subject, World
from atoll.agent.objects import Node
from atoll.model import keys
from atoll.model.colocation import BATCH_CPU, BATCH_MEMORY
from atoll.model.vector import Vector
from tests.agent.builders import make_node
from tests.agent.descheduler.builders import make_subject

GI = 2**30
STALE = 180.0
RULES = Colocation(mode="on", least=1, looks=1)


def offline(name: str, node: str, *, cpu: int = 1000, gib: int = 1, **more: Any) -> Subject:
    """A pod on reclaimed capacity."""
    requests = {BATCH_CPU: str(cpu), BATCH_MEMORY: f"{gib}Gi"}
    return make_subject(name, node, containers=[{"resources": {"requests": requests}}], **more)


def published(node: Node, amounts: Vector) -> Node:
    """The node with amounts that we published."""
    text = {name: str(amount) for name, amount in amounts.items()}
    metadata = replace(node.metadata, annotations={keys.RECLAIMED: orjson.dumps(amounts).decode()})
    status = replace(node.status, allocatable={**node.status.allocatable, **text})
    return replace(node, metadata=metadata, status=status)


def figures(nodes: Mapping[str, tuple[float, float]], pods: Mapping[str, tuple[float, float]] | None = None) -> Figures:
    """Use by name: thousandths of cores, GiB."""
    both = [
        {name: {"cpu": cpu, "memory": gib * GI} for name, (cpu, gib) in each.items()} for each in (nodes, pods or {})
    ]
    return Figures({**both[0]}, {f"default/{name}": use for name, use in both[1].items()})


UNKNOWN = Figures(problem="no answer in time")


def look(
    nodes: Sequence[Node],
    pods: Sequence[Subject] = (),
    of: Figures = UNKNOWN,
    *,
    memory: Memory | None = None,
    rules: Colocation = RULES,
    koordinated: frozenset[str] = frozenset(),
    now: float = 1000.0,
) -> list[Share]:
    """Shares of one look."""
    memory = Memory() if memory is None else memory
    return shares(World(nodes, pods), of, koordinated, memory, rules, stale=STALE, now=now)


def node(name: str = "n1", **more: Any) -> Node:
    """8 cores, 16 GiB."""
    return make_node(name, **more)
