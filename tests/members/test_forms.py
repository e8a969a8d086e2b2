"""One short way of work through members of every form.

All of it is long: tests/integration shows the same in federations that many tests share, see docs/members.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.apiresource import BATCH_JOBS, BINDINGS
from tests.integration.federation import Site, batch_job, job, until
from tests.members import kueue_member, sets_member, volcano_member
from tests.members.forms import ADDED, completes, runs_both
from tests.members.modules import TIMEOUT_S, programs

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(TIMEOUT_S)]
ADMISSION = ("mutating", "restricted")
USUAL = ("plain", "own", "oldest")


@pytest.mark.members(*ADMISSION)
@pytest.mark.parametrize("form", ADMISSION)
async def test_work_goes_through_a_member_with_this_admission(member_site: Site, form: str) -> None:
    await runs_both(member_site, form)


@pytest.mark.members(*USUAL)
@pytest.mark.parametrize("form", USUAL)
async def test_work_goes_through_a_member_like_those_of_other_tests(member_site: Site, form: str) -> None:
    await runs_both(member_site, form)


@pytest.mark.parametrize(
    "project",
    [volcano_member, kueue_member, *sets_member.PROJECTS],
    ids=["Volcano", "Kueue", "JobSet", "LeaderWorkerSet"],
)
def test_a_project_is_built_from_its_own_module(project: Any) -> None:
    """Minutes the first time; the tests of its form run wherever this was done."""
    built = programs(project.PROJECT, project.TOOLS, build=True)
    assert set(built) == {each.name for each in project.TOOLS}


@pytest.mark.members(*ADMISSION)
async def test_a_policy_adds_to_what_a_member_gets(member_site: Site) -> None:
    await member_site.only("mutating")
    await completes(member_site, batch_job("touched"))
    found = await member_site.find(BATCH_JOBS, "touched", "mutating")
    assert found is not None
    assert ADDED in found["spec"]["template"]["spec"]["tolerations"]


@pytest.mark.members(*ADMISSION)
async def test_a_restricted_member_says_what_it_refuses(member_site: Site) -> None:
    """Pod Security lets the Job in and refuses its pods: the host hears why."""
    await member_site.only("restricted")
    await member_site.submit(job("careless", seconds=None))

    async def told() -> bool:
        binding = await member_site.find(BINDINGS, "careless-job") or {}
        return "violates PodSecurity" in str(binding)

    await until(told, what="the binding says what Pod Security has against the pods")
    assert await member_site.pods("restricted") == []
