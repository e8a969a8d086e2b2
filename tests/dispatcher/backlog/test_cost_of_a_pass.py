"""A pass costs what has changed: what is computed once and kept while it is so, and what is thrown away at last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from atoll.dispatcher.core import Ceiling, Dispatch
from atoll.dispatcher.core.admission import Admission
from atoll.dispatcher.core.backlog.backlog import ShapeClass
from atoll.dispatcher.core.preemption import dry_run
from atoll.dispatcher.core.quota.lending import may_lend
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.core.settings import CoreSettings
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    GPU,
    NEVER,
    OLD,
    ROOM,
    Scene,
    dispatched,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
    share,
)
from tests.dispatcher.memory import size
from tests.dispatcher.quota.trees import pend, queue, tree_of, use

RENEWAL = CoreSettings().backfill.renewal

HOUR = 3600.0


def running(s: Scene, *more: object) -> Scene:
    s.submit(make_binding("runs").tasks(8).runs(HOUR))
    assert names(s.run()) == ["runs"]
    s.bound("runs", generation=NEVER)
    return s


def headed(*, known: bool = True) -> Scene:
    """`runs` takes all of m, and room is kept for `head`."""
    s = scene(make_queue("q", view=BACKFILL), make_queue("other"))
    work = make_binding("runs").tasks(8)
    s.submit(work.runs(HOUR) if known else work)
    s.run()
    s.bound("runs", generation=NEVER)
    s.submit(make_binding("head").tasks(4).submitted(EARLY))
    assert names(s.run()) == []
    return s


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_a_victim_is_made_once_and_again_only_when_something_of_it_is_another() -> None:
    s = running(scene())
    [first] = s.core.triggers.running()
    assert [*s.core.triggers.running()] == [first]
    s.tell(make_queue("q", view={"protection": 5.0}))
    [second] = s.core.triggers.running()
    assert (first.protection, second.protection) == (60.0, 5.0)
    s.bound("runs", generation=2)
    [third] = s.core.triggers.running()
    assert third is not second


def test_a_choice_that_would_delay_a_head_is_known_to_until_its_member_changes() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_queue("other"), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR))
    s.run()
    s.submit(make_binding("head").tasks(2, gpu=8))
    s.run()
    s.submit(make_binding("long").queue("other"))
    assert names(s.run()) == []
    reservations, member = s.core.reservations, s.core.members.by_name["m"]
    assert [promise.uid for promise in reservations.refused_before("uid-long", member, math.inf)] == ["uid-head"]
    assert reservations.refused_before("uid-long", member, s.now + 1) == [], "a shorter one was not tried"
    assert reservations.refused_before("uid-else", member, math.inf) == []
    member.changes += 1
    assert reservations.refused_before("uid-long", member, math.inf) == []


def test_no_victim_is_searched_where_limits_that_are_reserved_for_a_head_allow_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 8 GPUs of a limit all are lent for an hour, and promised to a head after that."""
    queues = [
        share("lent", 2, parent="top"),
        share("own", 4, parent="top"),
        share("third", 8, parent="top", **BACKFILL),
    ]
    s = Scene(make_queue("top", gpu=8), *queues, make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(*(make_binding(f"runs{n}").queue("lent").tasks(2).runs(HOUR) for n in range(4)))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("head").queue("third").tasks(8).runs(HOUR))
    s.run(after=OLD)
    assert [promise.uid for promise in s.core.reservations.made.values()] == ["uid-head"]
    sought: list[str] = []
    monkeypatch.setattr(dry_run, "plan", lambda claimant, *_, **__: sought.append(claimant.uid))
    s.submit(make_binding("claims").queue("own").tasks(2).runs(2 * HOUR))
    s.run()
    assert sought == []
    s.submit(make_binding("passes").queue("own").tasks(3).runs(60.0).submitted(EARLY))
    s.run()
    assert sought == ["uid-passes"]


