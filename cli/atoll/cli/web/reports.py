"""Usage and the timeline: reports from the runs that bindings still have, as `usage` and `history` without a store."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from heapq import nlargest
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from atoll.cli.errors import CommandError
from atoll.cli.records import span_of
from atoll.cli.web.page import Page, rendered
from atoll.cli.web.world import World
from atoll.model.apiresource import BINDINGS, CLUSTERS
from atoll.view import timeline as view_timeline
from atoll.view import usage as view_usage
from atoll.view.timeline import Event
from atoll.view.usage import BY

Json = dict[str, Any]

_LINES: Final = 500
"""Lines of a report, and events of a timeline."""
_BARS: Final = 48


async def usage(world: World, asked: Mapping[str, str]) -> Page:
    """Resource-hours, waits and losses, as `usage`."""
    by, span = asked.get("by", "queue"), _span(asked, "7d")
    if by not in BY:
        raise web.HTTPBadRequest(text=f"by={by}: write one of {', '.join(BY)}")
    bindings = world.bodies(BINDINGS)

    def added() -> dict[str, view_usage.Line]:
        return view_usage.usage(view_usage.within(view_usage.of_bindings(bindings), *span), by, *span)

    lines = await asyncio.to_thread(added)
    rows = [dict(zip((by, *view_usage.USAGE), row, strict=True)) for row in view_usage.usage_rows(lines, {})]
    totals: Counter[str] = Counter()
    for line in lines.values():
        totals.update({resource: amount.held for resource, amount in line.amounts.items()})
    form = {"template": "filter-span.html", "by": by, "since": asked.get("since", "7d"), "choices": [*BY]}
    return rendered(
        world, "Usage", "/usage", "usage.html", form,
        rows=rows[:_LINES], count=len(rows), by=by, totals=totals, since=form["since"],
    )  # fmt: skip


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
