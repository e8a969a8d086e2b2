"""The Volcano Job: tasks of equal pods, started together.

Counts add up over members; its phase on the host is the one furthest from done, except that a failed part fails the
job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec

from atoll.kinds import metadata
from atoll.kinds.interface import (
    NOTHING,
    Assembly,
    DividedByPods,
    Guard,
    InMember,
    Json,
    LeftAlone,
    Outcome,
    Part,
    Referred,
    Report,
    Scaled,
    Scaling,
    Standing,
    Support,
    Words,
)
from atoll.kinds.volcano_job.tasks import (
    task_dependencies,
    task_minimum,
    task_name,
    task_partitions,
    task_replicas,
    tasks_of,
)
from atoll.model import duration, features, keys, needs, numbers, reports
from atoll.model.apiresource import JOBS, PRIORITY_CLASSES, SERVICE_ACCOUNTS, ApiResource
from atoll.model.gang import Gang, Partition, Task, TopologyWish
from atoll.model.placer import SCHEDULER_OF, SCHEDULERS, MadeFor, Placer, Unplaceable
from atoll.model.plurals import listed
from atoll.model.verdict import WITHHELD

if TYPE_CHECKING:
    from atoll.admission.rules import Rules

_FINAL = {"Completed": Outcome.SUCCEEDED, "Failed": Outcome.FAILED, "Terminated": Outcome.FAILED, "Aborted": None}
_PHASES = (
    "Pending", "Restarting", "Running", "Completing", "Completed",
    "Aborting", "Aborted", "Terminating", "Terminated", "Failed",
)  # fmt: skip
_ACTIONS = frozenset({"RestartJob", "AbortJob", "TerminateJob", "CompleteJob"})
"""That a lifecycle policy may ask for on all pods."""
_COUNTS = ("pending", "running", "succeeded", "failed", "terminating", "unknown")


_STATE = reports.record(
    phase=reports.text(32),
    reason=reports.text(reports.MAX_WORD),
    message=reports.text(),
    lastTransitionTime=reports.moment,
)


_PROBE = reports.record(answered=reports.number(numbers.INT32), message=reports.text())


def _scaled(workload: Mapping[str, Any], task: str, replicas: int) -> Scaled:
    # One command scales.
    from atoll.kinds.volcano_job.scaling import scaled

    return scaled(workload, task, replicas)


class VolcanoJob(DividedByPods):
    """`batch.volcano.sh/v1alpha1` Job."""

    resource = JOBS
    words = Words(
        title="Volcano Job",
        held="nothing: no other program serves it there",
        names=("vcjob", "vj", "job.batch.volcano.sh", "jobs.batch.volcano.sh", "jobs.v1alpha1.batch.volcano.sh"),
    )
    support = Support(
        components="its tasks",
        minimum="`minAvailable` of the Job and of its tasks",
        order="tasks with `dependsOn`, once those that they name have started",
        division="by sets of pods; tasks with `partitionPolicy` by partitions",
        scaling="`replicas` of tasks and `minAvailable`; more than the minimum as there is room",
        end="as its policies, `maxRetry` and `minSuccess` say; a policy may start it again",
        released="those that have ended, of tasks that no policy restarts",
        status="counts and phase, added up over members and dispatches",
    )
    guard = Guard(
        # What waits may move; of one that was dispatched and has not started only its binding knows.
        charged='!(dyn(oldObject).?status.?state.?phase.orValue("") in ["", "Pending", "Aborted"])',
    )
    in_member: InMember | None = InMember(status=True)
    assembly: Assembly | None = None
    scaling: Scaling | None = staticmethod(_scaled)
    referred: Referred | None = None
    commands: Collection[str] = ("AbortJob", "RestartJob", "ResumeJob")
    dedicated = False
    service = False
    optional = False

    def takes(self, obj: Mapping[str, Any]) -> bool:
        """All: nothing else runs them on the host."""
        return True

    def left_alone(self, obj: Mapping[str, Any]) -> LeftAlone | None:
        """Never."""
        return None

    def admission(self) -> Rules:
        """The rules of the module beside this one."""
        from atoll.kinds.volcano_job.admission import ADMISSION

        return ADMISSION

    def queue_of(self, obj: Mapping[str, Any], *, default: str = keys.DEFAULT_QUEUE) -> str:
        """spec.queue first, then labels and annotations."""
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return metadata.queue_of(obj, default=default)
        listed = spec.get("tasks")
        tasks = listed if isinstance(listed, list) else ()
        templates = [each.get("template") for each in tasks if isinstance(each, dict)]
        return metadata.queue_of(obj, templates, first=spec.get("queue"), default=default)

    def priority_class_of(self, obj: Mapping[str, Any]) -> str:
        """spec.priorityClassName, else that of the first task's pods."""
        spec = obj["spec"]
        if name := spec.get("priorityClassName"):
            return str(name)
        return next((_pod_spec(task).get("priorityClassName") or "" for task in spec.get("tasks") or ()), "")

    def gang(
        self,
        obj: Mapping[str, Any],
        *,
        priority: int,
        default_class: str = "",
        default_queue: str = keys.DEFAULT_QUEUE,
        carried: Mapping[str, int] = NOTHING,
    ) -> Gang:
        """Its tasks with their defaults; the webhook has filled in the defaults of the Job as a whole."""
        spec = obj["spec"]
        named = str(spec.get("priorityClassName") or default_class)
        tasks = [_task(number, task, named, obj["metadata"]) for number, task in enumerate(tasks_of(spec))]
        minimum = spec.get("minAvailable")
        wish = spec.get("networkTopology")
        gang = Gang(
            queue=self.queue_of(obj, default=default_queue),
            tasks=tasks,
            min_available=sum(task.min_available for task in tasks) if minimum is None else int(minimum),
            priority=priority,
            submitted=obj["metadata"].get("creationTimestamp") or "",
            network_topology=msgspec.convert(wish, TopologyWish) if wish else None,
            running_estimate=duration.parse_or_none(spec.get("runningEstimate")) or metadata.running_estimate(obj),
            patience=metadata.patience(obj),
            ready_timeout=metadata.ready_timeout(obj),
            preemptable=metadata.preemptable(obj, *(task.get("template") or {} for task in spec.get("tasks") or ())),
            hold=metadata.held(obj) or not any(task.replicas for task in tasks),
            needs=needs.of(map(_pod_spec, spec.get("tasks") or ())),
            features=features.of(self.resource, map(_pod_spec, spec.get("tasks") or ())),
            attempt=metadata.attempt(obj),
            # Only a member that has all of its tasks sees which have started.
            whole=any(task.later for task in tasks),
        )
        return metadata.spread_out(gang, obj, *(task.get("template") or {} for task in spec.get("tasks") or ()))

    def namespaced_needs(self, obj: Mapping[str, Any]) -> Sequence[tuple[ApiResource, str]]:
        """The PriorityClasses and ServiceAccounts that it names."""
        needs: dict[tuple[ApiResource, str], None] = {}
        if name := obj["spec"].get("priorityClassName"):
            needs[PRIORITY_CLASSES, name] = None
        for task in obj["spec"].get("tasks") or ():
            pod = _pod_spec(task)
            if name := pod.get("priorityClassName"):
                needs[PRIORITY_CLASSES, name] = None
            if name := pod.get("serviceAccountName"):
                needs[SERVICE_ACCOUNTS, name] = None
        return list(needs)

    def makes_claims(self, obj: Mapping[str, Any]) -> bool:
        """True for volumes with a spec for one."""
        return any(volume.get("volumeClaim") for volume in obj["spec"].get("volumes") or ())

    def rewrite(self, obj: Mapping[str, Any], part: Part) -> Json:
        """Replicas and minimums of this part; no TTL, since the host alone removes finished jobs.

        What runs in one member with fewer pods than it asks for keeps its replicas, since all of them are to run in
        the end; an annotation says how many may do so at once.
        """
        spec = {key: value for key, value in obj["spec"].items() if key != "ttlSecondsAfterFinished"}
        head = metadata.for_member(obj)
        tasks, at_once = [], {}
        for task in tasks_of(spec):
            name = task["name"]
            count = part.counts.get(name, 0)
            minimum = part.minimums.get(name, count)
            if "template" in task:
                template = metadata.template_for_member(task["template"], name, part.flavors)
                task = {**task, "template": metadata.ending_in_time(template, part.grace)}
            if part.parts == 1 and count < task_replicas(task):
                at_once[name] = count
                tasks.append({**task, "minAvailable": minimum, "template": _identified(task, part.identity)})
            elif count:
                template = _identified(task, part.identity)
                tasks.append({**task, "replicas": count, "minAvailable": minimum, "template": template})
        spec.update(tasks=tasks, minAvailable=part.min_available)
        if part.parts > 1 and spec.get("plugins"):
            # Those without pods here as well: sizes and ranks count them.
            wide = {
                name: (part.preceding.get(name, 0), task_replicas(task))
                for number, task in enumerate(obj["spec"].get("tasks") or ())
                if (name := task_name(task, number)) in part.counts
            }
            head["annotations"][keys.INDEX_OFFSET] = msgspec.json.encode(wide, order="sorted").decode()
            if part.network:
                peers = {"names": part.network, "pods": part.shares}
                head["annotations"][keys.PEERS] = msgspec.json.encode(peers, order="sorted").decode()
        if "JobUpdated" in _events(spec):
            head["annotations"][keys.UPDATED] = str(obj["metadata"].get("generation") or 0)
        if at_once:
            head["annotations"][keys.AT_ONCE] = msgspec.json.encode(at_once, order="sorted").decode()
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": head,
            "spec": spec,
        }

    def placed(self, manifest: Json, how: MadeFor) -> Json:
        """Its scheduler, queue and templates; Kueue does not know it."""
        if how.placer is Placer.KUEUE:
            raise Unplaceable("the member's placer is kueue, which does not know Volcano Jobs: send it elsewhere")
        spec = dict(manifest["spec"])
        if how.queue:
            spec["queue"] = how.queue
        scheduler = spec.get("schedulerName") or ""
        spec["tasks"] = [
            {**task, "template": metadata.template_for(task.get("template") or {}, how, scheduler=scheduler)}
            for task in spec["tasks"]
        ]
        if scheduler in SCHEDULERS:
            spec["schedulerName"] = SCHEDULER_OF[how.placer]
        return {**manifest, "spec": spec}

    def started(self, status: Mapping[str, Any]) -> int:
        """As counted."""
        return int(status.get("running") or 0) + int(status.get("succeeded") or 0)

    def ended(self, status: Mapping[str, Any]) -> int:
        """Failed ones as well: a policy that makes them again removes them first."""
        return int(status.get("succeeded") or 0) + int(status.get("failed") or 0)

    def released(self, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, int]:
        """By the counts of its tasks; of tasks that a policy may restart only once the Job is over."""
        spec, counted = manifest["spec"], status.get("taskStatusCount") or {}
        tasks = {task_name(task, number): task for number, task in enumerate(spec.get("tasks") or ())}
        if restarted := _restarted(spec, tasks):
            tasks = {name: task for name, task in tasks.items() if name not in restarted}
        found = {name: (counted.get(name) or {}).get("phase") or {} for name in tasks}
        ended = {name: int(of.get("Succeeded") or 0) + int(of.get("Failed") or 0) for name, of in found.items()}
        released: Counter[str] = Counter()
        for name, count in ended.items():
            notes = ((tasks[name].get("template") or {}).get("metadata") or {}).get("annotations") or {}
            released[notes.get(keys.GANG_TASK, name)] += min(count, task_replicas(tasks[name]))
        return +released

    def suspended(self, status: Mapping[str, Any]) -> str:
        """Never: it has no such field, and one that is aborted is to stay so."""
        return ""

    def suspension(self, obj: Mapping[str, Any], *, suspended: bool) -> Sequence[Json]:
        """Nothing: its binding is suspended instead."""
        return ()

    def reported(self, manifest: Mapping[str, Any], status: Any, *, field: str = "status") -> Json:
        """Its counts are cut to the pods that were sent, and to their tasks: it may not have heard of a new one yet."""
        # No command reads a report.
        from atoll.model import probes

        tasks = (manifest.get("spec") or {}).get("tasks") or ()
        if isinstance(status, dict) and isinstance(counted := status.get("taskStatusCount"), dict):
            names = {task_name(task, number) for number, task in enumerate(tasks)}
            status = {**status, "taskStatusCount": {name: counted[name] for name in counted if name in names}}
        pods = sum(task_replicas(task) for task in tasks)
        phases = reports.table(reports.number(pods), reports.text(32), 16)
        counts: dict[str, reports.Check[Any]] = dict.fromkeys(_COUNTS, reports.number(pods))
        own = {
            **counts,
            "state": _STATE,
            "minAvailable": reports.number(pods),
            "taskStatusCount": reports.table(reports.record(phase=phases), reports.text(253), max(len(tasks), 1)),
            "version": reports.number(numbers.INT32),
            "retryCount": reports.number(numbers.INT32),
            "runningDuration": reports.matching(duration.BOUNDED),
            "probes": reports.items(_PROBE, probes.MOST),
            "conditions": reports.items(reports.record(status=reports.text(32), lastTransitionTime=reports.moment), 64),
        }
        return reports.part_of(status, pods, own, field)

    def stopped(self, status: Mapping[str, Any]) -> bool:
        """It is aborted."""
        return (status.get("state") or {}).get("phase") == "Aborted"

    def asked(self, status: Mapping[str, Any]) -> str | None:
        """The message of a state whose reason says so begins with it."""
        state = status.get("state") or {}
        if state.get("reason") != keys.ACTION_REQUIRED:
            return None
        action = str(state.get("message") or "").partition(":")[0]
        return action if action in _ACTIONS else None

    def retries(self, status: Mapping[str, Any]) -> int:
        """As counted."""
        return int(status.get("retryCount") or 0)

    def ended_at(self, status: Mapping[str, Any]) -> str | None:
        """The last transition into its phase."""
        state = status.get("state") or {}
        phase, conditions = state.get("phase"), status.get("conditions") or ()
        moments = [each.get("lastTransitionTime") for each in conditions if each.get("status") == phase]
        moment = next((each for each in reversed(moments) if each), state.get("lastTransitionTime"))
        return str(moment) if moment else None

    def standing(self, obj: Mapping[str, Any]) -> Standing:
        """Its phase."""
        status = obj.get("status") or {}
        counts = (int(status.get(name) or 0) for name in ("pending", "running", "succeeded", "failed"))
        return Standing(str((status.get("state") or {}).get("phase") or "Pending"), *counts)

    def pods_selector(self, namespace: str, name: str) -> str:
        """The label that its controller gives them."""
        return f"{keys.JOB_NAME}={name}"

    def moved(self, obj: Mapping[str, Any], queue: str) -> Json:
        """By spec.queue, which counts before all else."""
        return {"spec": {"queue": queue}}

    def carried(self, status: Mapping[str, Any]) -> dict[str, int]:
        """Nothing: every dispatch starts from the beginning."""
        return {}

    def finished(self, status: Mapping[str, Any]) -> Outcome | None:
        """Completed, Failed and Terminated are final; an aborted job can be resumed."""
        return _FINAL.get((status.get("state") or {}).get("phase", ""))

    def healthy(self, status: Mapping[str, Any]) -> bool | None:
        """Failed and Terminated are unhealthy; without a known phase nothing is known."""
        phase = (status.get("state") or {}).get("phase")
        return phase not in ("Failed", "Terminated") if phase in _PHASES else None

    def running(self, status: Mapping[str, Any]) -> bool:
        """Its minimum runs, or did."""
        return (status.get("state") or {}).get("phase") in ("Running", "Completing", "Completed", "Failed")

    def aggregate(
        self, obj: Mapping[str, Any], reports: Sequence[Report], *, waiting: tuple[str, str], now: str
    ) -> Json:
        """Counts summed, the phase of the whole, conditions that record every phase once it was reached."""
        old = obj.get("status") or {}
        phase, reason, message = "Pending", *waiting
        states = [report.status.get("state") or {} for report in reports]
        phases = [state.get("phase") or "Pending" for state in states]
        if phases:
            lost = [each for each in ("Failed", "Terminated") if each in phases]
            phase = lost[0] if lost else min(phases, key=_rank)
            decisive = states[phases.index(phase)]
            reason, message = decisive.get("reason") or "", decisive.get("message") or ""
            if phase == "Pending" and not (reason or message):
                reason, message = waiting
            message = message or f"in {listed(sorted(report.cluster for report in reports))}"
        stopped = (obj["metadata"].get("annotations") or {}).get(keys.ABORTED) if metadata.held(obj) else None
        if stopped:
            phase, reason, message = _stopping(stopped, phases, waiting)
        before = old.get("state") or {}
        moved = before.get("phase") != phase
        state: Json = {"phase": phase, "lastTransitionTime": now if moved else before.get("lastTransitionTime", now)}
        if reason:
            state["reason"] = reason
        if message:
            state["message"] = message
        status: Json = {"state": state, "minAvailable": int(obj["spec"].get("minAvailable") or 0)}
        for name in _COUNTS:
            if amount := sum(int(report.status.get(name) or 0) for report in reports):
                status[name] = amount
        if counts := _task_counts(reports):
            status["taskStatusCount"] = counts
        if probed := _probed(reports):
            status["probes"] = probed
        if stopped and not reports:
            status |= _ended_pods(old)
        for name in ("version", "retryCount"):
            amount = max((int(report.status.get(name) or 0) for report in reports), default=0)
            if amount := amount + (_retries(obj) if name == "retryCount" else 0):
                status[name] = amount
        durations = [report.status["runningDuration"] for report in reports if report.status.get("runningDuration")]
        if durations and self.finished(status):
            status["runningDuration"] = max(durations, key=lambda text: duration.parse_or_none(text) or 0.0)
        conditions = list(old.get("conditions") or ())
        if moved or not conditions:
            conditions.append({"status": phase, "lastTransitionTime": now})
        status["conditions"] = conditions[-16:]
        return status


