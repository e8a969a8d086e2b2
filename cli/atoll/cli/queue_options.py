"""The options that say what a queue is to be, of `queue create` and `queue update`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

Capability = Annotated[str | None, typer.Option(help="Most that it may use, such as cpu=64,memory=1Ti.")]
Deserved = Annotated[str | None, typer.Option(help="What it is entitled to, in the same form.")]
Guarantee = Annotated[str | None, typer.Option(help="What is never lent to others, in the same form.")]
Priority = Annotated[int | None, typer.Option(min=0, help="Higher is served first.")]
Namespaces = Annotated[
    str | None, typer.Option(help="Label selector of the namespaces that may use it, such as team=a; '' for all.")
]
Parent = Annotated[str | None, typer.Option(help="Queue above it; '' for none.")]
Reclaimable = Annotated[
    bool | None,
    typer.Option("--reclaimable/--no-reclaimable", help="Whether other queues may reclaim what it borrowed."),
]
ReclaimUnpreemptable = Annotated[
    bool | None,
    typer.Option(
        "--reclaim-unpreemptable/--no-reclaim-unpreemptable",
        help="Whether others may take it back from workloads that are not preemptable as well (they may where neither"
        " is set).",
    ),
]
Clusters = Annotated[
    str | None, typer.Option(help="Label selector of the members that serve it, such as size=large; '' for all.")
]
Members = Annotated[
    list[str] | None,
    typer.Option(help="A member that serves it, if given with a ceiling: east, or east:cpu=64; may be repeated."),
]
Estimate = Annotated[str | None, typer.Option(help="How long its workloads run if they don't say, such as 2h.")]
Sla = Annotated[
    str | None, typer.Option(help="How long its workloads may wait before they get a reservation, such as 30m.")
]
ReadyTimeout = Annotated[
    str | None,
    typer.Option(
        "--ready-timeout",
        help="How long after they are bound its workloads may take to run before they are evicted, such as 30m.",
    ),
]
EvictTimeout = Annotated[
    str | None,
    typer.Option(
        "--evict-timeout",
        help="How long evicted pods may take to end until their quota is free again, such as 10m (of the queue above"
        " where none is set).",
    ),
]
ProtectedFor = Annotated[
    str | None,
    typer.Option(
        help="How long after its start a workload is not evicted for others, such as 10m (1m where none is set)."
    ),
]
DefaultPolicy = Annotated[
    str | None,
    typer.Option(
        metavar="[NAMESPACE/]NAME", help="Policy of its workloads that none selects: cluster-wide, or of a namespace."
    ),
]
Flavors = Annotated[
    list[str] | None,
    typer.Option(
        "--flavor",
        metavar="RESOURCE@FLAVOR=KEY=VALUE",
        help="Of queue root only: a kind of nodes by its label, such as nvidia.com/gpu@h100=gpu=h100, of which queues"
        " may then have quotas (--capability nvidia.com/gpu@h100=8); may be repeated.",
    ),
]
Type = Annotated[str | None, typer.Option("--type", help="Free label for the kind of queue.")]


class Strategy(StrEnum):
    """Values of `--strategy`."""

    FIFO = "fifo"
    TRAVERSE = "traverse"
    BACKFILL = "backfill"


Strategies = Annotated[Strategy | None, typer.Option(help="What may pass a workload that does not fit.")]
