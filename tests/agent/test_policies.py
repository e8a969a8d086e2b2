"""Which action the policies of a Volcano Job ask for, and what it does to the Job: Volcano's table in our words."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.agent.jobs import policies, state
from atoll.agent.jobs.rejections import blameless
from atoll.agent.jobs.state import Census, act, desired_status, doomed, next_phase
from atoll.agent.objects import Pod
from tests.agent.builders import make_job, make_pod, make_task

NOW = 1767225700.0
"""40 seconds after the builders' pods were made."""


def on(action: str, *events: str, timeout: str = "", code: int = 0) -> dict[str, Any]:
    """A policy."""
    policy: dict[str, Any] = {"action": action}
    if events:
        policy |= {"event": events[0]} if len(events) == 1 else {"events": list(events)}
    return policy | ({"timeout": timeout} if timeout else {}) | ({"exitCode": code} if code else {})


def task(name: str, replicas: int, *listed: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**make_task(name, replicas), **({"policies": list(listed)} if listed else {}), **more}


def pod(name: str, phase: str, **more: Any) -> Pod:
    return make_pod(f"train-{name}", task=name.partition("-")[0], phase=phase, **more)


def asked(job: dict[str, Any], *pods: Pod, lost: dict[str, float] | None = None) -> list[tuple[str, str]]:
    """(action, target) of everything that is due."""
    found = policies.wishes(job, pods, lost or {})
    return [(wish.action, wish.target) for wish in found if wish.due <= NOW]


# -- which policy decides ----------------------------------------------------------------------------------------------

EVERY = ("PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed")
W = task("w", 2)
FAILED_3 = pod("w-0", "Failed", codes=[0, 3])

