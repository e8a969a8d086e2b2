"""What the core makes of what it is told: watches that jump, edits of what waits or runs, figures that come again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from atoll.dispatcher.core import (
    BindingSet,
    BindingView,
    CapacityGone,
    CapacitySet,
    Ceiling,
    Dispatcher,
    NamespaceGone,
    NamespaceSet,
    NamespaceView,
    Pass,
    QueueSet,
    QueueView,
    Strategy,
)
from atoll.dispatcher.core.backlog.binding import echoes
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.decision import Decision
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    EARLY,
    GPU,
    LATE,
    NEVER,
    OLD,
    ROOM,
    START,
    BindingBuilder,
    Scene,
    dispatched,
    evicted,
    explained,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    named,
    names,
    scene,
    two_members,
    with_amounts,
    written,
)

PASS_LIMIT = CoreSettings().pass_limit


def placed_by_others(builder: BindingBuilder, parts: dict[str, int], *, epoch: int) -> BindingView:
    """As another leader left it: so many pods of its one task in each member."""
    shares = tuple((name, (pods,)) for name, pods in parts.items())
    return dataclasses.replace(
        builder.build(), epoch=epoch, generation=epoch + 1, suspended=False, parts=shares, bound=True
    )


# -- watches that jump -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("builder", "before", "after"),
    [
        pytest.param(make_binding("a").tasks(4), {"m": 4}, {"n": 4}, id="of a gang in one member"),
        pytest.param(make_binding("a").tasks(6).divided(), {"m": 4, "n": 2}, {"m": 2, "n": 4}, id="of a divided one"),
    ],
)
def test_a_charge_moves_to_the_other_member_though_the_watch_skips_what_was_between(
    builder: BindingBuilder, before: dict[str, int], after: dict[str, int]
) -> None:
    """1. It runs. 2. It is taken back and dispatched elsewhere. 3. The watch shows the last state alone."""
    ceilings = {"members": {name: Ceiling(capability={GPU: 4}) for name in "mn"}}
    s = Scene(make_queue("q", view=ceilings), *ROOM, make_cluster("n"), make_capacity("n", [8]))
    s.see(placed_by_others(builder, before, epoch=1))
    s.see(placed_by_others(builder, after, epoch=3))
    assert s.used("q") == sum(after.values())
    assert dispatched(s.submit(make_binding("b").tasks(2)).run()) == [("b", "m")]


def test_a_new_leader_charges_what_is_still_being_evicted() -> None:
    s = two_members()
    assert evicted(s.run(after=31.0)) == ["a"]
    s.restart()
    assert s.used("q") == 4
    s.change("a", released=s.view("a").generation)
    assert s.used("q") == 0


def test_a_new_leader_evicts_what_is_not_bound_in_time() -> None:
    s = two_members()
    s.restart()
    assert s.run(after=29.0) == []
    assert evicted(s.run(after=2.0)) == ["a"]


def test_a_new_leader_measures_how_long_something_runs_from_its_dispatch() -> None:
    """Protection counts from then, not from the change of leaders."""
    s = scene(room=(make_cluster("m"), named("m", [8]))).submit(make_binding("low").tasks(8))
    s.run()
    s.bound("low", generation=NEVER)
    s.now += OLD
    s.restart()
    s.change("low", nodes={"m": {"m-0": 8}})
    assert evicted(s.submit(make_binding("high").tasks(8).priority(1)).run()) == ["low"]


def test_what_is_finished_when_it_is_first_seen_costs_nothing() -> None:
    s = scene()
    s.see(dataclasses.replace(placed_by_others(make_binding("a").tasks(8), {"m": 8}, epoch=1), finished=True))
    assert s.used("q") == 0
    assert names(s.submit(make_binding("b").tasks(8)).run()) == ["b"]


def test_a_decision_sees_the_figures_that_came_right_before_it() -> None:
    """Without the checks of a scene, which look at the figures as well."""
    core = Dispatcher()
    for event in (make_queue("q"), make_cluster("m"), make_capacity("m", [2])):
        assert core.handle(event) == []
    core.handle(BindingSet(make_binding("a").tasks(4).build()))
    assert names(core.handle(Pass(START))) == []
    core.handle(make_capacity("m", [4], generation=2))
    assert names(core.handle(Pass(START + 1))) == ["a"]


# -- what users edit ---------------------------------------------------------------------------------------------------


def test_held_work_that_says_so_already_is_not_told_again() -> None:
    """An earlier leader's write arrives after the leader has changed."""
    s = scene().submit(make_binding("a").held())
    s.change("a", decision=Decision(reason=Reason.HELD))
    assert s.run() == []


