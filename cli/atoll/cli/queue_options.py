"""The options that say what a queue is to be, of `queue create` and `queue update`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from atoll.model.fairness import Order
from atoll.model.queues import Strategy

_OPTIONS: dict[str, Any] = {
    "capability": Annotated[str | None, typer.Option(help="Most that it may use, such as cpu=64,memory=1Ti.")],
    "deserved": Annotated[str | None, typer.Option(help="What it is entitled to, in the same form.")],
    "guarantee": Annotated[str | None, typer.Option(help="What is never lent to others, in the same form.")],
    "weight": Annotated[int | None, typer.Option(min=1, max=65535, help="Share among its siblings.")],
    "priority": Annotated[int | None, typer.Option(min=0, help="Higher is served first.")],
    "parent": Annotated[str | None, typer.Option(help="Queue above it; '' for none.")],
    "reclaimable": Annotated[
        bool | None,
        typer.Option("--reclaimable/--no-reclaimable", help="Whether other queues may reclaim what it borrowed."),
    ],
    "reclaim_unpreemptable": Annotated[
        bool | None,
        typer.Option(
            "--reclaim-unpreemptable/--no-reclaim-unpreemptable",
            help="Whether other queues may reclaim from workloads that are not preemptable as well (they may where"
            " neither is set).",
        ),
    ],
    "strategy": Annotated[Strategy | None, typer.Option(help="What may pass a workload that does not fit.")],
    "order": Annotated[
        Order | None,
        typer.Option(
            help="Which workload of a priority class goes first: the oldest, or by dominant share of the queue that of"
            " the namespace that uses least, or the smallest job."
        ),
    ],
    "fair_half_life": Annotated[
        str | None,
        typer.Option(
            "--fair-half-life",
            help="With --order fair-namespaces: what namespaces used before counts as well, half as much after each"
            " such time, such as 24h.",
        ),
    ],
    "namespaces": Annotated[
        str | None, typer.Option(help="Label selector of the namespaces that may use it, such as team=a; '' for all.")
    ],
    "clusters": Annotated[
        str | None, typer.Option(help="Label selector of the members that serve it, such as size=large; '' for all.")
    ],
    "member": Annotated[
        list[str] | None,
        typer.Option(help="A member that serves it, if given with a ceiling: east, or east:cpu=64; may be repeated."),
    ],
    "estimate": Annotated[str | None, typer.Option(help="How long its workloads run if they don't say, such as 2h.")],
    "sla": Annotated[
        str | None, typer.Option(help="How long its workloads may wait before they get a reservation, such as 30m.")
    ],
    "protected_for": Annotated[
        str | None,
        typer.Option(
            help="How long after its start a workload is not evicted for others, such as 10m (1m where none is set)."
        ),
    ],
    "ready_timeout": Annotated[
        str | None,
        typer.Option(
            "--ready-timeout",
            help="How long after they are bound its workloads may take to run before they are evicted, such as 30m.",
        ),
    ],
    "evict_timeout": Annotated[
        str | None,
        typer.Option(
            "--evict-timeout",
            help="How long evicted pods may take to end until their quota is free again, such as 10m (of the queue"
            " above where none is set).",
        ),
    ],
    "node_scoring": Annotated[
        str | None,
        typer.Option(
            "--node-scoring",
            help="Which nodes its workloads prefer, such as spread or 'binpack=5,balanced;nvidia.com/gpu=10'; '' for"
            " what the queue above or the member says.",
        ),
    ],
    "default_policy": Annotated[
        str | None,
        typer.Option(
            metavar="[NAMESPACE/]NAME",
            help="Policy of its workloads that none selects: cluster-wide, or of a namespace.",
        ),
    ],
    "flavor": Annotated[
        list[str] | None,
        typer.Option(
            "--flavor",
            metavar="RESOURCE@FLAVOR=KEY=VALUE",
            help="Of queue root only: a kind of nodes by its label, such as nvidia.com/gpu@h100=gpu=h100, of which"
            " queues may then have quotas (--capability nvidia.com/gpu@h100=8); may be repeated.",
        ),
    ],
    "type_": Annotated[str | None, typer.Option("--type", help="Free label for the kind of queue.")],
}


def with_queue_options(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that takes all of these, before its own; an option that is not given has this default, or none."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            each
            for each in inspect.signature(command, eval_str=True).parameters.values()
            if each.kind != each.VAR_KEYWORD
        ]
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
            for name, kind in _OPTIONS.items()
        ]
        first = [each for each in own if each.kind != each.KEYWORD_ONLY]
        command.__signature__ = inspect.Signature([*first, *options, *own[len(first) :]])  # type: ignore[attr-defined]
        return command

    return decorate