def _stopping(stopped: str, phases: Sequence[str], waiting: tuple[str, str]) -> tuple[str, str, str]:
    """Phase, reason and message of a Job that a Command stopped; it is over once the dispatcher says it is held."""
    restarts = stopped == keys.ABORTED_TO_RESTART
    action = "RestartJob" if restarts else "AbortJob"
    over = not phases and waiting[0] in WITHHELD
    if restarts:
        return "Restarting", "CommandIssued", f"{action} was asked for"
    return "Aborted" if over else "Aborting", "CommandIssued", f"{action} was asked for; ResumeJob starts it again"


def _ended_pods(old: Mapping[str, Any]) -> Json:
    """The counts of pods that had ended before the others were removed."""
    kept: Json = {name: old[name] for name in ("succeeded", "failed") if old.get(name)}
    tasks: dict[str, Json] = {}
    for task, counts in (old.get("taskStatusCount") or {}).items():
        ended = {phase: n for phase, n in (counts.get("phase") or {}).items() if phase in ("Succeeded", "Failed") and n}
        if ended:
            tasks[task] = {"phase": ended}
    return {**kept, "taskStatusCount": tasks} if tasks else kept


def _retries(obj: Mapping[str, Any]) -> int:
    """How often Commands started it again."""
    said = numbers.whole((obj["metadata"].get("annotations") or {}).get(keys.RETRIES))
    return min(said or 0, numbers.INT32)


