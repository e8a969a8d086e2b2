"""What decides beside nodes where one workload may go: one object, asked by whatever places it or tries to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.placement.choice import Choice
from atoll.fit.placement import Ints
from atoll.model.gang import Gang
from atoll.model.vector import Vector
from atoll.model.verdict import Verdict


class Rules:
    """The rules for one workload; these by themselves forbid no choice, and hold no state."""

    avoided: Set[str] = frozenset()
    """Members that failed its shape lately, or refuse it."""
    permit_all: bool = True
    """Whether every choice is permitted."""
    scoring: bool = False
    """Whether a strategy of its user orders members."""

    def serves(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool[members]: these members, restricted to its queue's."""
        return allowed

    def permits(self, choice: Choice) -> bool:
        """Whether it may go there."""
        return True

    def settle(self, choice: Choice) -> Choice | None:
        """The choice if it is permitted, or the same on nodes on which it is."""
        return choice

    def bars(self, member: Member) -> bool:
        """Whether `settle` is known to refuse the member alone; cheaper than to place the gang there."""
        return False

    def capped(self, choice: Choice) -> Verdict | None:
        """The ceiling that a choice exceeds in one of its members, if any."""
        return None

    def times(self, member: Member, request: Vector, most: int) -> int:
        """How many requests the ceilings in a member allow, `most` at most."""
        return most

    def scores(self, gang: Gang, members: Sequence[Member], counts: Ints) -> Mapping[str, float] | None:
        """Member -> score by a strategy of its user, the highest first; None for the usual order.

        `counts`: int64[tasks, members], how many pods of each task each holds.
        """
        return None

    def shares(
        self, gang: Gang, members: Sequence[Member], counts: Ints, ceilings: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """Member -> sets of the gang by a strategy of its user; None for the native division."""
        return None

    def overtake(self) -> None:
        """The choice permitted last is carried out, before the reservations that it delays by a better rank."""


ANYWHERE = Rules()
"""No rules."""
