"""Reports from records: usage by queue, namespace, user or member, history, and evictions for others.

Rows are the ones of docs/records.md, from the store or from the status of bindings.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from atoll.model import ages, runs
from atoll.model.runs import Record
from atoll.model.timestamps import rfc3339

Json = dict[str, Any]
Row = dict[str, Any]

_UNITS = {"cpu": ("core-hours", 3600.0), "memory": ("GiB-hours", 3600.0 * 2**30)}
_HOURS = ("hours", 3600.0)
LEFT_OUT = ("pods",)
"""Resources that no report has."""


COLUMNS = ("namespace", "queued", "dispatched", "bound", "ended", "released", "outcome")
"""Of a row that `usage` reads, beside the ones of `BY`."""
BY = {"queue": ("queue", "seconds"), "namespace": ("seconds",), "user": ("user", "seconds"), "member": ("parts",)}


@dataclass(slots=True)
class Amount:
    """One resource of one line of a report; amounts are in the unit of the report."""

    used: float = 0.0
    lost: float = 0.0
    """Of runs that were evicted."""


@dataclass(slots=True)
class Line:
    """One queue, namespace, user or member."""

    runs: int = 0
    evicted: int = 0
    waited: float = 0.0
    """Seconds in the queue before each of its runs, in all."""
    amounts: dict[str, Amount] = field(default_factory=dict)


def unit(resource: str) -> str:
    """The unit in which a report counts the resource."""
    return _UNITS.get(resource, _HOURS)[0]


def units(resource: str) -> float:
    """Resource-seconds of one such unit."""
    return _UNITS.get(resource, _HOURS)[1]


def of_bindings(bindings: Iterable[Json]) -> Iterator[Row]:
    """Rows of the runs that bindings still have; an open run up to now."""
    now = rfc3339(time.time())
    for binding in bindings:
        metadata, reference = binding["metadata"], (binding.get("spec") or {}).get("resource") or {}
        for run in runs.runs_of(binding.get("status") or {}):
            counted = run if run.released else runs.counted(run, now)
            kind = runs.kind_of(str(reference.get("apiVersion") or ""), str(reference.get("kind") or ""))
            name = str(reference.get("name") or metadata["name"])
            yield runs.columns(Record(metadata["uid"], metadata["namespace"], name, kind, counted))


def within(rows: Iterable[Row], since: datetime, until: datetime) -> Iterator[Row]:
    """Rows of runs that were there in that time."""
    return (row for row in rows if row["dispatched"] < until and (row["released"] is None or row["released"] >= since))


def usage(rows: Iterable[Row], by: str, since: datetime, until: datetime) -> dict[str, Line]:
    """Usage of that time; a run that reaches beyond it counts with its share of the time."""
    lines: dict[str, Line] = {}
    for row in rows:
        share = share_of(row, since, until)
        if share is None:
            continue
        if by == "member":
            parts = [(part["member"], part["seconds"]) for part in row["parts"]]
        else:
            parts = [(row[by] or "", row["seconds"])]
        evicted = row["outcome"] == runs.EVICTED
        for key, seconds in parts:
            line = lines.setdefault(key, Line())
            line.runs += 1
            line.evicted += evicted
            if row["queued"]:
                line.waited += max((row["dispatched"] - row["queued"]).total_seconds(), 0.0)
            for resource, amount in dict(seconds).items():
                if resource not in LEFT_OUT:
                    hours = amount * share / units(resource)
                    total = line.amounts.setdefault(resource, Amount())
                    total.used += hours
                    total.lost += hours if evicted else 0.0
    return lines


def share_of(row: Row, since: datetime, until: datetime) -> float | None:
    """The part of a run's held time that is in the time of a report; None for none."""
    begin, end = row["bound"] or row["dispatched"], row["released"] or row["ended"]
    if end is None:
        end = datetime.fromtimestamp(time.time(), begin.tzinfo)
    if end < since or begin >= until:
        return None
    held = (end - begin).total_seconds()
    return (min(end, until) - max(begin, since)).total_seconds() / held if held > 0 else 1.0


USAGE = ("RUNS", "EVICTED", "WAITED", "RESOURCE", "USED", "LOST", "UNIT", "COST")


