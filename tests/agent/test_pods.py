"""The PodGroup and pods of a Volcano Job."""

from __future__ import annotations

import msgspec
import pytest

from atoll.agent.jobs import pods
from atoll.agent.objects import decode_pod
from atoll.model import keys
from tests.agent.builders import make_job, make_pod, make_task


def test_the_pod_group_carries_the_gang() -> None:
    job = make_job(make_task("ps", 1, cpu="2"), make_task("w", 4, minimum=3), minAvailable=4, queue="team")
    group = pods.pod_group(job)
    assert group["metadata"]["name"] == "train-j1"
    assert group["metadata"]["ownerReferences"][0]["controller"] is True
    assert group["metadata"]["annotations"] == {"atoll.sh/binding-uid": "b1", "atoll.sh/epoch": "3"}
    assert group["spec"] == {
        "minMember": 4,
        "minTaskMember": {"ps": 1, "w": 3},
        "minResources": {"cpu": "5"},
        "queue": "team",
    }


def test_resources_of_the_minimum_are_filled_up_in_task_order() -> None:
    job = make_job(make_task("a", 2, minimum=1), make_task("b", 2, minimum=1, cpu="3"), minAvailable=3)
    assert pods.pod_group(job)["spec"]["minResources"] == {"cpu": "5"}


def test_priority_and_topology_reach_the_pod_group() -> None:
    topology = {"mode": "hard", "highestTierAllowed": 1}
    spec = pods.pod_group(make_job(make_task("w", 1), priorityClassName="high", networkTopology=topology))["spec"]
    assert (spec["priorityClassName"], spec["networkTopology"]) == ("high", topology)


def test_a_pod_can_be_found_by_volcanos_labels() -> None:
    pod = pods.pod(make_job(make_task("w", 2), queue="team"), 0, 1)
    assert pod["metadata"]["name"] == "train-w-1"
    assert pod["metadata"]["labels"] == {
        "volcano.sh/task-spec": "w",
        "volcano.sh/task-index": "1",
        "volcano.sh/job-name": "train",
        "volcano.sh/job-namespace": "default",
        "volcano.sh/queue-name": "team",
    }
    annotations = pod["metadata"]["annotations"]
    assert annotations["scheduling.k8s.io/group-name"] == "train-j1"
    assert (annotations["atoll.sh/binding-uid"], annotations["atoll.sh/epoch"]) == ("b1", "3")
    assert pod["spec"]["schedulerName"] == "atoll"


def test_the_template_wins_over_the_jobs_scheduler_and_priority() -> None:
    task = make_task("w", 1)
    task["template"]["spec"] |= {"schedulerName": "other", "priorityClassName": "own"}
    spec = pods.pod(make_job(task, schedulerName="volcano", priorityClassName="high"), 0, 0)["spec"]
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("other", "own")


def test_volumes_are_mounted_in_every_container_and_the_template_stays_as_it_is() -> None:
    task = make_task("w", 1)
    job = make_job(
        task,
        volumes=[{"mountPath": "/data", "volumeClaimName": "shared"}, {"mountPath": "/out", "volumeClaim": {"a": 1}}],
    )
    spec = pods.pod(job, 0, 0)["spec"]
    assert [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]] == ["/data", "/out"]
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"]]
    assert claims == ["shared", "train-volume-1"]
    assert [claim["metadata"]["name"] for claim in pods.claims(job)] == ["train-volume-1"]
    assert "volumes" not in task["template"]["spec"]


def test_scaling_down_removes_the_highest_indices_first() -> None:
    existing = [make_pod(f"train-w-{i}", index=i) for i in range(12)]
    surplus = pods.surplus(make_job(make_task("w", 9)), existing)
    assert [pod.metadata.name for pod in surplus] == ["train-w-11", "train-w-10", "train-w-9"]


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        pytest.param((), [0, 1], id="the first ones"),
        pytest.param((0, 2), [0, 1, 2, 3], id="beside those that have ended"),
        pytest.param((0, 1, 2, 3, 4), [0, 1, 2, 3, 4, 5], id="the last ones"),
    ],
)
def test_only_some_pods_may_run_at_once(ended: tuple[int, ...], expected: list[int]) -> None:
    existing = [make_pod(f"train-w-{i}", index=i, phase="Succeeded" if i in ended else "Running") for i in range(6)]
    job = make_job(make_task("w", 6), make_task("all", 2))
    job["metadata"]["annotations"] = {keys.AT_ONCE: '{"w":2}'}
    found = pods.present(job, existing)
    assert [name for name in found if "-w-" in name] == [f"train-w-{i}" for i in expected]
    assert [name for name in found if "-all-" in name] == ["train-all-0", "train-all-1"]
    going = [pod.metadata.name for pod in pods.surplus(job, existing)]
    assert going == [f"train-w-{i}" for i in range(5, -1, -1) if i not in expected]
    assert pods.vanished(job, existing) == []


