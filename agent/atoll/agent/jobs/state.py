"""What a Volcano Job's status should say, given its pods: the state machine without its I/O.

Phases and the rules between them follow Volcano's job controller (synchronisation only; lifecycle policies add their
actions in front of `next_phase`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from atoll.agent.objects import Pod
from atoll.model.timestamps import rfc3339_seconds, to_seconds

Json = dict[str, Any]

FINAL = ("Completed", "Failed", "Aborted", "Terminated")
"""Phases in which nothing of the Job is made any more."""
_COUNTERS = ("pending", "running", "succeeded", "failed", "terminating", "unknown")
_POD_PHASES = {
    "Pending": "pending",
    "Running": "running",
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Unknown": "unknown",
}


class Census:
    """The pods of a Job, counted."""

    def __init__(self, pods: Iterable[Pod], expected: Mapping[str, int] | None = None) -> None:
        """Count.

        Args:
            pods: that exist.
            expected: task -> pods which are being made just now; they count as pending.
        """
        self.total: Counter[str] = Counter()
        self.tasks: dict[str, Counter[str]] = {}
        for pod in pods:
            if pod.terminating and not pod.finished:
                self.total["terminating"] += 1
                continue
            self.total[_POD_PHASES.get(pod.phase, "unknown")] += 1
            self.tasks.setdefault(pod.task, Counter())[pod.phase] += 1
        for task, count in (expected or {}).items():
            if count:
                self.total["pending"] += count
                self.tasks.setdefault(task, Counter())["Pending"] += count

    @property
    def finished(self) -> int:
        """Pods that have ended."""
        return self.total["succeeded"] + self.total["failed"]

    @property
    def started(self) -> int:
        """Pods that run or have ended."""
        return self.total["running"] + self.finished

    def succeeded_of(self, task: str) -> int:
        """Succeeded pods of a task."""
        return self.tasks.get(task, Counter())["Succeeded"]


def phase_of(job: Mapping[str, Any]) -> str:
    """The phase that is written; empty before the first write."""
    return str(((job.get("status") or {}).get("state") or {}).get("phase") or "")


def task_name(task: Mapping[str, Any], index: int) -> str:
    """The task's name, or the one that admission would give it."""
    return str(task.get("name") or f"default{index}")


def task_minimum(task: Mapping[str, Any]) -> int:
    """Pods of the task that the gang needs."""
    minimum = task.get("minAvailable")
    return int(task.get("replicas") or 0) if minimum is None else int(minimum)


def min_available(spec: Mapping[str, Any]) -> int:
    """Gang size: as given, else the sum of the task minimums."""
    minimum = spec.get("minAvailable")
    if minimum is not None:
        return int(minimum)
    return sum(task_minimum(task) for task in spec.get("tasks") or ())


def replicas(spec: Mapping[str, Any]) -> int:
    """Pods of all tasks."""
    return sum(int(task.get("replicas") or 0) for task in spec.get("tasks") or ())


def next_phase(job: Mapping[str, Any], census: Census) -> tuple[str, str]:
    """The phase that the Job belongs in now, and a sentence for it."""
    spec, phase = job.get("spec") or {}, phase_of(job) or "Pending"
    if phase in FINAL:
        return phase, ""
    floor = min_available(spec)
    # A Job may jump over Running when its pods end between two looks: the same rules hold, one after the other.
    if phase == "Pending" and replicas(spec) and census.started >= floor:
        phase = "Running"
    if phase == "Running":
        return _after_running(spec, census, floor)
    return phase, ""


def _after_running(spec: Mapping[str, Any], census: Census, floor: int) -> tuple[str, str]:
    total, succeeded, wanted = replicas(spec), census.total["succeeded"], spec.get("minSuccess")
    if total == 0:
        return "Running", ""
    if wanted is not None and succeeded >= wanted:
        return "Completed", f"{succeeded} pods succeeded, {wanted} were asked for"
    if census.finished >= total and not census.total["terminating"]:
        return _after_all(spec, census, floor)
    if census.total["pending"] > total - floor:
        return "Pending", "fewer pods than the gang needs are running"
    return "Running", ""


def _after_all(spec: Mapping[str, Any], census: Census, floor: int) -> tuple[str, str]:
    tasks = list(spec.get("tasks") or ())
    succeeded, wanted = census.total["succeeded"], spec.get("minSuccess")
    if floor >= sum(task_minimum(task) for task in tasks):
        for index, task in enumerate(tasks):
            name = task_name(task, index)
            if census.succeeded_of(name) < task_minimum(task):
                done = census.succeeded_of(name)
                return (
                    "Failed",
                    f"task {name}: {done} pods succeeded, {task_minimum(task)} are needed",
                )
    if wanted is not None:
        return "Failed", f"{succeeded} pods succeeded, minSuccess is {wanted}"
    if succeeded >= floor:
        return "Completed", ""
    return "Failed", f"{succeeded} pods succeeded, minAvailable is {floor}"


def desired_status(job: Mapping[str, Any], census: Census, now: float) -> Json:
    """The status that the Job should have; equal to the present one where nothing has changed.

    Args:
        job: the whole object.
        census: its pods.
        now: seconds since the epoch, for transitions.
    """
    old = job.get("status") or {}
    before = phase_of(job)
    phase, message = next_phase(job, census)
    status: Json = {key: census.total[key] for key in _COUNTERS}
    status["minAvailable"] = min_available(job.get("spec") or {})
    status["taskStatusCount"] = {task: {"phase": dict(count)} for task, count in census.tasks.items()}
    status["version"] = old.get("version") or 0
    status["retryCount"] = old.get("retryCount") or 0
    if phase == before:
        status["state"] = old["state"]
        status["conditions"] = old.get("conditions") or []
        if "runningDuration" in old:
            status["runningDuration"] = old["runningDuration"]
        return status
    moment = rfc3339_seconds(now)
    status["state"] = {
        "phase": phase,
        "lastTransitionTime": moment,
        **({"message": message} if message else {}),
    }
    status["conditions"] = [
        *(old.get("conditions") or []),
        {"status": phase, "lastTransitionTime": moment},
    ]
    if phase in FINAL:
        status["runningDuration"] = duration(now - _began(job, now))
    return status


def _began(job: Mapping[str, Any], now: float) -> float:
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "Running":
            return to_seconds(condition["lastTransitionTime"])
    created = (job.get("metadata") or {}).get("creationTimestamp")
    return to_seconds(created) if created else now


def duration(seconds: float) -> str:
    """A Go duration of whole seconds, such as `1h2m3s`."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{rest}s"


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    """The JSON merge patch that turns `old` into `new`; empty when they are equal."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif isinstance(value, dict) and isinstance(old[key], dict):
            if inner := difference(old[key], value):
                patch[key] = inner
        elif old[key] != value:
            patch[key] = value
    return patch
