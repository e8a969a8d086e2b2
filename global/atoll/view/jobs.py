"""Jobs: a row for each, with where it runs and why it waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from atoll.model.ages import age

Json = dict[str, Any]

HEADERS = ("NAME", "QUEUE", "STATUS", "CLUSTER", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "AGE")


def by_workload(bindings: Iterable[Json]) -> dict[str, Json]:
    """UID of the workload -> its binding."""
    return {uid: item for item in bindings if (uid := ((item.get("spec") or {}).get("resource") or {}).get("uid"))}


def rows(
    jobs: list[Json],
    bindings: Mapping[str, Json],
    now: float,
    *,
    namespaced: bool,
    wide: bool,
    silent: Mapping[str, str] = {},
) -> list[list[object]]:
    """The table's rows, in the order of the API server.

    Args:
        jobs: Volcano Jobs and batch Jobs, with their kinds.
        bindings: by the UID of their workload.
        now: seconds since the epoch.
        namespaced: with a first column for the namespace.
        wide: with the reason as the last column.
        silent: member that is not ready -> since when (RFC 3339).
    """
    result = []
    for job in jobs:
        meta, (phase, counts) = job["metadata"], _standing(job)
        binding = bindings.get(meta.get("uid", "")) or {}
        clusters = ",".join(item["name"] for item in (binding.get("spec") or {}).get("clusters") or ())
        row: list[object] = [
            f"job.batch/{meta['name']}" if _is_batch(job) else meta["name"],
            queue_of(job),
            phase,
            clusters,
            *counts,
            age(meta.get("creationTimestamp"), now),
        ]
        if namespaced:
            row.insert(0, meta.get("namespace"))
        if wide:
            row.append(lost(binding, silent) or ("" if counts[1] else reason_of(binding)))
        result.append(row)
    return result


def _is_batch(job: Json) -> bool:
    return bool(job["apiVersion"] == "batch/v1")


def _standing(job: Json) -> tuple[str, tuple[int, int, int, int]]:
    """Its state in the words of its kind, and its pods: pending, running, succeeded, failed."""
    status = job.get("status") or {}
    counts = {
        key: int(status.get(key) or 0) for key in ("pending", "running", "active", "ready", "succeeded", "failed")
    }
    if not _is_batch(job):
        phase = str((status.get("state") or {}).get("phase") or "Pending")
        return phase, (counts["pending"], counts["running"], counts["succeeded"], counts["failed"])
    from atoll.kinds import Outcome, batch_job

    started = counts["ready"] or counts["succeeded"] or counts["failed"]
    phase = "Suspended" if (job.get("spec") or {}).get("suspend") else "Running" if started else "Pending"
    if outcome := batch_job.KIND.finished(status):
        phase = "Failed" if outcome is Outcome.FAILED else "Complete"
    pending = max(0, counts["active"] - counts["ready"])
    return phase, (pending, counts["ready"], counts["succeeded"], counts["failed"])


def queue_of(job: Json) -> str:
    """The queue that the job names; the webhook has filled it in where Atoll handles the job."""
    if _is_batch(job):
        from atoll.kinds import batch_job

        return batch_job.KIND.queue_of(job)
    return str((job.get("spec") or {}).get("queue") or "default")


def lost(binding: Json, silent: Mapping[str, str]) -> str:
    """That figures of a workload are old, as members do not answer; empty where all do."""
    names = [item["name"] for item in (binding.get("spec") or {}).get("clusters") or ()]
    told = "; ".join(f"{name} not ready since {silent[name]}, figures are of then" for name in names if name in silent)
    if told:
        return told
    from atoll.model.conditions import condition

    # A user who may not list members reads it off the binding.
    away = condition(binding, "MemberReady")
    return str(away.get("message") or "") if away.get("status") == "False" else ""


def reason_of(binding: Json) -> str:
    """Why the workload of a binding waits, or does not run though it was dispatched; empty when it runs or is over."""
    if not binding:
        return "not seen by atoll-control"
    from atoll.model.conditions import condition, is_true
    from atoll.model.decision import Phase
    from atoll.model.verdict import Verdict
    from atoll.view.seen import held_up, seen

    view = seen(binding)
    if view is None:
        return "its binding is not Atoll's"
    if view.finished or is_true(condition(binding, "Running")):
        return ""
    if view.decision.phase is Phase.BOUND:
        why = "; ".join(f"{name}: {text}" for name, text in sorted(held_up(binding).items()))
        bound = is_true(condition(binding, "Bound"))
        text = "bound, containers don't run yet" if bound else "dispatched, pods are not bound yet"
        return f"{text}: {why}" if why else text
    if view.decision.phase.charged:
        return ""
    return Verdict(view.decision.reason, view.decision.blocker).sentence()
