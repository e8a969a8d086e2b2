"""A workload that is deleted and made again under its name while its member is silent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from atoll.control.predecessors import remains
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, EVENTS, JOBS, POLICIES
from tests.integration.federation import Json, Site, batch_job, until

pytestmark = pytest.mark.integration

MEMBER = "topo"


async def test_it_says_which_member_still_has_its_predecessor_and_runs_once_that_is_gone(site: Site) -> None:
    spec = {
        "resourceSelectors": [{"apiVersion": each.api_version, "kind": each.kind} for each in (JOBS, BATCH_JOBS)],
        "placement": {"clusterAffinity": {"clusterNames": [MEMBER]}},
    }
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**about, "metadata": {"name": "only", "namespace": site.namespace}, "spec": spec})
    await site.submit(batch_job("again", seconds=None))

    async def ready() -> bool:
        found = await site.find(BATCH_JOBS, "again")
        return bool(((found or {}).get("status") or {}).get("ready"))

    await until(ready, what="it runs")
    agent = site.federation.process(f"agent-{MEMBER}")
    await agent.stop()
    try:
        await site.host.delete(BATCH_JOBS, "again", site.namespace)

        async def gone() -> bool:
            return await site.find(BATCH_JOBS, "again") is None

        await until(gone, what="it is deleted")
        await site.submit(batch_job("again", seconds=None))

        async def told() -> bool:
            events = await site.host.list(EVENTS, site.namespace)
            return any(
                each["reason"] == "PredecessorRemaining"
                and f"its predecessor is still being removed from {MEMBER}" in each["note"]
                for each in events
            )

        await until(told, what="an Event says what it waits for")

        async def shown() -> Json | None:
            found = await site.find(BATCH_JOBS, "again")
            conditions = ((found or {}).get("status") or {}).get("conditions") or ()
            return next((each for each in conditions if "predecessor" in (each.get("message") or "")), None)

        await until(shown, what="its status says so")
        binding = await site.find(BINDINGS, "again-job")
        assert binding is not None
        [removed] = [each for each in binding["status"]["conditions"] if each["type"] == "Removed"]
        assert (removed["status"], removed["reason"]) == ("False", "PredecessorRemaining")
    finally:
        await agent.start()
        await agent.ready()
    await until(ready, what="the new one runs")


@pytest.mark.parametrize(
    ("ready", "text"),
    [
        pytest.param({"a": True}, "is still being removed from a", id="one that answers"),
        pytest.param({"a": False}, "is still being removed from a, which does not answer", id="one that is silent"),
        pytest.param(
            {"a": False, "b": True}, "is still being removed from a and b; a does not answer", id="one of two is silent"
        ),
        pytest.param(
            {"a": False, "b": False}, "is still being removed from a and b, which do not answer", id="both are silent"
        ),
        pytest.param({}, "is still being removed", id="nobody knows where"),
    ],
)
def test_members_that_do_not_answer_are_named(ready: dict[str, bool], text: str) -> None:
    works = [SimpleNamespace(metadata=SimpleNamespace(namespace=keys.execution_namespace(name))) for name in ready]
    clusters = {
        name: SimpleNamespace(status={"conditions": [{"type": "Ready", "status": str(up)}]})
        for name, up in ready.items()
    }
    caches: Any = SimpleNamespace(works_of=lambda _: works, clusters=clusters)
    binding: Any = SimpleNamespace(metadata=SimpleNamespace(uid="u"))
    assert remains(caches, binding) == text
