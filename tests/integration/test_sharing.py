"""Services that their policies share out over members by weights, or copy to each of them."""

from __future__ import annotations

import pytest

from atoll.kinds import apps
from atoll.model.apiresource import BINDINGS, POLICIES
from tests.integration.federation import Json, Site, until

pytestmark = pytest.mark.integration

DEPLOYMENTS, STATEFUL_SETS = apps.DEPLOYMENT.resource, apps.STATEFUL_SET.resource
WEIGHTS = [
    {"targetCluster": {"clusterNames": ["alpha"]}, "weight": 2},
    {"targetCluster": {"clusterNames": ["beta"]}, "weight": 1},
]
BY_WEIGHT = {
    "replicaSchedulingType": "Divided",
    "replicaDivisionPreference": "Weighted",
    "weightPreference": {"staticWeightList": WEIGHTS},
}


async def follow(site: Site, scheduling: Json) -> None:
    """A policy that shares services of the test's namespace out over alpha and beta like that."""
    selectors = [{"apiVersion": each.api_version, "kind": each.kind} for each in (DEPLOYMENTS, STATEFUL_SETS)]
    placement = {"clusterAffinity": {"clusterNames": ["alpha", "beta"]}, "replicaScheduling": scheduling}
    await site.host.create(
        POLICIES,
        {
            "apiVersion": POLICIES.api_version,
            "kind": POLICIES.kind,
            "metadata": {"name": "shared", "namespace": site.namespace},
            "spec": {"resourceSelectors": selectors, "placement": placement},
        },
    )


def service(kind: str, name: str, replicas: int) -> Json:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def running(site: Site, **counts: int) -> dict[str, set[str]]:
    """Member -> the UIDs of its pods, once each has so many with nodes and no others."""

    async def look() -> dict[str, set[str]] | None:
        found = {}
        for member, count in counts.items():
            pods = [pod for pod in await site.pods(member) if "deletionTimestamp" not in pod["metadata"]]
            if len(pods) != count or not all(pod["spec"].get("nodeName") for pod in pods):
                return None
            found[member] = {pod["metadata"]["uid"] for pod in pods}
        return found

    return await until(look, what=f"pods have nodes: {counts}")


async def test_a_deployment_runs_by_static_weights(site: Site) -> None:
    await follow(site, BY_WEIGHT)
    await site.submit(service("Deployment", "web", 3))
    await running(site, alpha=2, beta=1, topo=0)
    site.kubectl("wait", "--for=condition=Available", "deployment/web", "-n", site.namespace, "--timeout=30s")


async def test_a_copy_of_a_stateful_set_runs_in_each_member(site: Site) -> None:
    await follow(site, {"replicaSchedulingType": "Duplicated"})
    await site.submit(service("StatefulSet", "db", 2))
    await running(site, alpha=2, beta=2, topo=0)
    binding = await site.find(BINDINGS, "db-statefulset")
    assert binding is not None
    assert [each["replicas"] for each in binding["spec"]["clusters"]] == [2, 2]
    names = {pod["metadata"]["name"] for member in ("alpha", "beta") for pod in await site.pods(member)}
    assert names == {"db-0", "db-1"}