RESOLUTION: list[tuple[str, dict[str, Any], list[Pod], list[tuple[str, str]]]] = [
    ("no policy, no action", make_job(W), [FAILED_3], []),
    (
        "a failed pod is PodFailed",
        make_job(W, policies=[on("RestartJob", "PodFailed")]),
        [FAILED_3],
        [("RestartJob", "")],
    ),
    (
        "a running or succeeded pod is nothing",
        make_job(W, policies=[on("RestartJob", "*")]),
        [pod("w-0", "Running"), pod("w-1", "Succeeded")],
        [],
    ),
    (
        "the task's policy comes before the Job's",
        make_job(task("w", 2, on("RestartTask", "PodFailed")), policies=[on("AbortJob", "PodFailed")]),
        [FAILED_3],
        [("RestartTask", "w")],
    ),
    (
        "the task's policy of an exit code comes before the Job's",
        make_job(task("w", 2, on("RestartTask", code=3)), policies=[on("AbortJob", code=3)]),
        [FAILED_3],
        [("RestartTask", "w")],
    ),
    (
        "the Job's policy decides where the task's does not match",
        make_job(task("w", 2, on("RestartTask", "PodEvicted")), policies=[on("AbortJob", "PodFailed")]),
        [FAILED_3],
        [("AbortJob", "")],
    ),
    (
        "the first of several that match decides",
        make_job(W, policies=[on("AbortJob", "PodFailed"), on("RestartJob", "*")]),
        [FAILED_3],
        [("AbortJob", "")],
    ),
    (
        "events may be a list",
        make_job(W, policies=[on("RestartPod", "PodEvicted", "PodFailed")]),
        [FAILED_3],
        [("RestartPod", "w:train-w-0")],
    ),
    (
        "any container's exit code counts, not the first one's alone",
        make_job(W, policies=[on("AbortJob", code=3)]),
        [FAILED_3],
        [("AbortJob", "")],
    ),
    ("another exit code does not match", make_job(W, policies=[on("AbortJob", code=4)]), [FAILED_3], []),
    (
        "a pod that the kubelet evicted is PodEvicted too",
        make_job(W, policies=[on("RestartPod", "PodEvicted")]),
        [pod("w-1", "Failed", reason="Evicted")],
        [("RestartPod", "w:train-w-1")],
    ),
    (
        "a pod that somebody deletes is PodEvicted",
        make_job(W, policies=[on("RestartTask", "PodEvicted")]),
        [pod("w-1", "Running", deleted=True)],
        [("RestartTask", "w")],
    ),
    (
        "an unknown pod is Unknown",
        make_job(W, policies=[on("RestartPod", "Unknown")]),
        [pod("w-1", "Unknown")],
        [("RestartPod", "w:train-w-1")],
    ),
    (
        "a task of which all pods succeeded is TaskCompleted",
        make_job(task("m", 1, on("CompleteJob", "TaskCompleted")), W),
        [pod("m-0", "Succeeded"), pod("w-0", "Running")],
        [("CompleteJob", "")],
    ),
    (
        "a task of which one pod is missing is not completed",
        make_job(W, policies=[on("CompleteJob", "TaskCompleted")]),
        [pod("w-0", "Succeeded")],
        [],
    ),
    (
        "as many container restarts as the task's maxRetry are TaskFailed",
        make_job(task("w", 2, maxRetry=4), policies=[on("TerminateJob", "TaskFailed")]),
        [pod("w-0", "Running", restarts=3), pod("w-1", "Running", restarts=1)],
        [("TerminateJob", "")],
    ),
    (
        "fewer are not",
        make_job(task("w", 2, maxRetry=4), policies=[on("TerminateJob", "TaskFailed")]),
        [pod("w-0", "Running", restarts=3)],
        [],
    ),
    (
        "a task with maxRetry -1 never fails",
        make_job(task("w", 2, maxRetry=-1), policies=[on("TerminateJob", "TaskFailed")]),
        [pod("w-0", "Running", restarts=99)],
        [],
    ),
    (
        "PodPending without a timeout is ignored",
        make_job(W, policies=[on("AbortJob", "PodPending")]),
        [pod("w-0", "Pending")],
        [],
    ),
    (
        "PodPending acts when its timeout has passed",
        make_job(W, policies=[on("AbortJob", "PodPending", timeout="30s")]),
        [pod("w-0", "Pending")],
        [("AbortJob", "")],
    ),
    (
        "and not before",
        make_job(W, policies=[on("AbortJob", "PodPending", timeout="2m")]),
        [pod("w-0", "Pending")],
        [],
    ),
    ("any event is not PodPending", make_job(W, policies=[on("AbortJob", "*")]), [pod("w-0", "Pending")], []),
    (
        "RestartPartition is RestartTask where there are no partitions",
        make_job(W, policies=[on("RestartPartition", "PodFailed")]),
        [FAILED_3],
        [("RestartTask", "w")],
    ),
    (
        "RestartPartition restarts the partition of the pod",
        make_job(
            task("w", 4, on("RestartPartition", "PodFailed"), partitionPolicy={"partitionSize": 2}),
        ),
        [pod("w-3", "Failed")],
        [("RestartPartition", "w/1")],
    ),
    (
        "pods of an older version say nothing",
        {**make_job(W, policies=[on("RestartJob", "*")]), "status": {"version": 1}},
        [FAILED_3],
        [],
    ),
    (
        "pods that a restart of their task has replaced say nothing",
        {**make_job(W, policies=[on("RestartJob", "*")]), "status": {"retryCount": 1, "restarts": {"w": 1}}},
        [FAILED_3, pod("w-1", "Failed", retry=1)],
        [("RestartJob", "")],
    ),
    (
        "pods that the Job does not ask for say nothing",
        make_job(W, policies=[on("RestartJob", "*")]),
        [pod("w-7", "Failed")],
        [],
    ),
]


@pytest.mark.parametrize(("job", "pods", "expected"), [c[1:] for c in RESOLUTION], ids=[c[0] for c in RESOLUTION])
def test_resolution(job: dict[str, Any], pods: list[Pod], expected: list[tuple[str, str]]) -> None:
    assert asked(job, *pods) == expected


@pytest.mark.parametrize("event", EVERY)
def test_any_event_is(event: str) -> None:
    shown = {
        "PodFailed": [pod("w-0", "Failed")],
        "PodEvicted": [pod("w-0", "Running", deleted=True)],
        "Unknown": [pod("w-0", "Unknown")],
        "TaskCompleted": [pod("w-0", "Succeeded"), pod("w-1", "Succeeded")],
        "TaskFailed": [pod("w-0", "Running", restarts=3)],
    }
    for policy in (on("AbortJob", event), on("AbortJob", "*")):
        assert asked(make_job(W, policies=[policy]), *shown[event]) == [("AbortJob", "")]


def test_a_pod_that_vanished_is_remembered_until_its_timeout() -> None:
    job = make_job(W, policies=[on("RestartJob", "PodEvicted", timeout="10s")])
    assert asked(job, lost={"train-w-1": NOW - 9}) == []
    assert asked(job, lost={"train-w-1": NOW - 11}) == [("RestartJob", "")]


def test_a_timeout_counts_from_the_moment_at_which_the_container_ended() -> None:
    job = make_job(W, policies=[on("RestartJob", "PodFailed", timeout="30s")])
    ended = pod("w-0", "Failed", ended="2026-01-01T00:01:30Z")
    assert policies.wishes(job, [ended], {})[0].due == NOW - 10 + 30


