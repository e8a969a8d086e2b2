"""Rules of the core that show in one place only, and what it keeps in mind: nothing of what is over."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from atoll.dispatcher.core import (
    CapacityGone,
    CapacitySet,
    Ceiling,
    ClusterGone,
    MemberAnswer,
    NamespaceSet,
    NamespaceView,
    QueueView,
    Strategy,
)
from atoll.dispatcher.core.backlog.backlog import differs
from atoll.dispatcher.core.settings import CoreSettings
from atoll.fit.site import less
from atoll.model.verdict import Blocker, Reason, Verdict
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    GPU,
    LATE,
    NEVER,
    OLD,
    ROOM,
    START,
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
)
from tests.dispatcher.preemption.stage import Stage

HELPLESS = CoreSettings().preemption.pause

EXPLAIN_PER_DISPATCH = CoreSettings().reasons.per_dispatch
PROTECTION = CoreSettings().preemption.protection

HOUR = 3600.0
BORN = "2027-01-15T08:00:00Z"
"""The time of `START`."""


def with_total(cluster: str, free: list[int], total: int) -> CapacitySet:
    """As `make_capacity`, of a member that says what its nodes have."""
    capacity = make_capacity(cluster, free).capacity
    return CapacitySet(dataclasses.replace(capacity, total={GPU: total}))


def lacks(member: str, available: str) -> Verdict:
    return Verdict(Reason.INSUFFICIENT_RESOURCES, Blocker("Cluster", member, "pods", "4", available))


# -- what is over ------------------------------------------------------------------------------------------------------


def busy_history() -> Scene:
    """One workload of every fate: runs, is over, waits, is held, unreadable, promised, divided, taken back, evicted."""
    s = Scene(make_queue("q", view=BACKFILL), make_queue("other"), *ROOM, make_cluster("n"), make_capacity("n", [4]))
    s.tell(NamespaceSet(NamespaceView("default", {GPU: 100})))
    s.submit(make_binding("low").tasks(8).runs(HOUR).priority(-1), make_binding("late").queue("other").tasks(4))
    s.run()
    s.bound("low", generation=NEVER)
    s.submit(make_binding("head").tasks(8).submitted(EARLY), make_binding("behind").tasks(3).submitted(LATE))
    s.submit(
        make_binding("held").held(), make_binding("odd").unreadable(), make_binding("huge").tasks(99).queue("other")
    )
    s.submit(make_binding("lost").queue("nowhere"))
    s.tell(make_queue("full", gpu=0, view={"patience": 1.0})).submit(make_binding("tired").queue("full").created(BORN))
    s.run(after=31)
    assert "uid-tired" in s.core.policy.impatient
    s.change("late", released=s.view("late").generation)
    s.submit(make_binding("wide").queue("other").tasks(4).divided(least=2))
    s.run(after=OLD)
    s.change("low", finished=True)
    s.run(after=1)
    return s


def test_nothing_is_kept_of_what_is_gone() -> None:
    s = busy_history()
    for name in [view.name for view in s.views.values()]:
        s.gone(name)
        s.decide()
    # Members that failed a shape are remembered for a while.
    s.decide(after=2000)
    core = s.core
    for node in core.tree.queues.values():
        assert not any((node.used, node.wanted, node.own_in, node.waiting)), node.name
    for member in core.members.by_name.values():
        assert not any((member.inflight, member.expected)), member.name
    assert not core.members.unconfirmed.any()
    assert not any((core.members.holders, core.namespaces.used, core.reservations.made, core.waiting.unsaid))
    assert not list(core.reservations.timeline.by_end())
    assert not any(core.state.charges.priorities.values())
    left = (
        core.state.untold,
        core.state.unsettled,
        core.policy.impatient,
        core.claims,
        core.claims.any_cleared,
    )
    assert not any(left)
    assert not any((len(core.state.wakes), core.wakeups.woken))
    assert core.next_deadline is None


def test_the_wish_of_all_that_waits_or_runs_is_counted_once() -> None:
    """Nothing is wished in a queue that does not exist."""
    s = busy_history()
    views = [view for view in s.views.values() if not view.finished and view.name != "lost"]
    gangs = [view.gang for view in views if view.gang and not view.gang.hold]
    assert s.core.tree.root.wanted[GPU] == sum(gang.total()[GPU] for gang in gangs)


def test_a_head_that_goes_away_lets_those_through_that_it_held_up() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR))
    s.run()
    s.submit(make_binding("head").tasks(2, gpu=8).submitted(EARLY), make_binding("long").submitted(LATE))
    assert names(s.run()) == []
    s.gone("head")
    assert names(s.run()) == ["long"]


# -- members that come, go and are other ones --------------------------------------------------------------------------


def test_what_members_have_limits_queues_while_their_cluster_is_known() -> None:
    s = Scene(make_queue("q"), with_total("m", [8], 8))
    assert s.core.tree.queue("q").limit == {}
    s.tell(make_cluster("m"))
    assert s.core.tree.queue("q").limit == {GPU: 8}
    s.tell(with_total("m", [8], 6))
    assert s.core.tree.queue("q").limit == {GPU: 6}
    s.tell(CapacityGone("m", ""))
    assert s.core.tree.queue("q").limit == {}
    s.tell(with_total("m", [8], 6), ClusterGone("m"))
    assert s.core.tree.queue("q").limit == {}


def test_a_queue_that_its_ceiling_stops_in_one_member_goes_to_the_next_that_comes() -> None:
    serving = {"members": {"m": Ceiling(capability={GPU: 1}), "n": Ceiling()}}
    s = Scene(make_queue("q", view=serving), *ROOM).submit(make_binding("a").tasks(2))
    assert names(s.run()) == []
    s.tell(make_capacity("n", [2]), make_cluster("n"))
    assert dispatched(s.run()) == [("a", "n")]


def test_a_ceiling_in_a_member_stops_a_division_too() -> None:
    serving = {"members": {"m": Ceiling(), "n": Ceiling(capability={GPU: 1})}}
    s = Scene(make_queue("q", view=serving), *ROOM, make_cluster("n"), make_capacity("n", [8]))
    s.submit(make_binding("a").tasks(12).divided())
    assert names(s.run()) == []
    assert s.verdict("a") is Reason.QUOTA_EXCEEDED


def test_a_member_with_room_for_one_pod_takes_it() -> None:
    s = scene(room=(make_cluster("m"), make_cluster("n"), make_capacity("m", [4]), make_capacity("n", [1])))
    [command] = s.submit(make_binding("a").tasks(5).divided()).run()
    assert [(part.cluster, part.pods) for part in command.parts] == [("m", 4), ("n", 1)]  # type: ignore[union-attr]


def test_room_in_one_queues_member_wakes_that_queue_whoever_goes_first() -> None:
    """Equal workloads of queues with other members are not of one shape."""
    queues = [make_queue(n, priority=p, view={"members": {m: Ceiling()}}) for n, m, p in (("q", "m", 1), ("r", "n", 0))]
    s = Scene(*queues, *(make_cluster(n) for n in "mn"), *(make_capacity(n, [0]) for n in "mn"))
    s.submit(make_binding("a"), make_binding("b").queue("r"))
    assert names(s.run()) == []
    s.tell(make_capacity("n", [1], generation=2))
    assert dispatched(s.run()) == [("b", "n")]


def test_a_namespace_that_is_full_stops_its_own_workloads_only() -> None:
    s = scene().tell(NamespaceSet(NamespaceView("full", {GPU: 0})))
    s.submit(dataclasses.replace(make_binding("a").submitted(EARLY).build(), namespace="full"), make_binding("b"))
    assert names(s.run()) == ["b"]
    assert s.verdict("a") is Reason.QUOTA_EXCEEDED
    s.tell(NamespaceSet(NamespaceView("full", {GPU: 1})))
    assert names(s.run()) == ["a"]


def test_a_queue_that_becomes_less_strict_lets_others_pass_at_once() -> None:
    s = Scene(make_queue("q", view={"strategy": Strategy.FIFO}), *ROOM)
    s.submit(make_binding("head").tasks(9).submitted(EARLY), make_binding("small").submitted(LATE))
    assert names(s.run()) == []
    s.tell(make_queue("q"))
    assert names(s.run()) == ["small"]


def test_nodes_that_get_a_label_take_what_asks_for_it() -> None:
    s = scene().submit(make_binding("a").tasks(1, node_selector={"disk": "ssd"}))
    assert names(s.run()) == []
    s.tell(make_capacity("m", [8], generation=2, labels={"disk": "ssd"}))
    assert names(s.run()) == ["a"]


def test_nodes_in_no_domain_are_near_nothing() -> None:
    room = (make_capacity("m", {"": [8], "r1": [1], "r2": [1]}), make_capacity("n", {"s1": [2], "s2": [2]}))
    s = scene(room=(make_cluster("m"), make_cluster("n"), *room)).submit(make_binding("a").tasks(4))
    assert dispatched(s.run()) == [("a", "n")]


def test_the_first_domain_of_the_first_member_counts_as_any_other() -> None:
    room = (make_capacity("m", {"r1": [2], "r2": [3]}), make_capacity("n", [4]))
    s = scene(room=(make_cluster("m"), make_cluster("n"), *room)).submit(make_binding("a").tasks(4))
    assert dispatched(s.run()) == [("a", "m")]


def test_a_member_of_many_nodes_is_counted_as_one_of_few() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [1] * 40))).submit(make_binding("a").tasks(1, gpu=2))
    assert names(s.run()) == []
    s.tell(make_capacity("m", [0] * 39 + [2], generation=2))
    assert names(s.run()) == ["a"]


def test_any_number_of_shapes_may_wait() -> None:
    s = scene().submit(*(make_binding(f"b{gpus:03d}").tasks(1, gpu=gpus) for gpus in range(1, 150)))
    assert names(s.run()) == ["b001", "b002", "b003"]
    s.tell(make_capacity("m", [8, 149], generation=2))
    s.submit(make_binding("first").tasks(1, gpu=149).priority(1))
    assert names(s.run()) == ["first"]


def test_a_queue_that_moves_changes_both_parents() -> None:
    s = Scene(*(make_queue(name) for name in ("p1", "p2")), make_queue("q", view={"parent": "p1"}), *ROOM)
    s.submit(make_binding("a"))
    s.run()
    s.tell(make_queue("q", view={"parent": "p2"}))
    s.decide()
    assert {"p1", "p2"} <= {node.name for node in s.core.changes.queues}
    assert (s.used("p1"), s.used("p2")) == (0, 1)


# -- which limit it is -------------------------------------------------------------------------------------------------


def test_what_is_guaranteed_to_others_is_a_reason_only_where_there_is_room() -> None:
    """The limit is what the members have, less what others are guaranteed: nobody set it."""
    s = Scene(
        make_queue("q"), make_queue("sure", view={"guarantee": {GPU: 4}}), make_cluster("m"), with_total("m", [8], 8)
    )
    s.submit(make_binding("runs").tasks(4))
    assert names(s.run()) == ["runs"]
    s.submit(make_binding("a").tasks(3), make_binding("b").tasks(6))
    s.run()
    assert (s.verdict("a"), s.verdict("b")) == (Reason.QUOTA_EXCEEDED, Reason.INSUFFICIENT_RESOURCES)


# -- what may pass -----------------------------------------------------------------------------------------------------


def test_the_first_that_is_short_enough_passes_whoever_is_older() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR))
    s.run()
    s.submit(make_binding("head").tasks(2, gpu=8).submitted(EARLY))
    s.submit(*(make_binding(f"long{n}").runs(2 * HOUR).submitted(LATE) for n in range(2)))
    s.submit(make_binding("short").runs(60).submitted("2026-01-03T00:00:00Z"))
    assert names(s.run()) == ["short"]


def test_older_work_of_another_queue_does_not_take_the_room_of_a_head() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_queue("other"), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR))
    s.run()
    s.submit(make_binding("head").tasks(2, gpu=8).submitted(LATE))
    s.run()
    s.submit(make_binding("older").queue("other").runs(2 * HOUR).submitted(EARLY))
    assert names(s.run()) == []
    assert s.verdict("older") is Reason.WOULD_DELAY


@pytest.mark.parametrize("known", [True, False], ids=["whose ends are known", "whose ends nobody knows"])
def test_a_head_that_quota_blocks_leaves_what_it_does_not_need(known: bool) -> None:
    """Of 8, 4 are used and the head wants 6: beside it there are 2, once it is known when it starts."""
    s = Scene(make_queue("q", gpu=8, view=BACKFILL), *(make_cluster(n) for n in "mn"), make_capacity("m", [32]))
    s.tell(make_capacity("n", [16]))
    runs = make_binding("runs").tasks(4)
    s.submit(runs.runs(HOUR) if known else runs)
    s.run()
    s.submit(make_binding("head").tasks(6).submitted(EARLY))
    s.run()
    s.submit(make_binding("two").tasks(2).submitted(LATE))
    assert names(s.run()) == (["two"] if known else [])
    s.submit(make_binding("one").submitted(LATE))
    assert names(s.run()) == []
    assert s.verdict("one") is Reason.WOULD_DELAY


@pytest.mark.parametrize("patience", [None, 600.0])
def test_a_new_head_takes_the_place_of_the_one_before_unless_that_has_waited_long_enough(
    patience: float | None,
) -> None:
    s = Scene(make_queue("q", view={**BACKFILL, "patience": patience}), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR))
    s.run()
    s.submit(make_binding("old").tasks(2, gpu=8).created(BORN))
    s.run(after=700.0)
    s.submit(make_binding("new").tasks(2, gpu=7).priority(1).created(LATE))
    s.run()
    assert ("uid-old" in s.core.reservations.made) == (patience is not None)


def test_where_a_member_put_the_pods_is_what_is_known_of_them() -> None:
    s = scene(room=(make_cluster("m"), named("m", [8, 8]))).submit(make_binding("a").tasks(1, gpu=8))
    s.run()
    assert [pods for _, pods in stays(s, "a").values()] == [[(0, 0, 1)]]
    s.bound("a", generation=2)
    s.change("a", nodes={"m": {"m-1": 1}})
    assert [pods for _, pods in stays(s, "a").values()] == [[(0, 1, 1)]]


def stays(s: Scene, name: str) -> Any:
    stay = s.core.reservations.timeline.get(f"uid-{name}")
    assert stay is not None
    return stay.parts


# -- when there is something to do -------------------------------------------------------------------------------------


def test_what_is_due_is_done_at_that_very_time() -> None:
    """A pass that came a moment too early would be asked for again and again."""
    s = scene().submit(make_binding("a"))
    s.decide()
    s.write(*s.answers[-1])
    due = s.core.next_deadline
    assert due is not None
    s.now = due
    assert evicted(s.run(after=0.0)) == ["a"]


def test_capacity_is_reserved_from_the_very_time_on_that_a_workload_has_waited_long_enough() -> None:
    s = Scene(make_queue("q", view={"patience": 600.0}), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR).created(BORN))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("head").tasks(2, gpu=8).created(BORN))
    s.run()
    s.run()
    assert s.core.next_deadline == START + 600
    s.now = START + 600
    s.run(after=0.0)
    assert list(s.core.reservations.made) == ["uid-head"]


def test_it_is_due_when_the_only_one_that_waits_has_waited_long_enough() -> None:
    s = Scene(make_queue("q", gpu=0, view={"patience": 600.0}), *ROOM).submit(make_binding("a").created(BORN))
    s.run()
    s.run()
    assert s.core.next_deadline == START + 600


def test_a_start_that_is_not_known_is_computed_again_after_a_second() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("runs").tasks(8))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("head").tasks(8))
    s.run()
    assert s.core.next_deadline == pytest.approx(s.now + 1.0, abs=0.001)


def test_a_member_that_has_told_nothing_yet_contains_nothing() -> None:
    """A decision of an earlier leader, listed before the member's figures, which are older than it."""
    earlier = scene().submit(make_binding("a").tasks(5))
    earlier.run()
    s = Scene(make_queue("q"), make_cluster("m"))
    s.see(dataclasses.replace(earlier.view("a"), placed={"m": (1, 5)}))
    s.tell(make_capacity("m", [8], generation=0)).submit(make_binding("b").tasks(5))
    assert names(s.run()) == []


