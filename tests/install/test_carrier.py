"""A carrier takes an embedded host: its objects, repeats of `init`, and its removal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from atoll.install import embedded
from atoll.install.embedded import EmbeddedValues
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model import keys
from atoll.model.apiresource import CLAIMS, NAMESPACES, PODS, SECRETS, STATEFUL_SETS
from tests.atollctl import Ran, atollctl
from tests.install.served import try_strictly
from tests.integration.federation import until

Json = dict[str, Any]
IMAGE = "registry.example.org/atoll:1"
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def carrier(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterHandle]:
    """A cluster with all controllers, a scheduler, volumes and simulated nodes."""
    config = FederationConfig.model_validate({"members": [{"name": "carrier", "nodes": {"count": 3}}]})
    binaries = ensure(report=lambda _: None)
    async with Federation(config, directory=tmp_path_factory.mktemp("carrier"), binaries=binaries) as federation:
        await federation.populate()
        yield federation.members["carrier"]


@pytest_asyncio.fixture(loop_scope="module")
async def inside(carrier: ClusterHandle) -> AsyncIterator[ApiServer]:
    async with await carrier.connect() as api:
        yield api


async def run_jobs(api: ApiServer) -> None:
    """Have simulated pods of Jobs end."""
    while True:
        for pod in await api.list(PODS, embedded.NAMESPACE, label_selector="app.kubernetes.io/component=init"):
            patch = {"metadata": {"annotations": {keys.RUN_TIME: "1s"}}}
            await api.merge_patch(PODS, pod["metadata"]["name"], patch, embedded.NAMESPACE)
        await asyncio.sleep(0.5)


async def on(carrier: ClusterHandle, *words: str) -> Ran:
    return await atollctl(*words, f"--kubeconfig={carrier.kubeconfig}")


def pods_of(listed: list[Json]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in listed:
        component = each["metadata"]["labels"]["app.kubernetes.io/component"]
        found[component] = found.get(component, 0) + 1
    return found


async def test_dry_run_leaves_the_carrier_alone(carrier: ClusterHandle, inside: ApiServer) -> None:
    ran = await on(carrier, "init", "--embedded", f"--image={IMAGE}", "--dry-run")
    assert ran.code == 0, ran.said
    assert "carrier: StatefulSet atoll-host/atoll-etcd: created (dry run)" in ran.out
    assert "carrier: Secret atoll-host/atoll-apiserver: created (dry run)" in ran.out
    assert embedded.NAMESPACE not in [each["metadata"]["name"] for each in await inside.list(NAMESPACES)]


async def test_carrier_runs_all_pods_under_restricted_pod_security(carrier: ClusterHandle, inside: ApiServer) -> None:
    ending = asyncio.create_task(run_jobs(inside))
    ran = await on(carrier, "init", "--embedded", f"--image={IMAGE}", "--timeout=240")
    ending.cancel()
    assert ran.code == 0, ran.out + ran.said
    assert "Warning" not in ran.said
    pods = await inside.list(PODS, embedded.NAMESPACE)
    twice = dict.fromkeys(("apiserver", "controller-manager", "webhook", "control", "dispatcher"), 2)
    assert pods_of(pods) == {**twice, "etcd": 1, "init": 1}
    await try_strictly(inside, embedded.objects(EmbeddedValues(image=IMAGE))[1:])


async def test_repeat_keeps_values_and_certificates(carrier: ClusterHandle, inside: ApiServer) -> None:
    before = {each["metadata"]["name"]: each["data"] for each in await inside.list(SECRETS, embedded.NAMESPACE)}
    assert set(before) == set(embedded.SECRETS)
    ran = await on(carrier, "init", "--embedded", "--dry-run")
    changed = [line for line in ran.out.splitlines() if not line.endswith(": unchanged (dry run)")]
    # It is made anew each time.
    assert changed == ["carrier: Job atoll-host/atoll-host-init: changed (dry run)"]
    ran = await on(carrier, "init", "--embedded", "--only-certificates")
    assert ran.code == 0, ran.said
    assert {each["metadata"]["name"]: each["data"] for each in await inside.list(SECRETS, embedded.NAMESPACE)} == before


async def test_lost_authorities_are_refused(carrier: ClusterHandle, inside: ApiServer) -> None:
    kept = await inside.get(SECRETS, embedded.AUTHORITIES, embedded.NAMESPACE)
    await inside.delete(SECRETS, embedded.AUTHORITIES, embedded.NAMESPACE)
    ran = await on(carrier, "init", "--embedded", "--only-certificates")
    assert ran.code == 1
    assert "atoll-host-authorities is gone" in ran.said
    del kept["metadata"]["resourceVersion"], kept["metadata"]["uid"]
    await inside.create(SECRETS, kept)


async def test_size_of_etcds_volume_is_refused_to_change(carrier: ClusterHandle, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("host: {embedded: {storage: 99Gi}}")
    ran = await on(carrier, "init", "--embedded", "-f", str(values))
    assert ran.code == 1
    assert "storage: etcd keeps" in ran.said


async def test_kubeconfig_is_printed_for_a_forwarded_port(carrier: ClusterHandle) -> None:
    ran = await on(carrier, "init", "--embedded", "--print-kubeconfig")
    assert ran.code == 0, ran.said
    assert yaml.safe_load(ran.out)["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert "kubectl port-forward -n atoll-host service/atoll-apiserver 6443" in ran.said


async def test_uninstall_needs_a_word_and_leaves_data_unless_told(carrier: ClusterHandle, inside: ApiServer) -> None:
    ran = await on(carrier, "uninstall", "--embedded")
    assert ran.code == 2
    assert "confirm with --yes" in ran.said
    ran = await on(carrier, "uninstall", "--embedded", "--yes")
    assert ran.code == 0, ran.said
    assert await inside.list(STATEFUL_SETS, embedded.NAMESPACE) == []
    claims = {each["metadata"]["name"] for each in await inside.list(CLAIMS, embedded.NAMESPACE)}
    assert claims == {"data-atoll-etcd-0", embedded.BACKUP}
    assert len(await inside.list(SECRETS, embedded.NAMESPACE)) == len(embedded.SECRETS)
    ran = await on(carrier, "uninstall", "--embedded", "--yes", "--delete-data")
    assert ran.code == 0, ran.said

    async def gone() -> bool:
        return embedded.NAMESPACE not in [each["metadata"]["name"] for each in await inside.list(NAMESPACES)]

    await until(gone, deadline=120, what="the namespace is gone")
