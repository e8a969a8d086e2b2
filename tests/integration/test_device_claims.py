"""Workloads whose pods have ResourceClaims: charged by class on the host, allocated in the member."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.kube.errors import ApiError
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    CAPACITIES,
    DEVICE_CLASSES,
    JOBS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from atoll.model.claim_shapes import name_of, shape_of
from tests.integration.command_line import atollctl
from tests.integration.device_drivers import DRIVER, GPUS, PAIR, equipped, head, template, using
from tests.integration.federation import Site, job, until
from tests.integration.scrapes import scraped

pytestmark = pytest.mark.integration
MEMBER, OTHER = "alpha", "beta"


@pytest.fixture
async def devices(site: Site) -> AsyncIterator[None]:
    """Two nodes of one member with two pairs each; no other member has the classes."""
    async with equipped(site, MEMBER):
        yield


@pytest.fixture
async def apart(site: Site, devices: None) -> AsyncIterator[None]:
    """Another member has as many devices, none of which go together, on as many nodes."""
    async with equipped(site, OTHER, joined=False):
        yield


async def fitting(site: Site, member: str, shape: str) -> dict[str, int] | None:
    """By node of a member, how many pods of the shape fit, as it published; None where it does not say."""
    found = {
        name: each["free"][shape]
        for capacity in await site.host.list(CAPACITIES, f"karmada-es-{member}")
        for each in capacity["spec"]["classes"]
        for name in each["names"]
        if shape in each["free"]
    }
    return found or None


async def test_pods_get_devices_by_the_extended_resource_of_a_class(site: Site, devices: None) -> None:
    """1. Each pod of two gets both GPUs of a node by a claim of its own, which its status names for the kubelet. 2. The
    host counts them: the next pod waits until the first ones have gone.
    """
    member, name = site.members[MEMBER], "example.com/gpu"
    counted = {"metadata": {"annotations": {keys.CLASS_BY_RESOURCE: "counted"}}}
    await member.merge_patch(DEVICE_CLASSES, "gpu.example.com", counted)

    def asking(job_name: str, count: int, **more: Any) -> dict[str, Any]:
        made = job(job_name, **more)
        made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["limits"] = {name: str(count)}
        return made

    await site.submit(asking("plain", 2, replicas=2, seconds=None))
    await site.phase("plain", "Running")
    claims = {each["metadata"]["name"]: each for each in await member.list(RESOURCE_CLAIMS, site.namespace)}
    pods = await site.pods(MEMBER)
    assert len(pods) == len(claims) == 2
    for pod in pods:
        said = pod["status"]["extendedResourceClaimStatus"]
        claim = claims[said["resourceClaimName"]]
        [mapping] = said["requestMappings"]
        assert mapping["resourceName"] == name
        assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
        assert [each["uid"] for each in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
        results = claim["status"]["allocation"]["devices"]["results"]
        assert [each["request"] for each in results] == [mapping["requestName"]] * 2
    await site.submit(asking("late", 1, seconds=None))
    await site.reason("late", "InsufficientResources")
    site.kubectl("delete", "-n", site.namespace, "vcjob", "plain")
    await site.phase("late", "Running")


async def test_a_gang_runs_with_a_pair_of_devices_for_each_pod_and_the_next_one_waits(
    site: Site, devices: None
) -> None:
    """1. Three of four pairs are allocated, each once, and reserved for their pods. 2. A gang of two waits on the host
    with that reason. 3. The first one goes: the second runs.
    """
    member = site.members[MEMBER]
    await template(site)
    await site.submit(using("first", replicas=3, seconds=None))
    await site.phase("first", "Running")
    assert await site.where("first") == MEMBER
    claims = await member.list(RESOURCE_CLAIMS, site.namespace)
    results = [each["status"]["allocation"]["devices"]["results"] for each in claims]
    assert len(claims) == 3
    assert len({(each["pool"], each["device"]) for some in results for each in some}) == 6
    for gpu, nic in results:
        assert gpu["device"].removeprefix("gpu") == nic["device"].removeprefix("nic")
        assert gpu["pool"] == nic["pool"]
    reserved = sorted(each["status"]["reservedFor"][0]["name"] for each in claims)
    assert reserved == sorted(pod["metadata"]["name"] for pod in await site.pods(MEMBER))

    await site.submit(using("second", replicas=2, seconds=None))
    decision = await site.decided("second")
    assert decision["reason"] == "InsufficientResources", decision

    async def figures() -> bool:
        # The decision keeps the numbers of the moment in which it was written.
        return "alpha holds 1 of the 2 pods" in await atollctl(site, "explain", "second")

    await until(figures, what="the host knows the last free pair")
    site.kubectl("delete", "-n", site.namespace, "vcjob", "first")
    await site.phase("second", "Running")


async def what_if(site: Site, workload: dict[str, Any], folder: Path, *, ok: bool = True) -> str:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(workload))
    return await atollctl(site, "what-if", "-f", str(file), ok=ok)


async def test_a_gang_goes_to_the_member_where_its_devices_go_together(site: Site, apart: None, tmp_path: Path) -> None:
    """1. A gang waits, too large for all members: they publish how many of its pods fit, none in one where as many
    devices of each class are free. 2. `explain` and `what-if` tell so. 3. One that fits runs in the other member, and that one is not asked.
    """
    await template(site)
    await site.submit(using("waits", replicas=9, seconds=None))
    stored = await site.host.get(RESOURCE_CLAIM_TEMPLATES, "pair", site.namespace)
    shape = name_of(shape_of([{"name": "pair", "spec": stored["spec"]["spec"]}]))

    async def known() -> bool:
        found = [await fitting(site, member, shape) for member in (MEMBER, OTHER)]
        return found == [{f"{name}-n{node}": count for node in range(2)} for name, count in ((MEMBER, 2), (OTHER, 0))]

    await until(known, what="both members say how many pairs fit")
    answer = await what_if(site, using("nine", replicas=9), tmp_path)
    pair = "1 gpu.example.com and 1 nic.example.com with one pcieRoot"
    assert f"devices that go together ({pair}) are free for 4 pods, on 2 nodes of" in answer, answer
    assert f"devices that go together ({pair}) are free for 0 pods; 9 needed" in answer, answer
    assert f"would start now\n  in {MEMBER}" in await what_if(site, using("four", replicas=4), tmp_path)
    assert "ResourceClaimTemplate none" in await what_if(site, using("lost", claims="none"), tmp_path, ok=False)
    explained = await atollctl(site, "explain", "waits")
    assert f"({pair}) are free for 4 pods, on 2 nodes of" in explained, explained

    await site.submit(using("runs", replicas=4, seconds=None))
    await site.phase("runs", "Running")
    assert await site.where("runs") == MEMBER
    asked = [each for each in site.audit() if (each["objectRef"].get("namespace") or "") == f"karmada-es-{OTHER}"]
    assert not [each for each in asked if each["objectRef"]["resource"] == "works" and each["verb"] == "create"]


async def test_devices_by_class_are_a_resource_of_queues(site: Site, devices: None) -> None:
    """A queue of two GPUs: a gang of three waits for its quota, one of two runs."""
    queue = await site.queue("gpus", capability={GPUS: "2"})
    await template(site)
    await site.submit(using("large", replicas=3, seconds=None, queue=queue))
    decision = await site.decided("large")
    assert GPUS in str(decision), decision
    await site.submit(using("small", replicas=2, seconds=None, queue=queue))
    await site.phase("small", "Running")
    described = await atollctl(site, "queue", "describe", queue)
    assert re.search(rf"{re.escape(GPUS)} .*2 of 2 \(100%\)", described), described


async def test_a_workload_waits_for_its_claim_template(site: Site, devices: None) -> None:
    """The Job comes first: it waits, with that reason, and runs once the template is there."""
    await site.submit(using("early", claims="later"))

    async def said() -> bool:
        events = site.kubectl("get", "events", "-n", site.namespace, "-o", "jsonpath={.items[*].message}")
        return "ResourceClaimTemplate later" in events

    await until(said, what="the missing template is named")
    await template(site, "later")
    await site.phase("early", "Completed")


async def test_a_tenant_gets_no_access_for_administration(site: Site, devices: None) -> None:
    """The namespace has no label for that: the host refuses the template."""
    admin = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "adminAccess": True}}
    with pytest.raises(ApiError, match="admin-access"):
        await template(site, "admin", {"requests": [admin]})


async def test_a_tenant_gets_no_access_for_administration_by_a_claim_of_its_own(site: Site, devices: None) -> None:
    """As for templates: the host refuses it."""
    admin = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "adminAccess": True}}
    about = {"name": "admin", "namespace": site.namespace}
    claim = {**head(RESOURCE_CLAIMS, "admin"), "metadata": about, "spec": {"devices": {"requests": [admin]}}}
    with pytest.raises(ApiError, match="admin-access"):
        await site.host.create(RESOURCE_CLAIMS, claim)


async def test_a_host_that_allows_access_for_administration_opens_no_member(site: Site, devices: None) -> None:
    """The namespace has Kubernetes' label for that on the host, so the host takes the template. The member's namespace
    has no such label: no claim is made there, and the pod gets no device.
    """
    member = site.members[MEMBER]
    labels = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await site.host.merge_patch(NAMESPACES, site.namespace, labels)
    admin = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "adminAccess": True}}
    await template(site, "admin", {"requests": [admin]})
    await site.submit(using("spy", claims="admin", seconds=None))
    await template(site)
    await site.submit(using("honest", seconds=None))
    await site.phase("honest", "Running")
    [claim] = await member.list(RESOURCE_CLAIMS, site.namespace)
    assert claim["metadata"]["name"].startswith("honest")
    assert "resource.kubernetes.io/admin-access" not in str(await member.get(NAMESPACES, site.namespace))
    assert [pod["metadata"]["name"] for pod in await site.pods(MEMBER) if pod["spec"].get("nodeName")] == [
        "honest-worker-0"
    ]


def asking(name: str, resource: str, queue: str) -> dict[str, Any]:
    """A Job of one pod that asks for two of a resource by its name."""
    made = job(name, seconds=None, queue=queue)
    made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {"limits": {resource: "2"}}
    return made


async def test_no_other_name_of_a_device_class_leaves_its_quota(site: Site, devices: None) -> None:
    """A queue of one GPU by class. Jobs ask for two by the extended resource of the class, by the name that Kubernetes
    gives every class, by the name of the quota, and by a name of Atoll's own figures: all wait, and no device is taken.
    A Pod by itself is charged as well.
    """
    member, queue = site.members[MEMBER], await site.queue("one", capability={GPUS: "1"})
    await member.merge_patch(DEVICE_CLASSES, "gpu.example.com", {"spec": {"extendedResourceName": "example.com/gpu"}})
    names = {
        "extended": "example.com/gpu",
        "implicit": "deviceclass.resource.kubernetes.io/gpu.example.com",
        "quota": GPUS,
        "figure": name_of(shape_of([{"name": "pair", "spec": {"devices": PAIR}}])),
    }
    reasons = {}
    for name, resource in names.items():
        await site.submit(asking(name, resource, queue))
        reasons[name] = (await site.decided(name))["reason"]
    assert reasons.pop("quota") == "QuotaExceeded"
    assert set(reasons.values()) == {"InsufficientResources"}, reasons
    await template(site)
    await site.submit(using("first", seconds=None, queue=queue))
    await site.phase("first", "Running")
    container = {"name": "c", "image": "busybox", "resources": {"claims": [{"name": "devices"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "pair"}]}
    about = {"name": "bare", "namespace": site.namespace, "labels": {keys.QUEUE_LABEL: queue}}
    await site.host.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})

    async def waits() -> bool:
        found = [each for each in await site.host.list(BINDINGS, site.namespace) if "bare" in each["metadata"]["name"]]
        return any("QuotaExceeded" in str(each["metadata"]["annotations"].get(keys.DECISION)) for each in found)

    await until(waits, what="the Pod waits for quota")
    held = [each for each in await member.list(RESOURCE_CLAIMS) if (each.get("status") or {}).get("allocation")]
    assert len(held) == 1
    assert [pod["metadata"]["name"] for pod in await site.pods(MEMBER)] == ["first-worker-0"]


async def test_a_workload_gets_no_claim_of_another_namespace_or_pod(site: Site, devices: None) -> None:
    """It names a claim that another namespace of the host has, and one that the member made for a pod: it waits, as
    neither is in its own namespace of the host.
    """
    member = site.members[MEMBER]
    other = f"{site.namespace}-other"
    await site.host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    about = {"name": "theirs", "namespace": other}
    claim = {**head(RESOURCE_CLAIMS, "theirs"), "metadata": about, "spec": {"devices": PAIR}}
    await site.host.create(RESOURCE_CLAIMS, claim)
    try:
        await template(site)
        await site.submit(using("owner", seconds=None))
        await site.phase("owner", "Running")
        [made] = await member.list(RESOURCE_CLAIMS, site.namespace)
        for name, named in (("foreign", "theirs"), ("made", made["metadata"]["name"])):
            wish = using(name)
            wish["spec"]["tasks"][0]["template"]["spec"]["resourceClaims"] = [
                {"name": "devices", "resourceClaimName": named}
            ]
            await site.submit(wish)
            what = f"ResourceClaim {named}; create it"

            async def said(what: str = what) -> bool:
                events = site.kubectl("get", "events", "-n", site.namespace, "-o", "jsonpath={.items[*].message}")
                return what in events

            await until(said, what=what)
        [now] = await member.list(RESOURCE_CLAIMS, site.namespace)
        assert now["status"] == made["status"]
        assert len(await site.pods(MEMBER)) == 1
    finally:
        await site.host.delete(NAMESPACES, other)


async def test_pods_that_share_a_claim_start_together_with_one_allocation(site: Site, devices: None) -> None:
    """A gang of two with one ResourceClaim by name: both run on one node, and the claim is reserved for both."""
    about = {"name": "shared", "namespace": site.namespace}
    claim = {**head(RESOURCE_CLAIMS, "shared"), "metadata": about, "spec": {"devices": PAIR}}
    await site.host.create(RESOURCE_CLAIMS, claim)
    wish = using("both", replicas=2, seconds=None)
    named = {"name": "devices", "resourceClaimName": "shared"}
    wish["spec"]["tasks"][0]["template"]["spec"]["resourceClaims"] = [named]
    await site.submit(wish)
    await site.phase("both", "Running")
    pods = await site.pods(MEMBER)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    [made] = await site.members[MEMBER].list(RESOURCE_CLAIMS, site.namespace)
    users = sorted(each["name"] for each in made["status"]["reservedFor"])
    assert users == sorted(pod["metadata"]["name"] for pod in pods)
    assert len(made["status"]["allocation"]["devices"]["results"]) == 2
    assert (await scraped(site, f"agent-{MEMBER}"))['atoll_claims_total{outcome="allocated"}'] >= 1


async def test_devices_of_a_try_that_an_agent_did_not_finish_are_given_back(site: Site, devices: None) -> None:
    """A claim is allocated and reserved for a pod that has no node: an agent ended between the two."""
    member, name = site.members[MEMBER], f"left-{site.namespace}"
    about = {"name": name, "namespace": "default"}
    spec = {
        "schedulerName": "atoll",
        "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1000"}}}],
        "resourceClaims": [{"name": "devices", "resourceClaimName": name}],
    }
    try:
        await member.create(
            RESOURCE_CLAIMS, {**head(RESOURCE_CLAIMS, name), "metadata": about, "spec": {"devices": PAIR}}
        )
        made = await member.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
        results = [
            {"request": kind, "driver": DRIVER, "pool": f"{MEMBER}-n0", "device": f"{kind}-0"}
            for kind in ("gpu", "nic")
        ]
        status = {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}],
        }
        await member.merge_patch(RESOURCE_CLAIMS, name, {"status": status}, "default", subresource="status")

        async def given_back() -> bool:
            return "allocation" not in (await member.get(RESOURCE_CLAIMS, name, "default")).get("status", {})

        await until(given_back, what="the claim has no devices")
        assert (await scraped(site, f"agent-{MEMBER}"))['atoll_claims_total{outcome="returned"}'] >= 1
    finally:
        await member.delete(PODS, name, "default")
        await member.delete(RESOURCE_CLAIMS, name, "default")


ALL = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "All"}}]}


def gpus(count: int) -> dict[str, Any]:
    return {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": count}}]}


async def held(site: Site) -> list[int]:
    """Devices of each allocated claim in the member."""
    found = [
        (each.get("status") or {}).get("allocation")
        for each in await site.members[MEMBER].list(RESOURCE_CLAIMS, site.namespace)
    ]
    return [len(each["devices"]["results"]) for each in found if each]


async def test_all_devices_of_a_node_are_charged_as_their_number_is_stated(
    site: Site, devices: None, tmp_path: Path
) -> None:
    """1. Without a number the workload is refused with what to write. 2. Of a queue of four GPUs two pods get two each,
    all of their nodes; `what-if` says what is missing for a third. 3. Pods that state one get nothing on nodes of two.
    """
    queue = await site.queue("gpus", capability={GPUS: "4"})
    await template(site, "silent", ALL)
    await site.submit(using("silent", claims="silent", queue=queue))

    async def refused() -> bool:
        events = site.kubectl("get", "events", "-n", site.namespace, "-o", "jsonpath={.items[*].message}")
        return 'write `atoll.sh/all-devices: "8"`' in events

    await until(refused, what="the workload is refused with what to write")
    said = await what_if(site, using("silent", claims="silent", queue=queue), tmp_path, ok=False)
    assert 'write `atoll.sh/all-devices: "8"`' in said, said

    await template(site, "two", ALL, {keys.ALL_DEVICES: "2"})
    await site.submit(using("both", claims="two", replicas=2, seconds=None, queue=queue))
    await site.phase("both", "Running")
    assert await held(site) == [2, 2]
    described = await atollctl(site, "queue", "describe", queue)
    assert re.search(rf"{re.escape(GPUS)} .*4 of 4 \(100%\)", described), described
    said = await what_if(site, using("third", claims="two", queue=queue), tmp_path)
    assert GPUS in said, said
    site.kubectl("delete", "-n", site.namespace, "vcjob", "both")

    await template(site, "one", ALL, {keys.ALL_DEVICES: "gpu=1"})
    await site.submit(using("fewer", claims="one", seconds=None, queue=queue))

    async def explained() -> bool:
        answer = await atollctl(site, "explain", "fewer")
        return "(all gpu.example.com of a node with exactly 1) are free for 0 pods; 1 needed" in answer

    await until(explained, what="the reason names the number")
    assert await held(site) == []


async def test_a_template_or_claim_that_is_made_anew_leaves_no_quota(site: Site, devices: None) -> None:
    """1. A pod runs with two GPUs of a queue of two. Its template is made anew for one GPU: the charge stays, and the
    next pod waits. 2. The member's template is made anew, too: that pod runs with one GPU.
    """
    member, queue = site.members[MEMBER], await site.queue("two", capability={GPUS: "2"})
    await template(site, "some", gpus(2))
    await site.submit(using("first", claims="some", seconds=None, queue=queue))
    await site.phase("first", "Running")
    await site.host.delete(RESOURCE_CLAIM_TEMPLATES, "some", site.namespace)
    await template(site, "some", gpus(1))

    async def made_anew() -> bool:
        return [
            each["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"]
            for each in await member.list(RESOURCE_CLAIM_TEMPLATES, site.namespace)
            if each["metadata"]["name"] == "some"
        ] == [1]

    await until(made_anew, what="the member has the new template")
    estimate = {"metadata": {"annotations": {keys.RUNNING_ESTIMATE: "1h"}}}
    await site.host.merge_patch(JOBS, "first", estimate, site.namespace)

    async def read_again() -> bool:
        [binding] = [
            each for each in await site.host.list(BINDINGS, site.namespace) if "first" in each["metadata"]["name"]
        ]
        return "runningEstimate" in binding["metadata"]["annotations"][keys.GANG]

    await until(read_again, what="the workload is read with the new template")
    await site.submit(using("next", claims="some", seconds=None, queue=queue))
    assert (await site.decided("next"))["reason"] == "QuotaExceeded"
    described = await atollctl(site, "queue", "describe", queue)
    assert re.search(rf"{re.escape(GPUS)} .*2 of 2 \(100%\)", described), described
    site.kubectl("delete", "-n", site.namespace, "vcjob", "first")
    await site.phase("next", "Running")

    async def one_is_left() -> bool:
        return await held(site) == [1]

    await until(one_is_left, what="the old claim has gone, and the new one has one device")