def test_held_work_that_is_over_before_it_was_told_is_told_nothing() -> None:
    s = scene().submit(make_binding("a").held())
    s.change("a", finished=True)
    assert s.run() == []
    assert s.core.next_deadline is None


def test_work_that_is_held_while_its_dispatch_is_under_way_is_evicted() -> None:
    s = scene().submit(make_binding("a"))
    [command] = s.decide()
    gang = make_binding("a").held().build().gang
    s.change("a", gang=gang)
    assert s.decide() == []
    s.write(command)
    assert evicted(s.run()) == ["a"]
    s.change("a", released=s.view("a").generation)
    assert explained(s.run())["a"].decision.reason is Reason.HELD


def test_a_waiting_workload_whose_policy_changes_is_looked_at_again() -> None:
    s = scene(make_cluster("n"), make_capacity("n", [8])).submit(make_binding("a").tasks(12))
    assert names(s.run()) == []
    s.change("a", divided=True)
    assert names(s.run()) == ["a"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"affinities": ({"clusterNames": ["n"]},)}, {"affinities": ({},)}, id="its affinity"),
        pytest.param({}, {"tolerations": ({"key": "maint", "operator": "Exists"},)}, id="its tolerations"),
    ],
)
def test_a_waiting_workload_goes_once_it_may_use_the_member(
    before: dict[str, object], after: dict[str, object]
) -> None:
    taints = [] if before else [{"key": "maint", "effect": "NoSchedule"}]
    s = scene(room=(make_cluster("m", taints=taints), make_capacity("m", [8])))
    s.see(dataclasses.replace(make_binding("a").build(), **before))  # type: ignore[arg-type]
    assert names(s.run()) == []
    s.change("a", **after)
    assert names(s.run()) == ["a"]


def test_a_waiting_workload_that_moves_to_another_queue_waits_and_goes_there() -> None:
    s = Scene(make_queue("q", gpu=0), make_queue("other"), *ROOM).submit(make_binding("a"))
    assert names(s.run()) == []
    s.change("a", gang=make_binding("a").queue("other").build().gang)
    assert names(s.run()) == ["a"]
    assert (s.used("q"), s.used("other")) == (0, 1)


def test_a_waiting_workload_whose_priority_is_raised_goes_first() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [1])))
    s.submit(make_binding("a").submitted(EARLY), make_binding("b").submitted(LATE))
    s.change("b", gang=make_binding("b").submitted(LATE).priority(1).build().gang)
    assert names(s.run()) == ["b"]


# -- queues and namespaces ---------------------------------------------------------------------------------------------


def test_equal_workloads_of_two_limited_namespaces_wait_apart() -> None:
    s = scene().tell(*(NamespaceSet(NamespaceView(name, {GPU: gpus})) for name, gpus in (("full", 0), ("default", 8))))
    s.submit(dataclasses.replace(make_binding("a").submitted(EARLY).build(), namespace="full"), make_binding("b"))
    assert names(s.run()) == ["b"]


def test_work_of_a_namespace_that_becomes_limited_waits_apart_from_then_on() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [0])))
    s.submit(dataclasses.replace(make_binding("a").submitted(EARLY).build(), namespace="full"), make_binding("b"))
    assert names(s.run()) == []
    s.tell(NamespaceSet(NamespaceView("full", {GPU: 0})), make_capacity("m", [8], generation=2))
    assert names(s.run()) == ["b"]


def test_a_namespace_whose_limits_go_away_is_not_limited_any_more() -> None:
    s = scene().tell(NamespaceSet(NamespaceView("default", {GPU: 1}))).submit(make_binding("a").tasks(2))
    told = explained(s.run())["a"].decision
    assert told.blocker is not None
    assert (told.blocker.kind, told.blocker.name, told.blocker.available) == ("Namespace", "default", "1")
    s.tell(NamespaceGone("default"))
    assert names(s.run()) == ["a"]


