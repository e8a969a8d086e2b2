"""Which shapes of claims members are asked about."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from atoll.control.claim_shapes import chosen
from atoll.model import claim_shapes
from atoll.model.claim_shapes import MOST, name_of, shape_of, shapes_of
from atoll.model.gang import Task

Shapes = dict[str, claim_shapes.Shape]


@cache
def shape(number: int) -> Shapes:
    devices = {"requests": [{"name": f"r{number}", "exactly": {"deviceClassName": "gpu"}}]}
    found = shape_of([{"name": "c", "spec": {"devices": devices}}])
    return {name_of(found): found}


def shapes(*numbers: int) -> Shapes:
    return {name: each for number in numbers for name, each in shape(number).items()}


def test_no_namespace_keeps_the_shapes_of_others_out() -> None:
    many, one = shapes(*range(100)), shapes(1000)
    assert one.keys() <= chosen({}, [("many", many), ("one", one)]).keys()
    assert one.keys() <= chosen(chosen({}, [("many", many)]), [("many", many), ("one", one)]).keys()


def test_shapes_stay_until_others_need_their_place() -> None:
    known = shapes(*range(MOST))
    assert chosen(known, []) == known
    assert len(chosen(known, [("a", shapes(99))]).keys() & known.keys()) == MOST - 1


@given(
    st.sets(st.integers(0, 40), max_size=MOST),
    st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.integers(0, 40), max_size=30)), max_size=6),
)
def test_shapes_are_bounded_and_all_there_where_they_fit(known: set[int], waiting: list[tuple[str, set[int]]]) -> None:
    found = chosen(shapes(*known), [(name, shapes(*each)) for name, each in waiting])
    wanted = shapes(*{number for _, each in waiting for number in each})
    assert len(found) <= MOST
    assert found.keys() <= shapes(*known).keys() | wanted.keys()
    if len(wanted) <= MOST:
        assert wanted.keys() <= found.keys()
    assert claim_shapes.decode(claim_shapes.encode(found)) == found
    assert chosen(found, [(name, shapes(*each)) for name, each in waiting]) == found


def test_a_shape_that_is_too_large_is_not_asked_about() -> None:
    def task(selector: str) -> Task:
        selectors = [{"cel": {"expression": selector}}]
        devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}]}
        claims: list[dict[str, Any]] = [{"name": "c", "spec": {"devices": devices}}]
        return Task("t", 1, 1, {"pods": 1}, claims=claims)

    assert len(shapes_of([task("true"), task("true"), Task("u", 1, 1, {})])) == 1
    assert not shapes_of([task("x" * 5000)])


def test_text_that_is_none_of_ours_asks_for_nothing() -> None:
    for text in ("", "{", "[1]", "[" * 100_000, '[[{"spec": {}}], 3]'):
        assert claim_shapes.decode(text) == {}
