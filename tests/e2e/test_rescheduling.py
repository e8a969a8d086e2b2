"""The article's walk through load-aware rescheduling, on real kubelets measured by a real Prometheus.

The documents come as they are but for: the node's name, `imagePullPolicy` (no registry is reached), a scoring that
spreads as kube-scheduler does, and processors, which all have the same part of the article's. Nodes of one machine are one to their kubelets' node figures, so that the
use of a node is the sum over its containers here. Skipped where no Prometheus is on PATH.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
import yaml

from atoll.agent.descheduler.looks import REPORT
from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import AtollFederation
from atoll.local.layout import FederationConfig, Member
from atoll.model import keys, quantity
from atoll.model.apiresource import CONFIGMAPS, EVENTS, NODES, PODS
from tests.integration.federation import Site, until
from tests.members.manifests import apply
from tests.monitoring.files import program
from tests.monitoring.prometheus import serving

Json = dict[str, Any]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]
DOCUMENTS = ROOT / "tests" / "documents"
MEMBER = "te"
NODE_CPU = 2000
"""Thousandths of cores of one of the article's nodes: its stress takes all of them."""
PART = min(1.0, (os.cpu_count() or 1) / 16)
"""Of each processor that the documents name; three nodes and all that runs beside them share the machine's."""
PATIENCE = 420.0
"""Seconds: the policy's window is two minutes, and the rules ask for several looks after it."""
_CONTAINERS = '{container!="",container!="POD"}'
FLAGS = (
    "--policy=volcano-system/volcano-descheduler", "--every-seconds=10", "--health-port=0", "--set=rules.youngest=0",
    f"--set=prometheus.nodeCpu=sum by (node) (rate(container_cpu_usage_seconds_total{_CONTAINERS}[$window]))",
    f"--set=prometheus.nodeMemory=sum by (node) (container_memory_working_set_bytes{_CONTAINERS})",
)  # fmt: skip
"""Looks come every ten seconds instead of every minute, and of young pods; all else is as in production."""


def documents(name: str, node: str = "") -> list[Json]:
    """The objects of a document, with what this machine needs otherwise."""
    objects: list[Json] = list(yaml.safe_load_all((DOCUMENTS / name).read_text("utf-8").replace("te3", node or "te3")))
    for each in objects:
        if each["kind"] == "Deployment":
            each["metadata"]["annotations"][keys.NODE_SCORING] = "spread"
        spec = each.get("spec") or {}
        for container in spec.get("template", each).get("spec", {}).get("containers") or ():
            container["imagePullPolicy"] = "IfNotPresent"
            for amounts in container["resources"].values():
                amounts["cpu"] = f"{round(quantity.parse(amounts['cpu']) * 1000 * PART)}m"
    return objects


class Walk:
    """One federation, its member, and what the test reads there."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.member: ApiServer = site.members[MEMBER]

    def apply(self, name: str, node: str = "") -> None:
        self.site.kubectl(
            "apply", "-n", self.site.namespace, "-f", "-", stdin=yaml.safe_dump_all(documents(name, node))
        )

    async def low(self) -> dict[str, str]:
        """Ready pods of the Deployment in the member: UID -> node."""
        found = {}
        for pod in await self.member.list(PODS, self.site.namespace):
            conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
            labels = pod["metadata"].get("labels") or {}
            if (
                labels.get("app") == "low-priority-app"
                and conditions.get("Ready") == "True"
                and not pod["metadata"].get("deletionTimestamp")
            ):
                found[pod["metadata"]["uid"]] = pod["spec"]["nodeName"]
        return found

    async def report(self) -> Json:
        found = await self.member.list(CONFIGMAPS, keys.SYSTEM_NAMESPACE, field_selector=f"metadata.name={REPORT}")
        return orjson.loads(found[0]["data"]["report.json"]) if found else {}

    async def looks(self, count: int) -> Json:
        """The report after so many more looks."""
        seen = {(await self.report()).get("time")}

        async def look() -> Json | None:
            report = await self.report()
            seen.add(report.get("time"))
            return report if len(seen) > count else None

        return await until(look, deadline=PATIENCE, what=f"{count} looks")

    async def tainted(self) -> set[str]:
        return {
            each["metadata"]["name"]
            for each in await self.member.list(NODES)
            if any(taint["key"] == keys.HOT for taint in each["spec"].get("taints") or ())
        }

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[str]:
        """The address of a Prometheus that scrapes the kubelets."""
        authority = self.site.federation.federation.keys.nodes
        assert authority is not None, "there are kubelets"
        certificate, key = authority.issue("prometheus", groups=["system:masters"])
        jobs = []
        for node in await self.member.list(NODES):
            addresses = {one["type"]: one["address"] for one in node["status"]["addresses"]}
            port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
            name = node["metadata"]["name"]
            jobs.append({
                "job_name": name, "scheme": "https", "metrics_path": "/metrics/resource",
                "tls_config": {
                    "ca_file": str(authority.path), "cert_file": str(certificate), "key_file": str(key),
                },
                "static_configs": [{"targets": [f"{addresses['InternalIP']}:{port}"], "labels": {"node": name}}],
            })  # fmt: skip
        async with serving(jobs, self.folder, interval="10s") as address:
            yield address

    @asynccontextmanager
    async def descheduler(self, address: str) -> AsyncIterator[None]:
        """`atoll-descheduler` with the article's policy; the address of its Prometheus is this one."""
        kubeconfig = self.site.federation.members[MEMBER].kubeconfig
        file = self.folder / "descheduler.log"
        with file.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "atoll.agent.descheduler", f"--kubeconfig={kubeconfig}", *FLAGS),
                f"--set=prometheus.address={address}",
                stdout=log,
                stderr=log,
            )
        try:
            yield
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 30) == 0
        finally:
            if process.returncode is None:
                process.kill()
            print(file.read_text(), await self.report(), sep="\n")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["atoll", "kube-scheduler"])
