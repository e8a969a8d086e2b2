"""Events to a core and its answers, as lines of JSON, so that any history can be decided again elsewhere.

A log is a sequence of lines `[type, content]`: where a fresh core started its settings, then every event, and after an
event that was answered one line `Commands`. Only the text is made here; who records or reads a file is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

B = TypeVar("B")
E = TypeVar("E")
C = TypeVar("C")

_ANSWER = "Commands"
_encoder = msgspec.json.Encoder()
_line = msgspec.json.Decoder(tuple[str, msgspec.Raw])
_answers = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])


@dataclass(frozen=True, slots=True)
class Answer(Generic[C]):
    """What the event before this line was answered with; never empty."""

    commands: tuple[C, ...]


class LogError(ValueError):
    """A line is not one of a log."""


class EventLog(Generic[B, E, C]):
    """Text form of events and answers of one kind of core."""

    def __init__(
        self, begin: type[B], events: Iterable[type[E]], commands: Iterable[type[C]], decides: type[E]
    ) -> None:
        """All of these are values that msgspec can write and read.

        Args:
            begin: arguments of a core; its name tells the kinds of core apart.
            events: its inputs.
            commands: it answers.
            decides: the event that makes it decide.
        """
        self.begin, self.decides = begin, decides
        self._read: dict[str, Any] = {kind.__name__: msgspec.json.Decoder(kind) for kind in (begin, *events)}
        self._commands: dict[str, Any] = {kind.__name__: msgspec.json.Decoder(kind) for kind in commands}

    def encode(self, entry: B | E) -> bytes:
        """One line, its end included."""
        return _encoder.encode((type(entry).__name__, entry)) + b"\n"

    def encode_answer(self, commands: Sequence[C]) -> bytes:
        """The line after an event; nothing at all where there is no command."""
        if not commands:
            return b""
        return _encoder.encode((_ANSWER, [(type(command).__name__, command) for command in commands])) + b"\n"

    def decode(self, line: bytes) -> B | E | Answer[C]:
        """Value of a line; equal to the encoded one.

        Raises:
            LogError: not a line of a log, or of one that another version wrote.
        """
        try:
            kind, content = _line.decode(line)
            if kind == _ANSWER:
                return Answer(tuple(self._commands[name].decode(raw) for name, raw in _answers.decode(content)))
            if kind not in self._read:
                raise LogError(f"unknown type {kind!r}")
            entry: B | E = self._read[kind].decode(content)
            return entry
        except (msgspec.MsgspecError, KeyError) as error:
            raise LogError(f"not a line of an event log: {error}") from error

    def begins(self, line: bytes) -> bool:
        """Whether a core of this kind starts at this line."""
        try:
            return bool(_line.decode(line)[0] == self.begin.__name__)
        except msgspec.MsgspecError:
            return False
