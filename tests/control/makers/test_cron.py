"""Which Jobs of a CronJob are made when, over hours of virtual time."""

from __future__ import annotations

import copy

import pytest

from atoll.control.makers.cron import plan
from atoll.control.makers.making import Plan
from atoll.model.timestamps import rfc3339_seconds
from tests.control.makers.crons import HOUR, MINUTE, NOON, Json, make_cron, make_job


def runs(found: Plan) -> list[str]:
    """For when Jobs are made."""
    return [each["metadata"]["annotations"]["volcano.sh/cronjob-scheduled-timestamp"][11:16] for each in found.create]


def reasons(found: Plan) -> list[str]:
    return [each.reason for each in found.news]


RUNNING = [make_job("tick-1", "Running")]
ENDED = [make_job("tick-1", "Completed")]
MADE = ["SuccessfulCreate"]
CASES: list[tuple[str, Json, list[Json], float, list[str], list[str]]] = [
    ("never ran, not due", make_cron(created=NOON + 1), [], NOON + 10 * MINUTE, [], []),
    ("never ran, due", make_cron(), [], NOON, ["12:00"], ["SuccessfulCreate"]),
    ("ran before, not due", make_cron(last=NOON), ENDED, NOON + 59 * MINUTE, [], []),
    ("ran before, due", make_cron(last=NOON), ENDED, NOON + HOUR, ["13:00"], ["SuccessfulCreate"]),
    ("Allow, one still runs", make_cron(last=NOON), RUNNING, NOON + HOUR, ["13:00"], ["SuccessfulCreate"]),
    (
        "Forbid, one still runs",
        make_cron(last=NOON, concurrencyPolicy="Forbid"),
        RUNNING,
        NOON + HOUR,
        [],
        ["JobAlreadyActive"],
    ),
    (
        "Forbid, the last one has ended",
        make_cron(last=NOON, concurrencyPolicy="Forbid"),
        ENDED,
        NOON + HOUR + 7 * MINUTE,
        ["13:00"],
        ["SuccessfulCreate"],
    ),
    ("suspended", make_cron(suspend=True), [], NOON, [], []),
    (
        "downtime: the last of the missed runs alone",
        make_cron(last=NOON),
        ENDED,
        NOON + 5.5 * HOUR,
        ["17:00"],
        ["SuccessfulCreate"],
    ),
    (
        "downtime: later than the deadline",
        make_cron(last=NOON, startingDeadlineSeconds=600),
        ENDED,
        NOON + 5.5 * HOUR,
        [],
        ["MissSchedule"],
    ),
    (
        "downtime: within the deadline",
        make_cron(last=NOON, startingDeadlineSeconds=600),
        ENDED,
        NOON + 5 * HOUR + 9 * MINUTE,
        ["17:00"],
        ["SuccessfulCreate"],
    ),
    (
        "downtime: very many missed",
        make_cron("* * * * *", last=NOON),
        ENDED,
        NOON + 5 * HOUR,
        ["17:00"],
        ["TooManyMissedTimes", "SuccessfulCreate"],
    ),
    (
        "a deadline makes very many few",
        make_cron("* * * * *", last=NOON, startingDeadlineSeconds=200),
        ENDED,
        NOON + 5 * HOUR,
        ["17:00"],
        ["SuccessfulCreate"],
    ),
    ("a rate, not due", make_cron("@every 90m", last=NOON), ENDED, NOON + HOUR, [], []),
    ("a rate, due", make_cron("@every 90m", last=NOON), ENDED, NOON + 1.5 * HOUR, ["13:30"], ["SuccessfulCreate"]),
    (
        "a rate, later than the deadline",
        make_cron("@every 90m", last=NOON, startingDeadlineSeconds=600),
        ENDED,
        NOON + 1.75 * HOUR,
        [],
        ["MissSchedule"],
    ),
    ("the last one failed", make_cron(last=NOON), [make_job("tick-1", "Failed")], NOON + HOUR, ["13:00"], MADE),
    ("suspended, one still runs", make_cron(last=NOON, suspend=True), RUNNING, NOON + HOUR, [], []),
    (
        "a time zone in the schedule",
        make_cron("TZ=Asia/Tokyo 0 21 * * *"),
        [],
        NOON,
        [],
        ["UnparseableSchedule"],
    ),
    ("a schedule that can't be read", make_cron("every day"), [], NOON, [], ["UnparseableSchedule"]),
    ("a time zone that there is not", make_cron(timeZone="Mars/Base"), [], NOON, [], ["UnparseableSchedule"]),
    ("in a time zone", make_cron("0 21 * * *", timeZone="Asia/Tokyo"), [], NOON, ["12:00"], ["SuccessfulCreate"]),
    (
        "on its way out",
        make_cron() | {"metadata": make_cron()["metadata"] | {"deletionTimestamp": "x"}},
        [],
        NOON,
        [],
        [],
    ),
]


