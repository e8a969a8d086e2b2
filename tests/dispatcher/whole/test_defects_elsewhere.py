"""What goes wrong in the systems that Atoll replaces: one test for each defect that concerns queues and dispatch.

Each docstring names the system and what was read or seen there; the name of the test says what happens here.
"""

from __future__ import annotations

import dataclasses

import pytest

from atoll.dispatcher.core import (
    BindingSet,
    CapacityGone,
    ClusterSet,
    Dispatch,
    Event,
    Evict,
    MemberAnswer,
    QueueSet,
    Strategy,
)
from atoll.dispatcher.writes import patch_of
from atoll.model.decision import Decision
from atoll.model.queues import EVICT_TIMEOUT
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import (
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
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    named,
    names,
    scene,
)

BORN = "2027-01-15T08:00:00Z"
"""The time of `START`."""


def members(*free: int) -> list[Event]:
    """m1, m2 and so on, one node each."""
    events: list[Event] = []
    for number, gpus in enumerate(free, 1):
        events += [make_cluster(f"m{number}"), make_capacity(f"m{number}", [gpus])]
    return events


def deserves(name: str, gpus: int, *, priority: int = 0) -> QueueSet:
    return make_queue(name, priority=priority, view={"deserved": {GPU: gpus}})


# -- volcano-global: capacity and quota --------------------------------------------------------------------------------


def test_a_cluster_without_a_summary_stops_no_other() -> None:
    """volcano-global: one Cluster without `status.resourceSummary` ended the process."""
    s = scene(room=[make_cluster("m0"), *members(4)]).submit(make_binding("a").tasks(4), make_binding("b"))
    assert dispatched(s.run()) == [("a", "m1")]
    assert s.verdict("b") is Reason.INSUFFICIENT_RESOURCES


def test_nothing_is_dispatched_to_a_member_that_is_not_ready() -> None:
    """volcano-global, seen: a cluster that turns NotReady keeps counting, and work is still resumed into it."""
    s = scene(room=members(8, 4))
    s.tell(make_cluster("m1", ready=False)).submit(make_binding("large").tasks(8), make_binding("small").tasks(2))
    assert dispatched(s.run()) == [("small", "m2")]
    s.tell(make_cluster("m1"))
    assert dispatched(s.run()) == [("large", "m1")]


def test_a_part_is_not_started_in_a_member_that_turned_not_ready_since_it_reserved() -> None:
    """The same defect, one step later: reserved in both, and one of them is away when they are to start."""
    s = scene(room=members(4, 4)).submit(make_binding("a").tasks(8).divided())
    assert len(s.run()) == 1
    s.tell(make_cluster("m2", ready=False))
    s.change("a", reserved={"m1": MemberAnswer(True, 2), "m2": MemberAnswer(True, 2)})
    [command] = s.run()
    assert isinstance(command, Evict)
    assert command.decision.reason is Reason.CLUSTERS_NOT_READY
    assert command.decision.blocker == Blocker("Cluster", "m2")


def test_a_member_that_turns_not_ready_gives_no_quota_back() -> None:
    """volcano-global: what is charged follows the state of clusters, so others are admitted beside it."""
    s = Scene(make_queue("q", gpu=4), *members(4, 4)).submit(make_binding("a").tasks(4))
    [(_, home)] = dispatched(s.run())
    s.bound("a", generation=2)
    s.tell(make_cluster(home, ready=False)).submit(make_binding("b").tasks(4))
    assert names(s.run()) == []
    assert s.used("q") == 4


def test_a_member_that_was_lost_and_is_back_runs_nothing_twice() -> None:
    """Karmada's failover: moved elsewhere while the old pods go on, and counted twice when the cluster is back."""
    s = scene(room=members(4, 4)).submit(make_binding("a").tasks(4))
    [(_, home)] = dispatched(s.run())
    s.bound("a", generation=2)
    for ready in (False, True):
        s.tell(make_cluster(home, ready=ready))
        assert s.run() == []
    s.tell(make_capacity(home, [0], generation=2)).submit(make_binding("b").tasks(4))
    assert dispatched(s.run()) == [("b", "m1" if home == "m2" else "m2")]
    assert s.used("q") == 8


