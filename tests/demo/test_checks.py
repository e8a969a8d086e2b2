"""Every check passes on a good run and is seen to fail on a log that violates it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.model.verdict import Reason
from demo import checks, report
from demo.places import Places
from demo.scales import FULL
from tests.demo.log import CUT_OFF, Log

PLACES = Places(FULL.config)
JOBS = ("one", "gang")


def good() -> Log:
    """A job of one pod, and a gang of four in one rack, one after the other in a queue of 32 GPUs."""
    log = Log().queue("research", 32).run("one", 8, 0, 5)
    return log.run("gang", 32, 6, 12, tier=1)


def violations(log: Log, folder: Path, submitted: tuple[str, ...] = JOBS) -> dict[str, list[str]]:
    found = checks.violated(checks.run_all(log.record(folder), submitted, PLACES))
    return {name: list(each) for name, each in found.items()}


def test_a_good_run_violates_nothing(tmp_path: Path) -> None:
    assert violations(good(), tmp_path) == {}


def never_created(log: Log) -> None:
    log.host = [
        event for event in log.host if event["objectRef"]["name"] != "one" or event["objectRef"]["resource"] != "jobs"
    ]
    log.members["east"] = [event for event in log.members["east"] if not event["objectRef"]["name"].startswith("one")]


def refused(log: Log) -> None:
    never_created(log)
    log.create(0, "one", 8)
    log.host[-2]["responseStatus"]["code"] = 403


@pytest.mark.parametrize(
    ("spoil", "check", "text"),
    [
        pytest.param(never_created, "nothing lost", "one was never created", id="a job is not there"),
        pytest.param(refused, "nothing lost", "one was never created", id="a job was refused"),
        pytest.param(
            lambda log: log.create(1, "late", 8),
            "nothing lost",
            "late ended as a job without status",
            id="a job never gets a status",
        ),
        pytest.param(
            lambda log: log.status(20, "gang", "Failed", succeeded=3, failed=1),
            "nothing lost",
            "gang ended as Failed",
            id="a job failed",
        ),
        pytest.param(
            lambda log: log.status(20, "gang", "Completed", succeeded=3),
            "nothing lost",
            "gang has 3 succeeded of 4",
            id="a final status counts too few",
        ),
        pytest.param(
            lambda log: log.status(20, "gang", "Completed", succeeded=4, running=1),
            "nothing lost",
            "'running': 1",
            id="a final status still counts a running pod",
        ),
        pytest.param(
            lambda log: log.bind(14, "one", 0).end(15, "one", 0),
            "nothing lost",
            "2 pods succeeded in members, 1 different",
            id="a pod ran twice",
        ),
        pytest.param(
            lambda log: log.bind(14, "one", 0, cluster="west").end(15, "one", 0, cluster="west"),
            "nothing lost",
            "one ran in east and west",
            id="a job ran in two members",
        ),
        pytest.param(
            lambda log: log.status(20, "gang", "Running", running=4).status(21, "gang", "Completed", succeeded=4),
            "every status final",
            "left its final status",
            id="a job leaves its final status",
        ),
        pytest.param(
            lambda log: log.create(1, "late", 8).status(2, "late", "Pending"),
            "every status final",
            "late is Pending on the host",
            id="a job still waits",
        ),
        pytest.param(
            lambda log: log.member_status(20, "gang", "Running"),
            "every status final",
            "gang is Running in east",
            id="a member's job is not final",
        ),
        pytest.param(
            lambda log: log.run("more", 8, 8, 9),
            "no queue over its capability",
            "research used 40 of 32 GPUs",
            id="a queue uses more than its capability",
        ),
        pytest.param(
            lambda log: log.run("more", 8, 8, 9, cluster="west"),
            "no queue over its capability",
            "research used 40 of 32 GPUs",
            id="a queue uses more over all members together",
        ),
        pytest.param(
            lambda log: log.run("more", 8, 8, 9, queue="secret"),
            "no queue over its capability",
            "secret was used, but has no capability",
            id="a queue without a capability is used",
        ),
        pytest.param(
            lambda log: log.create(20, "half", 32).bind(21, "half", 0, 1).bind(31.5, "half", 2, 3),
            "no gang bound in part",
            "half was bound in part (fewer than 4 pods) for 10.5 s",
            id="the rest of a gang is bound too late",
        ),
        pytest.param(
            lambda log: log.create(20, "half", 32).bind(21, "half", 0, 1, 2).status(40, "half", "Pending"),
            "no gang bound in part",
            "for 19.0 s",
            id="the rest of a gang is never bound",
        ),
        pytest.param(
            lambda log: log.run("wide", 32, 20, 25, tier=1, node=2),
            "hard topology kept",
            "wide asked for tier 1 at most and got tier 2",
            id="a gang is spread over two racks",
        ),
    ],
)
def test_a_violation_is_found_and_named(spoil: Callable[[Log], object], check: str, text: str, tmp_path: Path) -> None:
    log = good()
    spoil(log)
    found = violations(log, tmp_path)
    assert any(text in each for each in found.get(check, ())), found


def test_what_ends_as_another_begins_does_not_overlap(tmp_path: Path) -> None:
    log = Log().queue("research", 32).run("gang", 32, 0, 10.2).run("one", 8, 10, 12)
    assert violations(log, tmp_path) == {}


def test_a_pod_that_is_taken_away_uses_its_queue_until_it_is_gone(tmp_path: Path) -> None:
    """A deletion with grace is logged twice; the second one is when the pod is gone."""
    log = Log().queue("research", 8).create(0, "one", 8).dispatch(0.1, "one").bind(1, "one", 0)
    log.remove(2, "one", 0).remove(4, "one", 0).run("other", 8, 2.5, 8)
    log.bind(9, "one", 0).end(10, "one", 0).status(11, "one", "Completed", succeeded=1)
    assert violations(log, tmp_path, ("one", "other")).keys() == {"no queue over its capability"}


def test_a_gang_that_is_taken_away_in_time_and_bound_again_is_whole(tmp_path: Path) -> None:
    log = Log().queue("research", 32).create(0, "gang", 32)
    log.bind(1, "gang", 0, 1).remove(5, "gang", 0, 1).bind(60, "gang", 0, 1, 2, 3).end(70, "gang", 0, 1, 2, 3)
    log.status(71, "gang", "Completed", succeeded=4)
    assert violations(log, tmp_path, ("gang",)) == {}


def cut_off(log: Log, cluster: str | None, path: str, name: str) -> None:
    """The last such write was answered when its client was dead."""
    events = log.host if cluster is None else log.members[cluster]
    resource, _, subresource = path.partition("/")
    for event in reversed(events):
        reference = event["objectRef"]
        if (reference["resource"], reference.get("subresource", ""), reference["name"]) == (
            resource,
            subresource,
            name,
        ):
            event["responseStatus"] = {"metadata": {}, "code": 504, "message": CUT_OFF}
            return
    raise AssertionError(f"no write to {path} {name}")


def test_writes_that_were_carried_out_although_their_client_was_dead_are_counted(tmp_path: Path) -> None:
    log = good()
    cut_off(log, "east", "pods/binding", "gang-worker-2")
    cut_off(log, None, "jobs/status", "gang")
    cut_off(log, "east", "jobs/status", "gang")
    assert violations(log, tmp_path) == {}


def test_a_binding_that_was_made_again_was_not_carried_out_before(tmp_path: Path) -> None:
    """Three pods are bound, the fourth is not until the binder's successor does it: in part for 11 seconds."""
    log = Log().queue("research", 32).create(0, "gang", 32).dispatch(0.1, "gang").bind(1, "gang", 0, 1, 2, 3)
    cut_off(log, "east", "pods/binding", "gang-worker-3")
    log.bind(12, "gang", 3).end(20, "gang", 0, 1, 2, 3).status(21, "gang", "Completed", succeeded=4)
    assert violations(log, tmp_path, ("gang",)).keys() == {"no gang bound in part"}


