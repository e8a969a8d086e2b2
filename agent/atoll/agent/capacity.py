"""Free amounts of a member as its scheduler knows them, summarised for the host; a change costs the nodes it
touched.
"""

from __future__ import annotations

from typing import Any

from atoll.agent.scheduler.core.device_book import Aside
from atoll.agent.scheduler.core.room import Room
from atoll.agent.summary import NodeRoom, Summary
from atoll.model.claim_shapes import Shape
from atoll.model.topology import NO_DOMAIN
from atoll.model.vector import Vector

Json = dict[str, Any]


class MemberCapacity:
    """The ClusterCapacity specs of one member; it alone clears what `room` notes as refilled."""

    def __init__(self, cluster: str, room: Room) -> None:
        self._cluster, self._room = cluster, room
        self._summary: Summary | None = None
        #: of the `Room` when `_summary` was made
        self._said = -1, False, -1
        #: shapes of claims that the host asks about, and nodes of which not all are counted yet
        self._shapes: dict[str, Shape] = {}
        self._undone: set[str] = set()
        self._devices = Aside(room.devices)

    @property
    def unfinished(self) -> bool:
        """Whether the next specs may say more, though nothing changes."""
        return self._devices.unfinished

    def ask(self, shapes: dict[str, Shape]) -> bool:
        """Count pods of these shapes from now on; whether these are others."""
        if shapes.keys() == self._shapes.keys():
            return False
        self._shapes, self._summary = shapes, None
        return True

    def specs(self) -> dict[str, Json]:
        """As the `Room` is now, by object name, without `generation`; don't change them."""
        room = self._room
        self._devices.begin_pass()
        if self._summary is None or self._said != (room.layout, room.aligns, room.numa.kinds):
            self._said = room.layout, room.aligns, room.numa.kinds
            self._summary = self._begin()
        else:
            for name in sorted(room.refilled | self._undone):
                if room.fleet.usable(name):
                    self._summary.set_free(name, self._free(name))
        room.refilled.clear()
        return self._summary.specs()

    def _free(self, node: str) -> Vector:
        """With pods of the shapes that are asked about, where its devices could be counted by now."""
        free = self._room.amounts.free(node)
        self._undone.discard(node)
        for name, shape in self._shapes.items() if self._devices.offered(node) else ():
            fits = self._devices.fits(name, shape, node)
            if fits is None:
                self._undone.add(node)
            else:
                free[name] = fits
        return free

    def _begin(self) -> Summary:
        room = self._room
        self._undone.clear()
        nodes = room.fleet.ready()
        tree, lowest = room.fleet.topology()
        others = room.fleet.other_trees()
        rooms = [
            NodeRoom(
                node.metadata.name,
                node.metadata.labels,
                node.taints,
                room.amounts.offered(node.metadata.name),
                self._free(node.metadata.name),
                lowest.get(node.metadata.name, NO_DOMAIN),
                {
                    name: grown.lowest[node.metadata.name]
                    for name, grown in others.items()
                    if node.metadata.name in grown.lowest
                },
                room.numa.of(node.metadata.name),
            )
            for node in nodes
        ]
        trees = {name: grown.tree for name, grown in others.items()}
        lost = [(name, lowest.get(name, NO_DOMAIN)) for name in room.fleet.unusable()]
        return Summary(self._cluster, rooms, tree, room.fleet.problems, trees, aligns=room.aligns, lost=lost)
