"""Where pods on their own go, one after the other: what nodes hold of pods of one shape is kept from pod to pod.

Only nodes on which other amounts are free are worked out anew. What depends on more than amounts, such as rules between
pods, host ports, volumes, NUMA nodes, a scoring or a wish about the topology, is left to `place`.
"""

from __future__ import annotations

import msgspec
import numpy as np

from atoll.fit.constraints import Cards, Numa
from atoll.fit.nodes import Nodes
from atoll.fit.place import OneRoom, place
from atoll.fit.placement import Placement
from atoll.fit.site import cell_sums
from atoll.model.cards import SHARE
from atoll.model.gang import Gang, Task
from atoll.model.koordinator import counted
from atoll.model.topology import NO_DOMAIN

_MOST_SHAPES = 16
"""That are kept; each has one figure per node."""
_encoder = msgspec.json.Encoder(order="deterministic")


class Singles:
    """What nodes hold of each shape of pods, those first that were asked for last."""

    def __init__(self) -> None:
        """Begin without nodes."""
        self._nodes: Nodes | None = None
        #: shape -> its cached answers, the longest unused first
        self._kept: dict[bytes, _Kept] = {}

    def begin(self, nodes: Nodes) -> None:
        """These are the nodes from now on: only free amounts on them will change."""
        self._nodes = nodes
        self._kept.clear()

    def changed(self, column: int) -> None:
        """Other amounts are free on this node."""
        for kept in self._kept.values():
            kept.stale.add(column)

    def place(self, gang: Gang) -> Placement | None:
        """Where `atoll.fit.place` puts the gang on these nodes; None where only that can tell."""
        nodes = self._nodes
        if nodes is None or not _is_plain(gang, nodes) or nodes.scoring_of(gang) is not None:
            return None
        [task] = gang.tasks
        asks = (task.requests, task.node_selector, task.node_terms, task.tolerations, task.aligned, task.priority)
        key = _encoder.encode(asks)
        kept = self._kept.pop(key, None)
        if kept is None:
            if len(self._kept) >= _MOST_SHAPES:
                del self._kept[next(iter(self._kept))]
            kept = _Kept(nodes, task)
        self._kept[key] = kept
        kept.refresh(nodes)
        stocked = nodes.company.stocked(task) if nodes.company is not None else None
        return place(nodes, gang, room=OneRoom(kept.held, kept.room.take, stocked), explain=False)


class _Kept:
    """What nodes hold of pods of one shape, but for those with taints that the pods should rather avoid."""

    def __init__(self, nodes: Nodes, task: Task) -> None:
        self._asks = [(name, amount) for name, amount in task.requests.items() if amount > 0]
        accepts, disliked = nodes.accepting(task), nodes.disliked(task)
        self._allowed = accepts if disliked is None else accepts & ~disliked
        self.room = np.where(self._allowed, nodes.room(task.requests), 0)
        #: as `OneRoom.held`
        self.held: list[int] = cell_sums([*nodes.domain], len(nodes.tree.domains) + 1, self.room).tolist()
        #: nodes on which other amounts are free since `refresh`
        self.stale: set[int] = set()

    def refresh(self, nodes: Nodes) -> None:
        """Compute changed answers anew."""
        for column in self.stale:
            if not self._allowed[column]:
                continue
            room = nodes.room_on(column, self._asks)
            more = room - int(self.room[column])
            self.room[column] = room
            for domain in nodes.domain[:, column].tolist() if more else ():
                if domain != NO_DOMAIN:
                    self.held[domain] += more
        self.stale.clear()


def _is_plain(gang: Gang, nodes: Nodes) -> bool:
    """Whether it is one pod that says nothing but what a shape has, whatever else a gang may say one day."""
    if len(gang.tasks) != 1 or gang != Gang("", gang.tasks, 1):
        return False
    [task] = gang.tasks
    if SHARE in counted(task.requests) and any(isinstance(each, Cards) and each.one_by_one for each in nodes.exact):
        return False
    if SHARE in task.requests or (task.aligned and any(isinstance(each, Numa) for each in nodes.exact)):
        return False
    return task == Task(
        task.name,
        1,
        task.min_available,
        task.requests,
        task.node_selector,
        task.node_terms,
        task.tolerations,
        images=task.images,
        aligned=task.aligned,
        own_terms=task.own_terms,
        priority=task.priority,
    )
