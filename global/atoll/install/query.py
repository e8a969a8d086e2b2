"""What the query API needs on a host: where it is found.

The dispatcher that leads fills in its address and registers the API. Until then it is unknown: one that is registered
and not answered keeps namespaces from being deleted.
"""

from __future__ import annotations

import contextlib
from typing import Any

from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import API_SERVICES, ENDPOINT_SLICES, SERVICES, ApiResource

Json = dict[str, Any]


async def present_query(host: ApiServer) -> tuple[str, int]:
    """Address of dispatchers outside of the host (empty: there are none), and the port of their leader (0: none leads).

    Raises:
        ApiError: the host refused.
    """
    try:
        spec = (await host.get(SERVICES, keys.QUERY_SERVICE, keys.SYSTEM_NAMESPACE))["spec"]
    except errors.NotFound:
        return "", 0
    try:
        leads = (await host.get(API_SERVICES, keys.QUERY_API))["spec"].get("service") or {}
    except errors.NotFound:
        leads = {}
    return spec.get("externalName") or "", int(leads.get("port") or 0)


async def ensure_query(host: ApiServer, outside: str = "") -> None:
    """Service and EndpointSlice. Safe to repeat.

    Args:
        host: with an administrator's credentials.
        outside: address at which the API server reaches the dispatcher, if that does not run in the host; empty if it
            does.
    """
    await _ensure_service(host, outside)
    if not outside:
        await ensure_endpoints(host)


async def _ensure_service(host: ApiServer, outside: str) -> None:
    spec: Json = {
        "type": "ClusterIP",
        "ipFamilyPolicy": "PreferDualStack",
        "ports": [{"name": "https", "port": 443, "protocol": "TCP"}],
    }
    if outside:
        spec = {"type": "ExternalName", "externalName": outside}
    metadata = {"name": keys.QUERY_SERVICE, "namespace": keys.SYSTEM_NAMESPACE, "labels": MANAGED_BY}
    try:
        found = await host.get(SERVICES, keys.QUERY_SERVICE, keys.SYSTEM_NAMESPACE)
    except errors.NotFound:
        found = None
    if found is not None and found["spec"]["type"] != spec["type"]:
        # Most fields of the one are not allowed in the other.
        await host.delete(SERVICES, keys.QUERY_SERVICE, keys.SYSTEM_NAMESPACE)
    await _apply(host, SERVICES, {"metadata": metadata, "spec": spec})


async def ensure_endpoints(host: ApiServer) -> None:
    """Empty: the leader writes its own address, for which it then needs no right to create any."""
    for name, family in keys.QUERY_ENDPOINTS.items():
        slice_ = {
            "apiVersion": ENDPOINT_SLICES.api_version,
            "kind": ENDPOINT_SLICES.kind,
            "metadata": {
                "name": name,
                "namespace": keys.SYSTEM_NAMESPACE,
                "labels": {**MANAGED_BY, "kubernetes.io/service-name": keys.QUERY_SERVICE},
            },
            "addressType": family,
            "endpoints": [],
        }
        with contextlib.suppress(errors.AlreadyExists):
            await host.create(ENDPOINT_SLICES, slice_, field_manager=FIELD_MANAGER)


async def _apply(host: ApiServer, resource: ApiResource, content: Json) -> None:
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    await host.apply(resource, {**head, **content}, field_manager=FIELD_MANAGER)
