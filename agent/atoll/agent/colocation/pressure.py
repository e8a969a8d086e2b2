"""Which offline pods leave nodes under pressure: whole gangs, the youngest first, within bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from atoll.agent.colocation.reclaim import Memory, Share, pressure
from atoll.agent.colocation.rules import Colocation
from atoll.agent.descheduler.evictable import Evictable
from atoll.agent.descheduler.policy import Evictor
from atoll.agent.descheduler.world import CPU, MEMORY, Figures, Subject, World
from atoll.model.colocation import BATCH, BATCH_MEMORY, charged, offline
from atoll.model.decision import MOVES_AFTER
from atoll.model.timestamps import to_seconds


class Unit(NamedTuple):
    """Pods that go together: a gang, or one pod."""

    pods: tuple[Subject, ...]
    binding: str = ""
    """UID of the binding of a gang that the host evicts; empty where its pods are evicted here."""
    group: str = ""
    """`namespace/name` of its PodGroup; empty for a pod."""

    @property
    def name(self) -> str:
        """Its PodGroup or pod."""
        return self.group or self.pods[0].metadata.key

    @property
    def born(self) -> float:
        """Creation of its youngest pod."""
        return max(to_seconds(each.metadata.creation_timestamp) for each in self.pods)


class Leave(NamedTuple):
    """A unit that goes."""

    unit: Unit
    node: str
    reason: str


@dataclass
class Choice:
    """Evictions of one look."""

    leaves: list[Leave] = field(default_factory=list)
    skips: list[tuple[str, str]] = field(default_factory=list)
    """(gang or pod, why it stays)."""


def units(world: World, evictable: Evictable) -> list[Unit]:
    """All offline work with a node, the youngest first."""
    found: dict[tuple[str, str], list[Subject]] = {}
    for each in world.subjects:
        pod, meta = each.pod, each.metadata
        if pod.finished or not offline(meta.labels, meta.annotations, pod.requests, pod.priority, world.priorities):
            continue
        group = world.groups.get(pod.group)
        own = group is not None and (group.spec.min_member > 1 or group.spec.min_task_member)
        binding = evictable.of_host(each)
        key = (binding, "") if binding else ("", pod.group) if own else ("", meta.uid)
        found.setdefault(key, []).append(each)
    made = (
        Unit(tuple(pods), binding, pods[0].pod.group if binding or group == pods[0].pod.group else "")
        for (binding, group), pods in found.items()
    )
    # Names make the order total.
    return sorted(made, key=lambda unit: (-unit.born, unit.name))


def choose(
    world: World,
    shares: Iterable[Share],
    figures: Figures,
    memory: Memory,
    rules: Colocation,
    *,
    now: float,
    wall: float,
) -> Choice:
    """Evictions of one look: from each node under pressure, until its excess is gone.

    Args:
        world: the cluster.
        shares: of its nodes.
        figures: of this look.
        memory: of earlier looks.
        rules: settings.
        now: seconds of a clock that never goes back.
        wall: seconds since the epoch.
    """
    found = Choice()
    for times in (memory.gave, memory.leaving):
        for name in [name for name, until in times.items() if until <= now]:
            del times[name]
    evictable: Evictable | None = None
    all_units: list[Unit] = []
    chosen: set[str] = set()
    for share in sorted(shares, key=lambda each: each.node.metadata.name):
        node = share.node.metadata.name
        why = pressure(share.node, memory)
        # Where another agent publishes, it also evicts.
        if not why or share.published is None or node in memory.gave:
            continue
        if evictable is None:
            evictable = Evictable(world, Evictor(evict_local_storage_pods=True), wall=wall, youngest=0.0)
            all_units = units(world, evictable)
        excess = _excess(share, memory, rules)
        gone = 0
        here = [each for each in all_units if any(pod.pod.node == node for pod in each.pods)]
        for unit in sorted(here, key=lambda each: not _exceeds(each, figures)) if MEMORY in excess else here:
            if all(amount <= 0 for amount in excess.values()):
                break
            if unit.name not in chosen:
                if refusal := _refusal(unit, world, evictable, wall):
                    found.skips.append((unit.name, refusal))
                    continue
                if gone >= rules.per_node or len(chosen) >= rules.total:
                    found.skips.append((unit.name, "enough others leave in this look"))
                    break
                chosen.add(unit.name)
                for subject in unit.pods:
                    evictable.take(subject)
                found.leaves.append(Leave(unit, node, why))
            gone += 1
            for key in excess:
                excess[key] -= _relief(unit, node, key, figures)
    return found


def left(leave: Leave, memory: Memory, rules: Colocation, now: float) -> None:
    """A unit was evicted, or asked for: its nodes give no other until figures show it."""
    for each in leave.unit.pods:
        memory.gave[each.pod.node] = memory.leaving[each.metadata.uid] = now + rules.settle


def _excess(share: Share, memory: Memory, rules: Colocation) -> dict[str, float]:
    """Amounts that must leave: of CPU by requests, of memory by use; all that one unit has where the kubelet evicts."""
    node = share.node.metadata.name
    last = memory.samples[node][-1] if memory.samples[node] else None
    found: dict[str, float] = {}
    if last is not None and (node, CPU) in memory.pressed:
        free = share.allocatable.get(CPU, 0) * (1 - rules.reserve_cpu) - last.online[CPU]
        found[CPU] = share.placed[BATCH[CPU]] - free
    if last is not None and (node, MEMORY) in memory.pressed:
        found[MEMORY] = last.use[MEMORY] - (rules.memory - rules.margin) * share.allocatable.get(MEMORY, 0)
    return found or {MEMORY: 1.0}


def _relief(unit: Unit, node: str, key: str, figures: Figures) -> float:
    found = 0.0
    for each in unit.pods:
        if each.pod.node == node:
            requests, use = each.pod.requests, figures.pods.get(each.metadata.key, {}).get(key)
            asked = float(requests.get(BATCH[key] if charged(requests) else key, 0))
            found += asked if use is None or (key == CPU and charged(requests)) else use
    return found


def _exceeds(unit: Unit, figures: Figures) -> bool:
    """Whether a pod of it uses more memory than it requested: it goes before units that keep to theirs."""
    return any(
        figures.pods.get(each.metadata.key, {}).get(MEMORY, 0.0) > each.pod.requests.get(BATCH_MEMORY, 0)
        for each in unit.pods
        if charged(each.pod.requests)
    )


def _refusal(unit: Unit, world: World, evictable: Evictable, wall: float) -> str:
    if unit.binding:
        if unit.group not in world.groups or len({each.pod.group for each in unit.pods}) > 1:
            return "it is not one PodGroup"
        if wall - min(to_seconds(each.metadata.creation_timestamp) for each in unit.pods) < MOVES_AFTER:
            return f"the host moves no gang in its first {MOVES_AFTER:g} s"
    return evictable.refusal_of_gang(unit.pods)
