"""The tables at the end: what the jobs of each queue got in each cluster, how near the gangs' pods are, the checks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from atoll.model.verdict import Reason
from demo.checks import Check
from demo.places import Places
from demo.record import Job, Record, Stay
from demo.workload import Origin

ROOM = frozenset({Reason.INSUFFICIENT_RESOURCES, Reason.NO_DOMAIN_FITS, Reason.NO_NODE_MATCHES})
_ALL = "all"


@dataclass(slots=True)
class Row:
    """The jobs of one queue in one cluster."""

    jobs: int = 0
    gangs: int = 0
    origins: Counter[Origin] = field(default_factory=Counter)
    #: seconds from the creation on the host to the binding of the last pod of minAvailable
    waits: list[float] = field(default_factory=list)
    #: seconds from the creation on the host to the dispatch, of jobs that had nothing in their way
    latencies: list[float] = field(default_factory=list)
    gpu_seconds: float = 0.0

    def take(self, job: Job, stays: Sequence[Stay], latency: float | None) -> None:
        """Count a job that ran here."""
        self.jobs += 1
        self.gangs += job.gang
        self.origins[job.origin] += 1
        bound = sorted(stay.bound for stay in stays)
        if len(bound) >= job.min_available:
            self.waits.append(bound[job.min_available - 1] - job.created)
        if latency is not None:
            self.latencies.append(latency)
        self.gpu_seconds += sum(
            job.gpus_per_pod * (stay.ended - stay.bound) for stay in stays if stay.ended is not None
        )


def rows(record: Record) -> dict[tuple[str, str], Row]:
    """(queue, cluster) -> what ran there, and a row for all."""
    found: defaultdict[tuple[str, str], Row] = defaultdict(Row)
    for name, stays in record.stays_of().items():
        job = record.jobs[name]
        dispatches = record.dispatches.get(name, [])
        immediate = len(dispatches) == 1 and not dispatches[0].waited_for
        latency = dispatches[0].at - job.created if immediate else None
        for cluster in sorted({stay.cluster for stay in stays}):
            here = [stay for stay in stays if stay.cluster == cluster]
            found[job.queue, cluster].take(job, here, latency)
            found[_ALL, ""].take(job, here, latency)
    return {key: found[key] for key in sorted(found, key=lambda each: (each[0] == _ALL, each))}


def waited(record: Record) -> tuple[int, int, int]:
    """How many jobs were told that they wait for quota, that they wait for room, and how many were dispatched again."""
    quota = room = again = 0
    for dispatches in record.dispatches.values():
        reasons = {reason for each in dispatches for reason in each.waited_for}
        quota += Reason.QUOTA_EXCEEDED in reasons
        room += bool(reasons & ROOM)
        again += len(dispatches) > 1
    return quota, room, again


def show(console: Console, record: Record, places: Places) -> None:
    """Print both tables and who waited."""
    console.print(_by_queue(record))
    console.print(
        "moved: 16-GPU jobs of the trace put into the window; synth.: made-up gangs\n"
        "wait: created on the host until minAvailable pods are bound in the member\n"
        "disp.: created until the decision, of jobs with nothing in their way\n",
        style="dim",
        highlight=False,
    )
    console.print(_by_tier(record, places))
    quota, room, again = waited(record)
    console.print(
        f"Waited for quota: {quota} jobs; for room: {room}. Dispatched more than once: {again}.", highlight=False
    )


def _by_queue(record: Record) -> Table:
    table = _table("Jobs by queue and cluster")
    for text in ("queue", "cluster"):
        table.add_column(text, no_wrap=True)
    heads = (
        "jobs",
        "moved/\nsynth.",
        "gangs",
        "wait\nmean s",
        "wait\nP95 s",
        "disp.\nP50 ms",
        "disp.\nP95 ms",
        "GPU-s",
    )
    for text in heads:
        table.add_column(text, justify="right")
    for (queue, cluster), row in rows(record).items():
        if queue == _ALL:
            table.add_section()
        table.add_row(
            queue,
            cluster,
            str(row.jobs),
            _marked(row.origins),
            str(row.gangs),
            _number(float(np.mean(row.waits)) if row.waits else None, 2),
            _number(_percentile(row.waits, 95), 2),
            _number(_percentile(row.latencies, 50), 0, 1000),
            _number(_percentile(row.latencies, 95), 0, 1000),
            f"{row.gpu_seconds:.0f}",
        )
    return table


def _by_tier(record: Record, places: Places) -> Table:
    table = _table("Gangs by topology tier reached")
    for text in ("asked for", "from"):
        table.add_column(text)
    tiers: list[int | None] = [*places.tiers, None]
    for tier in tiers:
        table.add_column(
            f"tier {tier}\n({places.tiers[tier]})" if tier is not None else "no common\ndomain", justify="right"
        )
    counts: defaultdict[tuple[int | None, Origin], Counter[int | None]] = defaultdict(Counter)
    for name, stays in record.stays_of().items():
        job = record.jobs[name]
        ran = [stay for stay in stays if stay.succeeded]
        if job.gang and ran:
            counts[job.highest_tier, job.origin][places.tier(ran)] += 1
    for (wish, origin), reached in sorted(counts.items(), key=lambda each: (each[0][0] or 99, each[0][1])):
        asked = "any place" if wish is None else f"hard, tier {wish} at most"
        table.add_row(asked, str(origin), *(str(reached[tier] or "") for tier in tiers))
    return table


def show_checks(console: Console, checks: Iterable[Check]) -> None:
    """Print each check, and everything that violates it."""
    console.print("Checks from the audit logs of host and members", style="bold")
    for check in checks:
        verdict, style = ("FAILED", "red") if check.violations else ("ok", "green")
        line = Text.assemble((f"  {verdict:<7}", style), f"{check.name}: {check.seen}")
        console.print(line, soft_wrap=True)
        for violation in check.violations:
            console.print(f"          {violation}", soft_wrap=True, highlight=False, markup=False)


def _table(title: str) -> Table:
    """Narrow enough for a terminal of 80 columns."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def _percentile(values: Sequence[float], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values else None


def _marked(origins: Counter[Origin]) -> str:
    moved, synthetic = origins[Origin.MOVED], origins[Origin.SYNTHETIC]
    return f"{moved}/{synthetic}" if moved or synthetic else ""


def _number(value: float | None, digits: int, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:.{digits}f}"
