"""The records' store: Parquet files in a folder, or at any URL for which fsspec has a file system.

A day's folder is a log: each writer puts the file after the last one that it knows, and a put fails where that file
exists. So of two leaders one loses and reads again, and a record whose write was interrupted is looked up before it
is written once more. The first file of a new day comes after a file without rows that ends the day before.
"""

from __future__ import annotations

import io
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import fsspec
import pyarrow
from fsspec.implementations.local import LocalFileSystem
from pyarrow import parquet

from atoll.model.runs import Record, columns

_DAY: Final = re.compile(r"day=(\d{4}-\d\d-\d\d)")
_FILE: Final = re.compile(r"(\d{6})\.parquet")
_RECENT: Final = 100_000
"""Identities of records that this process wrote last."""

_TIME = pyarrow.timestamp("ms", tz="UTC")
_AMOUNTS = pyarrow.map_(pyarrow.string(), pyarrow.float64())
_PART = pyarrow.struct(
    [
        ("member", pyarrow.string()),
        ("pods", pyarrow.int32()),
        ("domain", pyarrow.string()),
        ("granted", _AMOUNTS),
        ("seconds", _AMOUNTS),
        ("busy", _AMOUNTS),
    ]
)
SCHEMA: Final = pyarrow.schema(
    [
        *((name, pyarrow.string()) for name in ("id", "uid", "namespace", "name", "kind", "queue", "user")),
        ("epoch", pyarrow.int64()),
        *((name, _TIME) for name in ("submitted", "queued", "dispatched", "bound", "running", "ended", "released")),
        *((name, pyarrow.string()) for name in ("outcome", "reason", "message", "evicted_for", "for_queue")),
        ("members", pyarrow.list_(pyarrow.string())),
        *((name, _AMOUNTS) for name in ("asked", "granted", "seconds", "busy")),
        ("parts", pyarrow.list_(_PART)),
    ]
)
"""Columns of each file (docs/records.md)."""


class Ledger:
    """The store as one process writes it. Its methods block: call them in a thread, one at a time."""

    def __init__(self, url: str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Raises:
        ImportError: the package of the URL's file system is not installed.
        ValueError: fsspec knows no such file system.
        """
        self._fs, self._root = fsspec.core.url_to_fs(url)
        self._now = now
        self._day, self._next = "", 0
        #: identities, in the order of their writes
        self._recent: dict[str, None] = {}

    def append(self, records: Sequence[Record], unsure: Mapping[str, str]) -> None:
        """Write the records that are not there yet; an error leaves it open whether they are.

        Args:
            records: to write; written ones are left out.
            unsure: identity of each record that may be written already -> time of its release.

        Raises:
            OSError: the store failed, or another process writes to it.
        """
        if not records:
            return
        if not self._day:
            self._find_end(unsure)
        today = self._now().strftime("%Y-%m-%d")
        if today > self._day:
            self._put([])
            self._day, self._next = today, 0
        fresh = [each for each in records if each.id not in self._recent]
        if fresh:
            self._put(fresh)
            self._recent.update(dict.fromkeys(each.id for each in fresh))
        for old in list(self._recent)[: max(len(self._recent) - _RECENT, 0)]:
            del self._recent[old]

    def expire(self, days: int) -> int:
        """Remove folders of days that ended longer ago; returns how many."""
        limit = (self._now() - timedelta(days=days)).strftime("%Y-%m-%d")
        gone = [day for day in _days(self._fs, self._root) if day < limit]
        for day in gone:
            self._fs.rm(f"{self._root}/day={day}", recursive=True)
        return len(gone)

    def _find_end(self, unsure: Mapping[str, str]) -> None:
        """The end of the log, and which of these records are in it."""
        self._recent.clear()
        days = _days(self._fs, self._root)
        # Clocks of two leaders may differ.
        first = datetime.fromisoformat(min(unsure.values())) - timedelta(days=1)
        since = first.strftime("%Y-%m-%d")
        for day in days:
            if day >= since or day == days[-1]:
                for path in _files(self._fs, self._root, day):
                    with self._fs.open(path, "rb") as file:
                        found = parquet.read_table(file, columns=["id"]).column("id").to_pylist()
                    self._recent.update(dict.fromkeys(unsure.keys() & set(found)))
        last = _files(self._fs, self._root, days[-1])[-1:] if days else []
        self._day = days[-1] if days else self._now().strftime("%Y-%m-%d")
        self._next = int(last[0].rpartition("/")[2].partition(".")[0]) + 1 if last else 0

    def _put(self, records: Sequence[Record]) -> None:
        """Create the next file."""
        table = pyarrow.Table.from_pylist([columns(each) for each in records], schema=SCHEMA)
        buffer = io.BytesIO()
        parquet.write_table(table, buffer, compression="zstd")
        folder, day = f"{self._root}/day={self._day}", self._day
        # Without an answer the file may be there or not.
        self._day = ""
        self._fs.makedirs(folder, exist_ok=True)
        create(self._fs, f"{folder}/{self._next:06}.parquet", buffer.getvalue())
        self._day, self._next = day, self._next + 1


def read(url: str, since: datetime, until: datetime, names: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Records of runs that held capacity in this time, day by day; maps are lists of pairs.

    Args:
        url: of the store.
        since: only runs that were released later.
        until: only runs that were dispatched earlier.
        names: of the columns, for nested ones take most of the time; None for all.

    Raises:
        ImportError: the package of the URL's file system is not installed.
        OSError: the store can't be read.
    """
    fs, root = fsspec.core.url_to_fs(url)
    for day in _days(fs, root):
        # A run is written after its end.
        if day >= since.astimezone(UTC).strftime("%Y-%m-%d"):
            for path in _files(fs, root, day):
                with fs.open(path, "rb") as file:
                    wanted = [("released", ">=", since), ("dispatched", "<", until)]
                    table = parquet.read_table(file, columns=names, filters=wanted)
                yield from table.to_pylist()


def create(fs: Any, path: str, content: bytes) -> None:
    """Make a whole file that is not there yet.

    Raises:
        FileExistsError: it is there.
    """
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(path, content, mode="create")
        return
    folder, _, name = path.rpartition("/")
    # Readers of such folders leave out names that begin with a dot.
    draft = f"{folder}/.{name}.{uuid.uuid4().hex}"
    try:
        with open(draft, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        os.unlink(draft)


def _days(fs: Any, root: str) -> list[str]:
    return sorted(found[1] for name in _names(fs, root) if (found := _DAY.fullmatch(name)))


def _files(fs: Any, root: str, day: str) -> list[str]:
    folder = f"{root}/day={day}"
    return [f"{folder}/{name}" for name in sorted(_names(fs, folder)) if _FILE.fullmatch(name)]


def _names(fs: Any, folder: str) -> list[str]:
    fs.invalidate_cache()
    try:
        return [path.rstrip("/").rpartition("/")[2] for path in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        return []
