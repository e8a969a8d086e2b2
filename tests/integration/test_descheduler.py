"""The article's walk-through on a real API server: a hot node's low-priority pods move to another node and stay.

`atoll-descheduler` runs as its manifest's account, with the article's policy; a stand-in answers as its Prometheus.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
import yaml

from atoll.agent.descheduler.looks import REPORT
from atoll.agent.scheduler.core.kept import decode
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    BUDGETS,
    CONFIGMAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
)
from tests.agent.descheduler.prometheus import Standin, prometheus
from tests.atollctl import atollctl
from tests.integration.beside import beside
from tests.integration.decisions import predate
from tests.integration.descheduling import POLICY_NAMESPACE, account, take_away
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

MEMBER = "beta"
ROOT = Path(__file__).parents[2]
ARTICLE = ROOT / "tests" / "documents" / "003-descheduler.yaml"
GI = 2**30
# The article waits for minutes; nothing else of the policy or the rules is other than in production.
QUICK = (
    "--every-seconds=0.3", "--health-port=0", "--set=rules.looks=2", "--set=rules.youngest=0",
    "--set=rules.settle=1", "--set=rules.pause=600",
)  # fmt: skip


def _deployment(namespace: str, priority: str) -> dict[str, Any]:
    """The article's, with a smaller image."""
    labels = {"app": "low-priority-app"}
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "300m", "memory": "256Mi"}}}
    spec = {
        "schedulerName": "atoll",
        "priorityClassName": priority,
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "low", "namespace": namespace, "annotations": {"volcano.sh/preemptable": "true"}},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


class Walk:
    """The member, the stand-in, and what the test reads of them."""

    def __init__(self, api: ApiServer, namespace: str, standin: Standin) -> None:
        self.api, self.namespace, self.standin = api, namespace, standin
        #: node -> cores in use beside the Deployment's pods, which use two each
        self.stress: dict[str, float] = {}

    async def pods(self) -> dict[str, str]:
        """Ready pods of the Deployment by UID, and their nodes; the stand-in gets the use of all."""
        found: dict[str, str] = {}
        for pod in await self.api.list(PODS, self.namespace):
            name = f"{self.namespace}/{pod['metadata']['name']}"
            self.standin.pods_cpu[name], self.standin.pods_memory[name] = 2.0, GI
            ready = any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or ()
            )
            if ready and not pod["metadata"].get("deletionTimestamp"):
                found[pod["metadata"]["uid"]] = pod["spec"]["nodeName"]
        for node, cores in self.stress.items():
            self.standin.nodes_cpu[node] = cores + 2 * list(found.values()).count(node)
        return found

    async def report(self) -> dict[str, Any]:
        found = await self.api.list(CONFIGMAPS, "atoll-system", field_selector=f"metadata.name={REPORT}")
        return orjson.loads(found[0]["data"]["report.json"]) if found else {}

    async def tainted(self) -> set[str]:
        return {
            each["metadata"]["name"]
            for each in await self.api.list(NODES)
            if any(taint["key"] == keys.HOT for taint in each["spec"].get("taints") or ())
        }

    async def looks(self, count: int) -> dict[str, Any]:
        """The report after so many more looks."""
        seen = {(await self.report()).get("time")}

        async def look() -> dict[str, Any] | None:
            report = await self.report()
            seen.add(report.get("time"))
            return report if len(seen) > count else None

        return await until(look, what=f"{count} looks")


@pytest_asyncio.fixture(loop_scope="session")
async def walk(site: Site, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Walk]:
    """Four idle nodes, a Deployment of three pods, and the descheduler with further flags, if any."""
    async with beside(site, MEMBER) as api, prometheus() as standin:
        priority = f"low-{site.namespace}"
        about = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "value": 1000}
        await api.create(PRIORITY_CLASSES, {**about, "metadata": {"name": priority}})
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": POLICY_NAMESPACE}})
        kubeconfig = await account(site, tmp_path, MEMBER)
        article = ARTICLE.read_text("utf-8").replace(
            "http://prometheus-server.kube-system.svc.cluster.local:80", standin.address
        )
        await api.create(CONFIGMAPS, yaml.safe_load(article))
        made = Walk(api, site.namespace, standin)
        for node in await api.list(NODES):
            name = node["metadata"]["name"]
            made.stress[name], standin.nodes_memory[name] = 1.0, GI
        await api.create(DEPLOYMENTS, _deployment(site.namespace, priority))

        async def three() -> dict[str, str] | None:
            found = await made.pods()
            return found if len(found) == 3 else None

        await until(three, what="three pods are ready")
        with (tmp_path / "descheduler.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "atoll.agent.descheduler", f"--kubeconfig={kubeconfig}"),
                *("--policy=volcano-system/volcano-descheduler", *QUICK, *getattr(request, "param", ())),
                stdout=log,
                stderr=log,
            )
        try:
            yield made
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 15) == 0
        finally:
            if process.returncode is None:
                process.kill()
            print((tmp_path / "descheduler.log").read_text())
            await take_away(api, REPORT)
            # It leaves taints where it knows no use, and they keep pods of other tests away.
            for name in await made.tainted():
                [node] = await api.list(NODES, field_selector=f"metadata.name={name}")
                others = [each for each in node["spec"]["taints"] if each["key"] != keys.HOT]
                await api.merge_patch(NODES, name, {"spec": {"taints": others}})
            await api.delete(PRIORITY_CLASSES, priority)


