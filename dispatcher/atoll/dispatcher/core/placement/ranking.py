"""The order of the members that could take a workload in one place.

One that takes all of its pods before one that takes only its minimum; then the nearer tier; then one that keeps up with
earlier decisions; then the one with the fewest further such pods, so that large gaps stay whole; then by
name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.placement.rules import ANYWHERE, Rules
from atoll.fit import Placement
from atoll.fit.placement import MANY
from atoll.model.gang import Gang


class Rank(NamedTuple):
    """The place of a member, the least first."""

    partial: bool
    """It does not take all pods."""
    tier: int
    """Of the domain around them."""
    behind: int
    """Bursts of decisions that it has not confirmed."""
    left: int
    """Further pods that it can take."""
    name: str


def rank(name: str, gang: Gang, placement: Placement, left: int) -> Rank:
    """The place of a member by a placement in it, on nodes without open decisions."""
    tier = MANY if placement.tier is None else placement.tier
    return Rank(sum(placement.counts) < gang.replicas, tier, 0, left, name)


def ranked(shape: Shape, members: Members, ready: NDArray[np.bool_], rules: Rules = ANYWHERE) -> Iterator[Member]:
    """Members that can take every task's minimum, the first rank first: from their figures, which
    count each task by itself, for to place a gang in each member would cost too much. Before all of that go the scores
    of its user's strategy, where it has one.
    """
    table = members.table
    fits = ready
    for row, wanted in zip(shape.rows, shape.floor, strict=True):
        fits = fits & (table.counts[row] >= wanted)
    columns = fits.nonzero()[0]
    if columns.size > 1:
        # The last key is the first of the rank; stable, so that the name decides last.
        keys = [
            table.counts[shape.rows[0]].take(columns),
            members.unconfirmed.take(columns) // members.most_unconfirmed,
        ]
        if shape.near:
            keys.append(table.nearest_tier(shape).take(columns))
        if shape.full != shape.floor:
            rows = table.counts[list(shape.rows)][:, columns]
            keys.append(~(rows >= np.array(shape.full)[:, None]).all(axis=0))
        scored = [table.order[column] for column in columns] if rules.scoring else []
        scores = rules.scores(shape.gang, scored, table.counts[list(shape.rows)][:, columns]) if scored else None
        if scores:
            keys.append(np.array([-float(scores.get(member.name, 0.0)) for member in scored]))
        columns = columns.take(np.lexsort(keys))
    for column in columns:
        yield table.order[column]
