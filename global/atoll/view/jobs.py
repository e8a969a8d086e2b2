"""Jobs: a row for each, with where it runs and why it waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from atoll.model.ages import age

if TYPE_CHECKING:
    from atoll.kinds import Kind

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
        jobs: workloads, with their kinds.
        bindings: by the UID of their workload.
        now: seconds since the epoch.
        namespaced: with a first column for the namespace.
        wide: with the reason as the last column.
        silent: member that is not ready -> since when (RFC 3339).
    """
    from atoll.kinds import kind_of

    result = []
    for job in jobs:
        kind, meta = kind_of(job), job["metadata"]
        assert kind is not None, "a list has workloads only"
        state, *counts = kind.standing(job)
        binding = bindings.get(meta.get("uid", "")) or {}
        clusters = ",".join(item["name"] for item in (binding.get("spec") or {}).get("clusters") or ())
        row: list[object] = [
            f"{kind.words.prefix}{meta['name']}",
            kind.queue_of(job),
            state,
            clusters,
            *counts,
            age(meta.get("creationTimestamp"), now),
        ]
        if namespaced:
            row.insert(0, meta.get("namespace"))
        if wide:
            row.append(
                lost(binding, silent) or ("" if counts[1] else reason_of(binding) if binding else unseen(kind, job))
            )
        result.append(row)
    return result


def queue_of(job: Json) -> str:
    """The queue that the workload names; the webhook has filled it in where Atoll handles it."""
    from atoll.kinds import kind_of

    kind = kind_of(job)
    assert kind is not None, "a list has workloads only"
    return kind.queue_of(job)


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


def unseen(kind: Kind, job: Json) -> str:
    """Why a workload has no binding, as far as it says so itself."""
    why = kind.left_alone(job)
    return why.message if why is not None else "not seen by atoll-control"


def reason_of(binding: Json) -> str:
    """Why the workload of a binding waits, or does not run though it was dispatched; empty when it runs or is over."""
    from atoll.model.conditions import condition, is_true
    from atoll.model.decision import Phase
    from atoll.model.verdict import Verdict
    from atoll.view.seen import held_up, seen

    view = seen(binding)
    if view is None:
        return "its binding is not Atoll's"
    if view.finished or is_true(condition(binding, "Running")):
        return ""
    if view.decision.phase is Phase.DISPATCHED:
        why = "; ".join(f"{name}: {text}" for name, text in sorted(held_up(binding).items()))
        bound = is_true(condition(binding, "Bound"))
        text = "bound, containers don't run yet" if bound else "dispatched, pods are not bound yet"
        return f"{text}: {why}" if why else text
    if view.decision.phase.charged:
        return ""
    return Verdict(view.decision.reason, view.decision.blocker).sentence()
