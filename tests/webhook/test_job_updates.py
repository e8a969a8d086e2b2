"""Which changes of a Volcano Job are refused, and that old Jobs are not for what today's rules say."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kinds.volcano_job import admission as jobs
from tests.webhook.builders import (
    changed,
    defaulted,
    make_job,
    make_task,
)

BEFORE = defaulted(make_job(make_task(replicas=4), make_task("ps", replicas=1)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("spec", "minAvailable"), 2, id="minAvailable"),
        pytest.param(("spec", "priorityClassName"), "high", id="the priority class"),
        pytest.param(("spec", "tasks", 0, "replicas"), 9, id="the replicas of a task"),
        pytest.param(("spec", "tasks", 0, "minAvailable"), 1, id="the minimum of a task"),
        pytest.param(("metadata", "labels"), {"a": "b"}, id="labels"),
    ],
)
def test_can_change(path: tuple[str | int, ...], value: Any) -> None:
    assert jobs.validate_job_update(BEFORE, changed(BEFORE, *path, value=value)) == []


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        pytest.param(("spec", "maxRetry"), 5, "spec.maxRetry", id="the retries"),
        pytest.param(("spec", "plugins"), {"env": []}, "spec.plugins", id="the plugins"),
        pytest.param(("spec", "tasks", 0, "name"), "x", "spec.tasks[0].name", id="the name of a task"),
        pytest.param(
            ("spec", "tasks", 1, "template", "spec", "containers", 0, "image"),
            "other",
            "spec.tasks[1].template.spec.containers[0].image",
            id="an image",
        ),
        pytest.param(("spec", "tasks"), [make_task()], "spec.tasks", id="the number of tasks"),
    ],
)
def test_cannot_change(path: tuple[str | int, ...], value: Any, field: str) -> None:
    problems = jobs.validate_job_update(BEFORE, changed(BEFORE, *path, value=value))
    assert field in [problem.field for problem in problems]


@pytest.mark.parametrize("phase", [None, "", "Pending", "Aborted"])
def test_a_job_that_has_not_started_can_go_to_another_queue(phase: str | None) -> None:
    before = changed(BEFORE, "status", value={"state": {"phase": phase}}) if phase is not None else BEFORE
    assert jobs.validate_job_update(before, changed(before, "spec", "queue", value="other")) == []


@pytest.mark.parametrize("phase", ["Running", "Restarting", "Aborting", "Completed"])
def test_a_job_that_has_started_stays_in_its_queue(phase: str) -> None:
    before = changed(BEFORE, "status", value={"state": {"phase": phase}})
    [problem] = jobs.validate_job_update(before, changed(before, "spec", "queue", value="other"))
    assert problem.field == "spec.queue"
    assert "hold it first (`atollctl job hold`), then move it" in problem.message


def test_sums_are_checked_again_when_replicas_shrink() -> None:
    after = changed(BEFORE, "spec", "tasks", 0, "replicas", value=1)
    problems = jobs.validate_job_update(BEFORE, after)
    assert [p.field for p in problems] == ["spec.minAvailable"]


def test_a_manifest_without_the_defaults_applied_again_is_no_change() -> None:
    assert jobs.validate_job_update(BEFORE, make_job(make_task(replicas=4), make_task("ps", 1))) == []


def test_an_invalid_job_from_before_can_still_be_labelled() -> None:
    old = make_job(make_task("NOT VALID"))
    assert jobs.validate_job_update(old, changed(old, "metadata", "labels", value={"a": "b"})) == []


OLD = changed(BEFORE, "spec", "tasks", 1, "template", "spec", "containers", 0, "image", value="")
"""From before the webhook, or an earlier one: today its template would be refused."""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("spec", "tasks", 0, "replicas"), 9, id="resized"),
        pytest.param(("spec", "minAvailable"), 2, id="with another minimum"),
        pytest.param(("metadata", "finalizers"), [], id="let go"),
        pytest.param(("status",), {"state": {"phase": "Completed"}}, id="with a status"),
    ],
)
def test_an_old_job_that_would_be_refused_today_is_not_refused_for_what_was_there(
    path: tuple[str | int, ...], value: Any
) -> None:
    assert jobs.validate_job(OLD)
    assert jobs.validate_job_update(OLD, changed(OLD, *path, value=value)) == []


def test_an_old_job_is_refused_for_what_is_new() -> None:
    fewer = jobs.validate_job_update(OLD, changed(OLD, "spec", "tasks", 0, "replicas", value=-1))
    assert {problem.field for problem in fewer} == {"spec.minAvailable", "spec.tasks[0].replicas"}
    frozen = changed(OLD, "spec", "tasks", 1, "template", "spec", "containers", 0, "image", value=" ")
    assert [each.field for each in jobs.validate_job_update(OLD, frozen)] == [
        "spec.tasks[1].template.spec.containers[0].image"
    ]


def test_what_is_too_much_of_an_old_job_may_become_less() -> None:
    old = make_job(make_task("a", 200_000))
    assert jobs.validate_job(old)
    assert jobs.validate_job_update(old, changed(old, "spec", "tasks", 0, "replicas", value=150_000)) == []
    assert jobs.validate_job_update(old, changed(old, "spec", "tasks", 0, "replicas", value=200_001))


def test_an_old_job_of_too_many_parts_can_be_resized() -> None:
    tasks = [make_task(f"t{number}") for number in range(1025)]
    old = make_job(*tasks, minAvailable=1)
    assert jobs.validate_job_update(old, changed(old, "spec", "minAvailable", value=2)) == []
    frozen = jobs.validate_job_update(old, changed(old, "spec", "maxRetry", value=9))
    assert [each.field for each in frozen] == ["spec.maxRetry"]
