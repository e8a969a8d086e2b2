"""Where the host expects gangs: nodes on which they delay no workload with a reservation in this member.

The host knows its reservations; the member knows its nodes better. So this is a wish: a gang whose nodes have
no room any more goes wherever it fits. Others leave these nodes to it as long as they fit elsewhere: they may be older,
and the host has decided on all of them side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.gangs import Standing
from atoll.model import vector
from atoll.model.decision import Spots
from atoll.model.vector import Vector


class Expected:
    """Binding UID -> where the pods of its newest dispatch are expected, or those by which it grew last."""

    def __init__(self) -> None:
        """Begin without any."""
        self._spots: dict[str, tuple[int, Spots]] = {}
        #: binding UID -> (task, node) -> pods without a node yet
        self._left: dict[str, Counter[tuple[str, str]]] = {}

    def expect(self, uid: str, epoch: int, spots: Spots) -> None:
        """Remember where pods of a dispatch are expected, unless a newer one is known."""
        before = self._spots.get(uid, (-1, ()))
        if epoch >= before[0] and (epoch, spots) != before:
            self._spots[uid] = (epoch, spots)
            self._left[uid] = _counted(spots)

    def forget(self, uid: str) -> None:
        """The binding has nothing here any more."""
        self._spots.pop(uid, None)
        self._left.pop(uid, None)

    def wanted(self, view: Standing) -> dict[str, Vector] | None:
        """Node -> expected use of its waiting pods there; None where any node will do.

        A growing gang gets its pods one after the other, so fewer may wait than are expected.
        """
        epoch, spots = self._spots.get(view.binding_uid, (-1, ()))
        if epoch != view.epoch or not spots:
            return None
        if not view.settled:
            # It begins, perhaps anew.
            self._left[view.binding_uid] = _counted(spots)
        left = self._left[view.binding_uid]
        requests = {pod.task: pod.requests for pod in reversed(view.waiting)}
        wanted: dict[str, Vector] = {}
        pods: Counter[str] = Counter()
        for (task, node), count in left.items():
            vector.add(wanted.setdefault(node, {}), requests.get(task, {}), count)
            pods[task] += count
        return wanted if Counter(pod.task for pod in view.waiting) <= pods else None

    def placed(self, view: Standing, nodes: Iterable[tuple[Pod, str]]) -> None:
        """These pods of it have nodes now."""
        if (left := self._left.get(view.binding_uid)) is not None:
            left.subtract((pod.task, node) for pod, node in nodes)
            self._left[view.binding_uid] = +left


def _counted(spots: Spots) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for task, node, count in spots:
        counts[task, node] += count
    return counts
