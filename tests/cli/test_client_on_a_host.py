"""`atoll.client` against a real API server; no process of Atoll runs, so the test says how jobs end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from atoll.client import AsyncClient, BadSubmission, Client, Job, State, Vanished
from atoll.install import host_crds
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model.apiresource import JOBS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:namespace default is not opted in"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    config = FederationConfig.model_construct(members=[])
    directory = tmp_path_factory.mktemp("host")
    async with Federation(config, directory=directory, binaries=ensure(), crds=host_crds()) as federation:
        yield federation


@pytest_asyncio.fixture(loop_scope="module")
async def host(bare: Federation) -> AsyncIterator[ApiServer]:
    async with await bare.host.connect() as api:
        yield api


def options(bare: Federation) -> dict[str, Any]:
    return {"namespace": "default", "kubeconfig": str(bare.host.kubeconfig)}


def wish(name: str) -> Job:
    return Job(command=["true"], image="busybox:1", name=name, queue="q", workers=2)


async def ends(host: ApiServer, name: str, phase: str) -> None:
    await host.merge_patch(JOBS, name, {"status": {"state": {"phase": phase}}}, "default", subresource="status")


@pytest.mark.parametrize(("phase", "state"), [("Completed", State.SUCCEEDED), ("Failed", State.FAILED)])
async def test_a_job_is_submitted_found_and_waited_for(
    bare: Federation, host: ApiServer, phase: str, state: State
) -> None:
    async with AsyncClient(**options(bare)) as atoll:
        name = f"waited-{phase.lower()}"
        with pytest.warns(UserWarning, match="namespace default is not opted in"):
            made = await atoll.submit(wish(name))
        assert (await host.get(JOBS, name, "default"))["spec"]["minAvailable"] == 2
        assert await atoll.find(name) == made
        assert await atoll.state(made) is State.PENDING
        with pytest.raises(TimeoutError):
            await atoll.wait(made, timeout=0.2)
        waiting = asyncio.create_task(atoll.wait(made, timeout=120))
        await ends(host, name, "Running")
        await ends(host, name, phase)
        assert await waiting is state
        assert name in await atoll.explain(made)
        assert [chunk async for chunk in atoll.logs(made)] == [], "a job without a binding has no pods"


async def test_a_job_that_is_cancelled_while_somebody_waits_has_vanished(bare: Federation, host: ApiServer) -> None:
    async with AsyncClient(**options(bare)) as atoll:
        made = await atoll.submit(wish("cancelled"))
        waiting = asyncio.create_task(atoll.wait(made, timeout=120))
        await atoll.cancel(made)
        with pytest.raises(Vanished):
            await waiting
        again = await atoll.submit(wish("cancelled"))
        await atoll.cancel(made)
        assert await atoll.state(again) is State.PENDING, "another job of that name is left alone"
        with pytest.raises(Vanished):
            await atoll.state(made)


async def test_the_blocking_client_does_the_same(bare: Federation, host: ApiServer) -> None:
    def work() -> None:
        with Client(**options(bare)) as atoll:
            atoll.submit(wish("sync"), dry_run=True)
            made = atoll.submit(wish("sync"))
            assert "sync" in atoll.explain(made)
            assert atoll.state(atoll.find("sync")) is State.PENDING
            assert list(atoll.logs(made)) == []
            with pytest.raises(TimeoutError):
                atoll.wait(made, timeout=0.2)
            with pytest.raises(BadSubmission):
                atoll.submit(Job(command=[], image="busybox:1"))
            with pytest.raises(errors.AlreadyExists):
                atoll.submit(wish("sync"))
            atoll.cancel(made)

    await asyncio.to_thread(work)
    with pytest.raises(errors.NotFound):
        await host.get(JOBS, "sync", "default")
