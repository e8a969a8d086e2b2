"""The Jobs of a JobFlow to make now, the reasons why others wait, and the flow's status.

Level-based: the Jobs themselves show the progress of the flow; the memory of deleted ones (a time to live, a
user) stands in its status. A flow that succeeded or failed stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from atoll.control.makers.making import Json, News, Plan, job, phase_of
from atoll.kinds.volcano_job import KIND
from atoll.kinds.volcano_job.tasks import task_minimum, task_name
from atoll.model import keys, probes
from atoll.model.apiresource import JOB_FLOWS

SUCCEEDED, FAILED, RUNNING, PENDING, TERMINATING = "Succeed", "Failed", "Running", "Pending", "Terminating"
_LISTS = {
    "Pending": "pendingJobs",
    "Running": "runningJobs",
    "Restarting": "runningJobs",
    "Completing": "runningJobs",
    "Aborting": "runningJobs",
    "Terminating": "runningJobs",
    "Completed": "completedJobs",
    "Failed": "failedJobs",
    "Terminated": "terminatedJobs",
    "Aborted": "terminatedJobs",
}
_LOST = ("Failed", "Terminated")
_LABEL = 63
_SHOWN = 5


def job_name(flow: Mapping[str, Any], step: str) -> str:
    """Of the Job of a step."""
    return f"{flow['metadata']['name']}-{step}"


def plan(
    flow: Json,
    template_of: Callable[[str], Mapping[str, Any] | None],
    job_of: Callable[[str], Json | None],
    refused: Mapping[str, str],
) -> Plan:
    """Plan for a flow now.

    Args:
        flow: the whole object.
        template_of: the JobTemplate of a name, in its namespace.
        job_of: the Volcano Job of a name, in its namespace.
        refused: Job -> why it could not be made when that was tried last.
    """
    steps = list((flow.get("spec") or {}).get("flows") or ())
    old = flow.get("status") or {}
    was = (old.get("state") or {}).get("phase")
    uid = flow["metadata"]["uid"]
    jobs: dict[str, Json] = {}
    taken = set[str]()
    for step in steps:
        name = job_name(flow, step["name"])
        found = job_of(name)
        if found is not None and _owner(found) == uid:
            jobs[name] = found
        elif found is not None:
            taken.add(name)
    remembered = {name: str(each.get("phase")) for name, each in (old.get("conditions") or {}).items()}
    phases = {
        name: phase_of(jobs[name]) if name in jobs else remembered.get(name, "")
        for name in (job_name(flow, step["name"]) for step in steps)
    }
    waits, create = list[str](), list[Json]()
    over = was in (SUCCEEDED, FAILED) or any(phase in _LOST for phase in phases.values())
    leaving = flow["metadata"].get("deletionTimestamp") is not None
    for step in () if over or leaving else steps:
        name = job_name(flow, step["name"])
        # A Job deleted after its end is not made again; one deleted before is.
        if name in jobs or phases[name] in _ENDED:
            continue
        template = template_of(step["name"])
        why = next(_unmet(flow, step, jobs, phases), "")
        if not why and name in taken:
            why = f"there is a Job {name} that is not of this flow"
        if not why and template is None:
            why = f"there is no JobTemplate {step['name']}"
        if why or template is None:
            waits.append(f"{step['name']}: {why}")
            continue
        create.append(_job(flow, step, name, template))
        if name in refused:
            waits.append(f"{step['name']}: {refused[name]}")
    status = _status(steps, flow, old, jobs, phases, waits)
    delete, phase = list[str](), status["state"]["phase"]
    if phase == SUCCEEDED and (flow.get("spec") or {}).get("jobRetainPolicy") == "delete":
        delete = sorted(jobs)
    news = []
    if phase != was and phase in (SUCCEEDED, FAILED):
        text = status["state"].get("message") or "all of its Jobs are Completed"
        news.append(News(phase, text, warning=phase == FAILED))
    return Plan(delete=delete, create=create, status=status, news=news)


_ENDED = ("Completed", "Failed", "Terminated")


def _owner(job: Json) -> str:
    owners = job["metadata"].get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


def _unmet(flow: Json, step: Json, jobs: Mapping[str, Json], phases: Mapping[str, str]) -> Iterator[str]:
    """Why a step can't begin."""
    depends = step.get("dependsOn") or {}
    probe = depends.get("probe") or {}
    wanted, asked = probe.get("taskStatusList") or (), probes.of_flow(probe)
    for target in depends.get("targets") or ():
        name = job_name(flow, target)
        phase = phases.get(name, "")
        if phase == "Completed":
            continue
        if not phase:
            yield f"{target} has not started"
        elif not (wanted or asked):
            yield f"{target} is {phase}"
        elif name not in jobs:
            yield f"the Job of {target} is gone"
        else:
            yield from _not_reached(target, jobs[name], wanted)
            yield from _not_answered(target, jobs[name], asked)


def _not_reached(target: str, job: Json, wanted: Any) -> Iterator[str]:
    tasks = {task_name(task, index): task for index, task in enumerate((job.get("spec") or {}).get("tasks") or ())}
    counted = (job.get("status") or {}).get("taskStatusCount") or {}
    for each in wanted:
        name, phase = each.get("taskName"), each.get("phase")
        if name not in tasks:
            yield f"{target} has no task {name}"
            continue
        pods = (counted.get(name) or {}).get("phase") or {}
        have = int(pods.get(phase) or 0) + (int(pods.get("Succeeded") or 0) if phase == "Running" else 0)
        needed = max(1, task_minimum(tasks[name]))
        if have < needed:
            yield f"{have} of {needed} pods of task {name} of {target} are {phase}"


