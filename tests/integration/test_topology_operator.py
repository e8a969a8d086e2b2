"""`atoll-topology` beside a member: status, health and its recovery, admission."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from atoll.kube import errors
from atoll.local.ports import free_ports
from atoll.model.apiresource import BINDINGS, CAPACITIES, HYPER_NODES, JOBS, NODES, PODS, VALIDATING_WEBHOOKS
from atoll.model.conditions import condition
from atoll.model.keys import execution_namespace
from atoll.model.timestamps import rfc3339_seconds
from atoll.topology.ufm import PORTS
from tests.integration.federation import Site, job, until
from tests.topology.builders import hyper_node

pytestmark = pytest.mark.integration

MEMBER = "topo"
MANIFEST = Path(__file__).parents[2] / "deploy" / "manifests" / "topology.yaml"
RECOVERY = 4.0
RACKS = {"tp-r1": ("tp1", "tp2"), "tp-r2": ("tp3", "tp4")}


def _object(name: str, tier: int, **members: str) -> dict[str, Any]:
    made = hyper_node(name, tier, **members)
    about = {"apiVersion": HYPER_NODES.api_version, "kind": HYPER_NODES.kind}
    return {**about, "metadata": {"name": name}, "spec": made["spec"]}


async def _say(site: Site, *nodes: str, ready: bool) -> None:
    """What the kubelet of a node that nobody simulates says."""
    now = rfc3339_seconds(time.time())
    kind = {
        "type": "Ready",
        "status": str(ready),
        "reason": "Test",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    status = {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}, "conditions": [kind]}
    status["capacity"] = status["allocatable"]
    for node in nodes:
        await site.members[MEMBER].merge_patch(NODES, node, {"status": status}, subresource="status")


def _account(site: Site, directory: Path) -> Path:
    """Credentials with the rights of the manifest, and no others."""
    objects = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] != "Deployment"]
    site.kubectl("apply", "-f", "-", cluster=MEMBER, stdin=yaml.safe_dump_all(objects))
    token = site.kubectl("create", "token", "atoll-topology", "-n", "atoll-system", cluster=MEMBER).strip()
    config = yaml.safe_load(site.federation.members[MEMBER].kubeconfig.read_text())
    config["users"] = [{**config["users"][0], "user": {"token": token}}]
    file = directory / "operator.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


@pytest_asyncio.fixture(loop_scope="session")
async def operated(site: Site, tmp_path: Path) -> AsyncIterator[Site]:
    """Two racks of two nodes that no kubelet is simulated for, and the operator."""
    member = site.members[MEMBER]
    for rack, nodes in RACKS.items():
        for node in nodes:
            metadata = {"name": node, "labels": {"tp-rack": rack, "kubernetes.io/hostname": node}}
            await member.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        await _say(site, *nodes, ready=True)
        await member.create(HYPER_NODES, _object(rack, 1, nodes=" ".join(nodes)))
    await member.create(HYPER_NODES, _object("tp-root", 2, below=" ".join(RACKS)))
    flags = ("--slot=cpu=2", f"--recovery-seconds={RECOVERY}", "--counts-seconds=0.2", "--health-port=0")
    admission = f"--admission-port={free_ports(1)[0]}"
    (tmp_path / "sources.yaml").write_text("[]")
    discovery = (f"--discovery-sources={tmp_path / 'sources.yaml'}", "--discovery-seconds=1")
    kubeconfig = _account(site, tmp_path)
    with (tmp_path / "operator.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "atoll.topology", f"--kubeconfig={kubeconfig}", admission, *discovery, *flags),
            stdout=log,
            stderr=log,
        )
    try:
        yield site
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 15) == 0, (tmp_path / "operator.log").read_text()
    finally:
        if process.returncode is None:
            process.kill()
        print((tmp_path / "operator.log").read_text())
        for kind in ("clusterrole", "clusterrolebinding"):
            site.kubectl("delete", kind, "atoll-topology", cluster=MEMBER)
        await _no_jobs(site)
        for name in ("tp-root", *RACKS):
            await member.delete(HYPER_NODES, name)
        for node in sum(RACKS.values(), ()):
            await member.delete(NODES, node)


async def _no_jobs(site: Site) -> None:
    """As `Site.no_jobs`, where no kubelet lets go of pods."""
    for each in await site.host.list(JOBS, site.namespace):
        await site.host.delete(JOBS, each["metadata"]["name"], site.namespace)
    member = site.members[MEMBER]

    async def gone() -> bool:
        pods = await member.list(PODS, site.namespace)
        for pod in pods:
            if pod["metadata"].get("deletionTimestamp"):
                await member.delete(PODS, pod["metadata"]["name"], site.namespace, grace_seconds=0)
        return not pods and not await site.host.list(BINDINGS, site.namespace)

    await until(gone, what="the pods are gone")


async def _is(site: Site, name: str, reason: str) -> dict[str, Any]:
    """The HyperNode, once its condition Available has this reason."""

    async def look() -> dict[str, Any] | None:
        found = await site.members[MEMBER].get(HYPER_NODES, name)
        return found if condition(found, "Available").get("reason") == reason else None

    return await until(look, what=f"{name} is {reason}")


def _inside(name: str, rack: str) -> dict[str, Any]:
    made = job(name, replicas=2, cpu="2", seconds=None)
    made["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = {"tp-rack": rack}
    return made


async def test_a_rack_that_is_lost_is_told_avoided_and_used_again_when_it_stays_up(operated: Site) -> None:
    root = await _is(operated, "tp-root", "NodesReady")
    figures = {key: root["status"].get(key) for key in ("nodeCount", "readyNodes", "slots", "freeSlots")}
    assert figures == {"nodeCount": 4, "readyNodes": 4, "slots": 16, "freeSlots": 16}
    shown = operated.kubectl("get", "hypernodes", "tp-root", cluster=MEMBER).splitlines()
    assert shown[0].split() == [
        "NAME",
        "TIER",
        "TIERNAME",
        "NODECOUNT",
        "READY",
        "FREESLOTS",
        "AVAILABLE",
        "VALID",
        "AGE",
    ]
    assert shown[1].split()[:-1] == ["tp-root", "2", "4", "4", "16", "True", "True"]

    await operated.only(MEMBER)
    await operated.submit(_inside("there", "tp-r1"))
    member = operated.members[MEMBER]

    async def bound() -> set[str] | None:
        pods = await member.list(PODS, operated.namespace)
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods}
        return {name for name, node in nodes.items() if node} or None

    async def counted() -> bool:
        return bool((await member.get(HYPER_NODES, "tp-root"))["status"]["freeSlots"] == 14)

    await until(bound, what="the first job is bound")
    await until(counted, what="two slots are taken")

    await _say(operated, *RACKS["tp-r1"], ready=False)
    rack = await _is(operated, "tp-r1", "DomainLost")
    (gang,) = rack["status"]["affectedGangs"]
    assert (gang["namespace"], gang["kind"], gang["pods"]) == (operated.namespace, "PodGroup", 2)
    assert gang["name"].startswith("there")
    assert "tp1, tp2" in condition(rack, "Available")["message"]
    await _is(operated, "tp-root", "NodesLost")

    await _say(operated, *RACKS["tp-r1"], ready=True)
    clock = asyncio.get_running_loop().time
    since = clock()
    await _is(operated, "tp-r1", "Recovering")
    await operated.submit(_inside("later", "tp-r1"))

    async def later() -> bool:
        return any(name.startswith("later") for name in await bound() or ())

    await until(later, what="the second job is bound")
    assert clock() - since >= RECOVERY
    rack = await _is(operated, "tp-r1", "NodesReady")
    assert rack["status"]["affectedGangs"] == []


async def test_a_tree_that_is_lost_whole_has_no_capacity_on_the_host(operated: Site) -> None:
    async def total() -> dict[str, Any]:
        found = await operated.host.get(CAPACITIES, "tp-root", execution_namespace(MEMBER))
        return dict(found["spec"].get("total") or {})

    async def published() -> bool:
        return (await total()).get("cpu") == 4 * 8000

    async def gone() -> bool:
        return not await total()

    await _is(operated, "tp-root", "NodesReady")
    await until(published, what="four nodes count")
    await _say(operated, *sum(RACKS.values(), ()), ready=False)
    await until(gone, what="none counts")
    await _say(operated, *sum(RACKS.values(), ()), ready=True)
    await until(published, what="four nodes count again")


async def _judged(site: Site) -> None:
    async def look() -> bool:
        found = await site.members[MEMBER].list(VALIDATING_WEBHOOKS)
        return any(each["metadata"]["name"] == "topology.atoll.sh" and each.get("webhooks") for each in found)

    await until(look, what="admission is served")


async def test_what_would_be_wrong_is_refused_with_its_reason_and_what_is_missing_warned_of(operated: Site) -> None:
    member = operated.members[MEMBER]
    await _is(operated, "tp-root", "NodesReady")
    await _judged(operated)

    def refused(obj: dict[str, Any]) -> str:
        return operated.kubectl("apply", "-f", "-", cluster=MEMBER, stdin=yaml.safe_dump(obj), ok=False)

    async def overlap() -> str | None:
        # API servers learn of a webhook by a watch of their own.
        try:
            await member.create(HYPER_NODES, _object("tp-more", 1, nodes="tp1"), dry_run=True)
        except errors.ApiError as error:
            return str(error)
        return None

    assert "node tp1 is in both HyperNode tp-r1 and tp-more" in await until(overlap, what="an overlap is refused")
    assert "HyperNode tp-r1 is a member of both tp-root and tp-more" in refused(_object("tp-more", 2, below="tp-r1"))
    assert "a member's tier must be smaller" in refused(_object("tp-more", 1, below="tp-r2"))
    assert "members lead back to it: tp-root -> tp-r1 -> tp-root" in refused(_object("tp-r1", 1, below="tp-root"))
    assert "is not a regular expression" in refused(_object("tp-more", 1, pattern="["))

    said = operated._run(
        "create",
        "--dry-run=server",
        "-f",
        "-",
        cluster=MEMBER,
        stdin=yaml.safe_dump(_object("tp-more", 1, nodes="tp9")),
    )
    assert said.returncode == 0
    assert "no such member yet: Node tp9" in said.stderr


async def test_a_wrong_hyper_node_is_told_so_and_costs_no_other(operated: Site) -> None:
    member = operated.members[MEMBER]
    await _is(operated, "tp-root", "NodesReady")
    # No admission keeps a node from getting into two domains later: by its labels, or as here by its creation.
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "tp9"}}
    await member.create(HYPER_NODES, _object("tp-first", 1, nodes="tp9"))
    await member.create(HYPER_NODES, _object("tp-wrong", 1, nodes="tp9"))
    try:
        assert condition(await _is(operated, "tp-wrong", "NoNodes"), "Valid")["reason"] == "MembersUnknown"
        await member.create(NODES, node)

        async def told() -> dict[str, Any] | None:
            found = await member.get(HYPER_NODES, "tp-wrong")
            return found if condition(found, "Valid").get("status") == "False" else None

        wrong = await until(told, what="what is wrong is said")
        assert "node tp9 is in both HyperNode tp-first and tp-wrong" in condition(wrong, "Valid")["message"]
        assert condition(await member.get(HYPER_NODES, "tp-r1"), "Valid")["status"] == "True"
    finally:
        for name in ("tp-first", "tp-wrong"):
            await member.delete(HYPER_NODES, name)
        await member.delete(NODES, "tp9")


async def test_trees_follow_labels_and_a_ufm_and_stay_when_that_says_nothing(operated: Site, tmp_path: Path) -> None:
    """1. Both are found. 2. UFM refuses, a node changes racks. 3. No node is in a rack."""
    member = operated.members[MEMBER]
    links = {"tp1": "leaf1", "tp2": "leaf1", "tp3": "leaf2", "tp4": "leaf2"}
    ports = [
        *({"system_name": n, "peer_node_name": leaf, "description": "Computer Port"} for n, leaf in links.items()),
        *(
            {"system_name": leaf, "peer_node_name": "spine", "description": "Switch Port"}
            for leaf in ("leaf1", "leaf2")
        ),
    ]
    status = [200]

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(ports, status=status[0])

    async def members(tree: str) -> dict[str, list[str]]:
        """HyperNode of the lowest tier -> its nodes, by name or label."""
        found = await member.list(HYPER_NODES, label_selector=f"atoll.sh/topology-tree={tree}")
        assert {each["metadata"]["labels"]["volcano.sh/network-topology-source"] for each in found} <= {
            "atoll-topology"
        }
        return {
            each["metadata"]["name"]: sorted(
                str(selector.get("exactMatch", selector.get("labelMatch"))) for selector in (m["selector"] for m in each["spec"]["members"])
            )
            for each in found
            if each["spec"]["tier"] == 1
        }  # fmt: skip

    async def racks(*names: str) -> bool:
        return sorted(await members("tpd")) == sorted(names)

    async def both_leaves() -> bool:
        return sorted(map(len, (await members("tpf")).values())) == [2, 2]

    app = web.Application()
    app.router.add_get(PORTS, answer)
    try:
        async with TestServer(app) as server:
            sources = [
                {"labels": ["tp-rack"], "tree": "tpd"},
                {"ufm": {"url": str(server.make_url(""))}, "tree": "tpf"},
            ]
            (tmp_path / "sources.yaml").write_text(yaml.safe_dump(sources))
            await until(lambda: racks("tpd-tp-r1", "tpd-tp-r2"), what="racks are found")
            await until(both_leaves, what="leaves are found")
            leaves = await members("tpf")
            status[0] = 401
            for node in RACKS["tp-r2"]:
                await member.merge_patch(NODES, node, {"metadata": {"labels": {"tp-rack": "tp-r3"}}})
            await until(lambda: racks("tpd-tp-r1", "tpd-tp-r3"), what="a rack has another name")
            assert await members("tpf") == leaves
            for node in sum(RACKS.values(), ()):
                await member.merge_patch(NODES, node, {"metadata": {"labels": {"tp-rack": None}}})
            log = tmp_path / "operator.log"

            async def said() -> bool:
                return "nothing is found any more" in log.read_text()

            await until(said, what="it is said that nothing is found")
            assert await racks("tpd-tp-r1", "tpd-tp-r3")
            assert "HTTP 401" in log.read_text()
    finally:
        (tmp_path / "sources.yaml").write_text("[]")
        for tree in ("tpd", "tpf"):
            for each in await member.list(HYPER_NODES, label_selector=f"atoll.sh/topology-tree={tree}"):
                await member.delete(HYPER_NODES, each["metadata"]["name"])
