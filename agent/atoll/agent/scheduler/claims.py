"""Volumes that are made for the nodes of a plan; what pods wait for before that, the core says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod
from atoll.agent.scheduler.core import MemberCore
from atoll.agent.settings import VolumeSettings
from atoll.agent.volumes import SELECTED_NODE
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import selectors
from atoll.model.apiresource import CLAIMS

_LOOK = 1.0
"""Seconds after which it is looked whether the pods are still wanted, where nothing else happens."""

log = structlog.get_logger(__name__)


class Claims:
    """Makes claims ask for the volumes that wait for a node."""

    def __init__(
        self,
        api: ApiServer,
        cache: MemberCache,
        core: MemberCore,
        not_bound: Callable[[Iterable[Pod]], None],
        *,
        settings: VolumeSettings = VolumeSettings(),
    ) -> None:
        """No I/O happens here.

        Args:
            api: the member.
            cache: of the member; a handler is added to it.
            core: knows which pods are still on their way to their node, and nodes that their claims allow.
            not_bound: called with pods that don't get the volumes that they need on their nodes.
            settings: its times and bounds.
        """
        self._settings = settings
        self._api, self._cache, self._core, self._not_bound = api, cache, core, not_bound
        self._news = asyncio.Event()
        cache.claims.on_change(lambda old, new: self._news.set())

    def reached(self, nodes: list[tuple[Pod, str]]) -> bool:
        """Whether each of these pods can run on its node for its claims."""
        return all(self._reaches(pod, name) for pod, name in nodes if pod.claims)

    def _reaches(self, pod: Pod, name: str) -> bool:
        node, reach = self._core.room.fleet.node(name), self._core.mounts.storage.reach(pod)
        return (
            node is not None
            and not reach.problem
            and all(selectors.node_affinity_matches(terms, node.metadata.labels, name) for terms in reach.terms)
        )

    async def provide(self, pods: list[tuple[Pod, str]]) -> bool:
        """Have volumes made for the nodes of these pods, where claims wait for that.

        Returns:
            Whether all pods can run where they were planned. They are given up where not: a volume may have come
            elsewhere.
        """
        wanted: dict[str, str] = {}
        for pod, node in pods:
            for key in self._core.mounts.storage.reach(pod).unbound if pod.claims and not pod.held else ():
                wanted.setdefault(key, node)
        if not wanted and self.reached(pods):
            return True
        done = await self._made(pods, wanted) and self.reached(pods)
        if not done:
            self._not_bound(pod for pod, _ in pods)
        return done

    async def _made(self, pods: list[tuple[Pod, str]], wanted: dict[str, str]) -> bool:
        try:
            for key, node in wanted.items():
                namespace, _, name = key.partition("/")
                patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
                await self._api.merge_patch(CLAIMS, name, patch, namespace)
        except errors.ApiError as error:
            log.warning("a claim did not take the node of its pod", claim=key, node=node, error=str(error))
            return False
        clock = asyncio.get_running_loop().time
        end, seen = clock() + self._settings.patience, set[str]()
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
            if clock() >= end or any(self._core.room.node_of(pod) != node for pod, node in pods):
                return False
            try:
                await asyncio.wait_for(self._news.wait(), _LOOK)
            except TimeoutError:
                continue
