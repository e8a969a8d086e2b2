"""What a Volcano Job's status should say, given its pods: the state machine without its I/O.

Phases and the rules between them follow Volcano's job controller: `act` does what a policy or a command asks for,
`next_phase` what the pods' own progress asks for. A restart is written down before any pod is deleted: `version`
counts restarts and stops of the whole Job, `restarts` says at which `retryCount` a task, partition or pod was
restarted, and pods carry both numbers of the moment when they were made, so every later look knows which of them are
to go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from atoll.agent.jobs import stages
from atoll.agent.objects import Pod
from atoll.kinds.volcano_job.tasks import task_dependencies, task_minimum, task_name, task_replicas
from atoll.model import keys, numbers
from atoll.model.timestamps import rfc3339_seconds, to_seconds

Json = dict[str, Any]

FINAL = ("Completed", "Failed", "Aborted", "Terminated")
"""Phases in which nothing of the Job is made any more."""
KILLING = {"Aborting": "Aborted", "Completing": "Completed", "Terminating": "Terminated"}
"""Phases in which pods are stopped -> the phase after the last one."""
MAKING = ("Pending", "Running")
"""Phases in which missing pods are made."""
RETRY_COUNT = "volcano.sh/job-retry-count"
_STOPS = {"AbortJob": "Aborting", "CompleteJob": "Completing", "TerminateJob": "Terminating"}
_FAILED = ("Failed", "Aborted", "Terminated")
_MAX_RETRY = 3
_WHOLE = "*"
_OWN = ("version", "retryCount", "restarts", "lastAction", "evicted", "seenUpdate")
_CONDITIONS = 64
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

    def __init__(
        self, pods: Iterable[Pod], expected: Mapping[str, int] | None = None, *, leaving: Collection[str] = ()
    ) -> None:
        """Count.

        Args:
            pods: that exist.
            expected: task -> pods which are being made just now; they count as pending.
            leaving: UIDs of pods that are being removed; they count as terminating, even ended ones.
        """
        self.total: Counter[str] = Counter()
        self.tasks: dict[str, Counter[str]] = {}
        #: of the pod that failed first: its name, and why; empty where none did or nothing is known of it
        self.failure = ""
        first = ""
        for pod in pods:
            # The time comes first, so that the earliest sorts first; then the name, so that the order is total.
            order = f"{pod.since or '~'} {pod.metadata.name}"
            if pod.failure and (not self.failure or order < first):
                first, self.failure = order, f"pod {pod.metadata.name}, {pod.failure}"
            if pod.metadata.uid in leaving or (pod.terminating and not pod.finished):
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


def min_available(spec: Mapping[str, Any]) -> int:
    """Gang size: as given, else the sum of the task minimums."""
    minimum = spec.get("minAvailable")
    if minimum is not None:
        return int(minimum)
    return sum(task_minimum(task) for task in spec.get("tasks") or ())


def floor_of(spec: Mapping[str, Any], opened: Collection[int] | None = None) -> int:
    """Gang size of the tasks at these positions, None for all: without pods that wait for other tasks."""
    if opened is None or len(opened) == len(spec.get("tasks") or ()):
        return min_available(spec)
    return sum(stages.gang_minimums(spec, min_available(spec), opened))


def replicas(spec: Mapping[str, Any]) -> int:
    """Pods of all tasks."""
    return sum(task_replicas(task) for task in spec.get("tasks") or ())


def max_retry(spec: Mapping[str, Any]) -> int:
    """Restarts after which the Job fails."""
    value = spec.get("maxRetry")
    return _MAX_RETRY if value is None else int(value)


def index_of(name: str) -> int:
    """The index in its task of a pod of this name."""
    return numbers.whole(name.rpartition("-")[2]) or 0


def partition_of(task: Mapping[str, Any], index: int) -> int:
    """Number of the partition that a pod of the task is in; 0 where the task has none."""
    size = int((task.get("partitionPolicy") or {}).get("partitionSize") or 0)
    return index // size if size else 0


def outdated(job: Mapping[str, Any], pod: Pod) -> bool:
    """Whether a restart or a stop has put an end to this pod, so that its events mean nothing.

    Success stays valid over a stop: a Job that is resumed goes on where it was.
    """
    status, notes = job.get("status") or {}, pod.metadata.annotations
    if _number(notes.get(keys.JOB_VERSION)) < int(status.get("version") or 0) and pod.phase != "Succeeded":
        return True
    restarts = status.get("restarts")
    if not restarts:
        return False
    made = _number(notes.get(RETRY_COUNT))
    targets = [_WHOLE, pod.task, f"{pod.task}:{pod.metadata.name}"]
    for position, task in enumerate((job.get("spec") or {}).get("tasks") or ()):
        if task.get("partitionPolicy") and task_name(task, position) == pod.task:
            targets.append(f"{pod.task}/{partition_of(task, index_of(pod.metadata.name))}")
    return any(made < int(restarts.get(target) or 0) for target in targets)


def _number(text: str | None) -> int:
    return numbers.whole(text) or 0


def doomed(job: Mapping[str, Any], pods: Iterable[Pod]) -> list[Pod]:
    """Pods that the Job's state removes; ended ones stay where the Job ends too, for their logs."""
    status, phase = job.get("status") or {}, phase_of(job)
    stopping = phase in FINAL or phase in KILLING
    # The last restart is none: the Job fails, and what failed stays to be looked at.
    last = phase == "Restarting" and int(status.get("retryCount") or 0) >= max_retry(job.get("spec") or {})
    if stopping:
        return [pod for pod in pods if not pod.finished]
    return [pod for pod in pods if outdated(job, pod) and not (last and pod.finished)]


