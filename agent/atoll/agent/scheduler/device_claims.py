"""ResourceClaims of pods: allocations of the core are written before their pods are bound, and taken back after a
failure; another writer of the same claim wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog
from prometheus_client import Counter

from atoll.agent.cache import MemberCache
from atoll.agent.devices import FINALIZER
from atoll.agent.objects import Pod
from atoll.agent.scheduler.core import MemberCore
from atoll.agent.scheduler.core.commands import Deallocate, Reserve
from atoll.agent.settings import DeviceSettings
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import PODS, RESOURCE_CLAIMS

_EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that stand for extended resources of a pod."""
_LOOK = 1.0
"""Seconds after which it is looked whether the pods are still wanted, where nothing else happens."""

OUTCOMES = Counter(
    "atoll_claims", "ResourceClaims of pods on their way to a node, by outcome", ["outcome"], registry=None
)
"""The process registers it."""
for _outcome in ("allocated", "shared", "refused", "unready", "returned"):
    OUTCOMES.labels(_outcome)

log = structlog.get_logger(__name__)
Json = dict[str, Any]


class DeviceClaims:
    """Writes the status of claims."""

    def __init__(
        self,
        api: ApiServer,
        cache: MemberCache,
        core: MemberCore,
        not_bound: Callable[[Iterable[Pod]], None],
        *,
        settings: DeviceSettings = DeviceSettings(),
    ) -> None:
        """No I/O happens here.

        Args:
            api: the member.
            cache: of the member; a handler is added to it.
            core: knows which pods are still on their way to their node.
            not_bound: called with pods that don't get their devices.
            settings: its times.
        """
        self._api, self._cache, self._core, self._not_bound = api, cache, core, not_bound
        self._settings = settings
        self._news = asyncio.Event()
        cache.resource_claims.on_change(lambda old, new: self._news.set())

    async def provide(self, pods: list[tuple[Pod, str]], reserves: Sequence[Reserve]) -> bool:
        """Reserve the claims of these pods, with their devices where they have none yet.

        Returns:
            Whether all pods may be bound; they are given up where not, and the core has the claims cleared.
        """
        if not reserves:
            return True
        by_claim: dict[str, list[Reserve]] = {}
        for each in reserves:
            by_claim.setdefault(each.claim, []).append(each)
        consumers = {pod.metadata.key: pod.metadata for pod, _ in pods}
        try:
            for key, some in by_claim.items():
                users = [{"resource": "pods", "name": m.name, "uid": m.uid} for m in (consumers[r.pod] for r in some)]
                if some[0].spec is not None:
                    await self._make(key, some[0], users[0])
                    await self._point(key, some[0], users[0])
                    continue
                await self._reserve(key, some[0], users)
                if some[0].mappings:
                    await self._point(key, some[0], users[0])
            if await self._prepared(pods, {key: some[0] for key, some in by_claim.items()}):
                return True
            OUTCOMES.labels("unready").inc(len(by_claim))
        except errors.ApiError as error:
            OUTCOMES.labels("refused").inc()
            log.warning("a claim did not take its devices", claim=key, error=str(error))
        self._not_bound(pod for pod, _ in pods)
        return False

    async def _reserve(self, key: str, reserve: Reserve, users: list[Json]) -> None:
        namespace, _, name = key.partition("/")
        claim = self._cache.resource_claims.get(key)
        if claim is None or claim.metadata.uid != reserve.uid:
            raise errors.NotFound(f"resourceclaim {key} is gone")
        about: Json = {"uid": reserve.uid, "resourceVersion": claim.metadata.resource_version}
        status: Json = {}
        if reserve.allocation is not None:
            status["allocation"] = reserve.allocation
            if FINALIZER not in claim.metadata.finalizers:
                patch = {"metadata": {**about, "finalizers": [*claim.metadata.finalizers, FINALIZER]}}
                made = await self._api.merge_patch(RESOURCE_CLAIMS, name, patch, namespace)
                about["resourceVersion"] = made["metadata"]["resourceVersion"]
        present = [{"resource": u.resource, "name": u.name, "uid": u.uid} for u in claim.status.reserved_for]
        status["reservedFor"] = [*present, *(user for user in users if user not in present)]
        await self._api.merge_patch(
            RESOURCE_CLAIMS, name, {"metadata": about, "status": status}, namespace, subresource="status"
        )
        OUTCOMES.labels("shared" if reserve.allocation is None else "allocated").inc()

    async def _make(self, key: str, reserve: Reserve, user: Json) -> None:
        """Make the claim for the extended resources of a pod, with its devices."""
        namespace, _, name = key.partition("/")
        # No blockOwnerDeletion: a pod deleted in the foreground would wait for the claim, and the claim for the pod.
        owner = {"apiVersion": "v1", "kind": "Pod", "name": user["name"], "uid": user["uid"], "controller": True}
        about = {"name": name, "namespace": namespace, "annotations": {_EXTENDED: "true"}, "finalizers": [FINALIZER]}
        body = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {**about, "ownerReferences": [owner]},
            "spec": reserve.spec,
        }
        made = (await self._api.create(RESOURCE_CLAIMS, body))["metadata"]
        patch = {
            "metadata": {"uid": made["uid"], "resourceVersion": made["resourceVersion"]},
            "status": {"allocation": reserve.allocation, "reservedFor": [user]},
        }
        await self._api.merge_patch(RESOURCE_CLAIMS, name, patch, namespace, subresource="status")
        OUTCOMES.labels("allocated").inc()

    async def _point(self, key: str, reserve: Reserve, user: Json) -> None:
        """Tell the kubelet which request of a claim stands for which resource of a container."""
        namespace, _, name = key.partition("/")
        said = {"resourceClaimName": name, "requestMappings": list(reserve.mappings)}
        patch = {"metadata": {"uid": user["uid"]}, "status": {"extendedResourceClaimStatus": said}}
        pod = await self._api.merge_patch(PODS, user["name"], patch, namespace, subresource="status")
        if not (pod.get("status") or {}).get("extendedResourceClaimStatus"):
            raise errors.NotFound(
                "the API server keeps no extendedResourceClaimStatus: DRAExtendedResource is off there"
            )

    async def _prepared(self, pods: list[tuple[Pod, str]], reserves: dict[str, Reserve]) -> bool:
        """Wait for the conditions that drivers set before pods may be bound to some devices."""
        wanted = {
            key: conditions for key, each in reserves.items() if (conditions := _binding(each.allocation)) is not None
        }
        end = asyncio.get_running_loop().time() + self._settings.patience
        while wanted:
            self._news.clear()
            for key, (good, bad) in list(wanted.items()):
                claim = self._cache.resource_claims.get(key)
                if claim is None:
                    return False
                true = {
                    (*_device(each), said.get("type"))
                    for each in claim.status.devices
                    for said in each.get("conditions") or ()
                    if said.get("status") == "True"
                }
                if bad & true:
                    return False
                if good <= true:
                    del wanted[key]
            if not wanted:
                break
            gone = any(self._core.room.node_of(pod) != node for pod, node in pods)
            if gone or asyncio.get_running_loop().time() >= end:
                return False
            try:
                await asyncio.wait_for(self._news.wait(), _LOOK)
            except TimeoutError:
                continue
        return True

    async def give_back(self, command: Deallocate) -> None:
        """Clear a claim that an earlier try left allocated, unless it is another one by now, or its pod has a node."""
        namespace, _, name = command.claim.partition("/")
        about = {"uid": command.uid, "resourceVersion": command.version}
        status = {"allocation": None, "reservedFor": None, "devices": None}
        while True:
            try:
                # A process before this one may have bound it, of which the cache has not heard.
                pod = await self._api.get(PODS, command.pod.partition("/")[2], namespace)
                if pod["spec"].get("nodeName"):
                    return
                await self._api.merge_patch(
                    RESOURCE_CLAIMS, name, {"metadata": about, "status": status}, namespace, subresource="status"
                )
                OUTCOMES.labels("returned").inc()
                return
            except (errors.Conflict, errors.NotFound):
                # The watch brings its newer state.
                return
            except errors.ApiError as error:
                log.warning("a claim keeps its devices", claim=command.claim, error=str(error))
            await asyncio.sleep(self._settings.pause)
            claim = self._cache.resource_claims.get(command.claim)
            if claim is None or claim.metadata.resource_version != command.version:
                return


_Conditions = set[tuple[str, str, str, str]]


def _binding(allocation: Json | None) -> tuple[_Conditions, _Conditions] | None:
    """(conditions that must hold, conditions of which none may hold) of an allocation; None where there are none."""
    good, bad = _Conditions(), _Conditions()
    for each in ((allocation or {}).get("devices") or {}).get("results") or ():
        good |= {(*_device(each), name) for name in each.get("bindingConditions") or ()}
        bad |= {(*_device(each), name) for name in each.get("bindingFailureConditions") or ()}
    return (good, bad) if good else None


def _device(each: Json) -> tuple[str, str, str]:
    return each.get("driver", ""), each.get("pool", ""), each.get("device", "")
