"""The one reader of a Volcano Job's tasks, with the defaults that hold everywhere.

It survives what no schema has seen: a value of the wrong type counts as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
    """Its pods: as given, else those of its partitions, else 1."""
    if task.get("replicas") is not None:
        return _count(task, "replicas")
    total, size, _ = task_partitions(task)
    return total * size or 1


def task_minimum(task: Mapping[str, Any]) -> int:
    """Pods of it that the gang needs: as given, else those of the partitions that it needs, else all."""
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
