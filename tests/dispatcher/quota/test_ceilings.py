"""Ceilings of queues in single members: how they are told, what wakes those that they stop, and who makes room."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core import ClusterGone, Command, Dispatch, Resize, Strategy
from atoll.dispatcher.core.events import Ceiling, Event
from atoll.dispatcher.explain import verdicts
from atoll.model.query import ChangeKind
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import (
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
    names,
)


def ceilings(**gpus: int | None) -> dict[str, object]:
    """A queue served by these members, each with so many GPUs of it at most; None for any number."""
    return {"members": {name: Ceiling(capability={} if n is None else {GPU: n}) for name, n in gpus.items()}}


def members(**free: int) -> list[Event]:
    return [event for name, n in free.items() for event in (make_cluster(name), make_capacity(name, [n]))]


def capped(*more: Event, **gpus: int | None) -> Scene:
    """Queue q with these ceilings, in members of 8 GPUs, and queue other without."""
    queues = [make_queue("q", view=ceilings(**gpus)), make_queue("other")]
    return Scene(*queues, *members(**dict.fromkeys(gpus, 8)), *more)


def started(s: Scene, *builders: BindingBuilder) -> Scene:
    """These run, and the members' own figures will not say so."""
    s.submit(*builders)
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    return s


# -- what is told ------------------------------------------------------------------------------------------------------


def test_it_is_told_as_what_it_is() -> None:
    s = started(capped(m=4), make_binding("runs").tasks(3)).submit(make_binding("a").tasks(2))
    told = explained(s.run())["a"].decision
    assert told.reason is Reason.QUOTA_EXCEEDED
    assert told.blocker == Blocker("Queue", "q", GPU, "2", "1", "m")
    verdict = s.core.verdict("uid-a")
    assert verdict is not None
    assert verdict.sentence().endswith(f"queue q has 1 {GPU} free for it in cluster m, 2 needed")


def test_the_ceiling_of_a_queue_above_is_named_with_that_queue() -> None:
    top, low = make_queue("top", view=ceilings(m=1)), make_queue("q", view={"parent": "top"})
    s = Scene(top, low, *members(m=8)).submit(make_binding("a").tasks(2))
    assert explained(s.run())["a"].decision.blocker == Blocker("Queue", "top", GPU, "2", "1", "m")


def test_of_several_members_the_one_is_named_where_it_would_go() -> None:
    s = capped(m=1, n=3).tell(make_capacity("n", [4], generation=2)).submit(make_binding("a").tasks(4))
    assert explained(s.run())["a"].decision.blocker == Blocker("Queue", "q", GPU, "4", "3", "n")


def test_where_capacity_is_reserved_as_well_that_is_told() -> None:
    s = Scene(
        make_queue("head", priority=1, view={"strategy": Strategy.BACKFILL}),
        make_queue("q", view=ceilings(m=1, n=None)),
        *members(m=8, n=8),
    )
    started(s, make_binding("runs").queue("head").tasks(6).runs(100).affinity(clusterNames=["n"]))
    s.submit(make_binding("large").queue("head").tasks(8).runs(10).affinity(clusterNames=["n"]))
    s.run()
    s.submit(make_binding("a").tasks(2)).run()
    assert s.verdict("a") is Reason.WOULD_DELAY


def parts(commands: list[Command]) -> list[dict[str, int]]:
    return [{part.cluster: part.pods for part in each.parts} for each in commands if isinstance(each, Dispatch)]


def test_a_divided_gang_takes_no_more_in_each_member_than_its_ceiling_there() -> None:
    s = capped(m=2, n=4).submit(make_binding("a").tasks(6).divided())
    assert parts(s.run()) == [{"m": 2, "n": 4}]


def test_a_divided_gang_of_several_tasks_takes_whole_sets_below_the_ceilings() -> None:
    s = capped(m=5, n=4).submit(make_binding("a").tasks(3, gpu=1).tasks(3, gpu=2).divided())
    assert parts(s.run()) == []
    s.submit(make_binding("b").tasks(2, gpu=1).tasks(2, gpu=2).divided(least=2))
    assert parts(s.run()) == [{"m": 2, "n": 2}]


def test_a_divided_gang_that_only_ceilings_stop_says_so() -> None:
    s = capped(m=2, n=3).submit(make_binding("a").tasks(6).divided())
    assert explained(s.run())["a"].decision.reason is Reason.QUOTA_EXCEEDED
    s.tell(make_queue("q", view=ceilings(m=2, n=4)))
    assert parts(s.run()) == [{"m": 2, "n": 4}]


