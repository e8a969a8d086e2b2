"""`python -m tests.soak`: a steady stream of jobs for a long time; exit code 1 if memory grows or a loop is late."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from atoll.local.atoll_federation import AtollFederation
from atoll.local.layout import FederationConfig
from tests.integration.federation import member
from tests.soak.figures import Figures
from tests.soak.stream import Stream
from tests.soak.watch import Watch

WARM_UP = 300.0
"""Seconds that do not count: caches fill, the allocator finds its size."""
GROWTH_MB = 3.0
LAG_MS = 50.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long (default: 1800)")
    parser.add_argument("--per-second", type=float, default=2.0, help="jobs that begin in a second (default: 2)")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two samples (default: 10)")
    parser.add_argument("--json", action="store_true", help="the figures as JSON instead of a table")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and audit logs in this folder")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="atoll-soak-", ignore_cleanup_errors=True))
        )
        watch, counts = asyncio.run(soak(options.seconds, options.per_second, options.every, folder))
    found = watch.figures(min(WARM_UP, options.seconds / 3))
    problems = judge(found, counts)
    if options.json:
        body = {
            "seconds": options.seconds,
            "jobs": counts,
            "processes": [asdict(f) for f in found],
            "memory_mb": watch.memory(),
            "problems": problems,
        }
        sys.stdout.buffer.write(orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    else:
        show(found, counts, problems)
    return 1 if problems else 0


async def soak(seconds: float, per_second: float, every: float, folder: Path) -> tuple[Watch, dict[str, int]]:
    """Run a federation under load; the samples of its processes and what became of the jobs."""
    layout = FederationConfig(members=[member("alpha", 8), member("beta", 4), member("topo", 4, tree=False)])
    async with AtollFederation(layout, folder) as federation, await federation.host.connect() as host:
        stream, watch = Stream(host, per_second), Watch(federation)
        async with asyncio.TaskGroup() as group:
            load = group.create_task(stream.run())
            await watch.run(seconds, every)
            load.cancel()
        return watch, dict(stream.counts)


def judge(found: Sequence[Figures], counts: dict[str, int]) -> list[str]:
    """What is wrong, in sentences; empty if all is well."""
    problems = []
    for each in found:
        if each.growth_mb >= GROWTH_MB:
            problems.append(f"{each.name} grows by {each.growth_mb:.2f} MB in 10 minutes; the limit is {GROWTH_MB:g}")
        if each.lag_p99_ms >= LAG_MS:
            problems.append(f"the loop of {each.name} is {each.lag_p99_ms:.1f} ms late (P99); the limit is {LAG_MS:g}")
        if each.restarts:
            problems.append(f"{each.name} was started again {each.restarts} times")
    problems += [f"{amount} jobs were {outcome}" for outcome, amount in counts.items() if outcome not in _WELL]
    if not counts.get("finished"):
        problems.append("no job finished")
    return problems if found else ["no process answered"]


_WELL = ("finished", "given up")


def show(found: Sequence[Figures], counts: dict[str, int], problems: Sequence[str]) -> None:
    """Print the table."""
    console = Console() if sys.stdout.isatty() else Console(width=150)
    table = Table(title="soak", title_justify="left", box=None, pad_edge=False)
    table.add_column("process")
    for column in ("samples", "RSS first (MB)", "RSS last (MB)", "growth (MB / 10 min)", "loop lag P99 (ms)"):
        table.add_column(column, justify="right")
    for f in found:
        numbers = (f"{f.first_mb:.1f}", f"{f.last_mb:.1f}", f"{f.growth_mb:+.2f}", f"{f.lag_p99_ms:.1f}")
        table.add_row(f.name, str(f.samples), *numbers)
    console.print(table)
    console.print("jobs: " + ", ".join(f"{amount} {outcome}" for outcome, amount in sorted(counts.items())))
    for problem in problems:
        console.print(problem, markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
