"""Looks of colocation: writes of nodes, evictions and their refusals, the report."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from atoll.agent.colocation.loop import REPORT, Loop
from atoll.agent.colocation.rules import Colocation
from atoll.agent.descheduler import sources
from atoll.agent.descheduler.cluster import Cluster
from atoll.agent.descheduler.settings import DeschedulerSettings
from atoll.agent.descheduler.world import Figures, Subject, World
from atoll.agent.objects import Node, PodGroup, PodGroupSpec
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.colocation import BATCH_CPU, BATCH_MEMORY
from atoll.model.objects import Meta
from tests.agent.colocation.builders import GI, UNKNOWN, figures, node, offline, published


class Api:
    """Takes writes."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.evicted: list[str] = []
        self.report: dict[str, Any] = {}
        self.refuse: errors.ApiError | None = None

    async def merge_patch(
        self, resource: Any, name: str, patch: dict[str, Any], namespace: str = "", *, subresource: str = "", **_: Any
    ) -> None:
        if namespace:
            assert list(patch["metadata"]["annotations"]) == [keys.MOVE_ASKED]
            self.asked.append(name)
        else:
            assert subresource == "status"
            self.nodes[name] = patch

    async def request(self, method: str, path: str, *, body: bytes, deadline: float) -> bytes:
        if self.refuse is not None:
            raise self.refuse
        self.evicted.append(path.split("/")[-2])
        return b"{}"

    async def apply(self, resource: Any, obj: dict[str, Any], **_: Any) -> None:
        assert obj["metadata"]["name"] == REPORT
        self.report = orjson.loads(obj["data"]["report.json"])


class Seen:
    """A cluster."""

    def __init__(self, nodes: list[Node], subjects: list[Subject]) -> None:
        self.nodes, self.subjects = nodes, subjects

    def world(self) -> World:
        gang = PodGroup(Meta(name="g", namespace="default"), PodGroupSpec(2))
        return World(self.nodes, self.subjects, groups={gang.metadata.key: gang})


def begin(
    monkeypatch: pytest.MonkeyPatch, use: Figures, nodes: list[Node], subjects: list[Subject], mode: str = "on"
) -> tuple[Loop, Api]:
    async def take(*_: Any, **__: Any) -> Figures:
        return use

    monkeypatch.setattr(sources, "take", take)
    settings = DeschedulerSettings(colocation=Colocation(mode=cast(Any, mode), least=1, looks=1))
    api = Api()
    return Loop(cast(ApiServer, api), cast(Cluster, Seen(nodes, subjects)), settings, clock=lambda: 1000.0), api


async def test_amounts_and_the_annotation_that_repeats_them_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, api = begin(monkeypatch, figures({"n1": (3200, 4)}), [node()], [])
    await loop.once()
    amounts = {BATCH_CPU: 4000, BATCH_MEMORY: int(16 * GI * 0.85 - 4 * GI) // 2**20 * 2**20}
    text = {name: str(amount) for name, amount in amounts.items()}
    assert api.nodes["n1"]["status"] == {"capacity": text, "allocatable": text}
    assert orjson.loads(api.nodes["n1"]["metadata"]["annotations"][keys.RECLAIMED]) == amounts
    assert (api.report["condition"]["status"], api.report["nodes"]) == ("True", {"published": 1, "held": 0, "other": 0})


@pytest.mark.parametrize("mode", ["on", "dry-run"])
async def test_under_pressure_gangs_are_asked_for_and_pods_evicted_but_not_in_a_dry_run(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    notes = {"atoll.sh/binding-uid": "b", "scheduling.k8s.io/group-name": "g"}
    pods = [offline("g-0", "n1", notes=notes, kind="Job"), offline("single", "n1", kind="Job")]
    had = published(node(), {BATCH_CPU: 5000, BATCH_MEMORY: 8 * GI})
    loop, api = begin(monkeypatch, figures({"n1": (8000, 4)}, {"g-0": (0, 0), "single": (0, 0)}), [had], pods, mode)
    await loop.once()
    if mode == "on":
        assert (api.asked, api.evicted) == (["g"], ["single"])
        # Both leave: the node offers nothing in their place.
        assert api.nodes["n1"]["status"]["capacity"] == {BATCH_CPU: "0", BATCH_MEMORY: "0"}
        # The node rests: figures show nothing of that yet.
        await loop.once()
        assert (api.asked, api.evicted) == (["g"], ["single"])
    else:
        assert (api.asked, api.evicted, api.nodes) == ([], [], {})
        assert {each["about"] for each in api.report["evictions"]} == {"default/g", "default/single"}


async def test_a_refused_eviction_is_reported_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    had = published(node(), {BATCH_CPU: 5000, BATCH_MEMORY: 8 * GI})
    use = figures({"n1": (8000, 4)}, {"single": (0, 0)})
    loop, api = begin(monkeypatch, use, [had], [offline("single", "n1", kind="Job")])
    api.refuse = errors.Busy("429", said="Cannot evict pod as it would violate the pod's disruption budget.")
    await loop.once()
    assert api.report["evictions"] == []
    assert api.report["skips"][0]["reason"].startswith("not evicted: Cannot evict pod")
    api.refuse = None
    await loop.once()
    assert api.evicted == ["single"]


async def test_without_figures_the_report_says_why_nothing_new_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    had = published(node(), {BATCH_CPU: 5000, BATCH_MEMORY: 8 * GI})
    theirs = node("n2", labels={"volcano.sh/oversubscription": "true"})
    loop, api = begin(monkeypatch, UNKNOWN, [had, theirs], [])
    await loop.once()
    assert api.report["condition"]["message"].startswith("no answer in time")
    assert api.report["left"] == [
        {"node": "n1", "reason": "its use is unknown"},
        {"node": "n2", "reason": "Volcano's agent (volcano.sh/oversubscription) publishes and isolates here"},
    ]
    assert list(api.nodes) == ["n1"]