def test_of_billions_of_pods_only_those_that_may_run_at_once_are_looked_at() -> None:
    job = make_job(make_task("w", 2**31 - 1))
    job["metadata"]["annotations"] = {keys.AT_ONCE: '{"w":2}'}
    existing = [make_pod("train-w-0", phase="Succeeded"), make_pod(f"train-w-{2**31 - 2}", phase="Failed")]
    found = pods.present(job, existing)
    assert list(found) == ["train-w-0", "train-w-1", "train-w-2", f"train-w-{2**31 - 2}"]
    assert pods.asked(job) == 2


def test_a_pod_has_its_place_by_its_name() -> None:
    job = make_job(make_task("w", 2), make_task("w-1", 2))
    names = [
        "train-w-1",
        "train-w-1-0",
        "train-w-2",
        "train-w-01",
        "train-w--1",
        "train-x-0",
        "w-0",
        "other-w-0",
        "train-",
    ]
    assert pods.places(job, names) == {"train-w-1": (0, 1), "train-w-1-0": (1, 0)}


def test_a_task_without_a_name_gets_its_default() -> None:
    task = make_task("", 1)
    assert list(pods.present(make_job(make_task("a", 1), task), ())) == ["train-a-0", "train-default1-0"]


def test_a_new_size_changes_the_pod_group_and_drops_tasks_that_are_gone() -> None:
    job = make_job(make_task("w", 2))
    assert pods.group_change({"minMember": 2, "minTaskMember": {"w": 2}}, job) == {}
    change = pods.group_change({"minMember": 3, "minTaskMember": {"w": 2, "old": 1}}, job)
    assert change["spec"]["minTaskMember"] == {"old": None, "w": 2}
    assert change["spec"]["minMember"] == 2


def test_pods_that_vanished_unseen_show_in_the_counts() -> None:
    job = make_job(make_task("w", 4), phase="Running")
    job["status"]["taskStatusCount"] = {"w": {"phase": {"Running": 3}}}
    left = [make_pod("train-w-0"), make_pod("train-w-3")]
    assert pods.vanished(job, left) == ["train-w-1"]
    assert pods.vanished(job, [*left, make_pod("train-w-1")]) == []


def test_a_container_leaves_its_last_output_in_its_status_unless_its_user_says_otherwise() -> None:
    task = make_task("w", 1)
    main = task["template"]["spec"]["containers"][0]
    task["template"]["spec"]["containers"].append({**main, "name": "own", "terminationMessagePolicy": "File"})
    containers = pods.pod(make_job(task), 0, 0)["spec"]["containers"]
    assert [each["terminationMessagePolicy"] for each in containers] == ["FallbackToLogsOnError", "File"]
    assert "terminationMessagePolicy" not in main


def test_a_pod_that_failed_says_which_container_did_why_and_its_last_output() -> None:
    def ended(name: str, at: str, **end: object) -> dict:
        return {"name": name, "state": {"terminated": {"finishedAt": at, **end}}}

    status = {
        "phase": "Failed",
        "containerStatuses": [
            ended("fine", "2026-01-01T00:00:01Z", exitCode=0, reason="Completed"),
            ended("later", "2026-01-01T00:00:03Z", exitCode=143, reason="Error"),
            ended("main", "2026-01-01T00:00:02Z", exitCode=137, reason="OOMKilled", message="step 1\n\nstep 2\n"),
        ],
    }
    raw = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "status": status}
    decoded = decode_pod(msgspec.json.encode(raw))
    assert decoded.failure == "container main: OOMKilled, exit code 137, last output: step 1 / step 2"
    assert decode_pod(msgspec.json.encode({**raw, "status": {**status, "phase": "Running"}})).failure == ""


def test_partitions_are_sub_groups_of_the_pod_group_and_labels_of_pods() -> None:
    near = {"mode": "hard", "highestTierAllowed": 1}
    policy = {"totalPartitions": 2, "partitionSize": 3, "minPartitions": 1, "networkTopology": near}
    job = make_job({**make_task("w", 6), "partitionPolicy": policy}, make_task("ps", 1))
    [found] = pods.pod_group(job)["spec"]["subGroupPolicy"]
    assert (found["name"], found["subGroupSize"], found["minSubGroups"]) == ("w", 3, 1)
    assert (found["networkTopology"], found["matchLabelKeys"]) == (near, ["volcano.sh/partition-id"])
    labels = [pods.pod(job, 0, index)["metadata"]["labels"] for index in range(6)]
    assert [each["volcano.sh/partition-id"] for each in labels] == ["0", "0", "0", "1", "1", "1"]
    assert found["labelSelector"]["matchLabels"].items() <= labels[0].items()
    assert "volcano.sh/partition-id" not in pods.pod(job, 1, 0)["metadata"]["labels"]
