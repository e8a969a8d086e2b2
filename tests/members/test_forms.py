"""One short way of work through members of every form."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS
from tests.integration.federation import Json, Site, batch_job, job, until
from tests.members import kueue_member, volcano_member
from tests.members.forms import ADDED, safe
from tests.members.modules import TIMEOUT_S, programs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(TIMEOUT_S)]
QUICK = ("plain", "own", "mutating", "restricted", "oldest")
"""One federation for all that need no other program."""


async def completes(site: Site, obj: Json) -> Json:
    """Submit a batch Job and wait until the host says that it is complete."""
    await site.submit(obj)
    return await completed(site, obj["metadata"]["name"])


async def completed(site: Site, name: str) -> Json:
    """Wait until the host says that the batch Job is complete."""

    async def ended() -> Json | None:
        found = await site.find(BATCH_JOBS, name)
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return found if any(c["type"] == "Complete" and c["status"] == "True" for c in conditions) else None

    return await until(ended, deadline=90, what=f"the Job {name} is complete on the host")


async def runs_both(site: Site, member: str) -> None:
    """A Volcano Job and a batch Job go there, run as gangs of two, end, and leave nothing."""
    await site.only(member)
    await site.submit(safe(job("gang", replicas=2, cpu="3")))
    done = await completes(site, safe(batch_job("batch", parallelism=2, cpu="3")))
    assert done["status"]["succeeded"] == 2
    ended = await site.phase("gang", "Completed", deadline=60)
    if member != "volcano":
        # Volcano's controllers leave the count out of the status with which they complete a Job.
        assert ended["status"]["succeeded"] == 2
    assert await site.where("gang") == member
    for name in ("gang-job", "batch-job"):
        binding = await site.find(BINDINGS, name)
        assert binding is not None
        assert binding["metadata"]["annotations"][keys.EPOCH] == "1"


@pytest.mark.members(*QUICK)
@pytest.mark.parametrize("form", QUICK)
async def test_work_goes_through_a_member_of_this_form(member_site: Site, form: str) -> None:
    await runs_both(member_site, form)


@pytest.mark.long
@pytest.mark.parametrize("project", [volcano_member, kueue_member], ids=["Volcano", "Kueue"])
def test_a_project_is_built_from_its_own_module(project: Any) -> None:
    """Minutes the first time; the tests of its form run wherever this was done."""
    built = programs(project.PROJECT, project.TOOLS, build=True)
    assert set(built) == {each.name for each in project.TOOLS}


@pytest.mark.members(*QUICK)
async def test_a_policy_adds_to_what_a_member_gets(member_site: Site) -> None:
    await member_site.only("mutating")
    await completes(member_site, batch_job("touched"))
    found = await member_site.find(BATCH_JOBS, "touched", "mutating")
    assert found is not None
    assert ADDED in found["spec"]["template"]["spec"]["tolerations"]


@pytest.mark.members(*QUICK)
async def test_a_restricted_member_says_what_it_refuses(member_site: Site) -> None:
    """Pod Security lets the Job in and refuses its pods: the host hears why."""
    await member_site.only("restricted")
    await member_site.submit(job("careless", seconds=None))

    async def told() -> bool:
        binding = await member_site.find(BINDINGS, "careless-job") or {}
        return "violates PodSecurity" in str(binding)

    await until(told, deadline=60, what="the binding says what Pod Security has against the pods")
    assert await member_site.pods("restricted") == []
