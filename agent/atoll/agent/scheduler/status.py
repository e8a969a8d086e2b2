"""What a PodGroup's status should say; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from atoll.agent.objects import Pod, PodGroup
from atoll.agent.scheduler.core.planner import NOT_ENOUGH_TASKS, Wait
from atoll.agent.scheduler.core.room import Room
from atoll.model.conditions import find, with_condition
from atoll.model.topology import NO_DOMAIN, Domain, Tree

Json = dict[str, Any]


def group_status(group: PodGroup, pods: Iterable[Pod], room: Room, wait: Wait | None, now: float) -> Json:
    """The status that the PodGroup should have; equal to the present one where nothing has changed.

    Args:
        group: as cached.
        pods: all of the gang.
        room: knows which of them have a node.
        wait: why the rest waits; None when nothing does.
        now: seconds since the epoch, for transitions.
    """
    phases: Counter[str] = Counter()
    settled = unfinished = 0
    nodes: set[str] = set()
    for pod in pods:
        nodes |= {room.node_of(pod)} - {""}
        phases[pod.phase] += 1
        settled += bool(room.is_bound(pod) or pod.finished)
        unfinished += not pod.finished
    old: str = group.status.get("phase") or ""
    floor = group.spec.min_member
    if old == "Completed" and not unfinished:
        phase = old
    elif settled and settled >= floor:
        phase = "Running" if unfinished else "Completed"
    elif phases["Running"] and wait is not None:
        phase = "Unknown"
    else:
        phase = "Pending" if wait is None or wait.reason == NOT_ENOUGH_TASKS else "Inqueue"
    conditions = list(group.status.get("conditions") or [])
    if phase in ("Running", "Completed"):
        if find(conditions, "Unschedulable") is not None:
            conditions = with_condition(conditions, "Unschedulable", False, "Scheduled", "", now=now)
        text = "the gang has nodes for its minimum" + _domain_around(nodes, room)
        conditions = with_condition(conditions, "Scheduled", True, "Scheduled", text, now=now)
    elif wait is not None:
        if find(conditions, "Scheduled") is not None:
            conditions = with_condition(conditions, "Scheduled", False, wait.reason, wait.message, now=now)
        conditions = with_condition(conditions, "Unschedulable", True, wait.reason, wait.message, now=now)
    return {
        "phase": phase,
        "running": phases["Running"],
        "succeeded": phases["Succeeded"],
        "failed": phases["Failed"],
        "conditions": conditions,
    }


def _domain_around(nodes: Iterable[str], room: Room) -> str:
    """The smallest domain of each tree that holds all of these nodes, as the end of a sentence; empty for none."""
    nodes = list(nodes)
    found = [("", *room.fleet.topology())]
    found += [(f", tree {name}", grown.tree, grown.lowest) for name, grown in room.fleet.other_trees().items()]
    said = [
        f"{domain.name} (tier {domain.tier}{which})"
        for which, tree, lowest in found
        if (domain := _smallest(nodes, tree, lowest)) is not None
    ]
    return f", all in HyperNode {' and '.join(said)}" if said else ""


def _smallest(nodes: Iterable[str], tree: Tree, lowest: Mapping[str, int]) -> Domain | None:
    common: list[int] | None = None
    for name in nodes:
        above = list(tree.ancestors(lowest.get(name, NO_DOMAIN)))
        common = above if common is None else [each for each in common if each in above]
    return tree.domains[common[0]] if common else None
