"""The quota tree: limits, entitlements, order, reclaim and what goes wrong, as tables."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from atoll.dispatcher.core.events import Ceiling, QueueView
from atoll.dispatcher.core.quota.lending import is_claimed, lends, may_reclaim
from atoll.dispatcher.core.quota.queue import Queue, Standing, path
from atoll.dispatcher.core.quota.tree import Shortage, Tree
from atoll.model.vector import Vector
from tests.dispatcher.builders import problems_of
from tests.dispatcher.quota.trees import pend, queue, serves, tree_of, use


def names(nodes: list[Queue]) -> list[str]:
    return [node.name for node in nodes]


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        pytest.param(
            [queue("a"), queue("b")], {"a": 10, "b": 10}, id="without guarantees everybody may use everything"
        ),
        pytest.param(
            [queue("a", guarantee={"gpu": 4}), queue("b", guarantee={"gpu": 2}), queue("c")],
            {"a": 8, "b": 6, "c": 4},
            id="guarantees of the others are not lent",
        ),
        pytest.param(
            [queue("a", guarantee={"gpu": 4}, capability={"gpu": 5}), queue("b")],
            {"a": 5, "b": 6},
            id="a capability lowers the limit",
        ),
        pytest.param(
            [queue("p", capability={"gpu": 6}), queue("x", "p"), queue("y", "p", {"gpu": 9})],
            {"p": 6, "x": 6, "y": 6},
            id="a missing capability is inherited, a larger one has no effect",
        ),
        pytest.param(
            [
                queue("p", capability={"gpu": 8}, guarantee={"gpu": 4}),
                queue("x", "p", guarantee={"gpu": 3}),
                queue("y", "p", guarantee={"gpu": 1}),
                queue("q", guarantee={"gpu": 3}),
            ],
            {"p": 7, "x": 6, "y": 4, "q": 6},
            id="two levels: total 10 less 3 guaranteed to q, then less what siblings are guaranteed below p",
        ),
        pytest.param(
            [queue("root", capability={"gpu": 7}), queue("a"), queue("b", guarantee={"gpu": 2})],
            {"root": 7, "a": 5, "b": 7},
            id="a queue named root limits everything",
        ),
        pytest.param(
            [queue("a", guarantee={"gpu": 9}), queue("b", guarantee={"gpu": 8})],
            {"a": 9, "b": 8},
            id="guarantees beyond the total leave each its own; the root's limit still counts",
        ),
    ],
)
def test_limits(views: list[QueueView], expected: dict[str, int]) -> None:
    for order in (views, views[::-1]):
        tree = tree_of(*order, total={"gpu": 10})
        assert {name: tree.queue(name).limit["gpu"] for name in expected} == expected


def test_an_unknown_total_limits_nothing() -> None:
    tree = tree_of(queue("a", capability={"gpu": 3}), queue("b", guarantee={"gpu": 4}))
    assert (tree.queue("a").limit, tree.queue("b").limit) == ({"gpu": 3}, {})
    tree.set_members({"m1": ({"gpu": 8}, {}), "m2": ({}, {})})
    assert tree.queue("b").limit == {}
    assert names(tree.set_members({"m1": ({"gpu": 8}, {}), "m2": ({"gpu": 2}, {})})) == ["b", "root"]
    assert tree.queue("b").limit == {"gpu": 10}


def test_a_queue_is_limited_to_the_members_that_serve_it() -> None:
    tree = tree_of(
        queue("a", members={"m1": Ceiling(), "m2": Ceiling()}),
        queue("x", "a", affinity={"matchLabels": {"site": "b"}}),
        queue("y", "a", members={"m3": Ceiling()}),
        queue("free"),
    )
    tree.set_members(
        {"m1": ({"gpu": 4}, {"site": "a"}), "m2": ({"gpu": 3, "fpga": 1}, {"site": "b"}), "m3": ({"gpu": 9}, {})}
    )
    assert tree.queue("a").limit == {"gpu": 7, "fpga": 1}
    assert tree.queue("x").limit == {"gpu": 3, "fpga": 1}
    assert tree.queue("y").limit == {"gpu": 0, "fpga": 0}
    assert tree.queue("free").limit == {"gpu": 16, "fpga": 1}
    served = {name: [m for m in ("m1", "m2", "m3") if serves(tree.queue(name), m)] for name in ("a", "x", "y", "free")}
    assert served == {"a": ["m1", "m2"], "x": ["m2"], "y": [], "free": ["m1", "m2", "m3"]}


def test_shortage_names_the_first_queue_on_the_way_up_and_the_first_resource() -> None:
    tree = tree_of(queue("p", capability={"gpu": 6}), queue("x", "p", {"cpu": 4, "gpu": 5}), queue("y", "p"))
    use(tree, "x", cpu=2, gpu=1)
    use(tree, "y", gpu=3)
    x, p = tree.queue("x"), tree.queue("p")
    assert tree.shortage(x, {"cpu": 2, "gpu": 2}) is None
    assert tree.shortage(x, {"cpu": 3, "gpu": 5}) == Shortage(x, "cpu", 3, 2)
    assert tree.shortage(x, {"gpu": 3}) == Shortage(p, "gpu", 3, 2)
    assert tree.shortage(x, {"fpga": 99, "gpu": 0}) is None


def test_a_capability_below_the_use_admits_nothing_and_breaks_nothing() -> None:
    tree = tree_of(queue("a", capability={"gpu": 6, "cpu": 9}))
    use(tree, "a", gpu=5)
    tree.set_queue(queue("a", capability={"gpu": 2, "cpu": 9}))
    a = tree.queue("a")
    assert tree.shortage(a, {"gpu": 1}) == Shortage(a, "gpu", 1, -3)
    assert tree.shortage(a, {"cpu": 9}) is None
    tree.charge(a, {"gpu": 5}, {"m1": {"gpu": 5}}, -1)
    assert tree.shortage(a, {"gpu": 2}) is None
    tree.check()


def test_ceilings_per_member_count_along_the_path_also_for_what_ran_before() -> None:
    tree = tree_of(queue("p"), queue("x", "p"), queue("y", "p"))
    tree.charge(tree.queue("x"), {"gpu": 5}, {"m1": {"gpu": 3}, "m2": {"gpu": 2}})
    tree.set_queue(queue("p", members={"m1": Ceiling(capability={"gpu": 4}), "m2": Ceiling()}))
    x, y, p = (tree.queue(name) for name in ("x", "y", "p"))
    assert p.used_in == {"m1": {"gpu": 3}, "m2": {"gpu": 2}}
    assert tree.shortage_in(y, "m1", {"gpu": 1}) is None
    assert tree.shortage_in(y, "m1", {"gpu": 2}) == Shortage(p, "gpu", 2, 1, member="m1")
    assert tree.shortage_in(y, "m2", {"gpu": 99}) is None
    tree.set_queue(queue("x"))
    assert p.used_in == {}
    assert tree.shortage_in(x, "m1", {"gpu": 9}) is None
    tree.set_queue(queue("p"))
    assert p.used_in == {}
    tree.check()


# -- entitlements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("views", "pending", "expected"),
    [
        pytest.param(
            [queue("a", deserved={"gpu": 6}, capability={"gpu": 4}), queue("b", deserved={"gpu": 1}, guarantee={"gpu": 3})],
            {},
            {"a": 4, "b": 3},
            id="deserved is capped by the limit and raised to the guarantee",
        ),
        pytest.param(
            [queue("a", deserved={"gpu": 6}), queue("b"), queue("c", guarantee={"gpu": 2})],
            {"b": 9, "c": 9},
            {"a": 6, "b": 0, "c": 2},
            id="where a sibling declares it, the others deserve what is guaranteed to them",
        ),
        pytest.param(
            [queue("a", weight=1), queue("b", weight=3)], {"a": 99, "b": 99}, {"a": 3, "b": 9}, id="by weight otherwise"
        ),
        pytest.param([queue("a"), queue("b")], {"a": 99, "b": 2}, {"a": 10, "b": 2}, id="what one leaves goes to the other"),
        pytest.param([queue("a"), queue("b")], {"a": 99}, {"a": 12, "b": 0}, id="who wants nothing deserves nothing"),
        pytest.param(
            [queue("a"), queue("b", guarantee={"gpu": 4})], {"a": 99}, {"a": 8, "b": 4}, id="an idle guarantee is kept"
        ),
        pytest.param(
            [queue("a"), queue("b", open=False)], {"a": 99, "b": 99}, {"a": 12, "b": 0}, id="what waits in a closed queue has no part"
        ),
        pytest.param(
            [queue("p", weight=2), queue("q"), queue("x", "p"), queue("y", "p", weight=3)],
            {"q": 99, "x": 99, "y": 99},
            {"p": 8, "q": 4, "x": 2, "y": 6},
            id="a level divides what its parent got",
        ),
        pytest.param(
            [queue("p", deserved={"gpu": 4}), queue("q"), queue("x", "p"), queue("y", "p")],
            {"q": 99, "x": 99, "y": 99},
            {"p": 4, "q": 0, "x": 2, "y": 2},
            id="a level without deserved divides its parent's",
        ),
        pytest.param(
            [queue("p"), queue("q"), queue("x", "p", deserved={"gpu": 5}), queue("y", "p")],
            {"q": 99, "x": 99, "y": 99},
            {"p": 6, "q": 6, "x": 5, "y": 0},
            id="a level with deserved below one without",
        ),
    ],
)  # fmt: skip
def test_deserved(views: list[QueueView], pending: dict[str, int], expected: dict[str, int]) -> None:
    for order in (views, views[::-1]):
        tree = tree_of(*order, total={"gpu": 12})
        for name, amount in pending.items():
            pend(tree, name, gpu=amount)
        assert {name: tree.queue(name).deserved.get("gpu") for name in expected} == expected


def test_deserved_follows_demand_and_does_not_change_when_waiting_work_starts() -> None:
    tree = tree_of(queue("a"), queue("b"), total={"gpu": 8})
    a, b = tree.queue("a"), tree.queue("b")
    pend(tree, "a", gpu=8)
    assert a.deserved == {"gpu": 8}
    tree.wait(a, {"gpu": 6}, -1)
    use(tree, "a", gpu=6)
    assert a.deserved == {"gpu": 8}
    pend(tree, "b", gpu=3)
    assert (a.deserved, b.deserved) == ({"gpu": 5}, {"gpu": 3})
    assert a.rank()[2] == 1.2


# -- order -------------------------------------------------------------------------------------------------------------


def order(tree: Tree, parent: str = "root") -> str:
    return " ".join(names(sorted(tree.queue(parent).children.values(), key=Queue.rank)))


@pytest.mark.parametrize(
    ("views", "used", "pending", "expected"),
    [
        pytest.param(
            [queue("a", deserved={"gpu": 4}), queue("b", deserved={"gpu": 2}, priority=1)],
            {"a": 0, "b": 9}, {}, "b a", id="priority before everything",
        ),
        pytest.param(
            [queue("a", deserved={"gpu": 8}, guarantee={"gpu": 2}), queue("b", deserved={"gpu": 2})],
            {"a": 1}, {"a": 1, "b": 1}, "a b", id="who is below its guarantee and wants it comes first",
        ),
        pytest.param(
            [queue("a", deserved={"gpu": 8}, guarantee={"gpu": 2}), queue("b", deserved={"gpu": 2})],
            {"a": 1}, {"b": 1}, "b a", id="a guarantee that is not wanted does not count",
        ),
        pytest.param(
            [queue("a", deserved={"gpu": 8}), queue("b", deserved={"gpu": 2})],
            {"a": 2, "b": 1}, {}, "a b", id="the smaller share of what is deserved",
        ),
        pytest.param(
            [queue("a", deserved={"gpu": 8}), queue("b"), queue("c")],
            {"a": 4, "b": 2, "c": 1}, {}, "a c b", id="who deserves nothing comes after, the smaller burden first",
        ),
        pytest.param(
            [queue("a", created="2"), queue("b", created="1"), queue("c", created="1")], {}, {}, "b c a", id="age, then name",
        ),
        pytest.param(
            [queue("a", weight=3), queue("b")], {"a": 4, "b": 4}, {"a": 99, "b": 99}, "a b", id="share of the part by weight",
        ),
    ],
)  # fmt: skip
def test_order_of_siblings(views, used, pending, expected: str) -> None:
    tree = tree_of(*views, total={"gpu": 12})
    for name, amount in used.items():
        use(tree, name, gpu=amount)
    for name, amount in pending.items():
        pend(tree, name, gpu=amount)
    assert order(tree) == expected


def test_with_unknown_capacity_the_own_limit_is_the_measure_then_the_use_per_weight() -> None:
    tree = tree_of(
        queue("big", capability={"gpu": 8}), queue("small", capability={"gpu": 2}), queue("x"), queue("y", weight=2)
    )
    for name in ("big", "small", "x", "y"):
        use(tree, name, gpu=1, cpu=1000)
    assert order(tree) == "y x big small"
    assert tree.queue("big").rank()[2:4] == (1 / 8, 1.0)


def test_the_rank_is_computed_again_only_when_something_changed() -> None:
    tree = tree_of(queue("a"), queue("b"), total={"gpu": 8})
    a = tree.queue("a")
    use(tree, "a", gpu=2)
    assert a.rank() is a.rank()
    before = a.rank()
    use(tree, "a", gpu=1)
    assert a.rank() is not before
    before = a.rank()
    tree.set_queue(queue("b", guarantee={"gpu": 8}))
    assert a.rank()[2] > before[2] or a.rank() is not before


# -- reclaim -----------------------------------------------------------------------------------------------------------


def departments() -> Tree:
    """12 GPUs; p and q deserve 6 each; below p x and y 3 each, below q z 6."""
    return tree_of(
        queue("p", deserved={"gpu": 6}),
        queue("q", deserved={"gpu": 6}),
        queue("x", "p", deserved={"gpu": 3}),
        queue("y", "p", deserved={"gpu": 3}),
        queue("z", "q", deserved={"gpu": 6}),
        total={"gpu": 12, "cpu": 100},
    )


@pytest.mark.parametrize(
    ("used", "asked", "expected"),
    [
        pytest.param({}, {"gpu": 3}, True, id="within what the queue deserves"),
        pytest.param({"x": 1}, {"gpu": 3}, True, id="within what the queue above deserves"),
        pytest.param({"x": 4, "y": 2}, {"gpu": 1}, False, id="beyond both"),
        pytest.param({"z": 12}, {"gpu": 3}, True, id="though everything is in use: the victims make room"),
        pytest.param({}, {"gpu": 13}, False, id="never beyond the own limit"),
        pytest.param({}, {"fpga": 1}, False, id="nobody deserves the resource"),
        pytest.param({"x": 6}, {"gpu": 0}, False, id="nothing asked"),
    ],
)
def test_who_may_reclaim(used: dict[str, int], asked: Vector, expected: bool) -> None:
    tree = departments()
    for name, amount in used.items():
        use(tree, name, gpu=amount)
    assert may_reclaim(tree.queue("x"), asked) is expected


def test_only_an_open_queue_reclaims() -> None:
    tree = departments()
    tree.set_queue(queue("p", deserved={"gpu": 6}, open=False))
    assert not may_reclaim(tree.queue("x"), {"gpu": 1})
    assert not may_reclaim(tree.queue("nobody"), {"gpu": 1})


@pytest.mark.parametrize(
    ("used", "victim", "claimant", "amount", "expected"),
    [
        pytest.param({"x": 5, "y": 1}, "x", "y", {"gpu": 1}, True, id="a sibling above what it deserves lends"),
        pytest.param({"x": 3, "y": 1}, "x", "y", {"gpu": 1}, False, id="a sibling at what it deserves keeps it"),
        pytest.param(
            {"x": 5, "y": 1}, "x", "z", {"gpu": 1}, False, id="across departments only if the department is above too"
        ),
        pytest.param({"x": 5, "y": 2}, "x", "z", {"gpu": 1}, True, id="department and queue above: lends"),
        pytest.param({"x": 3, "y": 4}, "x", "z", {"gpu": 1}, False, id="the department is above, this queue is not"),
        pytest.param({"x": 5, "y": 1}, "x", "x", {"gpu": 1}, False, id="not to itself"),
        pytest.param({"x": 5}, "p", "x", {"gpu": 1}, False, id="not to a queue below"),
        pytest.param({"x": 5, "y": 1}, "x", "y", {"cpu": 1}, False, id="nothing in common with what is asked"),
        pytest.param(
            {"x": 5, "y": 1}, "x", "y", {"gpu": 4, "cpu": 5}, True, id="it may fall below what it deserves in one step"
        ),
    ],
)
def test_who_lends(used: dict[str, int], victim: str, claimant: str, amount: Vector, expected: bool) -> None:
    tree = departments()
    for name, value in used.items():
        use(tree, name, gpu=value, cpu=10)
    assert lends(tree.queue(victim), tree.queue(claimant), amount, {"gpu": 1, "fpga": 1}) is expected


def test_a_guarantee_is_never_reclaimed_at_any_level() -> None:
    tree = tree_of(
        queue("p", guarantee={"gpu": 4}),
        queue("x", "p", guarantee={"gpu": 2}),
        queue("y", "p"),
        queue("z"),
        total={"gpu": 12},
    )
    use(tree, "x", gpu=3)
    use(tree, "y", gpu=3)
    pend(tree, "z", gpu=99)
    tree.set_queue(queue("z", deserved={"gpu": 8}))
    x, y, z = (tree.queue(name) for name in "xyz")
    assert lends(y, z, {"gpu": 1}, {"gpu": 1})
    assert not lends(y, z, {"gpu": 3}, {"gpu": 1}), "p would fall below its guarantee"
    assert not lends(x, y, {"gpu": 2}, {"gpu": 1}), "x would fall below its own"


def test_a_queue_has_what_it_uses_and_nothing_of_any_other_resource() -> None:
    tree = tree_of(queue("a"), queue("b"))
    use(tree, "a", gpu=2)
    a, b = tree.queue("a"), tree.queue("b")
    assert [each.has(name) for each in (a, b) for name in ("gpu", "cpu")] == [2, 0, 0, 0]


@pytest.mark.parametrize(
    ("amount", "waits", "used", "change", "expected"),
    [
        pytest.param(4, 16, 0, {}, False, id="no more than it deserves"),
        pytest.param(5, 0, 0, {}, False, id="nobody else wants anything"),
        pytest.param(5, 12, 0, {}, True, id="others want all that they deserve"),
        pytest.param(12, 4, 0, {}, False, id="others want so little that it is left"),
        pytest.param(13, 4, 0, {}, True, id="by one more it is not"),
        pytest.param(13, 0, 4, {}, True, id="what others use is theirs as well"),
        pytest.param(13, 4, 0, {"reclaimable": False}, False, id="nobody may take anything back"),
    ],
)
def test_what_others_claim_of_what_a_queue_would_borrow(
    amount: int, waits: int, used: int, change: dict[str, Any], expected: bool
) -> None:
    """Of 16, 4 are deserved by `a` and 12 by `b`; `x` is all that is below `a`."""
    tree = tree_of(
        queue("a", deserved={"gpu": 4}, **change),
        queue("b", deserved={"gpu": 12}),
        queue("x", "a", deserved={"gpu": 4}),
        total={"gpu": 16},
    )
    pend(tree, "b", gpu=waits)
    use(tree, "b", gpu=used)
    assert is_claimed(tree.queue("x"), {"gpu": amount, "cpu": 0}) is expected
    assert is_claimed(tree.queue("a"), {"gpu": amount}) is expected


def test_what_is_not_reclaimable_stays_and_so_does_what_is_below() -> None:
    tree = departments()
    use(tree, "x", gpu=5)
    use(tree, "y", gpu=3)
    x, y, z = (tree.queue(name) for name in "xyz")
    assert lends(x, z, {"gpu": 1}, {"gpu": 1})
    tree.set_queue(queue("p", deserved={"gpu": 6}, reclaimable=False))
    assert not lends(x, z, {"gpu": 1}, {"gpu": 1})
    assert lends(x, y, {"gpu": 1}, {"gpu": 1}), "inside p that does not matter"
    tree.drop_queue("x")
    tree.set_queue(queue("p", deserved={"gpu": 6}))
    assert lends(x, z, {"gpu": 5}, {"gpu": 1}), "a queue that is gone deserves nothing"


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        pytest.param([queue("a"), queue("b", "a")], {}, id="a sound tree has no problem"),
        pytest.param(
            [queue("a", "b"), queue("c", "a"), queue("d")],
            {name: "queue a: its parent b does not exist" for name in ("a", "c")},
            id="a missing parent",
        ),
        pytest.param(
            [queue("a", "a"), queue("d")], {"a": "queue a: its parents form a circle: a -> a"}, id="its own parent"
        ),
        pytest.param(
            [queue("a", "b"), queue("b", "c"), queue("c", "a"), queue("d", "b"), queue("e")],
            {
                "a": "queue a: its parents form a circle: a -> b -> c -> a",
                "b": "queue b: its parents form a circle: b -> c -> a -> b",
                "c": "queue c: its parents form a circle: c -> a -> b -> c",
                "d": "queue b: its parents form a circle: b -> c -> a -> b",
            },
            id="a circle, and what hangs on it",
        ),
        pytest.param(
            [
                queue("p", guarantee={"cpu": 3000, "gpu": 3}),
                queue("x", "p", guarantee={"cpu": 1000, "gpu": 2}),
                queue("y", "p", guarantee={"cpu": 1500, "gpu": 2}),
                queue("q", guarantee={"gpu": 1}),
            ],
            {
                name: "queue p: the queues below it are guaranteed gpu 4, more than the 3 of its own guarantee"
                for name in ("p", "x", "y")
            },
            id="guarantees below exceed the parent's",
        ),
        pytest.param(
            [queue("a", capability={"cpu": 2500}, guarantee={"cpu": 4000})],
            {"a": "queue a: it is guaranteed cpu 4, more than the 2500m of its capability"},
            id="a guarantee above the capability",
        ),
    ],
)  # fmt: skip
def test_a_wrong_subtree_is_isolated_in_any_order_of_arrival(views: list[QueueView], expected: dict[str, str]) -> None:
    for ordered in (views, views[::-1]):
        assert problems_of(ordered) == expected
        tree = Tree()
        for view in ordered:
            tree.set_queue(view)
            tree.check()
        assert {name: node.problem for name, node in tree.queues.items() if node.problem} == expected
        assert all((tree.standing(tree.queue(v.name)) is Standing.INVALID) == (v.name in expected) for v in views)


@pytest.mark.parametrize(
    ("wrong", "mend"),
    [
        pytest.param([queue("a", "b"), queue("c", "a")], queue("b"), id="the parent is made later"),
        pytest.param([queue("a", "b"), queue("b", "a"), queue("c", "b")], queue("b"), id="the circle is opened"),
        pytest.param(
            [queue("a", guarantee={"gpu": 1}), queue("c", "a", guarantee={"gpu": 2})],
            queue("a", guarantee={"gpu": 2}),
            id="the parent's guarantee is raised",
        ),
        pytest.param([queue("c", "a", guarantee={"gpu": 1}), queue("a")], queue("c", "a"), id="the child's is lowered"),
    ],
)
def test_a_repaired_tree_is_as_if_it_had_never_been_wrong(wrong: list[QueueView], mend: QueueView) -> None:
    tree = tree_of(*wrong, total={"gpu": 8})
    use(tree, "c", gpu=2)
    assert tree.standing(tree.queue("c")) is Standing.INVALID
    assert "c" in names(tree.set_queue(mend))
    tree.check()
    assert tree.standing(tree.queue("c")) is Standing.OPEN
    views = {view.name: view for view in (*wrong, mend)}
    sound = tree_of(*views.values(), total={"gpu": 8})
    for name, node in sound.queues.items():
        assert (node.limit, node.deserved, node.depth) == (
            tree.queue(name).limit, {**tree.queue(name).deserved, "gpu": node.deserved.get("gpu", 0)}, tree.queue(name).depth
        )  # fmt: skip


def test_a_guarantee_above_its_capability_takes_no_more_than_that_from_others() -> None:
    tree = tree_of(queue("a", capability={"gpu": 2}, guarantee={"gpu": 4}), queue("b"), total={"gpu": 8})
    assert tree.queue("b").limit == {"gpu": 6}


def test_a_circle_takes_no_guarantee_away_from_others() -> None:
    tree = tree_of(
        queue("a", "b", guarantee={"gpu": 5}), queue("b", "a", guarantee={"gpu": 5}), queue("c"), total={"gpu": 8}
    )
    assert tree.queue("c").limit == {"gpu": 8}


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        pytest.param([queue("q")], Standing.OPEN, id="a leaf"),
        pytest.param([], Standing.MISSING, id="only workloads name it"),
        pytest.param([queue("q", open=False)], Standing.CLOSED, id="closed"),
        pytest.param([queue("p", open=False), queue("q", "p")], Standing.CLOSED, id="closed above"),
        pytest.param([queue("root", open=False), queue("q")], Standing.CLOSED, id="the root is closed"),
        pytest.param([queue("q"), queue("x", "q")], Standing.PARENT, id="work belongs below"),
        pytest.param([queue("q", "nowhere")], Standing.INVALID, id="its parent is missing"),
    ],
)
def test_standing(views: list[QueueView], expected: Standing) -> None:
    tree = tree_of(*views)
    assert tree.standing(tree.queue("q")) is expected


def test_work_in_a_queue_that_became_a_parent_counts_and_does_not_stop_those_below() -> None:
    tree = tree_of(queue("p", capability={"gpu": 4}))
    use(tree, "p", gpu=3)
    tree.set_queue(queue("x", "p"))
    x, p = tree.queue("x"), tree.queue("p")
    assert (tree.standing(p), tree.standing(x)) == (Standing.PARENT, Standing.OPEN)
    assert tree.shortage(x, {"gpu": 2}) == Shortage(p, "gpu", 2, 1)
    tree.check()


@pytest.mark.parametrize(
    ("views", "said"),
    [
        pytest.param(
            [queue("q", capability={"gpu": 4})],
            "it would exceed its queue's capability: queue q has 3 gpu free for it, 20 needed",
            id="its own capability",
        ),
        pytest.param(
            [queue("p", capability={"gpu": 4}), queue("q", "p"), queue("x", "p")],
            "it would exceed the capability of a queue above its own: queue p has 1 gpu free for it, 20 needed",
            id="the capability of its parent, of which a sibling uses some",
        ),
        pytest.param(
            [queue("q"), queue("x", guarantee={"gpu": 6})],
            "it would exceed what the guarantees of other queues leave: queue q has 3 gpu free for it, 20 needed",
            id="guarantees of a sibling",
        ),
        pytest.param(
            [queue("q"), queue("x")],
            "it would exceed what the members that its queue may use have in all: queue root has 7 gpu free for it,"
            " 20 needed",
            id="what members have",
        ),
    ],
)
def test_a_verdict_names_the_queue_and_the_limit_that_bind(views: list[QueueView], said: str) -> None:
    tree = tree_of(*views, total={"gpu": 10})
    use(tree, "q", gpu=1)
    use(tree, "x", gpu=2)
    short = tree.shortage(tree.queue("q"), {"gpu": 20})
    assert short is not None
    assert short.verdict().sentence() == said


# -- edits -------------------------------------------------------------------------------------------------------------


def test_a_queue_that_moves_takes_its_charges_along() -> None:
    tree = tree_of(
        queue("p", members={"m1": Ceiling(capability={"gpu": 9})}), queue("q"), queue("x", "p"), queue("l", "x")
    )
    use(tree, "l", gpu=2)
    pend(tree, "l", gpu=3)
    tree.set_queue(queue("x", "q"))
    p, q, leaf = (tree.queue(name) for name in "pql")
    assert (p.used, p.wanted, p.used_in) == ({}, {}, {})
    assert (q.used, q.wanted) == ({"gpu": 2}, {"gpu": 5})
    assert names(list(path(leaf))) == ["l", "x", "q", "root"]
    tree.set_queue(queue("x", "p"))
    assert (p.used, p.used_in, q.wanted, leaf.depth) == ({"gpu": 2}, {"m1": {"gpu": 2}}, {}, 3)
    tree.check()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"capability": {"gpu": 6}}, ["p", "x", "y"], id="a limit changes what is below"),
        pytest.param({"open": False}, ["p", "x", "y"], id="closing closes what is below"),
        pytest.param({"guarantee": {"gpu": 2}}, ["p", "q", "root"], id="a guarantee limits the siblings"),
        pytest.param({"priority": 5}, ["p"], id="a priority is its own"),
        pytest.param({"deserved": {"gpu": 1}}, ["p", "q"], id="a declared share concerns the siblings"),
    ],
)
def test_an_edit_names_what_it_changed(change: dict[str, Any], expected: list[str]) -> None:
    tree = tree_of(queue("p", capability={"gpu": 7}), queue("q"), queue("x", "p"), queue("y", "p"), total={"gpu": 10})
    assert names(tree.set_queue(dataclasses.replace(queue("p", capability={"gpu": 7}), **change))) == expected


def test_dropping_a_queue_is_the_inverse_of_setting_it() -> None:
    tree = tree_of(queue("p", guarantee={"gpu": 2}), queue("x", "p"), total={"gpu": 10})
    before = {name: (n.limit, n.deserved, n.problem, n.guarantee) for name, n in tree.queues.items()}
    tree.set_queue(queue("new", "p", guarantee={"gpu": 2}, deserved={"gpu": 2}))
    assert tree.queue("x").limit == {"gpu": 8}
    assert names(tree.drop_queue("new")) == ["new", "x"]
    assert tree.drop_queue("new") == tree.drop_queue("never") == []
    assert {
        name: (n.limit, n.deserved, n.problem, n.guarantee)
        for name, n in tree.queues.items()
        if n.view or n is tree.root
    } == before
    tree.check()


def test_check_finds_a_wrong_sum() -> None:
    tree = tree_of(queue("a"))
    use(tree, "a", gpu=1)
    tree.root.used["gpu"] = 2
    with pytest.raises(AssertionError, match="queue root: used"):
        tree.check()