async def test_pods_of_a_hot_node_move_and_stay(walk: Walk) -> None:
    """1. All nodes are idle: nothing moves. 2. Stress comes to a node: it has the taint, and a pod moves, after which it
    is below the target. 3. The taint goes, and nothing moves any more.
    """
    before = await walk.pods()
    assert (await walk.looks(3))["moves"] == []
    assert await walk.pods() == before
    hot = next(iter(before.values()))
    walk.stress[hot] = 13.5 - 2 * list(before.values()).count(hot)
    await walk.pods()

    async def hot_one() -> bool:
        return await walk.tainted() == {hot}

    await until(hot_one, what="the hot node has the taint")

    async def moved() -> dict[str, str] | None:
        found = await walk.pods()
        return found if len(found) == 3 and walk.standin.nodes_cpu[hot] <= 12.8 else None

    after = await until(moved, what=f"a pod left {hot}")
    assert {uid: node for uid, node in before.items() if node != hot}.items() <= after.items()
    assert len(before.items() - after.items()) == 1

    async def told() -> list[dict[str, Any]]:
        return [each for each in await walk.api.list(EVENTS, walk.namespace) if each["reason"] == "Descheduled"]

    # Events are written after the eviction.
    [first, *_] = await until(told, what="an Event tells of the eviction")
    assert first["note"].startswith(f"cpu of {hot} is at 84%, above 80%; beta-n")

    async def cool() -> bool:
        return not await walk.tainted()

    await until(cool, what="the taint is gone")
    report = await walk.looks(5)
    assert (report["condition"]["status"], report["hot"], report["moves"]) == ("True", {}, [])
    assert await walk.pods() == after


async def test_a_new_pod_of_low_priority_waits_while_all_nodes_are_hot_and_says_so(walk: Walk) -> None:
    """1. All nodes are hot: each has the taint. 2. A replica more waits, with that reason; a pod of high priority starts.
    3. The nodes cool: the replica starts.
    """
    await walk.pods()
    before = dict(walk.stress)
    walk.stress.update({node: 15.5 for node in before})
    await walk.pods()

    async def all_hot() -> bool:
        return await walk.tainted() == before.keys()

    await until(all_hot, what="all nodes have the taint")
    await walk.api.merge_patch(DEPLOYMENTS, "low", {"spec": {"replicas": 4}}, walk.namespace)

    async def waits() -> bool:
        pods = await walk.api.list(PODS, walk.namespace)
        said = [
            each for pod in pods for each in pod["status"].get("conditions") or () if each["type"] == "PodScheduled"
        ]
        return [each["message"] for each in said if each["status"] == "False"] == [
            f"0/{len(before)} nodes are available: {len(before)} node(s) were hot (atoll.sh/hot) for pods of priority 1000."
        ]

    await until(waits, what="the new pod says why it waits")
    high = f"high-{walk.namespace}"
    about = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "value": 10000}
    await walk.api.create(PRIORITY_CLASSES, {**about, "metadata": {"name": high}})
    pod = _deployment(walk.namespace, high)["spec"]["template"]["spec"]
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "high", "namespace": walk.namespace}}
    await walk.api.create(PODS, {**head, "spec": pod})

    async def starts() -> bool:
        [found] = await walk.api.list(PODS, walk.namespace, field_selector="metadata.name=high")
        return bool(found["spec"].get("nodeName"))

    await until(starts, what="the pod of high priority starts")
    assert await waits()
    walk.stress.update(before)
    await walk.api.delete(PODS, "high", walk.namespace)

    async def four() -> bool:
        return len(await walk.pods()) == 4 and not await walk.tainted()

    await until(four, what="the nodes have cooled and the replica has started")
    await walk.api.delete(PRIORITY_CLASSES, high)


