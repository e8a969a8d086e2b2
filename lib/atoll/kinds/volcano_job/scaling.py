"""Another number of pods for a task: of what the task and the Job need as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.kinds.interface import Json, Scaled
from atoll.kinds.volcano_job.tasks import task_minimum, task_name, task_replicas


def scaled(workload: Mapping[str, Any], task: str, replicas: int) -> Scaled:
    """As `interface.Scaling`.

    A task that needs all of its pods needs all of them afterwards; one that needs fewer needs as many as before, or all
    where that is less. The minimum of the Job follows.
    """
    meta, spec = workload["metadata"], workload.get("spec") or {}
    tasks = spec.get("tasks") or []
    known = [task_name(each, number) for number, each in enumerate(tasks)]
    if task not in known and not (len(known) == 1 and not task):
        raise ValueError(f"choose one of its tasks with --task: {', '.join(known)}")
    position = known.index(task) if task else 0
    had, needed = task_replicas(tasks[position]), task_minimum(tasks[position])
    if had == replicas:
        return Scaled(task=known[position], had=had, needed=needed, patch=())
    least = replicas if needed == had else min(needed, replicas)
    at = f"/spec/tasks/{position}"
    patch: list[Json] = [
        {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
        {"op": "test", "path": "/spec/tasks", "value": tasks},
        {"op": "add", "path": f"{at}/replicas", "value": replicas},
        {"op": "add", "path": f"{at}/minAvailable", "value": least},
    ]
    minimum = spec.get("minAvailable")
    if minimum is not None:
        patch.append({"op": "add", "path": "/spec/minAvailable", "value": max(minimum + least - needed, 0)})
    return Scaled(task=known[position], had=had, needed=least, patch=patch)
