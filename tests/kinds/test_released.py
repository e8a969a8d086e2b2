"""Which pods of each kind have ended for good, as its status says: their quota goes to others before the end."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kinds import BY_GVK, metadata
from atoll.model import keys
from tests.kinds.samples import BY_TITLE, part_of, taken

Json = dict[str, Any]


def volcano(*tasks: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {},
        "spec": {"tasks": [*tasks], **spec},
    }


def batch(**spec: Any) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": spec}


def counted(**tasks: Json) -> Json:
    return {"taskStatusCount": {name: {"phase": phases} for name, phases in tasks.items()}}


def policy(action: str, event: str = "PodFailed") -> list[Json]:
    return [{"event": event, "action": action}]


M, W = {"name": "m", "replicas": 1}, {"name": "w", "replicas": 3}
ENDED = counted(m={"Running": 1}, w={"Succeeded": 2, "Failed": 1})
LEADER, *WORKERS = (
    {"name": name, "template": {"metadata": {"annotations": {keys.GANG_TASK: task}}}}
    for name, task in (("l", "main-1"), ("w0", "main-2"), ("w1", "main-2"))
)
CASES: list[tuple[str, Json, Json, dict[str, int]]] = [
    ("of a Volcano Job those that succeeded or failed", volcano(M, W), ENDED, {"w": 3}),
    (
        "of a pod group those of each task of its gang",
        volcano(LEADER, *WORKERS),
        counted(l={"Running": 1}, w0={"Succeeded": 1}, w1={"Failed": 1}),
        {"main-2": 2},
    ),
    ("none beyond those that were sent", volcano(M, W), counted(w={"Succeeded": 9}), {"w": 3}),
    ("none of a Job that a policy may restart", volcano(M, W, policies=policy("RestartJob")), ENDED, {}),
    ("none where a task's policy may restart the Job", volcano({**M, "policies": policy("RestartJob")}, W), ENDED, {}),
    ("none of a task that a policy may restart", volcano(M, {**W, "policies": policy("RestartTask")}), ENDED, {}),
    ("of tasks beside it", volcano({**M, "policies": policy("RestartPod")}, W), ENDED, {"w": 3}),
    ("where policies only stop the Job", volcano(M, W, policies=policy("AbortJob")), ENDED, {"w": 3}),
    ("of a batch Job none while completions are left", batch(parallelism=2, completions=6), {"succeeded": 4}, {}),
    ("of a batch Job the last ones", batch(parallelism=2, completions=6), {"succeeded": 5, "failed": 9}, {"main": 1}),
    (
        "of an Indexed one those that failed for good as well",
        batch(parallelism=3, completions=4, completionMode="Indexed"),
        {"succeeded": 1, "failedIndexes": "0,2"},
        {"main": 2},
    ),
    ("of a work queue none before one succeeded", batch(parallelism=3), {"active": 1, "failed": 2}, {}),
    ("of a work queue those that have left it", batch(parallelism=3), {"active": 1, "succeeded": 2}, {"main": 2}),
]


@pytest.mark.parametrize(("manifest", "status", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_released(manifest: Json, status: Json, expected: dict[str, int]) -> None:
    kind = BY_GVK[manifest["apiVersion"], manifest["kind"]]
    assert kind.released(manifest, status) == expected


JOBS = [{"name": "driver", "succeeded": 1}, {"name": "workers", "succeeded": 1, "ready": 1}]
BY_STATUS: dict[str, tuple[Json, dict[str, int]]] = {
    "JobSet": ({"replicatedJobsStatus": JOBS}, {"driver": 1, "workers": 3}),
    "PyTorchJob": ({"replicaStatuses": {"Worker": {"active": 1, "succeeded": 1, "failed": 1}}}, {"worker": 1}),
    "TFJob": ({"replicaStatuses": {"Chief": {"succeeded": 1}, "PS": {"active": 2}}}, {"chief": 1}),
    "XGBoostJob": ({"replicaStatuses": {"Worker": {"succeeded": 7}}}, {"worker": 2}),
    "JAXJob": ({"replicaStatuses": {"Worker": {"active": 1, "succeeded": 3}}}, {"worker": 3}),
    "MPIJob": ({"replicaStatuses": {"Worker": {"succeeded": 1}}}, {"Worker": 1}),
    "JobArray": ({"succeeded": 8, "failed": 1}, {"worker": 3}),
    "TrainJob": ({"jobsStatus": [{"name": "dataset-initializer", "succeeded": 1}]}, {"dataset-initializer": 1}),
}
"""Of the kinds whose status tells it by component."""


@pytest.mark.parametrize("title", BY_TITLE)
def test_released_of_replicated_templates(title: str) -> None:
    kind = BY_TITLE[title]
    manifest = kind.rewrite(taken(title), part_of(title))
    status, expected = BY_STATUS.get(title, ({"executorState": {"a": "COMPLETED"}, "succeeded": 1}, {}))
    assert kind.released(manifest, status) == expected
    assert (kind.released_when == "none" or "none before its end" in kind.released_when) == (title not in BY_STATUS)
    assert kind.ended({**status, "released": expected}) == sum(expected.values())


@pytest.mark.parametrize("nonsense", [None, 7, "x", [7], {"workers": []}, [{"name": "workers", "succeeded": "all"}]])
def test_nothing_is_released_by_what_cannot_be_read(nonsense: Any) -> None:
    kind = BY_TITLE["JobSet"]
    assert sum(kind.released(taken("JobSet"), {"replicatedJobsStatus": nonsense}).values()) == 0


def test_jobs_that_a_failure_starts_again_stay_charged() -> None:
    made = taken("JobSet")
    made["spec"]["failurePolicy"] = {"maxRestarts": 1}
    assert BY_TITLE["JobSet"].released(made, {"replicatedJobsStatus": JOBS}) == {}


def test_a_user_counts_no_pods_for_another_task() -> None:
    """Small pods that end would give back the quota of large ones."""
    theirs = {"metadata": {"annotations": {keys.GANG_TASK: "large", "a": "b"}}, "spec": {}}
    assert metadata.template_for_member(theirs)["metadata"]["annotations"] == {"a": "b"}
