"""Jobs that run with fewer pods than they ask for, on real API servers: they grow, shrink and complete."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atoll.model import gang, keys
from atoll.model.apiresource import BINDINGS, EVENTS, JOBS, PODS, WORKS
from atoll.model.verdict import Reason
from tests.integration.decisions import decisions, status
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration


async def runs(site: Site, name: str, *indices: int) -> None:
    """Wait until exactly these pods of a job run."""

    async def look() -> bool:
        pods = await site.pods(await site.where(name))
        mine = [pod for pod in pods if pod["metadata"]["labels"].get(keys.JOB_NAME) == name]
        left = [pod for pod in mine if pod["status"].get("phase") != "Succeeded"]
        seen[:] = sorted((pod["metadata"]["labels"][keys.TASK_INDEX], pod["status"].get("phase")) for pod in left)
        return seen == [(str(index), "Running") for index in indices]

    seen: list[Any] = []
    try:
        await until(look)
    except AssertionError:
        story = (await decisions(site))[name].story
        raise AssertionError(f"pods {indices} of {name} were to run, last seen {seen}; {story}") from None


async def end(site: Site, name: str, *indices: int) -> None:
    """These pods do their work."""
    member = site.members[await site.where(name)]
    for index in indices:
        done = {"status": {"phase": "Succeeded"}}
        await member.merge_patch(PODS, f"{name}-worker-{index}", done, site.namespace, subresource="status")


async def scale(site: Site, name: str, replicas: int, minimum: int) -> None:
    """Its user asks for another number of pods."""
    found = await site.host.get(JOBS, name, site.namespace)
    task = {**found["spec"]["tasks"][0], "replicas": replicas, "minAvailable": minimum}
    await site.host.merge_patch(JOBS, name, {"spec": {"tasks": [task], "minAvailable": minimum}}, site.namespace)


async def reasons(site: Site, name: str) -> list[str]:
    return [str(line.reason) for line in (await decisions(site))[name].story]


async def notes(site: Site, wanted: set[str]) -> bool:
    """Whether Events of the namespace begin so."""
    found = [event["note"] for event in await site.host.list(EVENTS, site.namespace)]
    return all(any(note.startswith(each) for note in found) for each in wanted)


async def test_a_job_grows_into_what_others_leave_and_shrinks_for_an_entitled_queue(site: Site) -> None:
    """1. It starts with 3 of 6 pods beside another job. 2. That is deleted: it grows. 3. A queue takes back what it
    deserves: the pods of the highest indices go. 4. What is left runs, then the others, and the job completes."""
    above = await site.queue("above", capability={"cpu": "6"})
    borrower = await site.queue("borrower", parent=above, deserved={"cpu": "3"})
    owner = await site.queue("owner", parent=above, deserved={"cpu": "3"})
    await site.submit(job("other", cpu="1", replicas=3, seconds=None, queue=borrower))
    await site.phase("other", "Running")
    await site.submit(job("wide", cpu="1", replicas=6, seconds=None, queue=borrower, minAvailable=2))
    await runs(site, "wide", 0, 1, 2)
    first = {pod["metadata"]["uid"] for pod in await site.pods(await site.where("wide"))}
    await site.host.delete(JOBS, "other", site.namespace)
    await runs(site, "wide", 0, 1, 2, 3, 4, 5)
    works = await site.host.list(WORKS, keys.execution_namespace(await site.where("wide")))
    [sent] = [each for each in works if each["metadata"]["name"].startswith("wide-")]
    assert gang.decode(sent["metadata"]["annotations"][keys.GANG]).full() == [6]
    await status(site, borrower, allocated={"cpu": "6", "memory": "96Mi", "pods": "6"})
    await site.submit(job("own", cpu="1", replicas=3, seconds=None, queue=owner))
    await runs(site, "wide", 0, 1, 2)
    await site.phase("own", "Running")
    kept = {
        pod["metadata"]["uid"]
        for pod in await site.pods(await site.where("wide"))
        if pod["metadata"]["labels"][keys.JOB_NAME] == "wide"
    }
    assert kept <= first, "pods that stay are not touched"
    binding = await site.host.get(BINDINGS, "wide-job", site.namespace)
    assert binding["metadata"]["annotations"][keys.EPOCH] == "1"
    told = await reasons(site, "wide")
    assert [each for each in told if each in (Reason.GROWN, Reason.SHRUNK)] == [Reason.GROWN, Reason.SHRUNK]
    await until(lambda: notes(site, {"3 pods, not 6: ", "6 pods, not 3"}), what="users are told of both")
    await end(site, "wide", 0, 1, 2)
    await runs(site, "wide", 3, 4, 5)
    await end(site, "wide", 3, 4, 5)
    done = await site.phase("wide", "Completed")
    assert done["status"]["succeeded"] == 6


async def test_more_pods_of_a_running_job_pass_through_quota_and_fewer_give_it_back(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "3"})
    await site.submit(job("train", cpu="1", replicas=2, seconds=None, queue=queue))
    await runs(site, "train", 0, 1)
    await scale(site, "train", 4, 4)
    decision = await site.reason("train", "QuotaExceeded")
    assert decision["phase"] == "Dispatched"
    await until(lambda: notes(site, {"it would exceed its queue's capability"}), what="its user is told")
    assert decision["blocker"]["name"] == queue
    await runs(site, "train", 0, 1)
    await scale(site, "train", 4, 1)
    await runs(site, "train", 0, 1, 2)
    await asyncio.gather(
        scale(site, "train", 1, 1), site.submit(job("next", cpu="1", replicas=2, seconds=None, queue=queue))
    )
    await runs(site, "train", 0)
    await runs(site, "next", 0, 1)
    await status(site, queue, allocated={"cpu": "3", "memory": "48Mi", "pods": "3"})
