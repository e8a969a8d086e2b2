"""Gangs over several clusters: divided by whole sets, reserved, committed or released as one; and what users hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.dispatcher.core import Commit, Dispatch, Evict, MemberAnswer
from atoll.dispatcher.split import Division, Short, divide_natively
from atoll.dispatcher.writes import patch_of
from atoll.fit import Nodes, Profile
from atoll.model.decision import Phase
from atoll.model.gang import Gang, Task, TopologyWish, divide
from atoll.model.topology import NO_DOMAIN, Tree
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import (
    NEVER,
    Scene,
    dispatched,
    evicted,
    explained,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
)
from tests.fit.builders import make_nodes


def nodes(*free: int) -> Nodes:
    return Nodes(
        Tree(), [NO_DOMAIN] * len(free), [""] * len(free), [Profile()], [0] * len(free), [{"gpu": n} for n in free]
    )


def gang(*replicas: int, gpu: int = 1, hard: int | None = None) -> Gang:
    tasks = [Task(f"t{i}", count, count, {"gpu": gpu}) for i, count in enumerate(replicas)]
    return Gang("q", tasks, sum(replicas), network_topology=TopologyWish("hard", hard) if hard else None)


def shares(outcome: Division | Short) -> dict[str, list[int]]:
    assert isinstance(outcome, Division), outcome
    parts = zip(outcome.clusters, outcome.gangs, strict=True)
    return {name: [task.replicas for task in part.tasks] for name, part in parts}


@pytest.mark.parametrize(
    ("wish", "free", "limits", "expected"),
    [
        pytest.param(gang(10), {"a": [8], "b": [4]}, {}, {"a": [8], "b": [2]}, id="the largest first, then the rest"),
        pytest.param(
            gang(10), {"a": [8], "b": [4], "c": [2]}, {}, {"a": [8], "c": [2]}, id="the rest where it leaves least"
        ),
        pytest.param(gang(6), {"a": [4], "b": [6]}, {}, {"b": [6]}, id="one cluster when one holds it"),
        pytest.param(gang(6), {"a": [8], "b": [8]}, {"at_least": 2}, {"a": [5], "b": [1]}, id="at least two clusters"),
        pytest.param(
            gang(6),
            {"a": [8], "b": [7], "c": [3], "d": [2]},
            {"at_least": 2},
            {"b": [5], "d": [1]},
            id="the smallest others with which all still fits",
        ),
        pytest.param(
            gang(7),
            {"a": [8], "b": [7], "c": [4], "d": [3]},
            {"at_least": 2},
            {"c": [4], "d": [3]},
            id="several may be exchanged for smaller ones",
        ),
        pytest.param(
            gang(6),
            {"a": [8], "b": [8], "c": [8]},
            {"at_least": 3},
            {"a": [4], "b": [1], "c": [1]},
            id="one for each that must take part",
        ),
        pytest.param(
            gang(6), {"a": [4], "b": [4], "c": [4]}, {}, {"a": [4], "b": [2]}, id="none for another that is no smaller"
        ),
        pytest.param(gang(2, 8), {"a": [7], "b": [7]}, {}, {"a": [1, 4], "b": [1, 4]}, id="whole sets of 1 and 4"),
    ],
)
def test_how_a_gang_is_divided(wish: Gang, free: dict, limits: dict, expected: dict) -> None:
    assert shares(divide_natively(wish, {name: nodes(*n) for name, n in free.items()}, **limits)) == expected


@pytest.mark.parametrize(
    ("pods", "racks", "expected"),
    [
        pytest.param(
            7,
            {"a": [3, 3], "b": [4], "c": [2]},
            {"a": [3], "b": [4]},
            id="one that holds less than it seemed to is next",
        ),
        pytest.param(
            7,
            {"a": [6], "b": [4], "c": [2, 2]},
            {"a": [6], "c": [1]},
            id="none is exchanged for one that only seems to do",
        ),
    ],
)
def test_how_a_gang_is_divided_over_racks(pods: int, racks: dict, expected: dict) -> None:
    members = {name: make_nodes([[gpus] for gpus in each]) for name, each in racks.items()}
    assert shares(divide_natively(gang(pods, hard=1), members, at_most=2)) == expected


@pytest.mark.parametrize(
    ("wish", "free", "limits", "available"),
    [
        pytest.param(gang(13), {"a": [8], "b": [4]}, {}, 12, id="not enough anywhere"),
        pytest.param(gang(12), {"a": [4], "b": [4], "c": [4]}, {"at_most": 2}, 8, id="at most two clusters"),
        pytest.param(gang(1, 8), {"a": [7], "b": [7]}, {}, 0, id="a set is never torn"),
        pytest.param(gang(4), {"a": [8]}, {"at_least": 2}, 3, id="fewer clusters than asked for"),
    ],
)
def test_what_can_not_be_divided_says_how_much_there_is(wish: Gang, free: dict, limits: dict, available: int) -> None:
    outcome = divide_natively(wish, {name: nodes(*n) for name, n in free.items()}, **limits)
    assert outcome == Short(wish.replicas, available)


@given(
    replicas=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    free=st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_parts_add_up_and_fit(replicas: list[int], free: list[list[int]]) -> None:
    wish = gang(*replicas)
    members = {f"m{i}": nodes(*n) for i, n in enumerate(free)}
    outcome = divide_natively(wish, members)
    if isinstance(outcome, Short):
        return
    assert [sum(counts) for counts in zip(*shares(outcome).values(), strict=True)] == replicas
    assert sum(part.min_available for part in outcome.gangs) == wish.min_available
    for name, part, placement in zip(outcome.clusters, outcome.gangs, outcome.placements, strict=True):
        assert sum(placement.counts) == part.replicas
        members[name].take([task.requests for task in part.tasks], placement)
        assert (members[name].free >= 0).all()


@given(
    minimum=st.integers(0, 20),
    parts=st.lists(st.lists(st.integers(0, 8), min_size=2, max_size=2), min_size=1, max_size=5),
)
def test_minimums_of_parts_add_up_to_the_whole(minimum: int, parts: list[list[int]]) -> None:
    totals = [sum(counts) for counts in zip(*parts, strict=True)]
    floor = min(minimum, sum(totals))
    whole = Gang("q", [Task(f"t{i}", n, min(n, minimum), {"gpu": 1}) for i, n in enumerate(totals)], floor)
    gangs = divide(whole, parts)
    assert sum(part.min_available for part in gangs) == floor
    for part in gangs:
        assert part.min_available <= part.replicas
        assert all(task.min_available <= task.replicas for task in part.tasks)
    for index, task in enumerate(whole.tasks):
        assert sum(part.tasks[index].min_available for part in gangs) == task.min_available


# -- in the core ---------------------------------------------------------------------------------------------------------


def three(*free: int) -> Scene:
    events = [make_queue("q")]
    for name, gpus in zip(("m1", "m2", "m3"), free, strict=True):
        events += [make_cluster(name), make_capacity(name, [gpus])]  # type: ignore[list-item]
    return Scene(*events)


def reserving() -> Scene:
    s = three(4, 4, 4).submit(make_binding("a").tasks(12).divided())
    [command] = s.run()
    assert isinstance(command, Dispatch)
    assert [(part.cluster, part.pods) for part in command.parts] == [("m1", 4), ("m2", 4), ("m3", 4)]
    assert command.decision.phase is Phase.RESERVING
    return s


def granted(*members: str, generation: int = 2) -> dict[str, MemberAnswer]:
    return {name: MemberAnswer(True, generation) for name in members}


def test_a_gang_that_fits_one_cluster_is_not_divided() -> None:
    s = three(4, 8, 4).submit(make_binding("a").tasks(6).divided())
    assert dispatched(s.run()) == [("a", "m2")]


@pytest.mark.parametrize("most", range(4, 9))
def test_each_part_gets_all_that_one_domain_of_its_member_holds(most: int) -> None:
    """Of eight nodes in each member, one rack has so many and another one the rest."""
    racks = {"r1": [1] * most, "r2": [1] * (8 - most)}
    s = Scene(make_queue("q"), *(each for n in "mn" for each in (make_cluster(n), make_capacity(n, racks))))
    s.submit(
        make_binding("a").tasks(2 * most).hard(1).divided(), make_binding("b").tasks(2 * most + 1).hard(1).divided()
    )
    commands = s.run()
    [command] = [each for each in commands if isinstance(each, Dispatch)]
    assert [(part.cluster, part.pods) for part in command.parts] == [("m", most), ("n", most)]
    assert command.name == "a"


def test_a_gang_without_leave_is_not_divided() -> None:
    s = three(4, 4, 4).submit(make_binding("a").tasks(12))
    assert [type(c).__name__ for c in s.run()] == ["Explain"]


def test_a_divided_gang_is_reserved_first_and_its_patch_says_so() -> None:
    s = three(4, 4, 4).submit(make_binding("a").tasks(12).divided())
    [command] = s.decide()
    patch: dict[str, Any] = {op["path"]: op.get("value") for op in patch_of(command)}
    assert patch["/spec/suspension/dispatching"] is True
    assert patch["/spec/suspension/scheduling"] is False
    assert patch["/spec/clusters"][0] == {
        "name": "m1",
        "replicas": 4,
        "components": [{"name": "t0", "replicas": 4}],
    }


def test_it_is_committed_once_every_member_has_reserved_its_part() -> None:
    s = reserving()
    s.change("a", reserved=granted("m1", "m2"))
    assert s.run() == []
    s.change("a", reserved=granted("m1", "m2", "m3"))
    [command] = s.run()
    assert isinstance(command, Commit)
    assert command.decision.phase is Phase.DISPATCHED
    assert command.decision.epoch == command.epoch
    assert {"op": "add", "path": "/spec/suspension/dispatching", "value": False} in patch_of(command)
    assert s.run() == []


def test_a_refusal_releases_every_part_and_names_the_member_and_the_numbers() -> None:
    s = reserving()
    s.change("a", reserved={**granted("m1", "m3"), "m2": MemberAnswer(False, 0, 4, 3)})
    [command] = s.run()
    assert isinstance(command, Evict)
    assert command.decision.reason is Reason.PART_REFUSED
    blocker = command.decision.blocker
    assert blocker is not None
    assert (blocker.kind, blocker.name, blocker.requested, blocker.available) == ("Cluster", "m2", "4", "3")
    s.change("a", released=s.view("a").generation)
    # m2 is avoided until its figures move on.
    assert not dispatched(s.run())
    s.tell(make_capacity("m2", [4], generation=2))
    assert [c.parts[1].cluster for c in s.run() if isinstance(c, Dispatch)] == ["m2"]


def test_no_answer_in_time_releases_every_part() -> None:
    s = reserving()
    s.change("a", reserved=granted("m1", "m2"))
    assert evicted(s.run(after=10.1)) == ["a"]
    # The one that was silent is avoided.
    s.change("a", released=s.view("a").generation)
    told = explained(s.run())["a"].decision.blocker
    assert told is not None
    assert (told.kind, told.name) == ("Clusters", "m1, m2")


def test_a_committed_gang_that_is_not_bound_everywhere_in_time_is_evicted() -> None:
    s = reserving()
    s.change("a", reserved=granted("m1", "m2", "m3"))
    s.run()
    s.change("a", placed={"m1": (2, 4), "m2": (2, 4)})
    [command] = s.run(after=30.1)
    assert evicted([command]) == ["a"]
    assert command.decision.story[-1].text == "not all of its pods were bound in m3 within 30 s"
    # Only where it failed it is not tried again.
    s.change("a", released=s.view("a").generation)
    told = explained(s.run())["a"].decision.blocker
    assert told is not None
    assert (told.kind, told.name) == ("Clusters", "m1, m2")


def test_what_can_not_be_divided_names_all_members_that_were_tried_and_what_they_hold_together() -> None:
    s = three(4, 4, 4).tell(make_cluster("m2", ready=False))
    told = explained(s.submit(make_binding("a").tasks(20).divided()).run())["a"].decision
    assert told.reason is Reason.INSUFFICIENT_RESOURCES
    assert told.blocker == Blocker("Clusters", "m1, m3", "pods", "20", "8")


def test_a_commit_that_was_refused_is_decided_again() -> None:
    s = reserving()
    s.change("a", reserved=granted("m1", "m2", "m3"))
    [command] = s.decide()
    s.refuse(command)
    [again] = s.decide()
    assert isinstance(again, Commit)


def test_answers_to_an_earlier_hold_mean_nothing_to_the_next() -> None:
    """1. m2 refuses. 2. All is taken back. 3. It is held again; until that is written the old answers are seen."""
    s = reserving()
    s.change("a", reserved={**granted("m1", "m3"), "m2": MemberAnswer(False, 0, 4, 3)})
    answers = s.view("a").reserved
    assert evicted(s.run()) == ["a"]
    s.tell(make_capacity("m2", [4], generation=2))
    s.change("a", released=s.view("a").generation, reserved=answers)
    assert [type(command) for command in s.decide()] == [Dispatch]
    assert s.decide() == []


def test_a_gang_that_may_be_divided_starts_in_one_member_where_its_minimum_fits_and_all_fits_nowhere() -> None:
    s = three(4, 6, 5).submit(make_binding("a").tasks(20, minimum=4).divided())
    assert dispatched(s.run()) == [("a", "m1")]


def test_a_stale_event_does_not_undo_a_commit() -> None:
    s = reserving()
    s.change("a", reserved=granted("m1", "m2", "m3"))
    before = s.view("a")
    s.run()
    s.see(dataclasses.replace(before, generation=before.generation))
    assert s.decide() == []


def test_reserved_room_is_not_counted_twice() -> None:
    s = reserving()
    s.change("a", reserved=granted("m1", "m2", "m3", generation=2))
    s.tell(make_capacity("m1", [3], generation=2))
    s.submit(make_binding("b").tasks(3))
    assert ("b", "m1") in dispatched(s.run())


# -- held by the user ------------------------------------------------------------------------------------------------------


def test_held_work_waits_and_says_so_and_goes_when_it_is_released() -> None:
    s = three(4, 4, 4).submit(make_binding("a").held())
    [command] = s.run()
    assert command.decision.reason is Reason.HELD
    assert s.run() == []
    s.submit(make_binding("a"))
    assert dispatched(s.run()) == [("a", "m1")]


def test_holding_running_work_takes_it_back_and_returns_its_quota() -> None:
    s = Scene(make_queue("q", gpu=4), make_cluster("m"), make_capacity("m", [8])).submit(make_binding("a").tasks(4))
    s.run()
    s.submit(make_binding("b").tasks(4))
    s.run()
    held = make_binding("a").tasks(4).held().build()
    s.change("a", gang=held.gang)
    assert evicted(s.run()) == ["a"]
    s.change("a", released=s.view("a").generation)
    assert dispatched(s.run()) == [("b", "m")]
    assert s.verdict("a") is Reason.HELD


def test_work_without_pods_waits_until_it_has_some() -> None:
    s = three(4, 4, 4).submit(make_binding("a").tasks(0).held())
    [command] = s.run()
    assert command.decision.reason is Reason.NO_PODS
    assert s.verdict("a") is Reason.NO_PODS
    s.submit(make_binding("a").tasks(2))
    assert dispatched(s.run()) == [("a", "m1")]
    s.bound("a", generation=NEVER)
    s.change("a", gang=make_binding("a").tasks(0).held().build().gang)
    [command] = s.run()
    assert isinstance(command, Evict)
    assert command.decision.reason is Reason.NO_PODS
