"""Atoll on a Karmada: its bindings are suspended, queued and dispatched; the test does what Karmada's controllers do.

The CRDs are Atoll's of Karmada's API groups, or Karmada's own where KARMADA_CRDS names the folder that has them in a
checkout of it (charts/karmada/_crds/bases). Clusters it serves by an API server of its own.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from atoll import install
from atoll.install import registration
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import QUICK_ELECTION, Atoll
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model import conditions, keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CAPACITIES,
    CLUSTERS,
    CRDS,
    EVENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    QUEUES,
    WORKS,
)
from tests.integration.federation import until

Json = dict[str, Any]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]

MEMBER = "m1"
SPACE = "team"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiServer]:
    """An API server with Karmada's kinds, a Cluster, and Atoll's three processes."""
    directory: Path = tmp_path_factory.mktemp("karmada")
    config = FederationConfig.model_construct(members=[])
    crds = _crds(os.environ.get("KARMADA_CRDS"))
    async with Federation(config, directory=directory, binaries=ensure(), crds=crds) as federation:
        flags = {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION}
        atoll = Atoll(federation, on_karmada=True, flags=flags)
        await atoll.start()
        try:
            async with await federation.host.connect() as api:
                await _member(api)
                await api.create(NAMESPACES, _named(NAMESPACES, SPACE))
                yield api
        finally:
            await atoll.stop()


def _crds(folder: str | None) -> list[Json]:
    ours = [crd for crd in install.host_crds() if crd["spec"]["group"].endswith("karmada.io")]
    if folder is None:
        return ours
    theirs = [yaml.safe_load(path.read_text()) for path in sorted(Path(folder).rglob("*.yaml"))]
    assert {crd["spec"]["group"] for crd in theirs} >= {"work.karmada.io", "policy.karmada.io"}
    return [*theirs, *(crd for crd in ours if crd["spec"]["group"] == "cluster.karmada.io")]


def _named(resource: Any, name: str, namespace: str | None = None, **rest: Any) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **rest}


async def _member(api: ApiServer) -> None:
    await api.create(NAMESPACES, _named(NAMESPACES, keys.execution_namespace(MEMBER)))
    await api.create(CLUSTERS, _named(CLUSTERS, MEMBER, spec={"syncMode": "Push"}))
    summary = {
        "allocatable": {"cpu": "32", "memory": "64Gi", "pods": "220"},
        "allocated": {"cpu": "2", "memory": "1Gi", "pods": "20"},
    }
    ready = {"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "", "lastTransitionTime": NOW}
    status = {
        "kubernetesVersion": "v1.34.0",
        "conditions": [ready],
        "nodeSummary": {"totalNum": 2, "readyNum": 2},
        "resourceSummary": summary,
    }
    await api.merge_patch(CLUSTERS, MEMBER, {"status": status}, subresource="status")


NOW = "2026-01-01T00:00:00Z"


def _job(name: str, queue: str, pods: int = 1) -> Json:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = _named(BATCH_JOBS, name, SPACE, spec={"parallelism": pods, "completions": pods, "template": template})
    job["metadata"]["labels"] = {keys.QUEUE_LABEL: queue}
    return job


async def _propagate(api: ApiServer, job: Json, *, scheduler: str = keys.SCHEDULER_NAME, replicas: int = 1) -> str:
    """What Karmada's detector does with a Job that a policy selects; returns the name of the binding."""
    made = await api.create(BATCH_JOBS, job)
    name = f"{made['metadata']['name']}-job"
    reference = {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "namespace": SPACE,
        "name": made["metadata"]["name"],
        "uid": made["metadata"]["uid"],
    }
    spec = {"resource": reference, "schedulerName": scheduler, "replicas": replicas, "placement": {}}
    await api.create(BINDINGS, _named(BINDINGS, name, SPACE, spec=spec))
    return name


async def _decided(api: ApiServer, name: str) -> Json:
    async def there() -> Json | None:
        found = await api.get(BINDINGS, name, SPACE)
        return found if found["spec"].get("clusters") else None

    return await until(there, what=f"{name} is dispatched")


async def _collect(api: ApiServer, name: str, status: Json) -> None:
    """What Karmada's binding controllers do once a Work is applied."""
    item = {"clusterName": MEMBER, "applied": True, "health": "Healthy", "status": status}
    await api.merge_patch(
        BINDINGS, name, {"status": {"aggregatedStatus": [item]}}, SPACE, subresource="status", field_manager="karmada"
    )


