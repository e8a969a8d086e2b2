"""Commands of `atollctl` as a user gives them, without a new interpreter for each: see `tests.forks`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

from tests.forked import Fork, reading


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
    pipes = [os.pipe() for _ in range(2)]
    try:
        command = await Fork.start(
            None, list(words), {**os.environ, **(environment or {})}, *(each for _, each in pipes)
        )
    finally:
        for _, write in pipes:
            os.close(write)
    out, said = await asyncio.gather(*(_read(read) for read, _ in pipes))
    code = await command.wait()
    assert code >= 0, f"atollctl {' '.join(words)} was ended: {out}{said}"
    return Ran(code, out, said)


async def _read(descriptor: int) -> str:
    """All that is written to a pipe until nobody has its other end any more."""
    reader, transport = await reading(descriptor)
    try:
        return (await reader.read()).decode()
    finally:
        transport.close()
