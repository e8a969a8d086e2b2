"""A condition keeps its transition time until its status turns, whatever else is written."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from atoll.model.conditions import find, with_condition
from atoll.model.timestamps import rfc3339_seconds, to_seconds

TYPES = st.sampled_from(["Ready", "Applied", "Finished"])
STATUS = st.sampled_from([True, False, None])
WRITE = st.tuples(
    TYPES, STATUS, st.sampled_from(["A", "B"]), st.text(max_size=5), st.one_of(st.none(), st.integers(0, 9))
)
HISTORY = st.lists(WRITE, max_size=12)


def write(conditions: list[dict[str, Any]], at: float, what: Any) -> list[dict[str, Any]]:
    type_, status, reason, message, generation = what
    return with_condition(conditions, type_, status, reason, message, now=at, generation=generation)


def replay(history: list[Any]) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = []
    for at, what in enumerate(history):
        conditions = write(conditions, at, what)
    return conditions


@given(HISTORY)
def test_the_time_is_that_of_the_last_change_of_status(history: list[Any]) -> None:
    since: dict[str, tuple[Any, float]] = {}
    for at, (type_, status, *_) in enumerate(history):
        if type_ not in since or since[type_][0] != status:
            since[type_] = (status, at)
    found = {c["type"]: to_seconds(c["lastTransitionTime"]) for c in replay(history)}
    assert found == {type_: at for type_, (_, at) in since.items()}


@given(HISTORY, WRITE)
def test_what_is_written_is_there_once_and_the_others_are_as_they_were(history: list[Any], what: Any) -> None:
    before = replay(history)
    kept = [dict(c) for c in before]
    after = write(before, 99, what)
    type_, status, reason, message, generation = what
    assert before == kept, "the list that was given is not changed"
    assert [c for c in after if c["type"] != type_] == [c for c in before if c["type"] != type_]
    assert [c["type"] for c in after].count(type_) == 1
    new = find(after, type_)
    assert new is not None
    assert (new["status"], new["reason"], new["message"]) == (
        {True: "True", False: "False", None: "Unknown"}[status],
        reason,
        message,
    )
    assert new.get("observedGeneration") == generation


@given(HISTORY, WRITE)
def test_the_same_written_again_gives_an_equal_list(history: list[Any], what: Any) -> None:
    once = write(replay(history), 50, what)
    assert write(once, 60, what) == once


@given(st.lists(st.fixed_dictionaries({"type": TYPES, "status": st.sampled_from(["True", "False", "Odd"])})), WRITE)
def test_lists_that_others_left_get_a_time_and_lose_doubles(others: list[dict[str, Any]], what: Any) -> None:
    after = write(others, 7, what)
    assert [c["type"] for c in after].count(what[0]) == 1
    assert (find(after, what[0]) or {})["lastTransitionTime"] == rfc3339_seconds(7)


def test_a_message_that_the_api_would_refuse_is_cut() -> None:
    [found] = with_condition([], "A", True, "R", "ü" * 40_000, now=0)
    assert len(found["message"]) == 32_768
