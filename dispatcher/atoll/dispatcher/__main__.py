"""The process `atoll-dispatcher`: one active, the others stand by."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from atoll.dispatcher.core.capacity.refusals import MOST_REFUSALS
from atoll.dispatcher.core.log import LOG
from atoll.dispatcher.query import Address, Query
from atoll.dispatcher.shell import Metrics, Shell
from atoll.kube import election, process
from atoll.kube.events import Recorder as EventRecorder
from atoll.kube.recording import Recorder
from atoll.kube.transport import ApiServer

QUERY_PORT = 8443
FAREWELL = 1.0
"""Seconds that an end waits for the API server to hear that nobody answers its questions any more."""


def main() -> None:
    """Run until a signal or until leadership is lost for good."""
    parser = process.arguments("dispatcher", "Orders suspended bindings by queue and places them on member clusters.")
    election.arguments(parser)
    parser.add_argument(
        "--record", type=Path, help="append all that the core is told and decides to this file (see atoll.sim.replay)"
    )
    parser.add_argument(
        "--query-port",
        type=int,
        default=QUERY_PORT,
        help="port of the query API; 0 turns it off (default: %(default)s)",
    )
    parser.add_argument("--query-host", default="", help="address that it listens on (default: all, IPv6 too)")
    parser.add_argument(
        "--query-address",
        default="",
        help="address at which the API server reaches it (default: the one from which the API server is reached)",
    )
    parser.add_argument(
        "--most-refusals",
        type=int,
        default=MOST_REFUSALS,
        help="refusals of a workload by one member's API server or admission after which it is tried there no more;"
        " once that is so of all members that it may use it is deactivated; 0 for no end (default: %(default)s)",
    )
    parser.epilog = "example: atoll-dispatcher --kubeconfig atoll-dispatcher.kubeconfig --health-port 8083"
    options = parser.parse_args()
    process.run("dispatcher", options, lambda running: _setup(running, options))


async def _setup(running: process.Process, options: argparse.Namespace) -> None:
    host = await ApiServer.from_kubeconfig(
        options.kubeconfig, user_agent="atoll-dispatcher", rate=process.rate_limit(options)
    )
    running.stack.push_async_callback(host.close)
    elector = election.elector(host, "atoll-dispatcher", running.identity, options)
    metrics = Metrics(running.metrics)
    recorder = running.stack.enter_context(Recorder(options.record, LOG)) if options.record else None
    shell: Shell | None = None
    query: Query | None = None

    async def lead() -> None:
        # Everything is read anew: what an earlier leader decided is on the bindings.
        nonlocal shell, query
        events = EventRecorder(host, "dispatcher")
        shell = Shell(
            host,
            metrics,
            events=events,
            recorder=None if recorder is None or recorder.closed else recorder,
            most_refusals=options.most_refusals,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(events.run())
            group.create_task(shell.run())
            if options.query_port:
                address = Address(options.query_host, options.query_port, options.query_address)
                query = Query(host, shell, address)
                group.create_task(query.run())

    async def leave() -> None:
        if query is not None and elector.leading.is_set():
            # Not cancelled after that: the drain waits for a write that is under way.
            await asyncio.wait({asyncio.create_task(query.leave())}, timeout=FAREWELL)

    def ready() -> bool:
        return shell is not None and shell.synced if elector.leading.is_set() else elector.can_lead

    running.ready_when(ready)
    running.before_end(leave)
    running.add_task("election", elector.run(lead))


if __name__ == "__main__":
    main()