def test_what_ends_a_moment_after_a_reserved_time_is_not_counted_on() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8, 8]))
    for name, gpus, seconds in (("all", 8, 101.0), ("half", 4, 100.0)):
        s.submit(make_binding(name).tasks(1, gpu=gpus).runs(seconds))
        assert names(s.run()) == [name]
    s.submit(make_binding("head").tasks(1, gpu=8).submitted(EARLY))
    s.run()
    s.submit(make_binding("long").tasks(1, gpu=4).submitted(LATE))
    assert names(s.run()) == []


def test_nodes_that_a_member_lost_are_in_no_future() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8, 8, 8]))
    s.submit(*(make_binding(f"r{n}").tasks(1, gpu=8).runs(HOUR) for n in range(3)))
    for name in names(s.run()):
        s.bound(name, generation=2)
    s.tell(make_capacity("m", [0], generation=2)).submit(make_binding("head").tasks(1, gpu=8))
    assert names(s.run()) == []
    [promise] = s.core.reservations.made.values()
    assert promise.first == pytest.approx(START + HOUR + 2, abs=1)


# -- who goes for others -----------------------------------------------------------------------------------------------


def full(*running: object, age: float = OLD) -> Scene:
    s = scene(room=(make_cluster("m"), make_capacity("m", [8]))).submit(*running)  # type: ignore[arg-type]
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.now += age
    return s


