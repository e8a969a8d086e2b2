"""Reasons of failed indices: grouped, bounded, and read from anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model import array_failures
from atoll.model.array_failures import MOST, MOST_INDICES, OTHERS, added, read, reason_of

_CRASH = "task worker: 0 pods succeeded, 1 are needed; pod sweep-{}-worker-0, container main: Error, exit code 1"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(_CRASH.format(7), "container main: Error, exit code 1", id="a pod that failed"),
        pytest.param(f"{_CRASH.format(7)}, last output: loss is nan, lr=3", "container main: Error, exit code 1",
                     id="with its output"),
        pytest.param("retryCount 3 has reached maxRetry 3", "retryCount 3 has reached maxRetry 3", id="no pod"),
        pytest.param("", "failed without a message", id="nothing"),
    ],
)  # fmt: skip
def test_equal_failures_have_one_reason(message: str, reason: str) -> None:
    assert reason_of(message) == reason


def test_indices_of_one_reason_are_ranges_and_the_last_one_is_told() -> None:
    found = added([], {each: _CRASH.format(each) for each in (3, 17, 40, 41, 42)})
    found = added(found, {43: f"{_CRASH.format(43)}, last output: out of memory"})
    [entry] = found
    assert (entry["count"], entry["indices"]) == (6, "3,17,40-43")
    assert entry["last"].startswith("index 43: ")
    assert entry["last"].endswith("last output: out of memory")


@given(st.lists(st.dictionaries(st.integers(0, 999_999), st.text(max_size=30), max_size=20), max_size=10))
def test_entries_stay_small_and_count_every_failure(writes: list[dict[int, str]]) -> None:
    known: list[dict[str, object]] = []
    for failed in writes:
        known = added(known, failed)
    assert len(known) <= MOST
    assert sum(int(str(each["count"])) for each in known) == sum(map(len, writes))
    assert all(len(str(each["indices"])) <= MOST_INDICES + 20 for each in known)
    # They outlast the check of the host, so that a member may go on with them.
    assert read(known) == known


def test_further_reasons_share_one_entry() -> None:
    found = added([], {index: f"reason {index}" for index in range(50)})
    assert [each["reason"] for each in found] == [*(f"reason {index}" for index in range(MOST - 1)), OTHERS]
    assert found[-1]["count"] == 50 - MOST + 1


@pytest.mark.parametrize("known", [None, 7, [7], [{"reason": 7}], {"reason": "x"}])
def test_unreadable_entries_are_none(known: object) -> None:
    assert array_failures.read(known) == []
