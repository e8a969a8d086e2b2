"""Queues on real API servers: unknown, closed, ordered."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import gang, keys
from atoll.model.apiresource import BINDINGS, CLUSTERS, COMMANDS, JOBS, PRIORITY_CLASSES, QUEUES
from tests.integration.federation import Site, job, next_is_younger, until
from tests.integration.queue_states import command, in_state

pytestmark = pytest.mark.integration


async def test_a_job_whose_queue_does_not_exist_waits_and_starts_when_it_is_made(site: Site) -> None:
    await site.submit(job("early", queue=f"later-{site.namespace}"))
    decision = await site.reason("early", "QueueNotFound")
    assert decision["blocker"]["name"] == f"later-{site.namespace}"
    await site.queue("later")
    await site.phase("early", "Completed")


async def test_a_closed_queue_refuses_new_jobs_keeps_pending_ones_and_finishes_running_ones(site: Site) -> None:
    name = await site.queue(capability={"cpu": "1"})
    queue = await in_state(site, name, "Open")
    await site.submit(job("running", cpu="1", seconds=4, queue=name))
    await site.phase("running", "Running")
    await site.submit(job("pending", cpu="1", queue=name))
    await site.reason("pending", "QuotaExceeded")
    await site.host.create(COMMANDS, command("CloseQueue", queue))
    await in_state(site, name, "Closing")
    await site.phase("running", "Completed")
    await in_state(site, name, "Closed")
    await site.reason("pending", "QueueClosed")
    with pytest.raises(Exception, match=r"(?i)closed"):
        await site.submit(job("refused", queue=name))
    assert not [c for c in await site.host.list(COMMANDS) if c["target"]["name"] == name]
    await site.host.create(COMMANDS, command("OpenQueue", queue))
    await in_state(site, name, "Open")
    await site.phase("pending", "Completed")


async def test_the_higher_priority_class_goes_first_then_the_older_job(site: Site) -> None:
    high: dict[str, Any] = {"metadata": {"name": f"high-{site.namespace}"}, "value": 1000, "globalDefault": False}
    await site.host.create(
        PRIORITY_CLASSES, {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, **high}
    )
    queue = await site.queue(capability={"cpu": "1"})
    await site.submit(job("holder", cpu="1", seconds=7, queue=queue))
    await site.phase("holder", "Running")
    for name, spec in (("old", {}), ("young", {}), ("vip", {"priorityClassName": high["metadata"]["name"]})):
        made = await site.submit(job(name, cpu="1", queue=queue, **spec))
        await site.reason(name, "QuotaExceeded")
        await next_is_younger(made)
    for name in ("old", "young", "vip"):
        await site.phase(name, "Completed")
    dispatched = [
        event["objectRef"]["name"]
        for event in site.audit()
        if event["verb"] == "patch"
        and event["objectRef"]["resource"] == BINDINGS.plural
        and isinstance(event.get("requestObject"), list)
        and any(op["path"] == "/spec/clusters" for op in event["requestObject"])
    ]
    assert dispatched == ["holder-job", "vip-job", "old-job", "young-job"]
    await site.host.delete(PRIORITY_CLASSES, high["metadata"]["name"])


async def test_a_queue_with_running_work_can_not_be_deleted_with_kubectl(site: Site) -> None:
    queue = await site.queue("busy")
    await site.submit(job("busy", seconds=None, queue=queue))
    await site.phase("busy", "Running")

    async def counted() -> bool:
        return bool(((await site.host.get(QUEUES, queue)).get("status") or {}).get("running"))

    await until(counted, what="its status counts the job")
    assert "has 1 dispatched workloads" in site.kubectl("delete", "queue.scheduling.volcano.sh", queue, ok=False)
    await site.host.delete(JOBS, "busy", site.namespace)

    async def empty() -> bool:
        return not ((await site.host.get(QUEUES, queue)).get("status") or {}).get("running")

    await until(empty, what="its status counts nothing any more")


async def test_workloads_of_one_second_keep_the_order_in_which_they_were_created(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "0"})
    names = [f"n{number}" for number in (3, 1, 2, 5, 4)]
    for name in names:
        await site.submit(job(name, queue=queue))
    for name in names:
        await site.reason(name, "QuotaExceeded")
    arrivals = {}
    for name in names:
        binding = await site.find(BINDINGS, f"{name}-job")
        assert binding is not None
        arrivals[name] = gang.decode(binding["metadata"]["annotations"][keys.GANG]).arrival
    assert sorted(names, key=lambda name: arrivals[name]) == names
    # What is changed later keeps its place.
    firm = {"metadata": {"annotations": {keys.PREEMPTABLE: "false"}}}
    await site.host.merge_patch(JOBS, "n3", firm, site.namespace)

    async def changed() -> gang.Gang | None:
        binding = await site.find(BINDINGS, "n3-job") or {}
        wish = gang.decode(binding["metadata"]["annotations"][keys.GANG])
        return None if wish.preemptable else wish

    assert (await until(changed, what="its binding follows")).arrival == arrivals["n3"]


async def test_a_taint_without_a_time_evicts_from_when_it_was_seen(site: Site) -> None:
    await site.only("topo")
    await site.submit(job("tainted", seconds=None))
    assert await site.where("tainted") == "topo"
    taint = {"key": f"test/{site.namespace}", "effect": "NoExecute"}
    await site.host.merge_patch(CLUSTERS, "topo", {"spec": {"taints": [taint]}})
    try:

        async def evicted() -> bool:
            binding = await site.find(BINDINGS, "tainted-job")
            return "MemberTainted" in (binding or {})["metadata"]["annotations"][keys.DECISION]

        await until(evicted, what="the taint evicts it")
    finally:
        await site.host.merge_patch(CLUSTERS, "topo", {"spec": {"taints": None}})

    async def forgotten() -> bool:
        return not (await site.host.get(CLUSTERS, "topo"))["status"].get("undatedTaints")

    await until(forgotten, what="nothing of the taint is left")