def test_the_whole_verdict_names_the_ceiling_among_the_limits() -> None:
    s = started(capped(m=4), make_binding("runs").tasks(3)).submit(make_binding("a").tasks(2))
    s.run()
    found = verdicts.account(s.core, "uid-a")
    assert found is not None
    assert found.reason == "QuotaExceeded"
    [limit] = found.limits
    assert (limit.kind, limit.name, limit.cluster, limit.resource) == ("Queue", "q", "m", GPU)
    assert (limit.requested, limit.available, limit.shortage, limit.declared) == ("2", "1", "1", True)
    change, other = found.changes
    assert (other.kind, other.message) == (ChangeKind.QUEUE, "another queue whose limits have room for it: other")
    assert (change.kind, change.enough, change.limits) == (ChangeKind.LIMITS, True, [limit])
    assert f"queue q in cluster m: 1 {GPU}" in change.message
    [room] = found.clusters
    assert room.reason == "QuotaExceeded"


def test_one_higher_ceiling_is_enough_although_several_are_too_low() -> None:
    s = capped(m=1, n=3).submit(make_binding("a").tasks(4))
    s.run()
    found = verdicts.account(s.core, "uid-a")
    assert found is not None
    assert {(limit.cluster, limit.shortage) for limit in found.limits} == {("m", "3"), ("n", "1")}
    assert found.blocker is not None
    change, _other = found.changes
    assert (change.enough, [limit.cluster for limit in change.limits]) == (True, [found.blocker.cluster])


# -- what wakes --------------------------------------------------------------------------------------------------------


def test_it_goes_once_its_queue_uses_less_there() -> None:
    s = started(capped(m=4), make_binding("runs").tasks(3)).submit(make_binding("a").tasks(2))
    assert names(s.run()) == []
    s.gone("runs")
    assert names(s.run()) == ["a"]


def test_it_goes_once_its_queue_uses_less_there_though_the_member_has_not_told_of_more_room() -> None:
    s = capped(m=4).submit(make_binding("runs").tasks(3))
    s.run()
    s.bound("runs", generation=2)
    s.tell(make_capacity("m", [5], generation=2)).submit(make_binding("a").tasks(2))
    assert names(s.run()) == []
    s.gone("runs")
    assert names(s.run()) == ["a"]


def test_what_an_elastic_one_gives_back_there_lets_it_go() -> None:
    s = started(capped(m=4), make_binding("runs").tasks(4, minimum=2))
    assert s.used("q") == 4
    s.submit(make_binding("a").tasks(2))
    [shrunk] = [command for command in s.run(after=OLD) if isinstance(command, Resize)]
    assert (shrunk.name, shrunk.decision.reason) == ("runs", Reason.SHRUNK)
    assert names(s.run()) == ["a"]


def test_it_goes_once_the_ceiling_is_raised() -> None:
    s = capped(m=1).submit(make_binding("a").tasks(2))
    assert names(s.run()) == []
    s.tell(make_queue("q", view=ceilings(m=2)))
    assert names(s.run()) == ["a"]


def test_it_goes_once_there_is_room_where_no_ceiling_stops_it() -> None:
    s = capped(m=1, n=4).tell(make_capacity("n", [1], generation=2)).submit(make_binding("a").tasks(2))
    assert names(s.run()) == []
    s.tell(make_capacity("n", [2], generation=3))
    assert dispatched(s.run()) == [("a", "n")]


def test_use_below_another_queue_of_the_same_parent_counts_there() -> None:
    top = make_queue("top", view=ceilings(m=4))
    leaves = [make_queue(name, view={"parent": "top"}) for name in ("q", "r")]
    s = started(Scene(top, *leaves, *members(m=8)), make_binding("runs").queue("r").tasks(4))
    s.submit(make_binding("a").tasks(2))
    assert names(s.run()) == []
    s.gone("runs")
    assert names(s.run()) == ["a"]


def test_it_sleeps_while_others_come_and_go() -> None:
    s = started(capped(m=1), make_binding("runs").queue("other").tasks(2)).submit(make_binding("a").tasks(2))
    assert names(s.run()) == []
    s.gone("runs")
    assert s.core.waiting.first() is None


def test_equal_work_of_a_queue_without_ceilings_does_not_wait_with_it() -> None:
    s = capped(m=1).submit(make_binding("a").tasks(2), make_binding("b").tasks(2).queue("other"))
    assert names(s.run()) == ["b"]
    assert s.verdict("a") is Reason.QUOTA_EXCEEDED


