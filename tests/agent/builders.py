"""Builders of the objects that the agent's tests start from; they hide what the behaviour does not depend on."""

from __future__ import annotations

from typing import Any

import orjson

from atoll.agent.numa import NumaTopology, decode_numa, decode_zones
from atoll.agent.objects import HyperNode, Node, Pod, PodGroup, PodGroupSpec, decode_node, decode_pod
from atoll.agent.scheduler.core.room import Room
from atoll.model.objects import Meta


def make_node(name: str, *, ready: bool = True, labels: dict[str, str] | None = None, **allocatable: Any) -> Node:
    """A node with 8 CPUs, 16Gi, 8 GPUs and room for 10 pods unless told otherwise."""
    offers = {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "8", "pods": "10", **allocatable}
    return decode_node(
        orjson.dumps(
            {
                "metadata": {
                    "name": name,
                    "uid": f"node-{name}",
                    "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                },
                "status": {
                    "allocatable": offers,
                    "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
                },
            }
        )
    )


def make_pod(
    name: str,
    *,
    group: str = "",
    task: str = "w",
    index: int = 0,
    gpu: int = 0,
    cpu: str = "1",
    node: str = "",
    phase: str = "Pending",
    scheduler: str = "atoll",
    priority: int = 0,
    binding: str = "",
    uid: str = "",
    deleted: bool = False,
    spec: dict[str, Any] | None = None,
    reason: str = "",
    codes: list[int] | None = None,
    ended: str = "",
    restarts: int = 0,
    retry: int = 0,
    conditions: list[dict[str, Any]] | None = None,
) -> Pod:
    """A pod of one container."""
    annotations = {"volcano.sh/task-spec": task}
    if group:
        annotations["scheduling.k8s.io/group-name"] = group
    if binding:
        annotations["atoll.sh/binding-uid"] = binding
    requests = {"cpu": cpu, **({"nvidia.com/gpu": str(gpu)} if gpu else {})}
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "labels": {"volcano.sh/task-index": str(index)},
        "annotations": annotations,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if retry:
        annotations["volcano.sh/job-retry-count"] = str(retry)
    status: dict[str, Any] = {"phase": phase, **({"reason": reason} if reason else {})}
    if conditions:
        status["conditions"] = conditions
    if codes or ended:
        ends = [{"exitCode": code, **({"finishedAt": ended} if ended else {})} for code in codes or [1]]
        status["containerStatuses"] = [{"state": {"terminated": end}} for end in ends]
    elif restarts:
        status["containerStatuses"] = [{"restartCount": restarts}]
    body = {
        "metadata": meta,
        "spec": {
            "nodeName": node,
            "schedulerName": scheduler,
            "priority": priority,
            "containers": [{"resources": {"requests": requests}}],
            **(spec or {}),
        },
        "status": status,
    }
    return decode_pod(orjson.dumps(body))


def make_group(
    name: str,
    minimum: int,
    *,
    tasks: dict[str, int] | None = None,
    topology: dict[str, Any] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    status: dict[str, Any] | None = None,
    sub_groups: list[dict[str, Any]] | None = None,
    queue: str = "",
) -> PodGroup:
    """A gang."""
    meta = Meta(name=name, namespace="default", uid=f"uid-{name}", creation_timestamp=created)
    spec = PodGroupSpec(minimum, tasks or {}, topology, sub_group_policy=sub_groups or [], queue=queue)
    return PodGroup(metadata=meta, spec=spec, status=status or {})


def make_domain(
    name: str, tier: int, members: list[str], *, of: str = "Node", tree: str = "", tier_name: str = ""
) -> HyperNode:
    """A HyperNode with members by name."""
    listed = [{"type": of, "selector": {"exactMatch": {"name": member}}} for member in members]
    labels = {"atoll.sh/topology-tree": tree} if tree else {}
    named = {"tierName": tier_name} if tier_name else {}
    return HyperNode(metadata=Meta(name=name, labels=labels), spec={"tier": tier, **named, "members": listed})


def make_numa(name: str, policy: str, free: str = "0-15", *, manager: str = "static", **more: Any) -> NumaTopology:
    """A node of two NUMA nodes with 8 CPUs each: 0 to 7, and 8 to 15."""
    spec = {
        "policies": {"CPUManagerPolicy": manager, "TopologyManagerPolicy": policy},
        "numares": {"cpu": {"allocatable": free, "capacity": 16}},
        "cpuDetail": {str(cpu): {"numa": cpu // 8, "socket": cpu // 8, "core": cpu} for cpu in range(16)},
        **more,
    }
    return decode_numa(orjson.dumps({"metadata": {"name": name}, "spec": spec}))


def make_room(*nodes: Node, domains: list[HyperNode] | None = None, pods: list[Pod] | None = None) -> Room:
    """The nodes with these pods on them."""
    room = Room()
    for node in nodes:
        room.node_changed(node.metadata.name, node)
    for domain in domains or []:
        room.hyper_node_changed(domain.metadata.name, domain)
    for pod in pods or []:
        room.pod_changed(None, pod)
    return room


def make_job(*tasks: dict[str, Any], phase: str = "", **spec: Any) -> dict[str, Any]:
    """A Volcano Job called `train`."""
    job: dict[str, Any] = {
        "metadata": {
            "name": "train",
            "namespace": "default",
            "uid": "j1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"atoll.sh/binding-uid": "b1", "atoll.sh/epoch": "3"},
        },
        "spec": {"tasks": list(tasks), **spec},
    }
    if phase:
        began = [{"status": "Running", "lastTransitionTime": "2026-01-01T00:01:00Z"}]
        job["status"] = {"state": {"phase": phase}, "conditions": began}
    return job


def make_task(name: str, replicas: int, *, minimum: int | None = None, cpu: str = "1") -> dict[str, Any]:
    """A task whose pods ask for some CPU."""
    task: dict[str, Any] = {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}},
    }
    return task if minimum is None else {**task, "minAvailable": minimum}


def make_zones(
    policy: str,
    scope: str = "container",
    *,
    gpus: tuple[int, int] = (4, 4),
    cpus: tuple[int, int] = (8, 8),
    islands: tuple[int, ...] = (),
    kept: int = 0,
    name: str = "n",
) -> NumaTopology:
    """A node of two NUMA nodes with 8 CPUs and 4 GPUs each, of which so many are free, and the kubelet keeps so many
    CPUs of each; and the free GPUs of islands of two each.
    """
    attributes = {"topologyManagerPolicy": policy, "topologyManagerScope": scope}

    def amounts(name: str, total: int, free: int, kept: int = 0) -> dict[str, str]:
        return {"name": name, "capacity": str(total), "allocatable": str(total - kept), "available": str(free)}

    zones = [
        {
            "name": f"node-{cell}",
            "type": "Node",
            "resources": [
                amounts("cpu", 8, cpus[cell], kept),
                amounts("nvidia.com/gpu", 4, gpus[cell]),
                amounts("memory", 99, 99),
            ],
        }
        for cell in range(2)
    ]
    zones += [
        {"name": f"nvlink-{number}", "type": "NVLink", "resources": [amounts("nvidia.com/gpu", 2, free)]}
        for number, free in enumerate(islands)
    ]
    said = [{"name": each, "value": value} for each, value in attributes.items()]
    return decode_zones(orjson.dumps({"metadata": {"name": name}, "attributes": said, "zones": zones}))