def test_whole_actions_come_before_those_on_parts() -> None:
    job = make_job(task("a", 1, on("RestartPod", "PodFailed")), task("b", 1, on("AbortJob", "PodFailed")))
    assert asked(job, pod("a-0", "Failed"), pod("b-0", "Failed"))[0] == ("AbortJob", "")


def test_the_message_names_action_event_pod_and_exit_code() -> None:
    wish = policies.wishes(make_job(W, policies=[on("RestartJob", "PodFailed")]), [FAILED_3], {})[0]
    assert wish.message == "RestartJob: PodFailed of pod train-w-0, exit code 3"


# -- what an action does -----------------------------------------------------------------------------------------------

RESTARTS = ("RestartJob", "RestartTask", "RestartPod", "RestartPartition")
STOPS = {"AbortJob": "Aborting", "CompleteJob": "Completing", "TerminateJob": "Terminating"}


def after(phase: str, action: str, *, command: str = "", **status: int) -> dict[str, Any] | None:
    """The status after an action, or None where it means nothing."""
    job = make_job(task("w", 4), phase=phase)
    job["status"] |= status
    changes = act(job, action, ["w"], reason="r", message="m", now=NOW, command=command)
    return None if changes is None else {**job["status"], **changes}


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize("action", RESTARTS)
def test_a_restart_from_pending_or_running_counts_a_retry_and_is_restarting(phase: str, action: str) -> None:
    status = after(phase, action, retryCount=1, version=1)
    assert status is not None
    assert (status["state"]["phase"], status["retryCount"]) == ("Restarting", 2)
    assert status["version"] == (2 if action == "RestartJob" else 1)
    assert status["conditions"][-1]["status"] == "Restarting"


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize("action", STOPS)
def test_a_stop_from_pending_or_running_raises_the_version(phase: str, action: str) -> None:
    status = after(phase, action, version=4)
    assert status is not None
    assert (status["state"]["phase"], status["version"]) == (STOPS[action], 5)
    assert not status.get("retryCount")


@pytest.mark.parametrize("action", RESTARTS)
def test_a_restart_while_restarting_joins_it(action: str) -> None:
    status = after("Restarting", action, retryCount=2)
    assert status is not None
    assert (status["state"]["phase"], status["retryCount"]) == ("Restarting", 2)
    assert set(status["restarts"].values()) == {2}


@pytest.mark.parametrize("phase", ["Aborting", "Aborted"])
def test_resume_counts_a_retry_and_is_restarting(phase: str) -> None:
    status = after(phase, "ResumeJob", retryCount=0, version=1)
    assert status is not None
    assert (status["state"]["phase"], status["retryCount"], status["version"]) == ("Restarting", 1, 1)


MEANINGLESS = [
    *((phase, action) for phase in state.FINAL for action in (*RESTARTS, *STOPS)),
    *((phase, "ResumeJob") for phase in ("Pending", "Running", "Completed", "Failed", "Terminated", "Completing")),
    *((phase, action) for phase in state.KILLING for action in (*RESTARTS, *STOPS)),
]


@pytest.mark.parametrize(("phase", "action"), MEANINGLESS)
def test_an_action_that_means_nothing_in_a_phase(phase: str, action: str) -> None:
    assert after(phase, action) is None


def test_a_stop_that_the_host_commands_is_obeyed_while_restarting_too() -> None:
    status = after("Restarting", "AbortJob", command="AbortJob/2", retryCount=1)
    assert status is not None
    assert (status["state"]["phase"], status["lastAction"]) == ("Aborting", "AbortJob/2")
    assert after("Restarting", "AbortJob", retryCount=1) is None


# -- what then happens by itself ---------------------------------------------------------------------------------------

R = "Running"
PROGRESS: list[tuple[str, str, dict[str, int], dict[str, str], str]] = [
    ("Restarting fails when the retries are used up", "Restarting", {"retryCount": 3}, {}, "Failed"),
    ("Restarting has retries left", "Restarting", {"retryCount": 2}, {}, "Pending"),
    ("Restarting waits for pods on their way out", "Restarting", {"retryCount": 1}, {"w": "T"}, "Restarting"),
    ("Restarting is Pending when enough pods are gone", "Restarting", {"retryCount": 1}, {}, "Pending"),
    ("Aborting waits for running pods", "Aborting", {}, {"w": "R"}, "Aborting"),
    ("Aborting waits for pods on their way out", "Aborting", {}, {"w": "T"}, "Aborting"),
    ("Aborting is Aborted when the rest has ended", "Aborting", {}, {"w": "SF"}, "Aborted"),
    ("Completing is Completed when the rest has ended", "Completing", {}, {"w": "SF"}, "Completed"),
    ("Completing waits for running pods", "Completing", {}, {"w": "RR"}, "Completing"),
    ("Terminating waits for running pods", "Terminating", {}, {"w": "RR"}, "Terminating"),
    ("Aborting waits for pending pods", "Aborting", {}, {"w": "P"}, "Aborting"),
    ("Completing waits for pending pods", "Completing", {}, {"w": "P"}, "Completing"),
    ("Terminating is Terminated when the rest has ended", "Terminating", {}, {}, "Terminated"),
    ("Aborted stays", "Aborted", {}, {"w": "SSSS"}, "Aborted"),
    ("Terminated stays", "Terminated", {}, {"w": "SSSS"}, "Terminated"),
]
PHASES = {"P": "Pending", "R": R, "S": "Succeeded", "F": "Failed", "T": R}


