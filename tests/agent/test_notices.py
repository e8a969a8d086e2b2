"""What pods that wait are told: in which words, how often, and what that costs when thousands wait."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from aiohttp import web

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod
from atoll.agent.scheduler import notices
from atoll.agent.scheduler.loop import Scheduler
from atoll.agent.scheduler.notices import refusals
from atoll.agent.settings import AgentSettings, NoticeSettings
from atoll.kube.events import Recorder
from tests.agent.builders import make_group, make_node, make_pod, make_room
from tests.kube.servers import eventually, serving

TAINT = [{"key": "team", "value": "a", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("nodes", "pod", "words"),
    [
        pytest.param(
            [make_node("a"), make_node("b")],
            make_pod("p", cpu="9", gpu=9),
            "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient nvidia.com/gpu.",
            id="resources that no node has enough of are counted each",
        ),
        pytest.param(
            [make_node("a"), make_node("b", ready=False)],
            make_pod("p", cpu="9"),
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were not ready.",
            id="a node that is not ready is one that refuses",
        ),
        pytest.param(
            [make_node("a"), make_node("b", labels={"zone": "x"})],
            make_pod("p", cpu="9", spec={"nodeSelector": {"zone": "x"}}),
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.",
            id="a node counts with the first that keeps it away",
        ),
        pytest.param([], make_pod("p"), "no nodes available to schedule pods", id="without any node that is said"),
        pytest.param([make_node("a")], make_pod("p"), "", id="a node that takes it is no refusal"),
    ],
)
def test_refusals_are_told_in_kube_schedulers_words(nodes: list[Any], pod: Pod, words: str) -> None:
    assert refusals(make_room(*nodes), pod) == words


class Member:
    """Answers patches of pods and Events, and remembers them."""

    def __init__(self) -> None:
        self.conditions: list[tuple[str, dict[str, Any]]] = []
        self.events: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        if request.path.endswith("/status") and "/pods/" in request.path:
            assert request.content_type == "application/strategic-merge-patch+json"
            [condition] = body["status"]["conditions"]
            self.conditions.append((request.path.split("/")[-2], condition))
        elif request.path.endswith("/events"):
            self.events.append(body)
        return web.json_response({"metadata": {"resourceVersion": "1"}})


def waiting(count: int, *, cpu: str = "9") -> list[Pod]:
    return [make_pod(f"p{number}", group=f"g{number}", cpu=cpu) for number in range(count)]


def put(cache: MemberCache, pods: list[Pod]) -> None:
    for pod in pods:
        cache.pod_groups.put(pod.group, make_group(pod.group.partition("/")[2], 1))
        cache.pods.put(pod.metadata.key, pod, anyhow=True)


async def test_five_thousand_pods_that_wait_are_told_within_a_budget_and_once() -> None:
    """1. 5,000 pods wait. 2. Passes come, each with other numbers. 3. No more is written than the budget allows, nobody
    hears twice before all have heard once, and Events have a budget of their own.
    """
    member = Member()
    async with serving(member.answer) as api:
        cache = MemberCache(api)
        recorder = Recorder(api, "agent")
        scheduler = Scheduler(api, cache, recorder, settings=AgentSettings(notices=NoticeSettings(first=0.01)))
        cache.nodes.put("n", make_node("n"))
        put(cache, waiting(5000))
        loop = asyncio.get_running_loop()
        began = loop.time()
        tasks = [asyncio.create_task(scheduler._notices.run()), asyncio.create_task(recorder.run())]
        for number in range(5):
            cache.nodes.put("n", make_node("n", cpu=str(number + 2)))
            scheduler._pass()
            while scheduler.core.under_way:
                scheduler._pass()
        await eventually(lambda: len(member.conditions) >= notices.BURST, within=20)
        spent = loop.time() - began
        for task in tasks:
            task.cancel()
        told = [name for name, _ in member.conditions]
        assert len(told) == len(set(told))
        assert len(told) <= notices.BURST + notices.RATE * spent + 1
        events = [each for each in member.events if each["reason"] == "FailedScheduling"]
        assert len(events) <= notices.EVENT_BURST + notices.EVENT_RATE * spent + 1


async def test_a_pod_that_says_it_already_is_not_written_again() -> None:
    member = Member()
    async with serving(member.answer) as api:
        cache = MemberCache(api)
        scheduler = Scheduler(
            api, cache, Recorder(api, "agent"), settings=AgentSettings(notices=NoticeSettings(first=0.0, again=0.0))
        )
        cache.nodes.put("n", make_node("n"))
        [pod] = waiting(1)
        put(cache, [pod])
        task = asyncio.create_task(scheduler._notices.run())
        scheduler._pass()
        await eventually(lambda: len(member.conditions) == 1)
        [(_, condition)] = member.conditions
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"] == "0/1 nodes are available: 1 Insufficient cpu."
        told = make_pod("p0", group="g0", cpu="9", conditions=[condition])
        cache.pods.put(told.metadata.key, told, anyhow=True)
        assert not scheduler.core.due, "its own words are no reason to look again"
        scheduler.room.grew = True
        scheduler._pass()
        await eventually(lambda: scheduler._notices._queue.handled == 2)
        assert len(member.conditions) == 1
        task.cancel()


async def test_a_pod_whose_group_is_not_there_is_told_so() -> None:
    member = Member()
    async with serving(member.answer) as api:
        cache = MemberCache(api)
        scheduler = Scheduler(
            api, cache, Recorder(api, "agent"), settings=AgentSettings(notices=NoticeSettings(first=0.0))
        )
        cache.nodes.put("n", make_node("n"))
        pod = make_pod("p", group="absent")
        cache.pods.put(pod.metadata.key, pod, anyhow=True)
        task = asyncio.create_task(scheduler._notices.run())
        scheduler._pass()
        await eventually(lambda: len(member.conditions) == 1)
        assert "PodGroup default/absent does not exist" in member.conditions[0][1]["message"]
        task.cancel()
