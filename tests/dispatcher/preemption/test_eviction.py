"""Workloads that go so that others can start: who, why, who then gets the room, and that it ends."""

from __future__ import annotations

import dataclasses
import math

import pytest

from atoll.dispatcher.core import Ask, CapacityGone, Command, Dispatcher, Evict, Explain, QueueSet
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.queues import EVICT_TIMEOUT
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    GPU,
    LATE,
    NEVER,
    OLD,
    BindingBuilder,
    Scene,
    dispatched,
    evicted,
    explained,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    named,
    names,
    share,
)

SETTLE = CoreSettings().backfill.settle
AGAIN = CoreSettings().backfill.again
TAKEN_BACK = CoreSettings().backfill.reclaimed
GRACE = CoreSettings().backfill.grace
SEARCH_BURST = CoreSettings().preemption.burst
SEARCHES_PER_SECOND = CoreSettings().preemption.searches

HOUR = 3600.0


def full(*running: BindingBuilder, queues: tuple[QueueSet, ...] = (make_queue("q"),), age: float = OLD) -> Scene:
    """One member of two nodes with 4 GPUs each, and what runs there for so long."""
    s = Scene(*queues, make_cluster("m"), make_capacity("m", [4, 4]))
    s.submit(*running)
    assert len(names(s.run())) == len(running)
    for binding in running:
        s.bound(binding.build().name, generation=NEVER)
    s.now += age
    return s


def reasons(commands: list[Command]) -> dict[str, Reason]:
    return {c.name: c.decision.reason for c in commands if isinstance(c, Evict)}


def test_a_higher_priority_takes_from_a_lower_one_of_its_queue() -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("high").tasks(4).priority(1).submitted(LATE))
    commands = s.run()
    assert reasons(commands) == {"low": Reason.PREEMPTED}
    assert explained(commands)["high"].decision.reason is Reason.AWAITING_VICTIMS
    assert names(s.run()) == []
    let_go(s, "low")
    assert names(s.run()) == ["high"]
    s.bound("high", generation=NEVER)
    # The victim is back in its queue with its age, and takes nothing back.
    assert s.view("low").suspended
    assert evicted(s.run(after=OLD)) == []


@pytest.mark.parametrize(
    ("running", "age"),
    [
        pytest.param(make_binding("r").tasks(8).priority(1), OLD, id="one of equal priority"),
        pytest.param(make_binding("r").tasks(8).firm(), OLD, id="one that its user made firm"),
        pytest.param(make_binding("r").tasks(8), 10.0, id="one that has just started"),
    ],
)
def test_who_is_not_preempted(running: BindingBuilder, age: float) -> None:
    s = full(running, age=age)
    s.submit(make_binding("claimant").tasks(4).priority(1).submitted(LATE))
    assert evicted(s.run()) == []


@pytest.mark.parametrize(("left", "victims"), [(20.0, []), (GRACE + 20.0, ["low"])])
def test_no_victim_is_evicted_for_a_head_that_starts_before_they_would_be_gone(left: float, victims: list[str]) -> None:
    s = full(make_binding("low").tasks(8).runs(OLD + left), queues=(make_queue("q", view=BACKFILL),))
    s.submit(make_binding("high").tasks(4).priority(1).submitted(LATE))
    assert evicted(s.run()) == victims


def test_a_head_that_did_not_start_in_time_evicts() -> None:
    s = full(make_binding("low").tasks(8).runs(OLD + 20), queues=(make_queue("q", view=BACKFILL),))
    s.submit(make_binding("high").tasks(4).priority(1).submitted(LATE))
    s.run()
    # It runs on, and is expected to do so for a tenth of what it was to take.
    assert evicted(s.run(after=20 + SETTLE)) == []
    assert evicted(s.run(after=GRACE)) == ["low"]


def test_work_whose_user_lowers_its_priority_may_have_to_go() -> None:
    s = full(make_binding("low").tasks(8).priority(1))
    s.change("low", gang=make_binding("low").tasks(8).build().gang)
    s.submit(make_binding("high").tasks(4).priority(1))
    assert evicted(s.run()) == ["low"]


def test_what_is_not_written_yet_is_no_victim() -> None:
    """Its queue protects nothing; a patch of a state that nobody has seen would be refused."""
    s = Scene(make_queue("q", view={"protection": 0.0}), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("low").tasks(8))
    [command] = s.decide()
    s.submit(make_binding("high").tasks(8).priority(1))
    assert [type(each) for each in s.decide(after=1.0)] == [Explain]
    assert s.verdict("high") is Reason.INSUFFICIENT_RESOURCES
    s.write(command)


