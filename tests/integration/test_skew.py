"""Clusters of the oldest supported Kubernetes beside new ones, all of them on IPv6."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Literal

import pytest
import pytest_asyncio

from atoll.control.install import versions
from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.layout import FederationConfig, Kubernetes
from atoll.model.apiresource import BATCH_JOBS, VERDICTS
from tests.integration.federation import Site, batch_job, job, member, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

OLDEST = Kubernetes(version=f"{versions.OLDEST[0]}.{versions.OLDEST[1]}")
"""Emulated: what API servers of that version have and do."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def skewed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    """An old host with an old and a new member."""
    address: Literal["127.0.0.1", "::1"] = "::1" if socket.has_dualstack_ipv6() else "127.0.0.1"
    members = [member("old", 1).model_copy(update={"kubernetes": OLDEST}), member("new", 1)]
    config = FederationConfig(members=members, host=OLDEST, address=address)
    quick = {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION}
    async with AtollFederation(config, tmp_path_factory.mktemp("skewed"), flags=quick) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def old_site(skewed: AtollFederation) -> AsyncIterator[Site]:
    host = await skewed.host.connect()
    members: dict[str, ApiServer] = {name: await each.connect() for name, each in skewed.members.items()}
    made = Site(skewed, host, members)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
        for api in (host, *members.values()):
            await api.close()


async def test_jobs_run_in_members_of_either_version(old_site: Site) -> None:
    """Each fills a member, so that both members get one of each kind."""
    for name in ("one", "two"):
        await old_site.submit(job(name, cpu="10", seconds=1))
    for name in ("one", "two"):
        await old_site.phase(name, "Completed")
    for name in ("three", "four"):
        await old_site.submit(batch_job(name, cpu="10", seconds=1))

    async def complete() -> bool:
        found = [await old_site.find(BATCH_JOBS, name) for name in ("three", "four")]
        return all(((each or {}).get("status") or {}).get("succeeded") == 1 for each in found)

    await until(complete, what="both batch Jobs have ended")
    assert {await old_site.where(name) for name in ("one", "two")} == {"old", "new"}


async def test_webhook_and_query_api_answer_an_api_server_on_ipv6(old_site: Site) -> None:
    refused = old_site.kubectl("-n", old_site.namespace, "create", "-f", "-", stdin=_NONSENSE, ok=False)
    assert "minAvailable is more than the replicas" in refused

    async def verdicts() -> bool:
        return await old_site.host.list(VERDICTS, old_site.namespace) is not None

    assert await until(verdicts, what="verdicts are answered")
    if old_site.federation.federation.config.address == "::1":
        assert old_site.federation.host.url.startswith("https://[::1]:")


_NONSENSE = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: bad}
spec:
  minAvailable: 9
  tasks:
  - name: worker
    replicas: 1
    template: {spec: {containers: [{name: c, image: busybox}]}}
"""
