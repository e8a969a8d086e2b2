"""Indices of a JobArray from one state to the next: pure, so that tests may stop it at any write.

The states are written before any Job is made or removed, and both follow from the states and the Jobs that exist: who
is stopped in between goes on with the same decision. A Job whose end is not in the states stays, and a Job that the
states don't ask for goes, so that no end is lost and no index runs twice at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from atoll.kinds import Outcome
from atoll.model.array_states import FAILED, PENDING, RUNNING, SUCCEEDED, byte, counts, failures, positions

KEPT = 5
"""Failed Jobs that stay, for their output."""


class Child(NamedTuple):
    """The Job of an index."""

    tried: int
    """How often its index had failed when it was made."""
    outcome: Outcome | None = None
    leaving: bool = False
    """It is being deleted."""


def following(
    states: bytes, children: Mapping[int, Child], *, at_once: int, retries: int, share: bytes | None = None
) -> bytes:
    """The states after all that the Jobs say.

    Args:
        states: one byte for each index, by position.
        children: position -> its Job, where it exists.
        at_once: indices that may run at once.
        retries: how often an index that failed runs again.
        share: 1 for each index that may be started; None for all.
    """
    made = bytearray(states)
    for position, child in children.items():
        before = made[position]
        if child.outcome is Outcome.SUCCEEDED and before in (byte(RUNNING, child.tried), byte(PENDING, child.tried)):
            # It may have ended while it was about to be stopped.
            made[position] = byte(SUCCEEDED, child.tried)
        elif child.outcome is Outcome.FAILED and before == byte(RUNNING, child.tried):
            failed = child.tried + 1
            made[position] = byte(FAILED if failed > retries else PENDING, failed)
    found = bytes(made)
    running = counts(found).running
    if running > at_once:
        # The ones that were started last have the least to lose.
        for position in [*positions(found, RUNNING)][at_once:]:
            made[position] = byte(PENDING, failures(found[position]))
    elif running < at_once:
        for position in positions(found, PENDING):
            if running == at_once:
                break
            if position not in children and (share is None or share[position]):
                made[position] = byte(RUNNING, failures(found[position]))
                running += 1
    return bytes(made)


def newly_failed(before: bytes, after: bytes) -> list[int]:
    """Positions that have failed for good in between; each has a Job."""
    return [at for at in positions(after, FAILED) if before[at] != after[at]]


def missing(states: bytes, children: Mapping[int, Child]) -> Iterator[tuple[int, int]]:
    """(position, earlier failures) of Jobs to make."""
    for position in positions(states, RUNNING):
        if position not in children:
            yield position, failures(states[position])


def surplus(states: bytes, children: Mapping[int, Child]) -> list[int]:
    """Positions of Jobs to remove: their ends are in the states, or they are not asked for."""
    over = [at for at, child in children.items() if not child.leaving and states[at] != byte(RUNNING, child.tried)]
    kept = sorted(at for at in over if states[at] == byte(FAILED, children[at].tried + 1))[:KEPT]
    return [at for at in over if at not in kept]
