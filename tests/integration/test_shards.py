"""Control in two shards: a namespace is its shard's leader's, and waits for a leader of that shard alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.keeper import KeptProcess
from atoll.local.layout import FederationConfig
from atoll.model import keys, shards
from atoll.model.apiresource import BINDINGS, LEASES
from atoll.model.shards import Shard
from tests.integration.federation import Site, job, member, until

pytestmark = pytest.mark.integration

MEMBER = "alpha"
OF = 2


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    async with AtollFederation(
        FederationConfig(members=[member(MEMBER, 4)]),
        tmp_path_factory.mktemp("shards"),
        replicas={"control": OF},
        flags={"control": [*QUICK_ELECTION, f"--shards={OF}"]},
    ) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def sites(fed: AtollFederation) -> AsyncIterator[list[Site]]:
    """One in a namespace of each shard."""
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(await fed.host.connect())
        alpha = await stack.enter_async_context(await fed.members[MEMBER].connect())
        made: list[Site] = []
        for number in range(OF):
            site = Site(fed, host, {MEMBER: alpha})
            while not Shard(number, OF).owns(site.namespace):
                site = Site(fed, host, {MEMBER: alpha})
            await site.open()
            made.append(site)
        yield made
        for site in made:
            await site.close()


async def leader(site: Site, number: int) -> KeptProcess:
    """The replica that leads a shard, once one does."""

    async def look() -> KeptProcess | None:
        lease: Any = await site.host.get(LEASES, shards.lease(number), keys.SYSTEM_NAMESPACE)
        assert lease["metadata"]["annotations"][keys.SHARDS] == str(OF)
        holder = str(lease["spec"]["holderIdentity"])
        running = (each for name, each in site.federation.processes.items() if name.startswith("atoll-control"))
        return next((each for each in running if each.running and holder.endswith(f"-{each.pid}")), None)

    return await until(look, what=f"a replica leads shard {number}")


@pytest.mark.parametrize("number", range(OF))
async def test_a_shard_without_a_leader_waits_and_the_other_goes_on(sites: list[Site], number: int) -> None:
    """1. Each shard has a leader. 2. One is gone. 3. Jobs come in both shards. 4. Only the other one's is dispatched.
    5. The leader is back, and its shard's job completes.
    """
    own, other = sites[number], sites[1 - number]
    gone, stays = await leader(own, number), await leader(own, 1 - number)
    assert gone is not stays
    assert await gone.stop(30.0) == 0
    try:
        for site in sites:
            await site.submit(job("a", replicas=2))
        await other.phase("a", "Completed")
        assert await own.host.list(BINDINGS, own.namespace) == []
        assert await leader(own, 1 - number) is stays
    finally:
        await gone.start()
    await own.phase("a", "Completed")
