"""The seam of constraints counted beside the resource vector."""

from __future__ import annotations

from typing import Protocol, Self

from atoll.fit.placement import Ints
from atoll.model.gang import Task


class Exact(Protocol):
    """What of each node is taken, piece by piece."""

    def room(self, task: Task, nodes: int) -> Ints | None:
        """int64[N]: how many pods of the task each node holds at most; None where it asks for none of this."""

    def take(self, task: Task, node: int, count: int) -> None:
        """So many pods of the task are put on the node with this index; they fit there."""

    def copy(self) -> Self:
        """An independent one."""
