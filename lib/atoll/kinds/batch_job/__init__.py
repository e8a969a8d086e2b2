"""The batch/v1 Job: equal pods until enough of them have succeeded.

Its status on the host adds up over all dispatches and obeys the API server's rules for Jobs that another controller
manages: no counter falls, no end is taken back, and an end is written in one piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
    Scaling,
    Standing,
    Support,
    Words,
)
from atoll.model import features, keys, needs, numbers, reports
from atoll.model.apiresource import BATCH_JOBS, PRIORITY_CLASSES, SERVICE_ACCOUNTS, ApiResource
from atoll.model.gang import Gang
from atoll.model.placer import MadeFor, Placer, Unplaceable

if TYPE_CHECKING:
    from atoll.admission.rules import Rules

TASK = "main"
"""Its one task."""

_HOST_ONLY = ("ttlSecondsAfterFinished", "managedBy", "suspend")
_GENERATED_LABELS = (
    "controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name",
)  # fmt: skip
_ENDS = {"Complete": Outcome.SUCCEEDED, "Failed": Outcome.FAILED}
_BEFORE = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}
"""The condition that must be there for an end to be accepted."""


class BatchJob(DividedByPods):
    """`batch/v1` Job."""

    resource = BATCH_JOBS
    words = Words(
        title="batch Job",
        held=f"`spec.managedBy: {keys.CONTROLLER}` and `spec.suspend`",
        names=("job.batch", "job", "jobs", "jobs.batch"),
        prefix="job.batch/",
    )
    support = Support(
        components="`parallelism` pods of one template",
        minimum=f"all; fewer by annotation `{keys.GROUP_MIN_MEMBER}`",
        order="all at once",
        division="by pods; not Indexed ones",
        scaling="`parallelism`",
        end="as Kubernetes says (`backoffLimit`, `podFailurePolicy`); what failed is not sent again",
        released="those for which no completion is left",
        status="cumulative counts over members and dispatches, and Kubernetes' conditions",
    )
    guard = Guard(
        ours=f'dyn(oldObject).spec.?managedBy.orValue("") == "{keys.CONTROLLER}"',
        charged="!oldObject.spec.?suspend.orValue(false) && !oldObject.?status.?conditions.orValue([])"
        '.exists(each, each.?type.orValue("") in ["Complete", "Failed"] && each.?status.orValue("") == "True")',
        suspended=f'oldObject.spec.?managedBy.orValue("") == "{keys.CONTROLLER}"'
        " && oldObject.spec.?suspend.orValue(false)",
    )
    in_member: InMember | None = InMember(groups=True)
    assembly: Assembly | None = None
    scaling: Scaling | None = None
    referred: Referred | None = None
    commands: Collection[str] = ()
    dedicated = False
    service = False
    optional = False

    def takes(self, obj: Mapping[str, Any]) -> bool:
        """Only Jobs whose spec.managedBy was set to ours when they were created: it can't be set later."""
        spec = obj.get("spec")
        return isinstance(spec, dict) and spec.get("managedBy") == keys.CONTROLLER

    def left_alone(self, obj: Mapping[str, Any]) -> LeftAlone | None:
        """Another controller runs it, by its own word or as it was there first."""
        if self.takes(obj):
            return None
        if managed := (obj.get("spec") or {}).get("managedBy"):
            return LeftAlone(
                "ManagedByAnother",
                f"its spec.managedBy is {managed}: that controller runs it, and Atoll leaves it alone",
                "create it again without spec.managedBy, which can't be changed",
            )
        return LeftAlone(
            "OlderThanOptIn",
            "it was created before its namespace opted in: the host's own controller runs it",
            "delete it and create it again: spec.managedBy can't be changed",
        )

    def admission(self) -> Rules:
        """The rules of the module beside this one."""
        from atoll.kinds.batch_job.admission import ADMISSION

        return ADMISSION

    def queue_of(self, obj: Mapping[str, Any], *, default: str = keys.DEFAULT_QUEUE) -> str:
        """Labels and annotations of the Job, then of its pods."""
        spec = obj.get("spec")
        return metadata.queue_of(obj, (spec.get("template"),) if isinstance(spec, dict) else (), default=default)

    def priority_class_of(self, obj: Mapping[str, Any]) -> str:
        """That of its pods."""
        return str(_pod_spec(obj["spec"]).get("priorityClassName") or "")

    def gang(
        self,
        obj: Mapping[str, Any],
        *,
        priority: int,
        default_class: str = "",
        default_queue: str = keys.DEFAULT_QUEUE,
        carried: Mapping[str, int] = NOTHING,
    ) -> Gang:
        """As many pods as run at once; all of them start together unless an annotation asks for fewer.

        A Job without any pod to run (parallelism 0) counts as held.
        """
        spec = obj["spec"]
        pod = _pod_spec(spec)
        replicas = min(int(spec.get("parallelism", 1)), _remaining(spec, carried))
        minimum = min(minimum_of(obj) or replicas, replicas)
        deadline = _deadline(obj)
        head = (spec.get("template") or {}).get("metadata") or {}
        said = head.get("labels") or {}
        about = obj["metadata"]
        task = metadata.task_of(
            TASK,
            pod,
            replicas=replicas,
            min_available=minimum,
            default_class=default_class,
            labels={**said, "batch.kubernetes.io/job-name": about.get("name", ""), "job-name": about.get("name", "")},
            annotations=head.get("annotations"),
            namespace=about.get("namespace", ""),
        )
        if indexed(spec):
            task = metadata.partitioned(task, obj, spec.get("template") or {})
        gang = Gang(
            queue=self.queue_of(obj, default=default_queue),
            tasks=[task],
            min_available=minimum,
            priority=priority,
            submitted=obj["metadata"].get("creationTimestamp") or "",
            network_topology=metadata.topology_wish(obj, spec.get("template") or {}),
            running_estimate=metadata.running_estimate(obj) or (None if deadline is None else float(deadline)),
            patience=metadata.patience(obj),
            ready_timeout=metadata.ready_timeout(obj),
            preemptable=metadata.preemptable(obj, spec.get("template") or {}),
            hold=metadata.held(obj) or replicas == 0,
            attempt=metadata.attempt(obj),
            whole=indexed(spec),
            needs=needs.of([pod]),
            features=features.of(self.resource, [pod]),
        )
        return metadata.spread_out(gang, obj, spec.get("template") or {})

    def namespaced_needs(self, obj: Mapping[str, Any]) -> Sequence[tuple[ApiResource, str]]:
        """The PriorityClass and ServiceAccount of its pods."""
        pod = _pod_spec(obj["spec"])
        named = ((PRIORITY_CLASSES, "priorityClassName"), (SERVICE_ACCOUNTS, "serviceAccountName"))
        return [(resource, pod[field]) for resource, field in named if pod.get(field)]

    def makes_claims(self, obj: Mapping[str, Any]) -> bool:
        """Never: its pods name claims that are there."""
        return False

    def rewrite(self, obj: Mapping[str, Any], part: Part) -> Json:
        """Started, managed by the member's own controller, without what the host's API server generated.

        Completions of earlier dispatches are not run again, except in an Indexed Job, whose pods need all of
        their indices.
        """
        spec = {key: value for key, value in obj["spec"].items() if key not in _HOST_ONLY}
        template = metadata.template_for_member(spec.get("template") or {}, TASK, part.flavors)
        template = metadata.ending_in_time(template, part.grace)
        head = template.get("metadata") or {}
        labels = head.get("labels") or {}
        if not spec.get("manualSelector"):
            spec.pop("selector", None)
            labels = {key: value for key, value in labels.items() if key not in _GENERATED_LABELS}
        pod = dict(template.get("spec") or {})
        if pod.get("schedulerName") in (None, "", "default-scheduler"):
            pod["schedulerName"] = keys.SCHEDULER_NAME
        gang = self.gang(obj, priority=0)
        annotations = {
            **(head.get("annotations") or {}),
            **metadata.topology_carried(obj),
            **metadata.topology_told(gang),
            # The task label marks pods in slices; others need none.
            **({keys.TASK_SPEC: TASK} if gang.tasks[0].partition is not None else {}),
            keys.GROUP_MIN_MEMBER: str(part.min_available),
            **part.identity,
        }
        spec["template"] = {
            **template,
            "metadata": {
                **{key: value for key, value in head.items() if key != "creationTimestamp"},
                "labels": labels,
                "annotations": annotations,
            },
            "spec": pod,
        }
        pods = part.counts.get(TASK, 0)
        if spec.get("completions") is not None:
            left = _remaining(spec, part.carried)
            spec["completions"] = left
            if part.parts > 1:
                # In proportion to the pods, rounded so that the parts add up.
                total, first = min(int(spec.get("parallelism", 1)), left), part.preceding.get(TASK, 0)
                spec["completions"] = left * (first + pods) // total - left * first // total
        spec.update(suspend=False, parallelism=pods)
        if (deadline := _deadline(obj)) is not None:
            spec["activeDeadlineSeconds"] = deadline
        return {
            "apiVersion": BATCH_JOBS.api_version,
            "kind": BATCH_JOBS.kind,
            "metadata": metadata.for_member(obj),
            "spec": spec,
        }

    def placed(self, manifest: Json, how: MadeFor) -> Json:
        """Its template; suspended and in its queue for Kueue, which lifts the suspension and may set it again."""
        spec, head = dict(manifest["spec"]), dict(manifest["metadata"])
        template = metadata.template_for(spec.get("template") or {}, how)
        if how.placer is Placer.VOLCANO and how.queue:
            about = template.get("metadata") or {}
            notes = {**(about.get("annotations") or {}), keys.QUEUE_ANNOTATION: how.queue}
            template = {**template, "metadata": {**about, "annotations": notes}}
        labels = {key: value for key, value in (head.get("labels") or {}).items() if key != keys.KUEUE_QUEUE_LABEL}
        if how.placer is Placer.KUEUE:
            if not how.queue:
                raise Unplaceable(
                    "the member's placer is kueue and no LocalQueue is named: atollctl join --member-queue"
                )
            labels[keys.KUEUE_QUEUE_LABEL] = how.queue
            spec["suspend"] = True
        return {**manifest, "metadata": {**head, "labels": labels}, "spec": {**spec, "template": template}}

    def started(self, status: Mapping[str, Any]) -> int:
        """Ready pods count as running."""
        return int(status.get("ready") or 0) + int(status.get("succeeded") or 0)

    def ended(self, status: Mapping[str, Any]) -> int:
        """Succeeded pods; failed ones are made again."""
        return int(status.get("succeeded") or 0)

    def released(self, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, int]:
        """Pods without a remaining completion; of a work queue pods that are not active once one succeeded."""
        spec = manifest["spec"]
        pods, succeeded = int(spec.get("parallelism", 1)), int(status.get("succeeded") or 0)
        if spec.get("completions") is None:
            left = int(status.get("active") or 0) if succeeded else pods
        else:
            completions = int(spec["completions"])
            failed = sum(end - first for first, end in _parse(status.get("failedIndexes"), completions))
            left = completions - succeeded - failed
        return {TASK: pods - max(left, 0)} if left < pods else {}

    def suspended(self, status: Mapping[str, Any]) -> str:
        """Condition Suspended: Kueue has not admitted it or has evicted it, or a user of the member stopped it."""
        conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
        return "the Job is suspended there" if conditions.get("Suspended") == "True" else ""

    def suspension(self, obj: Mapping[str, Any], *, suspended: bool) -> Sequence[Json]:
        """spec.suspend."""
        if bool(obj["spec"].get("suspend")) == suspended:
            return ()
        return ({"op": "add", "path": "/spec/suspend", "value": suspended},)

    def reported(self, manifest: Mapping[str, Any], status: Any, *, field: str = "status") -> Json:
        """Its counts are cut to the pods that were sent; failed ones may be retried and are only bounded."""
        spec = manifest.get("spec") or {}
        pods, completions = int(spec.get("parallelism", 1)), int(spec.get("completions") or 0)
        own = {
            "active": reports.number(pods),
            "ready": reports.number(pods),
            "terminating": reports.number(numbers.INT32),
            "succeeded": reports.number(max(pods, completions)),
            "failed": reports.number(numbers.INT32),
            "startTime": reports.moment,
            "completionTime": reports.moment,
            "completedIndexes": reports.indices(completions),
            "failedIndexes": reports.indices(completions),
            "conditions": reports.conditions,
        }
        return reports.part_of(status, pods, own, field)

    def stopped(self, status: Mapping[str, Any]) -> bool:
        """Never: it has no such policies."""
        return False

    def asked(self, status: Mapping[str, Any]) -> str | None:
        """Nothing."""
        return None

    def retries(self, status: Mapping[str, Any]) -> int:
        """None: its pods are."""
        return 0

    def ended_at(self, status: Mapping[str, Any]) -> str | None:
        """completionTime, or the last transition into a final condition."""
        if moment := status.get("completionTime"):
            return str(moment)
        ends = [each for each in _conditions(status) if each.get("type") in _ENDS and _is_true(each)]
        return max((each["lastTransitionTime"] for each in ends if each.get("lastTransitionTime")), default=None)

    def standing(self, obj: Mapping[str, Any]) -> Standing:
        """Suspended, or how far it is; its active pods that are not ready are pending."""
        status = obj.get("status") or {}
        active, ready, succeeded, failed = (
            int(status.get(name) or 0) for name in ("active", "ready", "succeeded", "failed")
        )
        state = "Running" if ready or succeeded or failed else "Pending"
        if (obj.get("spec") or {}).get("suspend"):
            state = "Suspended"
        if outcome := self.finished(status):
            state = "Failed" if outcome is Outcome.FAILED else "Complete"
        return Standing(state, max(0, active - ready), ready, succeeded, failed)

    def pods_selector(self, namespace: str, name: str) -> str:
        """The label that its controller gives them."""
        return f"batch.kubernetes.io/job-name={name}"

    def moved(self, obj: Mapping[str, Any], queue: str) -> Json:
        """By the label that counts."""
        return metadata.moved_by_label(obj, queue)

    def carried(self, status: Mapping[str, Any]) -> dict[str, int]:
        """Counts of ended pods so far."""
        return {name: amount for name in ("succeeded", "failed") if (amount := int(status.get(name) or 0))}

    def finished(self, status: Mapping[str, Any]) -> Outcome | None:
        """By its conditions."""
        return next((_ENDS[c["type"]] for c in _conditions(status) if c["type"] in _ENDS and _is_true(c)), None)

    def healthy(self, status: Mapping[str, Any]) -> bool | None:
        """Unless it failed; before the member's controller has looked at it nothing is known."""
        if self.finished(status) is Outcome.FAILED:
            return False
        return True if status.get("startTime") else None

    def running(self, status: Mapping[str, Any]) -> bool:
        """Some pod of it runs, or did."""
        return any(int(status.get(name) or 0) for name in ("ready", "succeeded")) or self.finished(status) is not None

    def aggregate(
        self, obj: Mapping[str, Any], reports: Sequence[Report], *, waiting: tuple[str, str], now: str
    ) -> Json:
        """Counts of all dispatches; an end once no pod is left, and never before Atoll has lifted the suspension."""
        old: Json = dict(obj.get("status") or {})
        if self.finished(old) is not None:
            return old
        spec, suspended = obj["spec"], bool(obj["spec"].get("suspend"))
        status = _counts(spec, old, reports)
        outcomes = [self.finished(report.status) for report in reports]
        end = ""
        if Outcome.FAILED in outcomes:
            end = "Failed"
        elif (outcomes and None not in outcomes) or _enough(spec, status["succeeded"]):
            end = "Complete"
        if status["active"] or status["terminating"] or (suspended and not _enough(spec, status["succeeded"])):
            end = ""
        conditions = list(_conditions(old))
        if suspended and not end:
            conditions = _with(conditions, "Suspended", "True", "JobSuspended", waiting[1] or "Job suspended", now)
        else:
            status["startTime"] = old.get("startTime") or now
            if any(each["type"] == "Suspended" for each in conditions):
                conditions = _with(conditions, "Suspended", "False", "JobResumed", "Job resumed", now)
        if end:
            reason, message = _why(reports, end)
            for type_ in (_BEFORE[end], end):
                conditions = _with(conditions, type_, "True", reason, message, now)
        if end == "Complete":
            ended = [report.status["completionTime"] for report in reports if report.status.get("completionTime")]
            status["completionTime"] = max([*ended, status["startTime"]] if ended else [now, status["startTime"]])
        if conditions:
            status["conditions"] = conditions
        # The API server leaves these out where they are 0.
        return {key: value for key, value in status.items() if value or key in ("ready", "terminating")}


