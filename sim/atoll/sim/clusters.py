"""Members of a simulated federation, from a YAML file, from the openb node list, or as Philly's virtual clusters.

clusters:
- name: east
  labels: {region: eu}                     # optional, of the Cluster
  taints: [{key: k, effect: NoSchedule}]   # optional, of the Cluster
  pools:
  - nodes: 64
    resources: {cpu: 96, memory: 768Gi, nvidia.com/gpu: 8}
    labels: {model: h100}                  # optional, of the nodes
    taints: []                             # optional, of the nodes
    tiers: [4, 4]                          # optional: 4 nodes per rack (tier 1), 4 racks per spine (tier 2)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from atoll.agent.objects import HyperNode, Node
from atoll.dispatcher.capacity import MAX_NODES, MAX_RESOURCES
from atoll.model import quantity, vector
from atoll.model.objects import Meta
from atoll.model.plurals import counted
from atoll.model.vector import Vector
from atoll.sim.inputs import Fields, InputError, capacity, documents, is_csv, labels, listed, rows, text, whole
from atoll.sim.jobs import GPU, GPU_SHARE, Job

PHILLY = {
    "6214e9": 64, "b436b2": 64, "6c71a0": 32, "0e4a51": 32, "11cb48": 16, "e13805": 16, "ed69ec": 8, "103959": 8,
}  # fmt: skip
"""Virtual cluster -> nodes of 8 GPUs (HeliosArtifact, MIT)."""
GPUS_PER_NODE = 8
_PODS = 110
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal nodes."""

    nodes: int
    resources: Vector
    """Allocatable of each, in integer units, `pods` included."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    tiers: tuple[int, ...] = ()
    """Children per domain, nearest tier first; the last domain of a tier may hold fewer."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member cluster."""

    name: str
    pools: tuple[Pool, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()

    def total(self) -> Vector:
        """Allocatable of all nodes."""
        return vector.total(vector.scaled(pool.resources, pool.nodes) for pool in self.pools)

    def objects(self) -> tuple[list[Node], list[HyperNode]]:
        """The nodes and domains as the member's API server has them."""
        nodes: list[Node] = []
        domains: list[HyperNode] = []
        for number, pool in enumerate(self.pools):
            prefix = f"{self.name}-p{number}"
            width = len(str(max(pool.nodes - 1, 0)))
            names = [f"{prefix}-n{index:0{width}d}" for index in range(pool.nodes)]
            nodes += [_node(name, pool) for name in names]
            below, kind = names, "Node"
            for tier, size in enumerate(pool.tiers, start=1):
                groups = [below[at : at + size] for at in range(0, len(below), size)]
                below = [f"{prefix}-t{tier}-{index}" for index in range(len(groups))]
                domains += [_domain(name, tier, kind, inside) for name, inside in zip(below, groups, strict=True)]
                kind = "HyperNode"
        return nodes, domains


def _node(name: str, pool: Pool) -> Node:
    body = {
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "labels": {"kubernetes.io/hostname": name, **pool.labels},
        },
        "spec": {"taints": list(pool.taints)},
        "status": {
            "allocatable": {name: quantity.format_units(name, amount) for name, amount in pool.resources.items()},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.convert(body, Node)


def _domain(name: str, tier: int, kind: str, inside: Sequence[str]) -> HyperNode:
    members = [{"type": kind, "selector": {"exactMatch": {"name": each}}} for each in inside]
    return HyperNode(Meta(name=name), {"tier": tier, "members": members})


def philly() -> list[MemberSpec]:
    """The eight virtual clusters whose size is known, each as a member."""
    resources = {GPU: GPUS_PER_NODE, "pods": _PODS}
    return [MemberSpec(name, (Pool(nodes, resources),)) for name, nodes in PHILLY.items()]


def read(path: Path) -> list[MemberSpec]:
    """Members from the simulator's YAML, or from a node list in the openb format (a name with .csv).

    Raises:
        InputError: naming the place and the field.
    """
    if is_csv(path):
        found = _openb(path)
    else:
        found = []
        for document in documents(path):
            top = Fields(document, str(path))
            members = top.take("clusters", listed)
            top.done()
            found += [_member(Fields(item, f"{path}, cluster {n}")) for n, item in enumerate(members, start=1)]
    names = [member.name for member in found]
    if not found:
        raise InputError(f"{path}: no clusters; list at least one")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{path}: cluster {twice[0]} is there twice: give every cluster a name of its own")
    return found


def unknown(jobs: Iterable[Job], members: Iterable[MemberSpec]) -> list[str]:
    """Notes about members that jobs name and that there are not: one may be left out on purpose."""
    known = {member.name for member in members}
    lost = Counter(name for job in jobs for name in job.clusters if name not in known)
    return [
        f"member {name}, which {counted(count, 'job')} may use, is not among the clusters"
        for name, count in sorted(lost.items())
    ]


def _member(fields: Fields) -> MemberSpec:
    name, pools = fields.take("name", text), fields.take("pools", listed)
    made = tuple(_pool(Fields(item, f"{fields.place}, pool {n}")) for n, item in enumerate(pools, start=1))
    spec = MemberSpec(name, made, fields.take("labels", labels, {}), _taints(fields))
    fields.done()
    if (nodes := sum(pool.nodes for pool in made)) > MAX_NODES:
        raise InputError(f"{fields.place}: {nodes} nodes; a member can have {MAX_NODES}")
    if (resources := len(spec.total())) > MAX_RESOURCES:
        raise InputError(f"{fields.place}: {resources} different resources; a member can have {MAX_RESOURCES}")
    return spec


def _pool(fields: Fields) -> Pool:
    resources = {"pods": _PODS, **fields.take("resources", capacity)}
    pool = Pool(
        fields.take("nodes", partial(whole, most=MAX_NODES)),
        resources,
        fields.take("labels", labels, {}),
        _taints(fields),
        fields.take("tiers", _sizes, ()),
    )
    fields.done()
    return pool


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(whole(size, least=1) for size in listed(value))


def _taints(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    made = []
    for number, item in enumerate(fields.maybe("taints", listed) or (), start=1):
        inner = Fields(item, f"{fields.place}, taint {number}")
        made.append({"key": inner.take("key", text), "effect": inner.take("effect", _effect)})
        if (value := inner.maybe("value", text)) is not None:
            made[-1]["value"] = value
        inner.maybe("timeAdded", str)
        inner.done()
    return tuple(made)


def _effect(value: Any) -> str:
    if value not in _EFFECTS:
        raise ValueError(f"expected {', '.join(_EFFECTS[:-1])} or {_EFFECTS[-1]}")
    return str(value)


def _openb(path: Path) -> list[MemberSpec]:
    """A member per GPU model, since one site seldom has several; equal nodes are one pool."""
    pools: dict[str, dict[tuple[int, int, int], int]] = {}
    for place, row in rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        fields = Fields(row, place)
        shape = (fields.take("cpu_milli", whole), fields.take("memory_mib", whole), fields.take("gpu", whole))
        sizes = pools.setdefault(row["model"], {})
        sizes[shape] = sizes.get(shape, 0) + 1
    return [
        MemberSpec(
            model.lower() or "cpu",
            tuple(
                Pool(count, _openb_resources(*shape), {"gpu-model": model} if model else {})
                for shape, count in sorted(pools[model].items())
            ),
        )
        for model in sorted(pools)
    ]


def _openb_resources(cpu_milli: int, memory_mib: int, gpus: int) -> Vector:
    devices = {GPU_SHARE: gpus * 1000} if gpus else {}
    return {"cpu": cpu_milli, "memory": memory_mib * 2**20, "pods": _PODS, **devices}
