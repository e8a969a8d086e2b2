"""A workload of each kind of replicated pod templates, and what is to be read of it."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from atoll.admission import jsonpatch
from atoll.admission.rules import Change
from atoll.kinds import KINDS, Part
from atoll.kinds.templated import Templated
from atoll.model import keys
from atoll.model.array_states import FAILED, RUNNING, SUCCEEDED, byte, encode

Json = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"
BY_TITLE = {kind.words.title: kind for kind in KINDS if isinstance(kind, Templated)}


def pod(cpu: str = "1", **spec: Any) -> Json:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec}}


def pod_of_image() -> Json:
    made = pod(restartPolicy="Never")
    made["spec"]["containers"][0]["image"] = "busybox"
    return made


def condition(type_: str) -> Json:
    return {"type": type_, "status": "True", "lastTransitionTime": NOW}


def roles(field: str, **replicas: int) -> Json:
    return {field: {role: {"replicas": count, "template": pod()} for role, count in replicas.items()}}


def cluster(**workers: int) -> Json:
    groups = [{"groupName": name, "replicas": count, "template": pod()} for name, count in workers.items()]
    return {"headGroupSpec": {"template": pod("2")}, "workerGroupSpecs": groups}


JOBS = [
    {"name": "driver", "template": {"spec": {"template": pod()}}},
    {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 3, "template": pod()}}},
]


class Sample(NamedTuple):
    """A workload of a kind, and what is to be read of it."""

    spec: Json
    tasks: dict[str, int]
    succeeded: Json | None
    failed: Json | None
    running: Json
    referred: Json | None = None
    """The object of the host that it names."""


RUNTIME = {
    "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
    "podGroupPolicy": {"coscheduling": {}},
    "template": {
        "spec": {
            "replicatedJobs": [
                {
                    "name": "dataset-initializer",
                    "template": {
                        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}},
                        "spec": {
                            "template": {
                                "spec": {
                                    "containers": [{**pod()["spec"]["containers"][0], "name": "dataset-initializer"}]
                                }
                            }
                        },
                    },
                },
                {
                    "name": "node",
                    "dependsOn": [{"name": "dataset-initializer", "status": "Complete"}],
                    "template": {
                        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                        "spec": {
                            "template": {
                                "spec": {"containers": [{"name": "node", "image": "torch"}], "nodeSelector": {"a": "b"}}
                            }
                        },
                    },
                },
            ]
        }
    },
}
"""Of a TrainingRuntime."""

SAMPLES = {
    "JobSet": Sample(
        {"replicatedJobs": JOBS, "ttlSecondsAfterFinished": 9},
        {"driver": 1, "workers": 6},
        {"conditions": [condition("Completed")]},
        {"conditions": [condition("Failed")]},
        {"replicatedJobsStatus": [{"name": "driver", "ready": 1}]},
    ),
    "Deployment": Sample(
        {"replicas": 3, "template": pod()}, {"main": 3}, None, None, {"replicas": 3, "readyReplicas": 3}
    ),
    "StatefulSet": Sample(
        {"replicas": 2, "template": pod()}, {"main": 2}, None, None, {"replicas": 2, "readyReplicas": 2}
    ),
    **{
        title: Sample(
            roles(field, **replicas),
            {role if title == "MPIJob" else role.lower(): count for role, count in replicas.items()},
            {"conditions": [condition("Created"), condition("Succeeded")], "completionTime": NOW},
            {"conditions": [condition("Failed")]},
            {"conditions": [condition("Running")], "replicaStatuses": {"Worker": {"active": 2}}},
        )
        for title, field, replicas in (
            ("PyTorchJob", "pytorchReplicaSpecs", {"Master": 1, "Worker": 2}),
            ("TFJob", "tfReplicaSpecs", {"Chief": 1, "PS": 2, "Worker": 3}),
            ("XGBoostJob", "xgbReplicaSpecs", {"Master": 1, "Worker": 2}),
            ("JAXJob", "jaxReplicaSpecs", {"Worker": 4}),
            ("MPIJob", "mpiReplicaSpecs", {"Launcher": 1, "Worker": 2}),
        )
    },
    "TrainJob": Sample(
        {
            "runtimeRef": {"name": "torch", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            "trainer": {"numNodes": 3, "resourcesPerNode": {"requests": {"cpu": "2"}}},
        },
        {"dataset-initializer": 1, "node": 3},
        {"conditions": [condition("Complete")], "jobsStatus": [{"name": "node", "succeeded": 1}]},
        {"conditions": [condition("Failed")]},
        {"jobsStatus": [{"name": "node", "ready": 1, "active": 1}]},
        {"spec": RUNTIME},
    ),
    "RayJob": Sample(
        {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster(small=2), "ttlSecondsAfterFinished": 1},
        {"ray-head": 1, "small": 2},
        {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "endTime": NOW},
        {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "endTime": NOW},
        {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready", "readyWorkerReplicas": 2}},
    ),
    "RayCluster": Sample(
        cluster(small=2, none=0),
        {"ray-head": 1, "small": 2, "none": 0},
        None,
        None,
        {"state": "ready", "readyWorkerReplicas": 2},
    ),
    "RayService": Sample(
        {"rayClusterConfig": cluster(gpu=1)},
        {"ray-head": 1, "gpu": 1},
        None,
        None,
        {"activeServiceStatus": {"rayClusterStatus": {"state": "ready", "readyWorkerReplicas": 1}}},
    ),
    "LeaderWorkerSet": Sample(
        {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 4, "leaderTemplate": pod("2"), "workerTemplate": pod()},
        },
        {"leader": 2, "worker": 6},
        None,
        None,
        {"readyReplicas": 2, "replicas": 2},
    ),
    "SparkApplication": Sample(
        {"type": "Scala", "driver": {"cores": 1, "memory": "512m"}, "executor": {"instances": 3, "memory": "4g"}},
        {"driver": 1, "executor": 3},
        {"applicationState": {"state": "COMPLETED"}, "terminationTime": NOW},
        {"applicationState": {"state": "FAILED"}, "terminationTime": NOW},
        {"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING", "b": "PENDING"}},
    ),
    "AppWrapper": Sample(
        {
            "components": [
                {
                    "template": {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "spec": {"parallelism": 2, "template": pod()},
                    }
                },
                {"podSets": [{"replicas": 3, "path": "template.spec.pods"}], "template": {"spec": {"pods": pod()}}},
            ]
        },
        {"component-0-0": 2, "component-1-0": 3},
        {"phase": "Succeeded", "conditions": [condition("Unhealthy")]},
        {"phase": "Failed", "conditions": [condition("Unhealthy")]},
        {"phase": "Running"},
    ),
    "JobArray": Sample(
        {
            "indices": "0-9",
            "atOnce": 2,
            "template": {"spec": {"tasks": [{"name": "worker", "replicas": 3, "template": pod_of_image()}]}},
        },
        {"worker": 6},
        {"phase": "Completed", "completionTime": NOW, "states": encode(bytes([byte(SUCCEEDED)] * 10))},
        {"phase": "Failed", "completionTime": NOW, "states": encode(bytes([byte(FAILED, 1)] * 10))},
        {"phase": "Running", "states": encode(bytes([byte(RUNNING)] * 2 + [0] * 8)), "running": 2},
    ),
}


def new(title: str) -> Json:
    resource = BY_TITLE[title].resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "w", "namespace": "team", "creationTimestamp": NOW, "generation": 4},
        "spec": copy.deepcopy(SAMPLES[title].spec),
    }


def taken(title: str) -> Json:
    """As the webhook leaves it."""
    obj = new(title)
    referred = SAMPLES[title].referred
    change = Change(new=obj, namespace={keys.QUEUE_ANNOTATION: "team-a"}, referred=referred)
    return jsonpatch.applied(obj, BY_TITLE[title].admission().defaults(change))


def part_of(title: str, **fields: Any) -> Part:
    counts = SAMPLES[title].tasks
    identity = {keys.BINDING_UID: "b", keys.EPOCH: "1"}
    return Part("east", counts, fields.pop("minimum", sum(counts.values())), identity=identity, **fields)


def wrong(title: str, **spec: Any) -> list[str]:
    obj = taken(title)
    obj["spec"] |= spec
    change = Change(new=obj, namespace={}, referred=SAMPLES[title].referred)
    return [each.field for each in BY_TITLE[title].admission().problems(change)]