def usage_rows(lines: Mapping[str, Line], prices: Mapping[str, float]) -> list[list[object]]:
    """Rows of a table, one for each resource; WAITED is the mean."""
    result: list[list[object]] = []
    for key, line in sorted(lines.items()):
        head: list[object] = [key or "-", line.runs, line.evicted, ages.duration(line.waited / line.runs)]
        for resource, amount in sorted(line.amounts.items()) or [("-", Amount())]:
            cost = f"{amount.used * prices[resource]:.2f}" if resource in prices else "-"
            result.append([*head, resource, f"{amount.used:.2f}", f"{amount.lost:.2f}", unit(resource), cost])
    return result


def usage_records(
    lines: Mapping[str, Line],
    by: str,
    since: datetime,
    until: datetime,
    prices: Mapping[str, float],
    currency: str,
) -> list[Json]:
    """One record for each resource, with the column names of FOCUS 1.2 and `x_` for others."""
    return [
        {
            "ChargePeriodStart": rfc3339(since.timestamp()),
            "ChargePeriodEnd": rfc3339(until.timestamp()),
            "SkuId": resource,
            "ConsumedQuantity": round(amount.used, 6),
            "ConsumedUnit": unit(resource),
            "ListUnitPrice": prices.get(resource),
            "BilledCost": round(amount.used * prices[resource], 6) if resource in prices else None,
            "BillingCurrency": currency or None,
            f"x_{by.capitalize()}": key,
            "x_Runs": line.runs,
            "x_Evicted": line.evicted,
            "x_LostQuantity": round(amount.lost, 6),
            "x_MeanWaitSeconds": round(line.waited / line.runs, 3),
        }
        for key, line in sorted(lines.items())
        for resource, amount in sorted(line.amounts.items())
    ]


HISTORY = ("NAMESPACE", "NAME", "USER", "QUEUE", "MEMBERS", "DISPATCHED", "WAITED", "RAN", "OUTCOME", "REASON")


def history_rows(rows: Iterable[Row]) -> list[list[object]]:
    """One row for each run, the last one last."""
    return [
        [
            row["namespace"],
            row["name"],
            row["user"] or "-",
            row["queue"],
            ",".join(row["members"]) or "-",
            _second(row["dispatched"]),
            _between(row["queued"], row["dispatched"]),
            _between(row["bound"], row["ended"]),
            row["outcome"] or ("Running" if row["running"] else "Starting"),
            row["reason"] or "-",
        ]
        for row in sorted(rows, key=_dispatched)
    ]


PREEMPTIONS = ("EVICTED", "NAMESPACE", "NAME", "QUEUE", "FOR", "FOR QUEUE", "RULE", "RAN")


def preempted(rows: Iterable[Row]) -> list[Row]:
    """Runs that were evicted for another workload, the last one last."""
    return sorted((row for row in rows if row["evicted_for"]), key=_dispatched)


def preemption_rows(rows: Iterable[Row]) -> list[list[object]]:
    """One row for each of them."""
    return [
        [
            _second(row["ended"]),
            row["namespace"],
            row["name"],
            row["queue"],
            row["evicted_for"],
            row["for_queue"] or "-",
            row["reason"],
            _between(row["bound"], row["ended"]),
        ]
        for row in rows
    ]


def plain(row: Row) -> Json:
    """A row as JSON."""
    result = dict(row)
    for key, value in row.items():
        if isinstance(value, datetime):
            result[key] = rfc3339(value.timestamp())
    for key in ("asked", "granted", "seconds", "busy"):
        result[key] = dict(row[key])
    result["parts"] = [
        {**part, **{key: dict(part[key]) for key in ("granted", "seconds", "busy")}} for part in row["parts"]
    ]
    return result


def _dispatched(row: Row) -> tuple[Any, Any]:
    return row["dispatched"], row["id"]


def _second(when: datetime | None) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S") if when is not None else "-"


def _between(begin: datetime | None, end: datetime | None) -> str:
    if begin is None or end is None:
        return "-"
    return ages.duration(max((end - begin).total_seconds(), 0.0))
