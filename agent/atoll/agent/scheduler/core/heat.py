"""Hot nodes keep pods of low priority off only while the descheduler renews their taint; pure.

A descheduler that stops, is uninstalled or sees no use leaves its taints. `timeAdded` says when a look renewed one; the
number of an older one counts no more, and the taint is a preference.
"""

from __future__ import annotations

import math

import msgspec

from atoll.agent.objects import Node
from atoll.agent.scheduler.core.room import Room
from atoll.fit.constraints import taints
from atoll.model import keys
from atoll.model.timestamps import is_time, to_seconds


class Heat:
    """When numbers of taints end."""

    def __init__(self, room: Room) -> None:
        self._room = room
        #: node whose number counts -> when it was renewed, in seconds since 1970; 0 for never
        self._renewed: dict[str, float] = {}
        #: seconds since 1970 at the last pass; 0 where they mean nothing
        self._clock = 0.0
        #: seconds since 1970 minus seconds of passes
        self._offset = math.inf

    @property
    def deadline(self) -> float | None:
        """When the first number ends, in seconds of passes."""
        ends = [at + taints.LASTS for at in self._renewed.values()]
        return min(ends) - self._offset if ends and self._offset < math.inf else None

    def node_changed(self, node: Node) -> Node:
        """The node as the `Room` may know it."""
        name = node.metadata.name
        self._renewed.pop(name, None)
        own = [each for each in node.spec.taints if each.get("key") == keys.HOT]
        if taints.least_priority(own) is None:
            return node
        times = (str(each.get("timeAdded") or "") for each in own)
        at = max((to_seconds(text) for text in times if is_time(text)), default=0.0)
        if self._over(at):
            return _preferred(node)
        self._renewed[name] = at
        return node

    def node_gone(self, name: str) -> None:
        """There is no such node any more."""
        self._renewed.pop(name, None)

    def expire(self, now: float, clock: float) -> None:
        """Ignore numbers that were not renewed; both clocks at one moment, `clock` 0 where it means nothing."""
        self._clock, self._offset = clock, clock - now if clock else math.inf
        for name in [name for name, at in self._renewed.items() if self._over(at)]:
            del self._renewed[name]
            if (node := self._room.fleet.known(name)) is not None:
                self._room.node_changed(name, _preferred(node))

    def _over(self, at: float) -> bool:
        # A clock that is ahead by more makes the time as doubtful as age does.
        return bool(self._clock) and abs(self._clock - at) >= taints.LASTS


def _preferred(node: Node) -> Node:
    """With a taint that is a preference alone."""
    found = [
        {key: value for key, value in each.items() if key != "value"} if each.get("key") == keys.HOT else each
        for each in node.spec.taints
    ]
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=found))
