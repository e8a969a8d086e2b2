"""What runs, or is about to: what it holds and until when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.settings import BackfillSettings
from atoll.fit.freed import Held
from atoll.fit.pods import Pods
from atoll.model.decision import Spots
from atoll.model.gang import Gang
from atoll.model.vector import Vector


@dataclass(slots=True)
class Allocation:
    """Something that runs, or is about to."""

    leaf: Queue
    amount: Vector
    """What its queue is charged."""
    start: float
    end: float
    """Seconds since the epoch; infinite where it is not known."""
    parts: dict[str, tuple[Gang, Pods]]
    """Member -> (gang of the part, where its pods are or are expected)."""
    settings: BackfillSettings = BackfillSettings()

    def uses_in(self, member: str) -> Vector:
        """What its queue is charged for in a member."""
        if member not in self.parts:
            return {}
        return self.amount if len(self.parts) == 1 else self.parts[member][0].total()

    def expected_end(self, now: float) -> float:
        """When it is expected to end, seen from now; no other time until its member should have told of it."""
        if self.end + self.settings.settle > now or self.end == math.inf:
            return self.end
        return now + max(1.0, self.settings.overrun * (self.end - self.start))

    def over_at(self, when: float, now: float) -> bool:
        """Whether it is expected, seen from now, to be over by then."""
        return self.end < math.inf and self.expected_end(now) + self.settings.settle <= when


def held_of(allocation: Allocation, member: Member) -> Held:
    """What it holds in a member."""
    gang, pods = allocation.parts[member.name]
    columns = [member.nodes.column(task.requests) for task in gang.tasks]
    pods = [each for each in pods if each[1] < len(member.nodes)]
    where = np.array([node for _, node, _ in pods], np.int64)
    amounts = np.array([columns[task] * count for task, _, count in pods], np.int64)
    return where, amounts.reshape(len(pods), len(member.nodes.resources))


def where_seen(
    gang: Gang, nodes: Mapping[str, int], index: Mapping[str, int], likely: Sequence[Pods] = ()
) -> list[tuple[int, int, int]]:
    """Pods by task and node from a report that only counts pods per node: the first likely placement that has as many
    on each; else tasks in order, nodes by name.
    """
    if len(gang.tasks) > 1:
        seen = {index[name]: count for name, count in nodes.items() if name in index and count}
        for each in likely:
            counts: dict[int, int] = {}
            for _, node, count in each:
                counts[node] = counts.get(node, 0) + count
            if counts == seen:
                return list(each)
    pods: list[tuple[int, int, int]] = []
    wanted = gang.full()
    for name in sorted(nodes):
        left = nodes[name]
        for task in range(len(wanted)):
            count = min(left, wanted[task])
            if count and name in index:
                pods.append((task, index[name], count))
            wanted[task] -= count
            left -= count
    return pods


def placed_as_told(gang: Gang, spots: Spots, index: Mapping[str, int]) -> Pods:
    """Where a decision expects the pods of a part, by the indices of tasks and nodes; of nodes that are there."""
    tasks = {task.name: number for number, task in enumerate(gang.tasks)}
    return [(tasks[task], index[node], count) for task, node, count in spots if task in tasks and node in index]
