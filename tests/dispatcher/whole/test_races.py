"""Races, deadlines, and what is under way: the core when watches, writes and members are late."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core import (
    BindingGone,
    BindingSet,
    ClusterGone,
    Explain,
    Refused,
    Strategy,
)
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.decision import Phase
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    EARLY,
    LATE,
    ROOM,
    Scene,
    dispatched,
    evicted,
    explained,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
    two_members,
)

AVOID_FIRST = CoreSettings().avoided.pause
AVOID_MAX = CoreSettings().avoided.longest_pause

# -- races ---------------------------------------------------------------------------------------------------------------


def test_a_stale_watch_event_does_not_undo_a_decision() -> None:
    """1. The core dispatches a, the patch is under way. 2. The watch delivers a as it was before. 3. Nothing is decided anew."""
    s = scene().submit(make_binding("a").tasks(5))
    [command] = s.decide()
    s.tell(BindingSet(s.view("a")))
    assert s.decide() == []
    assert s.used("q") == 5
    s.submit(make_binding("b").tasks(5))
    assert names(s.decide()) == []
    s.write(command)
    assert s.decide() == []


def test_a_refused_dispatch_is_decided_again_on_what_is_there_now() -> None:
    """1. Dispatch on generation 1. 2. Somebody edits: generation 2. 3. The patch is refused. 4. Dispatch on generation 2."""
    s = scene().submit(make_binding("a"))
    [first] = s.decide()
    s.change("a", generation=2)
    s.refuse(first)
    assert s.used("q") == 0
    [second] = s.decide()
    assert (second.epoch, second.generation, second.decision.epoch) == (0, 2, 1)


def test_a_refused_dispatch_gives_back_the_room_that_it_had_taken() -> None:
    s = Scene(make_queue("q", gpu=8), *ROOM).submit(make_binding("a").tasks(8).submitted(EARLY))
    [first] = s.decide()
    s.submit(make_binding("b").tasks(8).submitted(LATE))
    assert names(s.decide()) == []
    s.gone("a")
    s.tell(Refused(first.uid, 1))
    assert names(s.decide()) == ["b"]


def test_a_refusal_of_an_older_command_changes_nothing() -> None:
    s = scene().submit(make_binding("a"))
    [first] = s.run()
    s.tell(Refused("uid-a", first.decision.epoch + 1), Refused("nobody", 1))
    assert s.used("q") == 1
    assert s.decide() == []


def test_a_refusal_after_the_write_was_seen_changes_nothing() -> None:
    """1. The patch is applied, its answer lost. 2. The watch shows it. 3. The second try is refused by its own epoch test."""
    s = scene().submit(make_binding("a"))
    [first] = s.run()
    s.refuse(first)
    assert (s.used("q"), s.decide()) == (1, [])


def test_a_refused_explanation_is_told_again() -> None:
    s = scene().submit(make_binding("a").tasks(99))
    [first] = s.decide()
    assert isinstance(first, Explain)
    s.refuse(first)
    assert list(explained(s.decide())) == ["a"]


def test_a_refused_explanation_is_told_again_though_its_queue_changed_meanwhile() -> None:
    """1. The head of a strict queue is told why it waits. 2. It is to be looked at again. 3. The patch is refused."""
    strict = {"strategy": Strategy.FIFO}
    s = scene(make_queue("q", is_open=False, view=strict)).submit(make_binding("a"))
    [first] = s.decide()
    s.tell(make_queue("q", is_open=False, view=strict, gpu=3))
    s.refuse(first)
    assert list(explained(s.decide())) == ["a"]


def test_an_edit_that_can_not_be_read_while_a_dispatch_is_under_way_leaves_no_charge() -> None:
    """1. Dispatch under way. 2. The gang annotation becomes nonsense. 3. The patch is refused."""
    s = scene().submit(make_binding("a"))
    [first] = s.decide()
    s.change("a", gang=None, generation=2)
    s.refuse(first)
    assert s.used("q") == 0


def test_a_binding_under_way_that_becomes_unreadable_and_is_deleted_leaves_no_charge() -> None:
    s = scene().submit(make_binding("a"))
    s.decide()
    s.change("a", gang=None)
    s.gone("a")
    assert s.used("q") == 0


def test_a_running_workload_whose_gang_becomes_unreadable_stops_no_other() -> None:
    s = scene().submit(make_binding("a"))
    s.run()
    s.change("a", gang=None)
    assert names(s.submit(make_binding("b")).run()) == ["b"]


def test_a_decision_of_an_earlier_leader_is_adopted_and_charged() -> None:
    earlier = scene().submit(make_binding("a").tasks(5))
    earlier.run()
    s = Scene(make_queue("q", gpu=8), *ROOM)
    s.see(earlier.view("a"))
    assert s.used("q") == 5
    s.submit(make_binding("b").tasks(4), make_binding("c").tasks(3))
    assert names(s.run()) == ["c"]


@pytest.mark.parametrize("first", ["binding", "cluster", "capacity"])
def test_an_earlier_leaders_decision_is_subtracted_whatever_is_listed_first(first: str) -> None:
    earlier = scene().submit(make_binding("a").tasks(5))
    earlier.run()
    events = {"binding": BindingSet(earlier.view("a")), "cluster": ROOM[0], "capacity": ROOM[1]}
    s = Scene(make_queue("q"), events.pop(first), *events.values())  # type: ignore[arg-type]
    s.submit(make_binding("b").tasks(4))
    assert names(s.run()) == []
    s.submit(make_binding("c").tasks(3))
    assert names(s.run()) == ["c"]


def test_a_cluster_object_that_is_made_again_does_not_forget_what_is_under_way() -> None:
    s = scene().submit(make_binding("a").tasks(5))
    s.run()
    s.tell(ClusterGone("m"), *ROOM).submit(make_binding("b").tasks(4))
    assert names(s.run()) == []


def test_a_binding_that_is_made_again_under_its_name_is_a_new_one() -> None:
    s = Scene(make_queue("q", gpu=1), *ROOM).submit(make_binding("a").uid("old"))
    s.run()
    s.gone("a")
    s.submit(make_binding("a").uid("new"))
    [command] = s.run()
    assert (command.uid, command.epoch) == ("new", 0)
    s.tell(BindingGone("old"))
    assert s.used("q") == 1


def test_a_binding_that_vanishes_while_its_dispatch_is_under_way_leaves_nothing() -> None:
    s = scene().submit(make_binding("a").tasks(8))
    [command] = s.decide()
    s.gone("a")
    s.tell(Refused(command.uid, command.decision.epoch))
    assert names(s.submit(make_binding("b").tasks(8)).decide()) == ["b"]


# -- what is under way in a member -----------------------------------------------------------------------------------------


def test_a_burst_does_not_overcommit() -> None:
    s = scene().submit(*(make_binding(f"b{i}").tasks(3) for i in range(5)))
    assert len(names(s.run())) == 2


def test_a_decision_counts_until_the_members_figures_contain_it_and_never_twice() -> None:
    """1. Dispatch of 5 of 8. 2. Bound, contained in generation 2. 3. Generation 2 says 3 free. 4. 3 more fit, 4 do not."""
    s = scene().submit(make_binding("a").tasks(5))
    s.run()
    s.bound("a", generation=2)
    s.submit(make_binding("b").tasks(4))
    assert names(s.run()) == []
    s.tell(make_capacity("m", [3], generation=2))
    assert names(s.run()) == []
    s.submit(make_binding("c").tasks(3))
    assert names(s.run()) == ["c"]


def test_the_figures_may_arrive_before_the_report() -> None:
    """1. Generation 2 contains the pods already. 2. Only then the report says so. 3. What is free by it fits."""
    s = scene().submit(make_binding("a").tasks(5))
    s.run()
    s.tell(make_capacity("m", [3], generation=2))
    s.bound("a", generation=2)
    assert names(s.submit(make_binding("c").tasks(3)).run()) == ["c"]


def test_figures_with_only_some_of_the_pods_do_not_free_the_room_of_the_rest() -> None:
    """1. 8 pods for 8 GPUs. 2. Figures contain 6 of them. 3. The last 2 GPUs are spoken for."""
    s = scene().submit(make_binding("a").tasks(8))
    s.run()
    s.tell(make_capacity("m", [2], generation=2)).submit(make_binding("b").tasks(2))
    assert names(s.run()) == []


def test_a_newer_figure_that_does_not_contain_it_yet_still_has_it_subtracted() -> None:
    s = scene().submit(make_binding("a").tasks(5))
    s.run()
    s.tell(make_capacity("m", [8], generation=2)).submit(make_binding("b").tasks(4))
    assert names(s.run()) == []


def test_all_objects_of_a_member_must_have_reached_the_generation() -> None:
    s = scene(
        room=(make_cluster("m"), make_capacity("m", {"r1": [4]}, root="A"), make_capacity("m", {"r2": [4]}, root="B"))
    )
    s.submit(make_binding("a").tasks(4))
    s.run()
    s.bound("a", generation=2)
    s.tell(make_capacity("m", {"r1": [4]}, root="A", generation=2)).submit(make_binding("b").tasks(8))
    assert names(s.run()) == []


# -- deadlines -----------------------------------------------------------------------------------------------------------


def test_a_gang_that_is_not_bound_in_time_is_evicted_and_goes_elsewhere_with_its_age() -> None:
    """1. Dispatch to m1. 2. 30 s pass. 3. Evict. 4. The member lets go. 5. Dispatch to m2, before younger work."""
    s = two_members()
    due = s.core.next_deadline
    assert due == pytest.approx(s.now + 30, abs=0.002)
    [command] = s.run(after=30.1)
    assert evicted([command]) == ["a"]
    assert (command.epoch, command.decision.epoch, command.decision.phase) == (1, 2, Phase.EVICTING)
    assert command.decision.story[-1].reason is Reason.DEADLINE_EXCEEDED
    assert "m1" in command.decision.story[-1].text
    assert s.used("q") == 4
    assert s.run() == []
    s.submit(make_binding("young").tasks(8).submitted(LATE).affinity(clusterNames=["m2"]))
    s.change("a", released=s.view("a").generation)
    assert s.used("q") == 0
    assert dispatched(s.run())[0] == ("a", "m2")
    assert s.view("a").epoch == 3


def test_an_evicted_gang_avoids_its_cluster_until_its_figures_change() -> None:
    s = two_members()
    s.run(after=30.1)
    s.tell(make_cluster("m2", ready=False))
    s.change("a", released=s.view("a").generation)
    assert names(s.run()) == []
    s.tell(make_capacity("m1", [5], generation=2))
    assert dispatched(s.run()) == [("a", "m1")]


def test_an_evicted_gang_comes_back_when_its_cluster_publishes_again_even_with_equal_figures() -> None:
    s = two_members()
    s.run(after=30.1)
    s.tell(make_cluster("m2", ready=False))
    s.change("a", released=s.view("a").generation)
    assert names(s.run()) == []
    s.decide()
    s.tell(make_capacity("m1", [4], generation=2))
    assert dispatched(s.run()) == [("a", "m1")]


def test_an_evicted_gang_is_tried_again_after_a_while_though_nothing_changes_and_then_less_often() -> None:
    s = scene().submit(make_binding("a"))
    assert names(s.run()) == ["a"]
    pauses = []
    for _ in range(3):
        assert evicted(s.run(after=30.1)) == ["a"]
        s.change("a", released=s.view("a").generation)
        assert names(s.run()) == []
        due = s.core.next_deadline
        assert due is not None
        assert due <= s.now + 1.5 * AVOID_MAX
        failed = s.now
        while not names(s.run(after=0.5)):
            assert s.now < failed + AVOID_MAX, "it is never tried again"
        pauses.append(s.now - failed)
    assert AVOID_FIRST <= pauses[0] <= 1.5 * AVOID_FIRST + 1
    assert pauses[0] < pauses[1] < pauses[2]


def test_gangs_that_fail_together_count_as_one_failure() -> None:
    gangs = [f"g{number}" for number in range(8)]
    s = scene().submit(*(make_binding(name) for name in gangs))
    assert len(names(s.run())) == len(gangs)
    assert len(evicted(s.run(after=30.1))) == len(gangs)
    failed = s.now
    for name in gangs:
        s.change(name, released=s.view(name).generation)
    while not names(s.run(after=0.5)):
        assert s.now < failed + AVOID_MAX, "they are never tried again"
    assert s.now <= failed + 1.5 * max(AVOID_FIRST, CoreSettings().breakers.pause) + 1


def test_an_avoided_cluster_is_not_reported_as_one_that_the_policy_excludes() -> None:
    s = scene().submit(make_binding("a"))
    s.run()
    s.run(after=30.1)
    s.change("a", released=s.view("a").generation)
    s.run()
    s.decide()
    assert s.verdict("a") is not Reason.NO_CLUSTER


def test_other_shapes_may_use_the_avoided_cluster() -> None:
    s = two_members()
    s.run(after=30.1)
    s.change("a", released=s.view("a").generation)
    s.submit(make_binding("b").tasks(1).affinity(clusterNames=["m1"]))
    assert ("b", "m1") in dispatched(s.run())


def test_room_of_an_evicted_gang_stays_taken_until_its_member_let_go() -> None:
    s = scene().submit(make_binding("a").tasks(8))
    s.run()
    s.submit(make_binding("b").tasks(4, gpu=2).priority(1))
    commands = s.run(after=30.1)
    assert evicted(commands) == ["a"]
    assert names(commands) == []
    s.decide()
    s.change("a", released=s.view("a").generation)
    assert names(s.run()) == ["b"]


def test_a_bound_gang_has_no_deadline() -> None:
    s = two_members()
    s.bound("a", generation=2)
    assert s.core.next_deadline is None
    assert s.run(after=100) == []


def test_a_gang_with_its_minimum_bound_is_bound() -> None:
    s = scene().submit(make_binding("a").tasks(6).minimum(4))
    s.run()
    s.bound("a", generation=2, pods=4)
    assert s.run(after=100) == []


def test_a_gang_with_fewer_than_its_minimum_bound_is_evicted() -> None:
    s = scene().submit(make_binding("a").tasks(6).minimum(4))
    s.run()
    s.bound("a", generation=2, pods=3)
    assert evicted(s.run(after=31)) == ["a"]


def test_a_running_gang_is_not_evicted_when_its_first_pods_complete() -> None:
    """1. All 4 pods bound. 2. One completes, so 3 are still placed. 3. The deadline of the dispatch has passed long ago."""
    s = scene().submit(make_binding("a").tasks(4))
    s.run()
    s.bound("a", generation=2)
    s.run(after=60)
    s.bound("a", generation=3, pods=3)
    assert s.run(after=60) == []


def test_a_running_gang_is_not_counted_again_when_its_first_pods_complete() -> None:
    s = scene().submit(make_binding("a").tasks(4))
    s.run()
    s.bound("a", generation=2)
    s.tell(make_capacity("m", [4], generation=2))
    s.bound("a", generation=3, pods=3)
    s.tell(make_capacity("m", [5], generation=3)).submit(make_binding("b").tasks(5))
    assert names(s.run()) == ["b"]


def test_an_unfinished_write_at_the_deadline_is_judged_once_it_is_seen() -> None:
    """1. Dispatch, its write hangs. 2. The deadline passes. 3. The write appears. 4. Only now it is taken back."""
    s = scene().submit(make_binding("a"))
    [command] = s.decide()
    assert s.decide(after=31) == []
    s.write(command)
    assert evicted(s.decide()) == ["a"]


def test_a_refused_eviction_is_decided_again() -> None:
    s = two_members()
    [command] = s.decide(after=31)
    s.change("a", generation=9)
    s.refuse(command)
    [again] = s.decide()
    assert (evicted([again]), again.generation, again.decision.epoch) == (["a"], 9, 2)


def test_an_old_release_does_not_end_a_new_eviction() -> None:
    """1. Evicted, released, dispatched again. 2. Evicted again. 3. The first release does not count."""
    s = two_members()
    s.run(after=31)
    s.change("a", released=s.view("a").generation)
    assert names(s.run()) == ["a"]
    assert evicted(s.run(after=31)) == ["a"]
    assert s.used("q") == 4
