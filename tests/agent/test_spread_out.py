"""Gangs whose groups are to be apart, or whose pods are balanced, by annotations of their pods."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.planner import NOT_ENOUGH_RESOURCES, Plan, Wait, plan
from atoll.model import keys
from tests.agent.builders import make_group, make_pod
from tests.agent.plans import assert_waits, gang, racks


def noted(pod: Pod, **notes: str) -> Pod:
    pod.metadata.annotations.update({key: text for key, text in notes.items() if text})
    return pod


def apart(pod: Pod, *, mode: str = "") -> Pod:
    return noted(pod, **{keys.APART: "1", keys.APART_MODE: mode})


def tasks(*names: str, node: str = "", mode: str = "", gpu: int = 4, first: int = 0) -> list[Pod]:
    return [apart(make_pod(f"g-{name}-{first}", group="g", task=name, gpu=gpu, node=node), mode=mode) for name in names]


def racks_of(outcome: Plan | Wait) -> dict[str, set[str]]:
    assert isinstance(outcome, Plan), outcome
    found: dict[str, set[str]] = {}
    for pod, node in outcome.nodes:
        found.setdefault(pod.task, set()).add(node[:2])
    return found


def test_tasks_are_in_different_racks() -> None:
    room = racks(2, 2)
    [outcome] = plan(room, [gang(room, make_group("g", 2), tasks("a", "b"))])
    found = racks_of(outcome)
    assert found["a"].isdisjoint(found["b"])


def test_what_comes_later_keeps_away_from_racks_of_other_tasks() -> None:
    """Task `a` runs in the rack with the tighter gap, and a second pod of it may join it there."""
    room = racks(2, 2)
    running = tasks("a", node="r0n0")
    room.pod_changed(None, running[0])
    room.pod_changed(None, make_pod("other", gpu=1, node="r0n1"))
    pods = [*running, *tasks("b"), *tasks("a", first=1)]
    [outcome] = plan(room, [gang(room, make_group("g", 1), pods)])
    assert racks_of(outcome) == {"a": {"r0"}, "b": {"r1"}}


@pytest.mark.parametrize(("mode", "runs"), [("", False), ("soft", True)])
def test_where_there_is_no_other_rack_it_waits_unless_that_is_only_preferred(mode: str, runs: bool) -> None:
    room = racks(1, 2)
    [outcome] = plan(room, [gang(room, make_group("g", 2), tasks("a", "b", mode=mode))])
    if runs:
        assert racks_of(outcome) == {"a": {"r0"}, "b": {"r0"}}
    else:
        assert_waits(outcome, NOT_ENOUGH_RESOURCES, "not for each of its groups in domains of tier 1 of its own")


@pytest.mark.parametrize(("mode", "runs"), [("", False), ("soft", True)])
def test_a_task_beside_one_that_runs_is_apart_from_it(mode: str, runs: bool) -> None:
    room = racks(1, 2)
    running = tasks("a", node="r0n0", mode=mode)
    room.pod_changed(None, running[0])
    [outcome] = plan(room, [gang(room, make_group("g", 1), [*running, *tasks("b", mode=mode)])])
    assert isinstance(outcome, Plan) == runs


def policy(size: int) -> dict[str, Any]:
    return {"name": "w", "subGroupSize": size, "matchLabelKeys": [keys.PARTITION]}


def partition(number: int, *, node: str = "", first: int = 0, last: int = 2) -> list[Pod]:
    found = []
    for index in range(first, last):
        pod = apart(make_pod(f"g-{number}-{index}", group="g", index=2 * number + index, gpu=4, node=node))
        pod.metadata.labels[keys.PARTITION] = str(number)
        found.append(pod)
    return found


def test_partitions_are_apart_and_a_pod_that_is_replaced_joins_its_own() -> None:
    room = racks(3, 2)
    group = make_group("g", 4, sub_groups=[policy(2)])
    [outcome] = plan(room, [gang(room, group, [*partition(0), *partition(1)])])
    assert isinstance(outcome, Plan)
    of = {pod.metadata.name: node[:2] for pod, node in outcome.nodes}
    assert of["g-0-0"] == of["g-0-1"] != of["g-1-0"] == of["g-1-1"]
    room = racks(2, 2)
    running = [*partition(0, node="r1n0"), *partition(1, node="r0n0", last=1)]
    for pod in [*running, make_pod("other", gpu=3, node="r1n1")]:
        room.pod_changed(None, pod)
    [outcome] = plan(room, [gang(room, group, [*running, *partition(1, first=1)])])
    assert isinstance(outcome, Plan)
    assert [node[:2] for _, node in outcome.nodes] == ["r0"]


def test_pods_are_balanced_over_racks() -> None:
    """The larger rack holds four of the six pods, the other ones three each."""
    room = racks(3, 2)
    for number in (1, 2):
        room.pod_changed(None, make_pod(f"other-{number}", gpu=8, node=f"r{number}n1"))
        room.pod_changed(None, make_pod(f"beside-{number}", gpu=0, node=f"r{number}n1"))
    pods = [noted(make_pod(f"g-{i}", group="g", index=i, gpu=4), **{keys.BALANCED: "1"}) for i in range(4)]
    room.pod_changed(None, make_pod("third", gpu=4, node="r0n1"))
    [outcome] = plan(room, [gang(room, make_group("g", 4), pods)])
    assert isinstance(outcome, Plan)
    per_rack = [sum(node.startswith(f"r{number}") for _, node in outcome.nodes) for number in range(3)]
    assert sorted(per_rack) == [0, 2, 2]
