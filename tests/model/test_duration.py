"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from atoll.model import duration


@pytest.mark.parametrize(
    ("text", "value"),
    [("10s", 10.0), ("1h30m", 5400.0), ("1.5s", 1.5), (".5m", 30.0), ("200ms", 0.2), ("1.s", 1.0)],
)
def test_durations(text: str, value: float) -> None:
    assert duration.parse(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "soon", "3", "-1s", "1 h", "."])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert duration.parse_or_none(text) is None


def test_members_report_no_number_that_is_too_large() -> None:
    assert duration.BOUNDED.fullmatch("1h2m3s")
    assert not duration.BOUNDED.fullmatch("1234567890s")
