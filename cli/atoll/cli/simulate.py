"""`atollctl simulate`: a trace through the production core and member placement in virtual time."""

from __future__ import annotations

import json
import math
import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import settings
from atoll.cli.printing import show_table
from atoll.model.plurals import counted
from atoll.model.queues import Strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from atoll.cli.options import Settings
    from atoll.dispatcher.core import QueueView
    from atoll.sim.clusters import MemberSpec
    from atoll.sim.jobs import Job
    from atoll.sim.journal import Journal
    from atoll.sim.recorded import Recorded

Json = dict[str, Any]


class TraceFormat(StrEnum):
    """Values of `--format`."""

    PHILLY = "philly"
    OPENB = "openb"
    ATOLL = "atoll"
    RECORDS = "records"


class Lost(StrEnum):
    """Values of `--lost`."""

    REQUEUE = "requeue"
    EXCLUSIVE = "exclusive"
    CONTINUE = "continue"


EPILOG = (
    "Example: atollctl simulate --trace philly-jobs.csv.xz --format philly --load 0.9 --strategy backfill;"
    " atollctl simulate --format records --trace s3://accounting/atoll --since 7d --compare-queues new.yaml"
)


def simulate(
    ctx: typer.Context,
    trace: Annotated[
        str | None,
        typer.Option(
            help="Jobs: CSV or YAML, also .xz. With --format records the records' folder or URL; left out: the last"
            " runs of workloads on the host.",
        ),
    ] = None,
    clusters: Annotated[
        Path | None,
        typer.Option(
            help="Members: YAML, or an openb node list; may be left out with philly, and with records for the host's."
        ),
    ] = None,
    queues: Annotated[
        Path | None,
        typer.Option(
            help="Queue objects as kubectl takes them, open to all namespaces; left out: one per name in the trace, or"
            " the host's with --format records."
        ),
    ] = None,
    compare_queues: Annotated[
        Path | None, typer.Option(help="Run again with these queues, and print both runs beside each other.")
    ] = None,
    compare_clusters: Annotated[Path | None, typer.Option(help="The same with these members.")] = None,
    since: Annotated[str, typer.Option(help="With --format records: how long ago the time begins.")] = "7d",
    month: Annotated[str | None, typer.Option(help="With --format records: a month (UTC), such as 2026-10.")] = None,
    trace_format: Annotated[
        TraceFormat, typer.Option("--format", help="How the trace is written.")
    ] = TraceFormat.ATOLL,
    strategy: Annotated[Strategy | None, typer.Option(help="Dequeue strategy of all queues.")] = None,
    estimates: Annotated[
        str | None,
        typer.Option(
            help="Run times that users state: exact, none (default with --format records), or error=0.5 for up to half"
            " off."
        ),
    ] = None,
    load: Annotated[
        float | None, typer.Option(min=0.001, help="Compress time so that this load is offered to the clusters.")
    ] = None,
    gangs: Annotated[int, typer.Option(min=0, help="Synthetic gangs to add, sizes as seen in production.")] = 0,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    weeks: Annotated[float | None, typer.Option(min=0.001, help="Weeks of the trace (before compression).")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Jobs of the trace.")] = None,
    until: Annotated[float | None, typer.Option(min=0.0, help="Seconds after which the run is cut off.")] = None,
    outage: Annotated[
        list[str] | None, typer.Option(help="MEMBER:FROM:TO in seconds since the start; may be repeated.")
    ] = None,
    drain: Annotated[
        list[str] | None,
        typer.Option(help="MEMBER:FROM:TO: drained, one workload after the other; may be repeated."),
    ] = None,
    cordon: Annotated[list[str] | None, typer.Option(help="MEMBER:FROM:TO: gets nothing new; may be repeated.")] = None,
    taint: Annotated[
        list[str] | None, typer.Option(help="MEMBER:FROM:TO: has a NoExecute taint; may be repeated.")
    ] = None,
    tolerated: Annotated[
        float, typer.Option(min=0.0, help="Seconds for which work tolerates such a taint (tolerationSeconds).")
    ] = 0.0,
    lost: Annotated[
        Lost,
        typer.Option(
            help="Work in a lost member: goes on there (on-lost: wait), returns to its queue after --toleration, or"
            " ends at --fence and returns after that."
        ),
    ] = Lost.CONTINUE,
    toleration: Annotated[
        float, typer.Option(min=0.0, help="Seconds that a member may be away before that, without --lost continue.")
    ] = 60.0,
    fence: Annotated[
        float, typer.Option(min=0.0, help="Seconds after which a member that is away ends work, with --lost exclusive.")
    ] = 60.0,
    checkpoint: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds of work between checkpoints; else evicted work starts over."),
    ] = None,
    scoring: Annotated[
        str | None,
        typer.Option(help="How members prefer nodes, such as fragmentation=50,most;atoll.sh/gpu-milli=1."),
    ] = None,
    record: Annotated[Path | None, typer.Option(help="Write the core's event log, for atoll.sim.replay.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw use and queue lengths into an .svg or .html.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check invariants at every step; slow.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all metrics as JSON.")] = False,
) -> None:
    """Run a trace through the production dispatcher and member placement in virtual time, and print metrics."""
    from atoll.cli import replaying
    from atoll.dispatcher.core.log import LOG
    from atoll.kube.garbage import short_collections
    from atoll.kube.recording import LogWriter
    from atoll.model.lost import OnLost
    from atoll.model.scoring import ScoringError, parse
    from atoll.sim import clusters as clusters_of
    from atoll.sim import comparison, metrics, plots, presence, simulation
    from atoll.sim import queues as queues_of
    from atoll.sim import recorded as records
    from atoll.sim.inputs import InputError

    try:
        for option, number in (
            ("load", load),
            ("weeks", weeks),
            ("until", until),
            ("checkpoint", checkpoint),
            ("toleration", toleration),
            ("fence", fence),
        ):
            if number is not None and not math.isfinite(number):
                raise InputError(f"--{option} {number}: expected a number with an end")
        if plot is not None and plot.suffix not in (".svg", ".html"):
            raise InputError(f"--plot {plot}: a plot is .svg or .html")
        for option, file in (("plot", plot), ("record", record)):
            if file is not None and not file.parent.is_dir():
                raise InputError(f"--{option} {file}: no such directory; make it first")
        outages = tuple(presence.Outage.parse(text) for text in outage or ())
        drains = tuple(presence.Outage.parse(text, "drain") for text in drain or ())
        taints = tuple(presence.Outage.parse(text, "taint") for text in taint or ())
        cordons = tuple(presence.Outage.parse(text, "cordon") for text in cordon or ())
        preferred = None if scoring is None else parse(scoring)
        recorded = None
        if trace_format is TraceFormat.RECORDS:
            recorded = replaying.recorded(settings(ctx), trace, since, month)
        elif trace is None:
            raise InputError("--trace is missing: only --format records has jobs without one")
        members, views, jobs, about = _prepare(
            Path(trace or "records"), trace_format, clusters, queues, strategy, estimates, load, gangs, seed, weeks,
            limit, recorded, settings(ctx),
        )  # fmt: skip
        options = simulation.Options(
            outages=outages,
            drains=drains,
            cordons=cordons,
            taints=taints,
            tolerated=tolerated,
            toleration=toleration,
            fence=fence,
            lost=OnLost.WAIT if lost is Lost.CONTINUE else OnLost(lost),
            checkpoint=checkpoint,
            scoring=preferred,
            until=float("inf") if until is None else until,
            verify=verify,
        )
        with ExitStack() as stack:
            recorder = None
            if record is not None:
                record.write_bytes(b"")
                recorder = stack.enter_context(LogWriter(record, LOG))
            progress = _progress(stack, jobs)
            # All jobs stay until the end, and next to nothing of a run is garbage in a cycle.
            stack.enter_context(short_collections())
            journal, host = simulation.run(
                members, views, jobs, about["resource"], options, recorder=recorder, progress=progress
            )
        report: Json = {"trace": about, **metrics.report(journal, views), "writes": dict(sorted(host.writes.items()))}
        if recorded is not None:
            report["reproduced"] = records.reproduced(recorded, journal)
        if compare_queues is not None or compare_clusters is not None:
            other = members if compare_clusters is None else clusters_of.read(compare_clusters)
            changed = views
            if compare_queues is not None:
                changed = queues_of.with_strategy(queues_of.read(compare_queues), strategy)
                queues_of.check(jobs, changed, Path(about["name"]), compare_queues)
            then, _ = simulation.run(other, changed, jobs, about["resource"], options)
            report["compared"] = comparison.compared(report, journal, metrics.report(then, changed), then)
        report["writes"]["refused"] = host.refused
        if plot is not None:
            plots.write(plot, report, f"{about['name']}, {about['strategy']}")
    except InputError as error:
        raise CommandError(str(error), USAGE) from error
    except ScoringError as error:
        raise CommandError(f"--scoring {scoring}: it {error}", USAGE) from error
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        _show(report, journal)