def test_work_of_negative_priority_is_evicted_for_that_of_none() -> None:
    s = full(make_binding("low").tasks(8).priority(-1))
    s.submit(make_binding("usual").tasks(8))
    assert evicted(s.run()) == ["low"]


def test_who_awaits_others_to_go_says_so_before_that_is_written() -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("high").tasks(8).priority(1))
    s.decide()
    assert s.verdict("high") is Reason.ASKING_MEMBERS


def test_what_is_over_is_no_victim() -> None:
    s = full(make_binding("a").tasks(4), make_binding("b").tasks(4))
    s.change("a", finished=True)
    s.gone("a")
    s.submit(make_binding("c").tasks(4))
    s.run()
    s.bound("c", generation=NEVER)
    s.submit(make_binding("high").tasks(8).priority(1))
    assert sorted(evicted(s.run(after=OLD))) == ["b", "c"]


def test_a_claimant_that_no_eviction_helps_is_tried_again_after_a_while() -> None:
    s = full(make_binding("firm").tasks(8).firm())
    s.submit(make_binding("high").tasks(8).priority(2))
    s.run()
    assert s.run() == []
    assert s.core.next_deadline == pytest.approx(s.now + HELPLESS, abs=0.01)


def test_what_is_no_longer_protected_goes_when_the_claimant_is_looked_at_again() -> None:
    s = full(make_binding("young").tasks(8), age=PROTECTION - 5)
    s.submit(make_binding("high").tasks(8).priority(1))
    assert evicted(s.run()) == []
    assert evicted(s.run(after=HELPLESS - 1)) == []
    assert evicted(s.run(after=2.0)) == ["young"]


