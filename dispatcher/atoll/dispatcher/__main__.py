"""The process `atoll-dispatcher`: one active, the others stand by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from atoll.dispatcher.core.log import LOG
from atoll.dispatcher.metrics import Metrics
from atoll.dispatcher.query import Query
from atoll.dispatcher.settings import DispatcherSettings
from atoll.dispatcher.shell import Shell
from atoll.kube import election, process
from atoll.kube.events import Recorder
from atoll.kube.recording import LogWriter
from atoll.kube.settings import load


def main(argv: Sequence[str] | None = None) -> None:
    """Run until a signal or until leadership is lost for good."""
    settings = load(
        DispatcherSettings,
        "dispatcher",
        "Orders suspended bindings by queue and places them on member clusters.",
        argv,
        epilog="example: atoll-dispatcher --kubeconfig atoll-dispatcher.kubeconfig --health-port 8083",
    )
    process.run("dispatcher", settings, lambda running: _setup(running, settings))


async def _setup(running: process.Process, settings: DispatcherSettings) -> None:
    host = await running.connect(settings)
    elector = election.elector(host, "atoll-dispatcher", running.identity, settings.election)
    metrics = Metrics(running.metrics)
    record = settings.record
    kept = LogWriter(Path(record), LOG, settings=settings.recording) if record else None
    recorder = running.stack.enter_context(kept) if kept is not None else None
    shell: Shell | None = None
    query: Query | None = None

    warm = settings.shell.warm and recorder is None

    async def work() -> None:
        # Everything is read anew by each: what an earlier leader decided is on the bindings.
        nonlocal shell, query
        events = Recorder(host, "dispatcher")
        shell = Shell(
            host,
            metrics,
            events=events,
            recorder=None if recorder is None or recorder.closed else recorder,
            settings=settings,
            leads=elector.leading,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(events.run())
            group.create_task(shell.run())
            await elector.leading.wait()
            if settings.query.port:
                query = Query(host, shell, settings=settings.query, logs=settings.logs)
                group.create_task(query.run())

    async def leave() -> None:
        if query is not None and elector.leading.is_set():
            # Not cancelled after that: the drain waits for a write that is under way.
            await asyncio.wait({asyncio.create_task(query.leave())}, timeout=settings.query.farewell)

    def ready() -> bool:
        read = shell is not None and shell.synced
        return read if elector.leading.is_set() else elector.can_lead and (read or not warm)

    running.ready_when(ready)
    running.before_end(leave)
    running.add_task("election", elector.run(work, early=warm))


if __name__ == "__main__":
    main()