def _deadline(obj: Mapping[str, Any]) -> int | None:
    """Seconds that the Job may run, by its spec or by Kueue's label, whichever is less."""
    said = ((obj.get("metadata") or {}).get("labels") or {}).get(keys.KUEUE_TIME)
    wishes = [obj["spec"].get("activeDeadlineSeconds"), numbers.whole(said) or None]
    return min((each for each in wishes if each is not None), default=None)


def minimum_of(obj: Mapping[str, Any]) -> int | None:
    """How many pods must start together, where an annotation of the Job or of its pods says so, Kueue's as the last.

    Raises:
        ValueError: it is no whole number of 1 or more.
    """
    job, template = obj.get("metadata") or {}, (obj["spec"].get("template") or {}).get("metadata") or {}
    places = ((job, keys.GROUP_MIN_MEMBER), (template, keys.GROUP_MIN_MEMBER), (job, keys.KUEUE_MINIMUM))
    for holder, key in places:
        text = (holder.get("annotations") or {}).get(key)
        if text is not None:
            minimum = numbers.whole(text)
            if not minimum:
                raise ValueError(f"annotation {key}: {text!r} is no whole number of 1 or more")
            return minimum
    return None


def _remaining(spec: Mapping[str, Any], carried: Mapping[str, int]) -> int:
    """Pods that must still succeed; without such a count, pods that run at once."""
    completions = spec.get("completions")
    if completions is None:
        return int(spec.get("parallelism", 1))
    done = 0 if indexed(spec) else carried.get("succeeded", 0)
    return max(0, int(completions) - done)