async def _condition(api: ApiServer, name: str, kind: str, status: str = "True") -> Json:
    async def there() -> Json | None:
        found = (await api.get(BINDINGS, name, SPACE)).get("status") or {}
        each = conditions.find(found.get("conditions") or [], kind)
        return each if each is not None and each["status"] == status else None

    return await until(there, what=f"{name} is {kind}")


async def _queue(api: ApiServer, name: str, cpu: str) -> None:
    await api.create(QUEUES, _named(QUEUES, name, spec={"capability": {"cpu": cpu}}))


async def test_what_is_installed(host: ApiServer) -> None:
    crds = {crd["metadata"]["name"] for crd in await host.list(CRDS)}
    assert "jobs.batch.volcano.sh" not in crds
    assert {"queues.scheduling.volcano.sh", "clustercapacities.atoll.sh"} <= crds
    mutating, _ = registration.configurations({"url": "https://x"}, "", on_karmada=True)
    assert [each["rules"][0]["resources"] for each in mutating["webhooks"]] == [["queues"], ["resourcebindings"]]


async def test_a_member_is_summarised(host: ApiServer) -> None:
    async def there() -> Json | None:
        found = await host.list(CAPACITIES, keys.execution_namespace(MEMBER))
        return found[0] if found else None

    spec = (await until(there, what="a ClusterCapacity"))["spec"]
    free = [(each["nodes"], each["free"]["cpu"], each["free"]["pods"]) for each in spec["classes"]]
    assert free == [(1, 16_000, 110), (1, 14_000, 90)]


async def test_bindings_wait_for_their_queue_and_quota_comes_back(host: ApiServer) -> None:
    await _queue(host, "small", "2")
    first = await _propagate(host, _job("first", "small", 2), replicas=2)
    binding = await _decided(host, first)
    assert binding["spec"]["clusters"] == [{"name": MEMBER, "replicas": 2}]
    assert not binding["spec"]["suspension"]["scheduling"]
    second = await _propagate(host, _job("second", "small"))
    waiting = await host.get(BINDINGS, second, SPACE)
    assert waiting["spec"]["suspension"]["scheduling"]
    assert waiting["metadata"]["annotations"][keys.EPOCH] == "0"

    async def says_why() -> bool:
        text = (await host.get(BINDINGS, second, SPACE))["metadata"]["annotations"].get(keys.DECISION, "")
        return '"small"' in text

    await until(says_why, what="the second says what it waits for")
    await _collect(host, first, {"active": 2, "ready": 2})
    await _condition(host, first, "Bound")
    await _condition(host, first, "Running")
    assert not (await host.get(BINDINGS, second, SPACE))["spec"].get("clusters")
    done = [{"type": "Complete", "status": "True", "lastTransitionTime": NOW}]
    await _collect(host, first, {"succeeded": 2, "conditions": done})
    await _condition(host, first, "Finished")
    await _decided(host, second)


async def test_what_is_held_is_released_once_karmada_has_removed_it(host: ApiServer) -> None:
    await _queue(host, "held", "2")
    name = await _propagate(host, _job("held", "held"))
    await _decided(host, name)
    work = _named(WORKS, "held-work", keys.execution_namespace(MEMBER), spec={"workload": {"manifests": []}})
    work["metadata"]["annotations"] = {
        "resourcebinding.karmada.io/namespace": SPACE,
        "resourcebinding.karmada.io/name": name,
    }
    await host.create(WORKS, work)
    await _collect(host, name, {"active": 1, "ready": 1})
    await _condition(host, name, "Running")
    await host.merge_patch(BATCH_JOBS, "held", {"metadata": {"annotations": {keys.HOLD: "true"}}}, SPACE)

    async def evicted() -> Json | None:
        found = await host.get(BINDINGS, name, SPACE)
        return found if not found["spec"].get("clusters") else None

    binding = await until(evicted, what="it is evicted")
    assert binding["spec"]["suspension"]["scheduling"]
    known = (binding.get("status") or {}).get("conditions") or []
    assert conditions.find(known, "Released") is None
    await host.delete(WORKS, "held-work", keys.execution_namespace(MEMBER))
    await _condition(host, name, "Released")
    await host.merge_patch(BATCH_JOBS, "held", {"metadata": {"annotations": {keys.HOLD: None}}}, SPACE)
    await _decided(host, name)


