"""The two ways in which pods leave their nodes: by the Eviction API, and by a request to the host."""

from __future__ import annotations

import time
from typing import Any, Final

import orjson

from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import POD_GROUPS, PODS
from atoll.model.timestamps import rfc3339_seconds

_PATIENCE: Final = 3.0
"""Seconds for one eviction: a budget that refuses it now is asked again by the next look."""


async def evict(api: ApiServer, key: str, uid: str, grace: int | None = None) -> None:
    """Evict one pod; PodDisruptionBudgets hold.

    Args:
        api: the cluster.
        key: `namespace/name`.
        uid: of the pod, so that none that replaced it goes.
        grace: seconds; None for the pod's own.

    Raises:
        ApiError: it was not evicted; after `Unreachable` it may have been.
    """
    namespace, _, name = key.partition("/")
    path = PODS.path(namespace, name, "eviction")
    await api.request("POST", path, body=orjson.dumps(eviction(namespace, name, uid, grace)), deadline=_PATIENCE)


def eviction(namespace: str, name: str, uid: str, grace: int | None = None) -> dict[str, Any]:
    """The request for one; see `evict`."""
    options: dict[str, Any] = {"preconditions": {"uid": uid}}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }


async def ask_host(api: ApiServer, group: str, *, field_manager: str) -> None:
    """Write the request on a gang's PodGroup: the agent reports it, the host evicts the gang and queues it again.

    Raises:
        ApiError: it was not written.
    """
    namespace, _, name = group.partition("/")
    patch = {"metadata": {"annotations": {keys.MOVE_ASKED: rfc3339_seconds(time.time())}}}
    await api.merge_patch(POD_GROUPS, name, patch, namespace, field_manager=field_manager)
