"""More pods for what runs: whose turn it is, how much may be given, and what its binding says of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec
import pytest

from atoll.dispatcher.core import CapacitySet, Ceiling, Dispatch, Event, NamespaceSet, NamespaceView, Strategy
from atoll.dispatcher.core.commands import Resize
from atoll.dispatcher.core.settings import CoreSettings, GrowthSettings
from atoll.fit.pods import last_pods
from atoll.fit.sizes import can_grow, can_shrink
from atoll.model.decision import Decision, Line, Phase
from atoll.model.gang import TopologyWish
from atoll.model.timestamps import rfc3339, to_seconds
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.backfill.scenes import two_nodes_of_which_the_head_gets_the_second
from tests.dispatcher.builders import (
    EARLY,
    GPU,
    LATE,
    NEVER,
    OLD,
    START,
    Scene,
    explained,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    named,
    names,
    scene,
)
from tests.dispatcher.elastic.scenes import crowded, elastic, resized, runs, scale, started

GROW_TIMEOUT = CoreSettings().progress.grow

HOUR = 3600.0


def two(*queues: Event, room: Iterable[int] = (8,), first: str = "q", second: str = "q", pods: int = 3) -> Scene:
    """`a`, the older, and `b` of two queues run with `pods` together, all that there is for them."""
    s = Scene(*queues, make_cluster("m"), make_capacity("m", room))
    s.submit(elastic("a", 1, 4).queue(first).submitted(EARLY), elastic("b", 1, 4).queue(second).submitted(LATE))
    s.run()
    for name in "ab":
        runs(s, name)
    assert sum(s.used(name) for name in {first, second}) == pods
    assert resized(s.run()) == {}
    return s


# -- whose turn it is --------------------------------------------------------------------------------------------------


def test_the_older_grows_first_though_the_younger_runs_with_its_minimum_only() -> None:
    s = two(make_queue("q", gpu=3))
    s.tell(make_queue("q", gpu=4))
    assert resized(s.run()) == {"a": 3}


def test_the_queue_of_higher_priority_grows_first() -> None:
    s = two(make_queue("x"), make_queue("y", priority=1), room=[2], first="x", second="y", pods=2)
    s.tell(make_capacity("m", [1], generation=NEVER))
    assert resized(s.run()) == {"b": 2}


def test_so_does_that_of_higher_priority_below_another_one() -> None:
    below = [make_queue(name, priority=n, view={"parent": "p"}) for n, name in enumerate("xy")]
    s = two(make_queue("p", gpu=2), *below, first="x", second="y", pods=2)
    s.tell(make_queue("p", gpu=3))
    assert resized(s.run()) == {"b": 2}


def test_equal_ones_that_find_no_room_both_wait_for_it() -> None:
    s = scene()
    s.submit(make_binding("other").tasks(4).priority(1), elastic("a", 2, 4), elastic("b", 2, 4))
    assert started(s.run(), "b") == 2
    for name in ("other", "a", "b"):
        runs(s, name, generation=2)
    s.tell(make_capacity("m", [0], generation=2))
    told = explained(s.run())
    assert {name: told[name].decision.reason for name in "ab"} == dict.fromkeys("ab", Reason.INSUFFICIENT_RESOURCES)
    s.change("other", finished=True)
    s.tell(make_capacity("m", [4], generation=3))
    assert resized(s.run()) == {"a": 4, "b": 4}


def test_room_that_is_given_to_one_is_not_given_to_the_next() -> None:
    s = scene(make_cluster("n"), make_capacity("n", [4]))
    s.submit(make_binding("other").tasks(4).priority(1).affinity(clusterNames=["m"]))
    s.submit(*(elastic(name, 2, 4).affinity(clusterNames=["m"]) for name in "ab"))
    s.run()
    for name in ("other", "a", "b"):
        runs(s, name, generation=2)
    s.change("other", finished=True)
    s.tell(make_capacity("m", [3], generation=2))
    assert resized(s.run()) == {"a": 4, "b": 3}


# -- how much ----------------------------------------------------------------------------------------------------------


def test_it_grows_as_far_as_a_head_is_not_delayed_and_then_says_so() -> None:
    """Of 12, the head needs 9 once `runs` is over: beside it there are 3."""
    s = scene(make_queue("q", view={"strategy": Strategy.BACKFILL}), room=(make_cluster("m"), make_capacity("m", [12])))
    s.submit(make_binding("runs").tasks(4).runs(HOUR))
    s.run()
    s.submit(make_binding("head").tasks(1, gpu=9).submitted(EARLY))
    assert names(s.run()) == []
    s.submit(elastic("a", 1, 6).submitted(LATE))
    assert started(s.run(), "a") == 2
    runs(s, "a")
    assert resized(s.run()) == {"a": 3}
    runs(s, "a")
    commands = s.run()
    assert resized(commands) == {}
    assert explained(commands)["a"].decision.reason is Reason.WOULD_DELAY
    assert s.run() == []
    s.gone("head")
    assert resized(s.run()) == {"a": 6}


def test_each_of_several_tasks_grows_as_far_as_it_has_room() -> None:
    classes = make_capacity("m", [8]).capacity.classes
    room = dataclasses.replace(
        make_capacity("m", [8]).capacity,
        classes=tuple(dataclasses.replace(each, free={**each.free, "cpu": 2}) for each in classes),
    )
    s = scene(room=(make_cluster("m"), CapacitySet(room)))
    s.submit(make_binding("a").tasks(3, minimum=1).tasks(3, minimum=1, requests={"cpu": 1}))
    s.run()
    assert s.view("a").parts == (("m", (3, 2)),)


def test_quota_that_a_shrunk_workload_gives_back_is_for_who_waits_for_it() -> None:
    s = scene(make_queue("q", gpu=8), room=(make_cluster("m"), make_capacity("m", [16])))
    s.submit(elastic("a", 2, 8).submitted(EARLY))
    assert started(s.run(), "a") == 8
    runs(s, "a", generation=1)
    s.submit(make_binding("b").tasks(3).submitted(LATE))
    commands = [command for _ in range(3) for command in s.run()]
    assert resized(commands) == {"a": 5}
    assert names(commands) == ["b"]


def test_it_grows_when_its_queue_gets_quota_back() -> None:
    s = scene(make_queue("q", gpu=5))
    s.submit(make_binding("other").tasks(2).priority(1), elastic("a", 2, 6))
    assert started(s.run(), "a") == 3
    for name in ("other", "a"):
        runs(s, name)
    assert list(explained(s.run())) == ["a"]
    assert s.run() == []
    s.change("other", finished=True)
    assert resized(s.run()) == {"a": 5}


@pytest.mark.parametrize(("pods", "last"), [(0, (0, 0)), (2, (0, 2)), (3, (0, 3)), (4, (1, 3)), (9, (2, 3))])
def test_the_last_pods_are_those_of_the_last_tasks(pods: int, last: tuple[int, int]) -> None:
    wish = make_binding("a").tasks(2).tasks(3).build().gang
    assert wish is not None
    assert last_pods(wish, pods) == last


@pytest.mark.parametrize(
    ("counts", "grows", "shrinks"),
    [
        pytest.param((2, 7), True, True, id="between its minimum and all"),
        pytest.param((3, 8), False, True, id="all"),
        pytest.param((1, 4), True, False, id="its minimum"),
        pytest.param((1, 7), True, True, id="with more of one task alone"),
        pytest.param((0, 8), True, False, id="below its minimum in one task"),
        pytest.param((2, 9), False, True, id="with more of one task than it asks for"),
    ],
)
def test_it_grows_up_to_all_and_shrinks_down_to_its_minimum(
    counts: tuple[int, int], grows: bool, shrinks: bool
) -> None:
    wish = make_binding("a").tasks(3, minimum=1).tasks(8, minimum=4).build().gang
    assert wish is not None
    assert (can_grow(wish, counts), can_shrink(wish, counts)) == (grows, shrinks)


@pytest.mark.parametrize(
    "wish", [TopologyWish("hard", 1), TopologyWish("hard", None, "rack")], ids=["by its number", "by its name"]
)
def test_it_grows_in_the_domain_where_it_runs(wish: TopologyWish) -> None:
    racks = {"r1": [6], "r2": [4]}
    s = scene(room=(make_cluster("m"), make_capacity("m", racks)))
    view = elastic("a", 2, 3).build()
    assert view.gang is not None
    s.see(dataclasses.replace(view, gang=msgspec.structs.replace(view.gang, network_topology=wish)))
    assert started(s.run(), "a") == 3
    runs(s, "a")
    scale(s, "a", 8, 2)
    # The other rack has room for more.
    assert resized(s.run()) == {"a": 4}


def test_it_does_not_grow_beyond_the_ceiling_of_its_queue_in_its_member() -> None:
    def ceiling(gpus: int) -> Event:
        return make_queue("q", view={"members": {"m": Ceiling(capability={GPU: gpus})}})

    s = scene(ceiling(3))
    s.submit(elastic("a", 2, 6))
    assert started(s.run(), "a") == 3
    runs(s, "a")
    told = explained(s.run())["a"].decision
    assert (told.reason, told.blocker) == (
        Reason.QUOTA_EXCEEDED,
        Blocker("Queue", "q", GPU, "1", "0", cluster="m"),
    )
    s.tell(ceiling(5))
    assert resized(s.run()) == {"a": 5}


def test_the_pods_by_which_it_grew_are_the_first_that_go_also_where_their_nodes_have_names() -> None:
    """A report says how many pods each node has, not which; those of before are still where they were."""
    s = scene(room=(make_cluster("m"), named("m", [0, 2])))
    s.submit(elastic("a", 2, 4).submitted(EARLY))
    assert started(s.run(), "a") == 2
    s.change("a", placed={"m": (2, 2)}, nodes={"m": {"m-1": 2}})
    s.tell(named("m", [4, 0], generation=2))
    assert resized(s.run()) == {"a": 4}
    s.change("a", placed={"m": (3, 4)}, nodes={"m": {"m-0": 2, "m-1": 2}})
    s.tell(named("m", [2, 0], generation=3))
    s.submit(make_binding("b").tasks(1, gpu=4).submitted(LATE))
    assert resized(s.run()) == {"a": 2}


# -- what wakes it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(NamespaceView("default", {GPU: 2}), NamespaceView("default", {GPU: 4}), id="quota"),
        pytest.param(NamespaceView("default", {GPU: 2}), NamespaceView("default"), id="no quota any more"),
        pytest.param(
            NamespaceView("default", labels={"team": "b"}), NamespaceView("default", labels={"team": "a"}), id="label"
        ),
    ],
)
def test_it_grows_once_its_namespace_allows_it(before: NamespaceView, after: NamespaceView) -> None:
    queue = make_queue("q", view={"namespaces": {"matchLabels": {"team": "a"}}} if before.labels else {})
    s = scene(queue, NamespaceSet(dataclasses.replace(before, labels=after.labels)))
    s.submit(elastic("a", 2, 4))
    if before.labels:
        s.tell(make_capacity("m", [2]))
    assert started(s.run(), "a") == 2
    s.tell(NamespaceSet(before))
    runs(s, "a")
    assert explained(s.run())
    if before.labels:
        s.tell(make_capacity("m", [8], generation=2))
    assert resized(s.run()) == {}
    s.tell(NamespaceSet(after))
    assert resized(s.run()) == {"a": 4}


def test_it_grows_once_another_workload_of_its_namespace_ends() -> None:
    s = scene(NamespaceSet(NamespaceView("default", {GPU: 4})))
    s.submit(make_binding("other").tasks(2).priority(1), elastic("a", 2, 4))
    assert started(s.run(), "a") == 2
    runs(s, "a")
    assert explained(s.run())["a"].decision.reason is Reason.QUOTA_EXCEEDED
    assert not s.run()
    s.change("other", finished=True)
    assert resized(s.run()) == {"a": 4}


def one_look(gpu: int, *elastics: str) -> Scene:
    """Workloads with one of two pods each fill the queue; a pass looks at one of them."""
    one = CoreSettings(growth=GrowthSettings(looks=1, pause=0.2))
    s = Scene(make_queue("q", gpu=gpu), make_cluster("m"), make_capacity("m", [8]), settings=one)
    s.submit(*(elastic(name, 1, 2) for name in elastics))
    s.run()
    for name in elastics:
        runs(s, name)
    for _ in range(8):
        s.run(after=1.0)
    assert s.core.next_deadline is None
    return s


def test_a_pass_looks_at_so_many_and_at_no_more_before_the_pause_is_over() -> None:
    s = one_look(3, "a", "b", "c")
    s.tell(make_queue("q", gpu=6))
    assert resized(s.run()) == {"a": 2}
    assert resized(s.run(after=0.1)) == {}
    assert s.core.next_deadline == pytest.approx(s.now + 0.1, abs=0.01)
    assert resized(s.run(after=0.2)) == {"b": 2}
    assert resized(s.run(after=0.2)) == {"c": 2}


def test_what_wakes_while_others_have_their_turns_has_one_after_them() -> None:
    s = one_look(3, "a", "b", "c")
    s.tell(make_queue("q", gpu=6), make_queue("r"))
    assert resized(s.run()) == {"a": 2}
    s.submit(elastic("d", 1, 2).queue("r"))
    assert started(s.run(after=0.01), "d") == 1
    for name in "abcd":
        runs(s, name)
    grown: dict[str, int] = {}
    for _ in range(8):
        if (due := s.core.next_deadline) is not None and due < s.now + 1:
            grown |= resized(s.run(after=max(due - s.now, 0.001)))
    assert grown == {"b": 2, "c": 2, "d": 2}


# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "reason", "block"),
    [
        pytest.param(
            make_queue("q", is_open=False), Reason.QUEUE_CLOSED, Blocker("Queue", "q"), id="its queue is closed"
        ),
        pytest.param(
            make_queue("q", gpu=8), Reason.QUOTA_EXCEEDED, Blocker("Queue", "q", GPU, "1", "0"), id="its queue is full"
        ),
        pytest.param(
            NamespaceSet(NamespaceView("default", {GPU: 8})),
            Reason.QUOTA_EXCEEDED,
            Blocker("Namespace", "default", GPU, "1", "0"),
            id="its namespace is full",
        ),
        pytest.param(
            make_cluster("m", ready=False), Reason.CLUSTERS_NOT_READY, Blocker("Cluster", "m"), id="its member is away"
        ),
        pytest.param(
            None,
            Reason.INSUFFICIENT_RESOURCES,
            Blocker("Cluster", "m", "pods", "1", "0"),
            id="its member is full",
        ),
    ],
)
def test_what_runs_with_fewer_pods_than_it_asks_for_says_why(
    stop: Event | None, reason: Reason, block: Blocker
) -> None:
    s = crowded()
    if stop is not None:
        s.tell(stop)
    s.run()
    told = s.view("a").decision
    assert (told.reason, told.blocker) == (reason, block)


def test_to_say_why_it_does_not_grow_moves_no_deadline() -> None:
    s = crowded()
    told = s.view("a").decision
    assert told.reason is Reason.INSUFFICIENT_RESOURCES
    assert told.deadline == s.view("other").decision.deadline != ""


def test_growth_again_and_again_is_one_line_of_its_story() -> None:
    s = scene(make_queue("q", gpu=2))
    s.submit(elastic("a", 2, 6))
    s.run()
    for gpus in (3, 4, 5):
        runs(s, "a")
        s.tell(make_queue("q", gpu=gpus))
        assert resized(s.run()) == {"a": gpus}
    lines = s.view("a").decision.story
    assert [line.reason for line in lines] == [Reason.DISPATCHED, Reason.GROWN]
    assert lines[-1].text == "5 pods, not 4: there is room"


def test_the_pods_by_which_it_grew_are_expected_for_a_while() -> None:
    s = crowded()
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    s.run()
    assert to_seconds(s.view("a").decision.deadline) == pytest.approx(s.now + GROW_TIMEOUT, abs=0.01)
    # They are waited for, not demanded: it goes on with those that it has.
    assert s.run(after=GROW_TIMEOUT + 1) == []
    assert s.used("q") == 6


def test_a_new_leader_subtracts_only_the_pods_that_the_figures_lack() -> None:
    """The figures are as new as the report of its first three pods; three more are to come."""
    s = crowded(priority=1)
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    runs(s, "a", generation=3)
    assert resized(s.run()) == {"a": 6}
    s.restart()
    s.submit(make_binding("three").tasks(3).submitted(EARLY), make_binding("two").tasks(2).submitted(LATE))
    assert names(s.run()) == ["two"]


def test_what_ends_while_it_wants_more_is_forgotten() -> None:
    s = crowded()
    s.gone("a")
    s.change("other", finished=True)
    s.tell(make_capacity("m", [8], generation=3))
    assert s.run() == []
    s.submit(make_binding("b").tasks(8))
    assert names(s.run()) == ["b"]
    assert s.used("q") == 8
    runs(s, "b", generation=NEVER)


def test_what_another_scheduler_placed_unknown_to_the_host_grows_too() -> None:
    s = scene()
    view = elastic("a", 2, 6).build()
    s.see(dataclasses.replace(view, epoch=1, generation=2, suspended=False, parts=(("m", (2,)),), bound=True))
    s.bound("a", generation=1, pods=2)
    assert resized(s.run()) == {"a": 6}


def test_a_new_leader_counts_all_pods_of_what_grows_where_its_member_has_not_told_of_any() -> None:
    s = scene()
    line = Line(rfc3339(START), Phase.DISPATCHED, Reason.GROWN)
    decision = Decision(1, Phase.DISPATCHED, Reason.GROWN, None, rfc3339(START + GROW_TIMEOUT), [line])
    view = elastic("a", 2, 6).build()
    s.see(
        dataclasses.replace(
            view, epoch=1, generation=3, suspended=False, parts=(("m", (6,)),), decision=decision, bound=True
        )
    )
    s.submit(make_binding("three").tasks(3).submitted(EARLY), make_binding("two").tasks(2).submitted(LATE))
    assert names(s.run()) == ["two"]


def test_nothing_is_kept_of_the_size_of_what_is_gone() -> None:
    s = crowded(priority=2)
    runs(s, "other")
    scale(s, "other", 2, 1)
    s.run()
    scale(s, "other", 4, 1)
    s.run()
    core = s.core
    assert len(core.state.wakes)
    assert core.state.sizes.spare
    for name in ("a", "other"):
        s.gone(name)
    s.run()
    assert not any(
        (
            core.state.sizes.hungry.awake,
            len(core.state.wakes),
            core.decisions.stopped,
            core.state.sizes.oversized,
        )
    )
    assert not any(core.state.sizes.spare.values())


def test_what_grows_again_counts_though_a_report_of_before_it_shrank_says_that_more_of_it_runs() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [4])))
    s.submit(make_binding("a").tasks(4))
    s.run()
    s.tell(make_capacity("m", [0], generation=2))
    s.bound("a", generation=2)

    def wish(pods: int) -> None:
        gang = s.view("a").gang
        assert gang is not None
        task = msgspec.structs.replace(gang.tasks[0], replicas=pods, min_available=1)
        gang = msgspec.structs.replace(gang, tasks=[task], min_available=1)
        s.change("a", gang=gang, generation=s.view("a").generation + 1)
        s.run()

    wish(1)
    s.tell(make_capacity("m", [3], generation=3))
    wish(2)
    assert s.view("a").parts == (("m", (2,)),)
    s.submit(make_binding("b").tasks(3).priority(-1))
    assert names(s.run()) == []
    s.run(after=OLD)
    assert s.view("b").parts


# -- where -------------------------------------------------------------------------------------------------------------


def test_the_member_is_told_the_nodes_of_the_new_pods_lest_they_take_the_place_of_who_is_dispatched_beside_them() -> (
    None
):
    """`a` holds half of the first node; `b`, which needs a whole one, gets the second."""
    s = Scene(make_queue("q", gpu=4), make_cluster("m"), named("m", [8, 8]))
    s.submit(elastic("a", 1, 8).submitted(EARLY))
    s.run()
    runs(s, "a")
    s.tell(make_queue("q", gpu=16))
    commands = s.submit(make_binding("b").tasks(1, gpu=8).submitted(LATE)).run()
    assert names(commands) == ["b"]
    [grows] = [each for each in commands if isinstance(each, Resize)]
    assert grows.decision.expected == {"m": [("t0", "m-0", 4)]}


def test_who_starts_with_more_than_its_minimum_beside_a_reservation_is_told_the_nodes_of_all_its_pods() -> None:
    s = two_nodes_of_which_the_head_gets_the_second()
    [begins] = s.submit(elastic("a", 1, 2).runs(2 * HOUR).submitted(LATE)).run()
    assert isinstance(begins, Dispatch)
    assert sum(part.pods for part in begins.parts) == 2
    spots = begins.decision.expected["m"]
    assert [(node, count) for _, node, count in spots] == [("m-0", 1), ("m-0", 1)]
