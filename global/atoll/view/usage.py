"""Reports from records: usage by queue, namespace, user, member or class of devices, history, evictions for others.

Rows are the ones of docs/records.md, from the store or from the status of bindings.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from atoll.model import ages, quantity, runs
from atoll.model.cards import ANY
from atoll.model.device_claims import CLASS_SUFFIX
from atoll.model.flavors import SIGN
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
_HELD = ("seconds", "asked", "busy")
BY = {
    "queue": ("queue", *_HELD),
    "namespace": _HELD,
    "user": ("user", *_HELD),
    "member": ("parts",),
    "class": _HELD,
}


@dataclass(slots=True)
class Hours:
    """One resource of one line of a report; amounts are in the unit of the report."""

    asked: float | None = 0.0
    """Asked, for as long as something was held; None where that is not known."""
    held: float = 0.0
    measured: float = 0.0
    """Held by runs with measured use."""
    busy: float = 0.0
    """Used by these."""

    def add(
        self, resource: str, held: float, seconds: float, asked: Mapping[str, float] | None, busy: Mapping[str, float]
    ) -> None:
        """Add a run.

        Args:
            resource: of this amount.
            held: in the unit of the report.
            seconds: for which it was held in the time of the report.
            asked: resource -> cores, bytes or devices of the whole workload; None where that is not known.
            busy: resource -> mean cores or bytes in use.
        """
        hours = seconds / units(resource)
        self.held += held
        self.asked = None if asked is None or self.asked is None else self.asked + asked.get(resource, 0.0) * hours
        if resource in busy:
            self.measured += held
            self.busy += busy[resource] * hours

    def merge(self, other: Hours) -> None:
        """Add the hours of another line."""
        self.asked = None if self.asked is None or other.asked is None else self.asked + other.asked
        self.held += other.held
        self.measured += other.measured
        self.busy += other.busy

    @property
    def busy_part(self) -> str:
        """Used part of the hours with measured use, for a table."""
        return f"{100 * self.busy / self.measured:.0f}%" if self.measured else "unknown"


@dataclass(slots=True)
class Amount(Hours):
    """One resource of one line of `usage`."""

    lost: float = 0.0
    """Held by runs that were evicted."""


@dataclass(slots=True)
class Line:
    """One queue, namespace, user, member or class."""

    runs: int = 0
    evicted: int = 0
    waited: float = 0.0
    """Seconds in the queue before each of its runs, in all."""
    amounts: dict[str, Amount] = field(default_factory=dict)

    @property
    def wait(self) -> float | None:
        """Mean seconds in the queue; None without a run."""
        return self.waited / self.runs if self.runs else None

    def merge(self, other: Line) -> None:
        """Add the runs of another line."""
        self.runs += other.runs
        self.evicted += other.evicted
        self.waited += other.waited
        for resource, amount in other.amounts.items():
            total = self.amounts.setdefault(resource, Amount())
            total.merge(amount)
            total.lost += amount.lost


def unit(resource: str) -> str:
    """The unit in which a report counts the resource."""
    return _UNITS.get(resource, _HOURS)[0]


def units(resource: str) -> float:
    """Resource-seconds of one such unit."""
    return _UNITS.get(resource, _HOURS)[1]


def of_bindings(bindings: Iterable[Json]) -> Iterator[Row]:
    """Rows of the runs that bindings still have; an open run up to now."""
    for binding in bindings:
        metadata, reference = binding["metadata"], (binding.get("spec") or {}).get("resource") or {}
        kind = runs.kind_of(str(reference.get("apiVersion") or ""), str(reference.get("kind") or ""))
        yield from _present(metadata, str(reference.get("name") or metadata["name"]), kind, binding.get("status") or {})


def of_queue(items: Iterable[Json]) -> Iterator[Row]:
    """Rows of QueueRuns (docs/query.md); an open run up to now."""
    for item in items:
        yield from _present(item["metadata"], item["workload"], item["workloadKind"], item)


def _present(metadata: Json, name: str, kind: str, holder: Json) -> Iterator[Row]:
    now = rfc3339(time.time())
    for run in runs.runs_of(holder):
        counted = run if run.released else runs.counted(run, now)
        yield runs.columns(Record(metadata["uid"], metadata["namespace"], name, kind, counted))


def within(rows: Iterable[Row], since: datetime, until: datetime) -> Iterator[Row]:
    """Rows of runs that were there in that time."""
    return (row for row in rows if row["dispatched"] < until and (row["released"] is None or row["released"] >= since))


def usage(rows: Iterable[Row], by: str, since: datetime, until: datetime) -> dict[str, Line]:
    """Usage of that time, in the order of names; a run that reaches beyond it counts with its share of the time."""
    lines: dict[str, Line] = {}
    for row in rows:
        found = overlap(row, since, until)
        if found is None:
            continue
        share, seconds = found
        evicted = row["outcome"] == runs.EVICTED
        for key, amounts, asked, busy in _parts(row, by):
            line = lines.setdefault(key, Line())
            line.runs += 1
            line.evicted += evicted
            if row["queued"]:
                line.waited += max((row["dispatched"] - row["queued"]).total_seconds(), 0.0)
            for resource, amount in amounts.items():
                if resource not in LEFT_OUT:
                    held = amount * share / units(resource)
                    total = line.amounts.setdefault(resource, Amount())
                    total.add(resource, held, seconds, asked, busy)
                    total.lost += held if evicted else 0.0
    return dict(sorted(lines.items()))


_Amounts = Mapping[str, float]


def _parts(row: Row, by: str) -> Iterator[tuple[str, _Amounts, _Amounts | None, _Amounts]]:
    """(line, resource-seconds, asked, busy) of a run."""
    if by == "member":
        for part in row["parts"]:
            # Requests are of the whole workload.
            yield part["member"], dict(part["seconds"]), None, dict(part["busy"])
        return
    amounts, asked, busy = dict(row["seconds"]), dict(row["asked"]), dict(row["busy"])
    if by != "class":
        yield str(row["namespace"] if by == "namespace" else row[by] or ""), amounts, asked, busy
        return
    asked = _once(asked)
    for key, each in _classes(_once(amounts)).items():
        yield key, each, asked, busy


def _once(amounts: _Amounts) -> dict[str, float]:
    """Amounts without repetition: flavors repeat their resource, GPUs under any name other names."""
    found = {name: amount for name, amount in amounts.items() if name != ANY}
    for name, amount in amounts.items():
        plain = name.partition(SIGN)[0]
        if plain != name and plain in found:
            found[plain] -= amount
            if found[plain] <= 1e-6 * amount:
                del found[plain]
    return found


def _classes(amounts: _Amounts) -> dict[str, dict[str, float]]:
    """Class of devices -> its resource; empty -> CPU, memory and others that are no devices."""
    found: dict[str, dict[str, float]] = {}
    for resource, amount in amounts.items():
        name = resource.removesuffix(CLASS_SUFFIX) if quantity.is_device(resource) else ""
        found.setdefault(name, {})[resource] = amount
    return found


def overlap(row: Row, since: datetime, until: datetime) -> tuple[float, float] | None:
    """(part, seconds) of a run's held time that is in the time of a report; None for none."""
    begin, end = row["bound"] or row["dispatched"], row["released"] or row["ended"]
    if end is None:
        end = datetime.fromtimestamp(time.time(), begin.tzinfo)
    if end < since or begin >= until:
        return None
    held, seconds = (end - begin).total_seconds(), (min(end, until) - max(begin, since)).total_seconds()
    return (seconds / held, seconds) if held > 0 else (1.0, 0.0)


