"""Where the pods of each binding are, for the report that goes to the host with the workload's status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod, PodGroup
from atoll.agent.publisher import Publisher
from atoll.agent.scheduler.core import gangs
from atoll.agent.scheduler.core.planner import smallest_domain
from atoll.agent.scheduler.loop import Scheduler
from atoll.agent.settings import PlacementSettings
from atoll.agent.tainted import Tainted
from atoll.model import keys, vector
from atoll.model.conditions import find
from atoll.model.timestamps import is_time, to_seconds
from atoll.model.vector import Vector

NAMED = 3
"""Pods that a sentence names."""


class Placements:
    """Answers `get` from the scheduler's `Room`; feed it with the scheduler's passes."""

    def __init__(
        self,
        cache: MemberCache,
        scheduler: Scheduler,
        publisher: Publisher,
        tainted: Tainted,
        busy: Callable[[str], Mapping[str, float]] = lambda _: {},
        *,
        settings: PlacementSettings = PlacementSettings(),
    ) -> None:
        """Takes effect once `observe` is called after every pass."""
        self._settings = settings
        self._cache = cache
        self._scheduler = scheduler
        self._publisher = publisher
        self._tainted, self._busy = tainted, busy
        #: binding UID -> capacity generation that contains its present placement
        self._generations: dict[str, int] = {}
        #: binding UID -> (reasons for which pods of it do not run, their text)
        self._starting: dict[str, tuple[frozenset[str], str]] = {}
        #: binding UIDs of which a pod may turn out to be slow
        self._slow: set[str] = set()
        #: binding UIDs of which a pod may turn out not to go
        self._going: set[str] = set()
        self._touch: Callable[[str], None] = lambda _: None
        tainted.on_change(lambda uid: self._touch(uid))
        # After the scheduler's handlers, whose `Room` has dropped deleted objects by then.
        for reflector in (cache.pods, cache.pod_groups):
            reflector.on_change(self._may_be_gone)
        cache.pods.on_change(self._may_not_start)
        cache.pods.on_change(self._may_not_go)
        cache.pods.on_change(self._others_say)
        cache.pod_groups.on_change(self._others_say)

    def on_news(self, touch: Callable[[str], None]) -> None:
        """Call `touch(binding UID)` when `get` says something else although no pod came, went or moved."""
        self._touch = touch

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
            no node, empty when all have; `running`: pods that run or have ended; `starting`: why others that have a
            node don't, absent where nothing holds them up; `leaving`: which were deleted and do not go, absent where
            all do; `move`: when the move of its gang was asked for, by the descheduler or for a tainted device, absent
            where it was not; `moves`: why it is, or will be; `requests`: task -> what one pod of it that has a node
            requests, the most of each resource; `busy`: resource -> mean use of all pods in cores or bytes, absent
            where it is not known.
        """
        if not self._known(binding_uid):
            return None
        room = self._scheduler.room
        if binding_uid in room.touched or binding_uid not in self._generations:
            self._generations[binding_uid] = self._publisher.promise()
        nodes = dict(room.placed.get(binding_uid, {}))
        domain, tier = smallest_domain(room.arrays.nodes(), set(nodes)) if nodes else ("", 0)
        pods = self._cache.pods.by_index("binding", binding_uid)
        starting = self._why_not_running(binding_uid, pods)
        return {
            "generation": self._generations[binding_uid],
            "nodes": nodes,
            "domain": domain,
            "tier": tier,
            "waiting": self._waiting(binding_uid),
            "requests": requests_by_task(pods),
            "running": sum(pod.phase not in ("Pending", "Unknown") and not pod.terminating for pod in pods),
            **({"starting": starting} if starting else {}),
            **({"busy": dict(busy)} if (busy := self._busy(binding_uid)) else {}),
            **self._move(binding_uid),
            **({"leaving": leaving} if (leaving := self._why_not_gone(pods)) else {}),
        }

    def _move(self, uid: str) -> dict[str, str]:
        """The latest request on its PodGroups or for a device; a value that is no time counts for nothing."""
        for_device, why = self._tainted.request(uid)
        asked = [
            for_device,
            *(
                group.metadata.annotations.get(keys.MOVE_ASKED, "")
                for group in self._cache.pod_groups.by_index("binding", uid)
            ),
        ]
        move = max((each for each in asked if is_time(each)), key=to_seconds, default="")
        return {**({"move": move} if move else {}), **({"moves": why} if why else {})}

    def _may_not_go(self, old: Pod | None, new: Pod | None) -> None:
        """Look again when a pod that was deleted should have gone; one that has gone so late is news, too."""
        if new is None:
            if old is not None and old.binding_uid and _overdue(old, self._settings.overdue):
                self._touch(old.binding_uid)
        elif new.terminating and new.binding_uid and new.binding_uid not in self._going:
            uid = new.binding_uid
            self._going.add(uid)
            left = to_seconds(new.metadata.deletion_timestamp or "") - time.time()
            asyncio.get_running_loop().call_later(max(left, 0.0) + self._settings.overdue + 1, self._look_after, uid)

    def _look_after(self, uid: str) -> None:
        self._going.discard(uid)
        pods = [pod for pod in self._cache.pods.by_index("binding", uid) if pod.terminating]
        if any(_overdue(pod, self._settings.overdue) for pod in pods):
            self._touch(uid)
        for pod in pods:
            if not _overdue(pod, self._settings.overdue):
                self._may_not_go(None, pod)

    def _why_not_gone(self, pods: Iterable[Pod]) -> str:
        """In one sentence, of pods that were deleted and should have gone by now."""
        overdue = sorted(
            (pod for pod in pods if _overdue(pod, self._settings.overdue)), key=lambda pod: pod.metadata.name
        )
        parts = []
        for pod in overdue[:NAMED]:
            node = self._scheduler.room.fleet.node(pod.node)
            why = f"finalizer {', '.join(pod.metadata.finalizers)}" if pod.metadata.finalizers else ""
            if not why and pod.node:
                why = "its node is gone" if node is None else "" if node.ready else "its node is not ready"
            where = f" on node {pod.node}" if pod.node else ""
            since = f"pod {pod.metadata.name}{where} is terminating since {pod.metadata.deletion_timestamp}"
            parts.append(f"{since}, {why or 'its kubelet has not removed it'}")
        if len(overdue) > NAMED:
            parts.append(f"and {len(overdue) - NAMED} more")
        return "; ".join(parts)

    def _may_not_start(self, old: Pod | None, new: Pod | None) -> None:
        """A kubelet says why a pod does not run, or says it no more; nothing else may change by that."""
        before, after = old.starting if old is not None else None, new.starting if new is not None else None
        uid = new.binding_uid if new is not None else ""
        if not uid or before == after:
            return
        if (before is not None and not before.ordinary) or (after is not None and not after.ordinary):
            self._touch(uid)
        elif after is not None and uid not in self._slow:
            self._slow.add(uid)
            asyncio.get_running_loop().call_later(self._settings.slow + 1, self._look_again, uid)

    def _look_again(self, uid: str) -> None:
        self._slow.discard(uid)
        pods = self._cache.pods.by_index("binding", uid)
        if any(pod.starting is not None for pod in pods):
            self._touch(uid)

    def _why_not_running(self, uid: str, pods: Iterable[Pod]) -> str:
        """In one sentence, which stays the same while the reasons do: kubelets change their words all the time."""
        now, found = time.time(), dict[str, list[Pod]]()
        for pod in pods:
            starting = pod.starting
            if starting is None or pod.terminating:
                continue
            slow = is_time(starting.since) and now - to_seconds(starting.since) >= self._settings.slow
            if slow or not starting.ordinary:
                found.setdefault(starting.reason, []).append(pod)
        if not found:
            self._starting.pop(uid, None)
            return ""
        reasons = frozenset(found)
        known = self._starting.get(uid)
        if known is None or known[0] != reasons:
            parts = []
            for reason, held in sorted(found.items()):
                first = min(held, key=lambda pod: pod.metadata.name)
                assert first.starting is not None, "only such pods are here"
                text = f", {first.starting.text}" if first.starting.text else ""
                parts.append(f"{reason} (pod {first.metadata.name}{text})")
            known = self._starting[uid] = (reasons, "; ".join(parts))
        return known[1]

    def _may_be_gone(self, old: Pod | PodGroup | None, new: Pod | PodGroup | None) -> None:
        """The last pod or PodGroup of a binding ends its entry."""
        if new is None and old is not None:
            uid = old.metadata.annotations.get(keys.BINDING_UID, "")
            if not self._known(uid):
                self._generations.pop(uid, None)
                self._starting.pop(uid, None)

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
        return "; ".join(reasons or self._waiting_for_others(uid))

    def _waiting_for_others(self, uid: str) -> list[str]:
        """Why pods have no node that another scheduler places, in its words: of its PodGroups, else of its pods."""
        found = []
        for group in self._cache.pod_groups.by_index("binding", uid):
            condition = find(group.status.get("conditions") or [], "Unschedulable")
            settled = group.status.get("phase") in ("Running", "Completed")
            if condition is not None and condition.get("status") == "True" and not settled:
                found.append(str(condition.get("message") or condition.get("reason") or ""))
            elif group.status.get("phase") == "Pending" and not self._scheduler.ours.group(group, ()):
                # Its pods are not made before that, and only an Event has the reason.
                found.append(f"Volcano has not let its PodGroup into queue {group.spec.queue or keys.DEFAULT_QUEUE}")
        pods = [pod for pod in self._cache.pods.by_index("binding", uid) if not pod.node and not pod.finished]
        said = sorted({pod.unscheduled[1] for pod in pods if pod.unscheduled is not None and pod.unscheduled[1]})
        return sorted(filter(None, found)) or said[:1]

    def _others_say(self, old: Pod | PodGroup | None, new: Pod | PodGroup | None) -> None:
        """Another scheduler says why it does not place something of a binding, or says it no more."""
        if old is None or new is None:
            return
        uid = new.binding_uid
        if uid and _said(old) != _said(new):
            self._touch(uid)


def requests_by_task(pods: Iterable[Pod]) -> dict[str, Vector]:
    """Task -> what a pod of it takes from its node, or took until it ended."""
    found: dict[str, Vector] = {}
    for pod in pods:
        if pod.node:
            known = found.get(pod.gang_task)
            found[pod.gang_task] = pod.requests if known is None else vector.larger(known, pod.requests)
    return found


def _overdue(pod: Pod, patience: float) -> bool:
    """Whether it was deleted and should have gone by now."""
    when = pod.metadata.deletion_timestamp
    return when is not None and time.time() >= to_seconds(when) + patience


def _said(obj: Pod | PodGroup) -> object:
    if isinstance(obj, Pod):
        return obj.unscheduled
    asked = obj.metadata.annotations.get(keys.MOVE_ASKED)
    return obj.status.get("phase"), find(obj.status.get("conditions") or [], "Unschedulable"), asked
