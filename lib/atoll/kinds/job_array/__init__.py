"""The JobArray: a Volcano Job for each of many indices, in one object with one binding.

Its gang has the pods of the indices that run at once, in units of one index: it starts with one index, and gets more
as there is capacity. The agent of its member makes the Jobs (`atoll.agent.jobs.arrays`) and keeps the state of each
index in the status, from where the next member goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from atoll.kinds.interface import NOTHING, InMember, Json, Outcome, Ownership, Part, Report, Standing, Words
from atoll.kinds.templated import Component, Reading, Templated, count_at, number, value_at
from atoll.kinds.volcano_job import KIND as JOB
from atoll.kinds.volcano_job.tasks import task_minimum, task_name, task_replicas
from atoll.model import array_states, features, keys, reports
from atoll.model.apiresource import JOB_ARRAYS, JOBS, ApiResource
from atoll.model.array_states import count_of, runs_of
from atoll.model.gang import Gang, Partition, Task
from atoll.model.placer import MadeFor, Placer
from atoll.model.reports import BadReport

if TYPE_CHECKING:
    from atoll.admission.rules import Rules
    from atoll.kinds.job_array.shares import Division

TEMPLATE = ("spec", "template", "spec")
_TASKS = (*TEMPLATE, "tasks")
_INDEX = "index"
_ENDS = {"Completed": Outcome.SUCCEEDED, "Failed": Outcome.FAILED}
AT_ONCE = 100
"""Where an array does not say how many."""
_ENDED = "ended"
_ENDED_STATES = bytes(byte & 3 >= array_states.SUCCEEDED for byte in range(256))


def job_of(array: Mapping[str, Any]) -> Json:
    """The Volcano Job of one index, under the array's name."""
    spec = value_at(array, TEMPLATE)
    about = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": array["metadata"]}
    return {**about, "spec": spec if isinstance(spec, dict) else {}}


def indices_of(array: Mapping[str, Any]) -> list[range]:
    """Its indices.

    Raises:
        ValueError: they can't be read.
    """
    return runs_of(value_at(array, ("spec", "indices")))


def at_once(array: Mapping[str, Any]) -> int:
    """Indices that may run at once.

    Raises:
        ValueError: it is no number.
    """
    return count_at(array, "spec", "atOnce", default=AT_ONCE)


def states_in(array: Mapping[str, Any], status: Mapping[str, Any]) -> bytes:
    """States of an array's indices by a status; all pending where it says nothing that can be read."""
    count = count_of(indices_of(array))
    try:
        return array_states.decode(str(status.get("states") or ""), count)
    except ValueError:
        return bytes(count)


def share_in(manifest: Mapping[str, Any]) -> bytes | None:
    """1 for each index that a member may start, by position; None for all.

    Raises:
        ValueError: its indices can't be read.
    """
    text = (manifest["metadata"].get("annotations") or {}).get(keys.ARRAY_SHARE)
    if text is None:
        return None
    count = count_of(indices_of(manifest))
    try:
        return array_states.decode(str(text), count)
    except ValueError:
        return bytes(count)


def _division(array: Mapping[str, Any]) -> Division | None:
    """Owners of indices by the status on the host; None for an array that runs in one member at a time."""
    status = array.get("status") or {}
    if "owners" not in status:
        return None
    from atoll.kinds.job_array.shares import Division

    states = states_in(array, status)
    try:
        owners = array_states.decode(str(status["owners"]), len(states))
    except ValueError:
        owners = bytes(len(states))
    return Division(states, owners, [str(each.get("work")) for each in status.get("members") or ()])


def _components(obj: Mapping[str, Any]) -> list[Component]:
    slots = min(at_once(obj), count_of(indices_of(obj)))
    return [
        Component(
            name=task_name(task, position),
            pods=slots * task_replicas(task),
            template=(*_TASKS, position, "template"),
            minimum=task_minimum(task),
            count=("spec", "atOnce"),
            unit=task_replicas(task),
        )
        for position, task in enumerate(value_at(obj, _TASKS) or ())
    ]


def _read(status: Mapping[str, Any]) -> Reading:
    phase = str(status.get("phase") or "")
    running, succeeded, failed = (number(status, name) for name in ("running", "succeeded", "failed"))
    return Reading(
        state=phase,
        running=running,
        succeeded=succeeded,
        failed=failed,
        outcome=_ENDS.get(phase),
        ended=status.get("completionTime") if phase in _ENDS else None,
        known=bool(phase),
    )


def _over(manifest: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, int]:
    """Pods of the slots that no index will use any more."""
    own = share_in(manifest)
    if own is None:
        left = count_of(indices_of(manifest)) - number(status, "succeeded") - number(status, "failed")
    elif keys.ARRAY_LAST in manifest["metadata"]["annotations"]:
        ended = states_in(manifest, status).translate(_ENDED_STATES)
        left = sum(mine > over for mine, over in zip(own, ended, strict=True))
    else:
        return {}
    unused = max(at_once(manifest) - max(left, 0), 0)
    return {each.name: unused * each.unit for each in _components(manifest)} if unused else {}


