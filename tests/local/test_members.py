"""A member behaves as clusters elsewhere do: what its programs, controllers and admission plug-ins do to a bare pod."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local import binaries, cluster
from atoll.local.federation import Federation
from atoll.local.install import wait_until
from atoll.local.layout import FederationConfig, Kubernetes, Member, NodeGroup
from atoll.local.storage import FIRST_CONSUMER, IMMEDIATE
from atoll.model import keys
from atoll.model.apiresource import CLAIMS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, VOLUMES, ApiResource

pytestmark = pytest.mark.integration

LIMIT_RANGES = ApiResource("", "v1", "limitranges", "LimitRange")
RESOURCE_QUOTAS = ApiResource("", "v1", "resourcequotas", "ResourceQuota")
CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
#: The fewest seconds that Kubernetes' own words allow between a death and what follows from it.
SHORT_LEASE = 4
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "20"}
ZONE = "topology.kubernetes.io/zone"
CONFIG = FederationConfig(
    members=[
        Member(
            name="full",
            nodes=[NodeGroup(count=2, prefix=f"full-{zone}", allocatable=ROOM, labels={ZONE: zone}) for zone in "ab"],
            node_lease_seconds=SHORT_LEASE,
            strict_kubelets=True,
        ),
        Member(name="bare", nodes=[NodeGroup(count=1)], scheduler=False),
    ]
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def federation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    directory = tmp_path_factory.mktemp("members")
    async with Federation(CONFIG, directory=directory, binaries=binaries.ensure(report=lambda _: None)) as running:
        await running.populate()
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def full(federation: Federation) -> AsyncIterator[ApiServer]:
    async with await federation.members["full"].connect() as api:
        yield api


def pod(name: str, *, tolerations: list[dict[str, Any]] | None = None, **resources: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "work", **({"resources": resources} if resources else {})}
    spec = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations or []}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def put(api: ApiServer, space: str, resource: ApiResource, obj: dict[str, Any]) -> dict[str, Any]:
    return await api.create(resource, {**obj, "metadata": {**obj["metadata"], "namespace": space}})


async def namespace(api: ApiServer, name: str) -> None:
    """A namespace that is ready for pods: its account and the authority's certificate are there."""
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def missing() -> str:
        accounts = [each["metadata"]["name"] for each in await api.list(SERVICE_ACCOUNTS, name)]
        maps = [each["metadata"]["name"] for each in await api.list(CONFIG_MAPS, name)]
        return "" if "default" in accounts and "kube-root-ca.crt" in maps else f"only {accounts} and {maps}"

    await wait_until(missing, f"namespace {name}", 10)


async def becomes(api: ApiServer, space: str, name: str, wanted: str) -> dict[str, Any]:
    """The pod once its phase is this one, or once it is `Unschedulable`, `Terminating` or `gone`."""
    found: dict[str, Any] = {}

    async def missing() -> str:
        found.clear()
        try:
            found.update(await api.get(PODS, name, space))
        except errors.NotFound:
            return "" if wanted == "gone" else "it is gone"
        said = {found["status"].get("phase")} | {each.get("reason") for each in found["status"].get("conditions", ())}
        if found["metadata"].get("deletionTimestamp"):
            said.add("Terminating")
        return "" if wanted in said else f"it is {said}"

    await wait_until(missing, f"pod {name} as {wanted}", 30)
    return found


