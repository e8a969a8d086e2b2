"""Histories whose decisions must stay the same, byte for byte, when the core is rebuilt and nothing else is meant.

    python -m tests.dispatcher.frozen record DIR [--trace PHILLY]    with the commit before
    python -m tests.dispatcher.frozen check DIR                      with the one after

Recorded are: all that cores are told in the tests of this folder, random histories by their seeds, and slices of the
Philly trace. Beside the commands it is compared when a pass is due next, and what is said of each workload at the end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.cli.app import main as atollctl
from atoll.dispatcher.core import Command, Dispatcher, Event, Pass
from atoll.dispatcher.core.log import LOG, Begin
from atoll.dispatcher.explain import verdicts
from atoll.model.eventlog import Answer
from tests.dispatcher.whole.histories import EXTENSIONS, play
from tests.dispatcher.whole.machine import History

MACHINES, HISTORIES = range(100, 130), range(100, 103)
SLICES = {
    "backfill": ["--strategy", "backfill", "--limit", "2500", "--gangs", "40"],
    "estimates": ["--strategy", "backfill", "--limit", "1500", "--estimates", "error=0.5", "--gangs", "20"],
    "traverse": ["--strategy", "traverse", "--limit", "1500", "--outage", "6214e9:20000:90000", "--lost", "requeue"],
}


class Log:
    """What one core was told and answered; beside it, lines that no log has."""

    def __init__(self, path: Path, begin: Begin) -> None:
        self._file, self._more = path.open("wb"), path.with_suffix(".more").open("wb")
        self._file.write(LOG.encode(begin))

    def add(self, core: Dispatcher, event: Event, commands: list[Command]) -> None:
        self._file.write(LOG.encode(event) + LOG.encode_answer(commands))
        self._file.flush()
        if isinstance(event, Pass):
            self._more.write(deadline(core))
            self._more.flush()


def deadline(core: Dispatcher) -> bytes:
    return msgspec.json.encode(core.next_deadline) + b"\n"


def said(core: Dispatcher) -> bytes:
    """What is said of every workload."""
    return b"".join(
        msgspec.json.encode([uid, repr(verdicts.account(core, uid))]) + b"\n" for uid in sorted(core.bindings)
    )


@contextmanager
def recording(folder: Path, name: str) -> Iterator[None]:
    """Inside, all that any core is told is written to files of its own."""
    handle = Dispatcher.handle
    logs: dict[int, tuple[Dispatcher, Log]] = {}

    def told(core: Dispatcher, event: Event) -> list[Command]:
        commands = handle(core, event)
        if id(core) not in logs:
            made = Begin(core.settings)
            logs[id(core)] = core, Log(folder / f"{name}-{len(logs):05}.log", made)
        logs[id(core)][1].add(core, event, commands)
        return commands

    Dispatcher.handle = told  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Dispatcher.handle = handle  # type: ignore[method-assign]


def again(path: Path, write: bool = False) -> str:
    """Tell a fresh core the same; what differs, or nothing."""
    core: Dispatcher | None = None
    given: tuple[Command, ...] = ()
    due: list[bytes] = []
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                entry = LOG.decode(line)
                if isinstance(entry, Begin):
                    core = Dispatcher(entry.settings)
                    continue
                assert core is not None
                if isinstance(entry, Answer):
                    if entry.commands != given:
                        return f"line {number}:\n  recorded {entry.commands}\n  now      {given}"
                    given = ()
                    continue
                if given:
                    return f"line {number}: nothing recorded\n  now      {given}"
                given = tuple(core.handle(entry))
                if isinstance(entry, Pass):
                    due.append(deadline(core))
        assert core is not None
        last = said(core)
    except Exception as error:  # whatever a rebuilt core raises is a difference
        return f"line {number}: {type(error).__name__}: {error}"
    more = path.with_suffix(".more")
    recorded = more.read_bytes().split(b"--\n")
    if b"".join(due) != recorded[0]:
        lines = recorded[0].splitlines(keepends=True)
        at = next((i for i, (a, b) in enumerate(zip(due, lines, strict=False)) if a != b), min(len(due), len(lines)))
        return f"pass {at + 1}: due next at {due[at : at + 1]}, recorded {lines[at : at + 1]}"
    if write:
        with more.open("ab") as file:
            file.write(b"--\n" + last)
    elif last != recorded[1]:
        pairs = zip(last.splitlines(), recorded[1].splitlines(), strict=False)
        return "\n".join(f"said {a!r}\nrecorded {b!r}" for a, b in pairs if a != b)[:4000]
    return ""


def all_again(folder: Path, write: bool = False) -> dict[Path, str]:
    paths = sorted(folder.glob("*.log"), key=lambda path: -path.stat().st_size)
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(partial(again, write=write), paths, chunksize=8)
        return {path: each for path, each in zip(paths, found, strict=True) if each}


def record(folder: Path, trace: Path | None) -> None:
    folder.mkdir(parents=True)
    here = str(Path(__file__).parent)
    with recording(folder, "test"):
        pytest.main(
            [
                "-q",
                "-W",
                "ignore::pytest.PytestAssertRewriteWarning",
                "-p",
                "no:cacheprovider",
                "--ignore",
                f"{here}/quota/test_tree_machine.py",
                here,
            ]
        )
    histories: list[tuple[str, Callable[[], Any]]] = [
        *((f"machine-{seed}", partial(History(seed).play, 200)) for seed in MACHINES),
        *(
            (f"history-{extension}-{seed}", partial(play, extension, seed))
            for extension in EXTENSIONS
            for seed in HISTORIES
        ),
    ]
    for name, played in histories:
        with recording(folder, name), suppress(AssertionError):
            played()
    for name, options in SLICES.items() if trace is not None else ():
        with recording(folder, f"philly-{name}"), suppress(SystemExit):
            sys.argv = ["atollctl", "simulate", "--trace", str(trace), "--format", "philly", "--load", "0.9", *options]
            atollctl()
    # What was changed behind a core's back can't be told again.
    unlike = all_again(folder, write=True)
    for path in unlike:
        path.unlink()
        path.with_suffix(".more").unlink()
    print(f"{len(list(folder.glob('*.log')))} logs; {len(unlike)} are not of events alone and were left out")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dispatcher.frozen")
    parser.add_argument("action", choices=["record", "check"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trace", type=Path, help="of Philly's jobs")
    options = parser.parse_args()
    if options.action == "record":
        record(options.folder, options.trace)
        return 0
    began = time.monotonic()
    unlike = all_again(options.folder)
    for path, text in list(unlike.items())[:10]:
        print(f"{path.name}: {text[:3000]}")
    logs = len(list(options.folder.glob("*.log")))
    print(f"{logs - len(unlike)} of {logs} logs are decided the same, in {time.monotonic() - began:.0f} s")
    return 1 if unlike or not logs else 0


if __name__ == "__main__":
    sys.exit(main())
