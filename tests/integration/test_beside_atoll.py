"""What else runs on the host, and what nobody runs there: workloads of both are told so."""

from __future__ import annotations

import pytest

from atoll.model.apiresource import BINDINGS, CRDS, DEPLOYMENTS, EVENTS, POLICIES, ApiResource
from tests.integration.federation import Json, Site, until
from tests.integration.foreign_crds import bring

pytestmark = pytest.mark.integration


async def told(site: Site, name: str, reason: str) -> str:
    """Wait for an Event on a workload; its text."""

    async def look() -> str:
        events = await site.host.list(EVENTS, site.namespace)
        found = [each for each in events if (each["regarding"]["name"], each["reason"]) == (name, reason)]
        return str(found[0]["note"]) if found else ""

    return await until(look, what=f"Event {reason} on {name}")


async def written_by(site: Site, resource: ApiResource, name: str, who: str, status: Json) -> None:
    """Write a status on the host as another controller does."""
    operations = [{"op": "add", "path": "/status", "value": status}]
    await site.host.json_patch(resource, name, operations, site.namespace, subresource="status", field_manager=who)


async def test_no_member_gets_a_service_that_a_controller_of_the_host_runs_already(site: Site) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    about = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "metadata": {"name": "web"}}
    selector = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "name": "web"}
    policy = {"resourceSelectors": [selector], "dependentOverrides": ["later"]}
    head = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**head, "metadata": {"name": "web", "namespace": site.namespace}, "spec": policy})
    await site.submit({**about, "spec": spec})
    await told(site, "web", "DependentOverridesMissing")
    await written_by(site, DEPLOYMENTS, "web", "kube-controller-manager", {"observedGeneration": 1, "replicas": 1})
    assert "no member gets it" in await told(site, "web", "RunByAnother")
    await site.host.delete(POLICIES, "web", site.namespace)
    await site.submit({**about, "metadata": {"name": "other"}, "spec": {**spec, "selector": {"matchLabels": labels}}})

    async def bound() -> bool:
        return await site.find(BINDINGS, "other-deployment") is not None

    await until(bound, what="another one has its binding")
    assert await site.find(BINDINGS, "web-deployment") is None


async def test_a_kind_in_a_version_that_atoll_does_not_run_is_told_so(site: Site) -> None:
    other = ApiResource("ray.io", "v1alpha1", "rayclusters", "RayCluster")
    served = [each["metadata"]["name"] for each in await site.host.list(CRDS)]
    if "rayclusters.ray.io" in served:
        await site.host.delete(CRDS, "rayclusters.ray.io")

        async def gone() -> bool:
            return "rayclusters.ray.io" not in [each["metadata"]["name"] for each in await site.host.list(CRDS)]

        await until(gone, what="the CRD is gone")
    await bring([site.host], [other])
    try:
        about = {"apiVersion": other.api_version, "kind": other.kind}
        metadata = {"name": "old", "namespace": site.namespace}
        await site.host.create(other, {**about, "metadata": metadata, "spec": {}})
        assert "have the CRD serve that version" in await told(site, "old", "NotServed")
    finally:
        await site.host.delete(CRDS, "rayclusters.ray.io")
