"""CronJobs over five virtual hours: schedule x time zone x concurrencyPolicy x deadline x suspension x downtime.

What is made when is compared with a second telling of Kubernetes' rules, which knows nothing of the first: it looks at
each minute, and at each minute's clock in the zone.
"""

from __future__ import annotations

import copy
import itertools
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from atoll.control.makers.cron import plan
from atoll.model.timestamps import to_seconds
from tests.control.makers.crons import HOUR, MINUTE, make_cron, make_job

Json = dict[str, Any]
LENGTH = 5 * HOUR
Times = Callable[[datetime], bool]
Span = tuple[float, float]
"""Seconds after the beginning: from, until."""


@dataclass(frozen=True)
class Schedule:
    """A schedule as users write it, and which minutes of a clock it means."""

    text: str
    means: Times


HALF_HOURS = Schedule("*/30 * * * *", lambda at: at.minute % 30 == 0)
HOURS = Schedule("0 * * * *", lambda at: at.minute == 0)
TWENTY_PAST = Schedule("20 1-23/2 * * *", lambda at: at.minute == 20 and at.hour % 2 == 1)
ONE_MORNING = Schedule("10 9 * * mon", lambda at: (at.minute, at.hour, at.weekday()) == (10, 9, 0))
AN_ORDINARY_DAY, CLOCKS_GO_BACK, CLOCKS_GO_FORWARD = (
    to_seconds(text) for text in ("2026-06-15T00:00:00Z", "2026-10-24T23:00:00Z", "2026-03-28T23:00:00Z")
)
CLOCKS = {
    "every half hour, UTC": (HALF_HOURS, None, AN_ORDINARY_DAY),
    "every half hour, where hours begin at half past": (HALF_HOURS, "Asia/Kolkata", AN_ORDINARY_DAY),
    "hourly, where hours begin at a quarter to": (HOURS, "Asia/Kathmandu", AN_ORDINARY_DAY),
    "every second hour in New York": (TWENTY_PAST, "America/New_York", AN_ORDINARY_DAY),
    "a Monday morning in Tokyo": (ONE_MORNING, "Asia/Tokyo", AN_ORDINARY_DAY),
    "every half hour while clocks go back": (HALF_HOURS, "Europe/Berlin", CLOCKS_GO_BACK),
    "every half hour while clocks go forward": (HALF_HOURS, "Europe/Berlin", CLOCKS_GO_FORWARD),
}
POLICIES = ("Allow", "Forbid", "Replace")
DEADLINES = (None, 5 * MINUTE, 45 * MINUTE)
SUSPENDED: dict[str, Span] = {
    "never suspended": (0, 0),
    "suspended for a while": (65 * MINUTE, 152 * MINUTE),
    "suspended for good": (65 * MINUTE, 2 * LENGTH),
}
DOWN: dict[str, Span] = {
    "no downtime": (0, 0),
    "down for some minutes": (118 * MINUTE, 123 * MINUTE),
    "down for hours": (55 * MINUTE, 190 * MINUTE),
}
Run = tuple[int, int]
"""For which minute a Job was made, and in which; minutes after the beginning."""


def within(span: Span, at: float) -> bool:
    return span[0] <= at < span[1]


@dataclass
class Case:
    """One CronJob and what happens to it."""

    schedule: Schedule
    zone: str | None
    begin: float
    policy: str
    deadline: float | None
    suspended: Span
    down: Span
    lasts: float = 40 * MINUTE
    most: int = field(default=0, init=False)
    """Jobs that ran at once."""

    def expected(self) -> list[Run]:
        """By looking at every minute."""
        zone = zoneinfo.ZoneInfo(self.zone or "UTC")
        due: list[float] = []
        runs: list[Run] = []
        ends: list[float] = []
        done = -1.0
        for minute in range(int(LENGTH // MINUTE)):
            now = minute * MINUTE
            if self.schedule.means(datetime.fromtimestamp(self.begin + now, zone)):
                due.append(now)
            ends = [end for end in ends if end > now]
            if within(self.down, now) or within(self.suspended, now):
                continue
            missed = [each for each in due if each > done and (self.deadline is None or each > now - self.deadline)]
            if not missed or (self.policy == "Forbid" and ends):
                continue
            if self.policy == "Replace":
                ends.clear()
            done = missed[-1]
            runs.append((int(done // MINUTE), minute))
            ends.append(now + self.lasts)
        return runs

    def made(self) -> list[Run]:
        """By `plan`, which is asked when it wanted to be, when a Job ended, and when somebody changed something."""
        spec = {"concurrencyPolicy": self.policy, "timeZone": self.zone, "startingDeadlineSeconds": self.deadline}
        given: dict[str, Any] = {key: value for key, value in spec.items() if value is not None}
        obj = make_cron(self.schedule.text, created=self.begin - 1, **given)
        runs: list[Run] = []
        jobs: dict[str, Json] = {}
        ends: dict[str, float] = {}
        now = 0.0
        while now < LENGTH:
            for name in [name for name, end in ends.items() if end <= now]:
                jobs[name] = make_job(name, "Completed", created=self.begin + ends.pop(name))
            again: float | None = None
            if not within(self.down, now):
                obj["spec"]["suspend"] = within(self.suspended, now)
                found = plan(copy.deepcopy(obj), list(jobs.values()), self.begin + now)
                for name in found.delete:
                    jobs.pop(name)
                    ends.pop(name, None)
                for job in found.create:
                    name = job["metadata"]["name"]
                    assert name not in jobs, "no time makes two"
                    jobs[name], ends[name] = make_job(name, "Running", created=self.begin + now), now + self.lasts
                    said = job["metadata"]["annotations"]["volcano.sh/cronjob-scheduled-timestamp"]
                    runs.append((int((to_seconds(said) - self.begin) // MINUTE), int(now // MINUTE)))
                obj["status"], again = found.status, found.again
                self.most = max(self.most, len(ends))
            later = [*ends.values(), *self.suspended, *self.down, *([again - self.begin] if again else [])]
            now = min((each for each in later if each > now), default=LENGTH)
        return runs


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS.keys())
@pytest.mark.parametrize("down", DOWN.values(), ids=DOWN.keys())
@pytest.mark.parametrize("suspended", SUSPENDED.values(), ids=SUSPENDED.keys())
def test_every_job_is_made_for_its_time_and_at_it(
    clock: tuple[Schedule, str | None, float], suspended: Span, down: Span
) -> None:
    for policy, deadline in itertools.product(POLICIES, DEADLINES):
        case = Case(*clock, policy, deadline, suspended, down)
        assert case.made() == case.expected(), (policy, deadline)
        assert case.most <= (2 if policy == "Allow" else 1)


def test_the_matrix_has_runs_that_are_late_and_runs_that_are_lost() -> None:
    """The second telling tells cases apart."""
    plain = Case(*CLOCKS["every half hour, UTC"], "Allow", None, (0, 0), (0, 0))
    late = Case(*CLOCKS["every half hour, UTC"], "Forbid", None, (0, 0), DOWN["down for hours"])
    lost = Case(*CLOCKS["every half hour, UTC"], "Forbid", 5 * MINUTE, (0, 0), DOWN["down for hours"])
    assert [scheduled for scheduled, _ in plain.expected()] == list(range(0, 300, 30))
    assert late.expected()[:3] == [(0, 0), (30, 40), (180, 190)]
    assert lost.expected()[:2] == [(0, 0), (210, 210)]
