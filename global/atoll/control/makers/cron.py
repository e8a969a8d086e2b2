"""The Job of a CronJob to make now, the Jobs to remove, and when to look again.

As Kubernetes' own CronJob controller has it: of the times that were missed, while no controller looked or while an
earlier Job ran under Forbid, the last one alone is made up, and only within `startingDeadlineSeconds`; a time is done
once `lastScheduleTime` says so, and Jobs are named after theirs, so that no time makes two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.control.makers.making import Json, News, Plan, job, phase_of
from atoll.kinds.volcano_job import KIND
from atoll.model import cron, keys
from atoll.model.apiresource import JOBS, VOLCANO_CRON_JOBS
from atoll.model.timestamps import rfc3339_seconds, to_seconds

_SUCCESSFUL, _FAILED = 3, 1
_MANY = 100
"""Missed times above which the message says "many"."""


def job_name(name: str, scheduled: float) -> str:
    """Of the Job for a time."""
    return f"{name}-{int(scheduled) // 60}"


def plan(obj: Json, jobs: Sequence[Json], now: float) -> Plan:
    """Plan for a CronJob now.

    Args:
        obj: the whole object.
        jobs: that it made and that are there.
        now: seconds since the epoch.
    """
    spec, old = obj["spec"], obj.get("status") or {}
    ended = [each for each in jobs if _over(each)]
    active = [each for each in jobs if not _over(each)]
    delete = _history(spec, ended)
    status = {key: value for key, value in old.items() if key != "active"}
    done = [at for each in ended if phase_of(each) == "Completed" and (at := KIND.ended_at(each["status"]))]
    if done:
        status["lastSuccessfulTime"] = max(done + [text for text in [old.get("lastSuccessfulTime")] if text])

    def result(*, again: float | None = None, create: Json | None = None, news: News | None = None) -> Plan:
        references = [_reference(each) for each in sorted(active, key=lambda each: str(each["metadata"]["name"]))]
        whole = {**status, "active": references} if references else status
        told = [*events, *([news] if news else [])]
        return Plan(delete=delete, create=[create] if create else [], status=whole, again=again, news=told)

    events: list[News] = []
    if obj["metadata"].get("deletionTimestamp") is not None or spec.get("suspend"):
        return result()
    try:
        schedule = cron.parse(spec.get("schedule"), spec.get("timeZone"))
    except cron.BadSchedule as error:
        return result(news=News("UnparseableSchedule", str(error), warning=True))
    deadline = spec.get("startingDeadlineSeconds")
    since = to_seconds(old.get("lastScheduleTime") or obj["metadata"]["creationTimestamp"])
    counted = since if deadline is None else max(since, now - deadline)
    following, due = schedule.after(now), schedule.latest(counted, now)
    if due is None:
        if deadline is not None and (lost := schedule.latest(since, now)) is not None:
            text = f"missed {rfc3339_seconds(lost)}: more than startingDeadlineSeconds ({deadline}) ago"
            return result(again=following, news=News("MissSchedule", text, warning=True))
        return result(again=following)
    if schedule.missed(counted, now, _MANY + 1) > _MANY:
        text = f"more than {_MANY} times were missed; the last one is made up (startingDeadlineSeconds limits them)"
        events.append(News("TooManyMissedTimes", text, warning=True))
    policy = spec.get("concurrencyPolicy") or "Allow"
    name = job_name(obj["metadata"]["name"], due)
    if policy == "Forbid" and active:
        runs = active[0]["metadata"]["name"]
        text = f"{rfc3339_seconds(due)} waits: {runs} has not ended, and concurrencyPolicy is Forbid"
        return result(again=following, news=News("JobAlreadyActive", text))
    if policy == "Replace":
        delete += [str(each["metadata"]["name"]) for each in active if each["metadata"]["name"] != name]
        active = []
    template = spec.get("jobTemplate") or {}
    head = template.get("metadata") or {}
    made = job(
        obj,
        VOLCANO_CRON_JOBS,
        name,
        template.get("spec") or {},
        labels=head.get("labels") or {},
        annotations={**(head.get("annotations") or {}), keys.SCHEDULED_FOR: rfc3339_seconds(due)},
    )
    status["lastScheduleTime"] = rfc3339_seconds(due)
    # The cache tells of the new one, and then it is among the active.
    return result(again=following, create=made, news=News("SuccessfulCreate", f"made Job {name}"))


def _over(job: Json) -> bool:
    # An aborted one may be resumed, and is over as far as this is concerned: it holds nothing.
    return phase_of(job) in ("Completed", "Failed", "Terminated", "Aborted")


def _history(spec: Mapping[str, Any], ended: Sequence[Json]) -> list[str]:
    """Names of Jobs that have ended and are more than their kind may stay; the oldest go."""
    names = []
    for good, field, default in (
        (True, "successfulJobsHistoryLimit", _SUCCESSFUL),
        (False, "failedJobsHistoryLimit", _FAILED),
    ):
        limit = spec.get(field)
        found = [each["metadata"] for each in ended if (phase_of(each) == "Completed") == good]
        found.sort(key=lambda meta: (str(meta.get("creationTimestamp")), str(meta["name"])))
        names += [str(meta["name"]) for meta in found[: max(0, len(found) - (default if limit is None else limit))]]
    return names


def _reference(job: Json) -> Json:
    meta = job["metadata"]
    about = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "namespace": meta["namespace"], "name": meta["name"]}
    return {**about, "uid": meta["uid"]}