def act(
    job: Mapping[str, Any],
    action: str,
    targets: Iterable[str] = (),
    *,
    reason: str,
    message: str,
    now: float,
    command: str = "",
) -> Json | None:
    """The changes of status by which an action begins; None where the action means nothing in the Job's phase.

    Args:
        job: the whole object.
        action: of a policy or a command.
        targets: of RestartTask, RestartPod and RestartPartition, as `policies.Wish.target` has them.
        reason: one word for the state.
        message: a sentence for it.
        now: seconds since the epoch.
        command: the host's wish that this is, remembered so that it is obeyed once.
    """
    old, phase = job.get("status") or {}, phase_of(job) or "Pending"
    version, retries = int(old.get("version") or 0), int(old.get("retryCount") or 0)
    active = phase in MAKING
    changes: Json = {"lastAction": command} if command else {}
    if action in _STOPS and (active or (command and phase == "Restarting")):
        return changes | {"version": version + 1, **_entered(old, _STOPS[action], reason, message, now)}
    if action == "ResumeJob" and phase in ("Aborting", "Aborted"):
        return changes | {"retryCount": retries + 1, **_entered(old, "Restarting", reason, message, now)}
    if not action.startswith("Restart") or not (active or phase == "Restarting"):
        return None
    # While a restart is under way, another one joins it and costs no further retry.
    count = retries + 1 if active else max(retries, 1)
    if action == "RestartJob":
        changes |= {"version": version + 1, "restarts": {_WHOLE: count}}
    else:
        changes |= {"restarts": {**(old.get("restarts") or {}), **dict.fromkeys(targets, count)}}
    changes["retryCount"] = count
    return changes | (_entered(old, "Restarting", reason, message, now) if active else {})


def _entered(old: Mapping[str, Any], phase: str, reason: str, message: str, now: float) -> Json:
    moment = rfc3339_seconds(now)
    state = {"phase": phase, "lastTransitionTime": moment}
    state |= {name: text for name, text in (("reason", reason), ("message", message)) if text}
    conditions = [*(old.get("conditions") or []), {"status": phase, "lastTransitionTime": moment}]
    # The first ones say when the Job began to run.
    return {"state": state, "conditions": conditions[:4] + conditions[4:][-_CONDITIONS:]}


def next_phase(
    job: Mapping[str, Any], census: Census, *, hold: bool = False, opened: Collection[int] | None = None
) -> tuple[str, str]:
    """The phase that the Job belongs in now, and a sentence for it.

    Args:
        job: the whole object.
        census: its pods.
        hold: a pending action may repair the failure.
        opened: positions of the tasks of which pods may be made, as `stages.open_tasks` says; None for all.
    """
    spec, phase = job.get("spec") or {}, phase_of(job) or "Pending"
    if phase in FINAL:
        return phase, ""
    floor = min_available(spec)
    if phase in KILLING:
        left = sum(census.total[name] for name in ("terminating", "pending", "running", "unknown"))
        return (phase if left else KILLING[phase]), ""
    if phase == "Restarting":
        retries = int((job.get("status") or {}).get("retryCount") or 0)
        if retries >= max_retry(spec):
            return "Failed", f"retryCount {retries} has reached maxRetry {max_retry(spec)}"
        return ("Pending" if replicas(spec) - census.total["terminating"] >= floor else phase), ""
    # A Job may jump over Running when its pods end between two looks: the same rules hold, one after the other.
    if phase == "Pending" and replicas(spec) and census.started >= floor_of(spec, opened):
        phase = "Running"
    if phase == "Running":
        after = _blocked(spec, census, opened) or _after_running(spec, census, floor)
        return (phase, "") if hold and after[0] == "Failed" else after
    return phase, ""