def test_a_namespace_gets_its_quota_back_when_its_work_is_over() -> None:
    s = scene().tell(NamespaceSet(NamespaceView("default", {GPU: 2})))
    s.submit(make_binding("a").tasks(2).submitted(EARLY), make_binding("b").tasks(2).submitted(LATE))
    assert names(s.run()) == ["a"]
    s.change("a", finished=True)
    assert names(s.run()) == ["b"]


def test_queues_that_get_another_parent_wait_under_its_limit() -> None:
    s = Scene(make_queue("small", gpu=1), make_queue("large", gpu=8), make_queue("q", view={"parent": "small"}), *ROOM)
    s.submit(make_binding("a").tasks(2))
    assert names(s.run()) == []
    s.tell(make_queue("q", view={"parent": "large"}))
    assert names(s.run()) == ["a"]
    assert (s.used("small"), s.used("large")) == (0, 2)


def test_what_members_have_more_of_wakes_who_waits_for_quota() -> None:
    """Nobody set a limit: of what the members have, 4 are guaranteed to another queue."""

    def room(gpus: int, generation: int) -> CapacitySet:
        view = make_capacity("m", [12], generation=generation).capacity
        return CapacitySet(dataclasses.replace(view, total={GPU: gpus}))

    s = Scene(make_queue("q"), make_queue("sure", view={"guarantee": {GPU: 4}}), make_cluster("m"), room(8, 1))
    s.submit(make_binding("a").tasks(6))
    assert names(s.run()) == []
    assert s.verdict("a") is Reason.QUOTA_EXCEEDED
    s.tell(room(10, 2))
    assert names(s.run()) == ["a"]


def test_figures_of_an_unknown_member_do_not_change_which_ones_a_queue_may_use() -> None:
    s = Scene(make_queue("q", view={"members": {"m": Ceiling()}}), *ROOM).submit(make_binding("a"))
    assert dispatched(s.run()) == [("a", "m")]
    s.tell(make_capacity("b", [8])).submit(make_binding("b"))
    assert dispatched(s.run()) == [("b", "m")]


def test_a_member_that_comes_first_by_name_is_not_taken_for_the_one_that_was_there() -> None:
    s = Scene(make_queue("q", view={"members": {"m": Ceiling()}}), *ROOM, make_cluster("n"), make_capacity("n", [8]))
    s.submit(make_binding("a").tasks(9), make_binding("b"))
    assert dispatched(s.run()) == [("b", "m")]
    s.tell(make_capacity("b", [8])).submit(make_binding("c").tasks(2))
    assert dispatched(s.run()) == [("c", "m")]


def test_a_queue_uses_no_member_that_the_one_above_it_may_not_use() -> None:
    s = Scene(make_queue("p", view={"members": {"n": Ceiling()}}), make_queue("q", view={"parent": "p"}), *ROOM)
    s.submit(make_binding("a"))
    assert names(s.run()) == []
    s.tell(make_cluster("n"), make_capacity("n", [1]))
    assert dispatched(s.run()) == [("a", "n")]


def test_a_queue_whose_members_are_other_ones_sends_its_work_there() -> None:
    s = Scene(make_queue("q", view={"members": {"n": Ceiling()}}), *ROOM, make_cluster("n"), make_capacity("n", [0]))
    s.submit(make_binding("a"))
    assert names(s.run()) == []
    s.tell(make_queue("q", view={"members": {"m": Ceiling()}}))
    assert dispatched(s.run()) == [("a", "m")]


def test_a_queue_that_becomes_strict_lets_nothing_pass_any_more() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [0])))
    s.submit(make_binding("head").tasks(9).submitted(EARLY), make_binding("small").submitted(LATE))
    assert names(s.run()) == []
    s.tell(make_queue("q", view={"strategy": Strategy.FIFO}), make_capacity("m", [8], generation=2))
    assert names(s.run()) == []
    assert (s.verdict("head"), s.verdict("small")) == (Reason.INSUFFICIENT_RESOURCES, Reason.BEHIND_HEAD)


