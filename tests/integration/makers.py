"""What makes Jobs: flows and schedules."""

from __future__ import annotations

from atoll.model.apiresource import ApiResource
from tests.integration.federation import Json, Site


async def make(site: Site, resource: ApiResource, name: str, spec: Json, namespace: str | None = None) -> Json:
    metadata = {"name": name, "namespace": namespace or site.namespace}
    about = {"apiVersion": resource.api_version, "kind": resource.kind}
    return await site.host.create(resource, {**about, "metadata": metadata, "spec": spec})
