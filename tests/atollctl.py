"""Commands of `atollctl` as a user gives them, without a new interpreter for each: see `tests.forks`."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code, its output, and what it said beside that."""

    code: int
    out: str
    said: str


async def atollctl(*words: str, environment: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end; it reads nothing.

    Args:
        words: after the program's name.
        environment: in addition to this process' own.

    Raises:
        AssertionError: it has no exit code: it was ended, or took longer than `forks.DEADLINE_S`.
    """
    asked = {"words": words, "environment": {**os.environ, **(environment or {})}, "folder": str(Path.cwd())}
    pipes = [os.pipe() for _ in range(3)]
    try:
        socket.send_fds(_server(), [orjson.dumps(asked)], [write for _, write in pipes])
    finally:
        for _, write in pipes:
            os.close(write)
    out, said, code = await asyncio.gather(*(_read(read) for read, _ in pipes))
    assert code, f"atollctl {' '.join(words)} was ended: {out}{said}"
    return Ran(int(code), out, said)


async def _read(descriptor: int) -> str:
    """All that is written to a pipe until nobody has its other end any more."""
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb")
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        return (await reader.read()).decode()
    finally:
        transport.close()


@cache
def _server() -> socket.socket:
    """The connection to the one that forks, which lasts as long as this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    search = os.pathsep.join(each for each in sys.path if each)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forks", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "PYTHONPATH": search, "OPENBLAS_NUM_THREADS": "1"},
    )
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait(10)

    atexit.register(end)
    return ours
