"""JobSets and LeaderWorkerSets under their own controllers: from the host to a member and back."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from atoll.kinds import job_set, leader_worker_set
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, POD_GROUPS, SERVICES, STATEFUL_SETS, ApiResource
from tests.integration.federation import Json, Site, until
from tests.integration.kind_samples import pod
from tests.members import sets_member
from tests.members.manifests import apply
from tests.members.modules import TIMEOUT_S

MEMBER = "sets"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(TIMEOUT_S),
    pytest.mark.members(MEMBER),
]
JOB_SETS, LEADER_WORKER_SETS = job_set.KIND.resource, leader_worker_set.KIND.resource


@pytest_asyncio.fixture(loop_scope="session")
async def sets(member_site: Site) -> Site:
    """The host has both CRDs, and no controllers of theirs."""
    await asyncio.to_thread(apply, member_site.federation.host, sets_member.crds())

    async def served() -> bool:
        return all([await member_site.host.list(each) is not None for each in (JOB_SETS, LEADER_WORKER_SETS)])

    await until(served, what="the host serves both")
    return member_site


def made(resource: ApiResource, name: str, spec: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


def replicated(name: str, pods: int, *, seconds: float = 1.0, fails: bool = False, **more: object) -> Json:
    """One of the Jobs of a JobSet."""
    template = pod(restartPolicy="Never")
    template["metadata"] = {"annotations": {keys.RUN_TIME: f"{int(seconds * 1000)}ms"}}
    if fails:
        template["metadata"]["annotations"][keys.FAIL] = "true"
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return {"name": name, "replicas": 1, "template": {"spec": spec}, **more}


async def says(site: Site, resource: ApiResource, name: str, condition: str) -> Json:
    """Wait until the host shows that condition."""

    async def look() -> Json | None:
        found = await site.find(resource, name)
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return found if any((c["type"], c["status"]) == (condition, "True") for c in conditions) else None

    return await until(look, what=f"{resource.kind} {name} is {condition} on the host")


async def ended(site: Site, binding: str) -> str:
    """Wait until its queue is charged no more; how it ended."""

    async def look() -> str:
        found = await site.find(BINDINGS, binding)
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return next((c["reason"] for c in conditions if (c["type"], c["status"]) == ("Finished", "True")), "")

    return await until(look, what=f"{binding} is finished")


async def deleted(site: Site, resource: ApiResource, name: str) -> None:
    """Delete it on the host, and wait until nothing that was made of it is left in the member."""
    await site.host.delete(resource, name, site.namespace)
    member = site.members[MEMBER]

    async def gone() -> bool:
        made_of_it = (BATCH_JOBS, STATEFUL_SETS, SERVICES, POD_GROUPS)
        left = [each for kind in made_of_it for each in await member.list(kind, site.namespace)]
        return not left and not await site.pods(MEMBER) and await site.find(resource, name, MEMBER) is None

    await until(gone, what=f"nothing of {name} is left in the member")


async def test_a_job_set_whose_worker_depends_on_another_job_completes(sets: Site) -> None:
    site = sets
    jobs = [replicated("data", 1), replicated("worker", 3, dependsOn=[{"name": "data", "status": "Complete"}])]
    await site.submit(made(JOB_SETS, "train", {"network": {"enableDNSHostnames": True}, "replicatedJobs": jobs}))
    done = await says(site, JOB_SETS, "train", "Completed")
    assert {each["name"]: each["succeeded"] for each in done["status"]["replicatedJobsStatus"]} == {
        "data": 1,
        "worker": 1,
    }
    assert done["status"]["terminalState"] == "Completed"
    assert await ended(site, "train-jobset") == "Succeeded"
    pods = {each["metadata"]["name"]: each for each in await site.pods(MEMBER)}
    assert {each["status"]["phase"] for each in pods.values()} == {"Succeeded"}
    assert len(pods) == 4
    assert await site.host.list(BATCH_JOBS, site.namespace) == []
    await deleted(site, JOB_SETS, "train")


async def test_a_job_set_of_which_a_job_fails_has_failed_and_goes_nowhere_else(sets: Site) -> None:
    site = sets
    await site.submit(
        made(JOB_SETS, "bad", {"replicatedJobs": [replicated("leader", 1, fails=True), replicated("worker", 2)]})
    )
    await says(site, JOB_SETS, "bad", "Failed")
    assert await ended(site, "bad-jobset") == "Failed"
    binding = await site.find(BINDINGS, "bad-jobset")
    assert binding is not None
    assert binding["metadata"]["annotations"][keys.EPOCH] == "1"
    await deleted(site, JOB_SETS, "bad")


async def test_a_job_set_that_is_started_again_by_its_own_controller_keeps_its_place(sets: Site) -> None:
    """`failurePolicy.maxRestarts` is the member's business: the host hears of the restarts."""
    site = sets
    jobs = [replicated("leader", 1, fails=True), replicated("worker", 2, seconds=60)]
    await site.submit(made(JOB_SETS, "again", {"failurePolicy": {"maxRestarts": 2}, "replicatedJobs": jobs}))
    over = await says(site, JOB_SETS, "again", "Failed")
    assert over["status"]["restarts"] == 2
    binding = await site.find(BINDINGS, "again-jobset")
    assert binding is not None
    assert binding["metadata"]["annotations"][keys.EPOCH] == "1"


async def test_a_leader_worker_set_runs_is_scaled_by_groups_and_deleted(sets: Site) -> None:
    site = sets
    template = {"size": 3, "leaderTemplate": pod("leader"), "workerTemplate": pod("worker")}
    await site.submit(made(LEADER_WORKER_SETS, "llm", {"replicas": 2, "leaderWorkerTemplate": template}))

    async def ready(groups: int) -> bool:
        found = await site.find(LEADER_WORKER_SETS, "llm")
        pods = [each for each in await site.pods(MEMBER) if "deletionTimestamp" not in each["metadata"]]
        placed = all(each["spec"].get("nodeName") for each in pods)
        return ((found or {}).get("status") or {}).get("readyReplicas") == groups and len(pods) == 3 * groups and placed

    async def charged() -> dict[str, int]:
        binding = await site.find(BINDINGS, "llm-leaderworkerset")
        assert binding is not None
        return {each["name"]: each["replicas"] for each in binding["spec"]["clusters"][0]["components"]}

    await until(lambda: ready(2), what="two groups are ready on the host")
    assert await charged() == {"leader": 2, "worker": 4}
    await says(site, LEADER_WORKER_SETS, "llm", "Available")
    assert await site.host.list(STATEFUL_SETS, site.namespace) == []
    for groups in (3, 1):
        site.kubectl("scale", "leaderworkersets/llm", f"--replicas={groups}", "-n", site.namespace)
        await until(lambda groups=groups: ready(groups), what=f"{groups} groups are ready on the host")  # type: ignore[misc]
        assert await charged() == {"leader": groups, "worker": 2 * groups}
    await deleted(site, LEADER_WORKER_SETS, "llm")


async def test_the_workers_of_a_group_come_once_its_leader_is_ready(sets: Site) -> None:
    """`startupPolicy: LeaderReady`: the member does not wait for all pods before it gives the leaders their nodes."""
    site = sets
    template = {"size": 3, "leaderTemplate": pod("leader"), "workerTemplate": pod("worker")}
    spec = {"replicas": 2, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": template}
    await site.submit(made(LEADER_WORKER_SETS, "late", spec))
    shown = await says(site, LEADER_WORKER_SETS, "late", "Available")
    assert shown["status"]["readyReplicas"] == 2
    await deleted(site, LEADER_WORKER_SETS, "late")