@pytest.mark.parametrize(
    ("phase", "status", "pods", "expected"), [c[1:] for c in PROGRESS], ids=[c[0] for c in PROGRESS]
)
def test_progress(phase: str, status: dict[str, int], pods: dict[str, str], expected: str) -> None:
    job = make_job(task("w", 4), phase=phase)
    job["status"] |= status
    existing = [
        pod(f"{name}-{index}", PHASES[letter], deleted=letter == "T")
        for name, letters in pods.items()
        for index, letter in enumerate(letters)
    ]
    assert next_phase(job, Census(existing))[0] == expected


def test_a_restart_of_part_of_an_elastic_gang_is_pending_at_once() -> None:
    job = make_job(task("w", 4), phase="Restarting", minAvailable=3)
    job["status"]["retryCount"] = 1
    assert next_phase(job, Census([pod("w-0", R, deleted=True)]))[0] == "Pending"


def test_a_job_has_not_failed_while_an_action_is_to_come_but_may_complete() -> None:
    job = make_job(task("w", 1), phase=R)
    census = Census([pod("w-0", "Failed")])
    assert (next_phase(job, census)[0], next_phase(job, census, hold=True)[0]) == ("Failed", R)
    assert next_phase(job, Census([pod("w-0", "Succeeded")]), hold=True)[0] == "Completed"


def going(phase: str, *pods: Pod, **status: Any) -> list[str]:
    job = make_job(task("w", 4), phase=phase)
    job["status"] |= status
    return [each.metadata.name for each in doomed(job, pods)]


FOUR = (pod("w-0", R), pod("w-1", "Succeeded"), pod("w-2", "Failed"), pod("w-3", "Pending"))
ALL = [each.metadata.name for each in FOUR]


def test_a_restart_of_the_job_removes_finished_pods_too() -> None:
    assert going("Restarting", *FOUR, version=1, retryCount=1, restarts={"*": 1}) == ALL


def test_the_last_restart_is_none_and_keeps_what_has_ended() -> None:
    assert going("Restarting", *FOUR, version=1, retryCount=3, restarts={"*": 3}) == ["train-w-0", "train-w-3"]


@pytest.mark.parametrize("phase", [*state.KILLING, *state.FINAL])
def test_a_job_that_ends_keeps_what_has_ended(phase: str) -> None:
    assert going(phase, *FOUR, version=1) == ["train-w-0", "train-w-3"]


def test_a_resumed_job_keeps_what_succeeded_and_makes_the_rest_anew() -> None:
    assert going("Restarting", *FOUR, version=1, retryCount=1) == ["train-w-0", "train-w-2", "train-w-3"]


def test_a_restart_of_a_pod_removes_that_pod_once() -> None:
    marked = {"retryCount": 2, "restarts": {"w:train-w-2": 2}}
    assert going("Restarting", *FOUR, **marked) == ["train-w-2"]
    assert going(R, pod("w-2", "Failed", retry=2), **marked) == []


def test_the_status_tells_what_the_host_must_decide_and_forgets_it_again() -> None:
    job = make_job(task("w", 1), phase=R)
    job["metadata"]["annotations"]["atoll.sh/parts"] = "2"
    assert policies.is_divided(job)
    job["status"] = desired_status(job, Census([pod("w-0", "Failed")]), NOW, hold=True, required="RestartJob: why")
    assert job["status"]["state"] == {"phase": R, "reason": "ActionRequired", "message": "RestartJob: why"}
    again = desired_status(job, Census([pod("w-0", R)]), NOW)
    assert again["state"] == {"phase": R}


