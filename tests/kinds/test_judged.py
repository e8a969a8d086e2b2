"""The status on the host as `kubectl`, Argo CD and Flux see it, state by state."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kinds import KINDS, Part, Report
from atoll.kinds import batch_job as batch
from atoll.kinds.templated import Templated
from atoll.model import keys
from tests.kinds.judges import argo, kstatus, rollout, wait
from tests.kinds.samples import BY_TITLE, NOW, SAMPLES, part_of, taken

Json = dict[str, Any]
WITHOUT_CONDITIONS = ("RayJob", "SparkApplication")
"""Kinds whose schema on the host has none."""
OBSERVING = [title for title, kind in BY_TITLE.items() if kind.observes]
"""Kinds whose status counts generations."""


def condition(type_: str, status: str = "True", reason: str = "AsItIs", **more: Any) -> Json:
    return {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": NOW, **more}


def judged(
    title: str,
    reports: list[Report],
    *,
    waiting: tuple[str, str] = ("", ""),
    before: Json | None = None,
    spec: Json | None = None,
) -> Json:
    """The object on the host with the status that follows, after the one `before`, as its schema keeps it."""
    kind, obj = BY_TITLE[title], taken(title)
    obj["spec"].update(spec or {})
    obj["status"] = before or {}
    status = kind.aggregate(obj, reports, waiting=waiting, now=NOW)
    if title in WITHOUT_CONDITIONS:
        del status["conditions"]
    return {**obj, "status": status}


def services(pods: int, *, ready: int | None = None, updated: int | None = None) -> Json:
    """Counts of a Deployment or StatefulSet of so many pods."""
    ready = pods if ready is None else ready
    found = {
        "replicas": pods,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "updatedReplicas": pods if updated is None else updated,
        "currentReplicas": pods,
        "unavailableReplicas": pods - ready,
    }
    return {name: count for name, count in found.items() if count}


def rolled_out(pods: int, **counts: int) -> Json:
    """Status of a Deployment at the end of its rollout."""
    said = [condition("Available"), condition("Progressing", reason="NewReplicaSetAvailable")]
    return {**services(pods, **counts), "conditions": said}


def report(said: Json, *, delivered: int = 4, own: int = 1, observed: int = 1, member: str = "east") -> Report:
    """Report of a member that got generation `delivered` of the host's object, which is 4 by now."""
    of = {"generation": delivered, "own": own}
    return Report(member, {**said, "observedGeneration": observed, "delivered": of})


NOT_OBSERVED: dict[str, dict[str, int]] = {
    "its member refused the change": {"delivered": 3, "own": 2, "observed": 2},
    "its agent has delivered nothing since": {"delivered": 3, "own": 1, "observed": 1},
    "its member's controller has not looked": {"delivered": 4, "own": 2, "observed": 1},
    "its member has generations beyond the host's": {"delivered": 3, "own": 9, "observed": 9},
}


@pytest.mark.parametrize("case", NOT_OBSERVED)
@pytest.mark.parametrize("title", OBSERVING)
def test_a_change_that_no_member_has_observed_is_not_done(title: str, case: str) -> None:
    said = rolled_out(3) if title == "Deployment" else services(2) | SAMPLES[title].running
    before = {"observedGeneration": 3}
    obj = judged(title, [report(said, member="east", **NOT_OBSERVED[case])], before=before)
    assert obj["status"]["observedGeneration"] == 3
    assert kstatus(obj) == "InProgress"
    if title in ("Deployment", "StatefulSet"):
        assert (rollout(obj), argo(obj)) == ("Waiting", "Progressing")
        assert not wait(obj, "Available")
    assert kstatus(judged(title, [report(said)], before=before)) == "Current"


@pytest.mark.parametrize("title", OBSERVING)
def test_a_generation_counts_once_each_member_has_observed_it(title: str) -> None:
    said = services(1)
    last = {"observedGeneration": 3}
    parts = [report(said, member="east"), report(said, member="west", own=8, observed=8)]
    assert judged(title, parts, before=last)["status"]["observedGeneration"] == 4
    silent = [parts[0], Report("west", {})]
    assert judged(title, silent, before=last)["status"]["observedGeneration"] == 3
    assert "observedGeneration" not in judged(title, [Report("west", {"observedGeneration": 1})])["status"]


def test_a_condition_is_of_the_generation_that_its_member_got() -> None:
    said = {**SAMPLES["LeaderWorkerSet"].running, "conditions": [condition("Available", observedGeneration=1)]}
    assert wait(judged("LeaderWorkerSet", [report(said)]), "Available")
    assert not wait(judged("LeaderWorkerSet", [report(said, own=2)]), "Available")
    ended = {"conditions": [condition("Complete", observedGeneration=1)]}
    assert wait(judged("TrainJob", [Report("east", ended)]), "Complete")