def _prepare(
    trace: Path,
    trace_format: TraceFormat,
    clusters: Path | None,
    queues: Path | None,
    strategy: Strategy | None,
    estimates: str | None,
    load: float | None,
    gangs: int,
    seed: int,
    weeks: float | None,
    limit: int | None,
    recorded: Recorded | None,
    options: Settings,
) -> tuple[list[MemberSpec], list[QueueView], list[Job], Json]:
    """Members, queues, jobs as they will be submitted, and notes about them."""
    from atoll.cli import replaying
    from atoll.model import vector
    from atoll.sim import clusters as members_of
    from atoll.sim import jobs as jobs_of
    from atoll.sim import load as changes
    from atoll.sim import queues as queues_of
    from atoll.sim import traces
    from atoll.sim.inputs import InputError

    notes: list[str] = []
    philly = trace_format is TraceFormat.PHILLY
    wanted = changes.Estimates.parse(estimates or ("exact" if recorded is None else "none"))
    if clusters is None and not philly and recorded is None:
        raise InputError("--clusters is missing: only --format philly has clusters of its own")
    if recorded is not None:
        jobs, notes = recorded.jobs, list(recorded.notes)
    elif philly:
        jobs, notes = traces.philly(trace)
    elif trace_format is TraceFormat.OPENB:
        jobs, notes = traces.openb(trace)
    else:
        jobs = jobs_of.read(trace)
    if weeks is not None and jobs:
        jobs = [job for job in jobs if job.submit < jobs[0].submit + weeks * 7 * 86400]
    jobs = jobs[:limit]
    if not jobs:
        raise InputError(f"{trace}: no jobs are left to simulate")
    if recorded is not None and (clusters is None or queues is None):
        members, views = replaying.federation(options)
        known = {view.name for view in views}
        views += [view for view in queues_of.named_by(jobs) if view.name not in known]
    else:
        members = members_of.philly() if clusters is None else []
        views = queues_of.philly() if philly and clusters is None else queues_of.named_by(jobs)
    if clusters is not None:
        members = members_of.read(clusters)
    if queues is not None:
        views = queues_of.read(queues)
    if queues is not None:
        queues_of.check(jobs, views, trace, queues)
    notes += members_of.unknown(jobs, members)
    views = queues_of.with_strategy(views, strategy)
    jobs = changes.with_gangs(jobs, gangs, seed)
    capacity = vector.total(member.total() for member in members)
    resource = changes.main_resource(capacity, jobs)
    before = changes.offered(jobs, capacity, resource)
    factor = 1.0
    if load is not None:
        if not 0 < before < float("inf"):
            raise InputError(f"--load {load:g}: the trace offers no load over time in {resource}, so nothing can scale")
        factor = load / before
    jobs = changes.estimated(changes.compressed(jobs, factor), wanted, seed)
    about = {
        "name": trace.name,
        "format": trace_format.value,
        "resource": resource,
        "offered_load": round(before * factor, 6),
        "compression": round(factor, 6),
        "strategy": strategy.value if strategy else "as the queues say",
        "estimates": str(wanted),
        "seed": seed,
        "gangs": gangs,
        "members": {member.name: member.total().get(resource, 0) for member in members},
        "notes": notes,
    }
    return members, views, jobs, about