def test_only_as_many_go_as_must() -> None:
    s = full(*(make_binding(f"r{n}").tasks(1, gpu=2) for n in range(4)))
    s.submit(make_binding("high").tasks(1, gpu=3).priority(1))
    assert len(evicted(s.run())) == 2
    t = full(*(make_binding(f"r{n}").tasks(1, gpu=2) for n in range(4)))
    t.submit(make_binding("high").tasks(1, gpu=2).priority(1))
    assert len(evicted(t.run())) == 1


def test_no_victim_is_evicted_for_a_claimant_that_can_not_be_helped() -> None:
    s = full(*(make_binding(f"r{n}").tasks(1, gpu=2) for n in range(4)))
    s.submit(make_binding("huge").tasks(1, gpu=5).priority(1))
    assert evicted(s.run()) == []
    assert s.verdict("huge") is Reason.INSUFFICIENT_RESOURCES


def test_an_entitled_queue_reclaims_what_another_borrowed() -> None:
    s = full(
        *(make_binding(f"a{n}").queue("a").tasks(1, gpu=2) for n in range(4)), queues=(share("a", 4), share("b", 4))
    )
    s.submit(make_binding("b").queue("b").tasks(2, gpu=2))
    commands = s.run()
    victims = evicted(commands)
    assert reasons(commands) == dict.fromkeys(victims, Reason.RECLAIMED)
    assert len(victims) == 2
    # Not more than was borrowed: the next one stays within what b deserves and finds a at its own.
    s.submit(make_binding("b2").queue("b").tasks(1, gpu=1))
    assert evicted(s.run(after=5)) == []


def test_the_queue_that_gives_room_back_does_not_take_it_again_for_a_higher_priority() -> None:
    s = full(make_binding("a").queue("a").tasks(8).priority(2), queues=(share("a", 4), share("b", 4)))
    s.submit(make_binding("b").queue("b").tasks(4).submitted(LATE))
    assert evicted(s.run()) == ["a"]
    s.submit(make_binding("more").queue("a").tasks(8).priority(2).submitted(EARLY))
    let_go(s, "a")
    assert names(s.run()) == ["b"]


def test_what_was_not_borrowed_is_not_evicted() -> None:
    s = full(make_binding("a").queue("a").tasks(1, gpu=4), queues=(share("a", 4), share("b", 4)))
    s.submit(make_binding("b").queue("b").tasks(2, gpu=4))
    assert evicted(s.run()) == []


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    s = full(make_binding("a").queue("a").tasks(8), queues=(share("a", 4, reclaimable=False), share("b", 4)))
    s.submit(make_binding("b").queue("b").tasks(4))
    assert evicted(s.run()) == []


def test_the_room_that_was_made_goes_to_the_claimant_only() -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("high").tasks(2, gpu=4).priority(1).submitted(LATE))
    assert evicted(s.run()) == ["low"]
    s.submit(make_binding("small").submitted(EARLY))
    let_go(s, "low")
    assert names(s.run()) == ["high"]


def test_work_elsewhere_goes_on_while_room_is_made() -> None:
    s = full(make_binding("low").tasks(8), queues=(make_queue("q", gpu=12),))
    s.tell(make_cluster("n"), make_capacity("n", [4]))
    s.submit(make_binding("high").tasks(8).priority(1).submitted(LATE))
    assert evicted(s.run()) == ["low"]
    s.submit(*(make_binding(f"small{n}").tasks(2).submitted(LATE) for n in range(3)))
    # As many as fit beside the claimant, once its victim has gone.
    assert dispatched(s.run()) == [("small0", "n"), ("small1", "n")]
    let_go(s, "low")
    assert names(s.run()) == ["high"]


def test_what_does_not_take_the_room_that_is_made_starts_beside_it() -> None:
    s = full(make_binding("low").tasks(1, gpu=4), make_binding("other").tasks(1, gpu=2).priority(1))
    s.submit(make_binding("high").tasks(1, gpu=4).priority(1).submitted(LATE))
    assert evicted(s.run()) == ["low"]
    s.submit(*(make_binding(f"small{n}").tasks(1, gpu=2).submitted(LATE) for n in range(2)))
    assert names(s.run()) == ["small0"]
    let_go(s, "low")
    assert names(s.run()) == ["high"]


