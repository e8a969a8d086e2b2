"""Volcano Jobs and batch Jobs as the host's API server gives them."""

from __future__ import annotations

from typing import Any

from atoll.model import keys

BEFORE = "2026-01-01T00:00:00Z"
GENERATED = {
    "controller-uid": "u1",
    "job-name": "train",
    "batch.kubernetes.io/controller-uid": "u1",
    "batch.kubernetes.io/job-name": "train",
}


def make_task(
    name: str, replicas: int, *, minimum: int | None = None, pod: dict[str, Any] | None = None
) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **(pod or {})}
    task: dict[str, Any] = {"replicas": replicas, "template": {"spec": spec}, **({"name": name} if name else {})}
    return task if minimum is None else {**task, "minAvailable": minimum}


def make_job(
    *tasks: dict[str, Any], labels: Any = None, annotations: Any = None, status: Any = None, **spec: Any
) -> dict[str, Any]:
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "5", "creationTimestamp": BEFORE}
    job = {
        "metadata": {**metadata, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"tasks": list(tasks), **spec},
    }
    return {**job, "status": status} if status else job


def make_batch_job(
    *, status: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A Job as the host's API server gives it: defaulted, selector and labels generated."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    template = {
        "metadata": {"labels": {**GENERATED, "app": "a"}, "creationTimestamp": None},
        "spec": {"containers": [container], "schedulerName": "default-scheduler"},
    }
    defaults: dict[str, Any] = {
        "parallelism": 4,
        "completions": 4,
        "completionMode": "NonIndexed",
        "suspend": False,
        "managedBy": keys.CONTROLLER,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u1"}},
        "template": template,
        "ttlSecondsAfterFinished": 5,
    }
    metadata = {"name": "train", "namespace": "team-a", "annotations": annotations or {}, "creationTimestamp": BEFORE}
    return {"metadata": metadata, "spec": {**defaults, **spec}, "status": status or {}}


Json = dict[str, Any]


def workload_kind(**spec: Any) -> Json:
    """A kind with a master and workers, by condition."""
    wanted = {
        "group": "ml.example.com",
        "version": "v1",
        "kind": "Training",
        "plural": "trainings",
        "suspend": {"path": "spec.paused"},
        "components": [
            {"name": "master", "template": "spec.master"},
            {
                "name": "worker",
                "template": "spec.workers.template",
                "replicas": "spec.workers.count",
                "minReplicas": "spec.workers.least",
                "defaultReplicas": 2,
            },
        ],
        "status": {
            "readyReplicas": ["status.replicas[*].ready"],
            "succeeded": {"condition": "Done"},
            "failed": {"path": "status.phase", "values": ["Broken"]},
            "suspended": {"path": "status.paused", "values": ["true"]},
            "state": "status.phase",
        },
    }
    return {"metadata": {"name": "trainings.ml.example.com"}, "spec": {**wanted, **spec}}
