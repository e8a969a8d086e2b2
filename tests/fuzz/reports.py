"""What members report, as objects."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from atoll.delivery.work import WorkObject, identifier
from atoll.kinds import BY_GVK, Kind
from atoll.model import keys

Json = dict[str, Any]

POD = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}

HEAD = {"name": "job", "namespace": "ns", "annotations": {}}

SENT: dict[str, Json] = {
    "volcano": {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": HEAD,
        "spec": {"minAvailable": 4, "tasks": [{"name": "worker", "replicas": 4, "minAvailable": 4, "template": POD}]},
    },
    "batch": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": HEAD,
        "spec": {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": POD},
    },
}

PLACED: Json = {
    "placement": {"generation": 7, "nodes": {"n-1": 4}, "domain": "r", "tier": 1, "waiting": ""},
    "reservation": {
        "epoch": 1, "state": "Reserved", "nodes": {"n-1": 4}, "domain": "r", "tier": 1, "message": "", "requested": 4,
        "available": 4, "generation": 7, "expires": "2026-01-01T00:00:00Z",
    },
}  # fmt: skip

GOOD: dict[str, Json] = {
    "volcano": {
        "state": {"phase": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        "running": 4,
        "minAvailable": 4,
        "taskStatusCount": {"worker": {"phase": {"Running": 4}}},
        "conditions": [{"status": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "runningDuration": "3m20s",
        **PLACED,
    },
    "batch": {
        "active": 2,
        "ready": 2,
        "succeeded": 2,
        "completedIndexes": "0,2",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Suspended", "status": "False"}],
        "uncountedTerminatedPods": {},
        "suspended": "the Job is suspended there",
        **PLACED,
    },
}


def work(which: str, said: Any) -> tuple[bytes, Kind]:
    """A Work that sent that manifest and was answered with this status of it."""
    manifest = SENT[which]
    kind = BY_GVK[manifest["apiVersion"], manifest["kind"]]
    made: Json = {
        "metadata": {"name": "w", "namespace": "karmada-es-a", "annotations": {keys.EPOCH: "1"}},
        "spec": {"workload": {"manifests": [manifest]}},
    }
    named = identifier(msgspec.convert(made, WorkObject), kind)
    made["status"] = {"manifestStatuses": [{"identifier": named, "status": said, "health": "Healthy"}]}
    return orjson.dumps(made), kind


def capacity(cluster: str, root: str = "r", /, **changes: Any) -> Json:
    """One object with a top domain, two racks and two nodes in each."""
    free = {"cpu": 4000, "memory": 2**34, "pods": 110}
    spec = {
        "cluster": cluster,
        "generation": 7,
        "root": root,
        "objects": 1,
        "domains": [
            {"name": root, "tier": 2},
            {"name": f"{root}-1", "tier": 1, "tierName": "rack", "parent": root},
            {"name": f"{root}-2", "tier": 1, "parent": root},
        ],
        "profiles": [{"labels": {"a": "b"}, "taints": [{"key": "k", "effect": "NoSchedule"}], "allocatable": {}}, {}],
        "classes": [
            {"domain": f"{root}-1", "profile": 1, "nodes": 2, "free": free},
            {"domain": f"{root}-2", "profile": 1, "nodes": 2, "free": free},
        ],
        **changes,
    }
    return {"metadata": {"name": root, "namespace": keys.execution_namespace(cluster)}, "spec": spec}