def test_a_victim_that_starts_elsewhere_is_counted_there() -> None:
    """It gave its share of the limit to the claimant, and takes another one."""
    low = [make_binding(f"low{n}").tasks(1, gpu=4) for n in range(2)]
    s = full(*low, queues=(make_queue("q", gpu=12),))
    s.submit(make_binding("high").tasks(8).priority(1).submitted(LATE))
    assert sorted(evicted(s.run())) == ["low0", "low1"]
    s.tell(make_cluster("n"), make_capacity("n", [4, 2]))
    let_go(s, "low0")
    assert dispatched(s.run()) == [("low0", "n")]
    s.submit(make_binding("small").submitted(LATE))
    assert names(s.run()) == []
    let_go(s, "low1")
    assert names(s.run()) == ["high"]


def test_a_restart_keeps_the_room_that_is_being_made() -> None:
    s = full(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    s.submit(make_binding("high").tasks(8).priority(1).submitted(LATE))
    assert sorted(evicted(s.run())) == ["low1", "low2"]
    s.tell(make_capacity("m", [4, 0], generation=NEVER))
    let_go(s, "low1")
    s.submit(make_binding("small").submitted(EARLY))
    s.restart()
    assert names(s.run(after=5)) == []
    assert s.verdict("high") is Reason.AWAITING_VICTIMS
    s.tell(make_capacity("m", [4, 4], generation=NEVER + 1))
    let_go(s, "low2")
    s.restart()
    assert names(s.run(after=1)) == ["high"]


def test_room_whose_claimant_got_none_in_time_is_everybodys_after_a_restart_too() -> None:
    s = full(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    s.submit(make_binding("high").tasks(8).priority(1).submitted(LATE))
    s.run()
    s.tell(make_capacity("m", [4, 0], generation=NEVER))
    let_go(s, "low1")
    s.submit(make_binding("small").submitted(EARLY))
    s.restart()
    assert names(s.run(after=5)) == []
    assert names(s.run(after=EVICT_TIMEOUT)) == ["low1"]


def test_a_claimant_that_goes_away_lets_others_have_the_room() -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("high").tasks(8).priority(1).submitted(LATE))
    assert evicted(s.run()) == ["low"]
    s.gone("high")
    let_go(s, "low")
    assert names(s.run()) == ["low"]


@pytest.mark.parametrize("wish", ["held", "over"])
def test_a_claimant_that_needs_no_room_any_more_lets_others_have_it(wish: str) -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("high").tasks(8).priority(1).submitted(LATE))
    assert evicted(s.run()) == ["low"]
    held = make_binding("high").tasks(8).priority(1).submitted(LATE).held().build().gang
    s.change("high", **({"finished": True} if wish == "over" else {"gang": held, "generation": 2}))
    let_go(s, "low")
    assert names(s.run()) == ["low"]
    for _ in range(3):
        s.run(after=EVICT_TIMEOUT)


def test_nothing_is_evicted_for_ever() -> None:
    """A victim that is taken back again and again keeps its place after so many times."""
    s = full(make_binding("low").tasks(8))
    taken = 0
    for number in range(6):
        s.submit(make_binding(f"high{number}").tasks(8).priority(1).submitted(LATE))
        s.now += OLD
        if not evicted(s.run()):
            break
        taken += 1
        let_go(s, "low")
        assert names(s.run()) == [f"high{number}"]
        s.change(f"high{number}", finished=True)
        assert names(s.run()) == ["low"]
        s.bound("low", generation=NEVER)
    assert taken == 3


def test_the_same_history_gives_the_same_victims() -> None:
    s = full(*(make_binding(f"r{n}").tasks(1, gpu=2) for n in range(4)))
    s.submit(make_binding("high").tasks(1, gpu=4).priority(1))
    s.run()
    again = Dispatcher()
    assert [again.handle(event) for event in s.log] == s.answers


def test_many_without_victims_do_not_keep_the_search_from_one_that_has_some() -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(*(make_binding(f"huge{n}").tasks(1, gpu=5 + n).priority(2) for n in range(40)))
    s.submit(make_binding("high").tasks(4).priority(1))
    seen = [name for _ in range(30) for name in evicted(s.run(after=1.0))]
    assert seen == ["low"]


