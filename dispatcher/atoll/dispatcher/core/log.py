"""What a core was told and what it answered, as lines of JSON, so that any history can be decided again elsewhere.

A log is a sequence of lines `[type, content]`: `Begin` where a fresh core started, then every event, and after an
event that was answered one line `Commands`. Only the text is made here; who records or reads a file is elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from atoll.dispatcher.core.capacity.refusals import MOST_REFUSALS
from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.events import Event


@dataclass(frozen=True, slots=True)
class Begin:
    """A fresh core starts here."""

    commit_timeout: float
    """Seconds, as the core was made with."""
    most_refusals: int = MOST_REFUSALS
    """As the core was made with."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the event before this line was answered with; never empty."""

    commands: tuple[Command, ...]


class LogError(ValueError):
    """A line is not one of a log."""


Entry = Begin | Event | Answer

_ANSWER = "Commands"
_READ: dict[str, Any] = {kind.__name__: kind for kind in (Begin, *get_args(Event))}
_COMMANDS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Command)}
_encoder = msgspec.json.Encoder()
_line = msgspec.json.Decoder(tuple[str, msgspec.Raw])
_answers = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])
_decoders: dict[str, Any] = {name: msgspec.json.Decoder(kind) for name, kind in (_READ | _COMMANDS).items()}


def encode(entry: Begin | Event) -> bytes:
    """One line, its end included."""
    return _encoder.encode((type(entry).__name__, entry)) + b"\n"


def encode_answer(commands: Sequence[Command]) -> bytes:
    """The line after an event; nothing at all where there is no command."""
    if not commands:
        return b""
    return _encoder.encode((_ANSWER, [(type(command).__name__, command) for command in commands])) + b"\n"


def decode(line: bytes) -> Entry:
    """What a line says; equal to what was encoded.

    Raises:
        LogError: not a line of a log, or of one that another version wrote.
    """
    try:
        kind, content = _line.decode(line)
        if kind == _ANSWER:
            return Answer(tuple(_decoders[name].decode(raw) for name, raw in _answers.decode(content)))
        if kind not in _READ:
            raise LogError(f"unknown type {kind!r}")
        entry: Entry = _decoders[kind].decode(content)
        return entry
    except (msgspec.MsgspecError, KeyError) as error:
        raise LogError(f"not a line of an event log: {error}") from error
