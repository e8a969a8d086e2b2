"""Keeps a file of all that the core was told and answered, for `atoll.sim.replay` and for whoever reports a defect."""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from atoll.dispatcher.core import Command, Event, Pass
from atoll.dispatcher.core.log import Begin, encode, encode_answer


class Recorder:
    """Appends to a log; a context manager that closes it.

    Lines reach the file after every pass: what was not decided on yet is no loss.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, keeping what is in it.

        Raises:
            OSError: it can't be written.
        """
        self._file = io.BufferedWriter(path.open("ab+", buffering=0))

    @property
    def closed(self) -> bool:
        return self._file.closed

    def begin(self, commit_timeout: float) -> None:
        """A fresh core starts: a log may hold the terms of several leaders."""
        self._end_line()
        self._file.write(encode(Begin(commit_timeout)))

    def record(self, event: Event, commands: Sequence[Command]) -> None:
        """One event and its answer."""
        self._file.write(encode(event))
        self._file.write(encode_answer(commands))
        if isinstance(event, Pass):
            self._file.flush()

    def _end_line(self) -> None:
        """Drop a last line that is not whole: whoever wrote it was killed, and nothing could be read after it."""
        self._file.flush()
        if not os.fstat(self._file.fileno()).st_size:
            return
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            whole = content.rfind(b"\n") + 1
        self._file.truncate(whole)

    def close(self) -> None:
        """Write what is left and close the file; a second time does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
