"""Workloads that a member's own users have there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from atoll.kube.transport import ApiServer
from atoll.model.apiresource import DEPLOYMENTS, NAMESPACES, PODS
from tests.integration.federation import Json, Site, accepting


def bare(name: str, namespace: str, *, cpu: str = "100m", notes: dict[str, str] | None = None, **spec: Any) -> Json:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": notes or {}},
        "spec": {"schedulerName": "atoll", "containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


@contextlib.asynccontextmanager
async def beside(site: Site, member: str) -> AsyncIterator[ApiServer]:
    """The member's API server, with the test's namespace; what the test leaves there is removed."""
    api = site.members[member]
    await api.create(NAMESPACES, accepting(site.namespace))
    try:
        yield api
    finally:
        for deployment in await api.list(DEPLOYMENTS, site.namespace):
            await api.delete(DEPLOYMENTS, deployment["metadata"]["name"], site.namespace)
        for pod in await api.list(PODS, site.namespace):
            if not pod["metadata"].get("ownerReferences"):
                await api.delete(PODS, pod["metadata"]["name"], site.namespace)
