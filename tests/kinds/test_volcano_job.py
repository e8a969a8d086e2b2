"""What the Volcano Job says, sends and reports."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kinds import Outcome, Part, Report
from atoll.kinds.volcano_job import KIND
from atoll.model import duration, keys
from atoll.model.apiresource import PRIORITY_CLASSES, SERVICE_ACCOUNTS
from atoll.model.gang import Partition, TopologyWish
from tests.kinds.builders import BEFORE, make_job, make_task


@pytest.mark.parametrize(
    ("job", "queue"),
    [
        (make_job(queue="a", labels={"kueue.x-k8s.io/queue-name": "b"}), "a"),
        (make_job(labels={"kueue.x-k8s.io/queue-name": "b", "volcano.sh/queue-name": "c"}), "b"),
        (make_job(labels={"volcano.sh/queue-name": "c"}, annotations={"scheduling.volcano.sh/queue-name": "d"}), "c"),
        (make_job(annotations={"scheduling.volcano.sh/queue-name": "d"}), "d"),
        (make_job({"template": {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "e"}}}}), "e"),
        (make_job(), "default"),
    ],
    ids=["spec first", "Kueue's label", "Volcano's label", "annotation", "pod template", "default"],
)
def test_queue(job: dict[str, Any], queue: str) -> None:
    assert KIND.queue_of(job) == queue


@pytest.mark.parametrize(
    ("job", "minimums", "minimum"),
    [
        (make_job(make_task("a", 2), make_task("b", 3)), [2, 3], 5),
        (make_job(make_task("a", 2, minimum=1), make_task("b", 3), minAvailable=2), [1, 3], 2),
        (make_job(make_task("a", 2, minimum=0)), [0], 0),
    ],
    ids=["all by default", "as written", "none"],
)
def test_gang(job: dict[str, Any], minimums: list[int], minimum: int) -> None:
    gang = KIND.gang(job, priority=7)
    assert [task.min_available for task in gang.tasks] == minimums
    assert (gang.min_available, gang.priority, gang.submitted) == (minimum, 7, BEFORE)


@pytest.mark.parametrize(
    ("tasks", "minimum", "at_first"),
    [
        ([make_task("a", 2), make_task("b", 3)], None, 5),
        ([make_task("a", 2), make_task("b", 3) | {"dependsOn": {"name": ["a"]}}], None, 2),
        ([make_task("b", 3) | {"dependsOn": {"name": ["a"]}}, make_task("a", 2)], 2, 2),
        ([make_task("a", 4, minimum=2), make_task("b", 3) | {"dependsOn": {"name": ["a"]}}], None, 2),
    ],
    ids=["all at once", "the first task", "below the task minimums", "a task's minimum"],
)
def test_a_gang_begins_with_the_tasks_that_wait_for_no_other(tasks: Any, minimum: int | None, at_first: int) -> None:
    gang = KIND.gang(make_job(*tasks, **({"minAvailable": minimum} if minimum else {})), priority=0)
    assert gang.at_first() == at_first
    assert gang.replicas == sum(task["replicas"] for task in tasks), "its queue is charged for all"
    assert gang.whole == any("dependsOn" in task for task in tasks)


def test_a_member_hears_of_changes_where_policies_ask_about_them() -> None:
    part = Part("m", {"w": 1}, 1)
    policies = [{"events": ["PodFailed", "JobUpdated"], "action": "RestartJob"}]
    asks, silent = make_job(make_task("w", 1), policies=policies), make_job(make_task("w", 1))
    for job in (asks, silent):
        job["metadata"]["generation"] = 7
    assert KIND.rewrite(asks, part)["metadata"]["annotations"][keys.UPDATED] == "7"
    assert keys.UPDATED not in KIND.rewrite(silent, part)["metadata"]["annotations"]


def test_answers_to_probes_add_up_over_members() -> None:
    one, two = (
        {"state": {"phase": "Running"}, "probes": each}
        for each in (
            [{"answered": 1}, {"answered": 0, "message": "pod x: refused"}],
            [{"answered": 2}, {"answered": 1}],
        )
    )
    status = KIND.aggregate(make_job(), [Report("m1", one), Report("m2", two)], waiting=("", ""), now=BEFORE)
    assert status["probes"] == [{"answered": 3}, {"answered": 1, "message": "m1: pod x: refused"}]


def test_a_job_without_pods_is_held() -> None:
    assert KIND.gang(make_job(make_task("a", 0), make_task("b", 0)), priority=0).hold
    assert not KIND.gang(make_job(make_task("a", 0), make_task("b", 1, minimum=0)), priority=0).hold


def test_a_gang_carries_what_decides_about_nodes() -> None:
    terms = [{"matchExpressions": [{"key": "z", "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": required}}
    [task] = KIND.gang(
        make_job(make_task("", 1, pod=pod), networkTopology={"mode": "hard", "highestTierAllowed": 1}), priority=0
    ).tasks
    assert (task.name, task.node_selector, task.tolerations, task.node_terms) == (
        "default0",
        {"a": "b"},
        [{"operator": "Exists"}],
        terms,
    )
    assert task.requests == {"cpu": 1000, "pods": 1}


def test_a_quantity_that_can_not_be_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="lots"):
        KIND.gang(make_job(make_task("a", 1, pod={"overhead": {"cpu": "lots"}})), priority=0)


def test_needs_name_each_object_once() -> None:
    pod = {"priorityClassName": "p", "serviceAccountName": "s"}
    job = make_job(make_task("a", 1, pod=pod), make_task("b", 1, pod=pod), priorityClassName="p")
    assert list(KIND.namespaced_needs(job)) == [(PRIORITY_CLASSES, "p"), (SERVICE_ACCOUNTS, "s")]


def test_a_member_gets_its_part_without_what_is_the_hosts() -> None:
    job = make_job(
        make_task("a", 4),
        make_task("b", 2),
        ttlSecondsAfterFinished=5,
        annotations={"kubectl.kubernetes.io/last-applied-configuration": "x", "mine": "y"},
    )
    made = KIND.rewrite(job, Part("m", {"a": 3, "b": 0}, 3, parts=2))
    assert [(task["name"], task["replicas"]) for task in made["spec"]["tasks"]] == [("a", 3)]
    assert made["spec"]["minAvailable"] == 3
    assert "ttlSecondsAfterFinished" not in made["spec"]
    assert set(made["metadata"]) == {"name", "namespace", "labels", "annotations"}
    assert made["metadata"]["annotations"] == {"mine": "y"}
    assert (job["spec"]["tasks"][0]["replicas"], job["spec"]["ttlSecondsAfterFinished"]) == (4, 5)


def test_plugins_of_a_divided_job_are_told_which_pods_are_elsewhere() -> None:
    job = make_job(make_task("a", 4), make_task("b", 2), plugins={"env": []})
    made = KIND.rewrite(job, Part("m", {"a": 3, "b": 0}, 3, parts=2, preceding={"a": 1}))
    assert made["metadata"]["annotations"] == {keys.INDEX_OFFSET: '{"a":[1,4],"b":[0,2]}'}


def test_what_runs_with_fewer_pods_than_it_asks_for_says_how_many_at_once() -> None:
    job = make_job(make_task("a", 4), make_task("b", 2, minimum=0), make_task("c", 1), annotations={keys.AT_ONCE: "x"})
    made = KIND.rewrite(job, Part("m", {"a": 3, "b": 0, "c": 1}, 3, {"a": 2, "b": 0, "c": 1}))
    assert [(task["name"], task["replicas"]) for task in made["spec"]["tasks"]] == [("a", 4), ("b", 2), ("c", 1)]
    assert [task["minAvailable"] for task in made["spec"]["tasks"]] == [2, 0, 1]
    assert made["metadata"]["annotations"] == {keys.AT_ONCE: '{"a":3,"b":0}'}
    assert KIND.gang(made, priority=0).min_available == 3
    whole = KIND.rewrite(job, Part("m", {"a": 4, "b": 2, "c": 1}, 3))
    assert whole["metadata"]["annotations"] == {}


def state(phase: str, **more: Any) -> dict[str, Any]:
    return {"state": {"phase": phase}, **more} if phase else {}


@pytest.mark.parametrize(
    ("phase", "finished", "healthy", "running"),
    [
        ("", None, None, False), ("Pending", None, True, False), ("Running", None, True, True), ("Completed", Outcome.SUCCEEDED, True, True),
        ("Failed", Outcome.FAILED, False, True), ("Terminated", Outcome.FAILED, False, False), ("Aborted", None, True, False),
    ],
)  # fmt: skip
def test_what_a_phase_means(phase: str, finished: Outcome | None, healthy: bool | None, running: bool) -> None:
    assert (KIND.finished(state(phase)), KIND.healthy(state(phase)), KIND.running(state(phase))) == (
        finished,
        healthy,
        running,
    )


@pytest.mark.parametrize(
    ("phases", "whole"),
    [
        ([], "Pending"), ([""], "Pending"), (["Running"], "Running"), (["Running", "Pending"], "Pending"), (["Completed", "Running"], "Running"),
        (["Completed", "Failed"], "Failed"), (["Running", "Failed"], "Failed"), (["Completed", "Completed"], "Completed"), (["Completed", "Terminated"], "Terminated"),
    ],
)  # fmt: skip
def test_the_phase_of_the_whole(phases: list[str], whole: str) -> None:
    reports = [Report(f"m{n}", state(phase)) for n, phase in enumerate(phases)]
    assert KIND.aggregate(make_job(minAvailable=1), reports, waiting=("", ""), now=BEFORE)["state"]["phase"] == whole


def test_counts_add_up_and_times_stay_while_nothing_moves() -> None:
    reports = [
        Report(f"m{n}", state("Running", running=2, taskStatusCount={"a": {"phase": {"Running": 2}}}, version=n))
        for n in range(2)
    ]
    first = KIND.aggregate(make_job(minAvailable=4), reports, waiting=("", ""), now=BEFORE)
    assert (first["running"], first["taskStatusCount"], first["version"]) == (4, {"a": {"phase": {"Running": 4}}}, 1)
    assert KIND.aggregate(make_job(minAvailable=4, status=first), reports, waiting=("", ""), now="later") == first
    ended = [
        Report("m0", state("Completed", runningDuration="59s")),
        Report("m1", state("Completed", runningDuration="1m1s")),
    ]
    last = KIND.aggregate(make_job(minAvailable=4, status=first), ended, waiting=("", ""), now="later")
    assert [c["status"] for c in last["conditions"]] == ["Running", "Completed"]
    assert (last["state"]["lastTransitionTime"], last["runningDuration"]) == ("later", "1m1s")


@pytest.mark.parametrize("reason", ["Held", "NoPods"])
def test_an_aborted_job_has_stopped_once_it_is_kept_from_running(reason: str) -> None:
    stopped = make_job(annotations={keys.HOLD: "true", keys.ABORTED: keys.ABORTED_FOR_GOOD})
    assert KIND.aggregate(stopped, [], waiting=(reason, ""), now=BEFORE)["state"]["phase"] == "Aborted"


def test_a_dispatched_job_says_where() -> None:
    reports = [Report(name, state("Running")) for name in ("west", "east")]
    assert KIND.aggregate(make_job(), reports, waiting=("", ""), now=BEFORE)["state"]["message"] == "in east and west"
    refused = [Report("east", {"state": {"phase": "Running", "message": "its own words"}})]
    assert KIND.aggregate(make_job(), refused, waiting=("", ""), now=BEFORE)["state"]["message"] == "its own words"


def test_a_waiting_job_says_why() -> None:
    status = KIND.aggregate(make_job(), [], waiting=("QuotaExceeded", "too much"), now=BEFORE)
    assert status["state"] == {
        "phase": "Pending",
        "lastTransitionTime": BEFORE,
        "reason": "QuotaExceeded",
        "message": "too much",
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("100ms", 0.1),
        ("x", None),
        ("5", None),
        ("5m3", None),
        ("1.2.3s", None),
        ("3d", None),
    ],
)
def test_durations(text: str | None, seconds: float | None) -> None:
    assert duration.parse_or_none(text) == seconds


@pytest.mark.parametrize(
    ("spec", "annotations", "estimate", "patience"),
    [
        pytest.param({}, {}, None, None, id="nothing is said"),
        pytest.param({"runningEstimate": "2h"}, {"atoll.sh/running-estimate": "1h"}, 7200, None, id="the field wins"),
        pytest.param({}, {"atoll.sh/running-estimate": "1h30m"}, 5400, None, id="an annotation"),
        pytest.param({}, {"atoll.sh/running-estimate": "long"}, None, None, id="nonsense is no estimate"),
        pytest.param({}, {"sla-waiting-time": "90s"}, None, 90, id="Volcano's bare name"),
        pytest.param(
            {},
            {"sla-waiting-time": "90s", "volcano.sh/sla-waiting-time": "1m"},
            None,
            60,
            id="Volcano's full name first",
        ),
        pytest.param(
            {}, {"volcano.sh/sla-waiting-time": "x", "atoll.sh/sla-waiting-time": "2m"}, None, 120, id="our own first"
        ),
    ],
)
def test_estimate_and_patience(
    spec: dict[str, Any], annotations: dict[str, str], estimate: float | None, patience: float | None
) -> None:
    gang = KIND.gang(make_job(make_task("w", 1), annotations=annotations, **spec), priority=0)
    assert (gang.running_estimate, gang.patience) == (estimate, patience)


@pytest.mark.parametrize(
    ("annotations", "pod", "preemptable"),
    [
        pytest.param({}, {}, True, id="unless somebody says otherwise"),
        pytest.param({"volcano.sh/preemptable": "false"}, {}, False, id="the workload says no"),
        pytest.param({}, {"annotations": {"volcano.sh/preemptable": "false"}}, False, id="its pods say no"),
        pytest.param({}, {"labels": {"volcano.sh/preemptable": "false"}}, False, id="its pods say no by a label"),
        pytest.param({"volcano.sh/preemptable": "true"}, {}, True, id="the workload says yes"),
    ],
)
def test_whether_it_may_be_evicted_for_others(
    annotations: dict[str, str], pod: dict[str, Any], preemptable: bool
) -> None:
    obj = {
        "metadata": {"name": "j", "namespace": "default", "annotations": annotations},
        "spec": {"tasks": [{"name": "w", "replicas": 1, "template": {"metadata": pod, "spec": {"containers": []}}}]},
    }
    assert KIND.gang(obj, priority=0).preemptable is preemptable


def test_partitions_with_a_topology_are_groups_of_the_gang() -> None:
    near = {"mode": "hard", "highestTierAllowed": 1}
    policy = {"totalPartitions": 2, "partitionSize": 4, "minPartitions": 1, "networkTopology": near}
    job = make_job({**make_task("w", 8, minimum=4), "partitionPolicy": policy}, minAvailable=4)
    gang = KIND.gang(job, priority=0)
    assert gang.tasks[0].partition == Partition(4, TopologyWish("hard", 1))
    assert gang.floor() == [4]
    alone = {key: value for key, value in policy.items() if key != "networkTopology"}
    assert KIND.gang(make_job({**make_task("w", 8), "partitionPolicy": alone}), priority=0).tasks[0].partition is None
