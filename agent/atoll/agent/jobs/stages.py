"""Which tasks of a Volcano Job may have pods now, and how large the gang of those is: `tasks[].dependsOn`.

The gang in the member grows as tasks come in: a minimum that counted pods which nothing has made yet would never be
reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from atoll.agent.objects import Pod
from atoll.kinds.volcano_job.tasks import task_dependencies, task_minimum, task_name, task_replicas
from atoll.model.gang import filled

Json = Mapping[str, Any]


def open_tasks(job: Json, pods: Iterable[Pod], begun: Collection[int] = ()) -> frozenset[int]:
    """Positions of the tasks of which pods may be made.

    A task that has pods keeps them, and gets lost ones again, with any later state of the tasks that it depends on.

    Args:
        job: the whole object.
        pods: of it, without leaving ones.
        begun: positions of tasks of which pods were made that no watch has shown yet.
    """
    tasks = list((job.get("spec") or {}).get("tasks") or ())
    if not any(task_dependencies(task) for task in tasks):
        return frozenset(range(len(tasks)))
    there: set[str] = set()
    started: dict[str, int] = {}
    for pod in pods:
        there.add(pod.task)
        if pod.phase == "Succeeded" or (pod.phase == "Running" and pod.ready):
            started[pod.task] = started.get(pod.task, 0) + 1
    missing = {
        name
        for position, task in enumerate(tasks)
        if started.get(name := task_name(task, position), 0) < task_minimum(task)
    }

    def may(position: int, task: Json) -> bool:
        names = task_dependencies(task)
        if not names or position in begun or task_name(task, position) in there:
            return True
        met = [name not in missing for name in names]
        return any(met) if (task.get("dependsOn") or {}).get("iteration") == "any" else all(met)

    return frozenset(position for position, task in enumerate(tasks) if may(position, task))


def gang_minimums(spec: Json, minimum: int, opened: Collection[int]) -> list[int]:
    """Pods per task, in the order of the tasks, of the gang that the open ones form.

    Args:
        spec: of the Job.
        minimum: of the whole Job.
        opened: as `open_tasks` says.
    """
    tasks = list(spec.get("tasks") or ())
    order = sorted(range(len(tasks)), key=lambda position: position not in opened)
    replicas = [task_replicas(tasks[position]) for position in order]
    minimums = [min(task_minimum(tasks[position]), most) for position, most in zip(order, replicas, strict=True)]
    floor = dict(zip(order, filled(minimums, replicas, minimum), strict=True))
    return [floor[position] if position in opened else 0 for position in range(len(tasks))]
