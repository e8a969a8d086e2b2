"""Two webhooks behind one address, under a stream of creates: nothing that happens to them refuses one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from atoll import install
from atoll.kube import authority, errors
from atoll.kube.transport import ApiServer
from atoll.local.cluster import ClusterHandle
from atoll.local.keeper import KeptProcess
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec, python_path
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, JOBS, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from tests.integration.federation import batch_job, until
from tests.webhook.balancer import Backend, Balancer
from tests.webhook.builders import Json, make_job, make_task

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

WORKERS = 4
PAUSE = 0.05
"""Seconds between two creates of a worker: some sixty a second in all, and processors left for what is tested."""
QUICK = ("--ca-seconds=20", "--leaf-seconds=8", "--settle-seconds=1")
"""A CA is followed by the next one every ten seconds; leaves are renewed every 2.7, and last on a busy machine."""


@dataclass
class Stream:
    """Creates that are sent one after the other by each worker, none of them stored."""

    made: int = 0
    refused: list[str] = field(default_factory=list)


@dataclass
class Site:
    """A prepared host with the address of its webhook, which a balancer answers."""

    handle: ClusterHandle
    api: ApiServer
    directory: Path
    port: int
    backends: list[Backend] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def replicas(self, count: int, *flags: str) -> AsyncIterator[list[KeptProcess]]:
        """So many webhooks, ready, behind the address."""
        ports = free_ports(2 * count)
        backends = self.backends = [Backend(*pair) for pair in zip(ports[::2], ports[1::2], strict=True)]
        processes = [KeptProcess(self._spec(n, each, flags), self.directory) for n, each in enumerate(backends)]
        async with Balancer(backends).listening(self.port):
            try:
                for process in processes:
                    await process.start()
                for process in processes:
                    await process.ready()
                await self.known()
                yield processes
            finally:
                await asyncio.gather(*(process.stop() for process in processes))

    async def known(self) -> None:
        """Return once the balancer knows that all are ready, as a rollout waits for it."""

        async def look() -> bool:
            return all(backend.ready for backend in self.backends)

        await until(look, what="the balancer knows that all are ready")

    def _spec(self, number: int, backend: Backend, flags: tuple[str, ...]) -> ProcessSpec:
        return ProcessSpec(
            name=f"webhook-{number}",
            argv=[
                *(sys.executable, "-m", "atoll.webhook"),
                f"--kubeconfig={install.kubeconfig_of(self.directory, 'webhook')}",
                *(f"--port={backend.port}", f"--health-port={backend.health_port}", "--linger-seconds=1"),
                *flags,
            ],
            env={"PYTHONPATH": python_path()},
            ready_url=f"http://127.0.0.1:{backend.health_port}/readyz",
        )

    @contextlib.asynccontextmanager
    async def creates(self) -> AsyncIterator[Stream]:
        """A stream of dry creates while the context is open."""
        stream = Stream()
        end = asyncio.Event()
        bodies = [
            (JOBS, {**make_job(make_task()), "metadata": {"name": "train", "namespace": "default"}}),
            (BATCH_JOBS, {**batch_job("train"), "metadata": {"name": "train", "namespace": "default"}}),
        ]

        async def work(number: int) -> None:
            resource, body = bodies[number % len(bodies)]
            while not end.is_set():
                try:
                    raw = await self.api.request(
                        "POST", resource.path("default"), body=orjson.dumps(body), params={"dryRun": "All"}
                    )
                    made = orjson.loads(raw)
                    assert made["spec"].get("queue") == "default" or made["spec"]["suspend"] is True
                    stream.made += 1
                except errors.ApiError as error:
                    stream.refused.append(f"after {stream.made}: {error.message}")
                await asyncio.sleep(PAUSE)

        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(work(number))
            try:
                yield stream
            finally:
                end.set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(bare_host: ClusterHandle, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("replicas")
    (port,) = free_ports(1)
    async with await bare_host.connect() as api:
        made = Site(bare_host, api, directory, port)
        await init(made)
        yield made


async def init(site: Site) -> None:
    at = await install.endpoint(site.handle.kubeconfig)
    address = {"url": f"https://127.0.0.1:{site.port}"}
    await install.init(site.api, at, out=site.directory, webhook_client_config=address, enable=["default"], force=True)


async def renew(site: Site, age: timedelta = timedelta(0)) -> None:
    """An authority of this age, whatever an earlier test left."""
    made = authority.to_secret(authority.make_authority(datetime.now(UTC) - age))
    await site.api.delete(SECRETS, authority.SECRET, keys.SYSTEM_NAMESPACE)
    await site.api.create(SECRETS, made)


async def read_authority(site: Site) -> authority.Authority:
    return authority.from_secret(await site.api.get(SECRETS, authority.SECRET, keys.SYSTEM_NAMESPACE))


async def trusted(site: Site) -> list[tuple[bytes, ...] | None]:
    return [
        authority.trusted_by(await site.api.get(each, "atoll")) for each in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
    ]


@pytest.mark.parametrize("rotations", [1, pytest.param(4, marks=pytest.mark.long)])
async def test_nothing_is_refused_while_authorities_and_certificates_rotate(site: Site, rotations: int) -> None:
    """1. The next CA is trusted beside the old one; 2. it signs; 3. the old one is forgotten."""
    await renew(site, authority.CA_LIFE * 0.6)
    first = (await read_authority(site)).signer.certificate
    seen = {first}
    async with site.replicas(2, *QUICK) as processes, site.creates() as stream:

        async def rotated() -> bool:
            seen.add((await read_authority(site)).signer.certificate)
            return len(seen) > rotations

        await until(rotated, deadline=30 * rotations, what=f"{rotations} CAs were followed by others")

        async def forgotten() -> bool:
            return not any(first in (each or ()) for each in await trusted(site))

        await until(forgotten, what="the configurations trust the first CA no more")
        assert not any(process.restarts for process in processes)
    assert stream.refused == []
    assert stream.made > 100
    log = processes[0].log.read_text()
    assert log.count("certificate renewed") >= 2
    assert "what API servers trust is written" in log + processes[1].log.read_text()


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.long)])
async def test_nothing_is_refused_while_replicas_are_restarted(site: Site, times: int) -> None:
    await renew(site)
    async with site.replicas(2) as processes, site.creates() as stream:
        before = 0
        for turn in range(2 * times):
            await processes[turn % 2].restart()
            await site.known()
            assert stream.made > before, "the other one answers meanwhile"
            before = stream.made
    assert stream.refused == []
    assert all(process.restarts == times for process in processes)


async def test_an_authority_that_was_replaced_is_taken_up_without_a_refused_request(site: Site) -> None:
    await renew(site)
    async with site.replicas(2, "--settle-seconds=2") as processes, site.creates() as stream:
        await site.api.delete(SECRETS, authority.SECRET, keys.SYSTEM_NAMESPACE)

        async def noticed() -> bool:
            return all("run `atollctl init`" in process.log.read_text() for process in processes)

        await until(noticed, what="both complain that the Secret is gone")
        await init(site)
        now = await read_authority(site)

        async def only_the_new_one() -> bool:
            return all(set(each or ()) == set(now.trusted) for each in await trusted(site))

        await until(only_the_new_one, what="the CA before is trusted no more")
    assert stream.refused == []


WRONG: list[tuple[Json, str]] = [
    ({"type": "Opaque", "data": {"tls.crt": ""}}, "its type is 'Opaque'"),
    ({"type": "kubernetes.io/tls", "data": {"tls.crt": "eA==", "tls.key": "eA=="}}, "tls.crt holds no certificate"),
]


async def test_a_webhook_with_a_wrong_secret_says_so_and_is_not_ready(site: Site) -> None:
    metadata = {"name": authority.SECRET, "namespace": keys.SYSTEM_NAMESPACE}
    port, health_port = free_ports(2)
    process = KeptProcess(site._spec(9, Backend(port, health_port), ()), site.directory)

    async def complained(said: str) -> bool:
        lines = [orjson.loads(line) for line in process.log.read_text().splitlines()]
        return any(said in str(line.get("problem")) and line["consequence"] == "not ready" for line in lines)

    try:
        for secret, said in WRONG:
            await site.api.delete(SECRETS, authority.SECRET, keys.SYSTEM_NAMESPACE)
            await site.api.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **secret})
            with pytest.raises(install.Refused, match=said):
                await init(site)
            await process.start()
            await until(partial(complained, said), what=f"the log says: {said}")
        assert process.restarts == 0
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", port)
        await renew(site)
        await process.ready()
    finally:
        await process.stop()