def test_a_completed_workload_gives_its_quota_back_before_it_is_deleted() -> None:
    """volcano-global, seen: status and phase are not read, a completed job holds its quota until its binding goes."""
    s = Scene(make_queue("q", gpu=4), *ROOM).submit(make_binding("done").tasks(4), make_binding("next").tasks(4))
    assert names(s.run()) == ["done"]
    s.change("done", finished=True)
    assert names(s.run()) == ["next"]
    assert s.used("q") == 4
    # And its deletion, whenever it comes, gives nothing back a second time.
    s.gone("done")
    assert s.used("q") == 4


def test_a_finished_workload_is_never_run_again() -> None:
    """Karmada: a job that its time to live removes in the member is made there again; HyperJob's children likewise."""
    s = scene().submit(make_binding("done"))
    s.run()
    view = s.change("done", finished=True)
    s.see(dataclasses.replace(view, suspended=True))
    assert s.run() == []
    later = scene()
    later.see(view)
    assert later.run() == []
    assert later.used("q") == 0


def test_work_that_can_not_start_does_not_keep_its_quota() -> None:
    """volcano-global: it never suspends again; what its member can't place sits there and holds its quota."""
    s = Scene(make_queue("q", gpu=4), *members(4, 4)).submit(make_binding("stuck").tasks(4))
    [(_, home)] = dispatched(s.run())
    assert evicted(s.run(after=31)) == ["stuck"]
    s.submit(make_binding("next").tasks(4).priority(1))
    assert dispatched(s.run()) == []
    s.change("stuck", released=s.view("stuck").generation)
    assert names(s.run()) == ["next"]
    assert s.view("stuck").parts == ()
    assert home == "m1"


def test_all_tasks_of_a_workload_are_charged() -> None:
    """volcano-global: the interpreter reads the first task alone."""
    s = Scene(make_queue("q", gpu=16), *members(16)).submit(make_binding("a").tasks(1).tasks(4, gpu=2))
    assert names(s.run()) == ["a"]
    assert s.used("q") == 9


def test_what_fits_the_sum_and_no_member_is_not_admitted() -> None:
    """volcano-global: capacity is one sum over clusters, so work is resumed that fits none of them."""
    s = scene(room=members(4, 4)).submit(make_binding("a").tasks(6))
    assert names(s.run()) == []
    assert (s.used("q"), s.verdict("a")) == (0, Reason.INSUFFICIENT_RESOURCES)


@pytest.mark.parametrize("closed", ["q", "above"])
def test_a_closed_queue_dispatches_nothing(closed: str) -> None:
    """volcano-global: `status.state` is not read."""
    s = Scene(make_queue("above"), make_queue("q", view={"parent": "above"}), make_queue("other"), *ROOM)
    s.submit(make_binding("a"))
    view = {"parent": "above"} if closed == "q" else {}
    s.tell(make_queue(closed, is_open=False, view=view)).submit(make_binding("b").queue("other"))
    assert names(s.run()) == ["b"]
    s.decide()
    assert s.verdict("a") is Reason.QUEUE_CLOSED


# -- volcano-global: order and starvation ------------------------------------------------------------------------------


def test_a_queue_of_higher_priority_goes_before_not_in_turns() -> None:
    """volcano-global: one job per queue and round, so a queue of lower priority interleaves one to one."""
    s = scene(make_queue("high", priority=1), room=members(4))
    s.submit(*(make_binding(f"low{n}").submitted(EARLY) for n in range(3)))
    s.submit(*(make_binding(f"high{n}").queue("high").submitted(LATE) for n in range(3)))
    assert names(s.run()) == ["high0", "high1", "high2", "low0"]


