"""A member behaves as clusters elsewhere do: what its programs, controllers and admission plug-ins do to a bare pod."""

from __future__ import annotations

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
from atoll.local.layout import FederationConfig, Kubernetes
from atoll.model import keys
from atoll.model.apiresource import NAMESPACES, NODES, PODS, ApiResource

LIMIT_RANGES = ApiResource("", "v1", "limitranges", "LimitRange")
RESOURCE_QUOTAS = ApiResource("", "v1", "resourcequotas", "ResourceQuota")
SERVICE_ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
#: The fewest seconds that Kubernetes' own words allow between a death and what follows from it.
SHORT_LEASE = 4
CONFIG = FederationConfig.model_validate(
    {
        "members": [
            {"name": "full", "nodes": {"count": 2, "allocatable": {"cpu": 4, "memory": "8Gi", "pods": "10"}}, "node_lease_seconds": SHORT_LEASE},
            {"name": "bare", "nodes": {"count": 1}, "scheduler": False},
        ]
    }
)  # fmt: skip


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
    lonely["spec"]["nodeName"] = "full-n1"
    await put(full, "dead", PODS, lonely)
    await becomes(full, "dead", "lonely", "Running")

    await full.merge_patch(NODES, "full-n1", {"metadata": {"labels": {keys.DEAD: "true"}}})
    await node_is(full, "full-n1", "Unknown", "node.kubernetes.io/unreachable:NoExecute")
    left = await becomes(full, "dead", "lonely", "Terminating")
    assert next(each for each in left["status"]["conditions"] if each["type"] == "DisruptionTarget")["reason"] == (
        "DeletionByTaintManager"
    )
    assert left["status"]["phase"] == "Running"

    await full.merge_patch(NODES, "full-n1", {"metadata": {"labels": {keys.DEAD: None}}})
    await node_is(full, "full-n1", "True", None)
    await becomes(full, "dead", "lonely", "gone")


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
