"""`atollctl hooks` with the rights that the charts give it: a host becomes one around its processes, and is none again."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atoll import install
from atoll.install.rendering import HostValues
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.keeper import KeptProcess
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec, python_path
from atoll.model import keys
from atoll.model.apiresource import (
    CLUSTERS,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    QUEUES,
    SECRETS,
    VALIDATING_WEBHOOKS,
)
from tests.atollctl import Ran, atollctl
from tests.install.served import apply
from tests.integration.federation import until
from tests.lacking import lacking

Json = dict[str, Any]

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

PROCESSES = ("webhook", "control", "dispatcher")
SYSTEM = keys.SYSTEM_NAMESPACE


@dataclass
class Place:
    """A cluster with the objects of a chart, and the account of its hooks."""

    handle: ClusterHandle
    api: ApiServer
    folder: Path
    port: int

    def kubeconfig(self, account: str) -> Path:
        return self.folder / f"{account}.kubeconfig"

    async def credentials(self, account: str) -> None:
        token, _ = await install.issue_token(self.api, account, SYSTEM)
        at = await install.endpoint(self.handle.kubeconfig)
        install.write_kubeconfig(self.kubeconfig(account), at, account, token, namespace=SYSTEM)

    async def hook(self, *words: str) -> Ran:
        return await atollctl("hooks", *words, f"--kubeconfig={self.kubeconfig('atoll-installer')}")

    def process(self, name: str) -> KeptProcess:
        [health] = free_ports(1)
        flags = {"webhook": [f"--port={self.port}", "--linger-seconds=0.1"], "dispatcher": ["--query-port=0"]}
        spec = ProcessSpec(
            name=name,
            argv=[
                *(sys.executable, "-m", f"atoll.{name}", f"--kubeconfig={self.kubeconfig(f'atoll-{name}')}"),
                *(f"--health-port={health}", *flags.get(name, ())),
            ],
            env={"PYTHONPATH": python_path()},
            ready_url=f"http://127.0.0.1:{health}/readyz",
        )
        return KeptProcess(spec, self.folder)

    async def deployment(self, process: KeptProcess) -> None:
        """Stand in for the Deployment of a process: it ends with the last replica."""

        async def scaled_down() -> bool:
            found = await self.api.get(DEPLOYMENTS, f"atoll-{process.name}", SYSTEM)
            return bool(found["spec"]["replicas"] == 0)

        await until(scaled_down, what=f"{process.name} is scaled down", deadline=300)
        await process.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("federation")
    config = FederationConfig.model_construct(members=[])
    async with (
        Federation(config, directory=folder, binaries=ensure()) as federation,
        await federation.host.connect() as api,
    ):
        yield Place(federation.host, api, folder, free_ports(1)[0])


def _deployment(name: str) -> Json:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": SYSTEM},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod},
    }  # fmt: skip


async def test_hooks_make_a_host_around_its_processes_and_take_it_off_again(place: Place) -> None:
    """In the order of Helm.

    1. pre-install: CRDs, and webhook configurations that call nobody.
    2. The processes become ready, though no webhook is registered.
    3. post-install: the webhook is registered, and the default queue is there.
    4. pre-delete is refused while a member is joined, and changes nothing.
    5. pre-delete stops the processes and leaves CRDs and queues.
    """
    api, url = place.api, f"--webhook-url=https://127.0.0.1:{place.port}"
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    await apply(api, await install.render_installer(member=False))
    await place.credentials("atoll-installer")

    for _ in range(2):
        ran = await place.hook("prepare", url)
        assert ran.code == 0, ran.said
    assert lacking(place.handle.audit_log) == set()
    assert not (await api.get(MUTATING_WEBHOOKS, keys.WEBHOOKS)).get("webhooks")
    labels = (await api.get(NAMESPACES, SYSTEM))["metadata"]["labels"]
    assert labels[keys.HOST_PROFILE] == "shared"

    left_out = ("CustomResourceDefinition", "Namespace", "Queue", "EndpointSlice")
    rendered = await install.render_host(HostValues(runs_deployments=True))
    await apply(api, [each for each in rendered if each["kind"] not in left_out])
    ran = await place.hook("complete", url, "--timeout=1")
    assert (ran.code, "does not reach atoll-webhook" in ran.said) == (1, True), ran.said
    async with contextlib.AsyncExitStack() as stack:
        running = []
        for name in PROCESSES:
            await place.credentials(f"atoll-{name}")
            await api.create(DEPLOYMENTS, _deployment(f"atoll-{name}"))
            process = place.process(name)
            await process.start()
            stack.push_async_callback(process.stop)
            running.append(process)
        for process in running:
            await process.ready()
        ran = await place.hook("check")
        assert (ran.code, "has no webhooks" in ran.said or "no leader" in ran.said) == (1, True), ran.said

        for _ in range(2):
            ran = await place.hook("complete", url)
            assert ran.code == 0, ran.said
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            assert (await api.get(resource, keys.WEBHOOKS))["webhooks"]
        assert await api.get(QUEUES, keys.DEFAULT_QUEUE)

        async def works() -> bool:
            return (await place.hook("check")).code == 0

        await until(works, what="the check passes")

        cluster = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": {"name": "west"}}
        await api.create(CLUSTERS, {**cluster, "spec": {"syncMode": "Pull"}})
        ran = await place.hook("leave")
        assert (ran.code, "1 member (west)" in ran.said) == (1, True), ran.said
        assert (await place.hook("check")).code == 0
        await api.delete(CLUSTERS, "west")

        stopping = [asyncio.create_task(place.deployment(process)) for process in running]
        ran = await place.hook("leave")
        assert ran.code == 0, ran.said
        await asyncio.gather(*stopping)
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        with pytest.raises(errors.NotFound):
            await api.get(resource, keys.WEBHOOKS)
    with pytest.raises(errors.NotFound):
        await api.get(SECRETS, "atoll-webhook-ca", SYSTEM)
    assert [each["metadata"]["name"] for each in await api.list(LEASES, SYSTEM)] == []
    assert await api.get(QUEUES, keys.DEFAULT_QUEUE)


async def test_an_older_release_leaves_newer_crds_alone(place: Place) -> None:
    name = "queues.scheduling.volcano.sh"
    note = {"metadata": {"annotations": {keys.RELEASE: "99.0.0"}}}
    await place.api.merge_patch(CRDS, name, note)
    for flag in ("--crds", "--no-crds"):
        ran = await place.hook("prepare", flag)
        assert (ran.code, "newer than this atollctl" in ran.said) == (1, True), ran.said