def test_a_claimant_without_victims_waits_as_long_as_it_takes() -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("huge").tasks(1, gpu=5).priority(1))
    assert not any(evicted(s.run(after=60.0)) for _ in range(1200))


def test_searches_for_victims_are_rationed_by_time() -> None:
    """Whoever waits finds somebody who can go, each in another member, but not all at once."""
    members = [f"m{n}" for n in range(round(SEARCH_BURST) + 2)]
    s = Scene(make_queue("q"), *map(make_cluster, members), *(make_capacity(name, [1]) for name in members))
    s.submit(*(make_binding(f"low-{name}").affinity(clusterNames=[name]) for name in members))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.run(after=OLD)
    s.submit(*(make_binding(f"high-{name}").affinity(clusterNames=[name]).priority(1) for name in members))
    assert len(evicted(s.run(after=0.0))) == SEARCH_BURST
    assert evicted(s.run(after=0.0)) == []
    assert s.core.next_deadline == pytest.approx(s.now + 1 / SEARCHES_PER_SECOND, abs=0.001)
    assert len(evicted(s.run(after=1 / SEARCHES_PER_SECOND))) == 1
    assert len(evicted(s.run(after=10.0))) == 1


@pytest.mark.parametrize("how", ["let go", "finished", "deleted"])
def test_room_is_everybodys_a_moment_after_all_are_gone_who_made_it(how: str) -> None:
    """Somebody else in the member took a part of it, so that it does not do."""
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("high").tasks(8).priority(1))
    assert evicted(s.run()) == ["low"]
    if how == "let go":
        let_go(s, "low")
    elif how == "finished":
        s.change("low", finished=True)
    else:
        s.gone("low")
    s.tell(make_capacity("m", [4, 0], generation=NEVER)).submit(make_binding("small"))
    assert names(s.run()) == []
    assert "small" in names(s.run(after=SETTLE + 0.5))


def test_a_claimant_that_others_go_for_in_vain_is_told_again_why_it_waits() -> None:
    s = full(make_binding("low").tasks(8), age=0.0)
    s.tell(make_queue("q", gpu=8))
    s.submit(make_binding("high").tasks(8).priority(1))
    s.run()
    assert s.view("high").decision.reason is Reason.QUOTA_EXCEEDED
    assert evicted(s.run(after=OLD)) == ["low"]
    assert s.view("high").decision.reason is Reason.AWAITING_VICTIMS
    s.tell(make_capacity("m", [0, 0], generation=NEVER))
    s.run(after=1.0)
    s.run(after=EVICT_TIMEOUT)
    assert s.view("high").decision.reason is Reason.INSUFFICIENT_RESOURCES


def test_room_that_a_shrunk_workload_made_is_everybodys_a_moment_after_its_pods_are_gone() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("wide").tasks(8, minimum=2).submitted(EARLY))
    s.run()
    s.bound("wide", generation=2)
    s.tell(make_capacity("m", [0], generation=2))
    s.submit(make_binding("claimant").tasks(3).submitted(LATE))
    s.run(after=OLD)
    s.run()
    assert s.view("wide").parts == (("m", (5,)),)
    # Somebody else in the member takes two of the three.
    s.tell(make_capacity("m", [1], generation=3))
    s.submit(make_binding("small").submitted(LATE))
    assert names(s.run(after=SETTLE + 0.5)) == []
    s.bound("wide", generation=3, pods=5)
    assert names(s.run()) == []
    assert names(s.run(after=SETTLE + 0.5)) == ["small"]


def test_nothing_is_kept_of_a_claimant_that_is_gone() -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("high").tasks(8).priority(1))
    s.run()
    let_go(s, "low")
    assert names(s.run()) == ["high"]
    assert s.core.claims.cleared_for("uid-high")
    for name in ("high", "low"):
        s.gone(name)
    s.run()
    assert not any((s.core.claims.any_cleared, s.core.claims))
    assert s.core.next_deadline is None