def _enough(spec: Mapping[str, Any], succeeded: int) -> bool:
    completions = spec.get("completions")
    return completions is not None and succeeded >= int(completions)


def indexed(spec: Mapping[str, Any]) -> bool:
    """Whether each pod has an index."""
    return bool(spec.get("completionMode") == "Indexed")


def _counts(spec: Mapping[str, Any], old: Mapping[str, Any], reports: Sequence[Report]) -> Json:
    """All counters; counters of ended pods never fall."""

    def total(name: str) -> int:
        return sum(int(report.status.get(name) or 0) for report in reports)

    before = reports[0].carried if reports else NOTHING
    status: Json = {
        "active": total("active"),
        "ready": min(total("ready"), total("active")),
        "terminating": total("terminating"),
        "succeeded": max(int(old.get("succeeded") or 0), before.get("succeeded", 0) + total("succeeded")),
        "failed": max(int(old.get("failed") or 0), before.get("failed", 0) + total("failed")),
    }
    if indexed(spec):
        limit = int(spec.get("completions") or 0)
        texts = [old.get("completedIndexes"), *(report.status.get("completedIndexes") for report in reports)]
        completed = _joined(run for text in texts for run in _parse(text, limit))
        done = sum(end - first for first, end in completed)
        status.update(succeeded=done, completedIndexes=_format(completed))
        if spec.get("backoffLimitPerIndex") is not None:
            failed = _joined(run for report in reports for run in _parse(report.status.get("failedIndexes"), limit))
            status["failedIndexes"] = _format(_without(failed, completed))
    return status


