"""Where the pods of each binding are, for the report that goes to the host with the workload's status."""

from __future__ import annotations

from typing import Any

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod, PodGroup
from atoll.agent.publisher import Publisher
from atoll.agent.scheduler import gangs
from atoll.agent.scheduler.loop import Scheduler
from atoll.agent.scheduler.planner import smallest_domain
from atoll.model import keys


class Placements:
    """Answers `get` from the scheduler's room; feed it with the scheduler's passes."""

    def __init__(self, cache: MemberCache, scheduler: Scheduler, publisher: Publisher) -> None:
        """Takes effect once `observe` is called after every pass."""
        self._cache = cache
        self._scheduler = scheduler
        self._publisher = publisher
        #: binding UID -> capacity generation that contains its present placement
        self._generations: dict[str, int] = {}
        # After the scheduler's handlers, whose room knows by then what is gone.
        for reflector in (cache.pods, cache.pod_groups):
            reflector.on_change(self._may_be_gone)

    def observe(self, changed: set[str]) -> None:
        """These bindings' placements changed."""
        for uid in changed:
            if self._known(uid):
                self._generations[uid] = self._publisher.promise()
            else:
                self._generations.pop(uid, None)

    def get(self, binding_uid: str) -> dict[str, Any] | None:
        """Where the binding's pods are; None when the member has nothing of it.

        Returns:
            `generation`: of the ClusterCapacity that contains these pods; `nodes`: node -> pods that have not ended;
            `domain` and `tier`: the smallest domain around them, "" and 0 where there is none; `waiting`: why pods have
            no node, empty when all have.
        """
        if not self._known(binding_uid):
            return None
        room = self._scheduler.room
        if binding_uid in room.touched or binding_uid not in self._generations:
            self._generations[binding_uid] = self._publisher.promise()
        nodes = dict(room.placed.get(binding_uid, {}))
        domain, tier = smallest_domain(room.nodes(), set(nodes)) if nodes else ("", 0)
        return {
            "generation": self._generations[binding_uid],
            "nodes": nodes,
            "domain": domain,
            "tier": tier,
            "waiting": self._waiting(binding_uid),
        }

    def _may_be_gone(self, old: Pod | PodGroup | None, new: Pod | PodGroup | None) -> None:
        """The last pod or PodGroup of a binding takes what is remembered of it along."""
        if new is None and old is not None:
            uid = old.metadata.annotations.get(keys.BINDING_UID, "")
            if uid in self._generations and not self._known(uid):
                del self._generations[uid]

    def _known(self, uid: str) -> bool:
        return bool(
            uid in self._scheduler.room.placed
            or self._cache.pods.by_index("binding", uid)
            or self._cache.pod_groups.by_index("binding", uid)
        )

    def _waiting(self, uid: str) -> str:
        found = {group.metadata.key for group in self._cache.pod_groups.by_index("binding", uid)}
        found |= {gangs.key_of(pod) for pod in self._cache.pods.by_index("binding", uid)}
        reasons = [self._scheduler.waits[key].message for key in sorted(found) if key in self._scheduler.waits]
        return "; ".join(reasons)
