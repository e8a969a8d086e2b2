"""batch/v1 Jobs at admission: taken over, held, released, left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.admission import jsonpatch
from atoll.admission.problems import unread_durations
from atoll.admission.rules import Change
from atoll.kinds import Part
from atoll.kinds.batch_job import KIND, TASK
from atoll.kinds.batch_job import admission as batch_jobs
from atoll.model import keys
from atoll.model.keys import CONTROL_ACCOUNT as CONTROL

Json = dict[str, Any]
USER = "alice"


def make_job(metadata: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team-a", **(metadata or {})},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}, **spec},
    }


def taken(job: Json, namespace: dict[str, str] | None = None) -> Json:
    return jsonpatch.applied(job, batch_jobs.default_job(job, namespace or {}))


def test_a_new_job_is_suspended_taken_over_and_gets_its_queue() -> None:
    job = taken(make_job())
    assert (job["spec"]["suspend"], job["spec"]["managedBy"]) == (True, keys.CONTROLLER)
    assert job["metadata"]["labels"] == {keys.QUEUE_LABEL: "default"}
    assert "annotations" not in job["metadata"]
    assert batch_jobs.default_job(job | {"spec": {**job["spec"], "suspend": False}}, {}) == [
        jsonpatch.add(True, "spec", "suspend")
    ]


def test_a_job_created_suspended_is_held() -> None:
    assert taken(make_job(suspend=True))["metadata"]["annotations"] == {keys.HOLD: "true"}
    kept = taken(make_job({"annotations": {"a": "b"}}, suspend=True))
    assert kept["metadata"]["annotations"] == {"a": "b", keys.HOLD: "true"}


def test_a_job_that_was_suspended_for_its_user_is_not_taken_for_held_when_it_is_created_anew() -> None:
    """As with `kubectl get -o yaml | kubectl create`, and where another webhook has this one called again."""
    once = taken(make_job())
    assert batch_jobs.default_job(once, {}) == []
    held = taken(make_job(suspend=True))
    assert taken(held)["metadata"]["annotations"] == {keys.HOLD: "true"}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job(managedBy="example.com/other"), id="managed by somebody else"),
        pytest.param({"metadata": {}, "spec": []}, id="not a Job at all"),
        pytest.param({"metadata": None, "spec": {}}, id="without metadata"),
    ],
)
def test_left_alone(job: Json) -> None:
    assert batch_jobs.default_job(job, {}) == []


@pytest.mark.parametrize(
    ("version", "kind"), [("batch/v1", "CronJob"), ("batch.volcano.sh/v1alpha1", "Job")], ids=["CronJob", "Volcano Job"]
)
def test_an_owner_keeps_no_job_from_its_queue(version: str, kind: str) -> None:
    owner = {"apiVersion": version, "kind": kind, "name": "nightly", "controller": True}
    assert taken(make_job({"ownerReferences": [owner]}))["spec"]["suspend"] is True


NAMESPACE = {keys.QUEUE_ANNOTATION: "of-namespace"}


@pytest.mark.parametrize(
    ("metadata", "template", "queue"),
    [
        pytest.param(
            {"labels": {keys.KUEUE_QUEUE_LABEL: "k", keys.QUEUE_LABEL: "v"}}, {}, "k", id="Kueue's label is first"
        ),
        pytest.param(
            {"labels": {keys.QUEUE_LABEL: "v"}, "annotations": {keys.QUEUE_ANNOTATION: "a"}},
            {},
            "v",
            id="then the label",
        ),
        pytest.param(
            {"annotations": {keys.QUEUE_ANNOTATION: "a"}}, {keys.QUEUE_ANNOTATION: "t"}, "a", id="then the annotation"
        ),
        pytest.param({}, {keys.QUEUE_ANNOTATION: "t"}, "t", id="then that of the pods"),
        pytest.param({}, {}, "of-namespace", id="then that of the namespace"),
    ],
)
def test_the_queue(metadata: Json, template: dict[str, str], queue: str) -> None:
    job = make_job(metadata)
    job["spec"]["template"]["metadata"] = {"annotations": template}
    assert KIND.queue_of(job, default="of-namespace") == queue
    stamped = taken(job, NAMESPACE)["metadata"]["labels"][keys.QUEUE_LABEL]
    assert stamped == metadata.get("labels", {}).get(keys.QUEUE_LABEL, queue)


def suspended(value: bool, **annotations: str) -> Json:
    job = taken(make_job({"annotations": annotations}))
    job["spec"]["suspend"] = value
    return job


def test_suspending_a_job_that_may_run_holds_it() -> None:
    patch = batch_jobs.keep_switch(suspended(False), suspended(True), USER)
    assert jsonpatch.applied(suspended(True), patch)["metadata"]["annotations"] == {keys.HOLD: "true"}


@pytest.mark.parametrize(
    ("old", "new", "user"),
    [
        pytest.param(suspended(False), suspended(True), CONTROL, id="our own controller suspends it"),
        pytest.param(suspended(True), suspended(True), USER, id="it was suspended already"),
        pytest.param(suspended(True), suspended(False), CONTROL, id="our own controller lifts it"),
        pytest.param(make_job(), make_job(suspend=True), USER, id="it is not ours"),
    ],
)
def test_no_hold_where(old: Json, new: Json, user: str) -> None:
    assert batch_jobs.keep_switch(old, new, user) == []


def test_lifting_by_hand_is_refused_with_what_to_do_instead() -> None:
    (problem,) = batch_jobs.validate_job_update(suspended(True), suspended(False), USER)
    assert problem.field == "spec.suspend"
    assert "starts by itself when its queue has room" in problem.message
    held = {keys.HOLD: "true"}
    (problem,) = batch_jobs.validate_job_update(suspended(True, **held), suspended(False, **held), USER)
    assert "atollctl job release train" in problem.message
    assert keys.HOLD in problem.message


def test_control_may_lift_and_any_user_may_release() -> None:
    assert batch_jobs.validate_job_update(suspended(True), suspended(False), CONTROL) == []
    held = suspended(True, **{keys.HOLD: "true"})
    assert batch_jobs.validate_job_update(held, suspended(True), USER) == []


def test_an_account_of_another_namespace_that_is_named_like_ours_has_no_rights() -> None:
    impostor = "system:serviceaccount:team-a:atoll-control"
    assert batch_jobs.validate_job_update(suspended(True), suspended(False), impostor)


def test_a_minimum_that_is_no_number_is_refused() -> None:
    job = taken(make_job({"annotations": {keys.GROUP_MIN_MEMBER: "all"}}))
    (problem,) = batch_jobs.validate_job(job)
    assert "whole number" in problem.message
    fine = copy.deepcopy(job)
    fine["metadata"]["annotations"][keys.GROUP_MIN_MEMBER] = "2"
    assert batch_jobs.validate_job(fine) == []


@pytest.mark.parametrize(("pods", "refused"), [(8, True), (19, True), (20, False), (0, False)])
def test_more_pods_can_not_have_to_start_together_than_run_at_once(pods: int, refused: bool) -> None:
    job = taken(make_job({"annotations": {keys.GROUP_MIN_MEMBER: "20"}}, parallelism=pods))
    said = [str(problem) for problem in batch_jobs.validate_new_job(job)]
    assert len(said) == refused
    assert all(f"20 is more than the {pods} pods that run at once" in each for each in said)
    before = taken(make_job({"annotations": {keys.GROUP_MIN_MEMBER: "20"}}, parallelism=30))
    assert batch_jobs.validate_job_update(before, job, USER) == []


@pytest.mark.parametrize(("parallelism", "refused"), [(100_000, False), (100_001, True), (2**31 - 1, True)])
def test_a_job_of_more_pods_than_are_looked_after_is_refused(parallelism: int, refused: bool) -> None:
    fields = [problem.field for problem in batch_jobs.validate_job(taken(make_job(parallelism=parallelism)))]
    assert fields == (["spec.parallelism"] if refused else [])
    old = taken(make_job(parallelism=1))
    new = taken(make_job(parallelism=parallelism))
    assert [problem.field for problem in batch_jobs.validate_job_update(old, new, USER)] == fields


def test_an_old_job_that_would_be_refused_today_can_be_resized_and_let_go() -> None:
    bad = {"annotations": {keys.GROUP_MIN_MEMBER: "all"}, "finalizers": ["f"]}
    old = taken(make_job(bad, parallelism=200_000))
    assert len(batch_jobs.validate_job(old)) == 2
    fewer, less, free = copy.deepcopy(old), copy.deepcopy(old), copy.deepcopy(old)
    fewer["spec"]["parallelism"] = 7
    less["spec"]["parallelism"] = 150_000
    del free["metadata"]["finalizers"]
    for new in (fewer, less, free):
        assert batch_jobs.validate_job_update(old, new, USER) == []
    more = copy.deepcopy(old)
    more["spec"]["parallelism"] = 200_001
    assert len(batch_jobs.validate_job_update(old, more, USER)) == 1
    worse = copy.deepcopy(old)
    worse["metadata"]["annotations"][keys.GROUP_MIN_MEMBER] = "none"
    assert len(batch_jobs.validate_job_update(old, worse, USER)) == 1


KUEUE: Json = {"labels": {keys.KUEUE_QUEUE_LABEL: "lab"}}


def test_a_suspended_job_with_a_kueue_queue_is_queued_not_held() -> None:
    job = taken(make_job(KUEUE, suspend=True))
    assert job["spec"]["suspend"] is True
    assert keys.HOLD not in (job["metadata"].get("annotations") or {})


@pytest.mark.parametrize("held", [False, True], ids=["it waits", "it is held"])
def test_a_manifest_applied_again_with_suspend_false_changes_nothing_and_says_so(held: bool) -> None:
    notes = {keys.HOLD: "true"} if held else {}
    old, new = suspended(True, **notes), suspended(False, **notes)
    patched = jsonpatch.applied(new, batch_jobs.keep_switch(old, new, USER))
    assert patched == old
    assert batch_jobs.validate_job_update(old, patched, USER) == []
    [warning] = batch_jobs.switch_warnings(old, new, USER)
    assert warning.message.startswith("stays true: the Job is held" if held else "stays true: the Job starts by itself")


def test_a_kueue_manifest_applied_again_while_it_runs_does_not_stop_it() -> None:
    old, new = taken(make_job(KUEUE, suspend=True)), taken(make_job(KUEUE, suspend=True))
    old["spec"]["suspend"] = False
    assert jsonpatch.applied(new, batch_jobs.keep_switch(old, new, USER)) == old
    [warning] = batch_jobs.switch_warnings(old, new, USER)
    assert "stays false" in warning.message


def of_kueue() -> Json:
    labels = {"kueue.x-k8s.io/priority-class": "urgent", keys.KUEUE_TIME: "5"}
    return taken(make_job({"labels": labels, "annotations": {keys.KUEUE_MINIMUM: "2"}}, parallelism=6, completions=6))


def test_what_kueue_says_of_a_minimum_and_of_time_acts() -> None:
    job = of_kueue()
    gang = KIND.gang(job, priority=0)
    assert (gang.min_available, gang.replicas, gang.running_estimate) == (2, 6, 5)
    sent = KIND.rewrite(job, Part("m", {TASK: 6}, 2))
    assert sent["spec"]["activeDeadlineSeconds"] == 5
    job["spec"]["activeDeadlineSeconds"] = 3
    assert KIND.rewrite(job, Part("m", {TASK: 6}, 2))["spec"]["activeDeadlineSeconds"] == 3
    # Atoll's own word comes first.
    job["metadata"]["annotations"][keys.GROUP_MIN_MEMBER] = "4"
    assert KIND.gang(job, priority=0).min_available == 4


def test_what_kueue_says_besides_is_told_to_have_no_effect() -> None:
    change = Change(new=of_kueue(), namespace={})
    told = {each.field: each.message for each in batch_jobs.ADMISSION.warnings(change)}
    assert list(told) == ["metadata.labels[kueue.x-k8s.io/priority-class]"]
    assert "name a PriorityClass" in told["metadata.labels[kueue.x-k8s.io/priority-class]"]
    others = {each.field for each in unread_durations(of_kueue())}
    assert {f"metadata.labels[{keys.KUEUE_TIME}]", f"metadata.annotations[{keys.KUEUE_MINIMUM}]"} < others
