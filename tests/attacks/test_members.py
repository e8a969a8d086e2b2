"""Namespaces of a member that are its own: nothing of the host's enters them, unless the member's admin says so."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.control.settings import RuleSettings
from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    EVENTS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_QUOTAS,
    SECRETS,
    ApiResource,
)
from tests.integration.decisions import YOUNG
from tests.integration.federation import Json, Site, batch_job, job, until

pytestmark = pytest.mark.integration
RULES = (LIMIT_RANGES, RESOURCE_QUOTAS, NETWORK_POLICIES)


async def only(site: Site, *members: str) -> None:
    """Send what this test submits to these members."""
    spec = {
        "resourceSelectors": [{"apiVersion": each.api_version, "kind": each.kind} for each in (JOBS, BATCH_JOBS)],
        "placement": {"clusterAffinity": {"clusterNames": list(members)}},
    }
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**about, "metadata": {"name": "only", "namespace": site.namespace}, "spec": spec})


async def own_namespace(site: Site, member: str) -> None:
    """The member has a namespace of that name, with a Secret, for something of its own."""
    api, name = site.members[member], site.namespace
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    metadata = {"name": "operator", "namespace": name}
    await api.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": "x"}})


async def story(site: Site, binding: str, reason: str) -> Json:
    """The line of a story with this reason, once it is there."""

    async def look() -> Json | None:
        found = await site.find(BINDINGS, binding)
        text = ((found or {}).get("metadata") or {}).get("annotations", {}).get(keys.DECISION)
        lines: list[Json] = orjson.loads(text).get("story") or [] if text else []
        return next((line for line in lines if line["reason"] == reason), None)

    return await until(look, what=f"{binding} is {reason}")


def reader(obj: Json) -> Json:
    """The workload, reading the Secret of the member's own namespace."""
    for template in [task["template"] for task in obj["spec"].get("tasks", ())] or [obj["spec"]["template"]]:
        source = {"secretKeyRef": {"name": "operator", "key": "key"}}
        template["spec"]["containers"][0]["env"] = [{"name": "KEY", "valueFrom": source}]
    return obj


@pytest.mark.parametrize(
    ("obj", "binding"),
    [
        pytest.param(job("thief", seconds=None), "thief-job", id="a Volcano Job"),
        pytest.param(batch_job("thief", seconds=None), "thief-job", id="a batch Job"),
    ],
)
async def test_a_namespace_of_the_member_s_own_is_not_entered_until_its_admin_accepts(
    site: Site, obj: Json, binding: str
) -> None:
    await only(site, "topo")
    await own_namespace(site, "topo")
    resource: Any = JOBS if obj["apiVersion"] == JOBS.api_version else BATCH_JOBS
    await site.submit(reader(obj))
    line = await story(site, binding, "NamespaceNotAccepted")
    assert f"namespace {site.namespace} " in line["text"]
    assert f"kubectl label namespace {site.namespace} {keys.ACCEPT}=true" in line["text"]
    assert await site.find(resource, "thief", "topo") is None
    assert await site.pods("topo") == []
    await site.members["topo"].merge_patch(NAMESPACES, site.namespace, {"metadata": {"labels": {keys.ACCEPT: "true"}}})

    # Else it is tried again after a minute.
    await site.host.merge_patch(resource, "thief", {"metadata": {"annotations": {keys.RETRY: "1"}}}, site.namespace)

    async def there() -> bool:
        return bool(await site.pods("topo"))

    await until(there, what="it is there once the member accepts")


async def test_another_member_is_tried_that_has_no_such_namespace(site: Site) -> None:
    await only(site, "alpha", "beta")
    # Beta has less left over, so it comes first.
    await own_namespace(site, "beta")
    await site.submit(job("first", seconds=None))
    line = await story(site, "first-job", "NamespaceNotAccepted")
    assert "beta" in line["text"]
    await site.phase("first", "Running")
    assert await site.where("first") == "alpha"
    assert await site.pods("beta") == []
    found = await site.find(JOBS, "first")
    assert found is not None
    # The next one of the namespace does not try it at all.
    await site.submit(job("second", seconds=None))
    assert await site.where("second") == "alpha"
    epoch = (await site.host.get(BINDINGS, "second-job", site.namespace))["metadata"]["annotations"][keys.EPOCH]
    assert epoch == "1"


