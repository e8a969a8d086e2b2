"""Decides a recorded log again: a fresh core that is told the same must answer the same.

    python -m atoll.sim.replay LOG

Exit code 0 when every answer is equal, 1 at the first that is not, which is printed with its line, and where there is
nothing to replay.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll.agent.scheduler.core import MemberCore
from atoll.agent.scheduler.core.log import LOG as MEMBER_LOG
from atoll.dispatcher.core import Dispatcher
from atoll.dispatcher.core.log import LOG as DISPATCHER_LOG
from atoll.dispatcher.strategies.installed import installed
from atoll.model.eventlog import Answer, EventLog, LogError
from atoll.model.plurals import counted
from atoll.sim.inputs import InputError

Handle = Callable[[Any], list[Any]]
"""A fresh core: its answers to an event."""

_KINDS: tuple[tuple[EventLog[Any, Any, Any], Callable[[Any], Handle]], ...] = (
    (DISPATCHER_LOG, lambda begin: Dispatcher(begin.settings, installed(begin.settings)).handle),
    (MEMBER_LOG, lambda begin: MemberCore(begin.settings).handle),
)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A log that was decided again with the same result."""

    events: int
    commands: int
    cores: int
    """Fresh cores in it."""
    cut: int = 0
    """The line that the end of its process cut off and that was left out; 0 where none was."""


class Differs(Exception):
    """A fresh core answers otherwise than the log says."""

    def __init__(self, line: int, expected: tuple[Any, ...], found: tuple[Any, ...]) -> None:
        self.line, self.expected, self.found = line, expected, found
        super().__init__(self._text())

    def _text(self) -> str:
        for number, (want, have) in enumerate(zip(self.expected, self.found, strict=False), start=1):
            if want != have:
                return f"line {self.line}, command {number}:\n  recorded {want}\n  now      {have}"
        more = self.found[len(self.expected) :] or self.expected[len(self.found) :]
        counts = f"{len(self.expected)} commands recorded, {len(self.found)} now"
        return f"line {self.line}: {counts}; the first of the rest: {more[0]}"


def replay(lines: Iterable[bytes]) -> Replayed:
    """Decide a log again; a last line that was cut off by the end of its process is left out.

    Raises:
        Differs: at the first event whose answer is another one.
        InputError: a line that is not one of a log, an event before any `Begin`, or no event at all.
    """
    core: Handle | None = None
    log, make = _KINDS[0]
    given: tuple[Any, ...] = ()
    events = commands = cores = at = cut = 0
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            cut = number
            break
        log, make = next((kind for kind in _KINDS if kind[0].begins(line)), (log, make))
        try:
            entry = log.decode(line)
        except LogError as error:
            raise InputError(f"line {number}: {error}") from error
        if isinstance(entry, Answer):
            if entry.commands != given:
                raise Differs(at, entry.commands, given)
            given = ()
            continue
        if isinstance(entry, log.begin):
            # The one before may have ended between an event and its answer.
            given = ()
            core = make(entry)
            cores += 1
            continue
        if core is None:
            raise InputError(f"line {number}: an event before the line that begins a core; is the log whole?")
        if given:
            raise Differs(at, (), given)
        given, at = tuple(core(entry)), number
        events += 1
        commands += len(given)
    if not events:
        raise InputError("nothing to replay: there is no event in it; give the file that --record wrote")
    # The answer to the last event may have been cut off.
    return Replayed(events, commands, cores, cut)


def main(arguments: list[str] | None = None) -> int:
    """Entry point of `python -m atoll.sim.replay`."""
    parser = argparse.ArgumentParser(prog="python -m atoll.sim.replay", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "log", type=Path, help="written by --record of atoll-dispatcher, atoll-agent, atollctl simulate"
    )
    options = parser.parse_args(arguments)
    try:
        with options.log.open("rb") as file:
            done = replay(file)
    except (OSError, InputError, Differs) as error:
        said = error.strerror if isinstance(error, OSError) else error
        print(f"{options.log}: {said}", file=sys.stderr)
        return 1
    counts = (counted(done.events, "event"), counted(done.commands, "command"), counted(done.cores, "core"))
    print(f"{', '.join(counts)}: all answers are the same")
    if done.cut:
        print(f"line {done.cut}, the last, is cut off: it was left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
