"""Atoll's own processes on one machine: started, watched, and started again when they die.

In a cluster a Deployment does this. Faults are part of what a federation must survive, so a dead process is no reason
to take the others down, and tests may kill, stop and start each one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from atoll.local.processes import Process, ProcessFailed, ProcessSpec, last_lines

_BACKOFF_S = (0.2, 10.0)
"""First and longest pause before a new start; it doubles with each start that did not last."""
_LASTED_S = 20.0
_POLL_S = 0.03
_GRACE_S = 7.0
"""More than a process takes to drain (5 s by default) or a webhook to linger before that: none is killed in it."""


class KeptProcess:
    """One process that runs until it is told to stop, whatever happens to it in between."""

    def __init__(self, spec: ProcessSpec, logs: Path, on_change: Callable[[], None] = lambda: None) -> None:
        """No I/O happens here.

        Args:
            spec: what to run; `ready_url` must be set for `ready` to mean anything.
            logs: folder of its log file.
            on_change: called after every start.
        """
        self.name = spec.name
        self.process = Process(spec, logs / f"{spec.name}.log")
        self._on_change = on_change
        self._keeper: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._pause = _BACKOFF_S[0]

    @property
    def pid(self) -> int | None:
        """Process id of the present or the last run."""
        return self.process.pid

    @property
    def restarts(self) -> int:
        """Starts after the first one."""
        return self.process.restarts

    @property
    def log(self) -> Path:
        """Its log file, all runs in one."""
        return self.process.log

    @property
    def running(self) -> bool:
        """Whether it runs at this moment."""
        return self.process.running

    async def start(self) -> None:
        """Start it and keep it running; no effect while it is kept."""
        if self._keeper is None:
            self._started.clear()
            self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.name}")
            await self._started.wait()

    async def stop(self, grace_s: float = _GRACE_S) -> int | None:
        """End it and leave it down. Safe to repeat.

        Returns:
            Its exit code, the negative number of the signal if one ended it; None if it never ran.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        await self.process.stop(grace_s)
        return None if self.pid is None else await self.process.wait()

    def kill(self) -> None:
        """End it as a crash would: SIGKILL, unasked. It is started again after a short pause."""
        self.signal(signal.SIGKILL)
        # Somebody else's doing says nothing about the program: however often, it is no reason to wait longer.
        self._pause = _BACKOFF_S[0]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP for a process that hangs.

        Raises:
            RuntimeError: it does not run.
        """
        if self.pid is None or not self.running:
            raise RuntimeError(f"{self.name} does not run")
        os.kill(self.pid, number)

    async def restart(self, deadline_s: float = 60.0) -> None:
        """Stop it in order, start it, and return once it is ready."""
        await self.stop()
        await self.start()
        await self.ready(deadline_s)

    async def ready(self, deadline_s: float = 60.0) -> None:
        """Return once it answers that it is ready, over as many starts as that takes.

        Raises:
            ProcessFailed: not in time; carries its last log lines.
        """
        end = time.monotonic() + deadline_s
        while True:
            try:
                # wait_ready ends when this run of the process does; the next run is asked anew.
                await self.process.wait_ready(max(end - time.monotonic(), 0.1))
            except ProcessFailed:
                if time.monotonic() >= end or self._keeper is None:
                    raise
                await asyncio.sleep(_POLL_S)
            else:
                return

    async def _keep(self) -> None:
        while True:
            await self.process.start()
            began = time.monotonic()
            self._started.set()
            self._on_change()
            await self.process.wait()
            if time.monotonic() - began >= _LASTED_S:
                self._pause = _BACKOFF_S[0]
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, _BACKOFF_S[1])


async def start_all(processes: Sequence[KeptProcess], deadline_s: float, progress: Callable[[str], None]) -> None:
    """Start all together and return when all are ready.

    Raises:
        ProcessFailed: one exits again and again, or is not ready in time.
    """
    waiting = {process.name for process in processes}

    async def one(process: KeptProcess) -> None:
        await process.start()
        ready = asyncio.create_task(process.ready(deadline_s))
        while not ready.done():
            await asyncio.wait({ready}, timeout=0.1)
            if process.restarts >= _HOPELESS and not ready.done():
                ready.cancel()
                raise ProcessFailed(
                    f"{process.name} exited {process.restarts} times before it was ready; the end of {process.log}:\n"
                    f"{last_lines(process.log) or '(empty)'}"
                )
        await ready
        waiting.discard(process.name)
        progress(f"waiting for {', '.join(sorted(waiting))}" if waiting else "all processes are ready")

    try:
        async with asyncio.TaskGroup() as group:
            for process in processes:
                group.create_task(one(process))
    except ExceptionGroup as failures:
        # The first one that failed is the one worth reading about.
        raise failures.exceptions[0] from None


_HOPELESS = 4
"""Restarts after which a start is given up."""