@pytest.mark.parametrize(("obj", "jobs", "now", "made", "told"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_look(obj: Json, jobs: list[Json], now: float, made: list[str], told: list[str]) -> None:
    found = plan(obj, jobs, now)
    assert (runs(found), reasons(found)) == (made, told)


def test_a_job_is_named_after_its_time_and_belongs_to_its_cron_job() -> None:
    [job] = plan(make_cron(), [], NOON + 5).create
    assert job["metadata"]["name"] == f"tick-{int(NOON) // 60}"
    assert job["metadata"]["labels"] == {"team": "a"}
    assert job["metadata"]["ownerReferences"][0]["uid"] == "cron"


def test_replace_removes_what_runs() -> None:
    found = plan(make_cron(last=NOON, concurrencyPolicy="Replace"), RUNNING, NOON + HOUR)
    assert (found.delete, runs(found), found.status.get("active")) == (["tick-1"], ["13:00"], None)


def test_the_next_look_is_at_the_next_time() -> None:
    assert plan(make_cron(created=NOON + 1), [], NOON + 10 * MINUTE).again == NOON + HOUR
    assert plan(make_cron(suspend=True), [], NOON).again is None


def test_history() -> None:
    ended = [make_job(f"tick-{i}", "Completed", created=NOON + i) for i in range(5)]
    failed = [
        make_job(f"bad-{i}", phase, created=NOON + i) for i, phase in enumerate(["Failed", "Aborted", "Terminated"])
    ]
    quiet = make_cron(last=NOON)
    assert plan(quiet, [*ended, *failed], NOON + 1).delete == ["tick-0", "tick-1", "bad-0", "bad-1"]
    none = make_cron(last=NOON, successfulJobsHistoryLimit=0, failedJobsHistoryLimit=5)
    assert len(plan(none, [*ended, *failed], NOON + 1).delete) == 5
    assert plan(make_cron(suspend=True), ended, NOON).delete == ["tick-0", "tick-1"], "also while it is suspended"


def test_status() -> None:
    found = plan(make_cron(last=NOON), [*ENDED, make_job("tick-2", "Running")], NOON + 1).status
    assert [each["name"] for each in found["active"]] == ["tick-2"]
    assert found["lastSuccessfulTime"] == rfc3339_seconds(NOON)
    assert found["lastScheduleTime"] == rfc3339_seconds(NOON)


class World:
    """A host in which Jobs take their time, looked at whenever the last look asked for it or a Job ended."""

    def __init__(self, obj: Json, *, lasts: float, now: float = NOON - 1) -> None:
        self.obj, self.lasts, self.now = obj, lasts, now
        self.jobs: dict[str, Json] = {}
        self.ends: dict[str, float] = {}
        self.log: list[tuple[str, str]] = []
        self.most = 0

    def look(self) -> float:
        found = plan(copy.deepcopy(self.obj), list(self.jobs.values()), self.now)
        for name in found.delete:
            self.jobs.pop(name)
            self.ends.pop(name, None)
        for job in found.create:
            name = job["metadata"]["name"]
            assert name not in self.jobs, "no time makes two"
            self.jobs[name] = make_job(name, "Running", created=self.now)
            self.ends[name] = self.now + self.lasts
            self.log.append((runs(found)[0], rfc3339_seconds(self.now)[11:16]))
        self.obj["status"] = found.status
        self.most = max(self.most, len(self.ends))
        return found.again or float("inf")

    def until(self, end: float, *, down: tuple[float, float] = (0.0, 0.0)) -> None:
        while True:
            wake = self.look()
            following = min([wake, *self.ends.values()])
            if following > end:
                return
            self.now = max(self.now, following)
            if down[0] <= self.now < down[1]:
                self.now = down[1]
            for name in [name for name, at in self.ends.items() if at <= self.now]:
                del self.ends[name]
                self.jobs[name] = make_job(name, "Completed", created=self.now)


EVERY_HALF_HOUR = [f"{12 + i // 2}:{'30' if i % 2 else '00'}" for i in range(10)]


def test_five_hours_of_short_jobs() -> None:
    world = World(make_cron("*/30 * * * *"), lasts=10 * MINUTE)
    world.until(NOON + 5 * HOUR - 1)
    assert [scheduled for scheduled, _ in world.log] == EVERY_HALF_HOUR
    assert all(scheduled == at for scheduled, at in world.log), "each on time"
    assert len(world.jobs) == 3, "the history that stays"


def test_five_hours_of_long_jobs_under_each_policy() -> None:
    starts = {}
    for policy in ("Allow", "Forbid", "Replace"):
        world = World(make_cron("*/30 * * * *", concurrencyPolicy=policy), lasts=45 * MINUTE)
        world.until(NOON + 5 * HOUR - 1)
        starts[policy] = (world.most, [at for _, at in world.log])
    assert starts["Allow"] == (2, EVERY_HALF_HOUR)
    assert starts["Replace"] == (1, EVERY_HALF_HOUR)
    # What was missed meanwhile begins as soon as the one before has ended.
    assert starts["Forbid"] == (1, ["12:00", "12:45", "13:30", "14:15", "15:00", "15:45", "16:30"])


def test_two_hours_of_downtime_are_made_up_once() -> None:
    world = World(make_cron("*/30 * * * *"), lasts=5 * MINUTE)
    world.until(NOON + 5 * HOUR - 1, down=(NOON + HOUR + 1, NOON + 3 * HOUR + 10 * MINUTE))
    assert world.log[2:5] == [("13:00", "13:00"), ("15:00", "15:10"), ("15:30", "15:30")]


def test_two_hours_of_downtime_with_a_deadline_are_missed() -> None:
    world = World(make_cron("*/30 * * * *", startingDeadlineSeconds=300), lasts=5 * MINUTE)
    world.until(NOON + 5 * HOUR - 1, down=(NOON + HOUR + 1, NOON + 3 * HOUR + 10 * MINUTE))
    assert world.log[2:4] == [("13:00", "13:00"), ("15:30", "15:30")]