def test_a_member_that_leaves_takes_its_ceiling_along() -> None:
    s = capped(m=1, n=4).tell(make_capacity("n", [1], generation=2)).submit(make_binding("a").tasks(2))
    s.run()
    s.tell(ClusterGone("m"))
    s.run()
    assert s.verdict("a") is Reason.INSUFFICIENT_RESOURCES


# -- who makes room ----------------------------------------------------------------------------------------------------


def test_a_lower_priority_of_the_queue_is_evicted_under_its_ceiling() -> None:
    s = started(capped(m=4), make_binding("low").tasks(4)).submit(make_binding("high").tasks(2).priority(1))
    assert evicted(s.run(after=OLD)) == ["low"]
    let_go(s, "low")
    assert names(s.run())[0] == "high"


def test_only_what_runs_in_that_member_is_evicted() -> None:
    s = started(
        capped(m=4, n=None),
        make_binding("here").tasks(4).affinity(clusterNames=["m"]),
        make_binding("there").tasks(1).affinity(clusterNames=["n"]),
    )
    s.submit(make_binding("high").tasks(2).priority(1).affinity(clusterNames=["m"]))
    assert evicted(s.run(after=OLD)) == ["here"]


def test_as_many_go_as_the_ceiling_asks_for_however_many_could() -> None:
    """More sets of them than are tried one by one."""
    s = Scene(make_queue("q", view=ceilings(m=40)), *members(m=99))
    started(s, *(make_binding(f"low{n:02}") for n in range(40)))
    s.submit(make_binding("high").tasks(12).priority(1))
    assert len(evicted(s.run(after=OLD))) == 12


def test_no_victim_is_evicted_where_the_ceiling_is_too_low_for_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    s = Scene(make_queue("q", view=ceilings(m=4)), *members(m=99))
    started(s, *(make_binding(f"low{n}") for n in range(4)))
    s.submit(make_binding("high").tasks(5).priority(1))
    monkeypatch.setattr("atoll.dispatcher.core.preemption.search.smallest", lambda *_: tried.append(1))
    assert evicted(s.run(after=OLD)) == []
    assert not tried
    assert s.verdict("high") is Reason.QUOTA_EXCEEDED


def test_work_of_a_queue_that_lends_is_evicted_under_the_ceiling_above_both() -> None:
    top = make_queue("top", view=ceilings(m=4))
    leaves = [make_queue(name, view={"parent": "top", "deserved": {GPU: 2}}) for name in ("q", "r")]
    s = Scene(top, *leaves, *members(m=8))
    started(s, *(make_binding(f"r{n}").queue("r").submitted(LATE if n else EARLY) for n in range(4)))
    s.submit(make_binding("a").tasks(2))
    assert len(evicted(s.run(after=OLD))) == 2


def test_what_becomes_free_under_a_ceiling_is_reserved_for_the_claimant() -> None:
    """1. Two go for one. 2. The first is gone, and a third would fit under the ceiling until the second is gone too."""
    s = started(capped(m=4), *(make_binding(f"low{n}").tasks(2) for n in range(2)))
    s.submit(make_binding("high").tasks(4).priority(1))
    assert sorted(evicted(s.run(after=OLD))) == ["low0", "low1"]
    let_go(s, "low0")
    s.submit(make_binding("small").tasks(2), make_binding("elsewhere").tasks(2).queue("other"))
    assert names(s.run()) == ["elsewhere"]
    assert s.verdict("small") is Reason.WOULD_DELAY
    let_go(s, "low1")
    assert names(s.run()) == ["high"]


def test_under_another_ceiling_there_is_as_much_as_before() -> None:
    queues = [make_queue("q", view=ceilings(m=4)), make_queue("r", view=ceilings(m=2))]
    s = started(Scene(*queues, *members(m=16)), make_binding("low").tasks(4))
    started(s, make_binding("e").queue("r").tasks(4, minimum=2))
    s.submit(make_binding("high").tasks(4).priority(1))
    assert evicted(s.run(after=OLD)) == ["low"]
    s.tell(make_queue("r", view=ceilings(m=4)))
    assert [(each.name, each.parts[0].pods) for each in s.run() if isinstance(each, Resize)] == [("e", 4)]


def test_nor_does_anything_grow_into_it() -> None:
    s = started(
        capped(m=5), *(make_binding(f"low{n}").tasks(2) for n in range(2)), make_binding("e").tasks(3, minimum=1)
    )
    s.submit(make_binding("high").tasks(4).priority(1))
    assert sorted(evicted(s.run(after=OLD))) == ["low0", "low1"]
    let_go(s, "low0")
    assert not [command for command in s.run() if isinstance(command, Resize)]
    let_go(s, "low1")
    assert names(s.run()) == ["high"]
