"""Child processes that can never outlive their parent.

A federation is a dozen servers. Whoever starts one may be interrupted, terminated or killed; in
every case the servers must go with it, and when one of them dies early its own last words must
reach the person who is waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import ssl
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

import aiohttp

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29
_TIMER_SLACK_NS = 10_000_000
"""Timers of servers may be that late, so that many run at one wake-up: an API server at rest has 400 a second."""
_POLL_S = 0.1
_TAIL_LINES = 15
_RESTARTS, _RESTARTS_S = 5, 600.0
"""New starts of one process within so many seconds."""
_RESTART_PAUSE_S = 0.5

# Loaded before any fork: loading a library between fork and exec could wait for ever on a lock
# that another thread of the parent held.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class ProcessFailed(RuntimeError):
    """A child exited, or was not ready in time. The message carries its last log lines."""


@dataclass(frozen=True)
class ProcessSpec:
    """What to run and how to see that it is ready."""

    name: str
    argv: Sequence[str]
    #: Added to the environment of the parent.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Polled until it answers 200; None means ready as soon as it runs.
    ready_url: str | None = None
    #: PEM file that the certificate behind an https ready_url must chain to.
    ready_ca: Path | None = None
    #: (certificate, key): files to present to ready_url.
    ready_certificate: tuple[Path, Path] | None = None
    #: Bearer token to present to ready_url.
    ready_token: str | None = field(default=None, repr=False)
    #: It keeps nothing that outlives its group, which kills it instead of waiting for its end.
    disposable: bool = False
    #: It can't be started again: its files were made for one run.
    once: bool = False


def _die_with_parent(parent: int, *, patient: bool) -> Callable[[], None]:
    """Return what runs in the child between fork and exec."""

    def prepare() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if patient:
                _libc.prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS, 0, 0, 0)
            # The parent may have died before the call above took effect.
            if os.getppid() != parent:
                os._exit(1)

    return prepare


def python_path() -> str:
    """PYTHONPATH for a child: this process may run from source folders that only its own sys.path knows."""
    return os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)


class Child(Protocol):
    """A process that was started: `asyncio.subprocess.Process`, or the like."""

    @property
    def pid(self) -> int:
        """Its process id, which is that of its group too."""

    @property
    def returncode(self) -> int | None:
        """None while it runs (negative: signal)."""

    async def wait(self) -> int:
        """Wait for the exit code."""


async def execute(spec: ProcessSpec, log: BinaryIO) -> Child:
    """Start it, in a process group of its own so that ^C reaches the parent alone."""
    return await asyncio.create_subprocess_exec(
        *spec.argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, **spec.env},
        process_group=0,
        preexec_fn=_die_with_parent(os.getpid(), patient=spec.disposable),
    )


launch: Callable[[ProcessSpec, BinaryIO], Awaitable[Child]] = execute
"""Starts each process; tests replace it by forks of one that has imported Atoll."""


class Process:
    """One supervised child with a log file.

    It must be started from a thread that lives as long as the child may: Linux delivers the
    death signal when the *thread* that forked ends.
    """

    def __init__(self, spec: ProcessSpec, log: Path) -> None:
        self.spec = spec
        self.log = log
        self._starts = 0
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None before the start."""
        return None if self._child is None else self._child.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not exited."""
        return self._child is not None and self._child.returncode is None

    @property
    def restarts(self) -> int:
        """How often it was started after the first time."""
        return max(self._starts - 1, 0)

    async def start(self) -> None:
        """Start it; its output goes to the end of the log file."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._child = await launch(self.spec, log)
        self._starts += 1

    async def wait_ready(self, deadline_s: float = 60.0) -> None:
        """Return once the readiness URL answers 200; raise ProcessFailed otherwise."""
        if self.spec.ready_url is None:
            return
        headers = {}
        if self.spec.ready_token is not None:
            headers["Authorization"] = f"Bearer {self.spec.ready_token}"
        tls: ssl.SSLContext | bool = True
        if self.spec.ready_ca is not None:
            tls = ssl.create_default_context(cafile=str(self.spec.ready_ca))
            if self.spec.ready_certificate is not None:
                tls.load_cert_chain(*self.spec.ready_certificate)
        last = "no answer yet"
        ends = time.monotonic() + deadline_s
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while time.monotonic() < ends:
                if not self.running:
                    raise self._failure("exited before it was ready")
                try:
                    async with session.get(self.spec.ready_url, headers=headers, ssl=tls) as answer:
                        if answer.status == 200:
                            return
                        last = f"HTTP {answer.status}: {(await answer.text())[-300:]}"
                except (aiohttp.ClientError, TimeoutError) as error:
                    last = str(error) or type(error).__name__
                await asyncio.sleep(_POLL_S)
        raise self._failure(f"not ready after {deadline_s:.0f} s ({last})")

    async def wait(self) -> int:
        """Wait for the exit and return the exit code (negative: signal)."""
        if self._child is None:
            raise RuntimeError(f"process {self.spec.name} was never started")
        return await self._child.wait()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Send SIGTERM, and SIGKILL to its whole group after grace_s. Safe to repeat."""
        child = self._child
        if child is None:
            return
        if child.returncode is None:
            _signal_group(child.pid, signal.SIGTERM)
            try:
                await asyncio.wait_for(asyncio.shield(child.wait()), grace_s)
            except TimeoutError:
                _signal_group(child.pid, signal.SIGKILL)
                await child.wait()

    @property
    def exit_code(self) -> int | None:
        """Of the last run, None while it runs (negative: signal)."""
        return None if self._child is None else self._child.returncode

    def failure(self) -> ProcessFailed:
        """Describe an exit that nobody asked for."""
        again = f" (started again {self.restarts} times)" if self.restarts else ""
        return self._failure(f"exited unexpectedly{again}")

    def _failure(self, what: str) -> ProcessFailed:
        exit_text = "" if self.exit_code is None else f" with exit code {self.exit_code}"
        tail = last_lines(self.log)
        return ProcessFailed(f"{self.spec.name} {what}{exit_text}; the end of {self.log}:\n{tail or '(empty)'}")


class ProcessGroup:
    """Processes that are started in waves and stopped in the reverse order of the waves."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._waves: list[list[Process]] = []

    @property
    def processes(self) -> list[Process]:
        """All processes, in the order of their start."""
        return [process for wave in self._waves for process in wave]

    async def start(self, specs: Sequence[ProcessSpec], deadline_s: float = 60.0) -> None:
        """Start one wave together and return when all of it is ready."""
        wave: list[Process] = []
        self._waves.append(wave)
        for spec in specs:
            process = Process(spec, self._logs / f"{spec.name}.log")
            wave.append(process)
            await process.start()
        with first_error():
            async with asyncio.TaskGroup() as group:
                for process in wave:
                    group.create_task(process.wait_ready(deadline_s))

    async def stop(self) -> None:
        """Stop all waves, last one first. Safe to repeat."""
        while self._waves:
            await asyncio.gather(
                *(process.stop(0) if process.spec.disposable else process.stop() for process in self._waves[-1])
            )
            self._waves.pop()

    async def keep(self, report: Callable[[str], None]) -> None:
        """Start processes again that exit by themselves, until one can't be or does so too often.

        Args:
            report: gets a line per new start.

        Raises:
            ProcessFailed: a process of spec `once` exited, or another one for the sixth time within ten minutes.
        """
        recent: dict[Process, deque[float]] = {}
        while True:
            process = await self._wait_for_exit()
            starts = recent.setdefault(process, deque(maxlen=_RESTARTS))
            now = time.monotonic()
            if process.spec.once or (len(starts) == _RESTARTS and now - starts[0] < _RESTARTS_S):
                raise process.failure()
            starts.append(now)
            code = process.exit_code
            await asyncio.sleep(_RESTART_PAUSE_S)
            await process.start()
            report(f"{process.spec.name} exited with code {code} and was started again; its log: {process.log}")

    async def _wait_for_exit(self) -> Process:
        """Return the first process that exits."""
        tasks = {asyncio.ensure_future(process.wait()): process for process in self.processes}
        if not tasks:
            raise RuntimeError("nothing is running")
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[done.pop()]
        finally:
            for task in tasks:
                task.cancel()


@contextlib.contextmanager
def first_error() -> Iterator[None]:
    """Unwrap the group: the first child that failed is the one worth reading about."""
    try:
        yield
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


def last_lines(path: Path, lines: int = _TAIL_LINES) -> str:
    """Return the end of a log file, empty if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 32_768))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(line[:500] for line in text.splitlines()[-lines:])


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks after boot: tells a reused id. None where it has ended or is a zombie."""
    try:
        # The name in parentheses may hold anything; the rest is 52 plain fields.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
