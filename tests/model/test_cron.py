"""Schedules: what is read, what is refused, and when they come."""

from __future__ import annotations

import pytest

from atoll.model.cron import BadSchedule, parse
from atoll.model.timestamps import rfc3339_seconds, to_seconds

MONDAY = to_seconds("2026-06-15T12:00:00Z")


@pytest.mark.parametrize(
    ("text", "zone", "following"),
    [
        ("*/5 * * * *", None, ["2026-06-15T12:05:00Z", "2026-06-15T12:10:00Z"]),
        ("0 0 * * *", None, ["2026-06-16T00:00:00Z", "2026-06-17T00:00:00Z"]),
        ("0 9-17/4 * * mon-fri", None, ["2026-06-15T13:00:00Z", "2026-06-15T17:00:00Z", "2026-06-16T09:00:00Z"]),
        ("30 6 1 * ?", None, ["2026-07-01T06:30:00Z", "2026-08-01T06:30:00Z"]),
        ("0 0 13 * 5", None, ["2026-06-19T00:00:00Z", "2026-06-26T00:00:00Z"]),
        ("@hourly", None, ["2026-06-15T13:00:00Z", "2026-06-15T14:00:00Z"]),
        ("@yearly", None, ["2027-01-01T00:00:00Z"]),
        ("@every 90m", None, ["2026-06-15T13:30:00Z", "2026-06-15T15:00:00Z"]),
        ("0 0 29 2 *", None, ["2028-02-29T00:00:00Z"]),
        ("0 12 * * *", "America/New_York", ["2026-06-15T16:00:00Z"]),
        ("0 12 * * *", "Asia/Kolkata", ["2026-06-16T06:30:00Z"]),
    ],
)
def test_times(text: str, zone: str | None, following: list[str]) -> None:
    times = parse(text, zone).times(MONDAY)
    assert [rfc3339_seconds(next(times)) for _ in following] == following


@pytest.mark.parametrize(
    ("since", "following"),
    [
        ("2026-03-28T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("2026-10-24T12:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
    ],
    ids=["clocks go forward: after the hour that is not there", "clocks go back: once"],
)
def test_a_daily_run_when_clocks_change(since: str, following: list[str]) -> None:
    times = parse("30 2 * * *", "Europe/Berlin").times(to_seconds(since))
    assert [rfc3339_seconds(next(times)) for _ in following] == following


@pytest.mark.parametrize(
    "text",
    [
        "", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
        "5-1 * * * *", "a * * * *", "* * L * *", "* * * * 1#2", "TZ=UTC * * * * *", "CRON_TZ=UTC * * * * *",
        "0 0 30 2 *", "@every", "@every 1ms", "@every x", "@reboot", None, 5, "*" * 300, "1//2 * * * *", ", * * * *",
    ],
)  # fmt: skip
def test_what_is_no_schedule(text: object) -> None:
    with pytest.raises(BadSchedule):
        parse(text)


@pytest.mark.parametrize("zone", ["", "Local", "Mars/Base", "../../etc/passwd", "/etc/passwd", 5, "Europe/"])
def test_what_is_no_time_zone(zone: object) -> None:
    with pytest.raises(BadSchedule, match="timeZone"):
        parse("@hourly", zone)


@pytest.mark.parametrize(
    ("text", "since", "latest"),
    [
        ("*/5 * * * *", MONDAY - 3600, MONDAY),
        ("0 0 1 1 *", 0.0, to_seconds("2026-01-01T00:00:00Z")),
        ("0 0 29 2 *", 0.0, to_seconds("2024-02-29T00:00:00Z")),
        ("0 0 1 1 *", MONDAY - 86400, None),
        ("@every 1h", MONDAY - 5400, MONDAY - 1800),
        ("@every 1h", MONDAY - 1800, None),
        ("0 12 * * *", MONDAY, None),
    ],
)
def test_latest(text: str, since: float, latest: float | None) -> None:
    assert parse(text).latest(since, MONDAY) == latest


def test_missed_times_are_counted_no_further_than_asked() -> None:
    assert parse("* * * * *").missed(MONDAY - 600, MONDAY, 100) == 10
    assert parse("* * * * *").missed(0.0, MONDAY, 100) == 100