def test_the_claimant_names_the_member_and_the_victims_their_claimant() -> None:
    s = full(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    s.submit(make_binding("high").tasks(8).priority(1))
    commands = s.run()
    told = explained(commands)["high"].decision
    assert (told.nominated, told.blocker) == (["m"], Blocker("Cluster", "m"))
    for command in (each for each in commands if isinstance(each, Evict)):
        assert command.decision.room_for == "uid-high"
        assert command.decision.story[-1].text == "evicted for a workload of queue q"


def test_the_pods_of_one_that_goes_are_counted_once_while_they_end() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8, 4]))
    s.submit(make_binding("low").tasks(1, gpu=4))
    assert names(s.run()) == ["low"]
    s.bound("low", generation=2)
    s.tell(make_capacity("m", [4, 4], generation=2))
    s.submit(make_binding("high").tasks(3, gpu=4).priority(1))
    assert evicted(s.run(after=OLD)) == ["low"]
    s.run()
    assert s.core.members.by_name["m"].nodes.free.tolist()[0] == [4, 4]


def test_room_that_is_being_made_is_kept_until_the_last_one_is_gone() -> None:
    s = full(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    s.submit(make_binding("high").tasks(8).priority(1).submitted(LATE))
    assert sorted(evicted(s.run())) == ["low1", "low2"]
    s.tell(make_capacity("m", [4, 0], generation=NEVER))
    let_go(s, "low1")
    s.submit(make_binding("small").submitted(EARLY))
    for _ in range(3):
        assert names(s.run(after=5.0)) == []
    s.tell(make_capacity("m", [4, 4], generation=NEVER + 1))
    let_go(s, "low2")
    assert names(s.run(after=1.0)) == ["high"]


def test_room_that_is_being_made_stays_the_claimants_though_another_is_the_head_now() -> None:
    s = full(make_binding("low").tasks(8), queues=(make_queue("q", view=BACKFILL),))
    s.submit(make_binding("high").tasks(4).priority(1).submitted(LATE))
    assert evicted(s.run()) == ["low"]
    s.submit(make_binding("never").tasks(99).priority(2).submitted(LATE))
    s.run()
    assert list(s.core.reservations.claims) == ["uid-high"]


def test_one_that_goes_is_counted_as_going_whatever_is_reported_of_it() -> None:
    s = Scene(make_queue("q", gpu=8), make_cluster("m"), named("m", [4, 4]))
    s.submit(make_binding("low").tasks(8))
    s.run()
    s.change("low", placed={"m": (2, 8)}, nodes={"m": {"m-0": 4, "m-1": 4}})
    s.tell(named("m", [0, 0], generation=2))
    s.run()
    s.now += OLD
    s.submit(make_binding("high").tasks(2, gpu=4).priority(1).submitted(LATE))
    assert evicted(s.run()) == ["low"]
    s.change("low", placed={"m": (3, 7)}, nodes={"m": {"m-0": 3, "m-1": 4}})
    s.tell(named("m", [1, 0], generation=3))
    s.run()
    claim = s.core.reservations.claims["uid-high"]
    assert (claim.leaving, s.core.reservations.spot(claim).placement is None) == ({"uid-low": None}, False)


def test_room_that_is_being_made_stays_the_claimants_though_an_elder_of_its_queue_comes() -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(make_binding("high").tasks(8).priority(1).submitted(LATE))
    assert evicted(s.run()) == ["low"]
    s.submit(make_binding("elder").tasks(2).priority(1).submitted(EARLY))
    s.run()
    let_go(s, "low")
    assert names(s.run())[:1] == ["high"]


def test_no_other_victim_is_evicted_for_a_claimant_that_waits_for_others_to_go() -> None:
    s = full(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    s.submit(make_binding("high").tasks(4).priority(1))
    assert len(evicted(s.run())) == 1
    for number in range(3):
        # It is looked at again.
        s.tell(make_cluster("m", labels={"number": str(number)}))
        assert evicted(s.run(after=5.0)) == []


@pytest.mark.parametrize(
    ("firm", "victim"), [pytest.param(False, "low1", id="the first"), pytest.param(True, "low2", id="the second")]
)
def test_room_is_made_by_the_first_of_its_affinities_that_leads_anywhere(firm: bool, victim: str) -> None:
    s = Scene(make_queue("q"), *map(make_cluster, ("m1", "m2")), make_capacity("m1", [4]), make_capacity("m2", [4]))
    low1 = make_binding("low1").tasks(4).affinity(clusterNames=["m1"])
    s.submit(low1.firm() if firm else low1, make_binding("low2").tasks(4).affinity(clusterNames=["m2"]))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    turns = tuple({"affinityName": name, "clusterNames": [name]} for name in ("m1", "m2"))
    s.see(dataclasses.replace(make_binding("high").tasks(4).priority(1).build(), affinities=turns))
    assert evicted(s.run(after=OLD)) == [victim]


def test_whoever_is_next_of_the_same_shape_has_others_go_too() -> None:
    s = full(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    s.submit(*(make_binding(f"high{n}").tasks(4).priority(1) for n in range(2)))
    assert len(evicted(s.run())) == 2
    for _ in range(4):
        let_go(s, *(view.name for view in s.views.values() if view.decision.phase == "Evicting"))
        s.run(after=5.0)
    assert not s.view("high0").suspended
    assert not s.view("high1").suspended


def test_a_node_that_joins_is_not_taken_for_the_one_where_work_runs() -> None:
    low = make_binding("low").tasks(1, gpu=8)
    s = Scene(make_queue("q"), make_cluster("m"), named("m", {"m-1": 8})).submit(low)
    assert names(s.run()) == ["low"]
    s.change("low", placed={"m": (2, 1)}, nodes={"m": {"m-1": 1}})
    # In the order of names it comes first.
    s.tell(named("m", {"m-0": 4, "m-1": 0}, generation=2))
    s.submit(make_binding("high").tasks(1, gpu=10).priority(1))
    assert not any(isinstance(each, Ask) for each in s.run(after=OLD))
    s.submit(make_binding("helped").tasks(1, gpu=8).priority(1))
    assert any(isinstance(each, Ask) for each in s.run(after=OLD))


def test_what_runs_is_known_where_it_is_when_a_member_that_was_gone_publishes_again() -> None:
    """1. A pod of 8 runs on one of two nodes. 2. All that its member published goes. 3. It publishes the same again, and
    for one of a higher priority the pod goes.
    """
    s = Scene(make_queue("q"), make_cluster("m"), named("m", [8, 0]))
    s.submit(make_binding("low").tasks(1, gpu=8).submitted(EARLY))
    s.run()
    s.tell(named("m", [0, 0], generation=2))
    s.change("low", placed={"m": (2, 1)}, nodes={"m": {"m-0": 1}})
    s.run(after=OLD)
    s.tell(CapacityGone("m", ""))
    s.run()
    s.tell(named("m", [0, 0], generation=3))
    s.submit(make_binding("high").tasks(1, gpu=8).priority(1))
    assert evicted(s.run()) == ["low"]


def test_nor_are_two_that_join_before_the_next_pass() -> None:
    """What runs was looked at as a victim before they did."""
    s = Scene(make_queue("q"), make_cluster("m"), named("m", {"m-2": 8})).submit(make_binding("low").tasks(1, gpu=8))
    assert names(s.run()) == ["low"]
    s.change("low", placed={"m": (2, 1)}, nodes={"m": {"m-2": 1}})
    s.submit(make_binding("huge").tasks(1, gpu=99).priority(1))
    assert not any(isinstance(each, Ask) for each in s.run(after=OLD))
    s.tell(named("m", {"m-1": 4, "m-2": 0}, generation=2), named("m", {"m-0": 4, "m-1": 4, "m-2": 0}, generation=3))
    s.submit(make_binding("high").tasks(1, gpu=10).priority(1))
    assert not any(isinstance(each, Ask) for each in s.run(after=OLD))
    s.submit(make_binding("helped").tasks(1, gpu=8).priority(1))
    assert any(isinstance(each, Ask) for each in s.run(after=OLD))


def lent_and_taken_back() -> Scene:
    """Of 8, 4 are each queue's. `gang` of the first borrowed 4; all of it went for `one` of the second, which runs."""
    patient = {"evict_timeout": math.inf}
    queues = share("q", 4, **BACKFILL, **patient), share("r", 4, **patient)
    s = Scene(*queues, make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("gang").queue("q").tasks(8).submitted(EARLY)).run()
    s.bound("gang", generation=NEVER)
    s.submit(make_binding("one").queue("r").runs(HOUR).submitted(LATE))
    assert evicted(s.run(after=OLD)) == ["gang"]
    let_go(s, "gang")
    assert names(s.run()) == ["one"]
    return s


def test_nothing_is_reserved_for_what_would_be_evicted_again() -> None:
    """Else the members would be empty but for `one`, time and again."""
    s = lent_and_taken_back()
    assert s.core.reservations.own("uid-gang") is None
    for number in range(3):
        s.submit(make_binding(f"other-{number}").queue("r").runs(2 * HOUR).submitted(LATE))
    assert len(names(s.run())) == 3


def test_capacity_is_reserved_for_it_once_its_queue_deserves_that_much_or_it_has_waited_too_long() -> None:
    s = lent_and_taken_back()
    s.tell(share("q", 8, **BACKFILL))
    s.run(after=AGAIN)
    assert s.core.reservations.own("uid-gang") is not None

    s = lent_and_taken_back()
    s.tell(share("q", 4, patience=60.0, **BACKFILL))
    s.run(after=AGAIN)
    assert s.core.reservations.own("uid-gang") is not None


def test_capacity_is_reserved_for_it_again_after_a_while_whatever_others_want() -> None:
    s = lent_and_taken_back()
    small = [make_binding(f"small-{n}").queue("q").tasks(4).runs(HOUR).submitted(LATE) for n in range(2)]
    s.submit(*small[:1])
    assert names(s.run(after=TAKEN_BACK / 2)) == ["small-0"]
    assert s.core.reservations.own("uid-gang") is None
    s.run(after=TAKEN_BACK / 2 + AGAIN)
    assert s.core.reservations.own("uid-gang") is not None
    s.change("small-0", finished=True)
    s.submit(*small[1:])
    assert not names(s.run())


def test_nor_is_it_passed_for_ever_once_what_it_borrows_is_not_wanted() -> None:
    """Its own queue's small jobs borrow as much as it would."""
    s = lent_and_taken_back()
    s.submit(*(make_binding(f"small-{n}").queue("q").tasks(4).runs(HOUR).submitted(LATE) for n in range(2)))
    assert names(s.run()) == ["small-0"]
    s.change("one", finished=True)
    s.run(after=AGAIN)
    assert s.core.reservations.own("uid-gang") is not None


def test_how_often_it_went_is_counted_though_its_story_is_too_short_for_that() -> None:
    """Between two evictions it is sent, and not bound, so often that no line of its story tells of the first."""
    s = full(make_binding("low").tasks(8))
    taken = 0
    for number in range(8):
        s.submit(make_binding(f"high{number}").tasks(8).priority(1).submitted(LATE))
        taken += len(evicted(s.run(after=OLD)))
        let_go(s, *(view.name for view in s.views.values() if view.decision.phase == "Evicting"))
        s.run()
        s.gone(f"high{number}")
        for _ in range(8):
            if s.view("low").suspended:
                s.run(after=400)
            if not s.view("low").placed:
                s.run(after=31)
                let_go(s, "low")
        s.run(after=700)
        s.bound("low", generation=NEVER)
    assert len(s.view("low").decision.story) == 16
    assert not any(line.reason is Reason.PREEMPTED for line in s.view("low").decision.story)
    assert taken == 3


@pytest.mark.parametrize(
    "claimant",
    [
        pytest.param(make_binding("high").queue("own").tasks(4).priority(1), id="of its own queue"),
        pytest.param(make_binding("high").queue("own").tasks(8).priority(1), id="that would take more"),
        pytest.param(make_binding("high").queue("owed").tasks(4), id="of a queue that is entitled"),
        pytest.param(make_binding("high").queue("own").tasks(2, minimum=1).priority(1), id="that is elastic"),
    ],
)
def test_a_claimant_whose_class_never_preempts_waits_and_is_first_when_there_is_room(claimant: BindingBuilder) -> None:
    queues = (make_queue("own", view={"deserved": {GPU: 4}}), make_queue("owed", view={"deserved": {GPU: 4}}))
    low = make_binding("low").queue("own").tasks(8)
    s = full(low, queues=queues)
    s.submit(claimant.submitted(LATE))
    assert evicted(s.run()) == ["low"]
    s = full(low, queues=queues)
    s.submit(claimant.submitted(LATE).gang(preempts=False))
    for _ in range(5):
        assert not [c for c in s.run(after=60.0) if isinstance(c, Ask | Evict)]
    s.change("low", finished=True)
    assert names(s.run()) == ["high"]


def test_a_claimant_that_never_preempts_does_not_stand_before_one_that_does() -> None:
    s = full(make_binding("low").tasks(8))
    s.submit(
        make_binding("polite").tasks(4).priority(2).gang(preempts=False),
        make_binding("high").tasks(4).priority(1).submitted(LATE),
    )
    assert explained(s.run())["high"].decision.reason is Reason.AWAITING_VICTIMS
