"""The scheduler's passes on a member that answers nothing: what they decide, and what they do when that fails."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod
from atoll.agent.scheduler.core import Pass, gangs
from atoll.agent.scheduler.core.planner import SCHEDULER_ERROR
from atoll.agent.scheduler.core.settings import AsideSettings, MemberCoreSettings
from atoll.agent.scheduler.loop import Scheduler
from atoll.agent.settings import AgentSettings
from atoll.kube.events import Recorder
from atoll.model.objects import OwnerReference
from tests.agent.builders import make_group, make_node, make_pod
from tests.kube.servers import client


def scheduling(settings: AgentSettings = AgentSettings()) -> tuple[MemberCache, Scheduler, list[Any]]:
    """Over one node; the plans that would be bound are collected."""
    api = client(9)
    cache = MemberCache(api)
    scheduler = Scheduler(api, cache, Recorder(api, "agent"), settings=settings)
    plans: list[Any] = []
    scheduler._start = lambda gang, pods, reserves: plans.append((gang, pods))  # type: ignore[method-assign]
    cache.nodes.put("n", make_node("n"))
    return cache, scheduler, plans


def put(cache: MemberCache, *pods: Pod) -> None:
    for pod in pods:
        if pod.group:
            cache.pod_groups.put(pod.group, make_group(pod.group.partition("/")[2], 1))
        cache.pods.put(pod.metadata.key, pod, anyhow=True)


def bare(name: str) -> Pod:
    """A pod that is to get no PodGroup: its owner's gangs are not ours to make."""
    pod = make_pod(name)
    pod.metadata.owner_references.append(OwnerReference(kind="Custom", name="c", uid="c", controller=True))
    return pod


def broken(pod: Pod) -> Pod:
    """One that no API server lets in, so nothing expects it."""
    return msgspec.structs.replace(pod, node_terms=[{"matchExpressions": ["no expression"]}])


async def test_a_gang_that_cannot_be_planned_is_set_aside_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1. Three gangs, the best one breaks the planner. 2. The others are planned. 3. It is tried again after a while,
    not at once, and planned when it is in order.
    """
    core = MemberCoreSettings(aside=AsideSettings(pause=600.0))
    cache, scheduler, plans = scheduling(AgentSettings(core=core))
    bad = make_pod("bad", group="bad", priority=9, binding="b")
    put(cache, broken(bad), make_pod("good", group="good"), bare("bare"))
    observed: list[set[str]] = []
    scheduler.on_pass(observed.append)
    scheduler._pass()
    assert sorted(gang for gang, _ in plans) == ["default/good", "pod/default/bare"]
    wait = scheduler.waits["default/bad"]
    assert (wait.reason, "AttributeError" in wait.message, "again" in wait.message) == (SCHEDULER_ERROR, True, True)
    assert observed == [{"b"}]
    log = capsys.readouterr().out
    assert ("default/bad" in log, "Traceback" in log) == (True, True)
    assert "default/bad" in scheduler._status._later | scheduler._status._due
    scheduler.room.grew = True
    scheduler._pass()
    assert "Traceback" not in capsys.readouterr().out, "it is not tried again at once, whatever happens"
    put(cache, bad)
    due = scheduler.core.deadline
    assert due is not None
    assert scheduler._alarm is not None
    assert scheduler._alarm.when() == due
    scheduler._handle(Pass(due))
    assert plans[-1][0] == "default/bad"
    assert ("default/bad" in scheduler.waits, len(scheduler.core._aside)) == (False, 0)


async def test_a_pod_that_cannot_be_planned_is_told_so() -> None:
    cache, scheduler, plans = scheduling()
    put(cache, broken(bare("bad")), bare("good"))
    scheduler._pass()
    found = scheduler._notices._what("default/bad")
    assert found is not None
    assert (found[1], "AttributeError" in found[2]) == (SCHEDULER_ERROR, True)
    assert [gang for gang, _ in plans] == ["pod/default/good"]


async def test_what_is_remembered_of_a_gang_set_aside_goes_with_it() -> None:
    cache, scheduler, _ = scheduling()
    put(cache, broken(bare("bad")))
    scheduler._pass()
    assert len(scheduler.core._aside) == 1
    cache.pods.put("default/bad", None)
    scheduler._pass()
    assert (len(scheduler.core._aside), scheduler.waits) == (0, {})


async def test_a_gang_that_cannot_be_looked_at_is_set_aside_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, scheduler, plans = scheduling()
    put(cache, make_pod("bad", group="bad"), bare("good"))
    standing = gangs.standing

    def breaking(key: str, *rest: Any) -> Any:
        if key == "default/bad":
            raise LookupError("a defect of ours")
        return standing(key, *rest)

    monkeypatch.setattr(gangs, "standing", breaking)
    scheduler._pass()
    assert [gang for gang, _ in plans] == ["pod/default/good"]
    assert "a defect of ours" in scheduler.waits["default/bad"].message
    assert "default/bad" in capsys.readouterr().out
