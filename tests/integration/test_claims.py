"""PersistentVolumeClaims that are made for a Volcano Job in members live as long as the Job on the host."""

from __future__ import annotations

import pytest

from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CLAIMS, JOBS, WORKS
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


async def claims(site: Site) -> dict[str, list[str]]:
    """Member -> UIDs of the test's claims that are to stay."""
    found = {name: await api.list(CLAIMS, site.namespace) for name, api in site.members.items()}
    return {
        name: [each["metadata"]["uid"] for each in there if not each["metadata"].get("deletionTimestamp")]
        for name, there in found.items()
        if there
    }


async def test_claims_survive_a_hold_and_an_eviction_and_go_with_the_workload(site: Site) -> None:
    """1. It runs. 2. It is held, its pods go. 3. It is released and runs with the same claim. 4. It is deleted."""
    await site.submit(job("keeps", seconds=None, volumes=[{"mountPath": "/data", "volumeClaim": CLAIM}]))
    await site.phase("keeps", "Running")
    member = await site.where("keeps")
    before = await claims(site)
    assert list(before) == [member]
    assert len(before[member]) == 1
    site.kubectl("annotate", "vcjob", "keeps", f"{keys.HOLD}=true", "-n", site.namespace)

    async def gone() -> bool:
        return await site.find(JOBS, "keeps", member) is None and not await site.pods(member)

    await until(gone, what="nothing of it runs")
    assert await claims(site) == before
    site.kubectl("annotate", "vcjob", "keeps", f"{keys.HOLD}-", "-n", site.namespace)
    await site.phase("keeps", "Running")
    # Another member has one of its own.
    assert (await claims(site))[member] == before[member]
    # Held, so that the member has no Work of it when it is deleted.
    site.kubectl("annotate", "vcjob", "keeps", f"{keys.HOLD}=true", "-n", site.namespace)
    await until(gone, what="nothing of it runs")
    await site.host.delete(JOBS, "keeps", site.namespace)

    async def cleared() -> bool:
        return not await claims(site) and await site.find(BINDINGS, "keeps-job") is None

    await until(cleared, what="the claims are gone with the workload")


async def test_claims_of_one_that_runs_go_with_it(site: Site) -> None:
    await site.submit(job("runs", seconds=None, volumes=[{"mountPath": "/data", "volumeClaim": CLAIM}]))
    await site.phase("runs", "Running")
    await site.host.delete(JOBS, "runs", site.namespace)

    async def cleared() -> bool:
        return not await claims(site) and await site.find(BINDINGS, "runs-job") is None

    await until(cleared, what="the claims are gone with the workload")


async def test_a_work_that_is_not_ours_is_not_delivered_and_says_why(site: Site) -> None:
    namespace, name = keys.execution_namespace("topo"), f"foreign-{site.namespace}"
    manifest = job("foreign", seconds=None)
    manifest["metadata"]["namespace"] = site.namespace
    metadata = {"name": name, "namespace": namespace, "annotations": {keys.BREAK_GLASS: f"test {site.namespace}"}}
    about = {"apiVersion": WORKS.api_version, "kind": WORKS.kind}
    await site.host.create(WORKS, {**about, "metadata": metadata, "spec": {"workload": {"manifests": [manifest]}}})

    async def refused() -> bool:
        work = await site.host.get(WORKS, name, namespace)
        conditions = (work.get("status") or {}).get("conditions") or ()
        says = "don't say of which decision"
        return any(c["type"] == "Applied" and c["status"] == "False" and says in c["message"] for c in conditions)

    await until(refused, what="its status says why")
    assert await site.find(JOBS, "foreign", "topo") is None
    await site.host.delete(WORKS, name, namespace)