@pytest.mark.parametrize(
    ("nodes", "tier"),
    [
        pytest.param((0, 3), 1, id="one rack"),
        pytest.param((0, 4), 2, id="two racks of a block"),
        pytest.param((0, 8), 3, id="two blocks"),
    ],
)
def test_the_tier_is_that_of_the_smallest_domain_around_the_pods(
    nodes: tuple[int, int], tier: int, tmp_path: Path
) -> None:
    log = Log().create(0, "gang", 16)
    for index, node in enumerate(nodes):
        log.bind(1, "gang", index, node=node - index)
    assert PLACES.tier(log.record(tmp_path).stays) == tier


def test_the_table_has_waits_latencies_and_gpu_seconds(tmp_path: Path) -> None:
    log = good().create(20, "two", 16).dispatch(23, "two", Reason.QUOTA_EXCEEDED, Reason.INSUFFICIENT_RESOURCES)
    log.bind(24, "two", 0, cluster="west").bind(24.5, "two", 1, cluster="west").end(26, "two", 0, 1, cluster="west")
    record = log.record(tmp_path)
    found = report.rows(record)
    assert list(found) == [("research", "east"), ("research", "west"), ("all", "")]
    east, west, everything = found.values()
    assert (east.jobs, east.gangs, west.jobs, west.gangs, everything.jobs) == (2, 1, 1, 1, 3)
    assert east.latencies == pytest.approx([0.1, 0.1], abs=1e-5)
    assert east.waits == pytest.approx([0.2, 0.2], abs=1e-5)
    assert west.waits == pytest.approx([4.5], abs=1e-5)
    assert west.latencies == [], "it had to wait, so its latency says nothing about the dispatcher"
    assert west.gpu_seconds == pytest.approx(8 * (2 + 1.5), abs=1e-3)
    assert report.waited(record) == (1, 1, 0)