class JobArray(Templated):
    """`atoll.sh/v1alpha1` JobArray."""

    def __post_init__(self) -> None:
        """What differs from pods that start together."""
        super().__post_init__()
        # No controller but Atoll's knows the kind.
        self.dedicated = False
        self.support = replace(
            self.support,
            minimum="the gang of one index; more indices as there is room",
            order="indices in their order; within one as in a Volcano Job",
            division="by indices, as it grows, where `atoll.sh/divided` or its policy allows it",
            end="when each index has succeeded, or failed more often than `retries` says: then it has failed",
            status="counts and states of indices, kept over dispatches, and condition `Dispatched`",
        )

    def admission(self) -> Rules:
        """The rules of the module beside this one."""
        from atoll.kinds.job_array.admission import rules

        return rules(self)

    def priority_class_of(self, obj: Mapping[str, Any]) -> str:
        """That of the Job of an index."""
        return JOB.priority_class_of(job_of(obj))

    def gang(
        self,
        obj: Mapping[str, Any],
        *,
        priority: int,
        default_class: str = "",
        default_queue: str = keys.DEFAULT_QUEUE,
        carried: Mapping[str, int] = NOTHING,
    ) -> Gang:
        """The gang of one index, for as many indices as may run at once and are left."""
        one = JOB.gang(job_of(obj), priority=priority, default_class=default_class, default_queue=default_queue)
        left = max(count_of(indices_of(obj)) - carried.get(_ENDED, 0), 1)
        slots = min(at_once(obj), left)
        several, wish = len(one.tasks) > 1, one.network_topology

        def task(each: Task) -> Task:
            near = Partition(each.replicas, wish, _INDEX if several else "") if wish and each.replicas else None
            return msgspec.structs.replace(
                each,
                replicas=slots * each.replicas,
                unit=max(each.replicas, 1),
                unit_name=_INDEX if several else "",
                partition=near,
            )

        estimate = one.running_estimate
        if value_at(obj, (*TEMPLATE, "runningEstimate")) and estimate is not None:
            estimate *= -(-left // slots)
        return msgspec.structs.replace(
            one,
            tasks=[task(each) for each in one.tasks],
            queue=self.queue_of(obj, default=default_queue),
            network_topology=None,
            running_estimate=estimate,
            whole=True,
            scattered=True,
            features=features.of(self.resource, self._pods(obj)),
        )

    def namespaced_needs(self, obj: Mapping[str, Any]) -> Sequence[tuple[ApiResource, str]]:
        """Needs of the Job of an index."""
        return JOB.namespaced_needs(job_of(obj))

    def rewrite(self, obj: Mapping[str, Any], part: Part) -> Json:
        """The Job of an index as a member gets it, so many at once, and the states from which the member goes on."""
        job = job_of(obj)
        one = JOB.gang(job, priority=0)
        sizes = {task.name: task.replicas for task in one.tasks}
        slots = min((part.counts.get(name, 0) // size for name, size in sizes.items() if size), default=0)
        minimums = {task.name: task.min_available for task in one.tasks}
        made = JOB.rewrite(job, replace(part, counts=sizes, min_available=one.min_available, minimums=minimums))
        spec = {key: value for key, value in obj["spec"].items() if key != "ttlSecondsAfterFinished"}
        template = {**(obj["spec"].get("template") or {}), "spec": made["spec"]}
        states = array_states.unstarted(states_in(obj, obj.get("status") or {}))
        head = made["metadata"]
        division = _division(obj)
        if division is not None or part.scattered:
            states = self._shared(head["annotations"], states, division, part.work)
        if any(states):
            # Commands start faster without it.
            from atoll.model import array_failures

            head["annotations"][keys.ARRAY_STATES] = array_states.encode(states)
            if why := array_failures.read((obj.get("status") or {}).get("failures") or []):
                head["annotations"][keys.ARRAY_FAILURES] = msgspec.json.encode(why).decode()
        return {
            "apiVersion": JOB_ARRAYS.api_version,
            "kind": JOB_ARRAYS.kind,
            "metadata": head,
            "spec": {**spec, "atOnce": slots, "template": template},
        }

    def _shared(self, notes: Json, states: bytes, division: Division | None, work: str) -> bytes:
        """The states that a member of several needs to know; the annotations get its share."""
        count = len(states)
        if division is None:
            notes[keys.ARRAY_SHARE] = array_states.encode(bytes(count))
            return bytes(count)
        own = division.share(work).tobytes()
        notes[keys.ARRAY_SHARE] = array_states.encode(own)
        if not len(division.free):
            notes[keys.ARRAY_LAST] = "true"
        if array_states.counts(states).ended == count:
            # With the ends of all others it ends as well.
            return states
        return bytes(state if mine else 0 for state, mine in zip(states, own, strict=True))

    def placed(self, manifest: Json, how: MadeFor) -> Json:
        """The Job of an index as that placer takes it."""
        if how.placer not in self.placers:
            return super().placed(manifest, how)
        made = JOB.placed(job_of(manifest), how)
        spec = manifest["spec"]
        return {**manifest, "spec": {**spec, "template": {**spec["template"], "spec": made["spec"]}}}

    def reported(self, manifest: Mapping[str, Any], status: Any, *, field: str = "status") -> Json:
        """Counts follow from the states, which must be of as many indices as were sent."""
        runs = indices_of(manifest)
        pods = sum(each.pods for each in _components(manifest))

        def states(value: Any, at: str) -> str:
            try:
                array_states.decode(value if isinstance(value, str) else "", count_of(runs))
            except ValueError as error:
                raise BadReport(f"{at}: {error}") from error
            return str(value)

        from atoll.model import array_failures

        own: dict[str, reports.Check[Any]] = {
            "phase": reports.text(32),
            "states": states,
            "failures": array_failures.CHECK,
            "startTime": reports.moment,
            "completionTime": reports.moment,
        }
        given = reports.part_of(status, pods, own, field)
        if "states" in given:
            given |= counted(runs, array_states.decode(given["states"], count_of(runs)))
        return given

    def carried(self, status: Mapping[str, Any]) -> dict[str, int]:
        """Indices that have ended."""
        ended = number(status, "succeeded") + number(status, "failed")
        return {_ENDED: ended} if ended else {}

    def division(self, obj: Mapping[str, Any]) -> Ownership | None:
        """By the owners of its indices."""
        status = obj.get("status") or {}
        if "owners" not in status:
            return None
        works = {str(each.get("work")): str(each.get("name")) for each in status.get("members") or ()}
        return Ownership(works, [str(status["owners"]), str(self.finished(status))])

    def joined(
        self, obj: Mapping[str, Any], holders: Sequence[Report], *, scattered: bool, now: str
    ) -> Mapping[str, Any]:
        """States and owners of the indices of an array in several members, after their reports."""
        old = obj.get("status") or {}
        if self.finished(old) is not None or not (scattered or "owners" in old):
            return obj
        from atoll.kinds.job_array.divided import joined

        return joined(obj, _division(obj), holders, now=now)

    def aggregate(
        self, obj: Mapping[str, Any], reports: Sequence[Report], *, waiting: tuple[str, str], now: str
    ) -> Json:
        """The member's status; while it waits, ended indices of earlier dispatches."""
        status = super().aggregate(obj, reports, waiting=waiting, now=now)
        old = obj.get("status") or {}
        if self.finished(old) is not None:
            return status
        if "owners" in old:
            from atoll.kinds.job_array.divided import STATUS

            status = {name: value for name, value in status.items() if name not in STATUS}
            return {**status, **{name: old[name] for name in STATUS if name in old}}
        if "states" in status:
            return status
        kept = {name: old[name] for name in ("startTime", "failures") if name in old}
        states = array_states.unstarted(states_in(obj, old))
        phase = {"phase": "Pending"} if any(states) or not reports else {}
        return {**kept, **counted(indices_of(obj), states), **phase, **status}

    def standing(self, obj: Mapping[str, Any]) -> Standing:
        """By index."""
        found = super().standing(obj)
        try:
            ended = found.succeeded + found.failed
            return found._replace(pending=max(count_of(indices_of(obj)) - found.running - ended, 0))
        except ValueError:
            return found


def counted(runs: Sequence[range], states: bytes) -> Json:
    """The fields of a status that follow from the states of these indices."""
    found = array_states.counts(states)
    retried = sum(array_states.failures(value) * states.count(value) for value in set(states)) - found.failed
    status: Json = {
        "pending": found.pending,
        "running": found.running,
        "succeeded": found.succeeded,
        "failed": found.failed,
        "retried": retried,
        "states": array_states.encode(states),
    }
    if found.failed:
        status["failedIndices"] = array_states.told(runs, states, array_states.FAILED)
    return status


def _problems(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from atoll.kinds.job_array.admission import wrong

    return wrong(obj)


KIND = JobArray(
    resource=JOB_ARRAYS,
    words=Words(
        title="JobArray",
        names=("jobarray", "jobarrays", "ja", "array"),
        held="nothing: no other program serves it there",
        prefix="jobarray/",
        runs_as="a Volcano Job for each index that runs",
    ),
    route="jobarrays",
    pods="tasks of the Job of an index, as often as indices run at once",
    scales="`atOnce`",
    components=_components,
    read=_read,
    over=_over,
    released_when="pods of slots that no index will use any more",
    pods_label=keys.ARRAY,
    problems=_problems,
    host_only=(("spec", "ttlSecondsAfterFinished"),),
    placers=(Placer.ATOLL, Placer.KUBE_SCHEDULER, Placer.VOLCANO),
    optional=False,
    in_member=InMember(status=True, quiet=10.0, keeps="states"),
)
