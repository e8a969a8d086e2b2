"""What delivery leaves in a member when its cache does not know what is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll import install
from atoll.delivery import Delivery
from atoll.delivery.work import work_name
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.model import keys
from atoll.model.apiresource import CAPACITIES, CLUSTERS, JOBS, NAMESPACES, POLICIES, WORKS
from atoll.model.conditions import condition
from atoll.model.objects import decode_full
from tests.faults.play import Fault
from tests.faults.proxy import FaultProxy
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration

MEMBER = "alpha"


def only_there(site: Site) -> Json:
    """A policy that sends the jobs of the test's namespace to that member."""
    return {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": "only", "namespace": site.namespace},
        "spec": {
            "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": JOBS.kind}],
            "placement": {"clusterAffinity": {"clusterNames": [MEMBER]}},
        },
    }


@pytest.fixture
async def without_agent(site: Site) -> AsyncIterator[None]:
    agent = site.federation.process(f"agent-{MEMBER}")

    async def usable() -> bool:
        ready = condition(await site.host.get(CLUSTERS, MEMBER), "Ready").get("status") == "True"
        return ready and bool(await site.host.list(CAPACITIES, keys.execution_namespace(MEMBER)))

    # Nothing is sent to a member before the host knows that it is ready, and what it has.
    await until(usable, what="the host knows the member")
    await agent.stop()
    yield
    await agent.start()
    await agent.ready()


@pytest.mark.usefixtures("without_agent")
async def test_a_work_does_not_go_before_its_object_though_the_cache_has_not_seen_that(
    site: Site, tmp_path: Path
) -> None:
    """1. The member's watch falls silent. 2. The job is delivered. 3. Its user deletes it. 4. It goes before its Work."""
    host_file, member_file = install.agent_kubeconfigs(site.federation.atoll.credentials, MEMBER)
    await site.host.create(POLICIES, only_there(site))
    async with (
        FaultProxy(member_file, tmp_path, seed=1) as proxy,
        await ApiServer.from_kubeconfig(proxy.kubeconfig(member_file)) as member,
        await ApiServer.from_kubeconfig(host_file) as host,
        asyncio.TaskGroup() as group,
    ):
        jobs = Reflector(member, JOBS, decode_full)
        delivery = Delivery(host, member, MEMBER, objects={JOBS: jobs}, placement=lambda _: None)
        tasks = [group.create_task(jobs.run()), group.create_task(delivery.run())]

        async def watching() -> bool:
            return bool(proxy.streams)

        await until(watching, what="the jobs are watched")
        proxy.play(Fault.HALF_OPEN, watch=True, times=None)
        await site.submit(job("unseen", seconds=None))

        async def there() -> bool:
            return await site.find(JOBS, "unseen", MEMBER) is not None

        await until(there, what="the job is in the member")
        assert jobs.get(f"{site.namespace}/unseen") is None
        # Looked at again, it is not created again.
        for _ in range(3):
            delivery.look_again()
            await site.host.list(WORKS, keys.execution_namespace(MEMBER))
        await site.host.delete(JOBS, "unseen", site.namespace)

        async def withdrawn() -> bool:
            works = await site.host.list(WORKS, keys.execution_namespace(MEMBER))
            return not [each for each in works if each["metadata"]["name"].startswith("unseen-")]

        await until(withdrawn, what="its Work is gone")
        assert await site.find(JOBS, "unseen", MEMBER) is None
        answers = [
            event.response_status.code
            for event in audit.read(site.federation.members[MEMBER].audit_log)
            if (event.verb, event.object_ref.path, event.object_ref.key)
            == ("create", JOBS.plural, f"{site.namespace}/unseen")
        ]
        assert answers == [201]
        for task in tasks:
            task.cancel()


@pytest.mark.usefixtures("without_agent")
async def test_a_status_is_written_once_though_the_cache_has_not_seen_that(site: Site, tmp_path: Path) -> None:
    """1. A job is delivered. 2. The host's watch falls silent. 3. The job ends, the Work says so. 4. One more look."""
    host_file, member_file = install.agent_kubeconfigs(site.federation.atoll.credentials, MEMBER)
    await site.host.create(POLICIES, only_there(site))
    async with (
        FaultProxy(host_file, tmp_path, seed=1) as proxy,
        await ApiServer.from_kubeconfig(member_file) as member,
        await ApiServer.from_kubeconfig(proxy.kubeconfig(host_file)) as host,
        asyncio.TaskGroup() as group,
    ):
        jobs = Reflector(member, JOBS, decode_full)
        delivery = Delivery(host, member, MEMBER, objects={JOBS: jobs}, placement=lambda _: None)
        tasks = [group.create_task(jobs.run()), group.create_task(delivery.run())]
        await site.submit(job("once", seconds=None))

        async def delivered() -> bool:
            return jobs.get(f"{site.namespace}/once") is not None

        await until(delivered, what="the job is in the member")
        proxy.play(Fault.HALF_OPEN, watch=True, times=None)
        completed = {"status": {"state": {"phase": "Completed"}}}
        await site.members[MEMBER].merge_patch(JOBS, "once", completed, site.namespace, subresource="status")

        key = f"{keys.execution_namespace(MEMBER)}/{work_name(site.namespace, 'once', JOBS.kind, JOBS.group)}"

        async def told() -> bool:
            work = await site.host.get(WORKS, *reversed(key.split("/")))
            # The answer to the write may come after the server has it.
            return '"Completed"' in json.dumps(work.get("status")) and not delivery._queue.unfinished

        await until(told, what="its Work says that it is completed, and the writer knows")
        written = host.requests["PUT", WORKS.plural, 200]
        await delivery.reconcile(key)
        assert host.requests["PUT", WORKS.plural, 200] == written
        for task in tasks:
            task.cancel()


async def test_what_has_ended_is_not_made_again_where_it_is_removed_from_its_member(site: Site) -> None:
    """As an agent does that ends what is exclusive, while the host can't be reached, in the moment in which it ended."""
    await site.host.create(POLICIES, only_there(site))
    await site.submit(job("ended", seconds=0.2))
    await site.phase("ended", "Completed")
    await site.members[MEMBER].delete(JOBS, "ended", site.namespace)
    await site.submit(job("next", seconds=0.2))
    await site.phase("next", "Completed")
    agent = site.federation.process(f"agent-{MEMBER}")
    await agent.stop()
    await agent.start()
    await agent.ready()
    await site.submit(job("last", seconds=0.2))
    await site.phase("last", "Completed")
    assert await site.find(JOBS, "ended", MEMBER) is None
    made = [
        event
        for event in audit.read(site.federation.members[MEMBER].audit_log)
        if (event.verb, event.object_ref.path, event.object_ref.key)
        == ("create", JOBS.plural, f"{site.namespace}/ended")
    ]
    assert len(made) == 1


async def test_an_object_that_appears_after_its_work_was_withdrawn_is_removed(site: Site) -> None:
    """A creation that was on its way for long: its Work was withdrawn meanwhile, since nothing of it was there."""
    late = job("late", seconds=None)
    late["metadata"] |= {
        "namespace": site.namespace,
        "annotations": {keys.BINDING_UID: "uid-of-no-binding", keys.EPOCH: "1"},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": site.namespace}}
    await site.members[MEMBER].create(NAMESPACES, namespace)
    await site.members[MEMBER].create(JOBS, late)

    async def gone() -> bool:
        return await site.find(JOBS, "late", MEMBER) is None

    await until(gone, what="what no Work asks for is gone")