async def test_bindings_of_other_schedulers_are_left_alone(host: ApiServer) -> None:
    name = await _propagate(host, _job("other", "default"), scheduler="default-scheduler")
    made = await host.get(BINDINGS, name, SPACE)
    assert "suspension" not in made["spec"]
    assert keys.EPOCH not in made["metadata"].get("annotations", {})
    patch = {"spec": {"clusters": [{"name": MEMBER, "replicas": 1}]}}
    await host.merge_patch(BINDINGS, name, patch, SPACE)
    # Its policy names Atoll later: it runs on, and its workload says that it is in no queue.
    await host.merge_patch(BINDINGS, name, {"spec": {"schedulerName": keys.SCHEDULER_NAME}}, SPACE)
    note = await _event(host, "other")
    assert "scheduled before" in note
    assert (await host.get(BINDINGS, name, SPACE))["spec"]["clusters"]


async def test_what_has_no_pods_is_not_suspended_and_says_so(host: ApiServer) -> None:
    name = await _propagate(host, _job("podless", "default"), replicas=0)
    assert "suspension" not in (await host.get(BINDINGS, name, SPACE))["spec"]
    assert "no pods" in await _event(host, "podless")


async def test_nobody_else_decides(host: ApiServer) -> None:
    await _queue(host, "none", "0")
    name = await _propagate(host, _job("guarded", "none"))
    begun = await host.get(BINDINGS, name, SPACE)
    assert begun["spec"]["suspension"]["scheduling"]
    for patch in (
        {"spec": {"clusters": [{"name": MEMBER, "replicas": 1}]}},
        {"spec": {"suspension": {"scheduling": False}}},
        {"metadata": {"annotations": {keys.EPOCH: "7"}}},
        {"metadata": {"annotations": {keys.GANG: "{}"}}},
    ):
        with pytest.raises(errors.Forbidden, match="atoll-"):
            await host.merge_patch(BINDINGS, name, patch, SPACE)
    lie = {"type": "Finished", "status": "True", "reason": "X", "message": "", "lastTransitionTime": NOW}
    with pytest.raises(errors.Forbidden, match="give its quota back"):
        await host.merge_patch(BINDINGS, name, {"status": {"conditions": [lie]}}, SPACE, subresource="status")
    # What a policy of Karmada suspends besides is Karmada's.
    await host.merge_patch(BINDINGS, name, {"spec": {"suspension": {"dispatching": True}}}, SPACE)
    scheduled = {"type": "FullyApplied", "status": "False", "reason": "X", "message": "", "lastTransitionTime": NOW}
    await host.merge_patch(BINDINGS, name, {"status": {"conditions": [scheduled]}}, SPACE, subresource="status")


async def _event(host: ApiServer, workload: str) -> str:
    async def there() -> str | None:
        for each in await host.list(EVENTS, SPACE):
            if each["regarding"]["name"] == workload and each["reason"] == "NotServed":
                return str(each["note"])
        return None

    return await until(there, what=f"an Event about {workload}")


async def test_init_says_what_it_needs(host: ApiServer, tmp_path: Path) -> None:
    with pytest.raises(install.Refused, match="a policy opts its workloads in"):
        await install.init(
            host,
            install.Endpoint("https://127.0.0.1:1", b""),
            out=tmp_path,
            webhook_client_config={"url": "https://127.0.0.1:1"},
            enable=["team"],
            on_karmada=True,
        )


async def test_init_again_stays_on_the_karmada_and_keeps_its_addresses(host: ApiServer, tmp_path: Path) -> None:
    before = await host.get(MUTATING_WEBHOOKS, keys.WEBHOOKS)
    at = install.Endpoint("https://127.0.0.1:1", b"")
    assert await install.init(host, at, out=tmp_path)
    assert (await host.get(MUTATING_WEBHOOKS, keys.WEBHOOKS))["webhooks"] == before["webhooks"]
    with pytest.raises(install.Refused, match="atollctl uninstall"):
        await install.init(host, at, out=tmp_path, on_karmada=False)


async def test_members_of_the_karmada_are_not_in_the_way_of_uninstall(host: ApiServer) -> None:
    await host.create(CLUSTERS, _named(CLUSTERS, "pulled", spec={"syncMode": "Pull"}))
    lines: list[str] = []
    await install.uninstall(host, dry_run=True, progress=lines.append)
    await host.delete(CLUSTERS, "pulled")
    assert any("still run" in line for line in lines)
    assert not any("unjoin" in line or "Cluster " in line for line in lines)
