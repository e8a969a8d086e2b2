"""A workload of each kind of other projects, shaped as their documentation shows it, and what its operator says of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from atoll.kinds import KINDS
from atoll.kinds.templated import Templated
from atoll.kinds.train_job import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES

Json = dict[str, Any]
BY_TITLE = {kind.words.title: kind for kind in KINDS if isinstance(kind, Templated)}
OF_OTHERS = (
    *(kind.resource for kind in BY_TITLE.values() if kind.resource.group not in ("apps", "atoll.sh")),
    CLUSTER_TRAINING_RUNTIMES,
    TRAINING_RUNTIMES,
)
"""Resources of other projects; members alpha and beta have them from the start: who collects garbage there notices later
ones after half a minute.
"""
ENDED = "2026-01-01T00:00:00Z"


class Sample(NamedTuple):
    """A workload, and statuses of its operator."""

    spec: Json
    pods: dict[str, int]
    running: Json
    shown: str
    """Field of the status that the host shows once it runs."""
    succeeded: Json | None = None
    failed: Json | None = None
    scaled: Json | None = None
    """Merge patch of the spec; None where it can't be scaled."""
    grown: int = 0
    """Pods after that."""


def pod(name: str = "main", cpu: str = "100m", **spec: Any) -> Json:
    resources = {"requests": {"cpu": cpu, "memory": "16Mi"}}
    return {
        "spec": {"containers": [{"name": name, "image": "registry.k8s.io/pause:3.10", "resources": resources}], **spec}
    }


def _condition(type_: str, reason: str = "AsItIs") -> Json:
    return {"type": type_, "status": "True", "reason": reason, "message": "", "lastTransitionTime": ENDED}


def _roles(field: str, container: str, **replicas: int) -> Json:
    made = {
        role: {"replicas": count, "restartPolicy": "OnFailure", "template": pod(container)}
        for role, count in replicas.items()
    }
    return {field: made}


def _of_operator(spec: Json, **pods: int) -> Sample:
    """The jobs of the training operator, and MPIJobs."""
    counts = {"Worker": {"active": pods.get("worker") or pods.get("Worker") or 1}}
    return Sample(
        spec,
        pods,
        {"conditions": [_condition("Created"), _condition("Running")], "replicaStatuses": counts},
        "replicaStatuses",
        {"conditions": [_condition("Succeeded")], "completionTime": ENDED},
        {"conditions": [_condition("Failed", "BackoffLimitExceeded")], "completionTime": ENDED},
    )


_RAY = {
    "rayVersion": "2.46.0",
    "headGroupSpec": {"rayStartParams": {}, "template": pod("ray-head")},
    "workerGroupSpecs": [
        {
            "groupName": "small-group",
            "replicas": 1,
            "minReplicas": 1,
            "maxReplicas": 5,
            "rayStartParams": {},
            "template": pod("ray-worker"),
        }
    ],
}
_READY = {"state": "ready", "readyWorkerReplicas": 1}
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
RUNTIME: Json = {
    "apiVersion": CLUSTER_TRAINING_RUNTIMES.api_version,
    "kind": CLUSTER_TRAINING_RUNTIMES.kind,
    "metadata": {"name": "torch-distributed", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {"metadata": {"labels": {_STEP: "trainer"}}, "spec": {"template": pod("node")}},
                    }
                ]
            }
        },
    },
}
"""What the TrainJob names."""

SAMPLES: dict[str, Sample] = {
    "TFJob": _of_operator(_roles("tfReplicaSpecs", "tensorflow", PS=1, Worker=2), ps=1, worker=2),
    "XGBoostJob": _of_operator(_roles("xgbReplicaSpecs", "xgboost", Master=1, Worker=2), master=1, worker=2),
    "JAXJob": _of_operator(_roles("jaxReplicaSpecs", "jax", Worker=2), worker=2),
    "MPIJob": _of_operator(
        {
            "slotsPerWorker": 1,
            "runPolicy": {"cleanPodPolicy": "Running"},
            **_roles("mpiReplicaSpecs", "mpi", Launcher=1, Worker=2),
        },
        Launcher=1,
        Worker=2,
    ),
    "TrainJob": Sample(
        {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "200m", "memory": "32Mi"}}},
        },
        {"node": 2},
        {"jobsStatus": [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]},
        "jobsStatus",
        {"conditions": [_condition("Complete", "JobsCompleted")]},
        {"conditions": [_condition("Failed", "JobsFailed")]},
    ),
    "RayJob": Sample(
        {
            "entrypoint": "python job.py",
            "submissionMode": "HTTPMode",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": _RAY,
        },
        {"ray-head": 1, "small-group": 1},
        {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterStatus": _READY},
        "jobStatus",
        {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "endTime": ENDED},
        {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "endTime": ENDED},
    ),
    "RayService": Sample(
        {"serveConfigV2": "applications: []", "rayClusterConfig": _RAY},
        {"ray-head": 1, "small-group": 1},
        {"serviceStatus": "Running", "activeServiceStatus": {"rayClusterStatus": _READY}},
        "activeServiceStatus",
        scaled={
            "rayClusterConfig": {**_RAY, "workerGroupSpecs": [{**_RAY["workerGroupSpecs"][0], "replicas": 3}]}  # type: ignore[index]
        },
        grown=4,
    ),
    "LeaderWorkerSet": Sample(
        {
            "replicas": 1,
            "leaderWorkerTemplate": {"size": 3, "leaderTemplate": pod("leader"), "workerTemplate": pod("worker")},
        },
        {"leader": 1, "worker": 2},
        {"replicas": 1, "readyReplicas": 1, "conditions": [_condition("Available", "AllGroupsReady")]},
        "readyReplicas",
        scaled={"replicas": 2},
        grown=6,
    ),
    "SparkApplication": Sample(
        {
            "type": "Scala",
            "mode": "cluster",
            "image": "spark:4.0.0",
            "mainClass": "org.apache.spark.examples.SparkPi",
            "mainApplicationFile": "local:///opt/spark/examples/jars/spark-examples.jar",
            "sparkVersion": "4.0.0",
            "driver": {"cores": 1, "memory": "512m", "serviceAccount": "spark"},
            "executor": {"instances": 2, "cores": 1, "memory": "512m"},
        },
        {"driver": 1, "executor": 2},
        {
            "driverInfo": {},
            "applicationState": {"state": "RUNNING"},
            "executorState": {"exec-1": "RUNNING", "exec-2": "RUNNING"},
        },
        "executorState",
        {"driverInfo": {}, "applicationState": {"state": "COMPLETED"}, "terminationTime": ENDED},
        {"driverInfo": {}, "applicationState": {"state": "FAILED"}, "terminationTime": ENDED},
    ),
    "AppWrapper": Sample(
        {
            "components": [
                {
                    "template": {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "metadata": {"name": "wrapped"},
                        "spec": {"parallelism": 2, "completions": 2, "template": pod(restartPolicy="Never")},
                    }
                }
            ]
        },
        {"component-0-0": 2},
        {"phase": "Running", "conditions": [_condition("PodsReady")]},
        "phase",
        {"phase": "Succeeded", "conditions": [_condition("Unhealthy")]},
        {"phase": "Failed", "conditions": [_condition("Unhealthy")]},
    ),
}
"""By title; of kinds that have no test of their own elsewhere."""


def workload(title: str, name: str) -> Json:
    """As its user applies it."""
    resource = BY_TITLE[title].resource
    about = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**about, "metadata": {"name": name}, "spec": SAMPLES[title].spec}