def _progress(stack: ExitStack, jobs: Sequence[Job]) -> Callable[[float, int], None] | None:
    """A bar on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console
    from rich.progress import Progress

    bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
    task = bar.add_task("simulating", total=len(jobs))
    return lambda _, done: bar.update(task, completed=done)


def _show(report: Json, journal: Journal) -> None:
    about, resource, jobs = report["trace"], report["resource"], report["jobs"]
    print(
        f"{about['name']}: {counted(jobs['submitted'], 'job')} over {_time(report['seconds']['window'])} on "
        f"{report['capacity']} {resource} in {counted(len(about['members']), 'member')}; "
        f"load {about['offered_load']:.2f}, "
        f"time compressed {about['compression']:.2f} times; strategy {about['strategy']}, "
        f"estimates {about['estimates']}, seed {about['seed']}"
    )
    for note in about["notes"]:
        print(f"note: {note}")
    if synthetic := jobs["synthetic"]:
        print(f"note: {counted(synthetic, 'synthetic gang')} among the jobs")
    print()
    headers = ("JOBS", "WAIT MEAN", "P50", "P95", "P99", "MAX", "SLOWDOWN MEAN", "P95", "JCT MEAN", "FTF P95")
    show_table((f"{resource.upper()} PER JOB", *headers), [_row(*item) for item in report["classes"].items()])
    if report["kinds"]:
        print()
        show_table(("CLASS", *headers), [_row(*item) for item in report["kinds"].items()])
    print()
    show_table(
        ("QUEUE", *headers, "BELOW GUARANTEE", "BELOW DESERVED"),
        [
            (*_row(name, figures), f"{figures['below_guarantee']:.0f}", f"{figures['below_deserved']:.0f}")
            for name, figures in report["queues"].items()
        ],
    )
    use, evictions, reserved = report["utilisation"], report["evictions"], report["reservations"]
    rows = [
        ("utilisation while jobs come", f"{use['window']:.3f}"),
        ("utilisation to the end", f"{use['whole']:.3f}"),
        ("most allocated at once", f"{100 * use['most']:.2f} %"),
        ("Jain index of queues", f"{report['jain']:.3f}"),
        ("finished", f"{jobs['finished']} of {jobs['submitted']}"),
        *((f"{each} at the end, {_time(journal.end)}", jobs[each]) for each in ("running", "waiting") if jobs[each]),
        ("never started", jobs["never_started"]),
        ("stuck gangs", report["stuck_gangs"]),
        ("evictions", ", ".join(f"{n} {reason}" for reason, n in evictions["by_reason"].items()) or "0"),
        ("priority inversions", report["inversions"]),
        ("reservations", f"{reserved['made']} made, {reserved['late']} started later"),
        ("writes", ", ".join(f"{n} {kind}" for kind, n in report["writes"].items())),
    ]
    print()
    show_table(("OF THE RUN", ""), rows)
    if never := report["never_started"]:
        print()
        show_table(
            ("NEVER STARTED", "JOBS", "EXAMPLE", "WHY"),
            [(reason, each["jobs"], each["example"], _why(each)) for reason, each in never.items()],
        )
    from atoll.cli import replaying

    if "reproduced" in report:
        replaying.show_reproduced(report["reproduced"], _time)
    if "compared" in report:
        replaying.show_compared(report["compared"], resource, _time)


def _row(name: str, figures: Json) -> tuple[object, ...]:
    if not figures["jobs"]:
        return (name, 0, *["-"] * 9)
    wait, slowdown = figures["wait"], figures["slowdown"]
    waits = [_time(wait[key]) for key in ("mean", "p50", "p95", "p99", "max")]
    ratios = ["-" if slowdown[key] is None else f"{slowdown[key]:.2f}" for key in ("mean", "p95")]
    fairness = figures["finish_time"]["p95"]
    rho = "-" if fairness is None else f"{fairness:.2f}"
    return (name, figures["jobs"], *waits, *ratios, _time(figures["jct"]["mean"]), rho)


def _why(obstacle: Json) -> str:
    helps = f" (would help: {'; or '.join(obstacle['would_help'])})" if obstacle["would_help"] else ""
    return f"{obstacle['message']}{helps}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.2f}s"
    return f"{seconds / 60:.1f}m" if seconds < 7200 else f"{seconds / 3600:.1f}h"
