"""Workloads of replicated pod templates that several tests submit."""

from __future__ import annotations

from atoll.kinds import job_set
from atoll.model import keys
from atoll.model.apiresource import STATEFUL_SETS, ApiResource
from tests.integration.federation import Json

JOB_SETS = job_set.KIND.resource


def template(seconds: float | None = None, **labels: str) -> Json:
    annotations = {} if seconds is None else {keys.RUN_TIME: f"{int(seconds * 1000)}ms"}
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}}
    return {"metadata": {"annotations": annotations, "labels": labels}, "spec": {"containers": [container]}}


def made(resource: ApiResource, name: str, spec: Json, **metadata: Json) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def job_set_of(name: str, seconds: float = 1.0, workers: int = 2) -> Json:
    def job(role: str, pods: int) -> Json:
        pod = template(seconds)
        pod["spec"]["restartPolicy"] = "Never"
        return {
            "name": role,
            "replicas": 1,
            "template": {"spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": pod}},
        }

    return made(JOB_SETS, name, {"replicatedJobs": [job("leader", 1), job("worker", workers)]})


def service(resource: ApiResource, name: str, replicas: int) -> Json:
    labels = {"app": name}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(None, app=name)}
    more = {"serviceName": name} if resource == STATEFUL_SETS else {}
    return made(resource, name, {**spec, **more})
