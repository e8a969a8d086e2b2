"""Which pods of a Job have succeeded, whether or not their objects are still there: these are never made again.

`status.done` has the indices of each task, written like `0,2-4`. A restart takes out restarted indices. For any code
that reads the pods of a Job, succeeded and removed pods are there as pods without a UID.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from atoll.agent.jobs.pods import pod_name
from atoll.agent.jobs.state import RETRY_COUNT, index_of, outdated, partition_of
from atoll.agent.objects import Pod
from atoll.kinds.volcano_job.tasks import task_name, task_replicas
from atoll.model import keys, numbers
from atoll.model.gang import MOST_PODS
from atoll.model.objects import Meta

Json = Mapping[str, Any]

_LONGEST = 16 * 1024
"""Characters of one task's indices that a status keeps: those beyond are made again once their pods are removed."""


def remembered(job: Json, pods: Iterable[Pod]) -> list[Pod]:
    """Pods that have succeeded and are there no more, as if they were."""
    there, status = {pod.metadata.name for pod in pods}, job.get("status") or {}
    found = []
    for name, index in islice(_done(job), MOST_PODS):
        if (made := pod_name(job, name, index)) not in there:
            notes = {keys.TASK_SPEC: name, RETRY_COUNT: str(status.get("retryCount") or 0)}
            about = Meta(name=made, namespace=job["metadata"]["namespace"], annotations=notes)
            found.append(Pod(metadata=about, phase="Succeeded"))
    return found


def recorded(job: Json, pods: Iterable[Pod]) -> dict[str, str]:
    """Status entries of these pods, the remembered ones among them."""
    ended: dict[str, set[int]] = {}
    for pod in pods:
        if pod.phase == "Succeeded" and not outdated(job, pod):
            ended.setdefault(pod.task, set()).add(index_of(pod.metadata.name))
    return {name: _written(indices) for name, indices in sorted(ended.items())}


def after(job: Json, action: str, targets: Collection[str]) -> dict[str, str]:
    """What the status says once an action began.

    Args:
        job: the whole object, before it.
        action: of a policy or a command.
        targets: of RestartTask, RestartPod and RestartPartition, as `policies.Wish.target` has them.
    """
    if action == "RestartJob":
        return {}
    tasks = {task_name(task, at): task for at, task in enumerate(job["spec"].get("tasks") or ())}
    left: dict[str, set[int]] = {}
    for name, index in islice(_done(job), MOST_PODS):
        part = f"{name}/{partition_of(tasks[name], index)}"
        if targets and not {name, part, f"{name}:{pod_name(job, name, index)}"}.isdisjoint(targets):
            continue
        left.setdefault(name, set()).add(index)
    return {name: _written(indices) for name, indices in left.items()}


def _done(job: Json) -> Iterator[tuple[str, int]]:
    """(task, index) of all that have succeeded, within the Job's present size."""
    said = (job.get("status") or {}).get("done") or {}
    for at, task in enumerate(job["spec"].get("tasks") or ()):
        name, replicas = task_name(task, at), task_replicas(task)
        for run in filter(None, str(said.get(name) or "").split(",")):
            first, _, last = run.partition("-")
            start, end = numbers.whole(first), numbers.whole(last or first)
            if start is not None and end is not None:
                yield from ((name, index) for index in range(start, min(end + 1, replicas)))


def _written(indices: Collection[int]) -> str:
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    found, length = [], 0
    for first, last in runs:
        text = f"{first}" if first == last else f"{first}-{last}"
        length += len(text) + 1
        if length > _LONGEST:
            break
        found.append(text)
    return ",".join(found)
