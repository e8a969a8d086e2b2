"""Tasks that start once others have: which may have pods, the gang that they form, and the Job's phase meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.agent.jobs import pods as made
from atoll.agent.jobs.stages import open_tasks
from atoll.agent.jobs.state import Census, next_phase
from atoll.agent.objects import Pod
from tests.agent.builders import make_job, make_pod, make_task

READY = [{"type": "Ready", "status": "True"}]
PHASES = {"p": "Pending", "r": "Running", "R": "Running", "S": "Succeeded", "F": "Failed"}


def pods(**letters: str) -> list[Pod]:
    """One pod per letter of each task: p(ending), r(unning, not ready), R(eady), S(ucceeded), F(ailed)."""
    return [
        make_pod(f"train-{task}-{i}", task=task, phase=PHASES[each], conditions=READY if each == "R" else None)
        for task, each_of in letters.items()
        for i, each in enumerate(each_of)
    ]


def after(name: str, replicas: int, *on: str, iteration: str | None = None, minimum: int | None = None) -> Any:
    said = {"name": list(on), **({"iteration": iteration} if iteration else {})}
    return make_task(name, replicas, minimum=minimum) | {"dependsOn": said}


A, B = make_task("a", 2), make_task("b", 1)
CASES: list[tuple[str, dict[str, Any], list[Pod], list[int]]] = [
    ("what depends on nothing is open", make_job(A, B), [], [0, 1]),
    ("a task waits for one without pods", make_job(A, after("c", 1, "a")), [], [0]),
    ("running pods that are not ready do not count", make_job(A, after("c", 1, "a")), pods(a="rr"), [0]),
    ("fewer than its minimum are ready", make_job(A, after("c", 1, "a")), pods(a="Rr"), [0]),
    ("its minimum is ready", make_job(A, after("c", 1, "a")), pods(a="RR"), [0, 1]),
    ("ready or succeeded, both count", make_job(A, after("c", 1, "a")), pods(a="RS"), [0, 1]),
    ("failed pods do not count", make_job(A, after("c", 1, "a")), pods(a="RF"), [0]),
    (
        "its minimum, not its replicas",
        make_job(make_task("a", 3, minimum=1), after("c", 1, "a")),
        pods(a="Rpp"),
        [0, 1],
    ),
    ("all of several", make_job(A, B, after("c", 1, "a", "b")), pods(a="RR", b="p"), [0, 1]),
    ("any of several", make_job(A, B, after("c", 1, "a", "b", iteration="any")), pods(a="rr", b="R"), [0, 1, 2]),
    ("one after the other", make_job(B, after("c", 1, "b"), after("d", 1, "c")), pods(b="R", c="p"), [0, 1]),
    ("a task that has begun goes on", make_job(A, after("c", 1, "a")), pods(a="rr", c="R"), [0, 1]),
    ("a task that needs no pods has started", make_job(make_task("a", 0), after("c", 1, "a")), [], [0, 1]),
]


@pytest.mark.parametrize(("job", "existing", "opened"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_open_tasks(job: dict[str, Any], existing: list[Pod], opened: list[int]) -> None:
    assert sorted(open_tasks(job, existing)) == opened


def test_a_task_whose_pods_no_watch_has_shown_yet_has_begun() -> None:
    assert open_tasks(make_job(A, after("c", 1, "a")), [], begun=[1]) == {0, 1}


def test_the_gang_counts_only_what_may_start_and_grows() -> None:
    job = make_job(A, after("c", 3, "a", minimum=2), minAvailable=4)
    first = made.pod_group(job, {0})["spec"]
    assert (first["minMember"], first["minTaskMember"], first["minResources"]) == (2, {"a": 2}, {"cpu": "2"})
    change = made.group_change(first, job, {0, 1})["spec"]
    assert (change["minMember"], change["minTaskMember"], change["minResources"]) == (4, {"a": 2, "c": 2}, {"cpu": "4"})


def test_a_gang_below_its_task_minimums_begins_with_what_may_start() -> None:
    assert made.pod_group(make_job(after("c", 2, "a"), A, minAvailable=2), {1})["spec"]["minMember"] == 2


STAGED = make_job(A, after("c", 2, "a"), phase="Pending")
RUNNING = make_job(A, after("c", 2, "a"), phase="Running")
PHASE_CASES: list[tuple[str, dict[str, Any], list[Pod], set[int], str]] = [
    ("the first stage runs", STAGED, pods(a="RR"), {0}, "Running"),
    ("the first stage does not run yet", STAGED, pods(a="Rp"), {0}, "Pending"),
    ("pods of the second stage that are pending change nothing", RUNNING, pods(a="RR", c="pp"), {0, 1}, "Running"),
    ("a first stage that is over is not the end", RUNNING, pods(a="SS"), {0, 1}, "Running"),
    ("both are over", RUNNING, pods(a="SS", c="SS"), {0, 1}, "Completed"),
    ("the first stage failed, so the second never starts", RUNNING, pods(a="SF"), {0}, "Failed"),
    ("the first stage lost pods of its minimum", RUNNING, pods(a="Rp"), {0}, "Pending"),
]


@pytest.mark.parametrize(
    ("job", "existing", "opened", "phase"), [c[1:] for c in PHASE_CASES], ids=[c[0] for c in PHASE_CASES]
)
def test_phase(job: dict[str, Any], existing: list[Pod], opened: set[int], phase: str) -> None:
    assert next_phase(job, Census(existing), opened=opened)[0] == phase


def test_a_job_that_can_not_go_on_says_what_never_started() -> None:
    said = next_phase(RUNNING, Census(pods(a="FF")), opened={0})
    assert said == ("Failed", "task c never started: it depends on a, which ended before")
    assert next_phase(RUNNING, Census(pods(a="FF")), opened={0}, hold=True)[0] == "Running"
