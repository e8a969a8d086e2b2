"""What moves the division of a parent's resources: work that starts, queues that move, are closed, or are gone."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from atoll.dispatcher.core.backfill.allocation import Allocation
from atoll.dispatcher.core.backfill.reservations import Reservations
from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.backlog.order import order_key
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import shape_key, shape_of
from atoll.dispatcher.core.preemption.trial import Claimant, Trial
from atoll.dispatcher.core.quota.tree import Tree
from atoll.model.decision import Phase
from tests.dispatcher.builders import make_binding
from tests.dispatcher.quota.trees import pend, queue, tree_of, use


def test_what_starts_in_a_closed_queue_counts_in_the_division_from_then_on() -> None:
    tree = tree_of(queue("a"), queue("b", open=False), total={"gpu": 8})
    a, b = tree.queue("a"), tree.queue("b")
    pend(tree, "a", gpu=8)
    pend(tree, "b", gpu=3)
    assert a.deserved == {"gpu": 8}
    tree.start(b, {"gpu": 3}, {})
    assert (a.deserved, b.deserved) == ({"gpu": 5}, {"gpu": 3})


def test_what_is_seen_to_run_counts_in_the_division_as_what_waits_does() -> None:
    tree = tree_of(queue("a"), queue("b"), total={"gpu": 8})
    pend(tree, "a", gpu=8)
    assert tree.queue("a").deserved == {"gpu": 8}
    use(tree, "b", gpu=3)
    assert [tree.queue(name).deserved for name in "ab"] == [{"gpu": 5}, {"gpu": 3}]


def test_who_asks_for_nothing_of_a_resource_is_not_stopped_where_too_much_of_it_is_used() -> None:
    tree = tree_of(queue("a", capability={"cpu": 4}))
    use(tree, "a", cpu=5)
    assert tree.shortage(tree.queue("a"), {"cpu": 0, "gpu": 1}) is None


def test_who_wants_nothing_of_a_resource_gets_none_of_it() -> None:
    tree = tree_of(queue("a"), queue("b"), total={"cpu": 8, "gpu": 8})
    pend(tree, "a", gpu=8)
    pend(tree, "b", cpu=8)
    assert [tree.queue(name).deserved for name in "ab"] == [{"cpu": 0, "gpu": 8}, {"cpu": 8, "gpu": 0}]


def test_a_queue_that_moves_is_counted_in_the_division_at_every_level() -> None:
    views = [queue("a"), queue("b"), queue("a1", "a"), queue("b1", "b"), queue("a2", "a1"), queue("b2", "b1")]
    tree = tree_of(*views, queue("q", "a2"), total={"gpu": 8})
    pend(tree, "q", gpu=8)
    assert [tree.queue(name).deserved for name in ("a", "b")] == [{"gpu": 8}, {"gpu": 0}]
    tree.set_queue(queue("q", "b2"))
    assert [tree.queue(name).deserved for name in ("a", "b")] == [{"gpu": 0}, {"gpu": 8}]


def test_what_runs_in_a_queue_that_is_gone_has_a_weight_of_one() -> None:
    tree = tree_of(queue("a"), queue("b", weight=3), total={"gpu": 8})
    for name in "ab":
        use(tree, name, gpu=8)
    assert (tree.queue("a").deserved, tree.queue("b").deserved) == ({"gpu": 2}, {"gpu": 6})
    tree.drop_queue("b")
    assert (tree.queue("a").deserved, tree.queue("b").deserved) == ({"gpu": 4}, {"gpu": 4})


def test_as_long_as_queues_want_more_than_they_get_nothing_is_divided_anew() -> None:
    tree = tree_of(queue("a"), queue("b", weight=3), total={"gpu": 8})
    a, b = tree.queue("a"), tree.queue("b")
    pend(tree, "a", gpu=5)
    pend(tree, "b", gpu=7)
    assert (a.deserved, b.deserved) == ({"gpu": 2}, {"gpu": 6})
    before = tree.root.divided_from
    pend(tree, "a", gpu=-2)
    assert (a.deserved, b.deserved) == ({"gpu": 2}, {"gpu": 6})
    assert tree.root.divided_from is before
    pend(tree, "a", gpu=-2)
    assert (a.deserved, b.deserved) == ({"gpu": 1}, {"gpu": 7})


_resource = st.sampled_from(("cpu", "gpu"))
_sibling = st.sampled_from("abcd")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=4, max_size=4),
    st.lists(st.dictionaries(st.tuples(_sibling, _resource), st.integers(0, 12), min_size=1), min_size=1, max_size=8),
)
def test_a_division_that_is_kept_is_the_one_that_would_be_made(
    queues: list[tuple[int, int]], history: list[dict[tuple[str, str], int]]
) -> None:
    def made() -> Tree:
        views = [
            queue(name, weight=weight, guarantee={"gpu": least})
            for name, (weight, least) in zip("abcd", queues, strict=True)
        ]
        return tree_of(*views, total={"cpu": 20, "gpu": 16})

    kept, wanted = made(), dict.fromkeys(((name, each) for name in "abcd" for each in ("cpu", "gpu")), 0)
    for wishes in history:
        for (name, resource), amount in wishes.items():
            pend(kept, name, **{resource: amount - wanted[name, resource]})
        wanted |= wishes
        anew = made()
        for (name, resource), amount in wanted.items():
            pend(anew, name, **{resource: amount})
        assert [kept.queue(name).deserved for name in "abcd"] == [anew.queue(name).deserved for name in "abcd"]


def test_what_is_only_supposed_to_go_leaves_the_division_as_it_is() -> None:
    tree = tree_of(queue("a"), queue("b"), queue("c", open=False), total={"gpu": 8})
    a, c = tree.queue("a"), tree.queue("c")
    use(tree, "c", gpu=2)
    pend(tree, "b", gpu=8)
    members, view = Members(), make_binding("x").tasks(1, requests={"gpu": 9}, gpu=0).build()
    shape = shape_of(view, shape_key(view, ""))
    reservations = Reservations(members)
    reservations.timeline.enter("goes", Allocation(c, {"gpu": 1}, 0.0, math.inf, {}))
    claimant = Binding(view, 0, Phase.SUSPENDED, {}, view.gang, shape, order_key(view), a, {})
    reservations.claim(claimant, [members.member("m")], ["goes"])

    pend(tree, "a", gpu=8)
    with Trial(Claimant("x", a, 0, shape), tree, Members()) as trial:
        trial.release(c, {"gpu": 1}, {})
        assert a.deserved == {"gpu": 3}
    assert a.deserved == {"gpu": 3}

    pend(tree, "a", gpu=1)
    with reservations.settled():
        assert a.deserved == {"gpu": 3}
    assert a.deserved == {"gpu": 3}