# -- figures that come again -------------------------------------------------------------------------------------------


def test_new_figures_of_another_member_forgive_nothing() -> None:
    s = two_members()
    assert evicted(s.run(after=30.1)) == ["a"]
    s.tell(make_cluster("m2", ready=False))
    s.change("a", released=s.view("a").generation)
    assert names(s.run()) == []
    s.tell(make_capacity("m2", [8], generation=2))
    assert names(s.run()) == []
    assert s.verdict("a") is Reason.AVOIDED


def test_the_same_figures_again_forgive_nothing() -> None:
    s = scene().submit(make_binding("a"))
    s.run()
    assert evicted(s.run(after=30.1)) == ["a"]
    s.change("a", released=s.view("a").generation)
    assert names(s.run()) == []
    s.tell(make_capacity("m", [8]))
    assert names(s.run()) == []


@pytest.mark.parametrize("nodes", [1, 40])
def test_a_resource_that_is_not_asked_for_may_be_used_up(nodes: int) -> None:
    s = scene(room=(make_cluster("m"), with_amounts(make_capacity("m", [0] * nodes), cpu=0)))
    s.submit(make_binding("a").tasks(nodes))
    assert names(s.run()) == []
    s.tell(with_amounts(make_capacity("m", [1] * nodes, generation=2), cpu=0))
    assert names(s.run()) == ["a"]


@pytest.mark.parametrize("nodes", [1, 40])
def test_of_several_resources_the_scarcest_decides(nodes: int) -> None:
    s = scene(room=(make_cluster("m"), with_amounts(make_capacity("m", [4] * nodes), cpu=1)))
    s.submit(
        make_binding("a").tasks(2 * nodes, requests={"cpu": 1}), make_binding("b").tasks(nodes, requests={"cpu": 1})
    )
    assert names(s.run()) == ["b"]
    s.tell(with_amounts(make_capacity("m", [4] * nodes, generation=2), cpu=3))
    assert names(s.run()) == ["a"]


def test_who_asks_for_nothing_of_a_resource_does_not_need_a_member_that_has_it() -> None:
    s = scene().submit(make_binding("a").tasks(1, requests={"example.com/none": 0}))
    assert names(s.run()) == ["a"]


def test_a_resource_that_a_member_gets_later_is_seen() -> None:
    s = scene().submit(make_binding("a").tasks(1, requests={"cpu": 2}))
    assert names(s.run()) == []
    s.tell(with_amounts(make_capacity("m", [8], generation=2), cpu=2))
    assert names(s.run()) == ["a"]


def test_any_number_of_nodes_may_change_at_once_each_in_its_own_way() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", range(200)))).submit(make_binding("a").tasks(1, gpu=300))
    assert names(s.run()) == []
    s.tell(make_capacity("m", [2 * gpus for gpus in range(151)] + [0] * 49, generation=2))
    assert names(s.run()) == ["a"]


def test_what_no_member_has_room_for_says_so_when_its_member_is_not_ready_any_more() -> None:
    s = scene().submit(make_binding("a").tasks(9))
    s.run()
    assert s.verdict("a") is Reason.INSUFFICIENT_RESOURCES
    s.tell(make_cluster("m", ready=False))
    s.run()
    assert s.verdict("a") is Reason.CLUSTERS_NOT_READY


def test_a_domain_that_a_member_loses_takes_its_nodes_away() -> None:
    rows = [make_capacity("m", {f"rack-{name}": [4]}, root=name) for name in "ab"]
    s = scene(room=(make_cluster("m"), *rows)).tell(CapacityGone("m", "b"))
    s.submit(make_binding("a").tasks(8), make_binding("b").tasks(4))
    assert names(s.run()) == ["b"]


def labelled(numbers: Iterable[int], *, generation: int, gpus: int = 1) -> CapacitySet:
    """One node for each number, with that number as its label."""
    classes = [
        dataclasses.replace(
            make_capacity("m", [gpus]).capacity.classes[0], labels={"number": str(number)}
        )
        for number in numbers
    ]  # fmt: skip
    return CapacitySet(
        dataclasses.replace(make_capacity("m", [], generation=generation).capacity, classes=tuple(classes))
    )


