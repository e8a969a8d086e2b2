"""Pods of a pod group, as the API server gives them."""

from __future__ import annotations

from typing import Any

from atoll.kinds.pod_group import GATE, GROUP, TOTAL
from atoll.model import keys

Json = dict[str, Any]


def pod(
    name: str, phase: str = "Pending", *, total: int = 2, age: int = 0, cpu: str = "1", notes: Json | None = None
) -> Json:
    container = {
        "name": "c",
        "image": "i",
        "resources": {"requests": {"cpu": cpu}},
        "volumeMounts": [{"name": "kube-api-access-x", "mountPath": "/t"}, {"name": "data", "mountPath": "/d"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": f"2026-01-01T00:00:{age:02}Z",
            "labels": {GROUP: "g", "app": "train", keys.KUEUE_QUEUE_LABEL: "research"},
            "annotations": {TOTAL: str(total), **(notes or {})},
        },
        "spec": {
            "containers": [container],
            "volumes": [{"name": "kube-api-access-x"}, {"name": "data"}],
            "schedulingGates": [{"name": GATE}, {"name": "their.own/gate"}],
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {"phase": phase, "qosClass": "Burstable"},
    }
