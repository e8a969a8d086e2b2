"""Problems of a HyperNode are written on it: condition `Valid`, and an Event where it is made or changed.

A HyperNode that was never wrong is never written to, nor is one that `atoll-topology` looks after: it says the same.
"""

from __future__ import annotations

import time
from typing import Any

from atoll.agent.cache import MemberCache
from atoll.agent.objects import HyperNode
from atoll.agent.scheduler.core.room import Room
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import HYPER_NODES
from atoll.model.conditions import find, with_condition
from atoll.model.topology import AVAILABLE, VALID

_RIGHT = "all of it is part of the member's topology"


class HyperNodes:
    """Keeps condition `Valid` of a member's HyperNodes true to what the scheduler makes of them."""

    def __init__(self, member: ApiServer, cache: MemberCache, recorder: Recorder, room: Room) -> None:
        """No I/O happens here; `run` does it."""
        self._member, self._cache, self._recorder, self._room = member, cache, recorder, room
        self._queue: WorkQueue[str] = WorkQueue("hypernodes", lambda name: {"hyper_node": name})
        #: of the `Room` at the last look
        self._layout = -1
        #: HyperNode -> its problem then
        self._wrong: dict[str, str] = {}
        cache.hyper_nodes.on_change(self._changed)

    def observe(self) -> None:
        """After every pass of the scheduler: nodes and HyperNodes may be others."""
        if self._layout == self._room.layout:
            return
        if self._layout < 0:
            # Conditions of an earlier agent can be judged only now.
            for domain in self._cache.hyper_nodes:
                self._changed(None, domain)
        self._layout = self._room.layout
        self._room.fleet.topology()
        wrong = dict(self._room.fleet.problems)
        for name in wrong.keys() | self._wrong.keys():
            if wrong.get(name) != self._wrong.get(name):
                self._queue.add(name)
        self._wrong = wrong

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._queue.run(self._reconcile)

    def _changed(self, old: HyperNode | None, new: HyperNode | None) -> None:
        if new is not None and find(_conditions(new), VALID) is not None:
            self._queue.add(new.metadata.name)

    async def _reconcile(self, name: str) -> None:
        domain = self._cache.hyper_nodes.get(name)
        if domain is None or self._layout < 0:
            return
        conditions, problem = _conditions(domain), self._wrong.get(name, "")
        if find(conditions, AVAILABLE) is not None or (not problem and find(conditions, VALID) is None):
            return
        wanted = with_condition(
            conditions,
            VALID,
            not problem,
            "Inconsistent" if problem else "Consistent",
            problem or _RIGHT,
            now=time.time(),
            generation=domain.metadata.generation,
        )
        if wanted == conditions:
            return
        if problem:
            about = {"apiVersion": HYPER_NODES.api_version, "kind": HYPER_NODES.kind, "name": name}
            note = f"{problem}. The rest of the topology is used"
            self._recorder.record({**about, "uid": domain.metadata.uid}, "TopologyInvalid", note, warning=True)
        patch: dict[str, Any] = {"status": {"conditions": wanted}}
        try:
            await self._member.merge_patch(HYPER_NODES, name, patch, subresource="status", field_manager="atoll-agent")
        except errors.NotFound:
            return


def _conditions(domain: HyperNode) -> list[dict[str, Any]]:
    found = domain.status.get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
