"""kube-scheduler as the judge of our filters: random nodes and pods, and for each pod the nodes that both find.

kube-scheduler hands an extender every node that its plug-ins let through. The extender here compares them with ours,
all of them, and lets it bind to the one that we choose, so that both go on from the same state. Where kube-scheduler
finds none, the extender is not asked: it says so on the pod.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from atoll.agent.objects import Node, Pod, decode_node, decode_pod
from atoll.agent.scheduler.core.gangs import rules_of, standing, task_of
from atoll.agent.scheduler.core.mounts import Mounts
from atoll.agent.scheduler.core.planner import Parked, Plan, Wait, plan
from atoll.agent.scheduler.core.room import Room
from atoll.agent.volumes import decode_csi_node
from atoll.kube.transport import ApiServer
from atoll.local import binaries
from atoll.local.cluster import scheduler
from atoll.local.federation import Federation
from atoll.local.install import wait_until
from atoll.local.layout import FederationConfig, Member
from atoll.local.ports import free_ports
from atoll.local.processes import Process
from atoll.model.apiresource import CSI_NODES, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from tests.members import judged_volumes

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

Json = dict[str, Any]
HOST, ZONE, KIND = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "kind"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPACES = {"one": {"team": "x"}, "two": {"team": "x"}, "three": {"team": "y"}}
APPS = ("a", "b", "c")
CONFIG = FederationConfig(members=[Member(name="judge", nodes=[], scheduler=False)])


class Judge:
    """kube-scheduler and our own arithmetic, looking at the same pods and nodes."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.room = Room()
        #: pods that have a node, by key
        self.pods: dict[str, Pod] = {}
        self.mounts = Mounts(self.room, self.pods.get)
        #: pod -> nodes that kube-scheduler lets through, of the pod that is judged
        self.asked: asyncio.Queue[list[str]] = asyncio.Queue()
        self.answer: asyncio.Queue[list[str]] = asyncio.Queue()
        #: plug-in of kube-scheduler -> pods that asked for it and were judged, and those judged differently
        self.asking: Counter[str] = Counter()
        self.differences: Counter[str] = Counter()
        self.details: list[str] = []
        self.judged = 0
        self.placed = 0
        self.there: list[Json] = []
        #: of the pod that is judged
        self.name = ""
        self.probes = 0

    async def extend(self, request: web.Request) -> web.Response:
        """What kube-scheduler asks: which of these nodes the pod may have."""
        asked = await request.json()
        if asked["Pod"]["metadata"]["name"] != self.name:
            # One that was refused is tried again before it is gone.
            return web.json_response({"NodeNames": []})
        await self.asked.put(asked["NodeNames"])
        return web.json_response({"NodeNames": await self.answer.get()})

    def own(self, raw: Json) -> tuple[list[str], str]:
        """(every node that our filters let through, the one that the planner takes)."""
        view = standing("pod/judged", None, [decode_pod(orjson.dumps(raw))], self.room, lambda _: True)
        fitting = self.mounts.narrowed(view)
        if isinstance(fitting, Wait):
            return [], ""
        [pod] = fitting.waiting
        [rules] = rules_of([pod], self.room.peers.read_keys() if self.room.peers.keep_others_away else None)
        self.room.arrays.select_by({HOST, ZONE, KIND})
        nodes = self.room.arrays.nodes()
        room = nodes.room_for(task_of(pod, rules))
        found = [name for name, count in zip(nodes.names, room.tolist(), strict=True) if count > 0]
        [outcome] = plan(self.room, [fitting], Parked())
        if not isinstance(outcome, Plan):
            return found, ""
        self.room.forget(pod)
        return found, outcome.nodes[0][1]

    async def put(self, pod: Json) -> None:
        """Have both judge it, and keep it where both agree that it may be."""
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.name = name
        made = await self.api.create(PODS, pod)
        ours, chosen = self.own(made)
        self.judged += 1
        self.asking.update(plug_ins(pod))
        late = any(volume["persistentVolumeClaim"]["claimName"] in judged_volumes.OPEN for volume in volumes_of(pod))
        theirs = await self._theirs(made, [chosen] if chosen else [], take=not late)
        if bool(chosen) != bool(ours):
            self._differ("planner", pod, ours, [chosen])
        if set(ours) != set(theirs) or (chosen and chosen not in theirs):
            found = await self.api.get(PODS, name, space)
            said = next((c.get("message", "") for c in found["status"].get("conditions", ()) if c.get("message")), "")
            for each in plug_ins(pod) or ["NodeResourcesFit"]:
                self._differ(each, pod, ours, theirs, said)
        self.name = ""
        # Nobody makes a volume here for a claim that has none.
        if not theirs or late:
            await self.api.delete(PODS, name, space, grace_seconds=0)
            return

        async def unbound() -> str:
            found = await self.api.get(PODS, name, space)
            return "" if found["spec"].get("nodeName") else f"{name} is not bound"

        await wait_until(unbound, "bound", 20)
        found = await self.api.get(PODS, name, space)
        self.there.append(found)
        self.placed += 1
        known = self.pods[f"{space}/{name}"] = decode_pod(orjson.dumps(found))
        self.room.pod_changed(None, known)
        self.mounts.index(known, there=True)

    async def missing(self, nodes: int) -> str:
        """Whether kube-scheduler does not know of all nodes yet; a pod that may be on each of them tells."""
        probe = pod(0, random.Random(0))
        self.probes += 1
        self.name = f"probe{self.probes}"
        probe["metadata"]["name"], probe["metadata"]["namespace"] = self.name, "one"
        probe["spec"] = {"containers": [{"name": "c", "image": "i"}], "tolerations": [{"operator": "Exists"}]}
        found = await self._theirs(await self.api.create(PODS, probe), [], take=False)
        self.name = ""
        await self.api.delete(PODS, probe["metadata"]["name"], "one", grace_seconds=0)
        return "" if len(found) == nodes else f"{len(found)} of {nodes}"

    async def _theirs(self, pod: Json, chosen: list[str], *, take: bool = True) -> list[str]:
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]

        async def refused() -> None:
            while True:
                found = await self.api.get(PODS, name, space)
                for each in found["status"].get("conditions", ()):
                    if each["type"] == "PodScheduled" and each["reason"] == "Unschedulable":
                        return
                await asyncio.sleep(0.01)

        asking, waiting = asyncio.ensure_future(self.asked.get()), asyncio.ensure_future(refused())
        async with asyncio.timeout(30):
            await asyncio.wait([asking, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not asking.done():
            asking.cancel()
            return []
        nodes = asking.result()
        await self.answer.put(([each for each in chosen if each in nodes] or nodes[:1]) if take else [])
        return nodes

    async def remove(self, pod: Json) -> None:
        """It ends."""
        await self.api.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace_seconds=0)
        self.there.remove(pod)
        gone = self.pods.pop(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
        self.room.pod_changed(gone, None)
        self.mounts.index(gone, there=False)

    def _differ(self, what: str, pod: Json, ours: list[str], theirs: list[str], said: str = "") -> None:
        self.differences[what] += 1
        there = [
            (each["metadata"]["namespace"], each["metadata"]["labels"]["app"], each["spec"]["nodeName"])
            for each in self.there
        ]
        self.details.append(
            f"{json.dumps(pod['spec'])} {pod['metadata']['labels']} in {pod['metadata']['namespace']}\n"
            f"  ours {sorted(ours)}\n  theirs {sorted(theirs)} {said}\n  there {there}"
        )  # fmt: skip

    def report(self) -> str:
        """The disagreements by the plug-ins that the pods ask for, and some of them whole."""
        table = "".join(
            f"\n{name:20} {count:6} pods {self.differences[name]:4} disagreements"
            for name, count in sorted(self.asking.items())
        )
        return f"{self.judged} judged, {self.placed} placed{table}\n" + "\n".join(self.details[:3])


def volumes_of(pod: Json) -> list[Json]:
    """Its volumes, claims all."""
    return list(pod["spec"].get("volumes", ()))


def plug_ins(pod: Json) -> list[str]:
    """The plug-ins of kube-scheduler that look at something that the pod says; all pods meet taints and resources."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    found = {"TaintToleration", "NodeResourcesFit"}
    if any(REQUIRED in affinity.get(kind, {}) for kind in ("podAffinity", "podAntiAffinity")):
        found.add("InterPodAffinity")
    if spec.get("topologySpreadConstraints"):
        found.add("PodTopologySpread")
    if spec.get("nodeSelector") or "nodeAffinity" in affinity:
        found.add("NodeAffinity")
    if any(each.get("ports") for each in spec["containers"]):
        found.add("NodePorts")
    for each in volumes_of(pod):
        name = each["persistentVolumeClaim"]["claimName"]
        found |= {"VolumeBinding", "NodeVolumeLimits"}
        found |= {"VolumeZone"} if name == "label-y" else {"VolumeRestrictions"} if name == "alone" else set()
    return sorted(found)


def node(number: int, rng: random.Random) -> Json:
    """A small node, in a zone or in none, perhaps with a taint."""
    name = f"n{number}-{rng.randrange(10**6)}"
    labels = {HOST: name}
    if rng.random() < 0.85:
        labels[ZONE] = rng.choice("xyz")
    if rng.random() < 0.7:
        labels[KIND] = rng.choice("uv")
    taints = [{"key": "t", "value": "1", "effect": rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints if rng.random() < 0.25 else [], **({"unschedulable": True} if rng.random() < 0.05 else {})},
    }  # fmt: skip


def selector(rng: random.Random) -> Json:
    match rng.randrange(5):
        case 0:
            return {"matchExpressions": [{"key": "app", "operator": "In", "values": rng.sample(APPS, 2)}]}
        case 1:
            return {"matchExpressions": [{"key": "tier", "operator": rng.choice(["Exists", "DoesNotExist"])}]}
        case 2:
            return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [rng.choice(APPS)]}]}
        case _:
            return {"matchLabels": {"app": rng.choice(APPS)}}


def term(rng: random.Random) -> Json:
    made: Json = {"topologyKey": rng.choice([HOST, ZONE, ZONE, KIND])}
    if rng.random() < 0.95:
        made["labelSelector"] = selector(rng)
        # The API server takes no key that the selector has as well.
        match rng.randrange(6) if "tier" not in repr(made) else -1:
            case 0:
                made["matchLabelKeys"] = ["tier"]
            case 1:
                made["mismatchLabelKeys"] = ["tier"]
    match rng.randrange(6):
        case 0:
            made["namespaces"] = rng.sample(list(SPACES), rng.randint(1, 2))
        case 1:
            made["namespaceSelector"] = rng.choice([{}, {"matchLabels": {"team": "x"}}])
        case 2:
            made["namespaces"], made["namespaceSelector"] = ["three"], {"matchLabels": {"team": "x"}}
    return made


def constraint(rng: random.Random) -> Json:
    made: Json = {
        "topologyKey": rng.choice([HOST, ZONE, ZONE, KIND]),
        "maxSkew": rng.randint(1, 2),
        "whenUnsatisfiable": "DoNotSchedule" if rng.random() < 0.85 else "ScheduleAnyway",
        "labelSelector": selector(rng),
    }
    if made["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.3:
        made["minDomains"] = rng.randint(1, 4)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.4:
            made[policy] = rng.choice(["Honor", "Ignore"])
    if rng.random() < 0.25 and "tier" not in repr(made):
        made["matchLabelKeys"] = ["tier"]
    return made


def pod(number: int, rng: random.Random) -> Json:
    """A pod with some of all the rules there are."""
    spec: Json = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": rng.choice(["100m", "500m"])}}}],
        "terminationGracePeriodSeconds": 0,
    }
    affinity: Json = {}
    if rng.random() < 0.3:
        affinity["podAffinity"] = {REQUIRED: [term(rng) for _ in range(rng.choice([1, 1, 2]))]}
    if rng.random() < 0.35:
        affinity["podAntiAffinity"] = {REQUIRED: [term(rng) for _ in range(rng.choice([1, 1, 2]))]}
    if rng.random() < 0.2:
        away = {"weight": rng.randint(1, 100), "podAffinityTerm": term(rng)}
        affinity.setdefault("podAntiAffinity", {})[PREFERRED] = [away]
    if rng.random() < 0.2:
        operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        values = {"values": ["x", "y"]} if operator in ("In", "NotIn") else {}
        wanted = {"matchExpressions": [{"key": ZONE, "operator": operator, **values}]}
        affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [wanted]}}
    if affinity:
        spec["affinity"] = affinity
    if rng.random() < 0.35:
        made = [constraint(rng) for _ in range(rng.choice([1, 1, 2]))]
        # No two may have the same key and the same mode.
        spec["topologySpreadConstraints"] = list({(c["topologyKey"], c["whenUnsatisfiable"]): c for c in made}.values())
    if rng.random() < 0.15:
        spec["nodeSelector"] = {KIND: rng.choice("uv")}
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": "t", "operator": "Exists"}]
    if rng.random() < 0.1:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    if volumes := judged_volumes.wanted(rng):
        spec["volumes"] = volumes
    labels = {"app": rng.choice(APPS), **({"tier": rng.choice("12")} if rng.random() < 0.5 else {})}
    metadata = {"name": f"p{number}-{rng.randrange(10**6)}", "namespace": rng.choice(list(SPACES)), "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Judge]:
    """An API server, kube-scheduler with an extender, and no kubelets."""
    directory: Path = tmp_path_factory.mktemp("oracle")
    programs = binaries.ensure(report=lambda _: None)
    async with Federation(CONFIG, directory=directory, binaries=programs) as running:
        handle = running.members["judge"]
        async with await handle.connect() as api:
            made = Judge(api)
            app = web.Application()
            app.router.add_post("/filter", made.extend)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            settings = directory / "scheduler.yaml"
            settings.write_text(
                yaml.safe_dump(
                    {
                        "apiVersion": "kubescheduler.config.k8s.io/v1",
                        "kind": "KubeSchedulerConfiguration",
                        "clientConnection": {"kubeconfig": str(handle.kubeconfig), "qps": 1000, "burst": 1000},
                        "leaderElection": {"leaderElect": False},
                        "percentageOfNodesToScore": 100,
                        "extenders": [
                            {
                                "urlPrefix": f"http://127.0.0.1:{runner.addresses[0][1]}",
                                "filterVerb": "filter",
                                "nodeCacheCapable": True,
                                "httpTimeout": "60s",
                            }
                        ],
                    }
                )
            )
            [port] = free_ports(1)
            spec = scheduler(programs, handle, running.keys, port, CONFIG.members[0].kubernetes)
            argv = [each for each in spec.argv if not each.startswith(("--kubeconfig", "--leader-elect"))]
            process = Process(
                type(spec)(
                    "oracle-scheduler", [*argv, f"--config={settings}"], spec.env, spec.ready_url, spec.ready_ca
                ),
                directory / "scheduler.log",
            )
            await process.start()
            try:
                await process.wait_ready()
                for name, labels in SPACES.items():
                    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
                    told = await api.create(NAMESPACES, space)
                    made.room.namespace_changed(name, told["metadata"]["labels"])
                    await wait_until(lambda name=name: _account(api, name), "its account", 20)  # type: ignore[misc]
                await judged_volumes.provide(api, made.mounts, list(SPACES))
                yield made
                # With -s: what was judged, by plug-in.
                print(f"\n{made.report()}")
            finally:
                await process.stop()
                await runner.cleanup()


async def _account(api: ApiServer, space: str) -> str:
    there = [each["metadata"]["name"] for each in await api.list(SERVICE_ACCOUNTS, space)]
    return "" if "default" in there else "no account"


async def furnish(judge: Judge, count: int, rng: random.Random) -> None:
    """Other nodes, and no pods."""
    for each in list(judge.there):
        await judge.remove(each)
    for old in await judge.api.list(NODES):
        await judge.api.delete(NODES, old["metadata"]["name"])
        judge.room.node_changed(old["metadata"]["name"], None)
    for old in await judge.api.list(CSI_NODES):
        await judge.api.delete(CSI_NODES, old["metadata"]["name"])
        judge.room.limits_changed(old["metadata"]["name"], {})
    for number in range(count):
        wanted = node(number, rng)
        await judge.api.create(NODES, wanted)
        # Admission gives new nodes a taint of its own, which nobody is here to take away.
        taints = wanted["spec"]["taints"]
        await judge.api.merge_patch(NODES, wanted["metadata"]["name"], {"spec": {"taints": taints}})
        status = {
            "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "8"},
            "capacity": {"cpu": "2", "memory": "8Gi", "pods": "8"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Here", "message": "here"}],
        }
        told = await judge.api.merge_patch(NODES, wanted["metadata"]["name"], {"status": status}, subresource="status")
        known: Node = decode_node(orjson.dumps(told))
        judge.room.node_changed(known.metadata.name, known)
        if rng.random() < 0.6:
            limited = decode_csi_node(orjson.dumps(await judged_volumes.limit(judge.api, told, rng.randint(1, 3))))
            judge.room.limits_changed(limited.metadata.name, limited.limits)
    await wait_until(lambda: judge.missing(count), "kube-scheduler knows the nodes", 20)


async def compare(judge: Judge, seed: int, pods: int, nodes: int) -> None:
    rng = random.Random(seed)
    await furnish(judge, nodes, rng)
    for number in range(pods):
        await judge.put(pod(number, rng))
        if judge.there and rng.random() < 0.25:
            await judge.remove(rng.choice(judge.there))


async def test_kube_scheduler_lets_a_pod_on_the_same_nodes(judge: Judge) -> None:
    await compare(judge, 1, 40, 8)
    assert judge.judged >= 40
    assert judge.placed >= 10, "else nothing is beside anything"
    assert not judge.differences, judge.report()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 35))
async def test_kube_scheduler_lets_hundreds_of_pods_on_the_same_nodes(judge: Judge, seed: int) -> None:
    await compare(judge, seed, 80, 6 + seed % 7)
    assert not judge.differences, judge.report()
