"""The Volcano Jobs of a HyperJob to make now, and its status.

Level-based, as flows are: the memory of Jobs that ended and are gone (a time to live, a user) stands in the
status, so a Job that ended never runs again. A set that is Completed or Failed stays so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from atoll.control.makers.making import Json, News, Plan, job, phase_of
from atoll.kinds.makers import is_auto, is_one_gang
from atoll.kinds.volcano_job.tasks import task_minimum, task_replicas
from atoll.model import keys, together
from atoll.model.apiresource import HYPER_JOBS
from atoll.model.together import Together

COMPLETED, FAILED = "Completed", "Failed"
_ENDED = ("Completed", "Failed", "Terminated")
_COUNTS = {
    "Pending": "pending",
    "Running": "running",
    "Restarting": "running",
    "Completing": "running",
    "Aborting": "running",
    "Terminating": "running",
    "Completed": "completed",
    "Failed": "failed",
    "Terminated": "terminated",
    "Aborted": "terminated",
}
_LABEL = 63


def plan(hyper: Json, jobs: Sequence[Json], taken: Callable[[str], bool], now: str) -> Plan:
    """Plan for a HyperJob now.

    Args:
        hyper: the whole object.
        jobs: the Volcano Jobs that it made.
        taken: whether a Job of this name is there that it did not make.
        now: RFC 3339.
    """
    spec, old = hyper.get("spec") or {}, hyper.get("status") or {}
    mine = {each["metadata"]["name"]: each for each in jobs}
    remembered: dict[str, Json] = {}
    for group in old.get("replicatedJobsStatus") or ():
        remembered |= group.get("jobStates") or {}
    over = any(each.get("status") == "True" for each in old.get("conditions") or ())
    leaving = hyper["metadata"].get("deletionTimestamp") is not None
    #: Job -> replicas that it stands for
    wanted: dict[str, int] = {}
    create, states = list[Json](), list[Json]()
    for group in spec.get("replicatedJobs") or ():
        found: dict[str, Json] = {}
        for made in jobs_of(hyper, group):
            name = made["metadata"]["name"]
            wanted[name] = _replicas(group) if is_auto(group) else 1
            if name in mine:
                found[name] = _state(mine[name])
            elif (remembered.get(name) or {}).get("phase") in _ENDED:
                found[name] = remembered[name]
            else:
                found[name] = {"phase": "Pending"}
                if not (over or leaving or taken(name)):
                    create.append(made)
        states.append(_group(str(group.get("name") or ""), found))
    phases = {name: str(state.get("phase")) for group in states for name, state in group["jobStates"].items()}
    gone = {name for name, phase in phases.items() if phase in _ENDED and name not in mine}
    notes = _together(hyper, wanted, gone)
    for made in create:
        made["metadata"]["annotations"] |= notes.get(made["metadata"]["name"], {})
    note = []
    for name, mine_now in mine.items():
        said = (mine_now["metadata"].get("annotations") or {}).get(keys.TOGETHER)
        wish = notes.get(name, {}).get(keys.TOGETHER)
        if name in wanted and said != wish and phases[name] not in _ENDED:
            note.append((name, {keys.TOGETHER: wish}))
    status: Json = {
        "replicatedJobsStatus": states,
        "splitCount": len(wanted),
        "observedGeneration": hyper["metadata"].get("generation") or 0,
        "conditions": list(old.get("conditions") or ()),
    }
    news = []
    if phases and not over and all(phase in _ENDED for phase in phases.values()):
        lost = [f"{name} is {phase}" for name, phase in phases.items() if phase != "Completed"]
        end, text = (FAILED, "; ".join(lost[:5])) if lost else (COMPLETED, "all of its Jobs are Completed")
        status["conditions"] = [
            {
                "type": end,
                "status": "True",
                "reason": "JobFailed" if lost else "AllJobsCompleted",
                "message": text,
                "lastTransitionTime": now,
                "observedGeneration": status["observedGeneration"],
            }
        ]
        news.append(News(end, text, warning=bool(lost)))
    if not status["conditions"]:
        del status["conditions"]
    # Fewer replicas than before: the Jobs beyond go, as with upstream.
    stale = sorted(name for name in mine if name not in wanted) if not over else []
    return Plan(delete=stale, create=create, note=note, status=status, news=news)


def _together(hyper: Json, weights: Mapping[str, int], gone: Collection[str]) -> dict[str, dict[str, str]]:
    """Job -> annotation with its group and the number of members for it; none where each starts by itself
    in any.

    Args:
        hyper: the whole object.
        weights: of its Jobs, replicas that each stands for.
        gone: Jobs that ended and are no more. The number that must run together is smaller by them.
    """
    spec = hyper.get("spec") or {}
    least, groups = spec.get("minAvailable"), spec.get("replicatedJobs") or ()
    domains = int(spec.get("maxDomains") or 0)
    if is_one_gang(groups) or (least is None and not domains):
        return {}
    left = max(int(least or 1) - sum(weight for name, weight in weights.items() if name in gone), 1)
    if left == 1 and not domains:
        return {}
    name = hyper["metadata"]["uid"]
    return {
        job: {keys.TOGETHER: together.write(Together(name, left, weight, domains))} for job, weight in weights.items()
    }


def jobs_of(hyper: Mapping[str, Any], group: Mapping[str, Any]) -> list[Json]:
    """The Volcano Jobs of one group."""
    name, spec = str(group.get("name") or ""), hyper.get("spec") or {}
    count = _replicas(group)
    notes = {}
    if clusters := group.get("clusterNames"):
        notes[keys.ONLY_CLUSTERS] = ",".join(clusters)
    template = group.get("templateSpec") or {}
    if is_auto(group):
        least = spec.get("minAvailable") if is_one_gang(spec.get("replicatedJobs") or ()) else None
        notes[keys.DIVIDED] = str(spec.get("maxDomains") or "any")
        return [_job(hyper, name, 0, as_one(template, count, count if least is None else int(least)), notes)]
    return [_job(hyper, name, index, copy.deepcopy(template), notes) for index in range(count)]


def _replicas(group: Mapping[str, Any]) -> int:
    replicas = group.get("replicas")
    return 1 if replicas is None else int(replicas)


def as_one(template: Mapping[str, Any], count: int, least: int) -> Json:
    """One Job of so many replicas of a Job, of which so many must start together."""
    tasks = []
    for task in template.get("tasks") or ():
        minimum = task_minimum(task)
        tasks.append({**task, "replicas": task_replicas(task) * count, "minAvailable": minimum * least})
    whole = template.get("minAvailable")
    if whole is None:
        whole = sum(task_minimum(task) for task in template.get("tasks") or ())
    return {**copy.deepcopy(dict(template)), "tasks": copy.deepcopy(tasks), "minAvailable": int(whole) * least}


def _job(hyper: Mapping[str, Any], group: str, index: int, spec: Json, notes: Json) -> Json:
    name = hyper["metadata"]["name"]
    labels = {keys.MADE_BY_HYPER_JOB: name, keys.MADE_BY_REPLICATED_JOB: group}
    labels = {key: text for key, text in labels.items() if len(text) <= _LABEL}
    return job(hyper, HYPER_JOBS, f"{name}-{group}-{index}", spec, labels=labels, annotations=dict(notes))


def _state(made: Json) -> Json:
    state = (made.get("status") or {}).get("state") or {}
    known = {key: state[key] for key in ("phase", "reason", "message", "lastTransitionTime") if state.get(key)}
    return {**known, "phase": phase_of(made)}


def _group(name: str, states: Mapping[str, Json]) -> Json:
    counts: dict[str, int] = {}
    for state in states.values():
        field = _COUNTS.get(str(state.get("phase")), "unknown")
        counts[field] = counts.get(field, 0) + 1
    return {"name": name, "jobStates": dict(states), **counts}