def test_room_that_was_made_and_does_not_do_is_everybodys_a_moment_later() -> None:
    """Somebody else in the member took a part of it."""
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("high").tasks(8).priority(1))
    assert evicted(s.run()) == ["low"]
    s.change("low", released=s.view("low").generation, placed={})
    s.tell(make_capacity("m", [4], generation=NEVER)).submit(make_binding("small"))
    assert names(s.run()) == []
    assert names(s.run(after=2.5)) == ["small"]


def test_a_victim_leaves_room_under_a_ceiling_too() -> None:
    serving = {"members": {"m": Ceiling(capability={GPU: 4})}}
    s = Scene(make_queue("q", view=serving), make_cluster("m"), make_capacity("m", [4])).submit(
        make_binding("low").tasks(4)
    )
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("high").tasks(4).priority(1))
    assert evicted(s.run(after=OLD)) == ["low"]


def test_room_is_made_in_as_many_members_as_a_policy_asks_for() -> None:
    s = Scene(make_queue("q"), *(make_cluster(n) for n in "mn"), *(make_capacity(n, [4]) for n in "mn"))
    s.submit(*(make_binding(f"low{n}").tasks(4) for n in range(2)))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("high").tasks(4).priority(1).divided(least=2))
    commands = s.run(after=OLD)
    assert sorted(evicted(commands)) == ["low0", "low1"]
    told = explained(commands)["high"].decision
    assert told.blocker is not None
    assert told.blocker.name == "m, n"