def test_any_number_of_kinds_of_nodes_is_told_apart_however_often_their_labels_change() -> None:
    s = scene(room=(make_cluster("m"), labelled(range(20), generation=1)))
    for generation in range(2, 6):
        numbers = range(20 * generation, 20 * generation + 20)
        wanted, gone = str(numbers[-1]), str(20 * generation - 1)
        s.submit(
            make_binding(f"here{generation}").tasks(1, node_selector={"number": wanted}),
            make_binding(f"gone{generation}").tasks(1, node_selector={"number": gone}),
        )
        s.tell(labelled(numbers, generation=generation))
        assert names(s.run()) == [f"here{generation}"]
        s.gone(f"gone{generation}")


def test_the_room_that_fewer_replicas_need_is_free_at_once() -> None:
    """Nothing of it is bound, so that what is counted is what was decided."""
    s = scene().submit(make_binding("a").tasks(6))
    s.run()
    gang = s.view("a").gang
    assert gang is not None
    smaller = msgspec.structs.replace(
        gang, tasks=[msgspec.structs.replace(gang.tasks[0], replicas=2, min_available=2)], min_available=2
    )
    s.change("a", gang=smaller, generation=s.view("a").generation + 1)
    assert names(s.submit(make_binding("b").tasks(6)).run()) == ["b"]


def test_nodes_are_told_apart_by_their_names_in_whatever_order_they_come_and_though_some_have_none() -> None:
    s = scene(room=(make_cluster("m"), named("m", {"x": 4, "y": 8, "": 0}))).submit(make_binding("a").tasks(4))
    assert names(s.run()) == ["a"]
    # It is expected on x.
    s.tell(named("m", {"": 0, "y": 4, "x": 8}, generation=2)).submit(make_binding("b").tasks(1, gpu=8))
    assert names(s.run()) == []


@pytest.mark.parametrize(
    ("free", "fits"),
    [
        pytest.param([8, 4], False, id="there, as long as there is room for it"),
        pytest.param([0, 8], False, id="elsewhere, where there is none any more"),
        pytest.param([4, 8], True, id="there, however tight it is"),
    ],
)
def test_what_is_under_way_is_counted_on_the_node_where_it_was_expected(free: list[int], fits: bool) -> None:
    """Four GPUs of m-0; the question is whether a node is left with eight."""
    s = scene(room=(make_cluster("m"), named("m", [4, 8]))).submit(make_binding("a").tasks(4))
    assert names(s.run()) == ["a"]
    s.tell(named("m", free, generation=2)).submit(make_binding("b").tasks(1, gpu=8))
    assert names(s.run()) == (["b"] if fits else [])
    assert (s.core.members.by_name["m"].nodes.free >= 0).all()


# -- however much there is ---------------------------------------------------------------------------------------------


def test_what_is_under_way_stays_on_its_node_when_another_one_joins() -> None:
    """Where it would go now is the new node: the tighter gap, and the first by name."""
    s = scene(room=(make_cluster("m"), named("m", {"b": 8}))).submit(make_binding("a").tasks(1, gpu=2))
    assert names(s.run()) == ["a"]
    s.tell(named("m", {"a": 2, "b": 8}, generation=2))
    s.run()
    assert s.core.members.by_name["m"].nodes.free[0].tolist() == [2, 6]


def test_what_is_under_way_is_counted_whole_once_nothing_is_counted_twice_any_more() -> None:
    """1. a and b are under way. 2. The figures contain a, and nobody says so: for b there seems to be too little room.
    3. The report on a comes.
    """
    s = scene()
    for work in (make_binding("a").tasks(3), make_binding("b").tasks(2, gpu=2)):
        s.submit(work)
        s.run()
    s.tell(make_capacity("m", [5], generation=2))
    s.bound("a", generation=2)
    s.submit(make_binding("c").tasks(2))
    assert names(s.run()) == []