def _after_running(spec: Mapping[str, Any], census: Census, floor: int) -> tuple[str, str]:
    total, succeeded, wanted = replicas(spec), census.total["succeeded"], spec.get("minSuccess")
    if total == 0:
        return "Running", ""
    if wanted is not None and succeeded >= wanted:
        return "Completed", f"{succeeded} pods succeeded, {wanted} were asked for"
    if census.finished >= total and not census.total["terminating"]:
        return _after_all(spec, census, floor)
    if census.total["pending"] - _late(spec, census) > total - floor:
        return "Pending", "fewer pods than the gang needs are running"
    return "Running", ""


def _late(spec: Mapping[str, Any], census: Census) -> int:
    """Pods that are pending because the tasks that they waited for have just started."""
    tasks = enumerate(spec.get("tasks") or ())
    late = [task_name(task, position) for position, task in tasks if task_dependencies(task)]
    return sum(census.tasks[name]["Pending"] for name in late if name in census.tasks)


def _blocked(spec: Mapping[str, Any], census: Census, opened: Collection[int] | None) -> tuple[str, str] | None:
    """What becomes of a Job of which all has ended that could start, where other tasks still wait for some of it."""
    if opened is None or census.total["terminating"]:
        return None
    tasks = list(spec.get("tasks") or ())
    waiting = [position for position, task in enumerate(tasks) if position not in opened and task_replicas(task)]
    asked = sum(task_replicas(task) for position, task in enumerate(tasks) if position in opened)
    wanted = spec.get("minSuccess")
    if not waiting or census.finished < asked or (wanted is not None and census.total["succeeded"] >= wanted):
        return None
    first = tasks[waiting[0]]
    names = ", ".join(task_dependencies(first))
    return "Failed", f"task {task_name(first, waiting[0])} never started: it depends on {names}, which ended before"


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


def desired_status(
    job: Mapping[str, Any],
    census: Census,
    now: float,
    *,
    hold: bool = False,
    required: str = "",
    opened: Collection[int] | None = None,
) -> Json:
    """The status that the Job should have; equal to the present one where nothing has changed.

    Args:
        job: the whole object.
        census: its pods.
        now: seconds since the epoch, for transitions.
        hold: as for `next_phase`.
        required: the action that the host must decide about, as a sentence; empty for none.
        opened: as for `next_phase`.
    """
    old = job.get("status") or {}
    before, was = phase_of(job), old.get("state") or {}
    phase, message = next_phase(job, census, hold=hold, opened=opened)
    # Who aborts a Job by hand did not do it for that.
    if phase in _FAILED and census.failure and was.get("reason") != "CommandIssued":
        message = "; ".join(text for text in (message, census.failure) if text)
    status: Json = {key: census.total[key] for key in _COUNTERS}
    status["minAvailable"] = min_available(job.get("spec") or {})
    status["taskStatusCount"] = {task: {"phase": dict(count)} for task, count in census.tasks.items()}
    status |= {key: old[key] for key in _OWN if key in old}
    status["version"] = old.get("version") or 0
    status["retryCount"] = old.get("retryCount") or 0
    if phase == before:
        status["state"] = was
        if required:
            status["state"] = {**was, "reason": keys.ACTION_REQUIRED, "message": required}
        elif was.get("reason") == keys.ACTION_REQUIRED:
            status["state"] = {key: value for key, value in was.items() if key not in ("reason", "message")}
        status["conditions"] = old.get("conditions") or []
        if "runningDuration" in old:
            status["runningDuration"] = old["runningDuration"]
        return status
    if required:
        status |= _entered(old, phase, keys.ACTION_REQUIRED, required, now)
    elif phase in FINAL and (before in KILLING or before == "Restarting"):
        # What led here is what people ask for.
        sentence = "; ".join(text for text in (message, was.get("message") or "") if text)
        status |= _entered(old, phase, was.get("reason") or "", sentence, now)
    else:
        status |= _entered(old, phase, "", message, now)
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
