"""Indices of a JobArray and their states: one byte for each index, compressed to one short text.

A byte has the state in its two lowest bits, and above them how often the index has failed. Indices mostly start in
their order, so that nearly all neighbours are equal: 10,000 indices are some hundred bytes, and the worst case of
`MOST` ones is 92 kB.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, islice, pairwise
from typing import Final, NamedTuple

MOST: Final = 100_000
"""Indices of one array."""
MOST_AT_ONCE: Final = 1000
"""Of them that run at once."""
MOST_RETRIES: Final = 10
"""Of one index."""
LARGEST: Final = 999_999
"""The largest index: names of Jobs and pods end with it."""
MOST_TEXT: Final = 140_000
"""Characters of an encoded text."""
_MOST_RUNS: Final = 1000

PENDING, RUNNING, SUCCEEDED, FAILED = range(4)
_STATE: Final = bytes(byte & 3 for byte in range(256))
_PROGRESS: Final = [byte >> 2 | (64 if byte & 3 >= SUCCEEDED else 0) for byte in range(256)]


class Counts(NamedTuple):
    """Indices by state."""

    pending: int
    running: int
    succeeded: int
    failed: int

    @property
    def ended(self) -> int:
        """Indices that never run again."""
        return self.succeeded + self.failed


def byte(state: int, failures: int = 0) -> int:
    """Of an index in this state that failed so often."""
    return failures << 2 | state


def failures(value: int) -> int:
    """How often the index of this byte has failed."""
    return value >> 2


def states_of(states: bytes) -> bytes:
    """The states alone: `PENDING` and so on."""
    return states.translate(_STATE)


def counts(states: bytes) -> Counts:
    """Indices by state."""
    plain = states_of(states)
    return Counts(*(plain.count(state) for state in range(4)))


def unstarted(states: bytes) -> bytes:
    """The same where nothing runs yet: for another member."""
    return states.translate(bytes(value & ~3 if value & 3 == RUNNING else value for value in range(256)))


def further(states: bytes, others: bytes) -> bytes:
    """The same, but of others where these are further: an index has ended that has not here, or failed more often."""
    if states == others:
        return states
    return bytes(b if _PROGRESS[b] > _PROGRESS[a] else a for a, b in zip(states, others, strict=True))


def encode(states: bytes) -> str:
    """As text."""
    return base64.b64encode(zlib.compress(states, 6)).decode()


def decode(text: str, count: int) -> bytes:
    """The states of so many indices.

    Raises:
        ValueError: it is no such text, or has another number of indices.
    """
    if len(text) > MOST_TEXT:
        raise ValueError(f"{len(text)} characters of states; at most {MOST_TEXT}")
    try:
        unpacker = zlib.decompressobj()
        # A small text may be a large number of zeros.
        states = unpacker.decompress(base64.b64decode(text, validate=True), count + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"states can't be read: {error}") from error
    if len(states) != count:
        raise ValueError(f"states are of another number of indices than {count}")
    return states


# -- indices ---------------------------------------------------------------------------------------------------------


def runs_of(indices: object) -> list[range]:
    """The indices of `200`, `0-199` or `0-9,20,30-39`, in their order.

    Raises:
        ValueError: it is neither a count nor such ranges, or there are too many.
    """
    if type(indices) is int:
        found = [range(indices)] if indices > 0 else []
    else:
        parts = indices.split(",", _MOST_RUNS) if isinstance(indices, str) and len(indices) <= 16 * _MOST_RUNS else []
        if len(parts) > _MOST_RUNS:
            raise ValueError(f"more than {_MOST_RUNS} ranges of indices")
        found = [_run(part) for part in parts]
    if not found or any(not run for run in found):
        raise ValueError(f"{str(indices)[:40]!r} is neither a count of indices nor ranges such as 0-199 or 0-9,20")
    if any(later.start < earlier.stop for earlier, later in pairwise(found)):
        raise ValueError("ranges of indices rise, and none is in two of them")
    if found[-1].stop > LARGEST + 1:
        raise ValueError(f"{found[-1].stop - 1} is above the largest index, {LARGEST}")
    if (total := count_of(found)) > MOST:
        raise ValueError(f"{total} indices; an array has at most {MOST}: make several of it")
    return found


def _run(part: str) -> range:
    first, dash, last = part.strip().partition("-")
    if not (_digits(first) and (_digits(last) if dash else not last)):
        return range(0)
    return range(int(first), int(last or first) + 1)


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6


def count_of(runs: Iterable[range]) -> int:
    """How many indices these are."""
    return sum(map(len, runs))


def index_at(runs: Sequence[range], position: int) -> int:
    """The index whose byte is there."""
    for run in runs:
        if position < len(run):
            return run[position]
        position -= len(run)
    raise IndexError(position)


def position_of(runs: Sequence[range], index: int) -> int | None:
    """Where the byte of an index is; None for an index that is none of these."""
    before = 0
    for run in runs:
        if index in run:
            return before + index - run.start
        before += len(run)
    return None


def positions(states: bytes, state: int) -> Iterator[int]:
    """Where indices in this state are, in rising order."""
    plain, at = states_of(states), -1
    while (at := plain.find(state, at + 1)) >= 0:
        yield at


def indices_in(runs: Sequence[range], states: bytes, state: int) -> Iterator[int]:
    """The indices in this state, in rising order."""
    mask = states_of(states).translate(bytes(value == state for value in range(256)))
    return compress(chain.from_iterable(runs), mask)


def ranges(indices: Iterable[int]) -> Iterator[range]:
    """Rising indices as ranges, each as long as possible."""
    first = last = -2
    for index in indices:
        if index != last + 1:
            if first >= 0:
                yield range(first, last + 1)
            first = index
        last = index
    if first >= 0:
        yield range(first, last + 1)


def written(run: range) -> str:
    """A range as people write it: `7` or `7-9`."""
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def told(runs: Sequence[range], states: bytes, state: int, *, most: int = 1000) -> str:
    """The indices in this state as ranges, about so many characters at most; `…` at the end where some are missing."""
    parts: list[str] = []
    length = 0
    for run in ranges(indices_in(runs, states, state)):
        if length > most:
            return ",".join([*parts, "…"])
        parts.append(written(run))
        length += len(parts[-1]) + 1
    return ",".join(parts)


def short(indices: Iterable[int], *, most: int = 10) -> str:
    """Rising indices for people: `3,17,40-44 (+12 more)`, with so many ranges at most."""
    found = ranges(indices)
    head = ",".join(map(written, islice(found, most)))
    more = count_of(found)
    return f"{head} (+{more} more)" if more else head
