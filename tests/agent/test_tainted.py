"""Gangs whose devices get a `NoExecute` taint: the agent asks the host to move them, once and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from atoll.agent import tainted
from atoll.agent.cache import MemberCache
from atoll.agent.devices import decode_resource_claim, decode_slice, decode_taint_rule
from atoll.agent.objects import Pod, PodGroup, decode_pod
from atoll.agent.scheduler.loop import Scheduler
from atoll.agent.tainted import AGAIN, SETTLED, Tainted
from atoll.kube.events import Recorder
from atoll.model import keys
from atoll.model.objects import Meta
from atoll.model.timestamps import rfc3339_seconds, to_seconds
from tests.agent.builders import make_group
from tests.agent.claiming import DRIVER, GPU, allocation, reserved
from tests.kube.servers import client

Json = dict[str, Any]
CREATED = "2026-01-01T00:00:00Z"
START = to_seconds(CREATED)
UNTOLERATED: Json = {"key": "broken", "effect": "NoExecute"}


class Told(Recorder):
    """Reasons of Events."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(client(9), "agent")
        self.reasons = reasons

    def record(self, about: Any, reason: str, note: str, **more: Any) -> None:
        self.reasons.append(reason)


class Member:
    """A pod `p` of binding `b` that has device `gpu-0` of node `n`."""

    def __init__(self, tolerations: list[Json] | None = None, owner: str = "Job") -> None:
        api = client(9)
        self.cache, self.now, self.touched = MemberCache(api), START, list[str]()
        self.told: list[str] = []
        room = Scheduler(api, self.cache, Recorder(api, "agent")).room
        self.tainted = Tainted(self.cache, room.devices.taints, Told(self.told), clock=lambda: self.now)
        self.tainted.on_change(self.touched.append)
        self.cache.pods.put("default/p", pod(owner))
        self.slice()
        given = allocation("n", "gpu-0")
        given["devices"]["results"][0]["tolerations"] = tolerations or []
        meta = {"name": "c", "namespace": "default", "uid": "uid-c"}
        status = {"allocation": given, "reservedFor": reserved("p")}
        claim = {"metadata": meta, "spec": {"devices": GPU}, "status": status}
        self.cache.resource_claims.put("default/c", decode_resource_claim(orjson.dumps(claim)))

    def slice(self, *taints: Json) -> None:
        """What the driver publishes."""
        pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": [{"name": "gpu-0", "taints": [*taints]}]}
        self.cache.slices.put("s", decode_slice(orjson.dumps({"metadata": {"name": "s"}, "spec": spec})), anyhow=True)

    def rule(self, effect: str = "NoExecute") -> None:
        """What an administrator says."""
        spec = {"deviceSelector": {"pool": "n"}, "taint": {"key": "broken", "effect": effect}}
        found = decode_taint_rule(orjson.dumps({"metadata": {"name": "r"}, "spec": spec}))
        self.cache.taint_rules.put("r", found, anyhow=True)

    def request(self, seconds: float) -> tuple[str, str]:
        """So long after the creation of the pod."""
        self.now = START + seconds
        return self.tainted.request("b")


def notes(epoch: str = "1") -> dict[str, str]:
    return {keys.BINDING_UID: "b", keys.EPOCH: epoch}


def group_of_binding() -> PodGroup:
    group = make_group("g", 1)
    return type(group)(metadata=Meta(name="g", namespace="default", uid="g", annotations=notes()), spec=group.spec)


