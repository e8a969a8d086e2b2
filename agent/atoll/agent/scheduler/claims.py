"""Claims of pods that are to be placed: what they wait for, and volumes that are made for the nodes of a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod
from atoll.agent.scheduler.gangs import Standing
from atoll.agent.scheduler.planner import Plan
from atoll.agent.scheduler.room import Room
from atoll.agent.volumes import SELECTED_NODE, Claim, Storage, StorageClass, Volume, narrowed
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import selectors
from atoll.model.apiresource import CLAIMS

PATIENCE = 60.0
"""Seconds that a provisioner may take; longer than a gang of the host is waited for."""
PAUSE = 2.0
"""Seconds after which a gang is planned again that did not get its volumes."""
_LOOK = 1.0
"""Seconds after which it is looked whether the pods are still wanted, where nothing else happens."""

log = structlog.get_logger(__name__)


class Claims:
    """Where gangs can run for their claims; makes claims ask for the volumes that wait for a node."""

    def __init__(self, api: ApiServer, cache: MemberCache, room: Room, changed: Callable[[Pod], None]) -> None:
        """No I/O happens here.

        Args:
            api: the member.
            cache: of the member; handlers are added to it.
            room: tells which pods are still on their way to their node.
            changed: called with each pod that may wait for something else now.
        """
        self._api, self._cache, self._room, self._changed = api, cache, room, changed
        self.storage = Storage(cache.claims.get, cache.volumes.get, cache.storage_classes.get)
        self._news = asyncio.Event()
        cache.claims.on_change(self._claim_changed)
        cache.volumes.on_change(self._volume_changed)
        cache.storage_classes.on_change(self._class_changed)

    def narrow(self, view: Standing) -> tuple[Standing, str]:
        """The gang with its volumes' nodes as its own, and why it can't start for its claims, empty where it can."""
        if not any(pod.claims for pod in view.waiting):
            return view, ""
        pods: list[Pod] = []
        problems: dict[str, None] = {}
        for pod in view.waiting:
            reach = self.storage.reach(pod)
            fitting = narrowed(pod, reach.terms)
            if reach.problem or fitting is None:
                problems[reach.problem or "its node affinity and its volumes' have too many alternatives"] = None
                fitting = pod
            pods.append(fitting)
        return replace(view, waiting=pods), "; ".join(list(problems)[:3])

    def reached(self, nodes: list[tuple[Pod, str]]) -> bool:
        """Whether each of these pods can run on its node for its claims."""
        return all(self._reaches(pod, name) for pod, name in nodes if pod.claims)

    def _reaches(self, pod: Pod, name: str) -> bool:
        node, reach = self._room.node(name), self.storage.reach(pod)
        return (
            node is not None
            and not reach.problem
            and all(selectors.node_affinity_matches(terms, node.metadata.labels, name) for terms in reach.terms)
        )

    async def provide(self, plan: Plan) -> bool:
        """Have volumes made for the nodes of a plan, where claims wait for that.

        Returns:
            Whether all pods can run where they were planned. They are forgotten where not: a volume may have come
            elsewhere.
        """
        wanted: dict[str, str] = {}
        for pod, node in plan.nodes:
            for key in self.storage.reach(pod).unbound if pod.claims and not pod.held else ():
                wanted.setdefault(key, node)
        if not wanted and self.reached(plan.nodes):
            return True
        done = await self._made(plan, wanted) and self.reached(plan.nodes)
        if not done:
            for pod, _ in plan.nodes:
                self._room.forget(pod)
        return done

    async def _made(self, plan: Plan, wanted: dict[str, str]) -> bool:
        try:
            for key, node in wanted.items():
                namespace, _, name = key.partition("/")
                patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
                await self._api.merge_patch(CLAIMS, name, patch, namespace)
        except errors.ApiError as error:
            log.warning("a claim did not take the node of its pod", claim=key, node=node, error=str(error))
            return False
        clock = asyncio.get_running_loop().time
        end, seen = clock() + PATIENCE, set[str]()
        while True:
            self._news.clear()
            open_claims = []
            for key, node in wanted.items():
                claim = self._cache.claims.get(key)
                if claim is None:
                    return False
                asked = claim.metadata.annotations.get(SELECTED_NODE) == node
                seen.update((key,) if asked else ())
                if not claim.bound:
                    # Whoever makes the volume takes the node off where it can't be there.
                    if key in seen and not asked:
                        return False
                    open_claims.append(key)
            if not open_claims:
                return True
            if clock() >= end or any(self._room.node_of(pod) != node for pod, node in plan.nodes):
                return False
            try:
                await asyncio.wait_for(self._news.wait(), _LOOK)
            except TimeoutError:
                continue

    # -- events ------------------------------------------------------------------------------------------------------

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        self._news.set()
        if old is not None and new is not None and _alike(old, new):
            return
        claim = new or old
        assert claim is not None, "one of them is there"
        self._tell(claim.metadata.key)

    def _volume_changed(self, old: Volume | None, new: Volume | None) -> None:
        if old is not None and new is not None and (old.spec, old.metadata.labels) == (new.spec, new.metadata.labels):
            return
        for volume in (old, new):
            if volume is not None and volume.claim:
                self._tell(volume.claim)

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        for pod in self._cache.pods:
            if pod.claims and not pod.node:
                self._changed(pod)

    def _tell(self, claim: str) -> None:
        for pod in self._cache.pods.by_index("claim", claim):
            if not pod.node:
                self._changed(pod)


def _alike(old: Claim, new: Claim) -> bool:
    """Whether nothing that placing reads differs."""
    return (
        (old.metadata.uid, old.metadata.deletion_timestamp, old.metadata.controller_uid)
        == (new.metadata.uid, new.metadata.deletion_timestamp, new.metadata.controller_uid)
        and (old.spec, old.status, old.bound) == (new.spec, new.status, new.bound)
    )  # fmt: skip
