"""Workloads between their minimum and all of their pods: what they start with, when they grow, who shrinks."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import pytest

from atoll.dispatcher.core import Dispatcher, NamespaceSet, NamespaceView
from atoll.dispatcher.core.settings import CoreSettings
from atoll.fit.pods import as_before
from atoll.fit.sizes import Several, fill, smaller, spares
from atoll.model.decision import Phase
from atoll.model.gang import Gang, Partition
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    EARLY,
    GPU,
    LATE,
    NEVER,
    OLD,
    BindingBuilder,
    Scene,
    evicted,
    explained,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
    share,
)
from tests.dispatcher.elastic.scenes import crowded, elastic, resized, runs, scale, started

HELPLESS = CoreSettings().preemption.pause


def gang(builder: BindingBuilder) -> Gang:
    found = builder.build().gang
    assert found is not None
    return found


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        pytest.param(make_binding("a").tasks(4), [], id="all or nothing"),
        pytest.param(elastic("a", 2, 5), [(4,), (3,), (2,)], id="one task pod by pod"),
        pytest.param(
            make_binding("a").tasks(1).tasks(4, minimum=2), [(1, 3), (1, 2)], id="a task that is needed whole"
        ),
        pytest.param(
            make_binding("a").tasks(3, minimum=1).tasks(6, minimum=2),
            [(3, 5), (2, 5), (2, 4), (2, 3), (1, 3), (1, 2)],
            id="several tasks in proportion, pod by pod",
        ),
        pytest.param(
            make_binding("a").tasks(2).tasks(3).minimum(2), [(2, 2), (2, 1), (2, 0)],
            id="a minimum that is filled in task order",
        ),
        pytest.param(
            make_binding("a").tasks(8, minimum=4, unit=4), [(4,)], id="pods that are made four at a time"
        ),
        pytest.param(
            make_binding("a").tasks(3, minimum=1, unit_name="s").tasks(6, minimum=2, unit_name="s", unit=2),
            [(2, 4), (1, 2)],
            id="leaders with their workers",
        ),
    ],
)  # fmt: skip
def test_sizes_below_all_of_it(builder: BindingBuilder, expected: list[tuple[int, ...]]) -> None:
    wish = gang(builder)
    assert [*smaller(wish, tuple(wish.full()))] == expected


def test_of_many_pods_several_go_at_a_time_but_few_more_than_must() -> None:
    wish = gang(make_binding("a").tasks(1_000_000, minimum=1))
    left = [1_000_000, *(size for (size,) in smaller(wish, (1_000_000,)))]
    assert (len(left) < 150, left[-1]) == (True, 1)
    assert all(before - after <= 1 + (1_000_000 - before) / 8 for before, after in itertools.pairwise(left))


@pytest.mark.parametrize(
    ("builder", "room", "expected", "asked"),
    [
        pytest.param(make_binding("a").tasks(100_000, minimum=1), {"t0": 70_001}, (70_001,), 40, id="one task"),
        pytest.param(
            make_binding("a").tasks(40, minimum=0).tasks(80, minimum=0), {"": 60}, (20, 40), 20, id="in proportion"
        ),
        pytest.param(
            make_binding("a").tasks(40, minimum=0).tasks(80, minimum=0), {"t1": 7}, (40, 7), 20, id="what goes"
        ),
        pytest.param(
            make_binding("a").tasks(40, minimum=0, unit=8).tasks(3, minimum=0), {"t0": 31}, (24, 3), 20, id="sets"
        ),
    ],
)  # fmt: skip
def test_a_gang_is_filled_with_few_questions(
    builder: BindingBuilder, room: dict[str, int], expected: tuple[int, ...], asked: int
) -> None:
    wish, taken, questions = gang(builder), [0, 0], 0

    def take(pods: Sequence[tuple[int, int]]) -> bool:
        nonlocal questions
        questions += 1
        then = [has + dict(pods).get(index, 0) for index, has in enumerate(taken)]
        if sum(then) > room.get("", sum(then)) or any(then[i] > room.get(f"t{i}", then[i]) for i in range(2)):
            return False
        taken[:] = then
        return True

    assert fill(wish, [0] * len(wish.tasks), wish.full(), take) == expected == tuple(taken)[: len(expected)]
    assert questions <= asked


def test_the_last_unit_is_no_larger_than_the_pods_that_are_missing() -> None:
    wish = gang(make_binding("a").tasks(6, partition=Partition(4)))
    asked: list[Several] = []

    def take(pods: Several) -> bool:
        asked.append(pods)
        return True

    assert fill(wish, [4], [6], take) == (6,)
    assert asked == [[(0, 2)]]


def test_the_pods_of_the_highest_indices_go_first() -> None:
    wish = gang(elastic("a", 1, 4))
    steps = spares(wish, (4,), "m", [(0, 7, 2), (0, 3, 1)])
    # The fourth has no node yet; then that on node 3, then the second on node 7.
    assert [[(node, count) for node, _, count in step.pods.get("m", ())] for step in steps] == [[], [(3, 1)], [(7, 1)]]
    assert all(step.amount == {"pods": 1, GPU: 1} for step in steps)


def test_pods_keep_their_order_and_new_ones_come_last() -> None:
    before = [(0, 7, 2), (0, 9, 1)]
    assert as_before([(0, 3, 1), (0, 7, 3), (0, 9, 1)], before) == [(0, 7, 2), (0, 9, 1), (0, 3, 1), (0, 7, 1)]
    assert as_before([(0, 7, 2)], before) == [(0, 7, 2)]


# -- starting ----------------------------------------------------------------------------------------------------------


def test_it_starts_with_as_many_pods_as_there_is_room_for() -> None:
    s = scene()
    s.submit(elastic("a", 2, 6, gpu=2))
    assert started(s.run(), "a") == 4
    assert s.used("q") == 8
    [(_, counts)] = s.view("a").parts
    assert counts == (4,)


def test_it_starts_with_as_many_pods_as_its_queue_admits() -> None:
    s = scene(make_queue("q", gpu=3))
    s.submit(elastic("a", 2, 6))
    assert started(s.run(), "a") == 3


def test_it_waits_while_its_minimum_does_not_fit() -> None:
    s = scene(make_queue("q", gpu=1))
    s.submit(elastic("a", 2, 6))
    assert names(s.run()) == []
    assert s.verdict("a") is Reason.QUOTA_EXCEEDED


def test_the_minimum_of_all_goes_before_more_of_one() -> None:
    s = scene()
    s.submit(elastic("a", 2, 8).submitted(EARLY), elastic("b", 3, 8).submitted(LATE))
    commands = s.run()
    assert (started(commands, "a"), started(commands, "b")) == (5, 3)


def test_several_tasks_start_in_proportion() -> None:
    s = scene()
    s.submit(make_binding("a").tasks(3, minimum=1).tasks(9, minimum=3))
    s.run()
    [(_, counts)] = s.view("a").parts
    assert counts == (2, 6)


def test_a_hard_topology_keeps_all_pods_in_one_domain() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", {"r1": [2], "r2": [5]})))
    s.submit(elastic("a", 2, 4).hard(1))
    # The tighter one would hold its minimum only.
    assert started(s.run(), "a") == 4
    s.tell(make_capacity("m", {"r1": [2], "r2": [5]}, generation=2))
    runs(s, "a")
    scale(s, "a", 6, 2)
    assert resized(s.run()) == {"a": 5}


def test_a_gang_that_may_be_divided_runs_with_all_of_its_pods() -> None:
    s = scene(make_cluster("n"), make_capacity("n", [8]))
    s.submit(elastic("a", 2, 12).divided())
    assert started(s.run(), "a") == 12


# -- growing -----------------------------------------------------------------------------------------------------------


def test_it_grows_when_another_one_ends() -> None:
    s = crowded()
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    commands = s.run()
    assert resized(commands) == {"a": 6}
    assert s.view("a").epoch == 1, "the epoch stays"
    assert s.view("a").decision.reason is Reason.GROWN
    assert s.view("a").decision.phase is Phase.DISPATCHED
    assert s.used("q") == 6
    assert resized(s.run()) == {}


def test_what_waits_goes_before_more_of_what_runs() -> None:
    s = crowded()
    s.submit(make_binding("next").tasks(4))
    assert names(s.run()) == []
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    commands = s.run()
    assert names(commands) == ["next"]
    assert resized(commands) == {"a": 4}


def test_pods_that_are_to_come_are_not_given_away_again() -> None:
    s = crowded(priority=1)
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    assert resized(s.run()) == {"a": 6}
    # The member has not bound them, whatever it publishes.
    s.tell(make_capacity("m", [5], generation=4))
    s.submit(make_binding("next").tasks(3))
    assert names(s.run()) == []
    s.submit(make_binding("small").tasks(2))
    assert names(s.run()) == ["small"]
    runs(s, "a", generation=5)
    s.gone("small")
    s.tell(make_capacity("m", [2], generation=5))
    assert names(s.run()) == []
    s.tell(make_capacity("m", [3], generation=6))
    assert names(s.run()) == ["next"]


def test_after_a_while_the_members_figures_are_believed() -> None:
    s = crowded(priority=1)
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    assert resized(s.run()) == {"a": 6}
    s.submit(make_binding("next").tasks(3))
    assert names(s.run()) == []
    assert s.core.next_deadline is not None
    assert names(s.run(after=31.0)) == ["next"]


def test_a_new_leader_leaves_room_for_pods_that_are_to_come() -> None:
    s = crowded(priority=1)
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    assert resized(s.run()) == {"a": 6}
    views, now = dict(s.views), s.now
    t = scene(room=(make_cluster("m"), make_capacity("m", [5], generation=3)))
    t.now = now
    for view in views.values():
        t.see(view)
    assert t.used("q") == 6
    t.submit(make_binding("next").tasks(3))
    assert names(t.run()) == []


def test_a_refused_growth_is_undone_and_tried_again() -> None:
    s = crowded()
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    [command] = s.decide()
    assert s.used("q") == 6
    s.refuse(command)
    assert s.used("q") == 3
    assert resized(s.run()) == {"a": 6}


def test_a_late_refusal_of_an_older_size_means_nothing() -> None:
    """1. Growth is decided. 2. Its user changes something. 3. It is decided again. 4. The first write is refused."""
    s = crowded()
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    [first] = s.decide()
    s.change("a", generation=first.generation + 1)
    [second] = s.decide()
    s.refuse(first)
    assert s.used("q") == 6
    s.write(second)
    assert s.used("q") == 6


def test_a_report_that_overtakes_the_write_changes_nothing() -> None:
    s = crowded()
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=3))
    [command] = s.decide()
    s.change("a", placed={"m": (3, 3)})
    assert s.used("q") == 6
    s.write(command)
    assert s.used("q") == 6


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(make_queue("q", gpu=8), id="its queue has no more"),
        pytest.param(make_queue("q", is_open=False), id="its queue is closed"),
        pytest.param(make_cluster("m", ready=False), id="its member is not ready"),
        pytest.param(NamespaceSet(NamespaceView("default", {GPU: 3})), id="its namespace has no more"),
    ],
)
def test_what_keeps_it_from_growing(stop: object) -> None:
    s = scene(make_queue("q", gpu=8), make_queue("p"))
    s.submit(make_binding("other").queue("p").tasks(5).submitted(EARLY), elastic("a", 2, 6).submitted(LATE))
    assert started(s.run(), "a") == 3
    for name in ("a", "other"):
        runs(s, name, generation=2)
    s.tell(make_queue("q", gpu=3) if stop == make_queue("q", gpu=8) else stop)  # type: ignore[arg-type]
    s.change("other", finished=True)
    s.tell(make_capacity("m", [5], generation=2))
    assert resized(s.run()) == {}
    s.tell(make_queue("q", gpu=8), make_cluster("m"), NamespaceSet(NamespaceView("default", {GPU: 8})))
    assert resized(s.run()) == {"a": 6}


def test_it_does_not_grow_into_room_that_is_kept_for_others() -> None:
    s = crowded()
    s.submit(make_binding("high").tasks(8).priority(2))
    s.now += OLD
    assert evicted(s.run()) == ["a", "other"]
    let_go(s, "other")
    s.tell(make_capacity("m", [5], generation=3))
    assert resized(s.run()) == {}


# -- users -------------------------------------------------------------------------------------------------------------


def test_more_replicas_of_a_running_workload_pass_through_quota() -> None:
    s = scene(make_queue("q", gpu=6))
    s.submit(make_binding("a").tasks(4))
    s.run()
    runs(s, "a")
    scale(s, "a", 8)
    commands = s.run()
    assert resized(commands) == {}
    assert s.used("q") == 4
    assert explained(commands)["a"].decision.reason is Reason.QUOTA_EXCEEDED
    assert explained(commands)["a"].decision.phase is Phase.DISPATCHED
    assert explained(s.run()) == {}, "said once"
    s.tell(make_queue("q", gpu=8))
    assert resized(s.run()) == {"a": 8}


def test_what_a_user_waits_for_goes_before_more_of_others() -> None:
    s = scene(make_queue("q", gpu=7))
    s.submit(elastic("a", 2, 8).submitted(EARLY), make_binding("b").tasks(2).submitted(LATE))
    s.run()
    for name in ("a", "b"):
        runs(s, name)
    assert s.used("q") == 7
    scale(s, "b", 3)
    s.tell(make_queue("q", gpu=8))
    assert resized(s.run()) == {"b": 3}


def test_fewer_replicas_give_quota_back_at_once() -> None:
    s = scene(make_queue("q", gpu=6))
    s.submit(make_binding("a").tasks(6).submitted(EARLY), make_binding("b").tasks(3).submitted(LATE))
    assert names(s.run()) == ["a"]
    runs(s, "a", generation=2)
    s.tell(make_capacity("m", [2], generation=2))
    scale(s, "a", 3)
    assert s.used("q") == 3
    assert resized(s.run()) == {"a": 3}
    # Its nodes are free once the member says so.
    s.tell(make_capacity("m", [5], generation=3))
    assert names(s.run()) == ["b"]
    scale(s, "a", 6)
    assert s.used("q") == 6
    assert resized(s.run()) == {}


def test_more_again_before_fewer_is_written_down_passes_through_quota() -> None:
    s = scene(make_queue("q", gpu=6))
    s.submit(make_binding("a").tasks(6).submitted(EARLY), make_binding("b").tasks(4).submitted(LATE))
    s.run()
    runs(s, "a", generation=2)
    scale(s, "a", 2)
    s.tell(make_capacity("m", [6], generation=2))
    scale(s, "a", 6)
    assert s.used("q") == 2
    commands = s.run()
    assert names(commands) == ["b"]
    assert resized(commands) == {"a": 2}
    assert s.used("q") == 6


def test_fewer_replicas_of_what_waits_to_be_bound() -> None:
    s = scene(make_queue("q", gpu=6))
    s.submit(make_binding("a").tasks(6))
    s.run()
    scale(s, "a", 2)
    assert s.used("q") == 2
    assert resized(s.run()) == {"a": 2}
    scale(s, "a", 6)
    assert s.used("q") == 2
    # It is given more once what it must have is bound.
    assert resized(s.run()) == {}
    s.bound("a", generation=NEVER, pods=2)
    assert resized(s.run()) == {"a": 6}


# -- shrinking ---------------------------------------------------------------------------------------------------------


def grown(queue: str = "q", *queues: object, age: float = 0.0) -> Scene:
    """`a` runs with all of its 8 pods though 2 are enough, on two nodes of 4 GPUs."""
    s = Scene(make_queue("q"), *queues, make_cluster("m"), make_capacity("m", [4, 4]))  # type: ignore[arg-type]
    s.submit(elastic("a", 2, 8).queue(queue).submitted(EARLY))
    assert started(s.run(), "a") == 8
    runs(s, "a")
    s.now += age
    return s


def shrunk(s: Scene, name: str, pods: int, *, generation: int, free: list[int]) -> None:
    """The member has removed the pods."""
    s.bound(name, generation=generation, pods=pods)
    s.tell(make_capacity("m", free, generation=generation))


def test_what_waits_in_its_queue_takes_its_surplus_even_if_it_is_young() -> None:
    s = grown()
    s.submit(make_binding("b").tasks(3).submitted(LATE))
    commands = s.run()
    assert resized(commands) == {"a": 5}
    assert evicted(commands) == []
    assert s.view("a").decision.reason is Reason.SHRUNK
    assert s.used("q") == 5
    shrunk(s, "a", 5, generation=1, free=[0, 3])
    assert names(s.run()) == ["b"]
    assert resized(s.run()) == {}


def test_who_takes_surplus_is_told_of_the_room_where_it_will_be() -> None:
    """The pods by which it grew go first, wherever they are."""
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", {"r1": [0, 4], "r2": [0, 0]}))
    s.submit(elastic("a", 2, 4).submitted(EARLY))
    assert started(s.run(), "a") == 4
    runs(s, "a", generation=2)
    scale(s, "a", 6, 2)
    s.tell(make_capacity("m", {"r1": [2, 0], "r2": [0, 0]}, generation=2))
    assert resized(s.run()) == {"a": 6}
    runs(s, "a", generation=3)
    s.tell(make_capacity("m", {"r1": [0, 0], "r2": [0, 0]}, generation=3))
    # One pod of two GPUs: both of the first node, before any of the second.
    s.submit(make_binding("b").tasks(1, gpu=2).submitted(LATE))
    assert resized(s.run()) == {"a": 4}


def test_what_waits_is_helped_once_others_have_grown_enough() -> None:
    """Room that comes bit by bit goes to what can use it; a gang that waits takes it back when it is enough."""
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    others = [make_binding(f"x{n}").tasks(2) for n in range(3)]
    s.submit(*others, elastic("a", 2, 8).submitted(LATE))
    assert len(names(s.run())) == 4
    for name in ("x0", "x1", "x2", "a"):
        runs(s, name, generation=2)
    s.tell(make_capacity("m", [0], generation=2))
    s.submit(make_binding("b").tasks(6).submitted(LATE))
    assert resized(s.run()) == {}
    for number in range(3):
        s.now += 1.0
        s.change(f"x{number}", finished=True)
        s.tell(make_capacity("m", [2], generation=3 + number))
        if number < 2:
            assert resized(s.run()) == {"a": 4 + 2 * number}
            runs(s, "a", generation=3 + number)
            s.tell(make_capacity("m", [0], generation=3 + number))
            assert resized(s.run()) == {}
    s.run()
    s.run(after=HELPLESS)
    assert s.used("q") == 2
    s.bound("a", generation=9, pods=2)
    s.tell(make_capacity("m", [6], generation=9))
    assert names(s.run()) == ["b"]


def test_never_below_the_minimum() -> None:
    s = grown()
    s.submit(make_binding("b").tasks(7).submitted(LATE))
    commands = s.run()
    assert resized(commands) == {}
    assert evicted(commands) == []


def test_a_lower_priority_takes_nothing() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(elastic("a", 2, 8).priority(1))
    s.run()
    runs(s, "a")
    s.submit(make_binding("b").tasks(1))
    assert resized(s.run()) == {}


def test_a_firm_one_keeps_its_surplus() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(elastic("a", 2, 8).firm())
    s.run()
    runs(s, "a")
    s.submit(make_binding("b").tasks(1).priority(1))
    s.now += OLD
    assert resized(s.run()) == {}


def test_an_entitled_queue_takes_surplus_before_any_whole_gang() -> None:
    s = Scene(share("a", 2), share("b", 6), make_cluster("m"), make_capacity("m", [4, 4]))
    s.submit(make_binding("rigid").queue("a").tasks(2).submitted(EARLY), elastic("e", 2, 6).queue("a").submitted(LATE))
    commands = s.run()
    assert (started(commands, "rigid"), started(commands, "e")) == (2, 6)
    for name in ("rigid", "e"):
        runs(s, name, generation=1)
    s.tell(make_capacity("m", [0, 0], generation=1))
    s.now += OLD
    s.submit(make_binding("b").queue("b").tasks(4))
    commands = s.run()
    assert resized(commands) == {"e": 2}
    assert evicted(commands) == []
    s.submit(make_binding("b2").queue("b").tasks(2).submitted(LATE))
    s.bound("e", generation=2, pods=2)
    s.tell(make_capacity("m", [2, 2], generation=2))
    commands = s.run()
    assert names(commands) == ["b"]
    # Nothing is left to spare: a whole gang goes.
    assert len(evicted(commands)) == 1


def test_what_was_shrunk_grows_again_when_there_is_room() -> None:
    s = grown()
    s.submit(make_binding("b").tasks(3).submitted(LATE))
    assert resized(s.run()) == {"a": 5}
    shrunk(s, "a", 5, generation=1, free=[0, 3])
    assert names(s.run()) == ["b"]
    runs(s, "b", generation=2)
    s.tell(make_capacity("m", [0, 0], generation=2))
    s.run()
    s.change("b", finished=True)
    s.tell(make_capacity("m", [0, 3], generation=3))
    assert resized(s.run()) == {"a": 8}
    told = [line.reason for line in s.view("a").decision.story]
    assert told.index(Reason.SHRUNK) < told.index(Reason.GROWN)


def test_the_same_history_gives_the_same_sizes() -> None:
    s = grown()
    s.submit(make_binding("b").tasks(3).submitted(LATE))
    s.run()
    again = Dispatcher()
    assert [again.handle(event) for event in s.log] == s.answers


def test_what_is_seen_twice_is_charged_once() -> None:
    s = grown()
    view = s.view("a")
    for _ in range(2):
        s.see(dataclasses.replace(view))
    assert s.used("q") == 8
