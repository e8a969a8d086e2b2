"""A custom resource that no module of Atoll knows, as its users declare it."""

from __future__ import annotations

from typing import Any

from atoll.model import keys
from atoll.model.apiresource import CLUSTER_ROLES, WORKLOAD_KINDS, ApiResource

Json = dict[str, Any]

GROUP = "made-up.example.com"
TRAININGS = ApiResource(GROUP, "v1", "trainings", "Training")


def workload_kind(**spec: Any) -> Json:
    """Training: a master, workers, and a switch of two words."""
    wanted = {
        "group": GROUP,
        "version": "v1",
        "kind": "Training",
        "plural": "trainings",
        "shortNames": ["trn"],
        "operator": "the training operator of example.com",
        "suspend": {"path": "spec.runState", "suspended": "Paused", "resumed": "Active"},
        "components": [
            {"name": "master", "template": "spec.master"},
            {"name": "worker", "template": "spec.workers.template", "replicas": "spec.workers.count"},
        ],
        "status": {
            "readyReplicas": ["status.ready[*]"],
            "succeeded": {"condition": "Done"},
            "failed": {"path": "status.phase", "values": ["Broken"]},
            "state": "status.phase",
        },
        **spec,
    }
    about = {"apiVersion": WORKLOAD_KINDS.api_version, "kind": WORKLOAD_KINDS.kind}
    return {**about, "metadata": {"name": f"{wanted['plural']}.{wanted['group']}"}, "spec": wanted}


def rights(*subresources: str) -> Json:
    """The ClusterRole that gives Atoll the rights to it."""
    resources = ["trainings", *(f"trainings/{each}" for each in subresources)]
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    return {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": CLUSTER_ROLES.kind,
        "metadata": {"name": "trainings-for-atoll", "labels": {keys.KIND_RIGHTS_LABEL: "true"}},
        "rules": [{"apiGroups": [GROUP], "resources": resources, "verbs": verbs}],
    }


def training(name: str, workers: int = 2) -> Json:
    """One of them, as its user applies it."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    about = {"apiVersion": TRAININGS.api_version, "kind": TRAININGS.kind}
    return {
        **about,
        "metadata": {"name": name},
        "spec": {"master": pod, "workers": {"count": workers, "template": pod}},
    }
