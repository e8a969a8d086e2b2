"""The status of every HyperNode: counts, conditions, the gangs that a loss concerns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from atoll.model.conditions import with_condition
from atoll.model.topology import AVAILABLE, VALID
from atoll.topology.findings import Findings
from atoll.topology.health import lost_domains, members

Json = dict[str, Any]

MOST_GANGS = 16
"""Gangs that a status names."""
_MOST_NODES = 8
"""Nodes that a message names."""


class Gang(NamedTuple):
    """What a pod is part of: its PodGroup, else its controller, else itself."""

    namespace: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """Facts of nodes and pods."""

    lost: Mapping[str, float | None]
    """As `Health.lost`."""
    slots: Mapping[str, tuple[int, int]]
    """Node -> how many slots are free there, and how many it has."""
    gangs: Mapping[str, Counter[Gang]]
    """Node -> its pods that have not ended, by gang."""


def statuses(
    hyper_nodes: Sequence[Mapping[str, Any]],
    findings: Findings,
    cluster: Cluster,
    *,
    share: float,
    recovery: float,
    now: float,
) -> dict[str, Json]:
    """HyperNode -> its status as it is to be; what others wrote into it stays.

    Args:
        hyper_nodes: the objects.
        findings: of all together.
        cluster: nodes and pods.
        share: of a domain's nodes that must be lost for the domain to be lost.
        recovery: seconds that a node must be Ready before it counts again; for messages.
        now: seconds since the epoch.
    """
    nodes_of: dict[str, list[str]] = {}
    lost, really = set[str](), set[str]()
    for grown in findings.built.trees.values():
        tree = grown.tree
        inside = members(tree, grown.lowest)
        nodes_of |= {domain.name: inside.nodes[number] for number, domain in enumerate(tree.domains)}
        lost |= {tree.domains[number].name for number in lost_domains(tree, inside, cluster.lost, share)}
        # Those that would still be lost if every node that is Ready counted.
        not_ready = {n: at for n, at in cluster.lost.items() if at is None}
        really |= {tree.domains[number].name for number in lost_domains(tree, inside, not_ready, share)}
    result = {}
    for obj in hyper_nodes:
        name, status = obj["metadata"]["name"], dict(obj.get("status") or {})
        nodes = nodes_of.get(name, [])
        gone = [node for node in nodes if node in cluster.lost]
        affected: Counter[Gang] = Counter()
        for node in gone:
            affected.update(cluster.gangs.get(node, ()))
        named = sorted(affected.items(), key=lambda item: (-item[1], item[0]))[:MOST_GANGS]
        free, total = (sum(cluster.slots.get(node, (0, 0))[part] for node in nodes) for part in (0, 1))
        status |= {
            "nodeCount": len(nodes),
            "readyNodes": len(nodes) - len(gone),
            "freeSlots": free - sum(cluster.slots.get(node, (0, 0))[0] for node in gone),
            "slots": total,
            "affectedGangs": [{**gang._asdict(), "pods": pods} for gang, pods in named],
        }
        conditions = [each for each in status.get("conditions") or () if isinstance(each, dict)]
        about = {"now": now, "generation": obj["metadata"].get("generation")}
        wrong, unknown = findings.wrong.get(name, ""), findings.unknown.get(name, "")
        said = (
            ("Inconsistent", f"{wrong}. The rest of the topology is used")
            if wrong
            else ("MembersUnknown", unknown)
            if unknown
            else ("Consistent", "all of it is part of the topology")
        )
        conditions = with_condition(conditions, VALID, not wrong, *said, **about)
        up = None if not nodes else name not in lost
        text = _health(nodes, gone, cluster.lost, len(affected), recovery, up)
        reason = (
            "NoNodes"
            if not nodes
            else "DomainLost"
            if name in really
            else "Recovering"
            if name in lost
            else "NodesLost"
            if gone
            else "NodesReady"
        )
        status["conditions"] = with_condition(conditions, AVAILABLE, up, reason, text, **about)
        result[name] = status
    return result


def _health(
    nodes: Sequence[str],
    gone: Sequence[str],
    lost: Mapping[str, float | None],
    gangs: int,
    recovery: float,
    up: bool | None,
) -> str:
    if not nodes:
        return "it has no nodes"
    if not gone:
        return f"all nodes are Ready: {len(nodes)}"
    more = f" and {len(gone) - _MOST_NODES} more" if len(gone) > _MOST_NODES else ""
    text = f"{len(gone)} of {len(nodes)} nodes are lost: {', '.join(gone[:_MOST_NODES])}{more}"
    if back := sum(lost[node] is not None for node in gone):
        text += f"; Ready again, but for less than {recovery:g} s: {back}"
    if gangs:
        text += f"; gangs with pods on them: {gangs}"
    return text if up else f"{text}. No new pods are placed in this domain"
