"""Starts, ends and evictions of runs, and members that were lost or came back, as events in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from atoll.model import runs
from atoll.model.conditions import condition

Json = dict[str, Any]
Row = dict[str, Any]

STARTED, ENDED, EVICTED, LOST, READY = "started", "ended", "evicted", "member lost", "member ready"
KINDS: Final = (STARTED, ENDED, EVICTED, LOST, READY)


class Event(NamedTuple):
    """Something that happened."""

    at: datetime
    kind: str
    """One of `KINDS`."""
    name: str
    """Of the workload, or of the member."""
    text: str
    namespace: str = ""
    workload_kind: str = ""
    """Kind and group; empty of a member."""
    queue: str = ""
    members: tuple[str, ...] = ()


def events(rows: Iterable[Row], clusters: Iterable[Json], since: datetime, until: datetime) -> Iterator[Event]:
    """The events of that time, in no order.

    Args:
        rows: of runs, as `usage.of_bindings` gives them.
        clusters: the members; of each the last change of its readiness is known.
        since: begin.
        until: end, exclusive.
    """
    for each in (*(event for row in rows for event in _of_run(row)), *map(_of_member, clusters)):
        if each is not None and since <= each.at < until:
            yield each


def _of_run(row: Row) -> Iterator[Event]:
    where = {
        "namespace": row["namespace"],
        "workload_kind": row["kind"],
        "queue": row["queue"],
        "members": tuple(row["members"]),
    }
    if row["bound"]:
        yield Event(row["bound"], STARTED, row["name"], "all pods have nodes", **where)
    if not row["ended"]:
        return
    if row["outcome"] == runs.EVICTED:
        claimant = f" for {row['evicted_for']}" if row["evicted_for"] else ""
        text = f"{row['reason']}{claimant}: {row['message']}" if row["message"] else f"{row['reason']}{claimant}"
        yield Event(row["ended"], EVICTED, row["name"], text, **where)
    else:
        yield Event(row["ended"], ENDED, row["name"], row["outcome"], **where)


def _of_member(cluster: Json) -> Event | None:
    ready = condition(cluster, "Ready")
    try:
        at = datetime.fromisoformat(str(ready.get("lastTransitionTime")))
    except ValueError:
        return None
    kind = READY if ready.get("status") == "True" else LOST
    return Event(at, kind, cluster["metadata"]["name"], str(ready.get("message") or "")) if at.tzinfo else None
