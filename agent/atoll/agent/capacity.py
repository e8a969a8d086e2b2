"""Free amounts of a member as its scheduler knows them, summarised for the host; a change costs the nodes it
touched.
"""

from __future__ import annotations

from typing import Any

from atoll.agent.scheduler.core.room import Room
from atoll.agent.summary import NodeRoom, Summary
from atoll.model.topology import NO_DOMAIN

Json = dict[str, Any]


class MemberCapacity:
    """The ClusterCapacity specs of one member; it alone clears what `room` notes as refilled."""

    def __init__(self, cluster: str, room: Room) -> None:
        self._cluster, self._room = cluster, room
        self._summary: Summary | None = None
        #: of the `Room` when `_summary` was made
        self._said = -1, False, -1

    def specs(self) -> dict[str, Json]:
        """As the `Room` is now, by object name, without `generation`; don't change them."""
        room = self._room
        if self._summary is None or self._said != (room.layout, room.aligns, room.numa_kinds):
            self._said = room.layout, room.aligns, room.numa_kinds
            self._summary = self._begin()
        else:
            for name in room.refilled:
                if room.usable(name):
                    self._summary.set_free(name, room.free(name))
        room.refilled.clear()
        return self._summary.specs()

    def _begin(self) -> Summary:
        room = self._room
        nodes = room.ready_nodes()
        tree, lowest = room.topology()
        others = room.other_trees()
        rooms = [
            NodeRoom(
                node.metadata.name,
                node.metadata.labels,
                node.taints,
                room.allocatable(node.metadata.name),
                room.free(node.metadata.name),
                lowest.get(node.metadata.name, NO_DOMAIN),
                {
                    name: grown.lowest[node.metadata.name]
                    for name, grown in others.items()
                    if node.metadata.name in grown.lowest
                },
                room.numa_of(node.metadata.name),
            )
            for node in nodes
        ]
        trees = {name: grown.tree for name, grown in others.items()}
        return Summary(self._cluster, rooms, tree, room.topology_problems, trees, aligns=room.aligns)
