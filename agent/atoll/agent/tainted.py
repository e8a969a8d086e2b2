"""Gangs of the host that must leave a device: a driver or an administrator gave it a `NoExecute` taint.

A gang moves whole, so the agent asks the host for that in its report, and the host evicts the gang and places it anew.
Kubernetes' own controller (1.36: on by default) deletes the single pods meanwhile. Where their successors find other
devices in the member, the gang is whole again and stays.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from atoll.agent.cache import MemberCache
from atoll.agent.devices import DeviceTaintRule, ResourceClaim, ResourceSlice
from atoll.agent.objects import SERVICES, Pod, PodGroup
from atoll.kube.events import Recorder, reference
from atoll.model import keys
from atoll.model.apiresource import PODS
from atoll.model.decision import MOVES_AFTER
from atoll.model.device_taints import EVICTING, Eviction, eviction
from atoll.model.devices import DeviceId, Taint
from atoll.model.timestamps import rfc3339_seconds, to_seconds

SETTLED: Final = MOVES_AFTER + 5.0
"""Seconds from the oldest pod to the first request: the host follows none before, and creation times have whole
seconds.
"""
AGAIN: Final = 120.0
"""Seconds to the next request: a host whose clock is ahead took the one before for too early."""

_SHORTEST: Final = 0.05


class Tainted:
    """Follows claims, slices and rules of a member."""

    def __init__(
        self,
        cache: MemberCache,
        taints: Callable[[DeviceId], Sequence[Taint]],
        recorder: Recorder,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Add handlers to the cache.

        Args:
            cache: of the member.
            taints: of a device; it must know an object before this class hears of it.
            recorder: for the Events of pods.
            clock: seconds since the epoch.
        """
        self._cache, self._taints, self._recorder, self._clock = cache, taints, recorder, clock
        #: claim -> when and why its pods must go, and the pods; without claims that may stay
        self._evictions: dict[str, tuple[Eviction, tuple[str, ...]]] = {}
        #: pod -> its claims in `_evictions`
        self._claims: defaultdict[str, set[str]] = defaultdict(set)
        #: binding UID -> epoch of its gang, and when and why pods had to go, whether or not they have gone meanwhile
        self._left: dict[str, tuple[str, Eviction]] = {}
        #: binding UIDs with a timer
        self._timed: set[str] = set()
        self._touch: Callable[[str], None] = lambda _: None
        cache.slices.on_change(self._slice_changed)
        cache.taint_rules.on_change(self._rule_changed)
        cache.resource_claims.on_change(self._claim_changed)
        cache.pods.on_change(self._may_be_gone)
        cache.pod_groups.on_change(self._may_be_gone)

    def on_change(self, touch: Callable[[str], None]) -> None:
        """Call `touch(binding UID)` when `request` has a new answer."""
        self._touch = touch

    def request(self, uid: str) -> tuple[str, str]:
        """When the binding's gang had to move (RFC 3339, empty for not yet), and why; ("", "") where it may stay."""
        if not self._evictions and uid not in self._left:
            return "", ""
        pods = [pod for pod in self._cache.pods.by_index("binding", uid) if _leaves(pod)]
        found = min((self._evictions[each][0] for pod in pods for each in self._of(pod)), default=None)
        epoch, before = self._left.get(uid, ("", None))
        if found is None and any(not pod.node and _epoch(pod) == epoch for pod in pods):
            found = before
        if found is None:
            return "", ""
        settled = min(to_seconds(pod.metadata.creation_timestamp) for pod in pods) + SETTLED
        first, now = max(found.at, settled), self._clock()
        asked = first + (now - first) // AGAIN * AGAIN if now >= first else 0.0
        self._look_at(uid, (asked + AGAIN if asked else first) - now)
        return rfc3339_seconds(asked) if asked else "", found.why

    def _of(self, pod: Pod) -> Iterable[str]:
        return self._claims.get(pod.metadata.key, ())

    def _look_at(self, uid: str, after: float) -> None:
        if uid not in self._timed:
            self._timed.add(uid)
            asyncio.get_running_loop().call_later(max(after, _SHORTEST), self._due, uid)

    def _due(self, uid: str) -> None:
        self._timed.discard(uid)
        self._touch(uid)

    # -- events ------------------------------------------------------------------------------------------------------

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        for each in (old, new):
            if each is not None and _evicts(each):
                self._look({(each.spec.get("driver"), (each.spec.get("pool") or {}).get("name"))})

    def _rule_changed(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        if any(each is not None and each.spec["taint"]["effect"] == EVICTING for each in (old, new)):
            self._look(None)

    def _look(self, pools: set[tuple[Any, Any]] | None) -> None:
        """Judge all claims with devices of these pools; None for any."""
        for claim in self._cache.resource_claims:
            results = ((claim.status.allocation or {}).get("devices") or {}).get("results") or ()
            if any(pools is None or (each["driver"], each["pool"]) in pools for each in results):
                self._claim_changed(claim, claim)

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new or old
        assert claim is not None
        key = claim.metadata.key
        before = self._evictions.pop(key, None)
        for pod in before[1] if before is not None else ():
            self._claims[pod].discard(key)
            if not self._claims[pod]:
                del self._claims[pod]
        found = eviction(new.status.allocation, self._taints) if new is not None and new.status.allocation else None
        after = (found, tuple(claim.pods)) if found is not None else None
        if after is not None:
            self._evictions[key] = after
            for pod in after[1]:
                self._claims[pod].add(key)
        if after != before:
            self._tell(before[1] if before is not None else (), after)

    def _may_be_gone(self, old: Pod | PodGroup | None, new: Pod | PodGroup | None) -> None:
        uid = old.binding_uid if old is not None and new is None else ""
        if uid in self._left and not any(
            each.by_index("binding", uid) for each in (self._cache.pods, self._cache.pod_groups)
        ):
            del self._left[uid]

    def _tell(self, before: Sequence[str], after: tuple[Eviction, tuple[str, ...]] | None) -> None:
        pods = [pod for key in {*before, *(after[1] if after else ())} if (pod := self._cache.pods.get(key))]
        for uid in sorted({pod.binding_uid for pod in pods if pod.binding_uid}):
            self._touch(uid)
        for pod in pods if after is not None else ():
            if after is not None and pod.binding_uid and _leaves(pod) and pod.metadata.key in after[1]:
                self._left[pod.binding_uid] = _epoch(pod), after[0]
                meta = pod.metadata
                about = reference(PODS, meta.namespace, meta.name, meta.uid)
                self._recorder.record(about, "DeviceTainted", f"{after[0].why}; the host moves its gang", warning=True)


def _epoch(pod: Pod) -> str:
    return pod.metadata.annotations.get(keys.EPOCH, "")


def _leaves(pod: Pod) -> bool:
    """Whether the host is asked to move it: pods of services are single ones, and others are on their way."""
    controllers = {each.kind for each in pod.metadata.owner_references if each.controller}
    return not (pod.finished or pod.terminating or controllers & SERVICES)


def _evicts(published: ResourceSlice) -> bool:
    devices = published.spec.get("devices") or ()
    return any(taint["effect"] == EVICTING for each in devices for taint in each.get("taints") or ())
