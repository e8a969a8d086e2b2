"""What became of the time that runs held, and how busy it was where members measure that: from records.

Each second that a run held goes to one of `FATES`. A run whose size changed counts with its mean size in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from atoll.model import ages, runs
from atoll.view.usage import LEFT_OUT, Hours, Row, overlap, unit, units

Json = dict[str, Any]

FATES: Final = ("succeeded", "going", "failed", "deleted", "evicted", "starting", "leaving")
"""Running in runs that succeeded, go on, failed, were deleted or evicted; before all ran; after the end."""
COLUMNS: Final = [
    "namespace", "name", "kind", "queue", "user", "dispatched", "bound", "running", "ended", "released", "outcome",
    "asked", "seconds", "busy",
]  # fmt: skip
_BY_OUTCOME: Final = {"Succeeded": "succeeded", "Failed": "failed", runs.EVICTED: "evicted", runs.DELETED: "deleted"}


@dataclass(slots=True)
class Amount(Hours):
    """One resource of one line of `efficiency`."""

    fates: dict[str, float] = field(default_factory=lambda: dict.fromkeys(FATES, 0.0))


@dataclass(slots=True)
class Line:
    """One workload, user, queue or namespace."""

    runs: int = 0
    started: int = 0
    """Runs that ran."""
    starting: float = 0.0
    """Seconds from nodes for the minimum to running, of these runs together."""
    amounts: dict[str, Amount] = field(default_factory=dict)


def efficiency(rows: Iterable[Row], by: str, since: datetime, until: datetime) -> dict[str, Line]:
    """Fates of the resource-hours held in that time, by workload, user, queue or namespace."""
    lines: dict[str, Line] = {}
    for row in rows:
        found = overlap(row, since, until)
        if found is None:
            continue
        share, seconds = found
        key = f"{row['namespace']}/{row['name']}" if by == "workload" else str(row[by] or "")
        line = lines.setdefault(key, Line())
        line.runs += 1
        if row["bound"] and row["running"]:
            line.started += 1
            line.starting += max((row["running"] - row["bound"]).total_seconds(), 0.0)
        spans = dict(_spans(row, since, until))
        asked, busy = dict(row["asked"]), dict(row["busy"])
        for resource, amount in dict(row["seconds"]).items():
            if resource in LEFT_OUT:
                continue
            held = amount * share / units(resource)
            total = line.amounts.setdefault(resource, Amount())
            total.add(resource, held, seconds, asked, busy)
            for fate, part in spans.items():
                total.fates[fate] += held * part / seconds if seconds else 0.0
    return lines


def _spans(row: Row, since: datetime, until: datetime) -> Iterator[tuple[str, float]]:
    """(fate, seconds in that time) of a run."""
    now = datetime.now(row["dispatched"].tzinfo)
    begin, end = row["bound"] or row["dispatched"], row["released"] or row["ended"] or now
    ended = min(row["ended"] or end, end)
    ran = min(max(row["running"] or ended, begin), ended)
    fate = _BY_OUTCOME.get(row["outcome"], "going")
    for name, first, last in (("starting", begin, ran), (fate, ran, ended), ("leaving", ended, end)):
        yield name, max((min(last, until) - max(first, since)).total_seconds(), 0.0)


HEADERS: Final = (
    "RUNS", "START", "RESOURCE", "ASKED", "HELD", "BUSY", "UNIT", *(each.upper() for each in FATES)
)  # fmt: skip


def table(lines: Mapping[str, Line]) -> list[list[object]]:
    """Rows of a table, one for each resource; START is the mean, fates are per cent of HELD."""
    return [
        [
            key or "-",
            line.runs,
            ages.duration(line.starting / line.started) if line.started else "-",
            resource,
            f"{amount.asked or 0.0:.2f}",
            f"{amount.held:.2f}",
            amount.busy_part,
            unit(resource),
            *(f"{100 * part / amount.held:.0f}%" if amount.held else "-" for part in amount.fates.values()),
        ]
        for key, line in sorted(lines.items())
        for resource, amount in sorted(line.amounts.items())
    ]


def records(lines: Mapping[str, Line], by: str) -> list[Json]:
    """One record for each resource; amounts in `unit`."""
    return [
        {
            by: key,
            "runs": line.runs,
            "mean_start_seconds": round(line.starting / line.started, 3) if line.started else None,
            "resource": resource,
            "unit": unit(resource),
            "asked": round(amount.asked or 0.0, 6),
            "held": round(amount.held, 6),
            "measured": round(amount.measured, 6),
            "busy": round(amount.busy, 6) if amount.measured else None,
            **{fate: round(part, 6) for fate, part in amount.fates.items()},
        }
        for key, line in sorted(lines.items())
        for resource, amount in sorted(line.amounts.items())
    ]


def record_types(by: str) -> dict[str, str]:
    """Column of `records` -> `string`, `int64` or `double`."""
    texts, numbers = (by, "resource", "unit"), ("mean_start_seconds", "asked", "held", "measured", "busy", *FATES)
    return {**dict.fromkeys(texts, "string"), "runs": "int64", **dict.fromkeys(numbers, "double")}
