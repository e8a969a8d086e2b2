"""JobArrays over several members on real API servers: each index runs in one of them, and succeeds once."""

from __future__ import annotations

from collections import Counter

import pytest

from atoll.kinds.job_array import states_in
from atoll.model import array_states
from atoll.model.apiresource import BINDINGS, CLUSTERS, JOB_ARRAYS
from tests.integration.arrays import in_phase, made, running, scattered
from tests.integration.command_line import atollctl
from tests.integration.federation import Site, until

pytestmark = pytest.mark.integration
BOTH = ("alpha", "beta")
INDICES = 120
"""Enough that some are left for a member that comes back late."""


async def test_an_array_runs_in_two_members_through_a_kill_and_an_eviction(site: Site) -> None:
    """1. 12 indices at once need both members. 2. An agent is killed. 3. The other member is tainted: its indices run
    again elsewhere, and the others go on. 4. The taint goes, and it takes indices again. 5. Each has succeeded.
    """
    await site.submit(scattered("wide", INDICES, at_once=12, seconds=4.0))

    async def in_both(more: int = 0) -> bool:
        array = await site.find(JOB_ARRAYS, "wide") or {}
        alpha, beta = [await running(site, name) for name in BOTH]
        assert not alpha & beta, "an index runs in two members"
        assert (array.get("status") or {}).get("phase") != "Completed", "all indices ended before"
        done = int((array.get("status") or {}).get("succeeded") or 0)
        return len(alpha) >= 7 and len(beta) >= 3 and done >= more

    await until(in_both, what="it runs in both members")
    assert "alpha" in await atollctl(site, "explain", "jobarray/wide")
    agent = site.federation.process("agent-alpha")
    agent.kill()
    await agent.start()
    await until(lambda: in_both(10), what="it goes on in both")

    taint = {"key": "test", "effect": "NoExecute"}
    await site.host.merge_patch(CLUSTERS, "beta", {"spec": {"taints": [taint]}})
    try:

        async def left() -> bool:
            binding = await site.find(BINDINGS, "wide-jobarray") or {}
            names = [each["name"] for each in binding["spec"]["clusters"]]
            return names == ["alpha"] and not await site.pods("beta")

        await until(left, what="it has left the tainted member, and runs in the other one")
        assert await running(site, "alpha")
    finally:
        await site.host.merge_patch(CLUSTERS, "beta", {"spec": {"taints": None}})
    before = await site.find(JOB_ARRAYS, "wide") or {}
    await until(in_both, what="it runs in both again")
    done = await in_phase(site, "wide", "Completed", "Failed")
    assert (done["status"]["phase"], done["status"]["succeeded"]) == ("Completed", INDICES)
    jobs: Counter[str] = Counter()
    for name in BOTH:
        jobs += made(site, name, "jobs")
    again = {int(name.rpartition("-")[2]) for name, count in jobs.items() if count > 1}
    succeeded = set(array_states.positions(states_in(before, before["status"]), array_states.SUCCEEDED))
    assert len(jobs) == INDICES
    assert not again & succeeded
    assert len(again) <= 4 + 4, again

    async def finished() -> bool:
        binding = await site.find(BINDINGS, "wide-jobarray") or {}
        return any(
            (each["type"], each["status"]) == ("Finished", "True") for each in binding["status"].get("conditions", ())
        )

    await until(finished, what="all members know that it is over")