def test_room_for_the_minimum_is_made_where_there_is_none_for_all() -> None:
    stage = Stage(QueueView("q", {}), m=[4], n=[3])
    stage.run("low", "q", {"m": {0: 4}})
    assert stage.claim("q", 12, minimum=4, divided=True, priority=1) == {"low": "all"}


def test_the_parts_of_a_divided_claimant_each_need_one_domain() -> None:
    stage = Stage(QueueView("q", {}), m={"r1": [4], "r2": [2]}, n={"r1": [4], "r2": [2]})
    for number, (member, node, pods) in enumerate([("m", 0, 4), ("m", 1, 2), ("n", 0, 4), ("n", 1, 2)]):
        stage.run(f"v{number}", "q", {member: {node: pods}})
    assert stage.claim("q", 8, divided=True, hard=1, priority=1) == {"v0": "all", "v2": "all"}


@pytest.mark.parametrize(
    ("pods", "gone", "left"),
    [
        pytest.param([(0, 1, 4), (1, 1, 2)], [(0, 1, 2)], [(0, 1, 2), (1, 1, 2)], id="of its own node alone"),
        pytest.param([(0, 1, 4), (0, 2, 4)], [(0, 2, 4)], [(0, 1, 4)], id="of its own size alone"),
        pytest.param([(0, 1, 2), (0, 1, 3)], [(0, 1, 3)], [(0, 1, 2)], id="never more than went"),
        pytest.param([(0, 1, 3)], [(0, 1, 1), (0, 1, 2)], [], id="all that went"),
    ],
)
def test_what_is_left_of_an_elastic_workload(pods: list[Any], gone: list[Any], left: list[Any]) -> None:
    """(node, GPUs of one, pods)."""
    of = [[(node, {GPU: gpus}, count) for node, gpus, count in each] for each in (pods, gone, left)]
    assert less(of[0], of[1]) == of[2]