def test_a_start_that_is_not_known_is_not_computed_again_within_a_second() -> None:
    s = headed(known=False)
    [promise] = s.core.reservations.made.values()
    s.run(after=RENEWAL / 2)
    assert s.core.reservations.made["uid-head"] is promise
    s.now = promise.computed + RENEWAL
    s.run(after=0.0)
    assert s.core.reservations.made["uid-head"] is not promise


def test_a_start_that_is_known_is_not_computed_again_before_it_has_passed() -> None:
    s = headed()
    [promise] = s.core.reservations.made.values()
    s.run(after=HOUR / 2)
    assert s.core.reservations.made["uid-head"] is promise


def test_which_members_a_queue_may_use_is_computed_once() -> None:
    s = Scene(make_queue("q", view={"members": {"m": Ceiling()}}), *ROOM, make_cluster("n"), make_capacity("n", [1]))
    s.run()
    leaf = s.core.tree.queue("q")
    assert s.core.state.exclusions.serves(leaf) is not None
    assert s.core.state.exclusions.serves(leaf) is s.core.state.exclusions.serves(leaf)


def test_new_figures_or_nodes_of_a_member_lay_nothing_out_anew() -> None:
    s = running(scene(make_cluster("n"), make_capacity("n", [4])))
    version, arrays = s.core.members.table.version, s.core.members.table.counts
    s.tell(make_capacity("n", [3], generation=2))
    s.run()
    assert (s.core.members.table.version, s.core.members.table.counts is arrays) == (version, True)
    s.tell(make_capacity("n", [3, 1], generation=3))
    s.run()
    assert (s.core.members.table.version, s.core.members.table.counts is arrays) == (version, True)
    s.tell(make_cluster("o"))
    s.run()
    assert s.core.members.table.version > version


def test_equal_work_of_queues_that_nothing_restricts_is_of_one_shape() -> None:
    s = Scene(
        make_queue("q"), make_queue("r"), make_queue("own", view={"members": {"m": Ceiling(capability={GPU: 1})}})
    )
    s.tell(*ROOM).submit(*(make_binding(f"in-{name}").queue(name).tasks(9) for name in ("q", "r", "own")))
    assert len({id(binding.shape) for binding in s.core.bindings.values()}) == 2


def test_a_quick_look_at_a_queue_leaves_out_those_that_lend_nothing_at_all() -> None:
    views = [queue("a", deserved={"gpu": 4}), queue("top", deserved={"gpu": 4}), queue("b", "top", deserved={"gpu": 2})]
    tree = tree_of(*views, queue("c", "top", deserved={"gpu": 2}, reclaimable=False), total={"gpu": 8})
    pend(tree, "a", gpu=4)
    for name, gpus in (("b", 3), ("c", 3)):
        use(tree, name, gpu=gpus)
    test = may_lend(tree.queue("a"), {"gpu": 1})
    assert {name: test(tree.queue(name)) for name in ("a", "b", "c", "top")} == {
        "a": True,
        "b": True,
        "c": False,
        "top": True,
    }
    use(tree, "c", gpu=-3)
    test = may_lend(tree.queue("a"), {"gpu": 1})
    assert not test(tree.queue("b")), "the one above it uses no more than it deserves"


def test_but_none_that_lends_something_of_one_of_several_resources() -> None:
    views = [queue("a", deserved={"gpu": 4, "cpu": 4}), queue("b", deserved={"gpu": 2, "cpu": 8})]
    tree = tree_of(*views, total={"gpu": 8, "cpu": 16})
    pend(tree, "a", gpu=1, cpu=1)
    use(tree, "b", gpu=4, cpu=1)
    assert may_lend(tree.queue("a"), {"gpu": 1, "cpu": 1})(tree.queue("b"))


def test_what_holds_a_shape_is_told_with_the_member_where_it_is_alone() -> None:
    s = scene(room=(*(make_cluster(n) for n in "mn"), make_capacity("m", [2]), make_capacity("n", [3])))
    s.submit(make_binding("one").tasks(3), make_binding("both").tasks(5).divided(), make_binding("none").tasks(4))
    members, bindings = s.core.members, s.core.bindings
    shapes = [shape for name in ("one", "both", "none") if (shape := bindings[f"uid-{name}"].shape) is not None]
    assert members.table.may_fit(shapes) == ([True, True, False], [1, -1, -1])


