"""What is guaranteed to a queue is there for it, whatever those beside it use together, at every level."""

from __future__ import annotations

import dataclasses

import pytest

from atoll.dispatcher.core import CapacitySet
from atoll.dispatcher.core.events import QueueView
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.explain.excess import exceeded
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    BACKFILL,
    GPU,
    NEVER,
    OLD,
    Scene,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
)
from tests.dispatcher.quota.trees import queue, tree_of


def three(*, siblings: dict[str, object] | None = None) -> Scene:
    """Ten GPUs, four of which are guaranteed to c, which is idle; a and b beside it."""
    beside = siblings or {}
    s = Scene(make_queue("a", view=beside), make_queue("b", view=beside), make_cluster("m"), make_capacity("m", [10]))
    s.tell(
        make_queue("top", gpu=10, view={"guarantee": {GPU: 4}}),
        make_queue("c", view={"guarantee": {GPU: 4}, "parent": "top"}),
    )
    return s.tell(*(make_queue(name, view={**beside, "parent": "top"}) for name in "ab"))


@pytest.mark.parametrize("siblings", [{}, {"reclaimable": False}, {"deserved": {GPU: 5}}])
def test_two_siblings_together_leave_what_is_guaranteed_to_a_third(siblings: dict[str, object]) -> None:
    s = three(siblings=siblings)
    s.submit(*(make_binding(f"{queue}{number}").queue(queue) for number in range(5) for queue in "ab"))
    assert len(names(s.run())) == 6
    [one, *_] = [view for view in s.views.values() if view.suspended]
    verdict = s.core.verdict(one.uid)
    assert verdict is not None
    assert verdict.reason is Reason.QUOTA_EXCEEDED
    s.submit(make_binding("mine").queue("c").tasks(4))
    assert names(s.run()) == ["mine"]


def test_what_waits_for_that_goes_once_a_sibling_uses_less() -> None:
    s = three()
    s.submit(make_binding("large").queue("a").tasks(5), make_binding("late").queue("b").tasks(3))
    assert names(s.run()) == ["large"]
    s.bound("large", generation=NEVER)
    s.change("large", finished=True, placed={"m": (NEVER, 0)})
    assert names(s.run()) == ["late"]


@pytest.mark.parametrize("change", ["guarantee", "limit", "gone", "members"])
def test_and_once_less_is_guaranteed_or_there_is_more(change: str) -> None:
    s = three()
    s.submit(make_binding("large").queue("a").tasks(5), make_binding("late").queue("b").tasks(3))
    assert names(s.run()) == ["large"]
    s.bound("large", generation=NEVER)
    s.run()
    s.tell(make_capacity("m", [9], generation=2))
    if change == "guarantee":
        s.tell(make_queue("c", view={"guarantee": {GPU: 2}, "parent": "top"}))
    elif change == "gone":
        s.tell(make_queue("c", view={"guarantee": {GPU: 4}}))
    else:
        s.tell(make_queue("top", gpu=12, view={"guarantee": {GPU: 4}}))
    assert names(s.run()) == ["late"]


def test_what_a_queue_is_guaranteed_is_its_own_though_members_were_lost() -> None:
    """Of ten GPUs four are left; a and b are guaranteed five each."""
    s = Scene(make_queue("top", gpu=10, view={"guarantee": {GPU: 10}}), make_cluster("m"), make_capacity("m", [10]))
    s.tell(*(make_queue(name, view={"guarantee": {GPU: 5}, "parent": "top"}) for name in "ab"))
    s.tell(CapacitySet(dataclasses.replace(make_capacity("m", [4]).capacity, generation=2, total={GPU: 4})))
    s.submit(make_binding("a").queue("a").tasks(4), make_binding("b").queue("b").tasks(1))
    assert names(s.run()) == ["a"]


def test_it_holds_at_every_level() -> None:
    tree = Tree()
    tree.set_queues(
        [
            QueueView("p", {GPU: 10}, guarantee={GPU: 4}),
            QueueView("z", {}, parent="p"),
            QueueView("x", {}, parent="p"),
            QueueView("y", {}, parent="p", guarantee={GPU: 4}),
            QueueView("x1", {}, parent="x"),
            QueueView("x2", {}, parent="x"),
            QueueView("y1", {}, parent="y", guarantee={GPU: 3}),
            QueueView("y2", {}, parent="y"),
        ]
    )
    for name in ("x1", "z"):
        tree.charge(tree.queue(name), {GPU: 3}, {})
    short = tree.shortage(tree.queue("x1"), {GPU: 1})
    assert short is not None
    assert (short.queue.name, short.available, short.verdict().blocker.name) == ("p", 0, "x")  # type: ignore[union-attr]
    assert tree.shortage(tree.queue("y1"), {GPU: 3}) is None
    assert tree.shortage(tree.queue("y2"), {GPU: 1}) is None
    tree.charge(tree.queue("y2"), {GPU: 1}, {})
    assert tree.shortage(tree.queue("y2"), {GPU: 1}) is not None, "the other three are y1's"
    assert tree.shortage(tree.queue("y1"), {GPU: 3}) is None
    tree.check()


def test_room_that_is_kept_for_a_head_counts_what_is_guaranteed_to_others() -> None:
    """1. a and b use six of ten, four are c's. 2. The head of a needs three: that is there when b's three have ended.
    3. What c uses of its own meanwhile, and gives back, is nobody's.
    """
    s = three()
    s.tell(*(make_queue(n, view={**BACKFILL, "parent": "top"}) for n in "ab"))
    s.submit(make_binding("ra").queue("a").tasks(3).runs(9000.0), make_binding("rb").queue("b").tasks(3).runs(1000.0))
    s.submit(make_binding("rc").queue("c").tasks(3).runs(500.0))
    assert len(names(s.run())) == 3
    s.submit(make_binding("head").queue("a").tasks(3))
    s.run()
    promise = s.core.reservations.made["uid-head"]
    assert promise.at == pytest.approx(s.now + 1000.0, abs=5.0)
    s.run(after=OLD)
    assert s.core.reservations.made["uid-head"].at == promise.at


def test_queues_below_an_invalid_one_keep_no_more_from_others_than_it_is_guaranteed() -> None:
    s = three()
    s.tell(make_queue("d", view={"guarantee": {GPU: 8}, "parent": "c"}))
    s.submit(make_binding("a1").queue("a").tasks(6), make_binding("d1").queue("d").tasks(1))
    assert names(s.run()) == ["a1"]
    assert s.verdict("d1") is Reason.QUEUE_INVALID


def test_guarantees_on_two_levels_are_each_subtracted_once() -> None:
    tree = tree_of(
        queue("root", capability={GPU: 3}),
        queue("a", guarantee={GPU: 3}),
        queue("b", "a", guarantee={GPU: 2}),
        queue("e", "a"),
    )
    leaf = tree.queue("e")
    assert tree.shortage(leaf, {GPU: 1}) is None
    assert not [*exceeded(leaf, GPU, 1)]
    assert {limit.name: limit.available for limit in exceeded(leaf, GPU, 2)} == {"a": "1", "e": "1"}
