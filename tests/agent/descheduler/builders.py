"""Policies and pods that the descheduler's tests start from."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import yaml

from atoll.agent.descheduler.world import Subject, decode


def policy(*configured: tuple[str, dict[str, Any]], balance: Any = (), deschedule: Any = (), **more: Any) -> str:
    profile = {
        "name": "p",
        "pluginConfig": [{"name": name, "args": copy.deepcopy(args)} for name, args in configured],
        "plugins": {"balance": {"enabled": list(balance)}, "deschedule": {"enabled": list(deschedule)}},
    }
    head = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
    return yaml.safe_dump({**head, "profiles": [profile], **more})


THRESHOLDS = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 80}}
MEASURED = {**THRESHOLDS, "metrics": {"type": "prometheus", "address": "http://p"}}


def load_aware(**more: Any) -> str:
    return policy(("LoadAware", {**MEASURED, **more}), balance=["LoadAware"])


def evictor(**args: Any) -> str:
    return policy(("LoadAware", MEASURED), ("DefaultEvictor", args), balance=["LoadAware"])


def make_subject(
    name: str, node: str, *, owner: str = "", kind: str = "ReplicaSet", priority: int = 0, cpu: str = "1",
    namespace: str = "default", created: str = "2026-01-01T00:00:00Z", ready: bool = True, notes: Any = None,
    labels: Any = None, **spec: Any,
) -> Subject:  # fmt: skip
    """A ready pod of a workload of its own."""
    owner = owner or f"of-{name}"
    body = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "annotations": notes or {},
            "labels": labels or {},
            "ownerReferences": [{"kind": kind, "name": owner, "uid": owner, "controller": True}] if kind else [],
        },
        "spec": {
            "nodeName": node,
            "priority": priority,
            "containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
            **spec,
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }
    return decode(orjson.dumps(body))