def _rank(phase: str) -> int:
    return _PHASES.index(phase) if phase in _PHASES else 0


def _task_counts(reports: Sequence[Report]) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for report in reports:
        for task, counts in (report.status.get("taskStatusCount") or {}).items():
            phases = result.setdefault(task, {"phase": {}})["phase"]
            for phase, amount in (counts.get("phase") or {}).items():
                phases[phase] = phases.get(phase, 0) + int(amount)
    return result


def _probed(reports: Sequence[Report]) -> list[Json]:
    """What came of each probe in all members."""
    found: list[Json] = []
    for report in reports:
        for index, each in enumerate(report.status.get("probes") or ()):
            if index == len(found):
                found.append({"answered": 0})
            found[index]["answered"] += int(each.get("answered") or 0)
            if text := each.get("message"):
                found[index].setdefault("message", f"{report.cluster}: {text}")
    return found


def _identified(task: Mapping[str, Any], identity: Mapping[str, str]) -> Json:
    """The task's pod template with the annotations of a dispatch: whoever makes its pods copies them."""
    template = task.get("template") or {}
    head = template.get("metadata") or {}
    return {**template, "metadata": {**head, "annotations": {**(head.get("annotations") or {}), **identity}}}


def _restarted(spec: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]]) -> Collection[str]:
    """The tasks of which a lifecycle policy may make pods again that have ended."""
    own = {name: _actions(task) for name, task in tasks.items()}
    if _actions(spec) or any("RestartJob" in actions for actions in own.values()):
        return tasks.keys()
    return [name for name, actions in own.items() if actions]