async def walk(
    able: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Walk]:
    """A member of three real nodes in which this scheduler places."""
    program("prometheus")
    member = Member(name=MEMBER, real_nodes=3, real_cpu=round(NODE_CPU * PART), placer=request.param)
    config = FederationConfig(members=[member], images=[ROOT / "examples" / "images" / "stress"])
    folder = tmp_path_factory.mktemp("rescheduling")
    async with (
        AtollFederation(config, folder / "federation") as running,
        await running.host.connect() as host,
        await running.members[MEMBER].connect() as api,
    ):
        site = Site(running, host, {MEMBER: api})
        await site.open()
        yield Walk(site, folder)
        await site.close()


async def test_a_pod_of_low_priority_leaves_the_stressed_node_and_stays_away(walk: Walk) -> None:
    """1. Three pods of the Deployment run. 2. Stress comes to the node with most of them. 3. It has the taint, and all
    of its pods move. 4. Stress goes, the taint too, and nothing moves any more.
    """
    site = walk.site
    walk.apply("003-priority.yaml")
    walk.apply("003-deployment.yaml")

    async def three() -> dict[str, str] | None:
        found = await walk.low()
        return found if len(found) == 3 else None

    before = await until(three, deadline=PATIENCE, what="three pods are ready")
    hot = Counter(before.values()).most_common(1)[0][0]
    await asyncio.to_thread(apply, site.federation.members[MEMBER], [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}},
        *yaml.safe_load_all((DOCUMENTS / "003-descheduler.yaml").read_text("utf-8")),
    ])  # fmt: skip
    async with walk.measured() as address, walk.descheduler(address):

        async def seen() -> bool:
            return bool((await walk.report()).get("condition", {}).get("status") == "True")

        await until(seen, deadline=PATIENCE, what="there are figures")
        assert (await walk.looks(3))["hot"] == {}
        walk.apply("003-stress.yaml", hot)

        async def heated() -> Json | None:
            report = await walk.report()
            return report if report.get("hot") else None

        report = await until(heated, deadline=PATIENCE, what=f"{hot} is hot")
        assert list(report["hot"]) == [hot]
        assert report["hot"][hot]["cpu"] > 0.8

        async def moved() -> dict[str, str] | None:
            found = await walk.low()
            return found if len(found) == 3 and hot not in found.values() else None

        after = await until(moved, deadline=PATIENCE, what=f"three pods are ready, none on {hot}")
        assert {uid: node for uid, node in before.items() if node != hot}.items() <= after.items()
        assert await walk.tainted() == {hot}
        events = await walk.member.list(EVENTS, site.namespace)
        moves = [each for each in events if each["reason"] == "Descheduled"]
        assert len(moves) == sum(node == hot for node in before.values())
        assert all(each["note"].startswith(f"cpu of {hot} is at ") for each in moves)
        await walk.looks(6)
        assert await walk.low() == after

        site.kubectl("delete", "pod", "stress-pod-on-te3".replace("te3", hot), "-n", site.namespace, "--wait=false")

        async def cool() -> bool:
            return not await walk.tainted()

        await until(cool, deadline=PATIENCE, what="the taint is gone")
        report = await walk.looks(6)
        assert (report["hot"], report["moves"]) == ({}, [])
        assert await walk.low() == after