def test_a_long_pass_ends_early_and_the_next_one_goes_on_at_once() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [100, 100])))
    s.submit(*(make_binding(f"b{number:03d}") for number in range(PASS_LIMIT + 2)))
    assert len(s.run()) == PASS_LIMIT
    assert s.core.next_deadline == s.now
    assert names(s.run(after=0.0)) == [f"b{number:03d}" for number in range(PASS_LIMIT, PASS_LIMIT + 2)]
    assert s.core.next_deadline is not None
    assert s.core.next_deadline > s.now


def test_shapes_that_come_and_go_leave_no_more_behind_than_is_kept_for_those_that_come_again() -> None:
    s = scene()
    for gpus in range(9, 209):
        s.submit(make_binding("a").tasks(1, gpu=gpus))
        s.gone("a")
    assert len(s.core.members.table.counts) <= 128


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, True, id="as it was decided"),
        pytest.param({"generation": 9}, True, id="something else changed too"),
        pytest.param({"parts": (("m1", (1,)),)}, False, id="fewer pods are wished for by now"),
        pytest.param({"parts": (("m2", (2,)),)}, False, id="somebody put it elsewhere"),
        pytest.param({"bound": True}, False, id="its pods are bound already"),
        pytest.param({"placed": {"m1": (3, 1)}}, False, id="some of its pods are bound already"),
        pytest.param({"suspended": True}, False, id="it was suspended again"),
        pytest.param({"finished": True}, False, id="it is over already"),
        pytest.param({"created": LATE}, False, id="it is another one by now"),
        pytest.param({"epoch": 2}, False, id="somebody decided on it since"),
    ],
)
def test_what_says_only_that_a_dispatch_was_written(change: dict[str, Any], expected: bool) -> None:
    core, view = Dispatcher(), make_binding("a").tasks(2).build()
    for event in (make_cluster("m1"), make_capacity("m1", [8]), make_queue("q"), BindingSet(view)):
        core.handle(event)
    [command] = core.handle(Pass(START))
    seen = dataclasses.replace(written(view, command), **change)
    assert echoes(seen, core.bindings[view.uid]) is expected
    core.handle(BindingSet(seen))
    core.check()
    assert not echoes(seen, core.bindings[view.uid]), "it is not news twice"


def test_a_queue_that_its_user_changes_while_the_dispatch_is_written_pays_for_nothing() -> None:
    s = Scene(make_queue("q"), make_queue("r"), make_cluster("m"), named("m", [8]))
    s.submit(make_binding("a").tasks(4))
    commands = s.decide()
    s.see(dataclasses.replace(s.view("a"), gang=make_binding("a").queue("r").tasks(4).build().gang))
    s.write(*commands)
    assert (s.used("q"), s.used("r")) == (4, 0)


def _below(name: str, parent: str, **view: object) -> QueueSet:
    return make_queue(name, view={"parent": parent, **view})


@pytest.mark.parametrize(
    "limits",
    [{"capability": {GPU: 4}}, {"members": {"m": Ceiling(capability={GPU: 4})}}],
    ids=["the limit above", "its ceiling in a member"],
)
def test_a_queue_that_moves_away_wakes_who_waits_for_what_it_uses(limits: dict[str, Any]) -> None:
    parent = QueueSet(QueueView(**{"name": "p", "capability": {}, **limits}))
    s = scene(parent, _below("a", "p"), _below("b", "p"))
    s.submit(make_binding("runs").queue("b").tasks(4))
    assert names(s.run()) == ["runs"]
    s.submit(make_binding("waits").queue("a").tasks(2))
    assert not names(s.run())
    s.tell(_below("b", ""))
    assert names(s.run()) == ["waits"]


def test_a_queue_that_comes_with_what_it_uses_stops_who_was_just_woken() -> None:
    s = scene(make_queue("p", gpu=4), _below("a", "p"), _below("b", ""), _below("c", "p"))
    s.submit(make_binding("other").queue("b").tasks(4), make_binding("first").queue("c").tasks(4))
    assert sorted(names(s.run())) == ["first", "other"]
    s.submit(make_binding("waits").queue("a").tasks(2))
    assert not names(s.run())
    s.gone("first")
    s.tell(_below("b", "p"))
    assert not names(s.run())
    assert s.verdict("waits") is Reason.QUOTA_EXCEEDED
