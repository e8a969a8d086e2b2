"""Keeps a file of all that the core was told and answered, for `atoll.sim.replay` and for whoever reports a defect."""

from __future__ import annotations

import errno
import io
import itertools
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from atoll.dispatcher.core import Command, Event, Pass
from atoll.dispatcher.core.capacity.refusals import MOST_REFUSALS
from atoll.dispatcher.core.log import Begin, encode, encode_answer

ROTATED_AT = 256 * 2**20
"""Bytes after which the next term begins a file of its own."""
MAX_TERM = 8 * 2**30
"""Bytes of a file after which a term is recorded no further: it can only be replayed from its beginning."""
KEPT = 4
"""Files of earlier terms."""


class Recorder:
    """Appends to a log; a context manager that closes it.

    Lines reach the file after every pass: what was not decided on yet is no loss.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, keeping what is in it; only its owner may read it, for it names everybody's work.

        Raises:
            OSError: it can't be written.
        """
        self._path = path
        self._file = self._open()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def begin(self, commit_timeout: float, most_refusals: int = MOST_REFUSALS) -> None:
        """A fresh core starts: a log may hold the terms of several leaders.

        One that is large becomes `<path>.1`, the one before `<path>.2`, and so on up to `KEPT`.
        """
        self._end_line()
        if os.fstat(self._file.fileno()).st_size > ROTATED_AT:
            self._rotate()
        self._file.write(encode(Begin(commit_timeout, most_refusals)))

    def record(self, event: Event, commands: Sequence[Command]) -> None:
        """One event and its answer.

        Raises:
            OSError: it can't be written, or the log of this term is as long as it may become.
        """
        self._file.write(encode(event))
        self._file.write(encode_answer(commands))
        if isinstance(event, Pass):
            self._file.flush()
            if self._file.tell() > MAX_TERM:
                raise OSError(errno.EFBIG, f"{MAX_TERM} bytes are as long as the log of one term may become")

    def _open(self) -> io.BufferedWriter:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return io.BufferedWriter(os.fdopen(descriptor, "ab+", buffering=0))

    def _rotate(self) -> None:
        self._file.close()
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{number}") for number in range(1, KEPT + 1))]
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
        """Write what is left and close the file; a second time does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
