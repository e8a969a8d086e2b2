"""CronJobs, and the Jobs that they made."""

from __future__ import annotations

from typing import Any

from atoll.model.timestamps import rfc3339_seconds, to_seconds

Json = dict[str, Any]


NOON = to_seconds("2026-06-15T12:00:00Z")


def make_cron(
    schedule: str = "0 * * * *", *, created: float = NOON - 1, last: float | None = None, **spec: Any
) -> Json:
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {"tasks": [{"name": "w"}]}}
    metadata = {"name": "tick", "namespace": "ns", "uid": "cron", "creationTimestamp": rfc3339_seconds(created)}
    status = {} if last is None else {"status": {"lastScheduleTime": rfc3339_seconds(last)}}
    return {"metadata": metadata, "spec": {"schedule": schedule, "jobTemplate": template, **spec}, **status}


def make_job(name: str, phase: str, *, created: float = NOON) -> Json:
    moment = rfc3339_seconds(created)
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": moment},
        "status": {"state": {"phase": phase, "lastTransitionTime": moment}},
    }


MINUTE, HOUR = 60.0, 3600.0
