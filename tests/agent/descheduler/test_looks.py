"""Looks one after the other: evictions and their refusals, taints, a policy that changes, a look that breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest
from msgspec.structs import replace

from atoll.agent.descheduler import sources
from atoll.agent.descheduler.cluster import Cluster, PolicyMap
from atoll.agent.descheduler.looks import REPORT, Looks, report
from atoll.agent.descheduler.rules import Rules
from atoll.agent.descheduler.settings import DeschedulerSettings
from atoll.agent.descheduler.world import Figures, World
from atoll.agent.objects import Node
from atoll.agent.scheduler.core.kept import decode
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.objects import Meta
from atoll.model.timestamps import rfc3339_seconds, to_seconds
from tests.agent.builders import make_node
from tests.agent.descheduler.builders import evictor, load_aware, make_subject

TEXT = load_aware()
HOT = {name: {"cpu": cpu, "memory": 2.0**30} for name, cpu in (("n1", 7000.0), ("n2", 1000.0), ("n3", 2000.0))}
AT_ONCE = DeschedulerSettings(rules=Rules(looks=1))


class Api:
    """Takes writes; `refuse` is raised by evictions."""

    def __init__(self) -> None:
        self.evicted: list[str] = []
        self.taints: dict[str, list[str]] = {}
        self.values: dict[str, str | None] = {}
        self.times: dict[str, str] = {}
        self.reports: list[dict[str, Any]] = []
        self.refuse: errors.ApiError | None = None
        self.told = asyncio.Event()
        #: node -> owners of the places that it carries
        self.kept: dict[str, list[str]] = {}

    async def request(self, method: str, path: str, *, body: bytes, deadline: float) -> bytes:
        if self.refuse is not None:
            assert self.kept in ({}, {"n2": ["of-low"]})
            raise self.refuse
        assert orjson.loads(body)["deleteOptions"]["preconditions"]["uid"]
        self.evicted.append(path.split("/")[-2])
        return b"{}"

    async def merge_patch(self, resource: Any, name: str, patch: dict[str, Any], **_: Any) -> None:
        places = decode(patch["metadata"]["annotations"][keys.KEPT_PLACES] or "")
        self.kept[name] = [each.owner for each in places]

    async def json_patch(self, resource: Any, name: str, patch: list[dict[str, Any]], **_: Any) -> None:
        self.taints[name] = [each["key"] for each in patch[1]["value"]]
        for each in patch[1]["value"]:
            self.times[name] = each["timeAdded"]
        self.values[name] = next((each.get("value") for each in patch[1]["value"]), None)

    async def apply(self, resource: Any, obj: dict[str, Any], **_: Any) -> None:
        assert obj["metadata"]["name"] == REPORT
        self.reports.append(orjson.loads(obj["data"]["report.json"]))
        self.told.set()


class Seen:
    """A cluster of three nodes and one pod."""

    def __init__(self) -> None:
        self.nodes: list[Node] = [make_node(name) for name in ("n1", "n2", "n3")]
        self.policy: PolicyMap | None = PolicyMap(Meta(uid="u"), {"policy.yaml": TEXT})
        self.subjects = [make_subject("low", "n1")]

    def on_policy(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def world(self) -> World:
        return World(self.nodes, self.subjects)

    async def wait(self) -> None:
        return


def begin(monkeypatch: pytest.MonkeyPatch, settings: DeschedulerSettings = AT_ONCE) -> tuple[Looks, Api, Seen]:
    api, seen = Api(), Seen()

    async def take(*_: Any, clock: Callable[[], float], **__: Any) -> Figures:
        return Figures(HOT, {"default/low": {"cpu": 1000.0}}, taken=clock())

    monkeypatch.setattr(sources, "take", take)
    return Looks(cast(ApiServer, api), cast(Cluster, seen), settings, clock=lambda: 1000.0), api, seen


async def test_a_pod_is_evicted_once_and_its_node_has_the_taint(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, api, _ = begin(monkeypatch)
    outcome = await looks.once()
    assert api.evicted == ["low"]
    assert api.taints == {"n1": ["atoll.sh/hot"]}
    told = report(outcome, dry_run=False)
    assert [(each["pod"], each["from"], each["place"]) for each in told["moves"]] == [("default/low", "n1", "n2")]
    # The figures do not show it yet.
    await looks.once()
    assert api.evicted == ["low"]


@pytest.mark.parametrize(("setting", "value"), [("on", "below-9"), ("prefer", None), ("off", "")])
async def test_the_taint_says_which_pods_stay_off_and_follows_the_policy(
    monkeypatch: pytest.MonkeyPatch, setting: Any, value: str | None
) -> None:
    looks, api, seen = begin(monkeypatch, replace(AT_ONCE, taint=setting))
    seen.policy = PolicyMap(Meta(uid="u"), {"policy.yaml": evictor(priorityThreshold={"value": 9})})
    await looks.once()
    assert api.values == ({} if setting == "off" else {"n1": value})
    if setting == "on":
        node, taint = seen.nodes[0], {"key": "atoll.sh/hot", "effect": "PreferNoSchedule", "value": "below-9"}
        taint["timeAdded"] = rfc3339_seconds(time.time())
        seen.nodes[0] = replace(node, spec=replace(node.spec, taints=[taint]))
        api.values.clear()
        await looks.once()
        assert api.values == {}
        seen.policy = PolicyMap(Meta(uid="u"), {"policy.yaml": evictor(priorityThreshold={"value": 7})})
        await looks.once()
        assert api.values == {"n1": "below-7"}


@pytest.mark.parametrize(
    ("node", "age", "renewed"),
    [
        pytest.param("n1", 290, False, id="the number of a hot node counts for longer"),
        pytest.param("n1", 310, True, id="the number of a hot node ends soon"),
        pytest.param("n1", -60, True, id="it was renewed by a clock that is ahead"),
        pytest.param("n3", 310, True, id="a node between target and margin stays as it is"),
        pytest.param("n4", 310, False, id="a node without figures is left to its end"),
    ],
)
async def test_looks_renew_taints_of_nodes_that_they_know(
    monkeypatch: pytest.MonkeyPatch, node: str, age: float, renewed: bool
) -> None:
    looks, api, seen = begin(monkeypatch)
    seen.policy = PolicyMap(Meta(uid="u"), {"policy.yaml": evictor(priorityThreshold={"value": 9})})
    taint = {"key": keys.HOT, "effect": "PreferNoSchedule", "value": "below-9"}
    added = {"timeAdded": rfc3339_seconds(time.time() - age)}
    tainted = make_node(node)
    tainted = replace(tainted, spec=replace(tainted.spec, taints=[taint | added]))
    seen.nodes = [tainted, *(make_node(name) for name in ("n1", "n2", "n3") if name != node)]
    monkeypatch.setitem(HOT, "n3", {"cpu": 6200.0, "memory": 2.0**30})
    await looks.once()
    assert (node in api.taints) == renewed
    assert all(abs(time.time() - to_seconds(at)) < 60 for at in api.times.values())


async def test_an_eviction_that_the_server_refuses_is_no_move(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, api, _ = begin(monkeypatch)
    api.refuse = errors.Busy("429", said="Cannot evict pod as it would violate the pod's disruption budget.")
    told = report(await looks.once(), dry_run=False)
    assert told["moves"] == []
    assert told["skips"][0]["reason"].startswith("not evicted: Cannot evict pod")
    api.refuse = None
    await looks.once()
    assert api.evicted == ["low"]


async def test_a_place_is_kept_before_its_pod_is_evicted_and_not_for_one_that_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, api, seen = begin(monkeypatch)
    seen.subjects = [make_subject("low", "n1", schedulerName="atoll")]
    api.refuse = errors.Busy("429", said="Cannot evict pod as it would violate the pod's disruption budget.")
    await looks.once()
    assert (api.evicted, api.kept) == ([], {"n2": []})
    api.refuse = None
    await looks.once()
    assert (api.evicted, api.kept) == (["low"], {"n2": ["of-low"]})
    # Its time is over.
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 180 + 30 + 1)
    await looks.once()
    assert api.kept == {"n2": []}


async def test_a_dry_run_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, api, _ = begin(monkeypatch, DeschedulerSettings(rules=Rules(looks=1), dry_run="on"))
    assert len((await looks.once()).plan.moves) == 1
    assert (api.evicted, api.taints) == ([], {})


async def test_a_policy_that_can_not_act_stops_all_and_a_removed_one_takes_the_taints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, api, seen = begin(monkeypatch)
    seen.policy = PolicyMap(Meta(uid="u"), {"policy.yaml": TEXT.replace("LoadAware", "LoadAwar")})
    assert "there is no plug-in 'LoadAwar'" in (await looks.once()).problem
    assert (api.evicted, api.taints) == ([], {})
    seen.policy = None
    # Equal parts of decoded nodes are one object, which nothing may change.
    node, taint = make_node("n1"), {"key": "atoll.sh/hot", "effect": "PreferNoSchedule"}
    seen.nodes = [replace(node, spec=replace(node.spec, taints=[taint]))]
    assert (await looks.once()).problem == "ConfigMap atoll-system/atoll-descheduler is not there"
    assert api.taints == {"n1": []}


async def test_a_look_that_breaks_is_reported_and_the_next_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, api, seen = begin(monkeypatch)
    right = seen.world
    seen.world = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    running = asyncio.create_task(looks.run())
    await api.told.wait()
    assert api.reports[0]["condition"]["message"] == "the look failed: ZeroDivisionError: division by zero"
    api.told.clear()
    seen.world = right  # type: ignore[method-assign]
    seen.changed()
    await api.told.wait()
    assert api.reports[1]["condition"]["status"] == "True"
    assert api.evicted == ["low"]
    running.cancel()
