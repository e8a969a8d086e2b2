"""What the core decides, as a specification."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from atoll.dispatcher.core import (
    CapacitySet,
    ClusterGone,
    Dispatch,
    Part,
    Pass,
    QueueGone,
    Strategy,
)
from atoll.model.decision import STORY_LINES, Phase
from atoll.model.timestamps import to_seconds
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import (
    EARLY,
    GPU,
    LATE,
    ROOM,
    BindingBuilder,
    Scene,
    dispatched,
    explained,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
    two_members,
)

# -- order ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            make_binding("b").priority(5).submitted(LATE),
            make_binding("a").submitted(EARLY),
            id="priority class before age",
        ),
        pytest.param(make_binding("b").submitted(EARLY), make_binding("a").submitted(LATE), id="older before younger"),
        pytest.param(
            make_binding("b").submitted(EARLY).created(LATE),
            make_binding("a").submitted(LATE).created(EARLY),
            id="age counts from the first submission, not from the binding",
        ),
        pytest.param(
            make_binding("b").created(EARLY),
            make_binding("a").created(LATE),
            id="without a submission time the binding's counts",
        ),
        pytest.param(make_binding("b").uid("1"), make_binding("a").uid("2"), id="equal age is ordered by UID"),
        pytest.param(
            make_binding("b").tasks(2).submitted(EARLY),
            make_binding("a").tasks(1).submitted(LATE),
            id="different shapes keep the order",
        ),
    ],
)
def test_order_in_a_queue(first: BindingBuilder, second: BindingBuilder) -> None:
    for order in ((first, second), (second, first)):
        assert names(scene().submit(*order).run()) == ["b", "a"]


def test_the_queue_of_higher_priority_is_served_first() -> None:
    s = scene(make_queue("high", priority=1), room=(make_cluster("m"), make_capacity("m", [1])))
    s.submit(make_binding("a").submitted(EARLY), make_binding("b").queue("high").submitted(LATE))
    assert names(s.run()) == ["b"]


def test_queues_take_turns_by_their_dominant_share() -> None:
    s = Scene(make_queue("big", gpu=8), make_queue("small", gpu=2), *ROOM)
    s.submit(
        *(make_binding(f"big{i}").queue("big") for i in range(4)),
        *(make_binding(f"small{i}").queue("small") for i in range(2)),
    )
    # Shares after each: big 1/8, small 1/2, then big until it reaches small's share.
    assert names(s.run()) == ["big0", "small0", "big1", "big2", "big3", "small1"]


def test_a_queue_that_has_more_than_it_is_due_since_another_one_wants_more_goes_later() -> None:
    """Of 8, `a` uses 3 and `z` 2. While `z` wants no more `a` is due 6, else 4."""

    def room(free: int, generation: int) -> CapacitySet:
        view = make_capacity("m", [free], generation=generation).capacity
        return CapacitySet(dataclasses.replace(view, total={GPU: 8}))

    s = Scene(make_queue("a"), make_queue("z"), make_cluster("m"), room(5, 1))
    s.submit(*(make_binding(f"z{n}").queue("z") for n in range(2)))
    s.run()
    s.submit(*(make_binding(f"a{n}").queue("a") for n in range(8)))
    assert names(s.run()) == ["a0", "a1", "a2"]
    # Both are compared while that is so.
    s.submit(*(make_binding(f"{queue}-no").queue(queue).tasks(1, gpu=0, requests={"cpu": 1}) for queue in "az"))
    assert names(s.run()) == []
    s.submit(*(make_binding(f"z{n}").queue("z") for n in range(2, 7))).tell(room(8, 2))
    assert names(s.run()) == ["z2", "a3", "z3"]


def test_a_queue_that_lacks_one_of_several_things_that_it_is_guaranteed_goes_first() -> None:
    s = scene(
        make_queue("sure", view={"guarantee": {GPU: 4, "cpu": 8}}), room=(make_cluster("m"), make_capacity("m", [1]))
    )
    s.submit(make_binding("a").queue("sure").submitted(LATE), make_binding("b").submitted(EARLY))
    assert names(s.run()) == ["a"]


def test_a_guarantee_of_what_it_does_not_ask_for_gives_a_queue_no_precedence() -> None:
    s = scene(make_queue("sure", view={"guarantee": {"cpu": 8}}), room=(make_cluster("m"), make_capacity("m", [1])))
    s.submit(make_binding("a").queue("sure").submitted(EARLY), make_binding("b").submitted(LATE))
    assert names(s.run()) == ["b"], "the name of the queue decides"


def test_queues_share_by_weight_what_both_want() -> None:
    """Of 8, `x` is due 2 and `y` 6: in turn whoever has the smaller part of what is due, then by name."""
    total = CapacitySet(dataclasses.replace(make_capacity("m", [8]).capacity, total={GPU: 8}))
    s = Scene(*(make_queue(name, view={"weight": n}) for name, n in (("x", 1), ("y", 3))), make_cluster("m"), total)
    s.submit(*(make_binding(f"{queue}{n}").queue(queue) for queue in "xy" for n in range(8)))
    assert names(s.run()) == ["x0", "y0", "y1", "y2", "x1", "y3", "y4", "y5"]


# -- queues --------------------------------------------------------------------------------------------------------------


def test_capability_blocks_and_names_queue_resource_and_shortage() -> None:
    s = Scene(make_queue("q", gpu=3), *ROOM).submit(make_binding("a").tasks(2), make_binding("b").tasks(2))
    commands = s.run()
    assert names(commands) == ["a"]
    told = explained(commands)["b"].decision
    assert told.reason is Reason.QUOTA_EXCEEDED
    assert told.blocker is not None
    assert (told.blocker.kind, told.blocker.name, told.blocker.resource) == ("Queue", "q", GPU)
    assert (told.blocker.requested, told.blocker.available) == ("2", "1")


def test_a_resource_that_the_capability_does_not_name_is_unlimited() -> None:
    s = Scene(make_queue("q", cpu=0), *ROOM).submit(make_binding("a").tasks(8))
    assert names(s.run()) == ["a"]


def test_smaller_work_passes_a_blocked_head() -> None:
    s = scene().submit(make_binding("head").tasks(9).submitted(EARLY), make_binding("small").submitted(LATE))
    assert names(s.run()) == ["small"]
    s.decide()
    assert s.verdict("head") is Reason.INSUFFICIENT_RESOURCES


def test_a_workload_waits_for_its_queue_and_goes_once_it_exists() -> None:
    s = Scene(*ROOM).submit(make_binding("a"))
    told = explained(s.run())["a"].decision
    assert told.reason is Reason.QUEUE_NOT_FOUND
    assert told.blocker is not None
    assert told.blocker.name == "q"
    s.tell(make_queue("q"))
    assert names(s.run()) == ["a"]


def test_nothing_runs_in_the_queue_above_all() -> None:
    s = scene().submit(make_binding("a").queue("root"))
    assert explained(s.run())["a"].decision.reason is Reason.QUEUE_NOT_LEAF


def test_a_closed_queue_admits_nothing_until_it_is_opened() -> None:
    s = Scene(make_queue("q", is_open=False), *ROOM).submit(make_binding("a"))
    s.run()
    s.decide()
    assert s.verdict("a") is Reason.QUEUE_CLOSED
    s.tell(make_queue("q"))
    assert names(s.run()) == ["a"]


def test_a_queue_that_is_deleted_admits_nothing_and_keeps_its_charges() -> None:
    s = scene().submit(make_binding("a"))
    s.run()
    s.tell(QueueGone("q")).submit(make_binding("b"))
    s.run()
    s.decide()
    assert s.verdict("b") is Reason.QUEUE_NOT_FOUND
    assert s.used("q") == 1


def test_a_raised_capability_wakes_what_waits_for_quota() -> None:
    s = Scene(make_queue("q", gpu=1), *ROOM).submit(make_binding("a").tasks(2))
    assert names(s.run()) == []
    s.decide()
    s.tell(make_queue("q", gpu=2))
    assert names(s.run()) == ["a"]


@pytest.mark.parametrize("how", ["finished", "deleted"])
def test_quota_comes_back_and_wakes_waiters_when_a_workload_is(how: str) -> None:
    s = Scene(make_queue("q", gpu=2), *ROOM).submit(make_binding("a").tasks(2), make_binding("b").tasks(2))
    assert names(s.run()) == ["a"]
    s.decide()
    if how == "finished":
        s.change("a", finished=True)
    else:
        s.gone("a")
    assert s.used("q") == 0
    assert names(s.run()) == ["b"]


def test_quota_comes_back_and_wakes_waiters_when_a_running_workload_shrinks() -> None:
    s = Scene(make_queue("q", gpu=2), *ROOM)
    s.submit(make_binding("a").tasks(2), make_binding("b").tasks(1))
    assert names(s.run()) == ["a"]
    s.decide()
    s.change("a", gang=make_binding("a").tasks(1).build().gang)
    assert names(s.run()) == ["b"]


def test_a_workload_that_is_edited_while_it_waits_is_decided_by_its_new_wish() -> None:
    s = scene().submit(make_binding("a").tasks(9))
    s.run()
    s.change("a", gang=make_binding("a").tasks(8).build().gang, generation=2)
    [command] = s.run()
    assert isinstance(command, Dispatch)
    assert (command.generation, [(p.cluster, p.pods) for p in command.parts]) == (2, [("m", 8)])


# -- members -------------------------------------------------------------------------------------------------------------


def region(operator: str, name: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": "region", "operator": operator, "values": [name]}]}


def test_ordered_affinities_are_tried_in_turn() -> None:
    s = scene(room=(make_cluster("m1"), make_cluster("m2"), make_capacity("m1", [1]), make_capacity("m2", [4])))
    turns = ({"affinityName": "first", "clusterNames": ["m1"]}, {"affinityName": "second", "clusterNames": ["m2"]})
    s.submit(dataclasses.replace(make_binding("a").tasks(1).build(), affinities=turns))
    s.submit(dataclasses.replace(make_binding("b").tasks(2).build(), affinities=turns))
    assert dispatched(s.run()) == [("a", "m1"), ("b", "m2")]


@pytest.mark.parametrize(
    ("builder", "target"),
    [
        pytest.param(make_binding("a").affinity(clusterNames=["m2"]), "m2", id="named clusters only"),
        pytest.param(make_binding("a").affinity(exclude=["m1"]), "m2", id="excluded clusters never"),
        pytest.param(
            make_binding("a").affinity(labelSelector={"matchLabels": {"zone": "z"}}), "m3", id="clusters by label"
        ),
        pytest.param(
            make_binding("a").affinity(exclude=["m1", "m2", "m3"]), None, id="a tainted cluster not without toleration"
        ),
        pytest.param(
            make_binding("a").affinity(exclude=["m1", "m2", "m3"]).tolerating({"key": "maint", "operator": "Exists"}),
            "m4",
            id="a tainted cluster with toleration",
        ),
        pytest.param(make_binding("a").affinity(clusterNames=["nowhere"]), None, id="no cluster matches"),
        pytest.param(
            make_binding("a").affinity(fieldSelector=region("In", "mars")), None, id="no cluster of that region"
        ),
        pytest.param(make_binding("a").affinity(fieldSelector=region("In", "eu")), "m2", id="clusters of a region"),
        pytest.param(make_binding("a").affinity(fieldSelector=region("NotIn", "us")), "m2", id="not of a region"),
    ],
)
def test_cluster_affinity_and_tolerations(builder: BindingBuilder, target: str | None) -> None:
    room: list[object] = [
        make_cluster("m1", region="us"),
        make_cluster("m2", region="eu"),
        make_cluster("m3", labels={"zone": "z"}, region="us"),
    ]
    room.append(make_cluster("m4", taints=[{"key": "maint", "effect": "NoSchedule"}]))
    s = scene(room=[*room, *(make_capacity(f"m{i}", [1]) for i in range(1, 5))]).submit(builder)
    commands = s.run()
    s.decide()
    assert dispatched(commands) == ([("a", target)] if target else [])
    assert s.verdict("a") is (None if target else Reason.NO_CLUSTER)


def test_a_cluster_that_is_not_ready_gets_nothing_until_it_is() -> None:
    s = scene(room=(make_cluster("m", ready=False), make_capacity("m", [8]))).submit(make_binding("a"))
    told = explained(s.run())["a"].decision
    assert told.reason is Reason.CLUSTERS_NOT_READY
    assert told.blocker is not None
    assert told.blocker.name == "m"
    s.tell(make_cluster("m"))
    assert names(s.run()) == ["a"]


def test_capacity_without_a_cluster_object_takes_nothing() -> None:
    s = scene(room=(make_capacity("m", [8]),)).submit(make_binding("a"))
    assert names(s.run()) == []
    s.decide()
    assert s.verdict("a") is Reason.NO_CLUSTER


def test_a_removed_cluster_takes_nothing_more() -> None:
    s = scene().tell(ClusterGone("m")).submit(make_binding("a"))
    assert names(s.run()) == []


def test_new_capacity_wakes_what_did_not_fit() -> None:
    s = scene().submit(make_binding("a").tasks(9))
    s.run()
    s.tell(make_capacity("m", [8, 8], generation=2))
    assert names(s.run()) == ["a"]


def test_an_unfit_gang_names_the_cluster_that_came_nearest_with_numbers() -> None:
    s = scene(room=(make_cluster("m1"), make_cluster("m2"), make_capacity("m1", [4]), make_capacity("m2", [6])))
    told = explained(s.submit(make_binding("a").tasks(7)).run())["a"].decision
    assert told.reason is Reason.INSUFFICIENT_RESOURCES
    assert told.blocker is not None
    assert (told.blocker.kind, told.blocker.name) == ("Cluster", "m2")
    assert (told.blocker.requested, told.blocker.available) == ("7", "6")


def test_the_nearest_is_one_that_could_be_used_though_it_holds_nothing() -> None:
    s = scene(
        room=(make_cluster("m1", ready=False), make_cluster("m2"), make_capacity("m1", [4]), make_capacity("m2", [0]))
    )
    told = explained(s.submit(make_binding("a").tasks(5)).run())["a"].decision
    assert told.blocker == Blocker("Cluster", "m2", "pods", "5", "0")


def test_tasks_that_fit_one_by_one_and_not_together_are_not_said_to_fit() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [4])))
    told = explained(s.submit(make_binding("a").tasks(3).tasks(3)).run())["a"].decision
    assert (told.reason, told.blocker) == (Reason.INSUFFICIENT_RESOURCES, Blocker("Cluster", "m", "pods", "6", "5"))


def test_hard_topology_without_a_domain_that_holds_it_names_the_nearest_miss() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", {"r1": [4, 2], "r2": [4, 1]})))
    told = explained(s.submit(make_binding("a").tasks(7).hard(1)).run())["a"].decision
    assert told.reason is Reason.NO_DOMAIN_FITS
    assert told.blocker is not None
    assert (told.blocker.kind, told.blocker.name) == ("Domain", "m/r1")
    assert (told.blocker.requested, told.blocker.available) == ("7", "6")


def test_a_member_without_domains_never_holds_a_hard_topology() -> None:
    s = scene().submit(make_binding("a").hard(1))
    s.run()
    s.decide()
    assert s.verdict("a") is Reason.NO_TOPOLOGY


def test_selectors_that_no_node_meets_are_named_as_such() -> None:
    s = scene().submit(make_binding("a").tasks(1, node_selector={"disk": "ssd"}))
    s.run()
    s.decide()
    assert s.verdict("a") is Reason.NO_NODE_MATCHES


@pytest.mark.parametrize(
    ("builder", "worse", "better"),
    [
        pytest.param(make_binding("a").tasks(6).minimum(4), [5], [6], id="all replicas rather than the minimum alone"),
        pytest.param(make_binding("a").tasks(4), {"r1": [2], "r2": [2]}, {"s1": [4], "s2": [4]}, id="the nearest tier"),
        pytest.param(
            make_binding("a").tasks(4), {"r1": [2], "r2": [3]}, {"s1": [4]}, id="the nearest tier, however tight it is"
        ),
        pytest.param(make_binding("a").tasks(2), [8], [3], id="least left over"),
        pytest.param(make_binding("a"), {"r1": [8]}, [3], id="no tier for a single pod"),
        pytest.param(make_binding("a").tasks(2), {"r1": [1], "r2": [1]}, {"s1": [8]}, id="the nearest tier for two"),
        pytest.param(make_binding("a").tasks(6).minimum(4), [5, 4], [6], id="least left over also on a single node"),
    ],
)
def test_the_better_member_is_chosen(builder: BindingBuilder, worse: Any, better: Any) -> None:
    for target, capacities in (("m2", (worse, better)), ("m1", (better, worse))):
        room = [
            event
            for n, free in enumerate(capacities, 1)
            for event in (make_cluster(f"m{n}"), make_capacity(f"m{n}", free))
        ]
        assert dispatched(scene(room=room).submit(builder).run()) == [("a", target)]


def test_equal_members_are_ordered_by_name() -> None:
    s = scene(room=(make_cluster("m2"), make_cluster("m1"), make_capacity("m2", [4]), make_capacity("m1", [4])))
    assert dispatched(s.submit(make_binding("a")).run()) == [("a", "m1")]


# -- what a decision says --------------------------------------------------------------------------------------------------


def test_a_dispatch_raises_the_epoch_names_its_ground_and_tells_its_story() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", {"r1": [4], "r2": [8]})))
    s.submit(make_binding("a").tasks(3))
    [command] = s.decide()
    assert isinstance(command, Dispatch)
    assert (command.uid, command.epoch, command.generation, command.parts) == (
        "uid-a",
        0,
        1,
        (Part("m", (("t0", 3),)),),
    )
    decision = command.decision
    assert (decision.epoch, decision.phase, decision.reason) == (1, Phase.DISPATCHED, Reason.DISPATCHED)
    assert to_seconds(decision.deadline) == pytest.approx(s.now + 30, abs=0.002)
    assert decision.story[-1].text == "to m, domain r1 expected"


def test_a_story_keeps_its_last_lines() -> None:
    s = Scene(*ROOM).submit(make_binding("a"))
    for round_ in range(20):
        s.tell(make_queue("q", is_open=False))
        s.run(after=1)
        s.tell(QueueGone("q"))
        s.run(after=1)
        assert len(s.view("a").decision.story) == min(2 * (round_ + 1), STORY_LINES)


def test_events_alone_decide_nothing_and_a_second_pass_repeats_nothing() -> None:
    s = scene().submit(make_binding("a"), make_binding("b").tasks(99))
    assert len(s.decide()) == 2
    assert s.decide() == []


# -- explanations --------------------------------------------------------------------------------------------------------


def test_explanations_stay_within_their_budget_and_the_rest_follows() -> None:
    s = scene().submit(*(make_binding(f"b{i:03d}").tasks(99) for i in range(80)))
    first = s.run()
    assert len(explained(first)) == 50
    assert s.core.next_deadline == pytest.approx(s.now + 0.2, abs=0.001)
    second = s.run(after=1)
    assert len(explained(second)) == 10
    s.run(after=10)
    assert all(view.decision.reason is Reason.INSUFFICIENT_RESOURCES for view in s.views.values())
    assert s.core.next_deadline is None


@pytest.mark.parametrize("left", [0, 55], ids=["one that was told", "one that was not"])
def test_all_are_told_why_they_wait_though_one_leaves_meanwhile(left: int) -> None:
    s = scene().submit(*(make_binding(f"b{i:03d}").tasks(99) for i in range(60)))
    assert len(explained(s.run())) == 50
    s.gone(f"b{left:03d}")
    s.run(after=5.0)
    assert {view.decision.reason for view in s.views.values()} == {Reason.INSUFFICIENT_RESOURCES}
    assert all(len(view.decision.story) == 1 for view in s.views.values())


def test_a_reason_is_not_repeated_for_another_amount() -> None:
    s = scene().submit(make_binding("a").tasks(9))
    assert len(s.run()) == 1
    s.tell(make_capacity("m", [7], generation=2))
    assert s.run() == []


def test_a_reason_is_told_again_when_another_thing_blocks() -> None:
    s = Scene(make_queue("q", gpu=1), *ROOM).submit(make_binding("a").tasks(9))
    assert explained(s.run())["a"].decision.reason is Reason.QUOTA_EXCEEDED
    s.tell(make_queue("q", gpu=9))
    assert explained(s.run())["a"].decision.reason is Reason.INSUFFICIENT_RESOURCES


def test_a_later_arrival_of_a_blocked_shape_is_told_why_it_waits() -> None:
    s = scene().submit(make_binding("a").tasks(9))
    s.run()
    s.decide()
    s.submit(make_binding("b").tasks(9))
    assert list(explained(s.run())) == ["b"]


def test_an_elder_that_arrives_later_is_told_why_it_waits_as_well() -> None:
    s = scene().submit(make_binding("b").tasks(9).submitted(LATE))
    s.run()
    s.decide()
    s.submit(make_binding("a").tasks(9).submitted(EARLY))
    assert list(explained(s.run())) == ["a"]


def test_an_explanation_keeps_epoch_and_phase() -> None:
    s = scene().submit(make_binding("a").tasks(9))
    [command] = s.run()
    assert (command.epoch, command.decision.epoch, command.decision.phase) == (0, 0, Phase.SUSPENDED)
    assert command.decision.story[-1].text.startswith("no member has room for the whole gang")


def test_a_reason_that_the_binding_carries_already_is_not_written_by_a_new_leader() -> None:
    s = scene().submit(make_binding("a").tasks(9))
    s.run()
    new = scene()
    new.see(s.view("a"))
    assert new.run() == []


def test_an_invalid_gang_is_told_and_waits_without_charge() -> None:
    s = scene().submit(make_binding("a").unreadable())
    told = explained(s.run())["a"].decision
    assert told.reason is Reason.INVALID_GANG
    assert s.run() == []
    s.change("a", gang=make_binding("a").build().gang)
    assert names(s.run()) == ["a"]


def test_a_request_beyond_64_bits_waits_like_any_other_and_stops_no_other() -> None:
    s = scene().submit(make_binding("huge").tasks(1, requests={"memory": 2**64}).priority(9), make_binding("a"))
    assert names(s.run()) == ["a"]


def test_replay_gives_the_same_commands() -> None:
    s = two_members()
    s.run(after=31)
    s.change("a", released=s.view("a").generation)
    s.submit(make_binding("b"), make_binding("c").tasks(99))
    s.run()
    again = Scene()
    assert [again.handle(event) for event in s.log] == s.answers
    assert any(isinstance(event, Pass) for event in s.log)


def test_in_a_strict_queue_the_next_one_is_the_head_whatever_it_asks_for() -> None:
    s = Scene(make_queue("q", view={"strategy": Strategy.FIFO}), *ROOM)
    for name, pods, day in (("a", 9, 1), ("b", 1, 2), ("c", 9, 3), ("d", 1, 4)):
        s.submit(make_binding(name).tasks(pods).submitted(f"2026-01-0{day}T00:00:00Z"))
    assert names(s.run()) == []
    s.gone("a")
    assert names(s.run()) == ["b"]
    assert s.verdict("d") is Reason.BEHIND_HEAD


def test_in_a_strict_queue_only_the_head_is_told_what_stops_it() -> None:
    s = Scene(make_queue("q", view={"strategy": Strategy.FIFO}), *ROOM)
    late = [make_binding(name).tasks(pods).submitted(LATE) for name, pods in zip("abcd", (9, 9, 9, 8), strict=True)]
    s.submit(*late)
    told = {name: command.decision.reason for name, command in explained(s.decide()).items()}
    assert told == {"a": Reason.INSUFFICIENT_RESOURCES} | dict.fromkeys(("b", "c", "d"), Reason.BEHIND_HEAD)
    assert [s.verdict(name) for name in "abc"] == [Reason.INSUFFICIENT_RESOURCES, *[Reason.BEHIND_HEAD] * 2]
    s.gone("a")
    told = {name: command.decision.reason for name, command in explained(s.decide()).items()}
    assert told == {"b": Reason.INSUFFICIENT_RESOURCES}
    s.submit(make_binding("elder").tasks(9).submitted(EARLY))
    told = {name: command.decision.reason for name, command in explained(s.decide()).items()}
    assert told == {"elder": Reason.INSUFFICIENT_RESOURCES, "b": Reason.BEHIND_HEAD}


def test_the_head_of_a_strict_queue_goes_once_what_stopped_the_queue_is_over() -> None:
    strict = {"strategy": Strategy.FIFO}
    s = Scene(make_queue("q", is_open=False, view=strict), *ROOM)
    s.submit(make_binding("a").submitted(EARLY), make_binding("b").tasks(2).submitted(LATE))
    assert names(s.run()) == []
    s.tell(make_queue("q", view=strict))
    assert names(s.run()) == ["a", "b"]


def test_room_for_both_tasks_of_a_gang_that_waits_wakes_it_once() -> None:
    s = scene(make_queue("q"), room=(make_cluster("m"), make_capacity("m", [8])))
    s.submit(make_binding("all").tasks(8))
    assert names(s.run()) == ["all"]
    s.submit(make_binding("two-tasks").tasks(1, gpu=1).tasks(1, gpu=2))
    assert names(s.run()) == []
    s.tell(make_capacity("m", [8, 8], generation=2))
    assert names(s.run()) == ["two-tasks"]


def test_workloads_of_one_second_go_in_the_order_in_which_they_came_not_by_uid() -> None:
    """Three of one second, their UIDs the other way round; room for one after the other. A leader that begins agrees."""
    s = scene(room=(make_cluster("m"), make_capacity("m", [1])))
    for name, arrival in (("c", 99), ("b", 100), ("a", 101)):
        s.submit(make_binding(name).submitted(EARLY).gang(arrival=arrival))
    order = []
    for _ in range(3):
        s.restart()
        [name] = names(s.run())
        order.append(name)
        s.change(name, finished=True)
    assert order == ["c", "b", "a"]
