"""Where the host expects gangs: nodes on which they are in nobody's way for whom it keeps room in this member.

The host knows whom it has promised what; the member knows its nodes better. So this is a wish: a gang whose nodes have
no room any more goes wherever it fits. Others leave these nodes to it as long as they fit elsewhere: they may be older,
and the host has decided on all of them side by side.
"""

from __future__ import annotations

from collections import Counter

from atoll.agent.scheduler.gangs import Standing
from atoll.model import vector
from atoll.model.decision import Spots
from atoll.model.vector import Vector


class Expected:
    """Binding UID -> where the pods of its newest dispatch are expected."""

    def __init__(self) -> None:
        """Begin without any."""
        self._spots: dict[str, tuple[int, Spots]] = {}

    def expect(self, uid: str, epoch: int, spots: Spots) -> None:
        """Remember where a dispatch is expected, unless a newer one is known."""
        if epoch >= self._spots.get(uid, (-1, ()))[0]:
            self._spots[uid] = (epoch, spots)

    def forget(self, uid: str) -> None:
        """The binding has nothing here any more."""
        self._spots.pop(uid, None)

    def wanted(self, view: Standing) -> dict[str, Vector] | None:
        """Node -> what its waiting pods are expected to take there; None where anything will do."""
        epoch, spots = self._spots.get(view.binding_uid, (-1, ()))
        if epoch != view.epoch or not spots or view.settled:
            return None
        requests = {pod.task: pod.requests for pod in reversed(view.waiting)}
        wanted: dict[str, Vector] = {}
        pods: Counter[str] = Counter()
        for task, node, count in spots:
            vector.add(wanted.setdefault(node, {}), requests.get(task, {}), count)
            pods[task] += count
        return wanted if pods == Counter(pod.task for pod in view.waiting) else None