def stream(strategy: Strategy, *, patience: float | None = None) -> tuple[list[str], float | None]:
    """(small jobs that went before the head, when it started): the head wants 7 of 8 GPUs, and whenever a small job
    ends the next one arrives.
    """
    view = {"strategy": strategy, "patience": patience}
    s = Scene(make_queue("q", gpu=8, view=view), make_cluster("m"), make_capacity("m", [16]))
    s.submit(*(make_binding(f"first{n}").runs(60).created(BORN) for n in range(4)))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("head").tasks(7).runs(60).created(BORN))
    passed: list[str] = []
    for number in range(59):
        s.submit(make_binding(f"small{number:02}").runs(60).created(f"2027-01-15T09:00:{number:02}Z"))
        went = names(s.run(after=15))
        if "head" in went:
            return passed, s.now - START
        passed += went
        for name in went:
            s.bound(name, generation=NEVER)
        running = [view.name for view in s.views.values() if not view.suspended and not view.finished]
        if running:
            s.change(running[0], finished=True)
    return passed, None


def test_the_head_that_most_of_its_queue_must_end_for_is_passed_by_all_where_all_may_pass() -> None:
    """volcano-global, seen: overtaken by 59 of 59 later small jobs. `traverse` promises no more than that."""
    passed, started = stream(Strategy.TRAVERSE)
    assert started is None
    assert len(passed) >= 57


@pytest.mark.parametrize(
    ("strategy", "patience", "latest"),
    [
        pytest.param(Strategy.FIFO, None, 75.0, id="fifo"),
        pytest.param(Strategy.BACKFILL, None, 75.0, id="backfill"),
        pytest.param(Strategy.TRAVERSE, 120.0, 255.0, id="a waiting time of two minutes"),
    ],
)
def test_a_head_that_needs_most_of_its_queue_is_not_overtaken_for_ever(
    strategy: Strategy, patience: float | None, latest: float
) -> None:
    """The same stream."""
    _, started = stream(strategy, patience=patience)
    assert started is not None
    assert started <= latest + 1


