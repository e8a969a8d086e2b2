"""The federation and its records as input of `atollctl simulate`, and two runs beside each other."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from atoll.cli.errors import CommandError
from atoll.cli.printing import show_table
from atoll.model.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from atoll.cli.options import Settings
    from atoll.dispatcher.core import QueueView
    from atoll.kube.transport import ApiServer
    from atoll.sim.clusters import MemberSpec
    from atoll.sim.recorded import Recorded

Json = dict[str, Any]


def recorded(options: Settings, store: str | None, since: str, month: str | None) -> Recorded:
    """Workloads of that time in all namespaces."""
    from atoll.cli.records import span_of
    from atoll.cli.run_sources import source_of
    from atoll.sim import recorded as records

    span = span_of(since, month)
    everywhere = dataclasses.replace(options, namespace=None, all_namespaces=True)
    found = records.read(source_of(everywhere, store, span).rows, *span)
    if not found.jobs:
        raise CommandError(f"no run of {'the bindings of the host' if store is None else store} is in that time")
    return found


def federation(options: Settings) -> tuple[list[MemberSpec], list[QueueView]]:
    """Members and queues as they are now."""
    from atoll.cli.connection import call
    from atoll.sim import queues as queues_of
    from atoll.sim import recorded as records

    clusters, capacities, queues = call(options, _objects)
    return records.members(capacities, clusters), queues_of.of_objects(queues)


async def _objects(host: ApiServer) -> tuple[list[Json], list[Json], list[Json]]:
    from atoll.model.apiresource import CAPACITIES, CLUSTERS, QUEUES

    return await host.list(CLUSTERS), await host.list(CAPACITIES), await host.list(QUEUES)


def show_reproduced(found: Json, time: Callable[[float | None], str]) -> None:
    """The error of the replay, and the jobs that are furthest off."""
    print()
    keys = ("mean", "p50", "p95", "max")
    show_table(
        ("WAIT, AS RECORDED AND AS SIMULATED", "MEAN", "P50", "P95", "MAX"),
        [(name, *(time(found[name][key]) for key in keys)) for name in ("recorded", "simulated", "error")],
    )
    of = found["evictions"]
    print(
        f"{found['alike']} of {counted(found['jobs'], 'wait')} within a minute or a tenth; evictions:"
        f" {of['recorded']} recorded, {of['simulated']} simulated"
    )
    for each in found["furthest"]:
        print(f"far off: {each['job']} waited {time(each['recorded'])}, simulated {time(each['simulated'])}")


def show_compared(found: Json, resource: str, time: Callable[[float | None], str]) -> None:
    """Both runs beside each other."""
    print()
    show_table(
        ("OF THE RUN", "NOW", "CHANGED"), [(name, each["now"], each["changed"]) for name, each in found["run"].items()]
    )
    print()
    show_table(
        (f"{resource.upper()} PER JOB", "JOBS", "WAIT MEAN", "CHANGED", "P95", "CHANGED"),
        [(name, each["now"]["jobs"], *_waits(each, time)) for name, each in found["sizes"].items()],
    )
    print()
    show_table(
        ("QUEUE", "JOBS", "WAIT MEAN", "CHANGED", "P95", "CHANGED", "HOURS", "CHANGED", "EARLIER", "LATER"),
        [
            (
                name,
                each["now"]["jobs"],
                *_waits(each, time),
                each["now"].get("hours", "-"),
                each["changed"].get("hours", "-"),
                each["earlier"],
                each["later"],
            )
            for name, each in found["queues"].items()
        ],
    )


def _waits(each: Json, time: Callable[[float | None], str]) -> list[str]:
    return [time(each[run][key]) for key in ("wait_mean", "wait_p95") for run in ("now", "changed")]
