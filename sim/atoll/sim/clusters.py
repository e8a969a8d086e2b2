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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from atoll.agent.objects import HyperNode, Node
from atoll.model import quantity, vector
from atoll.model.objects import Meta
from atoll.model.vector import Vector
from atoll.sim.inputs import Fields, InputError, capacity, documents, rows, whole
from atoll.sim.jobs import GPU, GPU_SHARE

PHILLY = {
    "6214e9": 64, "b436b2": 64, "6c71a0": 32, "0e4a51": 32, "11cb48": 16, "e13805": 16, "ed69ec": 8, "103959": 8,
}  # fmt: skip
"""Virtual cluster -> nodes of 8 GPUs (HeliosArtifact, MIT)."""
GPUS_PER_NODE = 8
_PODS = 110


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
    if path.name.removesuffix(".xz").endswith(".csv"):
        found = _openb(path)
    else:
        found = []
        for document in documents(path):
            top = Fields(document, str(path))
            listed = top.take("clusters", list)
            top.done()
            found += [_member(Fields(item, f"{path}, cluster {n}")) for n, item in enumerate(listed, start=1)]
    names = [member.name for member in found]
    if not found:
        raise InputError(f"{path}: no clusters; list them under `clusters:`")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{path}: cluster {twice[0]} is there twice: give every cluster a name of its own")
    return found


def _member(fields: Fields) -> MemberSpec:
    name = fields.take("name", str)
    pools = [_pool(Fields(item, f"{fields.place}, pool {n}")) for n, item in enumerate(fields.take("pools", list), 1)]
    spec = MemberSpec(name, tuple(pools), fields.take("labels", _texts, {}), fields.take("taints", tuple, ()))
    fields.done()
    return spec


def _pool(fields: Fields) -> Pool:
    resources = {"pods": _PODS, **fields.take("resources", capacity)}
    tiers = tuple(whole(size) for size in fields.maybe("tiers", list) or ())
    if any(size < 1 for size in tiers):
        raise InputError(f"{fields.place}, field tiers: sizes start at 1")
    pool = Pool(
        fields.take("nodes", whole),
        resources,
        fields.take("labels", _texts, {}),
        fields.take("taints", tuple, ()),
        tiers,
    )
    fields.done()
    return pool


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(each) for key, each in value.items()}


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
