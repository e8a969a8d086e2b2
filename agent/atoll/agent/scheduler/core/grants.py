"""What the host granted to each binding here: no more of its pods are placed.

The queue was charged for the grant. Whatever made the pods, a kind whose controller makes more of them than the host
counted uses no more nodes than were paid for: the rest wait. Pods that have ended or were deleted count no more, so
their replacements need no grant of their own. Requests of single pods beyond the grant, which a member may add
to them, the host charges by what the agent reports.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.gangs import Standing
from atoll.model.gang import Gang, Task
from atoll.model.plurals import counted


class Grants:
    """Binding UID -> its gang as it was granted, and its pods that have nodes."""

    def __init__(self) -> None:
        """Begin without any: a workload without a grant is not limited."""
        self._gangs: dict[str, tuple[int, Gang]] = {}
        #: binding UID -> keys of its pods that have nodes -> their tasks
        self._placed: dict[str, dict[str, str]] = {}
        #: key of a pod that is counted -> its binding
        self._of: dict[str, str] = {}
        #: binding UID -> keys of gangs of which pods wait for a grant
        self._short: dict[str, set[str]] = {}

    def grant(self, uid: str, epoch: int, gang: Gang) -> set[str]:
        """Take in what the newest dispatch was granted; gangs that waited for more."""
        if epoch < self._gangs.get(uid, (-1, gang))[0]:
            return set()
        self._gangs[uid] = (epoch, gang)
        return self._short.pop(uid, set())

    def forget(self, uid: str) -> None:
        """The host has nothing to do with the binding here any more."""
        self._gangs.pop(uid, None)
        self._short.pop(uid, None)

    def preempts(self, uid: str) -> bool:
        """Whether others may be evicted for the binding, as its host says."""
        found = self._gangs.get(uid)
        return found is None or found[1].preempts

    def count(self, key: str, pod: Pod | None) -> set[str]:
        """A pod of a binding has a node, or none any more (None); gangs that waited for that."""
        before, uid = self._of.pop(key, ""), pod.binding_uid if pod is not None else ""
        if pod is not None and uid:
            self._of[key] = uid
            self._placed.setdefault(uid, {})[key] = pod.gang_task
        if not before or before == uid:
            return set()
        left = self._placed[before]
        del left[key]
        if not left:
            del self._placed[before]
        return self._short.pop(before, set())

    def within(self, view: Standing) -> Standing | str:
        """As much of the gang as was granted, or why none of its pods is placed."""
        found = self._gangs.get(view.binding_uid)
        if found is None:
            return view
        tasks = {task.name: task for task in found[1].tasks}
        left = Counter({task.name: task.replicas for task in tasks.values()})
        for name in self._placed.get(view.binding_uid, {}).values():
            left[_task(name, tasks)] -= 1
        granted, problem = [], ""
        for pod in view.waiting:
            name = _task(pod.gang_task, tasks)
            why = _beyond(pod, tasks.get(name), left[name])
            if why:
                problem = problem or why
            else:
                left[name] -= 1
                granted.append(pod)
        if not problem:
            return view
        self._short.setdefault(view.binding_uid, set()).add(view.key)
        return replace(view, waiting=granted) if granted else problem


def _task(name: str, tasks: dict[str, Task]) -> str:
    """The task that a pod counts for: pods of a gang of one task may have no task's name."""
    return next(iter(tasks)) if len(tasks) == 1 else name


def _beyond(pod: Pod, task: Task | None, left: int) -> str:
    """Reason why a pod is outside of the grant; empty where it is inside."""
    if task is None:
        return f"the host knows no pods of task {pod.gang_task or pod.metadata.name} of this workload: none was granted"
    if left <= 0:
        text = f"the host granted {counted(task.replicas, 'pod')} of task {task.name}, and as many have nodes"
        return f"{text}: another waits until one has ended or more are granted"
    return ""
