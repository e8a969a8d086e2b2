"""What leaves its queue, or uses one that is not open to it."""

from __future__ import annotations

import pytest

from atoll.kube import errors
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, JOBS, NAMESPACES
from tests.integration.federation import Json, Site, batch_job, job, until
from tests.integration.tenants import Tenant

pytestmark = pytest.mark.integration


def into(queue: str) -> Json:
    return {"labels": {keys.QUEUE_LABEL: queue}}


async def test_a_batch_job_that_runs_stays_in_the_queue_that_is_charged_for_it(site: Site, tenant: Tenant) -> None:
    own, other = await site.queue("own"), await site.queue("other")
    await site.submit(batch_job("runs", seconds=None, metadata=into(own)))

    async def lifted() -> bool:
        found = await site.find(BATCH_JOBS, "runs")
        return found is not None and not found["spec"]["suspend"]

    await until(lifted, what="the Job runs")
    for labels in ({keys.QUEUE_LABEL: other}, {keys.KUEUE_QUEUE_LABEL: other}, {keys.QUEUE_LABEL: None}):
        with pytest.raises(errors.ApiError) as refused:
            await tenant.api.merge_patch(BATCH_JOBS, "runs", {"metadata": {"labels": labels}}, site.namespace)
        assert f"stays in queue {own}" in refused.value.message
    await tenant.api.merge_patch(BATCH_JOBS, "runs", {"metadata": {"labels": {"team": "a"}}}, site.namespace)


async def test_a_batch_job_that_waits_may_go_to_another_queue(site: Site, tenant: Tenant) -> None:
    own, other = await site.queue("own", capability={"cpu": "10m"}), await site.queue("other")
    await site.submit(batch_job("waits", metadata=into(own)))
    await site.reason("waits", "QuotaExceeded")
    await tenant.api.merge_patch(BATCH_JOBS, "waits", {"metadata": into(other)}, site.namespace)

    async def started() -> bool:
        found = await site.find(BINDINGS, "waits-job")
        return found is not None and bool(found["spec"].get("clusters"))

    await until(started, what="it is dispatched")


async def test_a_volcano_job_that_runs_stays_in_its_queue(site: Site, tenant: Tenant) -> None:
    own, other = await site.queue("own"), await site.queue("other")
    await site.submit(job("runs", queue=own, seconds=None))
    await site.phase("runs", "Running")
    with pytest.raises(errors.ApiError) as refused:
        await tenant.api.merge_patch(JOBS, "runs", {"spec": {"queue": other}}, site.namespace)
    assert f"stays in queue {own}" in refused.value.message


TEAM = {keys.NAMESPACE_SELECTOR: '{"matchLabels": {"team": "a"}}'}


async def test_a_job_that_named_its_queue_before_that_existed_does_not_start_in_it(site: Site, tenant: Tenant) -> None:
    early = job("early", queue=f"later-{site.namespace}")
    await tenant.api.create(JOBS, {**early, "metadata": {"name": "early", "namespace": site.namespace}})
    await site.reason("early", "QueueNotFound")
    await site.queue("later", annotations=TEAM)
    await site.reason("early", "QueueNotOpen")
    await site.host.merge_patch(NAMESPACES, site.namespace, {"metadata": {"labels": {"team": "a"}}})
    await site.phase("early", "Completed")


async def test_a_namespace_that_loses_its_label_keeps_what_runs_and_starts_no_more(site: Site, tenant: Tenant) -> None:
    await site.host.merge_patch(NAMESPACES, site.namespace, {"metadata": {"labels": {"team": "a"}}})
    queue = await site.queue(annotations=TEAM, capability={"cpu": "1"})
    for name in ("runs", "waits"):
        await site.submit(job(name, queue=queue, cpu="1", seconds=None))
        await (site.phase("runs", "Running") if name == "runs" else site.reason("waits", "QuotaExceeded"))
    await site.host.merge_patch(NAMESPACES, site.namespace, {"metadata": {"labels": {"team": None}}})
    await site.reason("waits", "QueueNotOpen")
    await tenant.api.delete(JOBS, "runs", site.namespace)
    await until(lambda: _gone(site, "runs-job"), what="what ran is gone")
    assert (await site.host.get(BINDINGS, "waits-job", site.namespace))["spec"].get("clusters") in (None, [])


async def _gone(site: Site, name: str) -> bool:
    return await site.find(BINDINGS, name) is None