Run = tuple[int, int]
"""Indices from the first on, the second not among them: one by one, indices of a large Job would fill the memory."""


def _parse(text: str | None, limit: int) -> Iterable[Run]:
    """The runs of `0,2-4`, as far as they are below a limit."""
    for part in filter(None, (text or "").split(",")):
        first, _, last = part.partition("-")
        yield int(first), min(int(last or first) + 1, limit)


def _joined(runs: Iterable[Run]) -> list[Run]:
    """The same indices in as few rising runs as possible."""
    found: list[Run] = []
    for first, end in sorted(runs):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif first < end:
            found.append((first, end))
    return found


def _without(runs: Iterable[Run], others: Sequence[Run]) -> Iterator[Run]:
    """Those indices that are not in any of others; both joined."""
    left = deque(others)
    for first, end in runs:
        while left and left[0][1] <= first:
            left.popleft()
        while left and left[0][0] < end:
            if first < left[0][0]:
                yield first, left[0][0]
            first = left[0][1]
            if first >= end:
                break
            left.popleft()
        if first < end:
            yield first, end


def _format(runs: Iterable[Run]) -> str:
    """As Kubernetes writes them: runs of three and more with a dash."""
    parts = (f"{a}" if b - a == 1 else f"{a}{',' if b - a == 2 else '-'}{b - 1}" for a, b in runs)
    return ",".join(parts)


def _why(reports: Sequence[Report], end: str) -> tuple[str, str]:
    """Reason and message of the end, in the words of the member that came to it."""
    for report in reports:
        for each in _conditions(report.status):
            if each["type"] == end and _is_true(each):
                return each.get("reason") or "", each.get("message") or ""
    return "CompletionsReached", "Reached expected number of succeeded pods"


def _with(conditions: Sequence[Json], type_: str, status: str, reason: str, message: str, now: str) -> list[Json]:
    """The list with one condition set; its time changes with its status only."""
    old = next((each for each in conditions if each["type"] == type_), None)
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
    new = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastProbeTime": since,
        "lastTransitionTime": since,
    }
    new = {key: value for key, value in new.items() if value}
    return [*conditions, new] if old is None else [new if each is old else each for each in conditions]


def _conditions(status: Mapping[str, Any]) -> Sequence[Json]:
    return status.get("conditions") or ()


def _is_true(condition: Mapping[str, Any]) -> bool:
    return bool(condition.get("status") == "True")


def _pod_spec(spec: Mapping[str, Any]) -> Json:
    return (spec.get("template") or {}).get("spec") or {}


KIND = BatchJob()
