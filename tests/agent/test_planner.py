"""Gangs on nodes: whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.gangs import Standing, gang_of, key_of, standing
from atoll.agent.scheduler.core.planner import NOT_ENOUGH_RESOURCES, NOT_ENOUGH_TASKS, Parked, Plan, Wait, plan
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.status import group_status
from atoll.model import keys
from tests.agent.builders import make_domain, make_group, make_node, make_pod, make_room
from tests.agent.plans import OURS, assert_waits, gang, racks


def members(name: str, count: int, *, gpu: int = 4, node: str = "", start: int = 0, **more: object) -> list[Pod]:
    return [
        make_pod(f"{name}-{i}", group=name, index=i, gpu=gpu, node=node, **more)  # type: ignore[arg-type]
        for i in range(start, start + count)
    ]


def assert_planned(outcome: Plan | Wait, count: int) -> dict[str, int]:
    assert isinstance(outcome, Plan), outcome
    assert len(outcome.nodes) == count
    return dict(Counter(node for _, node in outcome.nodes))


def test_a_gang_that_fits_is_placed_whole_and_near_together() -> None:
    room = racks()
    [outcome] = plan(room, [gang(room, make_group("g", 4), members("g", 4))])
    assert set(assert_planned(outcome, 4)) in ({"r0n0", "r0n1"}, {"r1n0", "r1n1"})


@pytest.mark.parametrize("epoch", ["\u00b2", "9" * 5000, "many"])
def test_an_epoch_that_is_no_number_ends_nothing(epoch: str) -> None:
    room, pod = racks(), make_pod("p", binding="b")
    pod.metadata.annotations[keys.EPOCH] = epoch
    [outcome] = plan(room, [standing(key_of(pod), None, [pod], room, OURS)])
    assert_planned(outcome, 1)


@pytest.mark.parametrize("amount", ["9223372036854775807", "8Ei"])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_pods_that_ask_for_all_there_can_be_end_nothing(resource: str, amount: str) -> None:
    spec = {"containers": [{"resources": {"requests": {resource: amount}}}] * 3}
    room = make_room(make_node("a"), make_node("b"), pods=[make_pod(f"{n}", node="a", spec=spec) for n in range(3)])
    views = [standing(key_of(pod), None, [pod], room, OURS) for pod in (make_pod("p"), make_pod("q", spec=spec))]
    small, large = plan(room, views)
    assert_planned(small, 1)
    assert_waits(large, NOT_ENOUGH_RESOURCES, "there is no room for its pod")
    assert room.amounts.free("a")[resource] < 0


def test_a_gang_larger_than_the_cluster_waits_and_takes_nothing() -> None:
    room = racks()
    [outcome] = plan(room, [gang(room, make_group("g", 9), members("g", 9))])
    assert_waits(outcome, NOT_ENOUGH_RESOURCES, "9/9", "room for 8 of the 9")
    assert not room.assumed


def test_a_gang_without_all_its_pods_waits_for_them() -> None:
    room = racks()
    [outcome] = plan(room, [gang(room, make_group("g", 4), members("g", 3))])
    assert_waits(outcome, NOT_ENOUGH_TASKS, "3 of at least 4")


def test_an_elastic_gang_starts_at_its_minimum() -> None:
    room = racks(1, 2)
    [outcome] = plan(room, [gang(room, make_group("g", 2), members("g", 6))])
    assert_planned(outcome, 4)


def test_what_is_left_of_a_running_gang_takes_what_room_there_is() -> None:
    room = racks(1, 2)
    running = members("g", 2, node="r0n0")
    for pod in running:
        room.pod_changed(None, pod)
    pods = [*running, *members("g", 3, start=2)]
    [outcome] = plan(room, [gang(room, make_group("g", 2), pods)])
    assert assert_planned(outcome, 2) == {"r0n1": 2}


def test_of_a_running_gang_a_task_without_room_holds_up_no_other() -> None:
    room = make_room(make_node("n"))
    running = members("g", 1, gpu=1, node="n")
    for pod in running:
        room.pod_changed(None, pod)
    large, small = (make_pod(f"g-{task}", group="g", task=task, gpu=gpu) for task, gpu in (("large", 8), ("small", 2)))
    [outcome] = plan(room, [gang(room, make_group("g", 1), [*running, large, small])])
    assert assert_planned(outcome, 1) == {"n": 1}
    assert isinstance(outcome, Plan)
    assert [pod for pod, _ in outcome.nodes] == [small]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=4),
)
def test_of_a_running_gang_no_pod_waits_that_has_a_node(free: list[int], tasks: list[tuple[int, int]]) -> None:
    room = make_room(*(make_node(f"n{number}") for number in range(len(free))))
    running = [make_pod(f"g-run-{n}", group="g", gpu=8 - gpus, cpu="0", node=f"n{n}") for n, gpus in enumerate(free)]
    for pod in running:
        room.pod_changed(None, pod)
    waiting = [
        make_pod(f"g-t{task}-{index}", group="g", task=f"t{task}", index=index, gpu=gpus, cpu="0")
        for task, (pods, gpus) in enumerate(tasks)
        for index in range(pods)
    ]
    [outcome] = plan(room, [gang(room, make_group("g", 1), [*running, *waiting])])
    placed = {pod.metadata.name: node for pod, node in outcome.nodes} if isinstance(outcome, Plan) else {}
    left = dict(enumerate(free))
    for pod in waiting:
        if pod.metadata.name in placed:
            left[int(placed[pod.metadata.name][1:])] -= pod.requests["nvidia.com/gpu"]
    assert min(left.values()) >= 0
    missing = [pod.requests["nvidia.com/gpu"] for pod in waiting if pod.metadata.name not in placed]
    assert all(gpus > max(left.values()) for gpus in missing)


def test_a_gang_takes_what_its_topology_allows_once_its_minimum_has_its_place() -> None:
    room = racks(2, 2)
    topology = {"mode": "hard", "highestTierAllowed": 2}
    pods = [make_pod("other", gpu=4, node="r1n1"), *members("g", 9, gpu=4)]
    room.pod_changed(None, pods[0])
    [outcome] = plan(room, [gang(room, make_group("g", 1, topology=topology), pods[1:])])
    assert_planned(outcome, 7)


def test_a_hard_gang_does_not_leave_its_tier() -> None:
    room = racks()
    topology = {"mode": "hard", "highestTierAllowed": 1}
    [outcome] = plan(room, [gang(room, make_group("g", 5, topology=topology), members("g", 5))])
    assert_waits(outcome, NOT_ENOUGH_RESOURCES, "domain rack0 holds 4 of the 5")


def test_later_pods_of_a_hard_gang_stay_in_its_domain() -> None:
    room = racks()
    running = members("g", 2, node="r1n0")
    for pod in running:
        room.pod_changed(None, pod)
    group = make_group("g", 2, topology={"mode": "hard", "highestTierAllowed": 1})
    [outcome] = plan(room, [gang(room, group, [*running, *members("g", 4, start=2)])])
    assert assert_planned(outcome, 2) == {"r1n1": 2}


@pytest.mark.parametrize("topology", [None, {"mode": "soft"}, {"mode": "hard", "highestTierAllowed": 2}])
def test_a_pod_in_the_place_of_a_lost_one_stays_near_the_others(topology: dict[str, Any] | None) -> None:
    """Both racks have room, and the other one is the tighter gap."""
    room = racks(2, 3)
    running = [*members("g", 1, node="r0n0"), *members("g", 1, node="r0n1", start=1)]
    others = [*members("a", 1, node="r1n0", gpu=8), *members("b", 1, node="r1n1")]
    for pod in (*running, *others):
        room.pod_changed(None, pod)
    [outcome] = plan(room, [gang(room, make_group("g", 3, topology=topology), [*running, *members("g", 1, start=2)])])
    [node] = assert_planned(outcome, 1)
    assert node.startswith("r0")


def test_neighbours_in_index_order_share_racks_whatever_their_nodes_are_called() -> None:
    names = ["a", "b", "c", "d"]
    domains = [make_domain("rack0", 1, ["a", "c"]), make_domain("rack1", 1, ["b", "d"])]
    domains.append(make_domain("all", 2, ["rack0", "rack1"], of="HyperNode"))
    room = make_room(*(make_node(name) for name in names), domains=domains)
    [outcome] = plan(room, [gang(room, make_group("g", 4), members("g", 4, gpu=8))])
    assert isinstance(outcome, Plan)
    placed = {pod.metadata.name: node for pod, node in outcome.nodes}
    assert [placed[f"g-{rank}"] for rank in range(4)] == ["a", "c", "b", "d"]


def test_higher_priority_then_age_goes_first() -> None:
    room = make_room(make_node("n"))
    views = [
        gang(room, make_group("old", 2), members("old", 2)),
        gang(room, make_group("new", 2, created="2026-01-02T00:00:00Z"), members("new", 2)),
        gang(room, make_group("high", 2, created="2026-01-03T00:00:00Z"), members("high", 2, priority=5)),
    ]
    outcomes = list(plan(room, views))
    assert [outcome.gang.key for outcome in outcomes] == ["default/high", "default/old", "default/new"]
    assert [isinstance(outcome, Plan) for outcome in outcomes] == [True, False, False]


def test_a_small_gang_passes_one_that_waits() -> None:
    room = make_room(make_node("n"))
    views = [gang(room, make_group("a", 3), members("a", 3)), gang(room, make_group("b", 1), members("b", 1))]
    assert [isinstance(outcome, Plan) for outcome in plan(room, views)] == [False, True]


def test_a_shape_that_missed_is_not_tried_again_until_room_grows() -> None:
    room, parked = make_room(make_node("n")), Parked()
    list(plan(room, [gang(room, make_group("a", 3), members("a", 3))], parked))
    assert len(parked.misses) == 1
    list(plan(room, [gang(room, make_group("b", 3), members("b", 3))], parked))
    assert len(parked.misses) == 1


def test_pods_of_other_schedulers_gated_and_leaving_pods_are_left_alone() -> None:
    pods = [
        make_pod("other", group="g", scheduler="default-scheduler"),
        make_pod("gated", group="g", spec={"schedulingGates": [{"name": "x"}]}),
        make_pod("leaving", group="g", deleted=True),
        make_pod("ours", group="g", scheduler="volcano"),
    ]
    view = gang(make_room(), make_group("g", 1), pods)
    assert [pod.metadata.name for pod in view.waiting] == ["ours"]


def test_finished_pods_count_towards_the_minimum_and_hold_no_room() -> None:
    room = make_room(make_node("n"))
    done = members("g", 1, node="n", phase="Succeeded")
    room.pod_changed(None, done[0])
    [outcome] = plan(room, [gang(room, make_group("g", 3), [*done, *members("g", 2, start=1)])])
    assert assert_planned(outcome, 2) == {"n": 2}


def test_task_minimums_reach_the_arithmetic() -> None:
    pods = [make_pod(f"{t}{i}", group="g", task=t, index=i) for t, n in (("ps", 2), ("w", 3)) for i in range(n)]
    built, _ = gang_of(gang(make_room(), make_group("g", 3, tasks={"ps": 1, "w": 2}), pods))
    assert [(task.replicas, task.min_available) for task in built.tasks] == [(2, 1), (3, 2)]
    assert built.min_available == 3


def test_a_pod_may_name_its_node_by_the_host_name_label() -> None:
    room = make_room(*(make_node(f"n{i}") for i in range(4)))
    pod = make_pod("p", spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}})
    [outcome] = plan(room, [standing(key_of(pod), None, [pod], room, OURS)])
    assert assert_planned(outcome, 1) == {"n2": 1}


def test_neighbouring_indices_share_a_node() -> None:
    room = racks(1, 2)
    pods = members("g", 4)
    [outcome] = plan(room, [gang(room, make_group("g", 4), pods[::-1])])
    assert isinstance(outcome, Plan)
    assert [(pod.metadata.name, node) for pod, node in outcome.nodes] == [
        ("g-0", "r0n0"),
        ("g-1", "r0n0"),
        ("g-2", "r0n1"),
        ("g-3", "r0n1"),
    ]


def test_nodes_that_are_not_ready_hold_nothing() -> None:
    room = make_room(make_node("n", ready=False))
    [outcome] = plan(room, [gang(room, make_group("g", 1), members("g", 1))])
    assert_waits(outcome, NOT_ENOUGH_RESOURCES)


def test_domains_that_contradict_each_other_leave_the_rest_as_it_is() -> None:
    twice = [make_domain("a", 1, ["n"]), make_domain("b", 1, ["n"])]
    room = make_room(make_node("n"), domains=twice)
    hard = make_group("hard", 1, topology={"mode": "hard", "highestTierAllowed": 1})
    views = [gang(room, hard, members("hard", 1)), gang(room, make_group("soft", 1), members("soft", 1))]
    assert [isinstance(outcome, Plan) for outcome in plan(room, views)] == [True, True]
    assert list(room.fleet.problems) == ["b"]
    assert "node n" in room.fleet.problems["b"]


# -- room ------------------------------------------------------------------------------------------------------------


def test_an_assumption_is_charged_once_and_confirmed_by_the_watch() -> None:
    room = make_room(make_node("n"))
    pod = make_pod("p", gpu=4, binding="b")
    room.assume(pod, "n")
    room.pod_changed(pod, make_pod("p", gpu=4, binding="b", node="n"))
    assert room.amounts.free("n")["nvidia.com/gpu"] == 4
    assert not room.assumed
    assert room.placed == {"b": {"n": 1}}
    assert not room.forget(pod)


def test_a_forgotten_assumption_gives_its_room_back() -> None:
    room = make_room(make_node("n"))
    room.grew = False
    pod = make_pod("p", gpu=4)
    room.assume(pod, "n")
    assert room.forget(pod)
    assert room.amounts.free("n")["nvidia.com/gpu"] == 8
    assert room.grew


def test_a_pod_of_the_same_name_ends_the_assumption_of_the_old_one() -> None:
    room = make_room(make_node("n"))
    old, new = make_pod("p", gpu=4), make_pod("p", gpu=4, uid="other")
    room.assume(old, "n")
    room.pod_changed(old, new)
    assert room.node_of(new) == ""
    assert room.amounts.free("n")["nvidia.com/gpu"] == 8


def test_a_heartbeat_changes_nothing() -> None:
    room = make_room(make_node("n"))
    version = room.version
    room.node_changed("n", make_node("n"))
    assert room.version == version


# -- status ----------------------------------------------------------------------------------------------------------


def test_a_waiting_group_says_why_and_a_placed_one_forgets_it() -> None:
    room = make_room(make_node("n"))
    pods, group = members("g", 3), make_group("g", 3)
    [wait] = plan(room, [gang(room, group, pods)])
    assert isinstance(wait, Wait)
    status = group_status(group, pods, room, wait, 0.0)
    assert status["phase"] == "Inqueue"
    assert status["conditions"][0]["reason"] == NOT_ENOUGH_RESOURCES
    room.node_changed("m", make_node("m"))
    [outcome] = plan(room, [gang(room, group, pods)])
    assert_planned(outcome, 3)
    status = group_status(make_group("g", 3, status=status), pods, room, None, 9.0)
    assert status["phase"] == "Running"
    assert {c["type"]: c["status"] for c in status["conditions"]} == {"Unschedulable": "False", "Scheduled": "True"}


def test_a_group_whose_pods_all_ended_is_completed() -> None:
    pods = [*members("g", 1, phase="Succeeded"), *members("g", 1, start=1, phase="Failed")]
    status = group_status(make_group("g", 2), pods, make_room(), None, 0.0)
    assert (status["phase"], status["succeeded"], status["failed"]) == ("Completed", 1, 1)


def test_a_group_that_lost_running_pods_is_unknown() -> None:
    room = make_room(make_node("n"))
    running = members("g", 1, node="n", phase="Running")
    room.pod_changed(None, running[0])
    pods = [*running, *members("g", 2, start=1)]
    [wait] = plan(room, [gang(room, make_group("g", 3), pods)])
    assert isinstance(wait, Wait)
    assert group_status(make_group("g", 3), pods, room, wait, 0.0)["phase"] == "Unknown"


# -- any history -----------------------------------------------------------------------------------------------------

shapes = st.tuples(
    st.integers(1, 6), st.integers(0, 2), st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([None, 1, 2])
)


@settings(max_examples=60, deadline=None)
@given(st.lists(shapes, min_size=1, max_size=8), st.integers(1, 3), st.integers(1, 3))
def test_no_gang_is_placed_in_part_and_no_node_is_overbooked(
    wanted: list[tuple[int, int, int, int | None]], rack_count: int, rack_size: int
) -> None:
    room = racks(rack_count, rack_size)
    views = []
    for number, (minimum, extra, gpu, tier) in enumerate(wanted):
        topology = None if tier is None else {"mode": "hard", "highestTierAllowed": tier}
        group = make_group(f"g{number}", minimum, topology=topology)
        views.append(gang(room, group, members(f"g{number}", minimum + extra, gpu=gpu)))
    for outcome in plan(room, views):
        if isinstance(outcome, Plan):
            assert outcome.gang.min_member <= len(outcome.nodes) <= len(outcome.gang.waiting)
            assert len({pod.metadata.name for pod, _ in outcome.nodes}) == len(outcome.nodes)
            wish = outcome.gang.group.spec.network_topology if outcome.gang.group else None
            if wish and wish["highestTierAllowed"] == 1:
                assert len({node[:2] for _, node in outcome.nodes}) == 1
    for node in room.fleet.ready():
        assert min(room.amounts.free(node.metadata.name).values()) >= 0


APART: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchExpressions": [{"key": "volcano.sh/task-index", "operator": "Exists"}]},
                }
            ]
        }
    }
}
BESIDE: dict[str, Any] = {"affinity": {"podAffinity": APART["affinity"]["podAntiAffinity"]}}


def alone(room: Room, pod: Pod) -> Standing:
    return standing(key_of(pod), None, [pod], room, OURS)


def said(rules: Mapping[str, Any]) -> dict[str, Any]:
    return {"containers": [{"resources": {"requests": {"cpu": "1"}}}], **rules}


def test_a_pod_that_runs_keeps_others_away_as_its_terms_say_and_they_say_so() -> None:
    room = make_room(make_node("a"), make_node("b"), pods=[make_pod("p", node="a", spec=said(APART))])
    [outcome] = plan(room, [alone(room, make_pod("q"))])
    assert assert_planned(outcome, 1) == {"b": 1}
    [outcome] = plan(room, [alone(room, make_pod("r", spec=said(APART)))])
    assert_waits(outcome, NOT_ENOUGH_RESOURCES, "anti-affinity")


def test_a_gang_keeps_its_pods_apart_and_indices_do_not_make_each_pod_a_task() -> None:
    room = racks()
    pods = members("g", 4, gpu=1, spec=said(APART))
    assert len(gang_of(gang(room, make_group("g", 4), pods))[0].tasks) == 4, "here the rule itself reads the index"
    [outcome] = plan(room, [gang(room, make_group("g", 4), pods)])
    assert set(assert_planned(outcome, 4).values()) == {1}
    room.pod_changed(None, make_pod("other", node="r0n0", spec=said(BESIDE)))
    plain = members("h", 4, gpu=1)
    assert len(gang_of(gang(room, make_group("h", 4), plain))[0].tasks) == 1


def test_room_grows_for_those_that_wait_for_a_pod_beside_them_when_it_comes() -> None:
    room = make_room(make_node("a"), make_node("b"))
    seeker = make_pod("seeker", spec=said(BESIDE) | {"nodeSelector": {"kubernetes.io/hostname": "b"}})
    room.pod_changed(None, make_pod("far", node="a"))
    [outcome] = plan(room, [alone(room, seeker)])
    assert_waits(outcome, NOT_ENOUGH_RESOURCES, "affinity")
    room.grew = False
    room.pod_changed(None, make_pod("friend", node="b"))
    assert room.grew
    [outcome] = plan(room, [alone(room, seeker)])
    assert assert_planned(outcome, 1) == {"b": 1}