@pytest.mark.parametrize("title", [title for title in BY_TITLE if title != "SparkApplication"])
def test_a_waiting_workload_is_not_done(title: str) -> None:
    obj = judged(title, [], waiting=("QuotaExceeded", "queue team-a is full"))
    assert kstatus(obj) == "InProgress"
    assert argo(obj) in ("", "Progressing")
    assert not any(wait(obj, type_) for type_ in ("Available", "Complete", "Dispatched"))
    if title in ("Deployment", "StatefulSet"):
        assert rollout(obj) == "Waiting"


@pytest.mark.parametrize("title", [title for title, kind in BY_TITLE.items() if kind.switch])
def test_a_held_workload_is_not_waited_for(title: str) -> None:
    obj = judged(title, [], waiting=("Held", "its user holds it"))
    assert "Reconciling" not in [each["type"] for each in obj["status"].get("conditions", ())]


@pytest.mark.parametrize("title", ["Deployment", "StatefulSet"])
def test_a_service_that_runs_is_done_and_one_that_grows_is_not(title: str) -> None:
    said = rolled_out(3) if title == "Deployment" else services(3)
    size = {"replicas": 3}
    obj = judged(title, [report(said)], spec=size)
    assert (rollout(obj), argo(obj), kstatus(obj)) == ("Done", "Healthy", "Current")
    for less in ({"ready": 2}, {"updated": 1}) if title == "Deployment" else ({"ready": 2},):
        part = {**said, **services(3, **less)}
        part = {name: value for name, value in part.items() if value}
        obj = judged(title, [report(part)], spec=size)
        assert (rollout(obj), argo(obj), kstatus(obj)) == ("Waiting", "Progressing", "InProgress")
    obj = judged(title, [report(said)], spec={"replicas": 4})
    assert (rollout(obj), argo(obj), kstatus(obj)) == ("Waiting", "Progressing", "InProgress")


@pytest.mark.parametrize("title", ["Deployment", "StatefulSet", "LeaderWorkerSet"])
def test_a_service_that_asks_for_no_pods_is_done_once_none_is_left(title: str) -> None:
    none = {"replicas": 0}
    obj = judged(title, [], waiting=("NoPods", "it asks for no pods"), spec=none)
    assert obj["status"]["observedGeneration"] == 4
    assert kstatus(obj) == "Current"
    if title != "LeaderWorkerSet":
        assert (rollout(obj), argo(obj)) == ("Done", "Healthy")
    if title != "StatefulSet":
        assert wait(obj, "Available")
    going = judged(title, [], waiting=("Evicting", "its pods are being removed"), spec=none)
    assert "observedGeneration" not in going["status"]
    assert kstatus(going) == "InProgress"


def test_a_rollout_that_is_stuck_in_one_member_has_failed() -> None:
    stuck = condition("Progressing", "False", "ProgressDeadlineExceeded")
    parts = [
        report({**rolled_out(2)}, member="east"),
        report({**services(1, updated=1), "conditions": [condition("Available"), stuck]}, member="west"),
    ]
    obj = judged("Deployment", parts)
    assert (rollout(obj), argo(obj), kstatus(obj)) == ("Failed", "Degraded", "Failed")


def of(obj: Json, type_: str) -> tuple[str, str]:
    found = {each["type"]: each for each in obj["status"]["conditions"]}
    return found[type_]["status"], found[type_]["reason"]


HALVES: dict[str, tuple[list[int], Json | None, str]] = {
    "a half is down": ([2, 0], None, "False"),
    "one pod of four may be missing": ([2, 1], None, "True"),
    "none may be missing": ([2, 1], {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}, "False"),
    "half may be missing": ([2, 0], {"rollingUpdate": {"maxUnavailable": "50%"}}, "True"),
    "all are stopped for an update": ([2, 1], {"type": "Recreate"}, "False"),
    "all run": ([2, 2], None, "True"),
}


@pytest.mark.parametrize("case", HALVES)
def test_a_divided_deployment_is_available_as_a_whole(case: str) -> None:
    ready, strategy, available = HALVES[case]
    parts = [
        report(
            {
                **services(2, ready=count),
                "conditions": [
                    condition("Available", "True" if count == 2 else "False"),
                    condition("Progressing", reason="NewReplicaSetAvailable"),
                ],
            },
            member=name,
        )
        for name, count in zip(("east", "west"), ready, strict=True)
    ]
    for each in (parts, parts[::-1]):
        obj = judged("Deployment", each, spec={"replicas": 4, "strategy": strategy or {}})
        assert of(obj, "Available")[0] == available
        assert wait(obj, "Available") is (available == "True")


