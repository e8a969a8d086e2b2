"""Volcano Jobs and queues for the tests: valid as they come, spoiled by what the test says."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from atoll.admission import jsonpatch
from atoll.kinds.volcano_job import admission as jobs
from atoll.webhook import queues

Json = dict[str, Any]


def make_task(name: str = "worker", replicas: int = 2, **fields: Any) -> Json:
    template = {"spec": {"containers": [make_container()]}}
    return {"name": name, "replicas": replicas, "template": template, **fields}


def make_container(name: str = "main", **fields: Any) -> Json:
    return {"name": name, "image": "registry.example/train:1", **fields}


def make_job(*tasks: Json, name: str = "train", metadata: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team-a", **(metadata or {})},
        "spec": {"tasks": list(tasks) or [make_task()], **spec},
    }


def with_container(**fields: Any) -> Json:
    """A Job of one task whose only container has these fields."""
    job = make_job()
    job["spec"]["tasks"][0]["template"]["spec"]["containers"] = [make_container(**fields)]
    return job


def defaulted(job: Json) -> Json:
    return jsonpatch.applied(job, jobs.default_job(job))


def changed(job: Json, *path: str | int, value: Any) -> Json:
    """A copy with one member set."""
    result = copy.deepcopy(job)
    place: Any = result
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return result


def make_queue(name: str = "research", **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": True, **spec},
    }


def cached(queue: Json, state: str | None = None) -> queues.Queue:
    """The queue as the cache keeps it."""
    return queues.decode(msgspec.json.encode({**queue, "status": {"state": state} if state else {}}))
