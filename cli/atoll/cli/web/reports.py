"""Usage and the timeline: reports from the runs that bindings still have, as `usage` and `history` without a store."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from atoll.cli import run_sources
from atoll.cli.errors import CommandError
from atoll.cli.records import span_of
from atoll.cli.web.page import Page, rendered
from atoll.cli.web.world import World
from atoll.kube.errors import ApiError, Forbidden
from atoll.model.apiresource import BINDINGS, CLUSTERS, QUEUES
from atoll.view import borrowing
from atoll.view import timeline as view_timeline
from atoll.view import usage as view_usage
from atoll.view.timeline import Event
from atoll.view.usage import BY

Json = dict[str, Any]

_LINES: Final = 500
"""Lines of a report, and events of a timeline."""
_BARS: Final = 48
_HEADERS: Final = {"WAITED": "waited, mean", "LOST": "lost by eviction"}
"""Of columns whose name is no heading of a page."""


async def usage(world: World, asked: Mapping[str, str]) -> Page:
    """Resource-hours, waits and losses, as `usage`."""
    by, span, queue = asked.get("by", "queue"), _span(asked, "7d"), asked.get("queue", "")
    if by not in BY:
        raise web.HTTPBadRequest(text=f"by={by}: write one of {', '.join(BY)}")
    rows: list[Json] = []
    totals: Counter[str] = Counter()
    columns: Sequence[str] = view_usage.USAGE
    note = problem = ""
    try:
        source, note = await _source(world, span, queue)
        rows, totals, columns = await asyncio.to_thread(_added, source, by, span)
    except ApiError as error:
        problem = error.said
    except CommandError as error:
        problem = str(error)
    form = {
        "template": "filter-span.html", "by": by, "since": asked.get("since", "7d"), "queue": queue, "choices": [*BY],
    }  # fmt: skip
    return rendered(
        world, "Usage", "/usage", "usage.html", form,
        rows=rows[:_LINES], count=len(rows), by=by, totals=totals, since=form["since"], queue=queue,
        headers=[by, *(_HEADERS.get(name, name.lower()) for name in columns), "of all"], columns=columns,
        note=note, problem=problem,
    )  # fmt: skip


async def _source(world: World, span: tuple[datetime, datetime], queue: str) -> tuple[run_sources.Source, str]:
    """Runs, and a sentence for anything left out."""
    queues, note = world.listed(QUEUES), ""
    if queue and queues is not None:
        path = run_sources.path_to(queue, queues)
        if not world.whole and not world.alone:
            try:
                # The dispatcher answers once in some seconds.
                found = await world.shared(
                    f"runs of {queue}", lambda: run_sources.administered(world.host, path), lasting=True
                )
                return run_sources.of_administered(found, span, queue, queues), ""
            except Forbidden:
                note = run_sources.left_out(path)
    return run_sources.of_bindings(world.bodies(BINDINGS), span, queue, queues, whole=world.whole), note


def _added(
    source: run_sources.Source, by: str, span: tuple[datetime, datetime]
) -> tuple[list[Json], Counter[str], Sequence[str]]:
    """Rows of the table, hours held by resource, and the columns."""
    columns: Sequence[str] = view_usage.USAGE
    if by == "queue" and (report := source.against_tree(span)) is not None:
        lines, depths, table = report.own, report.depths, borrowing.table(report, {})
        columns = (*columns, *borrowing.HEADERS)
    else:
        lines, depths = view_usage.usage(source.rows, by, *span), {}
        table = view_usage.usage_rows(lines, {})
    rows = [dict(zip((by, *columns), row, strict=True)) for row in table]
    for row in rows:
        name = str(row[by]).strip()
        row |= {by: name, "depth": depths.get(name, 0)}
    totals: Counter[str] = Counter()
    for line in lines.values():
        totals.update({resource: amount.held for resource, amount in line.amounts.items()})
    return rows, totals, [each for each in columns if each != "COST"]


async def timeline(world: World, asked: Mapping[str, str]) -> Page:
    """Starts, ends, evictions and lost members."""
    span = _span(asked, "24h")
    bindings, clusters = world.bodies(BINDINGS), world.bodies(CLUSTERS)
    events, lanes = await asyncio.to_thread(_drawn, bindings, clusters, span)
    form = {"template": "filter-span.html", "since": asked.get("since", "24h")}
    return rendered(
        world, "Timeline", "/timeline", "timeline.html", form,
        events=events, lanes=lanes, since=form["since"], bars=_BARS, most=_LINES, now=time.time(),
        minutes=round((span[1] - span[0]).total_seconds() / _BARS / 60, 1), link=_link,
    )  # fmt: skip


def _drawn(
    bindings: list[Json], clusters: list[Json], span: tuple[datetime, datetime]
) -> tuple[list[Event], dict[str, list[int]]]:
    """The last events, and by kind how many are in each bar."""
    begin, width = span[0], (span[1] - span[0]) / _BARS
    lanes: dict[str, list[int]] = {kind: [0] * _BARS for kind in view_timeline.KINDS}
    found = [*view_timeline.events(view_usage.within(view_usage.of_bindings(bindings), *span), clusters, *span)]
    for each in found:
        lanes[each.kind][min(int((each.at - begin) / width), _BARS - 1)] += 1
    return nlargest(_LINES, found, key=lambda each: (each.at, each.kind, each.name)), lanes


def _link(event: Event) -> str:
    """Address of the page of its workload."""
    return "/workloads/" + "/".join(map(quote, (event.namespace, event.workload_kind.lower(), event.name)))


def _span(asked: Mapping[str, str], default: str) -> tuple[datetime, datetime]:
    try:
        return span_of(asked.get("since", default), None)
    except CommandError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
