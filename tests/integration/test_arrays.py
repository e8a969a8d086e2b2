"""JobArrays on real API servers: one object on the host, a Job for each running index in the member."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from atoll.kinds.job_array import states_in
from atoll.model import array_states, keys
from atoll.model.apiresource import BINDINGS, JOB_ARRAYS, JOBS, PODS
from tests.integration.arrays import in_phase, made
from tests.integration.command_line import atollctl
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration


def array(name: str, indices: int | str, *, at_once: int, seconds: float | None = 0.5, **spec: object) -> Json:
    inner = job(name, seconds=seconds)["spec"]
    return {
        "apiVersion": JOB_ARRAYS.api_version,
        "kind": JOB_ARRAYS.kind,
        "metadata": {"name": name},
        "spec": {"indices": indices, "atOnce": at_once, "template": {"spec": inner}, **spec},
    }


async def member_of(site: Site, name: str) -> str:
    async def look() -> str | None:
        binding = await site.find(BINDINGS, f"{name}-jobarray")
        clusters = (binding or {}).get("spec", {}).get("clusters") or []
        return clusters[0]["name"] if clusters else None

    return await until(look, what=f"array {name} is dispatched")


async def test_each_index_succeeds_once_through_failures_and_kills(site: Site) -> None:
    """1. 100 indices, 20 at once. 2. Index 7 fails twice. 3. The agent is killed three times. 4. Each has succeeded
    once, and was started once for each of its failures besides.
    """
    await site.submit(array("many", "0-99", at_once=20, seconds=1.5, retries=2))
    member = await member_of(site, "many")
    failed: set[str] = set()

    async def fail() -> bool:
        pods = await site.members[member].list(PODS, site.namespace, label_selector=f"{keys.ARRAY_INDEX}=7")
        for pod in pods:
            about = pod["metadata"]
            if about["uid"] not in failed and pod.get("status", {}).get("phase") == "Running" and len(failed) < 2:
                failed.add(about["uid"])
                patch = {"status": {"phase": "Failed"}}
                await site.members[member].merge_patch(PODS, about["name"], patch, site.namespace, subresource="status")
        return len(failed) == 2

    async def kill() -> None:
        agent = site.federation.process(f"agent-{member}")
        for _ in range(3):
            agent.kill()
            await agent.start()

            async def goes_on(since: int = await succeeded()) -> bool:
                return await succeeded() >= min(since + 15, 100)

            await until(goes_on, what="more indices succeed")

    async def succeeded() -> int:
        found = await site.find(JOB_ARRAYS, "many", member) or {}
        return int((found.get("status") or {}).get("succeeded") or 0)

    await asyncio.gather(until(fail, what="index 7 has failed twice"), kill())
    done = await in_phase(site, "many", "Completed", "Failed")
    status = done["status"]
    assert (status["phase"], status["succeeded"], status["retried"]) == ("Completed", 100, 2)
    assert array_states.failures(states_in(done, status)[7]) == 2
    jobs = made(site, member, "jobs")
    assert jobs["many-7"] == 3
    assert {name: count for name, count in jobs.items() if count != 1} == {"many-7": 3}
    assert len(jobs) == 100
    assert not await site.members[member].list(JOBS, site.namespace)
    assert len(await site.host.list(BINDINGS, site.namespace)) == 1
    # They depend on the time that it runs, not on its indices: three for each report.
    writes = Counter(
        f"{event['verb']} {event['objectRef']['resource']}"
        for event in site.audit()
        if event["verb"] in ("create", "update", "patch") and event["objectRef"]["resource"] != "events"
    )
    assert writes.total() < 80, writes


async def test_ended_indices_outlast_a_hold(site: Site) -> None:
    """1. Some indices end. 2. The array is held and leaves its member. 3. It is released: the others alone run."""
    await site.submit(array("kept", 30, at_once=5, seconds=0.5))
    member = await member_of(site, "kept")

    async def some() -> Json | None:
        found = await site.find(JOB_ARRAYS, "kept", member) or {}
        return found if int((found.get("status") or {}).get("succeeded") or 0) >= 10 else None

    ended = await until(some, what="ten indices have ended in the member")
    await site.host.merge_patch(JOB_ARRAYS, "kept", {"metadata": {"annotations": {keys.HOLD: "true"}}}, site.namespace)

    async def gone() -> Json | None:
        there = await site.find(JOB_ARRAYS, "kept", member)
        on_host = await site.find(JOB_ARRAYS, "kept") or {}
        return on_host if there is None and on_host["status"]["phase"] == "Pending" else None

    left = await until(gone, what="it has left the member")
    assert left["status"]["running"] == 0
    assert left["status"]["succeeded"] >= ended["status"]["succeeded"]
    before = states_in(left, left["status"])
    await site.host.merge_patch(JOB_ARRAYS, "kept", {"metadata": {"annotations": {keys.HOLD: None}}}, site.namespace)
    done = await in_phase(site, "kept", "Completed", "Failed")
    assert (done["status"]["phase"], done["status"]["succeeded"]) == ("Completed", 30)
    jobs: Counter[str] = Counter()
    for name in site.members:
        jobs += made(site, name, "jobs")
    again = {int(name.rpartition("-")[2]) for name, count in jobs.items() if count > 1}
    assert not again & {at for at in array_states.positions(before, array_states.SUCCEEDED)}
    assert len(again) <= 5 + 5


async def test_failed_indices_have_reasons_and_run_again(site: Site) -> None:
    """1. Two of eight indices fail for good. 2. The host says which, and why. 3. A new array runs these two alone."""
    await site.submit(array("broken", 8, at_once=4, seconds=3.0))
    member = await member_of(site, "broken")
    wanted = {"2", "3"}

    async def fail() -> bool:
        for pod in await site.members[member].list(PODS, site.namespace, label_selector=f"{keys.ARRAY}=broken"):
            about, index = pod["metadata"], pod["metadata"]["labels"][keys.ARRAY_INDEX]
            if index in wanted and (pod.get("status") or {}).get("phase") == "Running":
                ended = {"exitCode": 3, "reason": "Error", "message": f"loss of {index} is nan"}
                container = {"name": "main", "state": {"terminated": ended}, "ready": False, "restartCount": 0,
                             "image": "i", "imageID": "", "started": False}  # fmt: skip
                patch = {"status": {"phase": "Failed", "containerStatuses": [container]}}
                await site.members[member].merge_patch(PODS, about["name"], patch, site.namespace, subresource="status")
                wanted.discard(index)
        return not wanted

    await until(fail, what="indices 2 and 3 have failed")
    done = await in_phase(site, "broken", "Failed", "Completed")
    assert (done["status"]["failedIndices"], done["status"]["succeeded"]) == ("2-3", 6)
    [why] = done["status"]["failures"]
    assert (why["reason"], why["count"]) == ("container main: Error, exit code 3", 2)
    assert why["indices"] in ("2-3", "3,2")
    assert why["last"].endswith("is nan")
    assert "failed    2-3\n" in await atollctl(site, "explain", "jobarray/broken")
    await atollctl(site, "job", "retry", "jobarray/broken")
    [made_again] = [
        each
        for each in await site.host.list(JOB_ARRAYS, site.namespace)
        if (each["metadata"].get("annotations") or {}).get(keys.ARRAY_RETRY_OF) == "broken"
    ]
    again = await in_phase(site, made_again["metadata"]["name"], "Completed", "Failed")
    assert (again["spec"]["indices"], again["status"]["succeeded"]) == ("2-3", 2)


async def test_the_job_and_the_pod_of_an_index_are_deleted_once(site: Site) -> None:
    """By whomever: agent, garbage collector, kubelet."""
    await site.submit(array("once", 30, at_once=10, seconds=0.2))
    member = await member_of(site, "once")
    done = await in_phase(site, "once", "Completed", "Failed")
    assert done["status"]["succeeded"] == 30

    async def gone() -> bool:
        return not await site.members[member].list(PODS, site.namespace)

    await until(gone, what="all pods are gone")
    deleted: Counter[str] = Counter()
    for event in site.audit(member):
        reference = event.get("objectRef") or {}
        if event["verb"] == "delete" and reference.get("resource") in ("jobs", "pods"):
            deleted[f"{reference['resource']} {reference['name']}"] += 1
    assert len(deleted) == 60
    assert {name: count for name, count in deleted.items() if count > 1} == {}
