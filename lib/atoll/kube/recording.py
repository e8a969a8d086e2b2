"""Keeps a file of all events to a core and its answers, for `atoll.sim.replay` and for reports of defects."""

from __future__ import annotations

import errno
import io
import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

import structlog

from atoll.kube.settings import Recording
from atoll.model.eventlog import EventLog

B = TypeVar("B")
E = TypeVar("E")
C = TypeVar("C")


log = structlog.get_logger(__name__)


class LogWriter(Generic[B, E, C]):
    """Appends to a log; a context manager that closes it.

    Lines reach the file after every pass: events without a decision are no loss.
    """

    def __init__(self, path: Path, written: EventLog[B, E, C], *, settings: Recording = Recording()) -> None:
        """Open the file, keeping its contents; only its owner may read it, for it names everybody's work.

        Raises:
            OSError: it can't be written.
        """
        self._settings = settings
        self._path, self._log = path, written
        self._file = self._open()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def begin(self, made_with: B) -> None:
        """A fresh core starts: a log may hold the terms of several leaders.

        One that is large becomes `<path>.1`, the one before `<path>.2`, and so on up to `self._settings.kept`.
        """
        self._end_line()
        if os.fstat(self._file.fileno()).st_size > self._settings.rotated_at:
            self._rotate()
        self._file.write(self._log.encode(made_with))

    def record(self, event: E, commands: Sequence[C]) -> None:
        """One event and its answer.

        Raises:
            OSError: it can't be written, or the log of this term is as long as it may become.
        """
        self._file.write(self._log.encode(event))
        self._file.write(self._log.encode_answer(commands))
        if isinstance(event, self._log.decides):
            self._file.flush()
            if self._file.tell() > self._settings.longest_term:
                raise OSError(
                    errno.EFBIG, f"{self._settings.longest_term} bytes are as long as the log of one term may become"
                )

    def _open(self) -> io.BufferedWriter:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return io.BufferedWriter(os.fdopen(descriptor, "ab+", buffering=0))

    def _rotate(self) -> None:
        self._file.close()
        names = [
            self._path,
            *(self._path.with_name(f"{self._path.name}.{number}") for number in range(1, self._settings.kept + 1)),
        ]
        for newer, older in reversed(list(itertools.pairwise(names))):
            with suppress(FileNotFoundError):
                newer.replace(older)
        self._file = self._open()

    def _end_line(self) -> None:
        """Drop a last line that is not whole: whoever wrote it was killed, and nothing could be read after it."""
        self._file.flush()
        if not os.fstat(self._file.fileno()).st_size:
            return
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            whole = content.rfind(b"\n") + 1
        self._file.truncate(whole)

    def close(self) -> None:
        """Write the rest and close the file; a second time does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BestEffort(Generic[B, E, C]):
    """A log that is kept for as long as that can be done: it is worth no decision."""

    def __init__(self, recorder: LogWriter[B, E, C] | None) -> None:
        """Without a recorder nothing is kept."""
        self._recorder = recorder

    def begin(self, made_with: B) -> None:
        """See `LogWriter.begin`."""
        self._write(lambda to: to.begin(made_with))

    def record(self, event: E, commands: Sequence[C]) -> None:
        """See `LogWriter.record`."""
        if self._recorder is not None:
            self._write(lambda to: to.record(event, commands))

    def _write(self, write: Callable[[LogWriter[B, E, C]], None]) -> None:
        if self._recorder is None:
            return
        try:
            write(self._recorder)
        except OSError as error:
            log.warning("the log of events can't be written and ends here", error=str(error))
            with suppress(OSError):
                self._recorder.close()
            self._recorder = None