# -- what is thrown away -----------------------------------------------------------------------------------------------


def test_victims_that_are_gone_are_forgotten() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [200]))
    s.submit(*(make_binding(f"b{number}") for number in range(100)))
    s.run()
    assert len([*s.core.triggers.running()]) == 100
    for number in range(99):
        s.gone(f"b{number}")
    assert len([*s.core.triggers.running()]) == 1


def test_nothing_is_counted_for_shapes_of_which_nobody_is_left() -> None:
    """The tables grow with the shapes that wait at once, not with those that ever did."""
    s = scene(room=(make_cluster("m"), make_capacity("m", {"r1": [4], "r2": [4]})))
    sizes = []
    for turn in range(4):
        for number in range(70):
            wish = {"cpu": 100 * turn + number, "pods": 1}
            s.submit(make_binding(f"b{turn}-{number}").tasks(99, requests=wish, gpu=number % 4))
        s.run()
        shapes = [shape for binding in s.core.bindings.values() if (shape := binding.shape) is not None]
        for number in range(70):
            s.gone(f"b{turn}-{number}")
        s.run()
        assert not any(shape.rows for shape in shapes)
        sizes.append(size(s.core.members))
    assert sizes[3] <= sizes[1], sizes


def test_queues_in_which_a_workload_waits_or_does_so_no_longer_are_named_once() -> None:
    s = scene(make_queue("other"))
    s.decide()
    s.submit(make_binding("a").tasks(9))
    s.decide()
    assert [node.name for node in s.core.changes.waits] == ["q"], "it says why"
    s.decide()
    assert not s.core.changes.waits
    s.gone("a")
    s.decide()
    assert [node.name for node in s.core.changes.waits] == ["q"]


def test_a_shape_that_comes_back_takes_the_place_that_it_had() -> None:
    s = scene().submit(make_binding("a").tasks(9))
    s.run()
    before = size(s.core.members)
    s.gone("a")
    s.submit(make_binding("b").tasks(9))
    s.run()
    assert size(s.core.members) == before


def test_of_what_room_wakes_only_as_much_is_looked_at_as_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    examine = Admission.examine

    def counted(core: Admission, group: ShapeClass) -> Sequence[Dispatch]:
        looked_at.append(group.leaf.name)
        return examine(core, group)

    queues = [f"q{number}" for number in range(20)]
    s = Scene(*map(make_queue, queues), make_cluster("m"), make_capacity("m", [0, 0]))
    s.submit(*(make_binding(f"in-{name}").queue(name) for name in queues))
    assert not dispatched(s.run())
    monkeypatch.setattr(Admission, "examine", counted)
    s.tell(make_capacity("m", [1, 2], generation=1))
    assert len(dispatched(s.run())) == 3
    assert len(looked_at) == 3


def test_the_next_of_many_queues_is_found_without_looking_at_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree()
    tree.set_queues([queue(f"q{number:04}", deserved={"gpu": 10}) for number in range(2000)])
    for node in tree.queues.values():
        if node is not tree.root:
            tree.wait(node, {"gpu": 1})
    siblings = dict.fromkeys(tree.root.children.values())
    assert tree.first([siblings]).name == "q0000"
    looked_at: list[str] = []
    rank_of = Queue.current_rank

    def counted(node: Queue) -> Any:
        looked_at.append(node.name)
        return rank_of(node)

    monkeypatch.setattr(Queue, "current_rank", counted)
    for number in range(100):
        assert tree.first([siblings]).name == f"q{number:04}"
        tree.start(tree.queues[f"q{number:04}"], {"gpu": 1}, {})
        del siblings[tree.queues[f"q{number:04}"]]
    assert len(looked_at) <= 100
    assert tree.root.order == sorted(tree.root.order)
