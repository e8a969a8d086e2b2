"""Offline work on reclaimed capacity, on real API servers: queued, charged, placed, held, moved, withdrawn.

The descheduler runs as its manifest's account with the two rights that the chart adds for colocation; a stand-in answers as
its Prometheus.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from atoll.agent.colocation.loop import REPORT
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CONFIGMAPS, JOBS, NAMESPACES, NODES, QUEUES
from atoll.model.colocation import BATCH_CPU, BATCH_MEMORY
from tests.agent.descheduler.prometheus import Standin, prometheus
from tests.integration.beside import beside
from tests.integration.decisions import predate
from tests.integration.descheduling import POLICY_NAMESPACE, account, take_away
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

MEMBER = "beta"
RIGHTS = (
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": ["slo.koordinator.sh"], "resources": ["nodemetrics"], "verbs": ["list", "watch"]},
)
QUICK = (
    "--every-seconds=1", "--health-port=0", "--set=rules.stale=20", "--set=colocation.least=2",
    "--set=colocation.settle=5",
)  # fmt: skip


START = """
from atoll.model import decision
decision.MOVES_AFTER = 3.0
from atoll.agent.descheduler.__main__ import main
main()
"""
"""The descheduler asks for a gang after seconds; that it waits a minute is shown by tests of `choose`."""


@contextlib.asynccontextmanager
async def colocation(kubeconfig: Path, standin: Standin, mode: str) -> AsyncIterator[None]:
    """`atoll-descheduler` in this mode, without a DeschedulerPolicy."""
    log = kubeconfig.with_suffix(f".{mode}.log")
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", START, f"--kubeconfig={kubeconfig}"),
            *("--policy=volcano-system/volcano-descheduler", f"--set=prometheus.address={standin.address}"),
            *(f"--set=colocation.mode={mode}", *QUICK),
            stdout=out,
            stderr=out,
        )
    try:
        yield
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 15) == 0
    finally:
        if process.returncode is None:
            process.kill()
        print(log.read_text())


def offline(name: str, queue: str, *, replicas: int) -> dict[str, Any]:
    made = job(name, replicas=replicas, seconds=None, minAvailable=replicas, queue=queue)
    [container] = made["spec"]["tasks"][0]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {BATCH_CPU: "2000", BATCH_MEMORY: "1Gi"}}
    return made


async def offered(api: ApiServer) -> dict[str, int | None]:
    """Node -> reclaimed CPU in its capacity and its allocatable amounts."""
    found = {}
    for each in await api.list(NODES):
        both = [each["status"][amounts].get(BATCH_CPU) for amounts in ("capacity", "allocatable")]
        assert both[0] == both[1]
        found[each["metadata"]["name"]] = int(both[0].replace("k", "000")) if both[0] is not None else None
    return found


async def test_offline_work_runs_on_reclaimed_capacity_and_leaves_first(site: Site, tmp_path: Path) -> None:
    """1. Nothing is published: an offline gang waits. 2. Nodes have little use: it runs, and its queue is charged. 3. Online
    use of its node rises: the host evicts the whole gang, and it runs elsewhere. 4. Figures end: nodes are held, what runs
    goes on. 5. Withdrawn amounts leave with the gang.
    """
    await site.only(MEMBER)
    queue = await site.queue(capability={BATCH_CPU: "5000"})
    async with beside(site, MEMBER) as api, prometheus() as standin:
        for each in await offered(api):
            standin.nodes_cpu[each], standin.nodes_memory[each] = 2.0, 2**30
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": POLICY_NAMESPACE}})
        kubeconfig = await account(site, tmp_path, MEMBER, RIGHTS)
        try:
            await site.submit(offline("sort", queue, replicas=2))
            await site.reason("sort", "InsufficientResources")
            async with colocation(kubeconfig, standin, "on"):
                await site.phase("sort", "Running")
                # 16 cores less the reserve of 10 % and 2 in use; pods without a figure count as online.
                assert set((await offered(api)).values()) == {12400}

                async def charged() -> bool:
                    found = await site.find(QUEUES, queue) or {}
                    return found.get("status", {}).get("allocated", {}).get(BATCH_CPU) in ("4k", "4000")

                await until(charged, what="the queue is charged")
                await predate(site, "sort")
                await site.submit(offline("more", queue, replicas=1))
                await site.reason("more", "QuotaExceeded")
                await site.host.delete(JOBS, "more", site.namespace)

                before = {each["metadata"]["uid"]: each["spec"]["nodeName"] for each in await site.pods(MEMBER)}
                binding = await site.find(BINDINGS, "sort-job")
                for pod in await site.pods(MEMBER):
                    key = f"{site.namespace}/{pod['metadata']['name']}"
                    standin.pods_cpu[key], standin.pods_memory[key] = 1.0, 2**29
                [hot, *_] = before.values()
                standin.nodes_cpu[hot] = 15.0

                async def moved() -> dict[str, str] | None:
                    pods = {each["metadata"]["uid"]: each["spec"].get("nodeName") for each in await site.pods(MEMBER)}
                    return pods if len(pods) == 2 and all(pods.values()) and not pods.keys() & before.keys() else None

                after = await until(moved, what="the gang runs anew")
                assert hot not in after.values()
                decided = await site.find(BINDINGS, "sort-job")
                assert binding is not None
                assert decided is not None
                epochs = [int(each["metadata"]["annotations"][keys.EPOCH]) for each in (binding, decided)]
                assert epochs[0] < epochs[1]
                assert binding["metadata"]["uid"] == decided["metadata"]["uid"]

                standin.series.clear()
                placed = {name: 2000 * list(after.values()).count(name) for name in await offered(api)}

                async def held() -> bool:
                    return await offered(api) == placed

                await until(held, what="nodes offer what their pods request, and no more")
                [report] = await api.list(CONFIGMAPS, "atoll-system", field_selector=f"metadata.name={REPORT}")
                said = orjson.loads(report["data"]["report.json"])
                assert (said["condition"]["status"], said["nodes"]["held"]) == ("False", 4)
                assert {each["metadata"]["uid"] for each in await site.pods(MEMBER)} == after.keys()
            async with colocation(kubeconfig, standin, "withdraw"):
                await site.host.delete(JOBS, "sort", site.namespace)

                async def gone() -> bool:
                    return set((await offered(api)).values()) == {None}

                await until(gone, what="no node offers reclaimed capacity")
                assert not any(
                    keys.RECLAIMED in each["metadata"].get("annotations", {}) for each in await api.list(NODES)
                )
        finally:
            # Other tests, and a second run of this one, find nodes as they were.
            none = {BATCH_CPU: None, BATCH_MEMORY: None}
            for each in await offered(api):
                await api.merge_patch(
                    NODES, each, {"status": {"capacity": none, "allocatable": none}}, subresource="status"
                )
                await api.merge_patch(NODES, each, {"metadata": {"annotations": {keys.RECLAIMED: None}}})
            await take_away(api, REPORT)
        await site.no_jobs()