def test_a_command_is_obeyed_once() -> None:
    job = make_job(task("w", 1))
    job["metadata"]["annotations"]["atoll.sh/action"] = "AbortJob/3"
    assert policies.commanded(job) == ("AbortJob", "AbortJob/3")
    job["status"] = {"lastAction": "AbortJob/3"}
    assert policies.commanded(job) is None
    job["metadata"]["annotations"]["atoll.sh/action"] = "AbortJob/4"
    assert policies.commanded(job) == ("AbortJob", "AbortJob/4")


# -- events of time and of the host ------------------------------------------------------------------------------------


def updated(job: dict[str, Any], said: str, seen: str) -> dict[str, Any]:
    job["metadata"]["annotations"]["atoll.sh/updated"] = said
    return {**job, "status": {**(job.get("status") or {}), "seenUpdate": seen}}


@pytest.mark.parametrize(
    ("timeout", "due"), [("10s", [("RestartPod", "w:train-w-0")]), ("1h", []), ("", [])], ids=["long", "short", "none"]
)
def test_a_pod_that_runs_for_longer_than_its_policy_says(timeout: str, due: list[tuple[str, str]]) -> None:
    job = make_job(W, policies=[on("RestartPod", "PodRunning", timeout=timeout)])
    assert asked(job, pod("w-0", "Running")) == due
    assert asked(job, pod("w-0", "Succeeded")) == []


def test_any_event_is_not_that_a_pod_runs() -> None:
    assert asked(make_job(W, policies=[on("RestartJob", "*", timeout="1s")]), pod("w-0", "Running")) == []


@pytest.mark.parametrize(
    ("policy", "said", "seen", "due"),
    [
        (on("RestartJob", "JobUpdated"), "2", "1", [("RestartJob", "")]),
        (on("RestartJob", "JobUpdated"), "2", "2", []),
        (on("RestartJob", "JobUpdated"), "2", "", []),
        (on("RestartTask", "JobUpdated"), "2", "1", [("RestartJob", "")]),
        (on("AbortJob", "PodFailed", "JobUpdated"), "2", "1", [("AbortJob", "")]),
        (on("RestartJob", "*"), "2", "1", []),
    ],
    ids=["changed", "seen already", "the first look", "no part is meant", "one of several events", "any event"],
)
def test_a_job_that_was_changed_on_the_host(
    policy: dict[str, Any], said: str, seen: str, due: list[tuple[str, str]]
) -> None:
    assert asked(updated(make_job(W, policies=[policy]), said, seen), pod("w-0", "Running")) == due


# -- pods pushed out with their node -----------------------------------------------------------------------------------

DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]
PUSHED_OUT = [("NodeShutdown", []), ("Shutdown", []), ("Terminated", DISRUPTED), ("Preempting", []), ("", DISRUPTED)]


@pytest.mark.parametrize(("reason", "conditions"), [*PUSHED_OUT, ("Evicted", []), ("Evicted", DISRUPTED)])
@pytest.mark.parametrize("first", ["PodEvicted", "PodFailed"])
def test_a_pod_that_is_pushed_out_is_evicted_before_it_is_failed(
    reason: str, conditions: list[dict[str, Any]], first: str
) -> None:
    out = pod("w-1", "Failed", reason=reason, conditions=conditions, codes=[143])
    both = [on("RestartJob", "PodEvicted"), on("TerminateJob", "PodFailed"), on("TerminateJob", code=143)]
    job = make_job(W, policies=both if first == "PodEvicted" else both[::-1])
    assert asked(job, out) == [("RestartJob", "")]
    assert asked(make_job(W, policies=both[:1]), out) == [("RestartJob", "")]
    assert not blameless(out, evictions_count=policies.watches_evictions(job, "w"))


@pytest.mark.parametrize(("reason", "conditions"), PUSHED_OUT)
def test_policies_of_other_tasks_do_not_keep_a_pushed_out_pod_from_being_made_again(
    reason: str, conditions: list[dict[str, Any]]
) -> None:
    job = make_job(task("m", 1), task("w", 1, on("RestartJob", "PodEvicted")), policies=[on("AbortJob", "PodFailed")])
    out = pod("m-0", "Failed", reason=reason, conditions=conditions)
    assert blameless(out, evictions_count=policies.watches_evictions(job, "m"))
    assert not blameless(out, evictions_count=policies.watches_evictions(job, "w"))
    assert blameless(out, evictions_count=policies.watches_evictions(make_job(W), "w"))


def test_a_pod_evicted_for_its_own_sake_has_failed_where_no_policy_asks_for_evictions() -> None:
    job = make_job(W, policies=[on("TerminateJob", "PodFailed")])
    assert asked(job, pod("w-1", "Failed", reason="Evicted")) == [("TerminateJob", "")]
