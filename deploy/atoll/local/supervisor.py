"""A federation that outlives the command that started it.

`atollctl local up` returns while the federation runs on. What owns it then is the process of this
module: it starts everything, writes its progress to `state.json`, and takes everything down when
it is told to, when one of the processes fails again and again, or when it is killed itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import importlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from atoll.local import binaries
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation, clean
from atoll.local.keeper import KeptProcess
from atoll.local.layout import FederationConfig
from atoll.local.processes import Process, ProcessSpec, first_error, last_lines, python_path, start_ticks
from atoll.local.realnodes import programs, requirements

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_POLL_S = 0.1
_STOP_DEADLINE_S = 30.0


class SupervisorError(RuntimeError):
    """The federation could not be started or stopped; the message says why."""


@dataclass(frozen=True)
class Extension:
    """What runs on top of the bare clusters, named by `module:attribute` on the command line."""

    #: CRDs of every cluster.
    crds: Callable[[], Sequence[dict[str, Any]]]
    #: Called once nodes are there; prepares its needs and says what to run, in one wave.
    processes: Callable[[Federation], Awaitable[Sequence[ProcessSpec]]] | None = None
    #: Processes that are started again when they die, however often. Gets the federation, a function for
    #: progress, and one to call after each start.
    kept: (
        Callable[
            [Federation, Callable[[str], None], Callable[[], None]],
            AbstractAsyncContextManager[Sequence[KeptProcess]],
        ]
        | None
    ) = None


class ClusterState(BaseModel):
    """Where a cluster is."""

    url: str
    kubeconfig: Path
    audit_log: Path


class ProcessState(BaseModel):
    """One process of the federation; `alive` and `rss_bytes` are as of the call of status()."""

    name: str
    pid: int
    log: Path
    alive: bool = False
    rss_bytes: int = 0
    restarts: int = 0


class State(BaseModel):
    """The state of the federation called `name`."""

    name: str
    #: stopped: never started, taken down, or its supervisor is gone.
    status: Literal["starting", "ready", "failed", "stopped"]
    #: Its present step, or why it failed.
    message: str = ""
    directory: Path
    #: The supervisor, None when stopped.
    pid: int | None = None
    #: Start time of that pid in clock ticks after boot: tells a reused pid.
    started: int | None = None
    host: ClusterState | None = None
    members: dict[str, ClusterState] = {}
    processes: list[ProcessState] = []


def run_directory(name: str) -> Path:
    """Return the folder of a federation; raise SupervisorError for a name that is no name."""
    if not _NAME.fullmatch(name):
        raise SupervisorError(f"name {name!r} must be lower-case letters, digits and '-', at most 40 characters")
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "atoll" / "local" / name


def up(
    name: str,
    config: FederationConfig,
    on_progress: Callable[[str], None] = lambda _: None,
    *,
    extension: str | None = None,
) -> State:
    """Start a detached federation and return when it is ready. Blocks.

    Raises:
        SupervisorError: one of that name runs already, or it failed; nothing is left running.
        BinariesError: a control-plane program could not be had.
    """
    # A long build, too, shows its progress to the caller.
    directory = _prepare(name, config, on_progress)
    log = directory / "supervisor.log"
    pid = _spawn(name, extension, log)
    said = ""
    try:
        while True:
            state = status(name)
            if state.pid == pid and state.message != said:
                said = state.message
                on_progress(said)
            if state.pid == pid and state.status == "ready":
                return state
            if _reaped(pid):
                state = _read(name)
                reason = state.message if state.status == "failed" else last_lines(log)
                raise SupervisorError(f"federation {name!r} did not start: {reason}")
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        down(name)
        raise


def run_foreground(
    name: str,
    config: FederationConfig,
    on_progress: Callable[[str], None] = lambda _: None,
    *,
    extension: str | None = None,
    on_ready: Callable[[State], None] = lambda _: None,
) -> None:
    """Run a federation in this process until SIGINT or SIGTERM. Main thread only.

    Raises:
        SupervisorError: one of that name runs already, or some process failed.
        BinariesError: a control-plane program could not be had.
    """
    _prepare(name, config, on_progress)
    asyncio.run(_serve(name, extension, on_progress, on_ready))


def down(name: str) -> bool:
    """Stop a federation and remove its data; logs stay. Return whether it ran. Blocks."""
    state = status(name)
    was_running = state.pid is not None
    if state.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, signal.SIGTERM)
        ends = time.monotonic() + _STOP_DEADLINE_S
        while _same_process(state.pid, state.started):
            if time.monotonic() > ends:
                # Its children die with it.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(state.pid, signal.SIGKILL)
            time.sleep(_POLL_S)
    if state.directory.exists():
        clean(state.directory)
        _write(State(name=name, status="stopped", directory=state.directory))
    return was_running


def status(name: str) -> State:
    """Return the present state; a state file whose supervisor is gone counts as stopped."""
    state = _read(name)
    if not _same_process(state.pid, state.started):
        if state.status in ("starting", "ready"):
            state.message = "its supervisor was killed" if state.pid else ""
            state.status = "stopped"
        state.pid = state.started = None
    for process in state.processes:
        # Their parent sees every exit at once: while it lives, these ids are theirs.
        process.alive = state.pid is not None and start_ticks(process.pid) is not None
        process.rss_bytes = _rss_bytes(process.pid) if process.alive else 0
    return state


def real_nodes(name: str) -> list[str]:
    """Names of the real nodes that the federation of that name was last started with."""
    try:
        content = (run_directory(name) / "config.json").read_bytes()
    except FileNotFoundError:
        return []
    config = FederationConfig.model_validate_json(content)
    return [node for member in config.members for node in member.real_node_names()]


async def _serve(
    name: str,
    extension: str | None,
    on_progress: Callable[[str], None],
    on_ready: Callable[[State], None],
) -> None:
    """Own the federation until told to stop; raise SupervisorError when something fails."""
    directory = run_directory(name)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with _owner(name):
        state = State(
            name=name,
            status="starting",
            message="starting",
            directory=directory,
            pid=os.getpid(),
            started=start_ticks(os.getpid()),
        )
        _write(state)
        run = asyncio.create_task(_run(state, extension, on_progress, on_ready))
        told = asyncio.create_task(stop.wait())
        await asyncio.wait({run, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        run.cancel()
        try:
            await run
        except asyncio.CancelledError:
            clean(directory)
            state = State(name=name, status="stopped", directory=directory)
            _write(state)
        except Exception as error:
            message = str(error) or type(error).__name__
            clean(directory)
            _write(State(name=name, status="failed", message=message, directory=directory))
            raise SupervisorError(message) from error


async def _run(
    state: State,
    extension: str | None,
    on_progress: Callable[[str], None],
    on_ready: Callable[[State], None],
) -> None:
    def progress(message: str) -> None:
        state.message = message
        record()
        on_progress(message)

    extra = _load(extension)
    found = await asyncio.to_thread(binaries.ensure)
    federation = Federation(
        FederationConfig.model_validate_json((state.directory / "config.json").read_bytes()),
        directory=state.directory,
        binaries=found,
        crds=extra.crds() if extra else (),
        on_progress=progress,
    )
    kept: Sequence[KeptProcess] = ()

    def record() -> None:
        running = [*federation.processes.processes, *(item.process for item in kept)]
        state.processes = [_process_state(item) for item in running if item.pid is not None]
        _write(state)

    async with federation, contextlib.AsyncExitStack() as on_top:
        await federation.populate()
        with first_error():
            async with asyncio.TaskGroup() as group:
                if extra and extra.processes:
                    await federation.start_processes(await extra.processes(federation))
                group.create_task(federation.watch())
                if extra and extra.kept:
                    kept = await on_top.enter_async_context(extra.kept(federation, progress, record))
                state.host = _cluster_state(federation.host)
                state.members = {key: _cluster_state(item) for key, item in federation.members.items()}
                # Written together: who waits for it reads both.
                state.status = state.message = "ready"
                record()
                on_progress("ready")
                on_ready(state)


def _prepare(name: str, config: FederationConfig, on_progress: Callable[[str], None]) -> Path:
    """Have all that the machine must provide, and then the folder: there is none of a federation that can't start."""
    directory = run_directory(name)
    if config.has_real_nodes:
        requirements.check()
    if status(name).pid is not None:
        raise SupervisorError(f"federation {name!r} runs already: take it down first, or choose another name")
    if config.has_real_nodes:
        programs.ensure(report=on_progress)
    binaries.ensure(report=on_progress)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / "config.json").write_text(config.model_dump_json())
    return directory


