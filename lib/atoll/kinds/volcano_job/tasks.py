"""The one reader of a Volcano Job's tasks, with the defaults that hold everywhere.

The Job on the host keeps its tasks as its user wrote them: tools that compare objects with files (`kubectl apply`, Argo
CD) take a list as a whole, so that a default inside one is a difference for ever. Readers of tasks fill them in
(`tasks_of`); members get them filled in.

It survives what no schema has seen: a value of the wrong type counts as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]
MAX_RETRY: Final = 3
"""Restarts of a task's containers, and of a Job, where they say nothing."""


def tasks_of(spec: Mapping[str, Any]) -> list[Any]:
    """The tasks of a Job with their defaults: names, sizes, retries, the order that a plugin needs, and the DNS
    policy without which pods on the network of their node can't resolve the names of others.
    """
    tasks = spec.get("tasks")
    filled = [_filled(each, index) for index, each in enumerate(tasks if isinstance(tasks, list) else ())]
    chosen = spec.get("plugins")
    if isinstance(chosen, dict) and "mpi" in chosen:
        # Plugins are many modules, which few Jobs need and no command does.
        from atoll.kinds.volcano_job import plugins

        _order(filled, plugins.waits(plugin_arguments(chosen)))
    return filled


def plugin_arguments(given: object) -> dict[str, list[str]]:
    """Plugin -> its arguments; none where they are no list."""
    chosen = given if isinstance(given, dict) else {}
    return {name: [str(each) for each in found] if isinstance(found, list) else [] for name, found in chosen.items()}


def _filled(task: Any, index: int) -> Any:
    if not isinstance(task, dict):
        return task
    made = {
        **task,
        "name": task_name(task, index),
        "replicas": task_replicas(task) if task.get("replicas") is None else task["replicas"],
        "minAvailable": task_minimum(task) if task.get("minAvailable") is None else task["minAvailable"],
        "maxRetry": MAX_RETRY if task.get("maxRetry") is None else task["maxRetry"],
    }
    template: Any = task.get("template")
    pod = template.get("spec") if isinstance(template, dict) else None
    if isinstance(pod, dict) and pod.get("hostNetwork") is True and pod.get("dnsPolicy") in (None, "", "ClusterFirst"):
        made["template"] = {**template, "spec": {**pod, "dnsPolicy": "ClusterFirstWithHostNet"}}
    return made


def _order(tasks: list[Any], waits: Mapping[str, str]) -> None:
    """Have a task that waits for another by a plugin say so, unless one of both says something of that itself."""
    named = {each["name"]: each for each in tasks if isinstance(each, dict) and isinstance(each["name"], str)}
    for name, first in waits.items():
        both = [named.get(name), named.get(first)]
        if name != first and all(each is not None and each.get("dependsOn") is None for each in both):
            named[name]["dependsOn"] = {"name": [first], "iteration": "all"}


def task_name(task: Mapping[str, Any], position: int) -> str:
    """The task's name; `default0` and so on where it has none."""
    return task.get("name") or f"default{position}"


def task_partitions(task: Mapping[str, Any]) -> tuple[int, int, int]:
    """Partitions, their size, and how many of them the gang needs; zeros where there are none."""
    policy = task.get("partitionPolicy")
    if not isinstance(policy, dict):
        return 0, 0, 0
    return _count(policy, "totalPartitions"), _count(policy, "partitionSize"), _count(policy, "minPartitions")


def task_replicas(task: Mapping[str, Any]) -> int:
    """Its pods: as given, else the pods of its partitions, else 1."""
    if task.get("replicas") is not None:
        return _count(task, "replicas")
    total, size, _ = task_partitions(task)
    return total * size or 1


def task_minimum(task: Mapping[str, Any]) -> int:
    """Pods of it that the gang needs: as given, else the pods of required partitions, else all."""
    if task.get("minAvailable") is not None:
        return _count(task, "minAvailable")
    _, size, needed = task_partitions(task)
    return needed * size or task_replicas(task)


def task_dependencies(task: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the tasks of which one or all must have started before pods of it are made."""
    given = task.get("dependsOn")
    names = given.get("name") if isinstance(given, dict) else ()
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def _count(holder: Mapping[str, Any], field: str) -> int:
    value = holder.get(field)
    return max(value, 0) if type(value) is int else 0
