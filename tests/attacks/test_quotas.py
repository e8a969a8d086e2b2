"""ResourceQuotas of a namespace that are for some of its pods: nothing passes them by its class, deadline or size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from atoll.kube import errors
from atoll.model.apiresource import PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, SERVICE_ACCOUNTS
from atoll.model.gang import scopes_of
from atoll.model.quotas import scopes_in
from tests.integration.federation import Json, Site, batch_job, job, until
from tests.integration.tenants import Tenant

pytestmark = pytest.mark.integration


async def quota(site: Site, name: str, hard: Mapping[str, str], **spec: Any) -> None:
    metadata = {"name": name, "namespace": site.namespace}
    await site.host.create(
        RESOURCE_QUOTAS,
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard, **spec}},
    )

    async def counted() -> bool:
        found = await site.find(RESOURCE_QUOTAS, name)
        return found is not None and (found.get("status") or {}).get("hard") == hard

    await until(counted, what=f"quota {name} counts")


def with_pod(workload: Json, **fields: Any) -> Json:
    spec = workload["spec"]
    template = spec["tasks"][0]["template"] if "tasks" in spec else spec["template"]
    template["spec"] |= fields
    return workload


async def priority_class(site: Site) -> str:
    name = f"dear-{site.namespace}"
    about = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind}
    await site.host.create(PRIORITY_CLASSES, {**about, "metadata": {"name": name}, "value": 1000})
    return name


async def test_a_class_of_which_the_namespace_may_have_little_waits(site: Site, tenant: Tenant) -> None:
    name = await priority_class(site)
    of_class = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [name]}]}
    await quota(site, "dear", {"requests.cpu": "1"}, scopeSelector=of_class)
    queue = await site.queue()
    await site.submit(job("first", queue=queue, cpu="1", seconds=None, priorityClassName=name))
    await site.phase("first", "Running")
    await site.submit(job("second", queue=queue, cpu="1", priorityClassName=name))
    found = await site.reason("second", "QuotaExceeded")
    assert (found["blocker"]["kind"], found["blocker"]["name"]) == ("ResourceQuota", "dear")
    said = await tenant.ctl("explain", "second")
    assert "it would exceed a quota of its namespace: ResourceQuota dear has 0 cpu free for it, 1 needed" in said
    assert "higher limits, by what is short (ResourceQuota dear: 1 cpu)" in said
    # The class of the pods counts, whatever the workload's own says.
    pod = with_pod(job("third", queue=queue, cpu="1"), priorityClassName=name)
    await site.submit(pod)
    await site.reason("third", "QuotaExceeded")
    await site.submit(job("plain", queue=queue, cpu="1"))
    await site.phase("plain", "Completed")


async def test_pods_with_a_deadline_and_pods_that_ask_for_nothing_have_quotas(site: Site, tenant: Tenant) -> None:
    await quota(site, "short", {"pods": "0"}, scopes=["Terminating"])
    await quota(site, "free", {"pods": "0"}, scopes=["BestEffort"])
    await site.submit(with_pod(batch_job("short"), activeDeadlineSeconds=600))
    await site.submit(with_pod(job("free"), containers=[{"name": "c", "image": "busybox"}]))
    for name in ("short", "free"):
        found = await site.reason(name, "QuotaExceeded")
        assert found["blocker"]["name"] == name
    await site.submit(job("plain"))
    await site.phase("plain", "Completed")


PODS_OF_ALL_SCOPES: dict[str, Json] = {
    "nothing": {},
    "a class": {"priorityClassName": "CLASS"},
    "a deadline": {"activeDeadlineSeconds": 60},
    "asks": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    "a limit of memory": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"memory": "1Gi"}}}]},
    "devices": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    "an init container asks": {
        "initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"memory": "1"}}}],
        "activeDeadlineSeconds": 60,
        "priorityClassName": "CLASS",
    },
    "of other namespaces": {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "namespaceSelector": {}}]
            }
        }
    },
    "of its own namespace": {
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
                ]
            }
        }
    },
}
SELECTORS: dict[str, Json] = {
    "terminating": {"scopes": ["Terminating"]},
    "not-terminating": {"scopes": ["NotTerminating"]},
    "best-effort": {"scopes": ["BestEffort"]},
    "not-best-effort": {"scopes": ["NotBestEffort"]},
    "cross-namespace": {"scopes": ["CrossNamespacePodAffinity"]},
    "any-class": {"scopes": ["PriorityClass"]},
    "two": {"scopes": ["Terminating", "NotBestEffort"]},
    "of-class": {"operator": "In", "values": ["CLASS"]},
    "of-others": {"operator": "NotIn", "values": ["CLASS"]},
    "has-class": {"operator": "Exists"},
    "has-none": {"operator": "DoesNotExist"},
}


async def test_which_pods_a_quota_is_for_is_as_the_api_server_has_it(site: Site) -> None:
    name = await priority_class(site)

    async def account() -> bool:
        return await site.find(SERVICE_ACCOUNTS, "default") is not None

    await until(account, what="the namespace's account exists")
    for title, selector in SELECTORS.items():
        spec: Json = selector
        if "operator" in selector:
            term = {"scopeName": "PriorityClass", **selector, "values": [name] if "values" in selector else []}
            spec = {"scopeSelector": {"matchExpressions": [term]}}
        await quota(site, title, {"pods": "0"}, **spec)
        await agrees(site, title, spec, name)
        await site.host.delete(RESOURCE_QUOTAS, title, site.namespace)


async def agrees(site: Site, title: str, spec: Json, priority_class: str) -> None:
    """Wait until the API server refuses just those pods that the quota is for: its admission learns of it by a watch."""
    conditions = scopes_in(spec.get("scopes") or (), spec.get("scopeSelector"))
    wrong: list[str] = []

    async def look() -> bool:
        wrong.clear()
        for about, fields in PODS_OF_ALL_SCOPES.items():
            pod: Json = {"containers": [{"name": "c", "image": "i"}], **fields}
            if "priorityClassName" in pod:
                pod["priorityClassName"] = priority_class
            expected = all(scope.matches(scopes_of(pod)) for scope in conditions)
            if (f"exceeded quota: {title}," in await refusal(site, pod)) != expected:
                wrong.append(f"{about}: quota {title} is{' not' if expected else ''} for it")
        return not wrong

    try:
        await until(look)
    except AssertionError:
        pytest.fail("; ".join(wrong))


_numbers = itertools.count()


async def refusal(site: Site, spec: Json) -> str:
    """Why such a pod is refused; empty where it is not. Nothing is made."""
    metadata = {"name": f"p{next(_numbers)}", "namespace": site.namespace}
    try:
        await site.host.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, dry_run=True
        )
    except errors.Forbidden as error:
        return error.message
    return ""
