"""Indices of a JobArray and their states as one text."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model import array_states
from atoll.model.array_states import FAILED, MOST, MOST_RETRIES, MOST_TEXT, byte, count_of, decode, encode, runs_of

STATES = st.builds(byte, st.integers(0, 3), st.integers(0, MOST_RETRIES + 1))


@given(st.lists(STATES, max_size=300))
def test_states_come_back_from_their_text(values: list[int]) -> None:
    assert decode(encode(bytes(values)), len(values)) == bytes(values)


def test_the_worst_states_fit_and_usual_ones_are_short() -> None:
    dice = random.Random(1)
    worst = bytes(byte(dice.randrange(4), dice.randrange(MOST_RETRIES + 2)) for _ in range(MOST))
    assert len(encode(worst)) < MOST_TEXT
    usual = bytes([byte(2)] * 5000 + [byte(1)] * 100 + [byte(0)] * 4900)
    assert len(encode(usual)) < 100


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(encode(bytes(5)), 4, id="more indices"),
        pytest.param(encode(bytes(5)), 6, id="fewer indices"),
        pytest.param("?", 1, id="no base64"),
        pytest.param("AAAA", 1, id="no zlib"),
        pytest.param(encode(bytes(10**7)), 100, id="a text that would fill the memory"),
        pytest.param("A" * (MOST_TEXT + 1), 1, id="a text that is too long"),
    ],
)
def test_another_text_is_refused(text: str, count: int) -> None:
    with pytest.raises(ValueError, match="states"):
        decode(text, count)


@pytest.mark.parametrize(
    ("said", "first", "count"),
    [(200, 0, 200), ("0-199", 0, 200), ("3", 3, 1), ("0-9,20, 30-39", 0, 21), ("999999", 999_999, 1), (MOST, 0, MOST)],
)
def test_indices_are_a_count_or_ranges(said: object, first: int, count: int) -> None:
    runs = runs_of(said)
    assert (runs[0][0], count_of(runs)) == (first, count)


@pytest.mark.parametrize(
    "said",
    [0, -1, "", "a", "1-", "-1", "5-3", "0-5,5", "9,1", "0-100000", MOST + 1, "1000000", True, 1.5, None, [1], "1,,2",
     "²", ",".join(str(2 * each) for each in range(1001))],
)  # fmt: skip
def test_what_is_neither_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match=r".{12}"):
        runs_of(said)


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_an_index_and_its_position_belong_together(indices: set[int], data: st.DataObject) -> None:
    runs = runs_of(",".join(map(str, sorted(indices))))
    index = data.draw(st.sampled_from(sorted(indices)))
    at = array_states.position_of(runs, index)
    assert at is not None
    assert array_states.index_at(runs, at) == index
    assert array_states.position_of(runs, 61) is None


@given(st.sets(st.integers(0, 80)))
def test_failed_indices_are_told_as_ranges(failed: set[int]) -> None:
    runs = runs_of("0-40,60-80")
    states = bytes(byte(FAILED, 1) if index in failed else 0 for run in runs for index in run)
    said = array_states.told(runs, states, FAILED)
    found = [index for run in runs_of(said) for index in run] if said else []
    assert found == sorted(failed & {index for run in runs for index in run})


def test_many_failed_indices_are_cut() -> None:
    runs = runs_of(MOST)
    said = array_states.told(runs, bytes([byte(FAILED), 0]) * (MOST // 2), FAILED)
    assert len(said) < 1100
    assert said.endswith(",…")


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([3, 17, *range(40, 45)], "3,17,40-44"),
        ([0, 2, 4, 6, 7, 8], "0,2 (+4 more)"),
    ],
)
def test_people_get_few_ranges_and_the_number_of_the_rest(indices: list[int], text: str) -> None:
    assert array_states.short(indices, most=2 if "more" in text else 10) == text