def _actions(holder: Mapping[str, Any]) -> set[str]:
    """The restarts that the policies of a Job or a task ask for."""
    actions = {str(policy.get("action") or "") for policy in holder.get("policies") or ()}
    return {action for action in actions if action.startswith("Restart")}


def _events(spec: Mapping[str, Any]) -> set[str]:
    """Events in the policies of the Job as a whole."""
    policies = spec.get("policies") or ()
    return {event for policy in policies for event in (policy.get("event"), *(policy.get("events") or ())) if event}


def _pod_spec(task: Mapping[str, Any]) -> Json:
    return (task.get("template") or {}).get("spec") or {}


def _task(number: int, task: Mapping[str, Any], priority_class: str, job: Mapping[str, Any]) -> Task:
    pod = _pod_spec(task)
    head = (task.get("template") or {}).get("metadata") or {}
    said = head.get("labels") or {}
    for field in ("replicas", "minAvailable"):
        if type(task.get(field, 0)) not in (int, NoneType):
            raise ValueError(f"spec.tasks[{number}].{field}: {task[field]!r} is no whole number")
    made = metadata.task_of(
        task_name(task, number),
        pod,
        replicas=task_replicas(task),
        min_available=task_minimum(task),
        default_class=priority_class,
        labels={**said, keys.JOB_NAME: job.get("name", ""), keys.TASK_SPEC: task_name(task, number)},
        annotations=head.get("annotations"),
        namespace=job.get("namespace", ""),
        later=bool(task_dependencies(task)),
        numa_policy=task.get("topologyPolicy") or "",
    )
    partition = _partition(task)
    return msgspec.structs.replace(made, partition=partition) if partition is not None else made


def _partition(task: Mapping[str, Any]) -> Partition | None:
    """The partitions of a task, where they set the nearness of their pods."""
    _, size, _ = task_partitions(task)
    wish = (task.get("partitionPolicy") or {}).get("networkTopology")
    if not wish or not size > 1 or task_replicas(task) < 2:
        return None
    return Partition(size, msgspec.convert(wish, TopologyWish))


KIND = VolcanoJob()