USAGE = ("RUNS", "EVICTED", "WAITED", "RESOURCE", "ASKED", "HELD", "BUSY", "LOST", "UNIT", "COST")


def usage_rows(lines: Mapping[str, Line], prices: Mapping[str, float]) -> list[list[object]]:
    """Rows of a table, one for each resource; WAITED is the mean."""
    result: list[list[object]] = []
    for key, line in lines.items():
        waited = "-" if line.wait is None else ages.duration(line.wait)
        head: list[object] = [key or "-", line.runs, line.evicted, waited]
        for resource, amount in sorted(line.amounts.items()) or [("-", Amount())]:
            cost = f"{amount.held * prices[resource]:.2f}" if resource in prices else "-"
            asked = "-" if amount.asked is None else f"{amount.asked:.2f}"
            held, lost = f"{amount.held:.2f}", f"{amount.lost:.2f}"
            result.append([*head, resource, asked, held, amount.busy_part, lost, unit(resource), cost])
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
            "ConsumedQuantity": round(amount.held, 6),
            "ConsumedUnit": unit(resource),
            "ListUnitPrice": prices.get(resource),
            "BilledCost": round(amount.held * prices[resource], 6) if resource in prices else None,
            "BillingCurrency": currency or None,
            f"x_{by.capitalize()}": key,
            "x_Runs": line.runs,
            "x_Evicted": line.evicted,
            "x_AskedQuantity": None if amount.asked is None else round(amount.asked, 6),
            "x_MeasuredQuantity": round(amount.measured, 6),
            "x_BusyQuantity": round(amount.busy, 6) if amount.measured else None,
            "x_LostQuantity": round(amount.lost, 6),
            "x_MeanWaitSeconds": None if line.wait is None else round(line.wait, 3),
        }
        for key, line in lines.items()
        for resource, amount in sorted(line.amounts.items())
    ]


def record_types(by: str) -> dict[str, str]:
    """Column of `usage_records` -> `string`, `int64` or `double`."""
    texts = ("ChargePeriodStart", "ChargePeriodEnd", "SkuId", "ConsumedUnit", "BillingCurrency", f"x_{by.capitalize()}")
    amounts = ("Consumed", "x_Asked", "x_Measured", "x_Busy", "x_Lost")
    numbers = (*(f"{each}Quantity" for each in amounts), "ListUnitPrice", "BilledCost", "x_MeanWaitSeconds")
    counts = dict.fromkeys(("x_Runs", "x_Evicted"), "int64")
    return {**dict.fromkeys(texts, "string"), **counts, **dict.fromkeys(numbers, "double")}


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
    """Runs that were evicted for another workload, named or not, by the time of the eviction."""
    return sorted((row for row in rows if row["evicted_for"] or row["for_queue"]), key=_ended)


def preemption_rows(rows: Iterable[Row]) -> list[list[object]]:
    """One row for each of them."""
    return [
        [
            _second(row["ended"]),
            row["namespace"],
            row["name"],
            row["queue"],
            row["evicted_for"] or "-",
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


def _ended(row: Row) -> tuple[Any, Any]:
    return row["ended"] or row["dispatched"], row["id"]


def _dispatched(row: Row) -> tuple[Any, Any]:
    return row["dispatched"], row["id"]


def _second(when: datetime | None) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S") if when is not None else "-"


def _between(begin: datetime | None, end: datetime | None) -> str:
    if begin is None or end is None:
        return "-"
    return ages.duration(max((end - begin).total_seconds(), 0.0))