def _not_answered(target: str, job: Json, asked: list[probes.Probe]) -> Iterator[str]:
    tasks = {task_name(task, index): task for index, task in enumerate((job.get("spec") or {}).get("tasks") or ())}
    known = probes.decode((job["metadata"].get("annotations") or {}).get(keys.PROBES))
    outcomes = (job.get("status") or {}).get("probes") or ()
    for probe in asked:
        if probe.task not in tasks:
            yield f"{target} has no task {probe.task}"
            continue
        if probe not in known:
            yield f"{probe} of {target} is not tried: its Job was made before the flow asked for that"
            continue
        index, needed = known.index(probe), max(1, task_minimum(tasks[probe.task]))
        outcome = outcomes[index] if index < len(outcomes) else {}
        have = int(outcome.get("answered") or 0)
        if have < needed:
            said = outcome.get("message") or ("" if outcome else "no member has tried it")
            yield f"{have} of {needed} pods answer on {probe} of {target}" + (f" ({said})" if said else "")


def _job(flow: Json, step: Json, name: str, template: Mapping[str, Any]) -> Json:
    namespace = flow["metadata"]["namespace"]
    made_by = {
        keys.MADE_BY_TEMPLATE: f"{namespace}.{step['name']}",
        keys.MADE_BY_FLOW: f"{namespace}.{flow['metadata']['name']}",
    }
    if asked := _asked_of(flow, step["name"]):
        made_by[keys.PROBES] = probes.encode(asked)
    labels = {**(template["metadata"].get("labels") or {})}
    labels |= {key: text for key, text in made_by.items() if key != keys.PROBES and len(text) <= _LABEL}
    spec = merged(template.get("spec") or {}, (step.get("patch") or {}).get("jobSpec") or {})
    return job(flow, JOB_FLOWS, name, spec, labels=labels, annotations=made_by)


def _asked_of(flow: Json, target: str) -> list[probes.Probe]:
    """What the steps after this one ask of its pods."""
    found: dict[probes.Probe, None] = {}
    for step in flow["spec"]["flows"]:
        depends = step.get("dependsOn") or {}
        if target in (depends.get("targets") or ()):
            found |= dict.fromkeys(probes.of_flow(depends.get("probe") or {}))
    return list(found)[: probes.MOST]


def merged(base: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386), but that lists whose items all have names are merged by these."""
    if isinstance(base, dict) and isinstance(patch, dict):
        result = {key: value for key, value in base.items() if key not in patch}
        return result | {key: merged(base.get(key), value) for key, value in patch.items() if value is not None}
    if isinstance(base, list) and isinstance(patch, list) and base and _named(base) and _named(patch):
        changes = {each["name"]: each for each in patch}
        known = {each["name"] for each in base}
        kept = [merged(each, changes[each["name"]]) if each["name"] in changes else each for each in base]
        return [*kept, *(each for each in patch if each["name"] not in known)]
    return patch


def _named(items: list[Any]) -> bool:
    return all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in items)


def _status(
    steps: list[Json],
    flow: Json,
    old: Json,
    jobs: Mapping[str, Json],
    phases: Mapping[str, str],
    waits: list[str],
) -> Json:
    before = old.get("conditions") or {}
    listed = {each["name"]: each for each in old.get("jobStatusList") or ()}
    status: Json = {}
    conditions, statuses = {}, []
    for step in steps:
        name = job_name(flow, step["name"])
        if not phases[name]:
            continue
        status.setdefault(_LISTS.get(phases[name], "unKnowJobs"), []).append(name)
        if name in jobs:
            conditions[name], entry = _of_job(name, jobs[name])
        else:
            conditions[name], entry = before[name], listed.get(name) or {"name": name, "state": phases[name]}
        statuses.append(entry)
    status |= {"conditions": conditions, "jobStatusList": statuses}
    lost = [f"{name} is {phase}" for name, phase in phases.items() if phase in _LOST]
    was = (old.get("state") or {}).get("phase")
    state: Json = {"phase": PENDING}
    if flow["metadata"].get("deletionTimestamp") is not None:
        state = {"phase": TERMINATING}
    elif lost or was == FAILED:
        said = "; ".join(lost) or (old.get("state") or {}).get("message") or ""
        state = {"phase": FAILED, "reason": "JobFailed", "message": said}
    elif was == SUCCEEDED or (steps and all(phase == "Completed" for phase in phases.values())):
        state = {"phase": SUCCEEDED}
    else:
        if any(phases.values()):
            state = {"phase": RUNNING}
        if waits:
            more = f"; and {len(waits) - _SHOWN} more" if len(waits) > _SHOWN else ""
            state |= {"reason": "Waiting", "message": "; ".join(waits[:_SHOWN]) + more}
    return {**status, "state": state}


def _of_job(name: str, job: Json) -> tuple[Json, Json]:
    """Memory of a Job, and its entry in the list."""
    status, phase = job.get("status") or {}, phase_of(job)
    created = job["metadata"].get("creationTimestamp")
    condition: Json = {"phase": phase, "createTime": created}
    for field in ("runningDuration", "taskStatusCount"):
        if status.get(field):
            condition[field] = status[field]
    entry: Json = {"name": name, "state": phase, "startTimestamp": created}
    if KIND.finished(status) is not None and (ended := KIND.ended_at(status)):
        entry["endTimestamp"] = ended
    if retries := status.get("retryCount"):
        entry["restartCount"] = retries
    return condition, entry
