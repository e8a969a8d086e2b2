"""What the batch/v1 Job needs, how it goes to a member, and how its status on the host adds up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.kinds import Outcome, Part, Report
from atoll.kinds.batch_job import KIND
from atoll.model import keys
from tests.kinds.builders import BEFORE, GENERATED, make_batch_job

Json = dict[str, Any]
NOW = "2026-01-01T00:01:00Z"


def ended(type_: str, **status: Any) -> Json:
    """What a member says of a Job that has ended."""
    reason = {"Complete": "CompletionsReached", "Failed": "BackoffLimitExceeded"}[type_]
    return {"conditions": [{"type": type_, "status": "True", "reason": reason, "message": "so"}], **status}


def aggregate(job: Json, *statuses: Json, carried: dict[str, int] | None = None, why: str = "") -> Json:
    reports = [Report(f"m{number}", status, carried or {}) for number, status in enumerate(statuses)]
    return KIND.aggregate(job, reports, waiting=("", why), now=NOW)


def true_conditions(status: Json) -> list[str]:
    return [each["type"] for each in status.get("conditions", ()) if each["status"] == "True"]


# -- what it needs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "carried", "replicas"),
    [
        pytest.param({}, {}, 4, id="as many pods as run at once"),
        pytest.param({"completions": 2}, {}, 2, id="no more than are to succeed"),
        pytest.param({"completions": 6}, {"succeeded": 4}, 2, id="no more than are still to succeed"),
        pytest.param({"completions": None}, {"succeeded": 2}, 4, id="all of a work queue's"),
        pytest.param({"completionMode": "Indexed"}, {"succeeded": 2}, 4, id="all of an Indexed Job's"),
    ],
)
def test_its_pods(spec: Json, carried: dict[str, int], replicas: int) -> None:
    gang = KIND.gang(make_batch_job(**spec), priority=7, carried=carried)
    (task,) = gang.tasks
    assert (task.name, task.replicas, task.min_available, gang.min_available) == ("main", replicas, replicas, replicas)
    assert task.requests == {"cpu": 2000, "memory": 2**30, "pods": 1}
    assert (gang.priority, gang.submitted, gang.hold) == (7, BEFORE, False)


def test_an_annotation_lowers_the_pods_that_must_start_together() -> None:
    gang = KIND.gang(make_batch_job(annotations={keys.GROUP_MIN_MEMBER: "2"}), priority=0)
    assert (gang.replicas, gang.min_available) == (4, 2)
    job = make_batch_job()
    job["spec"]["template"]["metadata"]["annotations"] = {keys.GROUP_MIN_MEMBER: "3"}
    assert KIND.gang(job, priority=0).min_available == 3
    with pytest.raises(ValueError, match="'many' is no whole number"):
        KIND.gang(make_batch_job(annotations={keys.GROUP_MIN_MEMBER: "many"}), priority=0)


def test_topology_is_wished_for_by_annotations_of_the_job_or_its_pods() -> None:
    assert KIND.gang(make_batch_job(), priority=0).network_topology is None
    job = make_batch_job(annotations={keys.HIGHEST_TIER: "2"})
    job["spec"]["template"]["metadata"]["annotations"] = {keys.HIGHEST_TIER: "1", keys.TOPOLOGY_MODE: "soft"}
    wish = KIND.gang(job, priority=0).network_topology
    assert wish is not None
    assert (wish.mode, wish.highest_tier_allowed) == ("soft", 2)
    assert rewrite(job)["template"]["metadata"]["annotations"][keys.HIGHEST_TIER] == "2"


def test_a_job_that_its_user_holds_or_that_has_no_pods_is_held() -> None:
    assert KIND.gang(make_batch_job(annotations={keys.HOLD: "true"}), priority=0).hold
    assert KIND.gang(make_batch_job(parallelism=0), priority=0).hold


def test_only_jobs_that_were_taken_over_at_creation_are_ours() -> None:
    assert KIND.takes(make_batch_job())
    assert not KIND.takes(make_batch_job(managedBy="example.com/other"))
    assert not KIND.takes(make_batch_job(managedBy=None))


# -- to the member ---------------------------------------------------------------------------------------------------

IDENTITY = {keys.BINDING_UID: "b1", keys.EPOCH: "3"}


def rewrite(job: Json, pods: int = 4, carried: dict[str, int] | None = None) -> Json:
    part = Part("m", {"main": pods}, pods, identity=IDENTITY, carried=carried or {})
    spec: Json = KIND.rewrite(job, part)["spec"]
    return spec


def test_the_member_starts_it_under_its_own_controller_and_our_scheduler() -> None:
    spec = rewrite(make_batch_job(suspend=True))
    assert spec["suspend"] is False
    assert not {"managedBy", "selector", "ttlSecondsAfterFinished"} & spec.keys()
    template = spec["template"]
    assert template["metadata"] == {"labels": {"app": "a"}, "annotations": {**IDENTITY, keys.GROUP_MIN_MEMBER: "4"}}
    assert template["spec"]["schedulerName"] == "atoll"


def test_a_selector_of_the_users_own_and_another_scheduler_are_kept() -> None:
    job = make_batch_job(manualSelector=True)
    job["spec"]["template"]["spec"]["schedulerName"] = "theirs"
    spec = rewrite(job)
    assert spec["selector"] == job["spec"]["selector"]
    assert spec["template"]["metadata"]["labels"] == {**GENERATED, "app": "a"}
    assert spec["template"]["spec"]["schedulerName"] == "theirs"


def test_only_what_remains_is_run_again() -> None:
    assert rewrite(make_batch_job(completions=6), carried={"succeeded": 5})["completions"] == 1
    assert (
        "completions" not in rewrite(make_batch_job(completions=None))
        or rewrite(make_batch_job(completions=None))["completions"] is None
    )
    assert rewrite(make_batch_job(completionMode="Indexed"), carried={"succeeded": 3})["completions"] == 4


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(0, 40), st.integers(0, 9))
def test_the_completions_of_a_divided_job_add_up(pods: list[int], more: int, carried: int) -> None:
    job = make_batch_job(parallelism=sum(pods), completions=sum(pods) + more + carried)
    found = []
    for number, count in enumerate(pods):
        preceding = {"main": sum(pods[:number])}
        part = Part("m", {"main": count}, count, parts=len(pods), preceding=preceding, carried={"succeeded": carried})
        spec = KIND.rewrite(job, part)["spec"]
        assert spec["completions"] >= spec["parallelism"] == count
        found.append(spec["completions"])
    assert sum(found) == sum(pods) + more


def test_an_indexed_job_stays_in_one_cluster() -> None:
    assert KIND.gang(make_batch_job(completionMode="Indexed"), priority=0).whole
    assert not KIND.gang(make_batch_job(), priority=0).whole


def test_rewriting_changes_nothing_of_the_host() -> None:
    job = make_batch_job()
    rewrite(job)
    assert job == make_batch_job()


# -- back to the host ------------------------------------------------------------------------------------------------


def test_counts_add_up_over_dispatches() -> None:
    job = make_batch_job(completions=9, status={"succeeded": 3, "failed": 1, "startTime": BEFORE})
    carried = {"succeeded": 3, "failed": 1}
    status = aggregate(job, {"active": 2, "ready": 1, "succeeded": 2, "failed": 2, "terminating": 1}, carried=carried)
    assert status == {
        "active": 2,
        "ready": 1,
        "terminating": 1,
        "succeeded": 5,
        "failed": 3,
        "startTime": BEFORE,
    }


def test_a_job_made_again_in_its_member_takes_nothing_back() -> None:
    job = make_batch_job(completions=9, status={"succeeded": 3, "failed": 1, "startTime": BEFORE})
    status = aggregate(job, {"active": 2, "succeeded": 1})
    assert (status["succeeded"], status["failed"]) == (3, 1)


def test_never_more_ready_than_active() -> None:
    assert aggregate(make_batch_job(), {"active": 1, "ready": 3})["ready"] == 1


@pytest.mark.parametrize(("end", "first"), [("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")])
def test_an_end_is_written_in_one_piece_with_what_must_come_before_it(end: str, first: str) -> None:
    status = aggregate(make_batch_job(status={"startTime": BEFORE}), ended(end, succeeded=4, completionTime=NOW))
    assert true_conditions(status) == [first, end]
    assert status["startTime"] == BEFORE
    assert status.get("completionTime") == (NOW if end == "Complete" else None)
    assert KIND.finished(status) is (Outcome.SUCCEEDED if end == "Complete" else Outcome.FAILED)


def test_the_completion_is_never_before_the_start() -> None:
    status = aggregate(make_batch_job(), ended("Complete", succeeded=4, completionTime=BEFORE))
    assert status["completionTime"] == status["startTime"] == NOW


@pytest.mark.parametrize("left", ["active", "terminating"])
def test_no_end_while_a_pod_is_left(left: str) -> None:
    status = aggregate(make_batch_job(), ended("Failed"), {left: 1})
    assert true_conditions(status) == []
    assert not status.get("completionTime")


def test_one_failed_part_fails_the_job_once_the_others_are_gone() -> None:
    status = aggregate(make_batch_job(), ended("Complete", succeeded=2), ended("Failed", failed=1))
    assert true_conditions(status) == ["FailureTarget", "Failed"]


def test_what_has_ended_never_changes_again() -> None:
    done = aggregate(make_batch_job(), ended("Complete", succeeded=4, completionTime=NOW))
    assert aggregate(make_batch_job(status=done), {"active": 3, "failed": 2}) == done
    assert aggregate(make_batch_job(status=done, suspend=True), why="no room") == done


def test_while_suspended_it_has_not_started_and_says_why() -> None:
    status = aggregate(make_batch_job(suspend=True, status={"startTime": BEFORE, "succeeded": 1}), why="no room")
    assert "startTime" not in status
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Suspended", "True", "JobSuspended")
    assert condition["message"] == "no room"
    resumed = aggregate(make_batch_job(status=status), {"active": 1})
    assert [(c["type"], c["status"], c["reason"]) for c in resumed["conditions"]] == [
        ("Suspended", "False", "JobResumed")
    ]
    assert resumed["startTime"] == NOW


def test_a_job_that_its_member_suspends_says_so_and_no_other_does() -> None:
    said = [{"conditions": [{"type": "Suspended", "status": value}]} for value in ("True", "False")]
    assert [bool(KIND.suspended(each)) for each in (*said, {})] == [True, False, False]


def test_the_switch_is_moved_only_where_it_is_not_there_yet() -> None:
    assert KIND.suspension(make_batch_job(), suspended=False) == ()
    (operation,) = KIND.suspension(make_batch_job(), suspended=True)
    assert (operation["path"], operation["value"]) == ("/spec/suspend", True)


def test_no_end_before_the_suspension_is_lifted() -> None:
    status = aggregate(make_batch_job(suspend=True, completions=None), ended("Complete", succeeded=1))
    assert true_conditions(status) == ["Suspended"]


def test_a_job_that_reached_its_completions_just_as_it_was_evicted_is_complete() -> None:
    status = aggregate(make_batch_job(suspend=True, status={"succeeded": 4}))
    assert true_conditions(status) == ["SuccessCriteriaMet", "Complete"]
    assert status["startTime"] == status["completionTime"] == NOW


def test_a_member_that_reports_billions_of_indices_costs_nothing() -> None:
    last = 2**31 - 2
    job = make_batch_job(completionMode="Indexed", completions=last + 1, parallelism=1, backoffLimitPerIndex=1)
    status = aggregate(job, {"completedIndexes": f"1-{last}", "failedIndexes": f"0-{last}"})
    assert (status["succeeded"], status["completedIndexes"]) == (last, f"1-{last}")
    assert status["failedIndexes"] == "0"


INDICES = st.sets(st.integers(0, 30))


@given(INDICES, INDICES, INDICES, st.integers(0, 35))
def test_indices_are_joined_as_sets_are(old: set[int], new: set[int], failed: set[int], completions: int) -> None:
    job = make_batch_job(completionMode="Indexed", completions=completions, parallelism=1, backoffLimitPerIndex=1)
    job["status"] = {"completedIndexes": _written(old)}
    status = aggregate(job, {"completedIndexes": _written(new), "failedIndexes": _written(failed)})
    done = {index for index in old | new if index < completions}
    assert _read(status.get("completedIndexes")) == done
    assert _read(status.get("failedIndexes")) == {index for index in failed - done if index < completions}
    assert status.get("succeeded", 0) == len(done)


def _written(indices: set[int]) -> str:
    return ",".join(map(str, sorted(indices)))


def _read(text: str | None) -> set[int]:
    runs = [part.partition("-") for part in (text or "").split(",") if part]
    return {index for first, _, last in runs for index in range(int(first), int(last or first) + 1)}


def test_indices_of_all_dispatches_are_joined() -> None:
    job = make_batch_job(completionMode="Indexed", parallelism=9, completions=9, backoffLimitPerIndex=1)
    job["status"] = {"completedIndexes": "0,2", "succeeded": 2}
    status = aggregate(job, {"active": 1, "completedIndexes": "1-2,5,6", "succeeded": 4, "failedIndexes": "0,7"})
    assert status["completedIndexes"] == "0-2,5,6"
    assert status["succeeded"] == 5
    assert status["failedIndexes"] == "7"


counters = st.fixed_dictionaries(
    {name: st.integers(0, 5) for name in ("active", "ready", "terminating", "succeeded", "failed")}
)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), counters), max_size=8))
def test_whatever_members_report_the_status_keeps_the_rules(history: list[tuple[bool, bool, Json]]) -> None:
    status: Json = {}
    for suspended, over, counts in history:
        old, job = status, make_batch_job(status=status, suspend=suspended, completions=12)
        report = ended("Complete", **counts) if over else counts
        status = aggregate(job, report, carried=KIND.carried(old))
        for name in ("succeeded", "failed"):
            assert status.get(name, 0) >= old.get(name, 0)
        assert status["ready"] <= status.get("active", 0)
        if old.get("startTime") and not suspended:
            assert status["startTime"] == old["startTime"]
        if KIND.finished(status):
            assert not status.get("active")
            assert not status.get("terminating")
            assert {"startTime", "completionTime"} <= status.keys()
            assert "SuccessCriteriaMet" in true_conditions(status)
        if KIND.finished(old):
            assert status == old


def test_an_annotation_tells_the_run_time_more_exactly_than_the_deadline() -> None:
    job: dict[str, Any] = {
        "metadata": {"name": "j", "namespace": "n", "annotations": {"atoll.sh/running-estimate": "5m"}},
        "spec": {"template": {"spec": {"containers": []}}, "activeDeadlineSeconds": 3600},
    }
    assert KIND.gang(job, priority=0).running_estimate == 300
    del job["metadata"]["annotations"]
    assert KIND.gang(job, priority=0).running_estimate == 3600