def pod(owner: str, node: str = "n", **metadata: Any) -> Pod:
    """Of a controller of this kind."""
    meta = {
        "name": "p",
        "namespace": "default",
        "uid": "uid-p",
        "creationTimestamp": CREATED,
        "annotations": notes(),
        "ownerReferences": [{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o", "controller": True}],
        **metadata,
    }
    return decode_pod(orjson.dumps({"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running"}}))


def at(seconds: float) -> str:
    return rfc3339_seconds(START + seconds)


WHY = f"device {DRIVER}/n/gpu-0 has taint broken:NoExecute"


async def test_a_driver_taints_a_device_and_the_host_is_asked_until_the_gang_has_left() -> None:
    """1. The driver taints the device: the binding is told of at once, with an Event, and the request is later. 2. It
    is due a minute after the pod came, and repeated. 3. The pod terminates: nothing is asked. 4. The taint goes.
    """
    member = Member()
    assert member.request(1000) == ("", "")
    member.slice(UNTOLERATED)
    assert member.touched == ["b"]
    assert member.told == ["DeviceTainted"]
    assert member.request(SETTLED - 1) == ("", WHY)
    assert member.request(SETTLED) == member.request(SETTLED + AGAIN - 1) == (at(SETTLED), WHY)
    assert member.request(SETTLED + AGAIN) == (at(SETTLED + AGAIN), WHY)
    member.cache.pods.put("default/p", pod("Job", deletionTimestamp=CREATED), anyhow=True)
    assert member.request(SETTLED + AGAIN) == ("", "")
    member.cache.pods.put("default/p", pod("Job"), anyhow=True)
    member.slice()
    assert member.touched == ["b", "b"]
    assert member.request(SETTLED + AGAIN) == ("", "")


async def test_a_gang_that_kubernetes_took_a_pod_from_moves_unless_another_device_is_found() -> None:
    """1. Kubernetes' controller deletes the pod, and its claim goes. 2. The next pod waits: the host is asked. 3. It
    gets a node: the gang stays. 4. A later epoch may wait for any reason.
    """
    member = Member()
    member.slice(UNTOLERATED)
    member.cache.pod_groups.put("default/g", group_of_binding())
    member.cache.pods.put("default/p", None)
    member.cache.resource_claims.put("default/c", None)
    for node, epoch, asked in (("", "1", at(SETTLED)), ("n", "1", ""), ("", "2", "")):
        member.cache.pods.put("default/p", pod("Job", node, uid="uid-q", annotations=notes(epoch)), anyhow=True)
        assert member.request(SETTLED) == (asked, WHY if asked else ""), (node, epoch)
    member.cache.pods.put("default/p", None)
    member.cache.pod_groups.put("default/g", None)
    member.cache.pods.put("default/p", pod("Job", "", uid="uid-r"))
    assert member.request(SETTLED) == ("", "")


async def test_a_toleration_delays_the_request() -> None:
    member = Member([{"operator": "Exists", "tolerationSeconds": 300}])
    member.slice({**UNTOLERATED, "timeAdded": at(100)})
    assert member.request(399) == ("", WHY)
    assert member.request(400) == (at(400), WHY)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda member: member.rule(), id="by a rule"),
        pytest.param(lambda member: member.slice(UNTOLERATED), id="by its driver"),
    ],
)
async def test_taints_are_known_whoever_sets_them(act: Callable[[Member], None]) -> None:
    member = Member()
    act(member)
    assert member.request(500)[1] == WHY


@pytest.mark.parametrize(
    ("member", "act"),
    [
        pytest.param(
            lambda: Member([{"key": "broken", "operator": "Exists"}]), lambda m: m.slice(UNTOLERATED), id="tolerated"
        ),
        pytest.param(Member, lambda m: m.slice({**UNTOLERATED, "effect": "NoSchedule"}), id="it keeps others out only"),
        pytest.param(Member, lambda m: m.rule("NoSchedule"), id="as an administrator says"),
        pytest.param(lambda: Member(owner="ReplicaSet"), lambda m: m.slice(UNTOLERATED), id="a pod of a service"),
    ],
)
async def test_these_stay(member: Callable[[], Member], act: Callable[[Member], None]) -> None:
    found = member()
    act(found)
    assert found.request(10_000) == ("", "")
    assert found.told == []


async def test_the_binding_is_told_of_when_its_time_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tainted, "_SHORTEST", 0.0)
    member = Member()
    member.slice(UNTOLERATED)
    assert member.request(SETTLED - 0.01) == ("", WHY)
    while len(member.touched) < 2:
        await asyncio.sleep(0)
    assert member.request(SETTLED)[0] == at(SETTLED)
