"""What broke first, and what a played member reports."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.objects import GPU
from bench.player import played_capacity
from bench.scale import broken

BEGAN = 1000.0


@pytest.mark.parametrize(
    ("lags", "first"),
    [
        pytest.param({"a -> b": [(BEGAN + at, 0.5) for at in range(40)]}, "", id="none is behind"),
        pytest.param(
            {
                "a -> b": [(BEGAN + at, 3.0 if at >= 30 else 0.1) for at in range(40)],
                "b -> c": [(BEGAN + at, 9.0 if at >= 20 else 0.1) for at in range(40)],
            },
            "b -> c, 9.0 s behind for jobs that were there 20 s after the first",
            id="the earliest window counts, not the order of stages",
        ),
        pytest.param({"a -> b": [(BEGAN, 60.0), (BEGAN + 1, 0.1), (BEGAN + 2, 0.1)]}, "", id="one slow job is nothing"),
    ],
)
def test_the_first_window_with_a_median_behind_is_named(lags: dict[str, list[tuple[float, float]]], first: str) -> None:
    assert broken(lags, BEGAN) == first


def test_a_played_member_reports_each_rack_by_gpus_in_use() -> None:
    used = Counter({"node-00000": 3, "node-00001": 3, "node-00016": 8})
    classes = played_capacity("m", 20, used)["classes"]
    assert [(each["domain"], each["nodes"], each["free"][GPU]) for each in classes] == [
        ("rack-0", 14, 8), ("rack-0", 2, 5), ("rack-1", 3, 8), ("rack-1", 1, 0),
    ]  # fmt: skip
    assert classes[1]["free"]["cpu"] == classes[0]["free"]["cpu"] - 3000
