"""The status of an array that runs in several members, on the host: all of it but its conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from atoll.kinds.interface import Json, Report
from atoll.kinds.job_array import counted, indices_of, job_of, states_in
from atoll.kinds.job_array.shares import Division, Holder, handed_out
from atoll.kinds.job_array.shares import joined as join
from atoll.kinds.volcano_job import KIND as JOB
from atoll.model import array_failures, array_states
from atoll.model.timestamps import seconds_or

STATUS: Final = (
    "phase", "pending", "running", "succeeded", "failed", "retried", "states", "failedIndices", "failures", "owners",
    "members", "startTime", "completionTime",
)  # fmt: skip
"""Fields that follow from indices and owners."""


def joined(array: Mapping[str, Any], before: Division | None, holders: Sequence[Report], *, now: str) -> Json:
    """The array with its status after reports, and with free indices given to members that have few left.

    Args:
        array: on the host.
        before: as its status has it.
        holders: see `Kind.joined`.
        now: RFC 3339.
    """
    old, runs = array.get("status") or {}, indices_of(array)
    states = states_in(array, old)
    before = before or Division(states, bytes(len(states)), [])
    known = [_holder(array, each, now) for each in holders]
    division = handed_out(join(before, known), known)
    status: Json = {name: value for name, value in old.items() if name not in STATUS}
    status |= counted(runs, division.states)
    status["owners"] = array_states.encode(division.owners)
    status["members"] = [
        {"name": each.cluster, "work": each.work, "indices": division.left(each.work)} for each in holders
    ]
    failures = array_failures.read(old.get("failures") or [])
    for each in holders:
        failures = array_failures.joined(failures, array_failures.read(each.status.get("failures") or []))
    if failures:
        status["failures"] = failures
    begun = [text for each in (old, *(each.status for each in holders)) if (text := each.get("startTime"))]
    if begun:
        status["startTime"] = min(begun)
    if status["pending"] + status["running"]:
        status["phase"] = "Running" if any(division.states) else "Pending"
    else:
        status["phase"] = "Failed" if status["failed"] else "Completed"
        status["completionTime"] = now
    return {**array, "status": status}


def _holder(array: Mapping[str, Any], report: Report, now: str) -> Holder:
    sizes = {task.name: task.replicas for task in JOB.gang(job_of(array), priority=0).tasks}
    slots = min((report.pods.get(name, 0) // size for name, size in sizes.items() if size), default=0)
    states = states_in(array, report.status) if "states" in report.status else None
    at = seconds_or(now, 0.0)
    return Holder(report.work, slots, states, at - seconds_or(report.status.get("startTime") or now, at))