@pytest.mark.parametrize("walk", [("--set=rules.gangs=ask",)], indirect=True, ids=["gangs=ask"])
async def test_a_gang_of_the_host_is_moved_whole_by_the_host(walk: Walk, site: Site) -> None:
    """1. A gang runs on one node. 2. The node is hot: the descheduler asks. 3. The host evicts the gang, with its age;
    all of it runs elsewhere in the member.
    """
    await walk.api.delete(DEPLOYMENTS, "low", walk.namespace)
    await site.only(MEMBER)
    await site.submit(job("train", replicas=2, cpu="2", seconds=None, minAvailable=2, queue=await site.queue()))

    async def runs() -> dict[str, str] | None:
        found = await walk.pods()
        return found if len(found) == 2 else None

    before = await until(runs, what="the gang runs")
    await site.phase("train", "Running")
    await predate(site, "train")
    binding = await site.find(BINDINGS, "train-job")
    assert binding is not None
    [hot] = set(before.values())
    walk.stress[hot] = 9.5
    await walk.pods()

    async def kept() -> list[str]:
        nodes = [each["metadata"] for each in await walk.api.list(NODES)]
        texts = {each["name"]: (each.get("annotations") or {}).get(keys.KEPT_PLACES, "") for each in nodes}
        found = sorted(name for name, text in texts.items() for each in decode(text) if each.owner == uid)
        # Nodes are written one after the other.
        return found if len(found) == 2 else []

    uid = binding["metadata"]["uid"]
    places = await until(kept, what="places are kept for the gang")

    async def moved() -> dict[str, str] | None:
        found = await walk.pods()
        return found if len(found) == 2 and not found.keys() & before.keys() else None

    after = await until(moved, what="the gang runs anew")
    assert sorted(after.values()) == places
    assert hot not in places
    decided = await site.find(BINDINGS, "train-job")
    assert decided is not None
    epochs = [int(each["metadata"]["annotations"][keys.EPOCH]) for each in (binding, decided)]
    assert epochs[0] < epochs[1]
    # The workload, and its age with it, is the same.
    assert binding["metadata"]["uid"] == decided["metadata"]["uid"]
    assert "placed anew" in str(decided["metadata"]["annotations"][keys.DECISION])
    # Nobody evicted a pod of it.
    evictions = [each for each in site.audit(MEMBER) if each.get("objectRef", {}).get("subresource") == "eviction"]
    assert evictions == []
    await site.host.delete(JOBS, "train", site.namespace)
    await site.no_jobs()


async def test_a_budget_and_a_prometheus_that_fails_keep_pods_where_they_are(walk: Walk, site: Site) -> None:
    budget: dict[str, Any] = {"apiVersion": BUDGETS.api_version, "kind": BUDGETS.kind}
    selector = {"matchLabels": {"app": "low-priority-app"}}
    metadata = {"name": "low", "namespace": walk.namespace}
    await walk.api.create(BUDGETS, {**budget, "metadata": metadata, "spec": {"minAvailable": 3, "selector": selector}})
    before = await walk.pods()
    hot = next(iter(before.values()))
    walk.stress[hot] = 15.5
    await walk.pods()

    async def refused() -> bool:
        skips = (await walk.report()).get("skips") or ()
        return any("PodDisruptionBudget" in each["reason"] for each in skips)

    await until(refused, what="the budget is named")
    assert await walk.pods() == before
    # A look from the terminal says why, and moves nothing.
    policy, file = "volcano-system/volcano-descheduler", str(site.federation.members[MEMBER].kubeconfig)
    words = ("member", "rebalance", "--policy", policy, "--member-kubeconfig", file)
    ran = await atollctl(*words, "--dry-run")
    assert ran.code == 0, ran.said
    assert "younger than 300 s" in ran.out
    assert (await atollctl(*words)).code != 0
    # No series is scraped any more: the hot node is unknown, and so is all else.
    walk.standin.series.clear()

    async def blind() -> dict[str, Any] | None:
        report = await walk.report()
        return report if report["condition"]["status"] == "False" else None

    report = await until(blind, what="the condition says that there are no figures")
    assert report["condition"]["message"] == "the source knows no node"
    await walk.api.delete(BUDGETS, "low", walk.namespace)
    await walk.looks(3)
    assert await walk.pods() == before