def test_each_copy_of_a_duplicated_deployment_has_to_be_available() -> None:
    down = {**services(3, ready=0), "conditions": [condition("Available", "False")]}
    parts = [report(rolled_out(3), member="east"), report(down, member="west")]
    assert of(judged("Deployment", parts), "Available")[0] == "False"


def test_a_condition_of_a_divided_workload_is_of_all_its_parts() -> None:
    failing = [condition("ReplicaFailure", reason="FailedCreate"), condition("Progressing", reason="ReplicaSetUpdated")]
    parts = [report(rolled_out(2), member="east"), report({**services(1), "conditions": failing}, member="west")]
    for each in (parts, parts[::-1]):
        obj = judged("Deployment", each)
        assert of(obj, "ReplicaFailure") == ("True", "FailedCreate")
        assert of(obj, "Progressing") == ("True", "ReplicaSetUpdated")
        assert kstatus(obj) == "InProgress"
    silent = judged("Deployment", [parts[0], Report("west", {})])
    assert of(silent, "Progressing")[0] == "Unknown"


def test_counts_that_a_member_makes_up_are_ones_that_an_api_server_takes() -> None:
    made_up = {"replicas": 1, "readyReplicas": 3, "availableReplicas": 2, "updatedReplicas": 3}
    status = judged("Deployment", [report(made_up)])["status"]
    assert status["availableReplicas"] <= status["readyReplicas"] <= status["replicas"]
    assert status["updatedReplicas"] <= status["replicas"]


@pytest.mark.parametrize("title", ["Deployment", "StatefulSet"])
def test_a_counter_of_a_members_api_server_stays_there(title: str) -> None:
    said = {**services(2), "collisionCount": 3}
    assert "collisionCount" not in judged(title, [report(said)])["status"]
    before = {"collisionCount": 1}
    for reports, why in (([report(said)], ("", "")), ([], ("Held", "its user holds it"))):
        # An API server refuses a lower number, and none.
        assert judged(title, reports, waiting=why, before=before)["status"]["collisionCount"] == 1


def test_a_batch_job_that_needs_no_pods_is_complete_and_one_that_runs_none_waits() -> None:
    def seen(**spec: int) -> Json:
        head = {"name": "j", "namespace": "n", "generation": 1}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": head, "spec": {"suspend": True, **spec}}
        return {**job, "status": batch.KIND.aggregate(job, [], waiting=("NoPods", "no pods"), now=NOW)}

    assert wait(seen(parallelism=1, completions=0), "Complete")
    assert argo(seen(parallelism=1, completions=0)) == "Healthy"
    assert argo(seen(parallelism=0, completions=3)) == "Suspended"


def test_a_batch_job_counts_succeeded_pods_of_all_parts_though_one_failed() -> None:
    head = {"name": "j", "namespace": "n", "generation": 1}
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": head,
        "spec": {"parallelism": 4, "completions": 4},
    }
    parts = [
        Report("east", {"succeeded": 2, "conditions": [condition("Complete")]}),
        Report("west", {"succeeded": 1, "failed": 1, "conditions": [condition("Failed")]}),
    ]
    for each in (parts, parts[::-1]):
        obj = {**job, "status": batch.KIND.aggregate(job, each, waiting=("", ""), now=NOW)}
        assert (obj["status"]["succeeded"], obj["status"]["failed"]) == (3, 1)
        assert (argo(obj), kstatus(obj)) == ("Degraded", "Failed")


@pytest.mark.parametrize("title", [title for title, kind in BY_TITLE.items() if kind.switch])
def test_a_workload_that_its_member_suspends_is_not_healthy(title: str) -> None:
    known: dict[str, Json] = {
        "RayJob": {"jobDeploymentStatus": "Suspended"},
        "RayCluster": {"state": "suspended"},
        "SparkApplication": {"applicationState": {"state": "SUSPENDED"}},
        "AppWrapper": {"phase": "Suspended"},
    }
    assert BY_TITLE[title].healthy(known.get(title, {"conditions": [condition("Suspended")]})) is None


def test_a_volcano_job_in_an_unknown_phase_is_not_healthy() -> None:
    [kind] = [each for each in KINDS if each.words.title == "Volcano Job"]
    assert kind.healthy({"state": {"phase": "Sleeping"}}) is None
    assert kind.healthy({"state": {"phase": "Running"}}) is True


def test_a_member_hears_which_generation_of_the_host_it_gets() -> None:
    for title, kind in BY_TITLE.items():
        assert isinstance(kind, Templated)
        made = kind.rewrite(taken(title), part_of(title))
        assert (made["metadata"]["annotations"].get(keys.GENERATION) == "4") is kind.observes
        part: Part = part_of(title)
        report = kind.reported(made, {"delivered": {"generation": 4, "own": 2}})
        assert (part.cluster, report["delivered"]) == ("east", {"generation": 4, "own": 2})
