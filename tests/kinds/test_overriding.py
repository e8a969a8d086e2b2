"""What an override may make of a workload, of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kinds import kind_of, overriding
from atoll.model import overrides
from atoll.model.overrides import Applied, Failed

Json = dict[str, Any]


def batch_job() -> Json:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "annotations": {"atoll.sh/epoch": "1"}},
        "spec": {"suspend": False, "parallelism": 2, "completions": 2, "template": {"spec": pod}},
    }


def volcano_job() -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train:1"}]}}
    tasks = [{"name": name, "replicas": 1, "template": template} for name in ("server", "worker")]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"minAvailable": 2, "queue": "a", "schedulerName": "atoll", "tasks": tasks},
    }


def overridden(manifest: Json, **overriders: Any) -> Json:
    applied = [Applied("p", overriders)]
    made = overrides.apply(manifest, applied, overriding.containers)
    kind = kind_of(manifest)
    assert kind is not None
    overriding.check(kind, manifest, made, applied)
    return made


def patch(path: str, value: Any = None, operator: str = "replace") -> Json:
    return {"plaintext": [{"path": path, "operator": operator, "value": value}]}


def test_containers_of_all_tasks_are_found() -> None:
    assert overriding.containers(volcano_job()) == [
        "/spec/tasks/0/template/spec/containers", "/spec/tasks/1/template/spec/containers",
    ]  # fmt: skip
    made = overridden(volcano_job(), imageOverrider=[{"component": "Tag", "operator": "replace", "value": "2"}])
    assert {each["template"]["spec"]["containers"][0]["image"] for each in made["spec"]["tasks"]} == {"train:2"}


@pytest.mark.parametrize(
    "overriders",
    [
        pytest.param(patch("/spec/template/spec/containers/0/image", "x:2"), id="an image"),
        pytest.param(
            patch("/spec/template/spec/containers/0/env", [{"name": "A", "value": "1"}], "add"), id="an environment"
        ),
        pytest.param(patch("/spec/template/spec/volumes", [{"name": "d", "emptyDir": {}}], "add"), id="a volume"),
        pytest.param({"labelsOverrider": [{"operator": "add", "value": {"team": "a"}}]}, id="a label"),
    ],
)
def test_what_changes_no_decision_is_taken(overriders: Json) -> None:
    assert overridden(batch_job(), **overriders) != batch_job()


@pytest.mark.parametrize(
    ("overriders", "why"),
    [
        pytest.param(patch("/spec/parallelism", 1), "the gang", id="its size"),
        pytest.param(
            patch("/spec/template/spec/containers/0/resources/requests/cpu", "2"), "the gang", id="what is charged"
        ),
        pytest.param(
            patch("/spec/template/spec/containers/-", {"name": "b", "resources": {"requests": {"cpu": 1}}}, "add"),
            "the gang",
            id="one more container that is charged",
        ),
        pytest.param(patch("/spec/template/spec/nodeSelector", {"a": "b"}, "add"), "the gang", id="its nodes"),
        pytest.param(
            patch("/spec/template/spec/schedulerName", "other", "add"), "who places its pods", id="its scheduler"
        ),
        pytest.param(
            patch("/spec/template/spec/schedulingGates", [{"name": "g"}], "add"), "who places", id="a scheduling gate"
        ),
        pytest.param(
            patch("/spec/template/spec/priorityClassName", "high", "add"), "the gang|the priority", id="its priority"
        ),
        pytest.param(patch("/spec/suspend", True), "when it runs", id="its switch"),
        pytest.param(patch("/metadata/name", "other"), "metadata.name", id="its name"),
        pytest.param(patch("/metadata/finalizers", ["x"], "add"), "metadata.finalizers", id="a finalizer"),
        pytest.param(patch("/kind", "CronJob"), "change kind", id="its kind"),
        pytest.param(
            {"annotationsOverrider": [{"operator": "replace", "value": {"atoll.sh/epoch": "9"}}]},
            "annotations of Atoll",
            id="its dispatch",
        ),
        pytest.param(patch("/spec/template", "x"), "could not be read|the gang", id="what makes no sense"),
    ],
)
def test_what_was_decided_can_not_be_overridden(overriders: Json, why: str) -> None:
    with pytest.raises(Failed, match=why):
        overridden(batch_job(), **overriders)


def test_the_queue_of_a_volcano_job_can_not_be_overridden() -> None:
    with pytest.raises(Failed, match="queue"):
        overridden(volcano_job(), **patch("/spec/queue", "b"))