def test_room_that_is_kept_for_a_head_is_kept_by_the_next_leader() -> None:
    """Volcano: a reservation lives for one session."""
    s = Scene(make_queue("q", view={"strategy": Strategy.BACKFILL}), make_cluster("m"), named("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(60).created(BORN))
    s.run()
    s.tell(named("m", [0, 8], generation=2))
    s.change("runs", placed={"m": (2, 1)}, nodes={"m": {"m-0": 1}})
    s.submit(make_binding("head").tasks(2, gpu=8).submitted(LATE))
    s.run()
    later = Scene(
        *(event for event in s.log if isinstance(event, QueueSet | ClusterSet)), named("m", [0, 8], generation=2)
    )
    for view in s.views.values():
        later.see(view)
    later.submit(make_binding("long").runs(3600).submitted("2026-01-03T00:00:00Z"))
    assert names(later.run()) == []
    assert later.verdict("long") is Reason.WOULD_DELAY


def test_freed_quota_wakes_who_waits_for_it_at_once() -> None:
    """Karmada: nothing wakes a parked binding but time; volcano-global looks once a second."""
    s = Scene(make_queue("q", gpu=4), *ROOM).submit(make_binding("a").tasks(4), make_binding("b").tasks(4))
    s.run()
    s.run()
    s.change("a", finished=True)
    assert names(s.run(after=0.001)) == ["b"]


def test_freed_room_wakes_who_waits_for_it_at_once() -> None:
    """The same, of nodes."""
    s = scene().submit(make_binding("a").tasks(8), make_binding("b").tasks(8))
    s.run()
    s.run()
    s.change("a", finished=True)
    assert names(s.run(after=0.001)) == ["b"]


# -- volcano-global: writes that meet others ---------------------------------------------------------------------------


def test_an_update_while_a_dispatch_is_under_way_admits_nothing_beside_it() -> None:
    """volcano-global: it rewrites the state to Suspended, the use drops, and another job is admitted too.

    1. a is dispatched, the patch is under way. 2. Somebody changes a label of a. 3. The patch arrives.
    """
    s = Scene(make_queue("q", gpu=4), *ROOM).submit(make_binding("a").tasks(4), make_binding("b").tasks(4))
    [command] = [each for each in s.decide() if isinstance(each, Dispatch)]
    s.tell(BindingSet(s.view("a")))
    assert (names(s.decide()), s.used("q")) == ([], 4)
    s.write(command)
    assert (names(s.decide()), s.used("q")) == ([], 4)


def test_a_binding_that_is_deleted_under_way_and_made_again_is_dispatched() -> None:
    """volcano-global: its key stays in process for good, and the new one is never resumed."""
    s = scene().submit(make_binding("a").uid("old"))
    [command] = s.decide()
    s.gone("a")
    s.submit(make_binding("a").uid("new"))
    s.refuse(command)
    assert [each.uid for each in s.decide()] == ["new"]


def test_a_placement_of_another_scheduler_survives_and_is_charged() -> None:
    """Karmada: the detector writes its own placement over one that was put there by others."""
    view = dataclasses.replace(
        make_binding("theirs").tasks(4).build(), suspended=False, parts=(("m1", (4,)),), decision=Decision()
    )
    s = Scene(make_queue("q", gpu=8), *members(8))
    for _ in range(3):
        s.see(view)
        assert s.run(after=OLD) == []
    assert s.used("q") == 4
    s.submit(make_binding("a").tasks(5), make_binding("b").tasks(4))
    assert names(s.run()) == ["b"]


def test_lifting_the_suspension_keeps_what_else_is_suspended() -> None:
    """volcano-global: the whole of `spec.suspension` is replaced, so a suspended dispatching is lost."""
    s = scene().submit(make_binding("a"))
    [command] = s.decide()
    touched = [each["path"] for each in patch_of(command) if each["op"] != "test" and "suspension" in each["path"]]
    assert touched == ["/spec/suspension/scheduling"]


# -- gangs over several members ----------------------------------------------------------------------------------------


def test_the_minimums_of_the_parts_add_up_to_the_gangs() -> None:
    """volcano-global: the first task's replicas are divided and `minAvailable` is not, which Volcano refuses."""
    gang = make_binding("a").tasks(4, minimum=3).tasks(8, minimum=4).minimum(9)
    s = scene(room=members(6, 3, 3)).submit(gang.divided())
    assert len(s.run()) == 1
    parts = s.core.bindings["uid-a"].parts.values()
    assert sum(part.min_available for part in parts) == 9
    assert [sum(part.tasks[task].min_available for part in parts) for task in (0, 1)] == [3, 4]
    assert all(part.min_available <= part.replicas for part in parts)


def test_one_part_that_is_refused_takes_all_back_and_the_whole_goes_elsewhere_with_its_age() -> None:
    """HyperJob: each part is admitted alone; one that its member refuses leaves the others running for nothing."""
    s = scene(room=members(4, 4, 4)).submit(make_binding("a").tasks(8).divided().submitted(EARLY))
    assert len(s.run()) == 1
    s.change("a", reserved={"m1": MemberAnswer(True, 2), "m2": MemberAnswer(False, 0, 4, 3)})
    s.submit(make_binding("younger").tasks(8).divided().submitted(LATE))
    assert evicted(s.run()) == ["a"]
    s.change("a", released=s.view("a").generation, reserved={})
    [command] = [each for each in s.run() if isinstance(each, Dispatch)]
    assert command.name == "a"
    assert [part.cluster for part in command.parts] == ["m1", "m3"]


def test_a_member_that_tells_nothing_of_its_nodes_stops_no_other() -> None:
    """Karmada: with one estimator down, bindings wait for its answer or go where there is no room."""
    s = scene(room=members(8, 4)).tell(CapacityGone("m1", ""))
    s.submit(make_binding("a").tasks(4), make_binding("b").tasks(4))
    assert dispatched(s.run()) == [("a", "m2")]
    s.tell(make_capacity("m1", [8], generation=2))
    assert dispatched(s.run()) == [("b", "m1")]


# -- Volcano -----------------------------------------------------------------------------------------------------------


def test_a_full_parent_does_not_keep_an_entitled_queue_from_reclaim() -> None:
    """Volcano: enqueue asks for room in the queues above before reclaim may make it; between leaves of one parent
    reclaim is off unless it is switched on.
    """
    tree = (
        make_queue("p", gpu=8),
        make_queue("q1", view={"parent": "p", "deserved": {GPU: 4}}),
        make_queue("q2", view={"parent": "p", "deserved": {GPU: 4}}),
    )
    s = Scene(*tree, make_cluster("m"), make_capacity("m", [16]))
    s.submit(*(make_binding(f"r{n}").queue("q1").tasks(2) for n in range(4)))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("a").queue("q2").tasks(4))
    assert len(evicted(s.run(after=OLD))) == 2


def test_one_bad_queue_stops_no_other() -> None:
    """Volcano: the capacity plugin gives up the session for all when the hierarchy is wrong in one place."""
    bad = [make_queue("x", view={"parent": "y"}), make_queue("y", view={"parent": "x"})]
    s = Scene(*bad, make_queue("lost", view={"parent": "nowhere"}), make_queue("q"), *ROOM)
    s.submit(*(make_binding(f"in-{name}").queue(name) for name in ("x", "lost")), make_binding("a"))
    assert names(s.run()) == ["a"]
    s.decide()
    assert [s.verdict(f"in-{name}") for name in ("x", "lost")] == [Reason.QUEUE_INVALID] * 2


def test_a_gang_is_evicted_whole() -> None:
    """Volcano: victims are pods, and a gang that loses some of them runs on for nothing."""
    s = Scene(make_queue("q"), *members(4, 4)).submit(make_binding("low").tasks(8).divided())
    s.run()
    s.change("low", reserved={"m1": MemberAnswer(True, NEVER), "m2": MemberAnswer(True, NEVER)})
    s.run()
    s.change("low", placed={"m1": (NEVER, 4), "m2": (NEVER, 4)}, bound=True)
    s.submit(make_binding("high").tasks(1).priority(1))
    [command] = [each for each in s.run(after=OLD) if isinstance(each, Evict)]
    s.change("low", released=s.view("low").generation, placed={})
    assert (command.name, s.used("q")) == ("low", 0)
    assert names(s.run()) == ["high"]


@pytest.mark.parametrize("leader", ["the same", "the next"])
def test_the_room_that_was_made_is_the_claimants_whoever_leads(leader: str) -> None:
    """Volcano: what was nominated lives in the scheduler's memory.

    1. low is evicted for high. 2. The leader dies, another one lists everything. 3. Half of the room is there, and a small
    job whose queue goes first.
    """
    s = Scene(make_queue("q"), make_queue("other", priority=1), make_cluster("m"), named("m", [4, 4]))
    s.submit(make_binding("low").tasks(8))
    s.run()
    s.bound("low", generation=2)
    s.tell(named("m", [0, 0], generation=2))
    s.submit(make_binding("high").tasks(2, gpu=4).priority(1).submitted(LATE))
    assert evicted(s.run(after=OLD)) == ["low"]
    assert s.view("high").decision.reason is Reason.AWAITING_VICTIMS
    if leader == "the next":
        told = [event for event in s.log if isinstance(event, QueueSet | ClusterSet)]
        later = Scene(*told)
        later.now = s.now
        for view in s.views.values():
            later.see(view)
        s = later
    s.change("low", placed={}, released=s.view("low").generation)
    s.tell(named("m", [4, 0], generation=3)).submit(make_binding("small").queue("other"))
    assert names(s.run()) == []
    s.tell(named("m", [4, 4], generation=4))
    assert names(s.run()) == ["high"]


def test_a_claimant_whose_room_went_to_others_tries_again() -> None:
    """Volcano: a claimant whose nomination is lost preempts anew in the next session.

    1. first is evicted for the claimant. 2. Its pods take longer to end than anybody waits for. 3. It goes before the
    claimant, by its queue's priority, and is old enough once more.
    """
    s = Scene(deserves("q1", 2), deserves("q2", 0, priority=1), make_cluster("m"), make_capacity("m", [2]))
    s.submit(make_binding("first").queue("q2").tasks(2))
    for generation in (2, 4):
        assert names(s.run(after=OLD)) == ["first"]
        s.bound("first", generation=generation)
        s.tell(make_capacity("m", [0], generation=generation))
        if not s.used("q1"):
            s.submit(make_binding("claimant").queue("q1"))
        assert evicted(s.run(after=OLD)) == ["first"]
        s.now += EVICT_TIMEOUT
        s.run()
        s.change("first", released=s.view("first").generation, placed={})
        s.tell(make_capacity("m", [2], generation=generation + 1))
