"""Atoll's programs without a new interpreter for each: see `tests.forks`."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import BinaryIO

import orjson

from atoll.local import processes
from atoll.local.processes import ProcessSpec


class Fork:
    """One program in a fork, as `asyncio.subprocess.Process` has it."""

    def __init__(self, pid: int, result: asyncio.StreamReader, pipe: asyncio.ReadTransport) -> None:
        self.pid = pid
        #: negative: the signal that ended it; None while it runs
        self.returncode: int | None = None
        self._ended = asyncio.create_task(self._end(result, pipe))

    @classmethod
    async def start(
        cls, module: str | None, words: list[str], environment: Mapping[str, str], out: int, errors: int
    ) -> Fork:
        """Run a module, or `atollctl`, in a process group of its own.

        Args:
            module: None is `atollctl`, which ends after `forks.DEADLINE_S`.
            words: after the program's name.
            environment: the whole of it.
            out: descriptor that becomes standard output.
            errors: the same for standard error.
        """
        asked = {"module": module, "words": words, "environment": dict(environment), "folder": str(Path.cwd())}
        read, write = os.pipe()
        try:
            socket.send_fds(_server(), [orjson.dumps(asked)], [out, errors, write])
        finally:
            os.close(write)
        reader, transport = await reading(read)
        return cls(int(await reader.readline()), reader, transport)

    async def wait(self) -> int:
        """Wait for its exit code."""
        return await asyncio.shield(self._ended)

    async def _end(self, result: asyncio.StreamReader, pipe: asyncio.ReadTransport) -> int:
        self.returncode = int(await result.readline())
        pipe.close()
        return self.returncode


async def reading(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """The reader of a pipe, and its transport, which is to be closed."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    return reader, transport


async def launch(spec: ProcessSpec, log: BinaryIO) -> processes.Child:
    """Instead of `processes.execute`, for programs of this very Atoll."""
    if list(spec.argv[:2]) != [sys.executable, "-m"] or spec.env != {"PYTHONPATH": processes.python_path()}:
        return await processes.execute(spec, log)
    _, _, module, *words = spec.argv
    return await Fork.start(module, words, {**os.environ, **spec.env}, log.fileno(), log.fileno())


@cache
def _server() -> socket.socket:
    """The connection to the one that forks, which lasts as long as this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forks", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "PYTHONPATH": processes.python_path(), "OPENBLAS_NUM_THREADS": "1"},
    )
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait(10)

    atexit.register(end)
    return ours
