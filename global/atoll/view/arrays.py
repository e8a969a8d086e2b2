"""Indices of a JobArray for people: counts, the ones that failed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.kinds.job_array import indices_of, states_in
from atoll.model import array_failures, array_states
from atoll.model.apiresource import JOB_ARRAYS
from atoll.model.array_states import FAILED

Json = dict[str, Any]


def failed_indices(array: Mapping[str, Any]) -> list[int]:
    """Indices that failed for good, in rising order.

    Raises:
        ValueError: its indices can't be read.
    """
    states = states_in(array, array.get("status") or {})
    return list(array_states.indices_in(indices_of(array), states, FAILED))


def indices(workload: Mapping[str, Any]) -> Json | None:
    """Counts by state, failed indices and reasons; None for other kinds and for an array without a status."""
    status = workload.get("status") or {}
    if (workload.get("apiVersion"), workload.get("kind")) != (JOB_ARRAYS.api_version, JOB_ARRAYS.kind):
        return None
    if "states" not in status:
        return None
    try:
        failed = failed_indices(workload)
        counts = array_states.counts(states_in(workload, status))
    except ValueError:
        return None
    found: Json = {**counts._asdict(), "retried": status.get("retried") or 0}
    if members := status.get("members"):
        found["members"] = {str(each.get("name")): int(each.get("indices") or 0) for each in members}
    if failed:
        found["failedIndices"] = array_states.short(failed)
        found["failures"] = array_failures.read(status.get("failures") or [])
        found["retry"] = f"atollctl job retry jobarray/{workload['metadata']['name']}"
    return found


def lines(found: Mapping[str, Any]) -> list[str]:
    """The same as text."""
    counts = ", ".join(f"{found[name]} {name}" for name in ("pending", "running", "succeeded", "failed"))
    again = f", {found['retried']} failures retried" if found["retried"] else ""
    made = [f"Indices: {counts}{again}"]
    if members := found.get("members"):
        made.append(f"  in        {', '.join(f'{name}: {count} not ended' for name, count in members.items())}")
    if "failedIndices" not in found:
        return made
    made.append(f"  failed    {found['failedIndices']}")
    for each in found["failures"]:
        made.append(f"  reason    {each['reason']}: {each['count']} ({each['indices']})")
        made.append(f"    last    {each['last']}")
    return [*made, f"  again     {found['retry']}"]