async def test_what_atoll_made_is_entered_again(site: Site) -> None:
    await only(site, "topo")
    for name in ("one", "two"):
        await site.submit(job(name))
        await site.phase(name, "Completed")
    made = await site.members["topo"].get(NAMESPACES, site.namespace)
    assert made["metadata"]["labels"][keys.MADE] == "true"


# -- pods of strangers -------------------------------------------------------------------------------------------------


async def placed(site: Site, binding: str) -> dict[str, int]:
    """Node -> pods, as the host has heard of a workload."""
    found = await site.host.get(BINDINGS, binding, site.namespace)
    items = (found.get("status") or {}).get("aggregatedStatus") or ()
    nodes: dict[str, int] = {}
    for item in items:
        nodes |= ((item.get("status") or {}).get("placement") or {}).get("nodes") or {}
    return nodes


async def test_a_pod_with_a_stranger_s_binding_does_not_count_as_its_placement(site: Site) -> None:
    """Whoever may create pods somewhere in a member names a binding of others: it is told, and changes nothing."""
    await only(site, "topo")
    await site.submit(job("mine", seconds=None))
    await site.phase("mine", "Running")
    (pod,) = await site.pods("topo")
    identity = {key: pod["metadata"]["annotations"][key] for key in (keys.BINDING_UID, keys.EPOCH)}
    topo = site.members["topo"]
    spec = {"nodeName": pod["spec"]["nodeName"], "containers": [{"name": "c", "image": "busybox"}]}
    owned = {
        "annotations": {**identity, keys.BINDING_UID: "other"},
        "ownerReferences": pod["metadata"]["ownerReferences"],
    }
    for name, more in (("forged", {"annotations": identity}), ("owned", owned)):
        metadata = {"name": name, "namespace": site.namespace, **more}
        await topo.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def told() -> bool:
        events = await topo.list(EVENTS, site.namespace)
        return {each["regarding"]["name"] for each in events if each["reason"] == "NotOfBinding"} == {"forged", "owned"}

    await until(told, what="both are told of")
    # What the host hears after that is the pod of the workload alone.
    await site.host.merge_patch(
        JOBS,
        "mine",
        {
            "spec": {
                "minAvailable": 1,
                "tasks": [{**(await site.host.get(JOBS, "mine", site.namespace))["spec"]["tasks"][0], "replicas": 2}],
            }
        },
        site.namespace,
    )

    async def two() -> bool:
        return sum((await placed(site, "mine-job")).values()) >= 2

    await until(two, what="the host hears of the second pod")
    assert sum((await placed(site, "mine-job")).values()) == 2
    for name in ("forged", "owned"):
        await topo.delete(PODS, name, site.namespace, grace_seconds=0)


# -- what namespaces hand on -------------------------------------------------------------------------------------------


async def names(site: Site, member: str) -> set[str]:
    """Rules of the test's namespace in a member."""
    return {
        each["metadata"]["name"] for kind in RULES for each in await site.members[member].list(kind, site.namespace)
    }


def rule(kind: ApiResource, name: str, **spec: Any) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}


