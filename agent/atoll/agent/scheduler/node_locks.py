"""Locks of nodes that HAMi manages: its device plug-in gives GPUs to the pod that the lock names.

Without a lock it takes any pod of the node that has not started (`GetPendingPod` in HAMi's `pkg/util/util.go`), and one
pod would get the GPUs of another. The plug-in removes the lock once it served the pod.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import structlog

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.room import Room
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import hami
from atoll.model.apiresource import NODES

log = structlog.get_logger(__name__)
_LASTS = 300.0
"""Seconds after which HAMi's scheduler takes a lock over (`NodeLockTimeout`)."""


class Locked(Exception):
    """Another pod has the lock, or the node changed meanwhile; try again."""


class NodeLocks:
    """Takes and gives back locks."""

    def __init__(self, api: ApiServer, room: Room) -> None:
        """No I/O happens here."""
        self._api, self._room = api, room

    async def take(self, pod: Pod, name: str) -> None:
        """Lock a node for a pod that is bound next.

        Raises:
            Locked: not now.
            errors.ApiError: the member refuses.
        """
        node = self._room.fleet.node(name)
        if node is None:
            raise Locked(name)
        moment, owner = hami.locked(node.metadata.annotations.get(hami.LOCK, ""))
        if owner == pod.metadata.key:
            return
        if moment and _age(moment) < _LASTS:
            raise Locked(owner)
        text = f"{datetime.now(UTC).isoformat(timespec='seconds')},{pod.metadata.namespace},{pod.metadata.name}"
        try:
            await self._write(name, text, node.metadata.resource_version)
        except errors.Conflict as error:
            raise Locked(name) from error

    async def give_back(self, pod: Pod, name: str) -> None:
        """Unlock a node whose pod is not bound after all; where that fails, the lock expires."""
        node = self._room.fleet.node(name)
        if node is None or hami.locked(node.metadata.annotations.get(hami.LOCK, ""))[1] != pod.metadata.key:
            return
        try:
            await self._write(name, None, node.metadata.resource_version)
        except errors.ApiError as error:
            log.warning("a node stays locked", node=name, pod=pod.metadata.key, error=str(error))

    async def _write(self, name: str, lock: str | None, version: str) -> None:
        patch = {"metadata": {"resourceVersion": version, "annotations": {hami.LOCK: lock}}}
        await self._api.merge_patch(NODES, name, patch)


def _age(moment: str) -> float:
    """Seconds; more than any lock lasts for a moment that can't be read."""
    try:
        return time.time() - datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return _LASTS
