"""A Volcano Job's phase, from its pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.agent.jobs.state import Census, desired_status, difference, duration, next_phase
from tests.agent.builders import make_job, make_pod, make_task


def pods(**phases: str) -> Census:
    """One pod per letter of each task: P(ending), R(unning), S(ucceeded), F(ailed), T(erminating)."""
    names = {"P": "Pending", "R": "Running", "S": "Succeeded", "F": "Failed", "T": "Running"}
    return Census(
        make_pod(f"{task}-{index}", task=task, phase=names[letter], deleted=letter == "T")
        for task, letters in phases.items()
        for index, letter in enumerate(letters)
    )


W4, W5 = make_task("w", 4), make_task("w", 5)

CASES: list[tuple[str, dict[str, Any], Census, str]] = [
    ("a new Job without pods is Pending", make_job(W4), pods(), "Pending"),
    ("fewer than minAvailable started keep it Pending", make_job(W4, phase="Pending"), pods(w="RRRP"), "Pending"),
    ("minAvailable running makes it Running", make_job(W4, minAvailable=3), pods(w="RRRP"), "Running"),
    ("finished pods count as started", make_job(W4, phase="Pending"), pods(w="RRSF"), "Running"),
    ("all succeeded completes it", make_job(W4, phase="Running"), pods(w="SSSS"), "Completed"),
    ("pods that end between two looks complete it from Pending", make_job(W4), pods(w="SSSS"), "Completed"),
    ("one failure of a task that needs all fails it", make_job(W4, phase="Running"), pods(w="SSSF"), "Failed"),
    (
        "a failure above the task's minimum does not matter",
        make_job(make_task("w", 4, minimum=3), phase="Running", minAvailable=3),
        pods(w="SSSF"),
        "Completed",
    ),
    (
        "task minimums do not matter where the gang asks for less than their sum",
        make_job(W4, phase="Running", minAvailable=2),
        pods(w="SSFF"),
        "Completed",
    ),
    ("too few successes fail it", make_job(W4, phase="Running", minAvailable=2), pods(w="SFFF"), "Failed"),
    ("minSuccess completes it early", make_job(W4, phase="Running", minSuccess=2), pods(w="SSRR"), "Completed"),
    (
        "all finished without minSuccess fails it",
        make_job(W4, phase="Running", minAvailable=1, minSuccess=3),
        pods(w="SSFF"),
        "Failed",
    ),
    (
        "more pending than the gang can spare sends it back",
        make_job(W4, phase="Running", minAvailable=3),
        pods(w="RRPP"),
        "Pending",
    ),
    (
        "as many pending as the gang can spare keep it Running",
        make_job(W4, phase="Running", minAvailable=3),
        pods(w="RRRP"),
        "Running",
    ),
    ("all pending again sends it back", make_job(W5, phase="Running", minAvailable=3), pods(w="PPPPP"), "Pending"),
    (
        "pods that have ended leave the gang as many to spare",
        make_job(W5, phase="Running", minAvailable=3),
        pods(w="PPRSF"),
        "Running",
    ),
    ("one that still runs is waited for", make_job(W4, phase="Running"), pods(w="SSSR"), "Running"),
    ("a Job without pods to run stays as it is", make_job(make_task("w", 0), phase="Running"), pods(), "Running"),
    ("pods on their way out are waited for", make_job(W4, phase="Running"), pods(w="SSST"), "Running"),
    ("Completed is final", make_job(W4, phase="Completed"), pods(w="FFFF"), "Completed"),
    ("Failed is final", make_job(W4, phase="Failed"), pods(w="SSSS"), "Failed"),
]


@pytest.mark.parametrize(("job", "census", "phase"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_phase(job: dict[str, Any], census: Census, phase: str) -> None:
    assert next_phase(job, census)[0] == phase


def test_counts_are_by_task_and_phase() -> None:
    status = desired_status(make_job(make_task("a", 2), make_task("b", 2)), pods(a="RS", b="PT"), 0.0)
    assert {key: status[key] for key in ("pending", "running", "succeeded", "terminating")} == {
        "pending": 1,
        "running": 1,
        "succeeded": 1,
        "terminating": 1,
    }
    assert status["taskStatusCount"] == {
        "a": {"phase": {"Running": 1, "Succeeded": 1}},
        "b": {"phase": {"Pending": 1}},
    }


def test_a_finished_job_says_how_long_it_ran() -> None:
    job = make_job(W4, phase="Running")
    status = desired_status(job, pods(w="SSSS"), 1767225660 + 65)
    assert status["runningDuration"] == "1m5s"
    assert status["conditions"][-1]["status"] == "Completed"


def test_an_unchanged_status_needs_no_write() -> None:
    job = make_job(W4)
    job["status"] = desired_status(job, pods(w="PPPP"), 1.0)
    again = desired_status(job, pods(w="PPPP"), 99.0)
    assert difference(job["status"], again) == {}


def test_pods_just_made_count_as_pending() -> None:
    assert Census([], {"w": 4}).total["pending"] == 4


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (59, "59s"), (60, "1m0s"), (3661, "1h1m1s"), (-3, "0s")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_difference_removes_what_is_gone_at_any_depth() -> None:
    assert difference({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"x": 3}, "c": 4}) == {
        "a": {"x": 3, "y": None},
        "b": None,
        "c": 4,
    }


def test_a_job_that_fails_names_the_pod_that_failed_first_and_why() -> None:
    first, later = (
        msgspec.structs.replace(make_pod(name, task="w", phase="Failed"), failure=f"container {name}", since=since)
        for name, since in (("w-1", "2026-01-01T00:00:01Z"), ("w-0", "2026-01-01T00:00:02Z"))
    )
    job = make_job(make_task("w", 2), phase="Running")
    status = desired_status(job, Census([later, first]), 0.0)
    assert status["state"]["message"] == "task w: 0 pods succeeded, 2 are needed; pod w-1, container w-1"


def test_a_job_that_a_user_aborts_does_not_blame_a_pod() -> None:
    failed = msgspec.structs.replace(make_pod("w-0", task="w", phase="Failed"), failure="container c: exit code 1")
    job = make_job(make_task("w", 1), phase="Aborting")
    job["status"]["state"] |= {"reason": "CommandIssued", "message": "by hand"}
    assert desired_status(job, Census([failed]), 0.0)["state"]["message"] == "by hand"
