"""What control and agents would have made: bindings, members, and their capacity, as objects of the host alone."""

from __future__ import annotations

from typing import Any

from atoll.model import gang, keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, CLUSTERS
from atoll.model.vector import Vector

STAMP = "2026-01-01T00:00:00Z"
GPU = "nvidia.com/gpu"
NODE_GPUS, NODE_CORES = 8, 64
_NODE = {"cpu": NODE_CORES * 1000, "memory": 512 << 30, GPU: NODE_GPUS, "pods": 110}
_SHAPES = 8


def binding_object(namespace: str, name: str, wish: gang.Gang) -> dict[str, Any]:
    """A binding as the detector makes it: suspended, at epoch 0."""
    reference = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": namespace, "name": name}
    return {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {
            "name": f"{name}-job",
            "namespace": namespace,
            "annotations": {keys.GANG: gang.encode(wish), keys.EPOCH: "0"},
        },
        "spec": {
            "resource": {**reference, "uid": "00000000-0000-0000-0000-000000000000"},
            "replicas": wish.replicas,
            "placement": {},
            "suspension": {"scheduling": True},
        },
    }


def numbered_binding(namespace: str, number: int) -> dict[str, Any]:
    """A binding of one pod with one GPU in the default queue; eight different shapes."""
    requests = {"cpu": 1000 * (1 + number % _SHAPES), "memory": 8 << 30, GPU: 1, "pods": 1}
    return binding_object(namespace, f"job-{number:06}", one_pod(keys.DEFAULT_QUEUE, requests, STAMP))


def one_pod(queue: str, requests: Vector, submitted: str, priority: int = 0) -> gang.Gang:
    """A gang of a single pod."""
    return gang.Gang(queue, [gang.Task("worker", 1, 1, requests)], 1, priority, submitted)


def cluster_object(name: str) -> dict[str, Any]:
    """A member that nobody looks after."""
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": CLUSTERS.kind,
        "metadata": {"name": name},
        "spec": {"syncMode": "Pull", "apiEndpoint": "https://127.0.0.1:1"},
    }


def condition(kind: str) -> dict[str, Any]:
    """A condition that is met."""
    return {"type": kind, "status": "True", "reason": "Bench", "message": "", "lastTransitionTime": STAMP}


def capacity_object(cluster: str, nodes: int) -> dict[str, Any]:
    """Empty nodes of 8 GPUs and 64 cores in racks of 16, blocks of 16 racks, one root."""
    racks = [min(16, nodes - at) for at in range(0, nodes, 16)]
    blocks = -(-len(racks) // 16)
    domains: list[dict[str, Any]] = [{"name": "root", "tier": 3, "tierName": "root"}]
    domains += [{"name": f"block-{n}", "tier": 2, "tierName": "block", "parent": "root"} for n in range(blocks)]
    domains += [
        {"name": f"rack-{n}", "tier": 1, "tierName": "rack", "parent": f"block-{n // 16}"} for n in range(len(racks))
    ]
    allocatable = {"cpu": str(NODE_CORES), "memory": "512Gi", GPU: str(NODE_GPUS), "pods": "110"}
    return {
        "apiVersion": CAPACITIES.api_version,
        "kind": CAPACITIES.kind,
        "metadata": {"name": "root", "namespace": keys.execution_namespace(cluster)},
        "spec": {
            "cluster": cluster,
            "generation": 1,
            "root": "root",
            "objects": 1,
            "domains": domains,
            "profiles": [{"labels": {}, "taints": [], "allocatable": allocatable}],
            "classes": [
                {
                    "domain": f"rack-{n}",
                    "profile": 0,
                    "nodes": size,
                    "free": _NODE,
                    "names": [f"node-{16 * n + at:05}" for at in range(size)],
                }
                for n, size in enumerate(racks)
            ],
        },
    }
