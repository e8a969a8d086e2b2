"""Failover on real API servers: what is unhealthy in a member runs elsewhere, and services leave a member gracefully."""

from __future__ import annotations

import json

import pytest

from atoll.kinds import apps
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, JOBS, POLICIES, WORKS, ApiResource
from atoll.model.conditions import condition
from atoll.model.timestamps import to_seconds
from tests.integration.command_line import atollctl
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration

DEPLOYMENTS = apps.DEPLOYMENT.resource


def policy_like(resource: ApiResource, name: str, spec: Json, site: Site) -> Json:
    about = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**about, "metadata": {"name": name, "namespace": site.namespace}, "spec": spec}


async def first_alpha_then_beta(site: Site, resource: ApiResource, **spec: Json) -> None:
    """What this test submits goes to alpha, and where it may not, to beta."""
    selectors = [{"apiVersion": resource.api_version, "kind": resource.kind}]
    groups = [{"affinityName": name, "clusterNames": [name]} for name in ("alpha", "beta")]
    policy = {"resourceSelectors": selectors, "placement": {"clusterAffinities": groups}, **spec}
    await site.host.create(POLICIES, policy_like(POLICIES, "in-turn", policy, site))


async def runs_in(site: Site, binding: str, cluster: str) -> Json:
    async def look() -> Json | None:
        found = await site.find(BINDINGS, binding) or {}
        there = [each["name"] for each in (found.get("spec") or {}).get("clusters") or ()]
        return found if there == [cluster] and condition(found, "Running").get("status") == "True" else None

    return await until(look, what=f"{binding} runs in {cluster}")


async def there(site: Site, resource: ApiResource, name: str, cluster: str) -> Json:
    return await until(lambda: site.find(resource, name, cluster), what=f"{name} is in {cluster}")


async def no_tasks(site: Site, binding: str) -> None:
    async def look() -> bool:
        return not ((await site.find(BINDINGS, binding) or {}).get("spec") or {}).get("gracefulEvictionTasks")

    await until(look, what=f"{binding} has no eviction tasks")


async def test_a_job_that_stays_unhealthy_in_a_member_goes_to_another_one_with_what_it_left_behind(site: Site) -> None:
    """1. Its pods get nodes in alpha and wait for their image. 2. After six seconds it goes, and to beta."""
    rules = [{"aliasLabelName": "phase-before", "jsonPath": "{.state.phase}"}]
    application = {"decisionConditions": {"tolerationSeconds": 6}, "statePreservation": {"rules": rules}}
    await first_alpha_then_beta(site, JOBS, failover={"application": application})
    sick = job("sick", replicas=2, minAvailable=2, seconds=600)
    sick["spec"]["tasks"][0]["template"]["metadata"]["annotations"][keys.FAIL] = "image"
    await site.submit(sick)
    await there(site, JOBS, "sick", "alpha")
    found = await there(site, JOBS, "sick", "beta")
    assert await site.find(JOBS, "sick", "alpha") is None, "no job is in two members"
    assert found["metadata"]["labels"]["phase-before"]
    binding = await site.find(BINDINGS, "sick-job")
    assert binding is not None
    story = json.loads(binding["metadata"]["annotations"][keys.DECISION])["story"]
    why = next(line["text"] for line in story if line["reason"] == "Unhealthy")
    assert why.startswith("unhealthy for 6 s: alpha: 0 of 2 pods run")
    assert binding["spec"]["failover"]["application"]["decisionConditions"] == {"tolerationSeconds": 6}
    [task] = [each for each in binding["spec"]["gracefulEvictionTasks"] if each["fromCluster"] == "alpha"]
    assert (task["purgeMode"], task["reason"]) == ("Directly", "Unhealthy")
    assert task["preservedLabelState"] == {"phase-before": found["metadata"]["labels"]["phase-before"]}


async def test_a_deployment_leaves_a_member_that_is_drained_once_it_runs_elsewhere(site: Site) -> None:
    await first_alpha_then_beta(site, DEPLOYMENTS)
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}]},
        },
    }
    about = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind}
    await site.submit({**about, "metadata": {"name": "web"}, "spec": spec})
    await runs_in(site, "web-deployment", "alpha")
    try:
        await atollctl(site, "cluster", "drain", "alpha", "--timeout", "60s")
        binding = await runs_in(site, "web-deployment", "beta")
        assert "LeavingGracefully" in site.kubectl("get", "events", "-n", site.namespace)
        await no_tasks(site, "web-deployment")
        assert await site.find(DEPLOYMENTS, "web", "alpha") is None
        assert not await site.pods("alpha")
    finally:
        await atollctl(site, "cluster", "uncordon", "alpha")
    ran = to_seconds(condition(binding, "Running")["lastTransitionTime"])
    removed = [
        to_seconds(event["requestReceivedTimestamp"])
        for event in site.audit("alpha")
        if event["verb"] == "delete"
        and (event.get("objectRef") or {}).get("resource") == "deployments"
        and event["objectRef"].get("namespace") == site.namespace
    ]
    assert removed
    assert min(removed) >= ran, "its copy stayed until the other one ran"
    works = await site.host.list(WORKS, keys.execution_namespace("alpha"))
    assert not [work for work in works if work["metadata"]["annotations"].get(keys.BINDING_NAME) == "web-deployment"]
