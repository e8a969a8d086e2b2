"""Lifecycle policies: what happened to a Job's pods, and which action its author wants for it.

Level-based like the rest: events are read off the pods as they are, with the times that their statuses carry, so that
neither a missed watch event nor a restart of the agent loses an action or its timeout. Only a pod that vanished
leaves nothing to read; the caller remembers it (`lost`).

Where Volcano reads the first container's exit code, any container that ended badly counts here, since a sidecar
listed first must not hide the failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.agent.jobs import state
from atoll.agent.jobs.pods import places as places_of
from atoll.agent.jobs.rejections import pushed_out
from atoll.agent.objects import Pod
from atoll.kinds.volcano_job.tasks import task_name, task_replicas
from atoll.model import duration, keys, numbers
from atoll.model.timestamps import to_seconds

Json = Mapping[str, Any]

ANY = "*"
WHOLE = ("RestartJob", "AbortJob", "TerminateJob", "CompleteJob")
"""Actions on all pods, which one member may not decide for a gang that runs in several."""
TARGETED = ("RestartTask", "RestartPod", "RestartPartition")
_TASK_RETRIES = 3


@dataclass(frozen=True)
class Happening:
    """Something that policies may ask for."""

    event: str
    at: float
    """Seconds since the epoch."""
    position: int
    """Of the task in the Job."""
    pod: str = ""
    """Name of the pod that it is about; empty for events of a whole task."""
    exit_codes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Wish:
    """An action that a policy asks for."""

    action: str
    target: str
    """What a targeted action restarts: `task`, `task/partition` or `task:pod`; empty for the whole Job."""
    due: float
    """Seconds since the epoch; 0 for at once."""
    event: str
    message: str
    pod: str = ""


def wishes(job: Json, pods: Iterable[Pod], lost: Mapping[str, float]) -> list[Wish]:
    """What the Job's policies ask for now and later, in the order in which it is due.

    Task policies come before policies of the Job, and the first that matches an event decides about it. `*` is any
    event but PodPending and PodRunning, which need their names and a timeout, as every pod comes there, and JobUpdated.

    Args:
        job: the whole object, with its status.
        pods: existing ones; pods already replaced by a restart don't count any more.
        lost: name -> when a pod that had not ended was removed from outside.
    """
    spec = job.get("spec") or {}
    tasks = list(spec.get("tasks") or ())
    if not spec.get("policies") and not any(task.get("policies") for task in tasks):
        return []
    found: list[Wish] = []
    for each in happenings(job, pods, lost):
        # The eviction of a pod decides alone where a policy asks for it: its exit code is that of the signal.
        if each.event == "PodFailed" and any(wish.pod == each.pod for wish in found[-1:]):
            continue
        for policy in (*(tasks[each.position].get("policies") or ()), *(spec.get("policies") or ())):
            if _matches(policy, each):
                found.append(_wish(job, policy, each))
                break
    if is_updated(job):
        found += [_on_update(policy) for policy in spec.get("policies") or () if "JobUpdated" in _events(policy)][:1]
    # Whole before part: what restarts everything makes the rest pointless.
    return sorted(found, key=lambda wish: (wish.due, wish.action in TARGETED, wish.target, wish.pod))


def happenings(job: Json, pods: Iterable[Pod], lost: Mapping[str, float]) -> Iterator[Happening]:
    """Every event that the pods show at this moment."""
    existing = list(pods)
    places = places_of(job, [*(pod.metadata.name for pod in existing), *lost])
    by_task: dict[int, list[Pod]] = {}
    for pod in existing:
        place = places.get(pod.metadata.name)
        if place is None:
            continue
        if not state.outdated(job, pod):
            by_task.setdefault(place[0], []).append(pod)
            yield from _of_pod(pod, place[0])
    for name, at in lost.items():
        if name in places:
            yield Happening("PodEvicted", at, places[name][0], name)
    for position, task in enumerate(job["spec"].get("tasks") or ()):
        yield from _of_task(task, position, by_task.get(position, []))


def _of_pod(pod: Pod, position: int) -> Iterator[Happening]:
    name, meta = pod.metadata.name, pod.metadata
    at = to_seconds(pod.since or meta.creation_timestamp)
    if pod.phase == "Failed":
        if pushed_out(pod):
            yield Happening("PodEvicted", at, position, name)
        yield Happening("PodFailed", at, position, name, pod.exit_codes)
    elif pod.phase == "Succeeded":
        return
    elif meta.deletion_timestamp is not None:
        yield Happening("PodEvicted", to_seconds(meta.deletion_timestamp), position, name)
    elif pod.phase == "Pending":
        yield Happening("PodPending", to_seconds(meta.creation_timestamp), position, name)
    elif pod.phase == "Running":
        yield Happening("PodRunning", at, position, name)
    elif pod.phase == "Unknown":
        yield Happening("Unknown", at, position, name)


def _of_task(task: Json, position: int, pods: Sequence[Pod]) -> Iterator[Happening]:
    replicas, times = task_replicas(task), [to_seconds(pod.since) for pod in pods if pod.since]
    last = max(times, default=0.0)
    if replicas and sum(pod.phase == "Succeeded" for pod in pods) >= replicas:
        yield Happening("TaskCompleted", last, position)
    limit = task.get("maxRetry")
    limit = _TASK_RETRIES if limit is None else int(limit)
    # Volcano's -1: as often as it takes.
    if 0 <= limit <= sum(pod.restarts for pod in pods) and any(pod.restarts for pod in pods):
        yield Happening("TaskFailed", last, position)


def _matches(policy: Json, happening: Happening) -> bool:
    if policy.get("exitCode"):
        return happening.event == "PodFailed" and int(policy["exitCode"]) in happening.exit_codes
    events = _events(policy)
    if happening.event in ("PodPending", "PodRunning"):
        return happening.event in events and _timeout(policy) > 0
    return happening.event in events or ANY in events


def _events(policy: Json) -> set[Any]:
    return {policy.get("event"), *(policy.get("events") or ())}


def _wish(job: Json, policy: Json, happening: Happening) -> Wish:
    action, position = str(policy.get("action") or ""), happening.position
    task = job["spec"]["tasks"][position]
    if action == "RestartPartition" and not task.get("partitionPolicy"):
        action = "RestartTask"
    if not happening.pod and action in ("RestartPod", "RestartPartition"):
        action = "RestartTask"
    # Without a timeout it is due whatever the clocks say: a deletion time lies a grace period ahead.
    timeout = _timeout(policy)
    due = happening.at + timeout if timeout else 0.0
    name = task_name(task, position)
    target = ""
    if action == "RestartTask":
        target = name
    elif action == "RestartPartition":
        target = f"{name}/{state.partition_of(task, state.index_of(happening.pod))}"
    elif action == "RestartPod":
        target = f"{name}:{happening.pod}"
    return Wish(action, target, due, happening.event, _sentence(action, name, happening), happening.pod)


def _on_update(policy: Json) -> Wish:
    # It is about no task and no pod, so what would restart a part restarts the whole.
    action = str(policy.get("action") or "")
    action = "RestartJob" if action in TARGETED else action
    return Wish(action, "", 0.0, "JobUpdated", f"{action}: the Job was changed on the host")


def is_updated(job: Json) -> bool:
    """Whether the Job was changed on the host since its policies were asked last."""
    said, seen = update_of(job), (job.get("status") or {}).get("seenUpdate")
    return bool(said and seen and said != seen)


def update_of(job: Json) -> str:
    """Which change of the Job on the host this is; empty where no policy asks."""
    return ((job.get("metadata") or {}).get("annotations") or {}).get(keys.UPDATED) or ""


def _sentence(action: str, task: str, happening: Happening) -> str:
    about = f"pod {happening.pod}" if happening.pod else f"task {task}"
    codes = ", ".join(str(code) for code in happening.exit_codes)
    return f"{action}: {happening.event} of {about}" + (f", exit code {codes}" if codes else "")


def watches_evictions(job: Json, of: str | None = None) -> bool:
    """Whether a policy asks for PodEvicted of pods of this task, of any task for None: their losses matter."""
    spec = job.get("spec") or {}
    policies = [*(spec.get("policies") or ())]
    for position, task in enumerate(spec.get("tasks") or ()):
        if of is None or task_name(task, position) == of:
            policies += task.get("policies") or ()
    return any({"PodEvicted", ANY} & {policy.get("event"), *(policy.get("events") or ())} for policy in policies)


def is_divided(job: Json) -> bool:
    """Whether other members run parts of the same gang."""
    text = ((job.get("metadata") or {}).get("annotations") or {}).get(keys.PARTS)
    return (numbers.whole(text) or 0) > 1


def commanded(job: Json) -> tuple[str, str] | None:
    """(action, the annotation's whole text) that the host wants and that was not handled yet."""
    text = ((job.get("metadata") or {}).get("annotations") or {}).get(keys.ACTION) or ""
    if not text or text == (job.get("status") or {}).get("lastAction"):
        return None
    return text.partition("/")[0], text


def _timeout(policy: Json) -> float:
    """Seconds; 0 for none or nonsense."""
    text = policy.get("timeout")
    return duration.parse_or_none(text if isinstance(text, str) else None) or 0.0