async def test_rules_of_the_host_s_namespace_hold_in_the_member_where_it_says_so(site: Site) -> None:
    await site.only("topo")
    limits = rule(LIMIT_RANGES, "limits", limits=[{"type": "Container", "default": {"cpu": "1234m"}}])
    quota = rule(RESOURCE_QUOTAS, "quota", hard={"pods": "7"})
    policy = rule(NETWORK_POLICIES, "alone", podSelector={}, policyTypes=["Ingress"])
    for each, kind in ((limits, LIMIT_RANGES), (quota, RESOURCE_QUOTAS), (policy, NETWORK_POLICIES)):
        await site.host.create(kind, {**each, "metadata": {**each["metadata"], "namespace": site.namespace}})
    await site.submit(job("plain", seconds=None))
    await site.phase("plain", "Running")
    assert await names(site, "topo") == set(), "they stay where they are"

    site.kubectl("annotate", "ns", site.namespace, f"{keys.PROPAGATE}=limitranges,resourcequotas,networkpolicies")

    async def there(*wanted: str) -> bool:
        return await names(site, "topo") == set(wanted)

    await until(lambda: there("limits", "quota", "alone"), what="they are there")
    await site.submit(job("limited", seconds=None))
    await site.phase("limited", "Running")
    (pod,) = [each for each in await site.pods("topo") if each["metadata"]["name"].startswith("limited-")]
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1234m"}
    # They follow, and what the member has itself stays.
    own = rule(NETWORK_POLICIES, "own", podSelector={})
    await site.members["topo"].create(
        NETWORK_POLICIES, {**own, "metadata": {"name": "own", "namespace": site.namespace}}
    )
    await site.host.delete(NETWORK_POLICIES, "alone", site.namespace)
    await site.host.merge_patch(RESOURCE_QUOTAS, "quota", {"spec": {"hard": {"pods": "8"}}}, site.namespace)

    async def changed() -> bool:
        found = await site.members["topo"].get(RESOURCE_QUOTAS, "quota", site.namespace)
        return found["spec"]["hard"] == {"pods": "8"} and await there("limits", "quota", "own")

    await until(changed, what="they follow")
    site.kubectl("annotate", "ns", site.namespace, f"{keys.PROPAGATE}-")
    await until(lambda: there("own"), what="they are gone, and the member's own is there")


async def test_rules_beyond_the_bound_stay_on_the_host_and_an_event_says_so(site: Site) -> None:
    await site.only("topo")
    bound = RuleSettings().most
    for number in range(bound + 2):
        policy = rule(NETWORK_POLICIES, f"p-{number:03}", podSelector={})
        policy["metadata"]["namespace"] = site.namespace
        await site.host.create(NETWORK_POLICIES, policy)
    site.kubectl("annotate", "ns", site.namespace, f"{keys.PROPAGATE}=networkpolicies")
    await site.submit(job("plain", seconds=None))
    await site.phase("plain", "Running")
    assert await names(site, "topo") == {f"p-{number:03}" for number in range(bound)}

    async def told() -> Json | None:
        events = await site.host.list(EVENTS, site.namespace)
        return next((each for each in events if each["reason"] == "NotPropagated"), None)

    event = await until(told, what="it is told of")
    assert event["regarding"]["name"] == f"p-{bound:03}"
    assert "and 1 younger ones" in event["note"]
    # Where there is room again, it goes along.
    for number in (0, 1):
        await site.host.delete(NETWORK_POLICIES, f"p-{number:03}", site.namespace)

    async def others() -> bool:
        return await names(site, "topo") == {f"p-{number:03}" for number in range(2, bound + 2)}

    await until(others, what="the next ones take their place")


async def test_no_victim_is_evicted_for_work_that_the_member_would_not_let_in(site: Site) -> None:
    """1. A member is full. 2. A workload of higher priority comes, from a namespace that the member has itself."""
    await site.only("topo")
    queue = await site.queue()
    await site.host.merge_patch(QUEUES, queue, YOUNG)
    await site.submit(job("low", replicas=4, cpu="15", seconds=None, queue=queue))
    await site.phase("low", "Running")
    other, value = f"{site.namespace}-own", f"high-{site.namespace}"
    metadata = {"name": other, "labels": {keys.ENABLED: "true"}}
    await site.host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    await site.members["topo"].create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}
    )
    await site.host.create(
        PRIORITY_CLASSES,
        {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "metadata": {"name": value}, "value": 9},
    )
    mine, site.namespace = site.namespace, other

    async def asked_in_vain() -> bool:
        found = await site.find(BINDINGS, "high-job")
        text = ((found or {}).get("metadata") or {}).get("annotations", {}).get(keys.DECISION)
        return bool(text) and orjson.loads(text)["reason"] in ("PartRefused", "ClustersAvoided")

    try:
        await site.only("topo")
        await site.submit(job("high", cpu="15", priorityClassName=value, queue=queue, seconds=None))
        await until(asked_in_vain, what="the member was asked and said no")
    finally:
        await site.host.delete(JOBS, "high", other)
        site.namespace = mine
        await site.host.delete(PRIORITY_CLASSES, value)
        await site.host.delete(NAMESPACES, other)
    binding = await site.host.get(BINDINGS, "low-job", site.namespace)
    assert binding["metadata"]["annotations"][keys.EPOCH] == "1"