def test_a_queue_to_which_nothing_is_due_lends_to_one_that_is_entitled() -> None:
    """Capacity is unknown and nobody beside q declares anything, so it has no entitlement to stay within."""
    views = [QueueView(name, {}) for name in ("p", "q")]
    stage = Stage(*views, QueueView("a", {}, parent="p", deserved={GPU: 4}), m=[4])
    stage.run("v", "q", {"m": {0: 4}})
    assert stage.claim("a", 2) == {"v": "all"}


# -- what is written ---------------------------------------------------------------------------------------------------


def test_the_budget_for_reasons_grows_with_time_and_with_dispatches_alone() -> None:
    s = scene().submit(*(make_binding(f"b{i:03d}").tasks(99) for i in range(80)))
    assert len(explained(s.run())) == 50
    assert s.run(after=0.0) == []
    more = round(2 / EXPLAIN_PER_DISPATCH)
    s.tell(make_capacity("m", [more], generation=2)).submit(*(make_binding(f"s{i}").priority(1) for i in range(more)))
    commands = s.run(after=0.0)
    assert (len(names(commands)), len(explained(commands))) == (more, 2)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(Verdict(Reason.NO_CLUSTER), Verdict(Reason.NO_CLUSTER), False, id="the same"),
        pytest.param(None, Verdict(Reason.NO_CLUSTER), True, id="the first"),
        pytest.param(Verdict(Reason.NO_CLUSTER), Verdict(Reason.AVOIDED), True, id="another reason"),
        pytest.param(lacks("m", "1"), lacks("m", "2"), False, id="another amount"),
        pytest.param(lacks("m", "1"), lacks("n", "1"), True, id="another member"),
        pytest.param(
            Verdict(Reason.INSUFFICIENT_RESOURCES), lacks("n", "1"), True, id="a blocker where there was none"
        ),
    ],
)
def test_what_is_worth_telling_again(one: Verdict | None, other: Verdict, expected: bool) -> None:
    assert differs(one, other) is expected


def test_the_whole_budget_is_for_held_work_as_well() -> None:
    s = scene().submit(*(make_binding(f"b{i:03d}").held() for i in range(51)))
    assert len(explained(s.run(after=0.0))) == 50


def test_reservations_of_a_divided_gang_wait_for_all_members() -> None:
    s = scene(room=(make_cluster("m"), make_cluster("n"), make_capacity("m", [4]), make_capacity("n", [4])))
    s.submit(make_binding("a").tasks(8).divided())
    s.run()
    assert s.core.next_deadline == pytest.approx(START + 10, abs=0.01)
    s.change("a", reserved={"m": MemberAnswer(True, 2)})
    assert evicted(s.run(after=9.9)) == []
    [command] = s.run(after=0.2)
    assert command.decision.story[-1].text == "no answer from n within 10 s"


@pytest.mark.parametrize(
    ("zone", "told"),
    [("near", Blocker("Cluster", "m", "pods", "9", "8")), ("far", Blocker("Cluster", "m"))],
    ids=["each task has nodes", "one task has none"],
)
def test_how_many_pods_a_member_holds_is_told_where_some_node_takes_each(zone: str, told: Blocker) -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [5, 3], labels={"zone": "near"})))
    s.submit(make_binding("a").tasks(8).tasks(1, node_selector={"zone": zone}))
    assert explained(s.run())["a"].decision.blocker == told