def _spawn(name: str, extension: str | None, log: Path) -> int:
    argv = [sys.executable, "-m", "atoll.local.supervisor", "--name", name]
    if extension:
        argv += ["--extension", extension]
    # A session of its own: it must survive the terminal.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return os.posix_spawn(
        sys.executable,
        argv,
        {**os.environ, "PYTHONPATH": python_path()},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


@contextlib.contextmanager
def _owner(name: str) -> Iterator[None]:
    """Be the only supervisor of that name for as long as this process lives."""
    path = run_directory(name) / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SupervisorError(f"federation {name!r} has a supervisor already") from None
        yield
    finally:
        os.close(descriptor)


def _load(extension: str | None) -> Extension | None:
    if not extension:
        return None
    module, _, attribute = extension.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, Extension):
        raise SupervisorError(f"{extension} is a {type(found).__name__}, not an Extension")
    return found


def _process_state(process: Process) -> ProcessState:
    return ProcessState(name=process.spec.name, pid=process.pid or 0, log=process.log, restarts=process.restarts)


def _cluster_state(handle: ClusterHandle) -> ClusterState:
    return ClusterState(url=handle.url, kubeconfig=handle.kubeconfig, audit_log=handle.audit_log)


def _write(state: State) -> None:
    path = state.directory / "state.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(state.model_dump_json(indent=2))
    fresh.replace(path)


def _read(name: str) -> State:
    directory = run_directory(name)
    try:
        return State.model_validate_json((directory / "state.json").read_bytes())
    except (FileNotFoundError, ValueError, json.JSONDecodeError):
        return State(name=name, status="stopped", directory=directory)


def _same_process(pid: int | None, started: int | None) -> bool:
    if pid is None:
        return False
    _reaped(pid)
    return start_ticks(pid) == started and started is not None


def _reaped(pid: int) -> bool:
    """Collect a child that has exited; it would count as alive until then."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return start_ticks(pid) is None


def _rss_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the supervisor of one federation, whose config.json is there already."""
    parser = argparse.ArgumentParser(prog="python -m atoll.local.supervisor", description=__doc__)
    parser.add_argument("--name", required=True, help="name of the federation")
    parser.add_argument("--extension", help="module:attribute of what runs on top of it")
    options = parser.parse_args(argv)
    try:
        asyncio.run(
            _serve(
                options.name,
                options.extension,
                lambda line: print(line, flush=True),
                lambda _: None,
            )
        )
    except SupervisorError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    # Not this module's own main(): `__main__` is a second copy, and its Extension another class
    # than the one that extensions import.
    from atoll.local import supervisor

    sys.exit(supervisor.main())
