"""Shares of queues against their deserved amounts over a time, and the hours that they borrowed and lent.

Runs of a queue and of the queues below it hold an amount at each moment. Above its deserved amount a queue borrows,
below it the rest is idle. The idle amounts of siblings lend as much as these siblings borrow, at most all of it, each
in proportion. So lent and borrowed hours of siblings are equal wherever idle amounts suffice; the rest is capacity of
other branches of the tree, or of no queue. Queues without a deserved amount of a resource neither borrow nor lend it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from atoll.model import keys, quantity
from atoll.view import queue_objects
from atoll.view.queues import tree
from atoll.view.usage import LEFT_OUT, Amount, Line, Row, overlap, units, usage, usage_records, usage_rows

Json = dict[str, Any]


class Span(NamedTuple):
    """The part of a run in the time of a report."""

    queue: str
    begin: float
    """Seconds since the epoch."""
    end: float
    amounts: Mapping[str, float]
    """Resource -> mean amount that it held."""


class Deserved(NamedTuple):
    """A queue as it is configured."""

    above: tuple[str, ...]
    """The queues above it, the nearest first, without the root."""
    amounts: Mapping[str, float]
    """Resource -> cores, bytes or devices."""


class Standing(NamedTuple):
    """One resource of a queue and those below it, in the unit of the report."""

    deserved: float
    held: float
    borrowed: float
    lent: float | None
    """None where the runs of its siblings are not known."""

    @property
    def share(self) -> float | None:
        """Held part of the deserved amount; None where that is 0."""
        return self.held / self.deserved if self.deserved > 0 else None


@dataclass(frozen=True, slots=True)
class Tree:
    """A report by queue against the tree."""

    lines: dict[str, Line]
    """Of each queue with the ones below it, in the order of the tree."""
    own: dict[str, Line]
    """Of each queue alone."""
    depths: dict[str, int]
    standings: dict[str, dict[str, Standing]] = field(default_factory=dict)
    """Queue -> resource of which it deserves some, and held or lent some."""

    def figures(self, queue: str, resource: str) -> tuple[float | None, float | None, float | None, float | None]:
        """Deserved, share of it, borrowed, lent; None where the queue deserves none."""
        found = self.standings.get(queue, {}).get(resource)
        return (found.deserved, found.share, found.borrowed, found.lent) if found is not None else (None,) * 4


def spans(rows: Iterable[Row], since: datetime, until: datetime, into: list[Span]) -> Iterator[Row]:
    """The rows as they are; their spans in that time go `into` a list."""
    for row in rows:
        share, seconds = overlap(row, since, until) or (0.0, 0.0)
        if seconds > 0:
            begin = max(row["bound"] or row["dispatched"], since).timestamp()
            means = {name: amount * share / seconds for name, amount in dict(row["seconds"]).items()}
            into.append(Span(str(row["queue"] or ""), begin, begin + seconds, means))
        yield row


def configured(queues: Sequence[Json], top: str = "") -> dict[str, Deserved]:
    """Queue -> its place and deserved amounts, in the order of the tree.

    Args:
        queues: all Queue objects.
        top: only this queue and the ones below it; empty for all.
    """
    by_name = {str(queue["metadata"]["name"]): queue for queue in queues}
    found: dict[str, Deserved] = {}
    for _, queue in tree(queues):
        path = [str(each["metadata"]["name"]) for each in queue_objects.path_of(queue, by_name)]
        if path[0] != keys.ROOT_QUEUE and (not top or top in path):
            above = path[1 : path.index(top) + 1] if top else path[1:]
            found[path[0]] = Deserved(tuple(each for each in above if each != keys.ROOT_QUEUE), _deserved(queue))
    return found


def _deserved(queue: Json) -> dict[str, float]:
    try:
        listed = queue_objects.mapping(queue_objects.mapping(queue.get("spec")).get("deserved"))
        return {name: units / quantity.scale_of(name) for name, units in quantity.capacity(listed).items()}
    except (quantity.QuantityError, TypeError):
        # Older than the checks of its CRD.
        return {}


def of_rows(rows: Iterable[Row], queues: Sequence[Json], span: tuple[datetime, datetime], top: str = "") -> Tree:
    """Usage by queue against the tree, up to now where the time goes on.

    Args:
        rows: of all runs in that time, of `top` and the queues below it where that is given.
        queues: all Queue objects.
        span: the time.
        top: a queue; empty for all.
    """
    since, until = span
    held: list[Span] = []
    lines = usage(spans(rows, since, until, held), "queue", since, until)
    return against(lines, configured(queues, top), held, since, min(until, datetime.now(since.tzinfo)), top)


def against(
    lines: Mapping[str, Line],
    queues: Mapping[str, Deserved],
    held: Iterable[Span],
    since: datetime,
    until: datetime,
    top: str = "",
) -> Tree:
    """A report of that time against the tree.

    Args:
        lines: queue -> its own runs.
        queues: as `configured`.
        held: of all runs of these queues.
        since: where the time begins.
        until: where it ends.
        top: a queue whose siblings are left out.
    """
    found = {
        name: {resource: each for resource, each in figures.items() if each.held or each.lent}
        for name, figures in standings(queues, held, since.timestamp(), until.timestamp(), top).items()
    }
    whole: dict[str, Line] = {name: Line() for name in queues}
    for name, line in lines.items():
        for each in (name, *(queues[name].above if name in queues else ())):
            whole.setdefault(each, Line()).merge(line)
    shown = {name: line for name, line in whole.items() if line.runs or found.get(name)}
    own = {name: Line() for name in shown}
    for name, total in shown.items():
        own[name].merge(lines.get(name, Line()))
        for resource in (*total.amounts, *found.get(name, ())):
            for line in (total, own[name]):
                line.amounts.setdefault(resource, Amount())
    depths = {name: len(queues[name].above) if name in queues else 0 for name in shown}
    return Tree(shown, own, depths, found)


def standings(
    queues: Mapping[str, Deserved], held: Iterable[Span], since: float, until: float, top: str = ""
) -> dict[str, dict[str, Standing]]:
    """Queue -> resource of which it deserves some -> its standing in the time from `since` to `until`; see the module.

    Args:
        queues: as `configured`.
        held: of all runs of these queues, within the time.
        since: seconds since the epoch.
        until: the same.
        top: a queue whose siblings are left out.
    """
    changes: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for span in held:
        for queue in (span.queue, *queues[span.queue].above) if span.queue in queues else ():
            for resource in queues[queue].amounts.keys() & span.amounts.keys():
                amount = span.amounts[resource]
                changes.setdefault((queue, resource), []).extend(((span.begin, amount), (span.end, -amount)))
    siblings: dict[tuple[str, str], dict[str, float]] = {}
    for queue, place in queues.items():
        for resource, amount in place.amounts.items():
            if resource not in LEFT_OUT:
                siblings.setdefault((place.above[0] if place.above else "", resource), {})[queue] = amount
    found: dict[str, dict[str, Standing]] = {name: {} for name in queues}
    for (_, resource), deserved in siblings.items():
        own = {queue: changes.get((queue, resource), []) for queue in deserved}
        for queue, (amount, borrowed, lent) in _lending(deserved, own, since, until).items():
            due, unit = deserved[queue] * (until - since), units(resource)
            rest = None if queue == top else lent / unit
            found[queue][resource] = Standing(due / unit, amount / unit, borrowed / unit, rest)
    return found


HEADERS: Final = ("SHARE", "BORROWED", "LENT")
_NAMES: Final = ("x_DeservedQuantity", "x_ShareOfDeserved", "x_BorrowedQuantity", "x_LentQuantity")
TYPES: Final = dict.fromkeys(("x_SubtreeQuantity", *_NAMES), "double")
"""Of the columns that `records` adds."""


def table(report: Tree, prices: Mapping[str, float]) -> list[list[object]]:
    """Rows as `usage_rows` gives them, of queues with the ones below them, and `HEADERS`; SHARE is of the deserved."""
    rows = usage_rows(report.lines, prices)
    for row in rows:
        name, resource = str(row[0]), str(row[4])
        _, share, *hours = report.figures(name, resource)
        row[0] = "  " * report.depths.get(name, 0) + name
        row.append("-" if share is None else f"{100 * share:.0f}%")
        row += ["-" if each is None else f"{each:.2f}" for each in hours]
    return rows


def records(report: Tree, since: datetime, until: datetime, prices: Mapping[str, float], currency: str) -> list[Json]:
    """Records as `usage_records` gives them, of each queue alone, so that they add up; x_SubtreeQuantity, and columns
    against the deserved amount, are of the queue with the ones below it, None where it deserves none.
    """
    found = usage_records(report.own, "queue", since, until, prices, currency)
    for record in found:
        name, resource = record["x_Queue"], record["SkuId"]
        record["x_SubtreeQuantity"] = round(report.lines[name].amounts[resource].held, 6)
        figures = report.figures(name, resource)
        record.update(
            {key: each if each is None else round(each, 6) for key, each in zip(_NAMES, figures, strict=True)}
        )
    return found


def _lending(
    deserved: Mapping[str, float], changes: Mapping[str, Sequence[tuple[float, float]]], since: float, until: float
) -> dict[str, list[float]]:
    """Sibling -> [held, borrowed, lent], each an amount times seconds.

    Between two changes of a sibling its idle amount is constant, so it lends that times the growth of one integral: of
    the part of all idle amounts that is borrowed. Each change costs the same, however many siblings there are.
    """
    now, covered = since, 0.0
    borrowing, idle = 0.0, sum(deserved.values())
    held = dict.fromkeys(deserved, 0.0)
    seen = {queue: (since, 0.0) for queue in deserved}
    found = {queue: [0.0, 0.0, 0.0] for queue in deserved}
    ends = [(until, queue, 0.0) for queue in deserved]
    for at, queue, change in [
        *sorted((at, queue, change) for queue, each in changes.items() for at, change in each), *ends,
    ]:  # fmt: skip
        covered += (at - now) * (min(borrowing / idle, 1.0) if idle > 0 else 0.0)
        now = at
        before, after = held[queue] - deserved[queue], held[queue] + change - deserved[queue]
        elapsed, grown = at - seen[queue][0], covered - seen[queue][1]
        total = found[queue]
        total[0] += held[queue] * elapsed
        total[1] += max(before, 0.0) * elapsed
        total[2] += max(-before, 0.0) * grown
        # Sums of many changes miss zero by a little.
        borrowing = max(borrowing + max(after, 0.0) - max(before, 0.0), 0.0)
        idle = max(idle + max(-after, 0.0) - max(-before, 0.0), 0.0)
        held[queue] += change
        seen[queue] = (at, covered)
    return found
