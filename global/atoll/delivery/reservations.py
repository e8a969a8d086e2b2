"""What delivery asks of whoever keeps nodes free for parts that are not applied yet: the agent's scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from atoll.model.decision import Gone, Spots
from atoll.model.gang import Gang


@dataclass(frozen=True)
class Asked:
    """A part that the host has sent or wants nodes kept for."""

    uid: str
    """Of the binding."""
    epoch: int
    gang: Gang
    """Of this part only."""
    name: str
    """Of the workload."""
    namespace: str


class Reservations(Protocol):
    """Nodes reserved for the parts of gangs; all calls come from the event loop that the implementation runs in."""

    def recall(self, parts: Iterable[Asked]) -> None:
        """Go on keeping what an earlier process kept for these parts, and nothing else; called once, before `hold`."""

    def hold(self, uid: str, epoch: int, gang: Gang, name: str, namespace: str, *, gone: Gone | None = None) -> None:
        """Keep nodes for the part, or say why not; the same call again renews it.

        A hold ends by itself when it is not renewed for its time to live, so it must be called again well within a
        minute for as long as the Work is suspended. A newer epoch replaces an older one; an older one is ignored.

        Args:
            uid: of the binding.
            epoch: of the decision.
            gang: of this part only, its tasks named as the pods' `volcano.sh/task-spec` will name them.
            name: of the workload.
            namespace: of the workload in the member.
            gone: makes it a question, which keeps no nodes: would the part fit if these pods were gone?
        """

    def expect(self, uid: str, epoch: int, spots: Spots) -> None:
        """Place the pods of this dispatch on these nodes, if they fit; nothing is reserved there."""

    def grant(self, uid: str, epoch: int, gang: Gang) -> None:
        """Place no more pods of this dispatch than its part has."""

    def state(self, uid: str) -> dict[str, Any] | None:
        """The answer as it stands; None when there is no hold, or no answer yet.

        Returns:
            `epoch`; `state`: Reserved, Refused, or Fits where it is a question; `nodes`: node -> pods, empty where none
            are kept; `domain` and `tier`: the smallest around them, "" and 0 where there is none; `message`: why it is
            refused; `requested` and `available`: pods; `generation`: of the ClusterCapacity that has these nodes as
            used, 0 where none are kept; `expires`: RFC 3339, a time until which the answer stands for certain. Equal
            until something changes.
        """

    def release(self, uid: str) -> None:
        """Give the nodes back, where there are any, and forget the binding."""

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call `callback(binding UID)` whenever `state` has something new to say."""