async def node_is(api: ApiServer, name: str, status: str, taint: str | None) -> None:
    async def missing() -> str:
        node = await api.get(NODES, name)
        ready = next(each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready")
        taints = {f"{each['key']}:{each['effect']}" for each in node["spec"].get("taints", ())}
        good = ready == status and (taint in taints if taint else not taints)
        return "" if good else f"it is {ready} with {taints}"

    await wait_until(missing, f"node {name} as {status}", 40)


async def test_a_kubelet_that_lost_the_answer_to_its_start_of_a_pod_starts_it_again(full: ApiServer) -> None:
    await namespace(full, "again")
    await put(full, "again", PODS, pod("twice", requests={"cpu": "1"}))
    first = await becomes(full, "again", "twice", "Running")
    # Its kubelet gives it another address, as it does where it does not know of the first write.
    await full.merge_patch(PODS, "twice", {"status": {"phase": "Pending"}}, "again", subresource="status")
    again = await becomes(full, "again", "twice", "Running")
    assert len(first["status"]["podIPs"]) == len(again["status"]["podIPs"]) == 1
    assert first["status"]["podIP"] != again["status"]["podIP"]
    await full.delete(PODS, "twice", "again")
    await becomes(full, "again", "twice", "gone")


async def test_kube_scheduler_places_bare_pods_and_says_of_others_why_not(full: ApiServer) -> None:
    await namespace(full, "bare")
    await put(full, "bare", PODS, pod("fits", requests={"cpu": "1"}))
    await put(full, "bare", PODS, pod("large", requests={"cpu": "5"}))
    await becomes(full, "bare", "fits", "Running")
    waiting = await becomes(full, "bare", "large", "Unschedulable")
    assert "Insufficient cpu" in waiting["status"]["conditions"][0]["message"]
    await full.delete(PODS, "fits", "bare")
    await becomes(full, "bare", "fits", "gone")


async def test_a_member_may_do_without_kube_scheduler(federation: Federation) -> None:
    names = {process.spec.name for process in federation.processes.processes}
    assert "full-scheduler" in names
    assert "bare-scheduler" not in names


async def test_admission_gives_pods_an_account_defaults_and_tolerations(full: ApiServer) -> None:
    await namespace(full, "limits")
    limit = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "500m"}}
    made = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual"}, "spec": {"limits": [limit]}}
    await put(full, "limits", LIMIT_RANGES, made)
    spec = (await put(full, "limits", PODS, pod("plain")))["spec"]
    assert spec["serviceAccountName"] == "default"
    assert [each["name"].startswith("kube-api-access-") for each in spec["volumes"]] == [True]
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}
    assert {each["key"] for each in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


async def test_a_quota_is_counted_and_kept(full: ApiServer) -> None:
    await namespace(full, "quota")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    await put(full, "quota", RESOURCE_QUOTAS, quota)

    async def missing() -> str:
        status = (await full.get(RESOURCE_QUOTAS, "q", "quota")).get("status") or {}
        return "" if status.get("used") == {"pods": "0"} else f"status {status}"

    await wait_until(missing, "the quota", 10)
    await put(full, "quota", PODS, pod("first"))
    with pytest.raises(errors.Forbidden, match="exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"):
        await put(full, "quota", PODS, pod("second"))


async def test_a_dead_node_is_tainted_its_pods_go_when_it_returns_or_is_deleted(full: ApiServer) -> None:
    """1. Its kubelet falls silent. 2. The lease is late: Ready is Unknown, the taint is set. 3. What does not tolerate
    that is deleted, and stays, since no kubelet confirms it. 4. The kubelet is back: the pod goes, the taint too.
    """
    await namespace(full, "dead")
    brief = [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    ]
    lonely = pod("lonely", tolerations=brief)
    lonely["spec"]["nodeName"] = "full-b1"
    await put(full, "dead", PODS, lonely)
    await becomes(full, "dead", "lonely", "Running")

    await full.merge_patch(NODES, "full-b1", {"metadata": {"labels": {keys.DEAD: "true"}}})
    await node_is(full, "full-b1", "Unknown", "node.kubernetes.io/unreachable:NoExecute")
    left = await becomes(full, "dead", "lonely", "Terminating")
    assert next(each for each in left["status"]["conditions"] if each["type"] == "DisruptionTarget")["reason"] == (
        "DeletionByTaintManager"
    )
    assert left["status"]["phase"] == "Running"

    await full.merge_patch(NODES, "full-b1", {"metadata": {"labels": {keys.DEAD: None}}})
    await node_is(full, "full-b1", "True", None)
    await becomes(full, "dead", "lonely", "gone")


async def test_a_claim_is_bound_once_its_pod_has_a_node_by_a_volume_of_that_zone(full: ApiServer) -> None:
    """And the volume, once bound, keeps the claim's next pods in its zone, and goes with the claim."""
    await namespace(full, "claims")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    assert (await put(full, "claims", CLAIMS, claim))["spec"].get("storageClassName") == FIRST_CONSUMER

    first = pod("first")
    first["spec"] |= {"nodeSelector": {ZONE: "b"}, **using("data")}
    await put(full, "claims", PODS, first)
    await becomes(full, "claims", "first", "Running")
    bound = await full.get(CLAIMS, "data", "claims")
    assert bound["status"]["phase"] == "Bound"
    volume = await full.get(VOLUMES, bound["spec"]["volumeName"])
    assert volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["b"]

    second = pod("second")
    second["spec"] |= {"nodeSelector": {ZONE: "a"}, **using("data")}
    await put(full, "claims", PODS, second)
    waiting = await becomes(full, "claims", "second", "Unschedulable")
    assert "didn't match PersistentVolume's node affinity" in waiting["status"]["conditions"][0]["message"]

    for name in ("first", "second"):
        await full.delete(PODS, name, "claims")
    await full.delete(CLAIMS, "data", "claims")

    async def missing() -> str:
        return str([each["metadata"]["name"] for each in await full.list(VOLUMES)] or "")

    await wait_until(missing, "the volume", 20)


async def test_a_claim_of_class_immediate_is_bound_before_any_pod_uses_it(full: ApiServer) -> None:
    await namespace(full, "at-once")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    await put(full, "at-once", CLAIMS, {**claim, "spec": {**spec, "storageClassName": IMMEDIATE}})

    async def unbound() -> str:
        phase = (await full.get(CLAIMS, "data", "at-once"))["status"].get("phase", "")
        return "" if phase == "Bound" else f"it is {phase}"

    await wait_until(unbound, "the claim", 20)
    await full.delete(CLAIMS, "data", "at-once")


def using(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


async def test_a_kubelet_rejects_what_its_node_has_no_room_for_and_counts_anew_when_pods_end(full: ApiServer) -> None:
    await namespace(full, "rejected")
    for name in ("fits", "comes-late", "asked-for"):
        made = pod(name, requests={"cpu": "3"})
        made["spec"]["nodeName"] = "full-a0"
        if name == "asked-for":
            made["metadata"]["annotations"] = {keys.FAIL: "UnexpectedAdmissionError"}
        await put(full, "rejected", PODS, made)
        # The kubelet takes them in the order in which they arrive.
        await becomes(full, "rejected", name, "Running" if name == "fits" else "Failed")
    late = (await full.get(PODS, "comes-late", "rejected"))["status"]
    assert (late["phase"], late["reason"]) == ("Failed", "OutOfcpu")
    # Pods of other tests may be there as well.
    assert re.search(r"enough resource: cpu, requested: 3000, used: 3\d00, capacity: 4000$", late["message"])
    assert "containerStatuses" not in late
    asked = (await full.get(PODS, "asked-for", "rejected"))["status"]
    assert (asked["phase"], asked["reason"]) == ("Failed", "UnexpectedAdmissionError")

    await full.delete(PODS, "fits", "rejected")
    await becomes(full, "rejected", "fits", "gone")
    again = pod("again", requests={"cpu": "3"})
    again["spec"]["nodeName"] = "full-a0"
    await put(full, "rejected", PODS, again)
    await becomes(full, "rejected", "again", "Running")


async def test_a_node_can_be_told_to_reject_whatever_comes(full: ApiServer) -> None:
    await namespace(full, "unwilling")
    await full.merge_patch(NODES, "full-a1", {"metadata": {"annotations": {keys.FAIL: "NodeShutdown"}}})
    made = pod("late")
    made["spec"]["nodeName"] = "full-a1"
    await put(full, "unwilling", PODS, made)
    assert (await becomes(full, "unwilling", "late", "Failed"))["status"]["reason"] == "NodeShutdown"
    await full.merge_patch(NODES, "full-a1", {"metadata": {"annotations": {keys.FAIL: None}}})


async def test_a_pod_whose_image_is_missing_waits_for_ever_and_says_why(full: ApiServer) -> None:
    await namespace(full, "images")
    made = pod("imageless")
    made["metadata"]["annotations"] = {keys.FAIL: "image"}
    await put(full, "images", PODS, made)

    async def missing() -> str:
        status = (await full.get(PODS, "imageless", "images"))["status"]
        waiting = [each["state"].get("waiting", {}).get("reason") for each in status.get("containerStatuses", ())]
        return "" if (status["phase"], waiting) == ("Pending", ["ImagePullBackOff"]) else f"it is {status}"

    await wait_until(missing, "the pod", 20)


async def test_api_servers_limit_requests_as_shipped_unless_the_configuration_says_otherwise(
    federation: Federation, tmp_path: Path
) -> None:
    flags = [flag for each in federation.processes.processes for flag in each.spec.argv]
    assert not any("requests-inflight" in flag or "disable-admission-plugins" in flag for flag in flags)
    programs, host = binaries.ensure(report=lambda _: None), federation.host
    own = Kubernetes(flags={"apiserver": ["--last=1"]})
    raised = cluster.api_server(programs, host, federation.keys, tmp_path, 1, own, raised_limits=True)
    assert {"--max-requests-inflight=3000", "--max-mutating-requests-inflight=2000"} < set(raised.argv)
    assert raised.argv[-1] == "--last=1"
