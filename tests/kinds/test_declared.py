"""Kinds that users declare: what a WorkloadKind may say, and what follows from it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.kinds import KINDS, declare, declared, kind_of, known, own_title
from atoll.kinds.interface import Outcome, Part, Report
from atoll.model import keys
from tests.kinds.builders import Json, workload_kind

POD: Json = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}


def training(workers: int | None = 3, **spec: Any) -> Json:
    count = {} if workers is None else {"count": workers}
    wanted = {"paused": True, "master": POD, "workers": {"template": POD, **count}, **spec}
    return {
        "apiVersion": "ml.example.com/v1",
        "kind": "Training",
        "metadata": {"name": "t", "namespace": "n", "uid": "u", "labels": {keys.QUEUE_LABEL: "q"}},
        "spec": wanted,
    }


KIND = declared.kind_of(workload_kind())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("spec.a.b", ("spec", "a", "b")),
        ("spec.list[2].x", ("spec", "list", 2, "x")),
        ("status.all[*].ready", ("status", "all", "*", "ready")),
        ("spec.by['a.b/c'].x", ("spec", "by", "a.b/c", "x")),
    ],
)
def test_a_path_is_read(text: str, path: tuple[str | int, ...]) -> None:
    assert declared.path_of(text) == path


@pytest.mark.parametrize("text", ["", ".spec", "spec..a", "spec.", "spec[x]", "spec a", "/spec/a", "{.spec}"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        declared.path_of(text)


def of(**spec: Any) -> list[str]:
    return [f"{field}: {text}" for field, text in declared.problems(workload_kind(**spec), own_title)]


def test_what_can_be_followed_has_no_problems() -> None:
    assert of() == []


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        ({"plural": "others"}, "metadata.name", "must be plural.group"),
        ({"group": "batch", "plural": "jobs"}, "spec.group", "Atoll runs jobs.batch by itself, as batch Job"),
        ({"group": "apps"}, "spec.group", "no group of a CRD"),
        ({"suspend": {"path": "metadata.x"}}, "spec.suspend.path", "not in the spec"),
        ({"suspend": {"path": "spec.x", "suspended": False}}, "spec.suspend.resumed", "must differ"),
        ({"suspend": None, "managedBy": "spec.managedBy"}, "spec.managedBy", "needs spec.suspend"),
        ({"status": {"succeeded": {"condition": "Done"}}}, "spec.status", "ever known to run"),
        ({"status": {"readyReplicas": ["status.x"]}}, "spec.status.succeeded", "queue stays charged"),
        ({"status": {"running": {}, "readyReplicas": ["spec.x"]}}, "spec.status.readyReplicas[0]", "not in the status"),
        ({"service": True}, "spec.status.succeeded", "a service never finishes"),
        ({"components": [{"name": "A", "template": "spec.t"}]}, "spec.components[0].name", "lower-case"),
        ({"components": [{"name": "a", "template": "spec.t[*]"}]}, "spec.components[0].template", "forEach"),
        ({"components": [{"name": "a", "template": "t"}]}, "spec.components[0].template", "begin with spec."),
    ],
)
def test_what_can_not_be_followed_is_named(spec: Json, field: str, text: str) -> None:
    assert [each for each in of(**spec) if each.startswith(f"{field}: ") and text in each]


def test_its_gang_is_all_components_and_waits_for_the_least() -> None:
    gang = KIND.gang(training(3), priority=0)
    assert [(task.name, task.replicas, task.min_available) for task in gang.tasks] == [
        ("master", 1, 1),
        ("worker", 3, 3),
    ]
    assert gang.min_available == 4
    elastic = training(5)
    elastic["spec"]["workers"]["least"] = 2
    assert KIND.gang(elastic, priority=0).min_available == 3
    assert KIND.gang(training(None), priority=0).replicas == 3
    with pytest.raises(ValueError, match=r"spec\.master: a pod template is wanted"):
        KIND.gang(training(master=None), priority=0)


def test_roles_of_a_map_or_list_are_components_of_their_own() -> None:
    rule = {"name": "role", "forEach": "spec.roles", "template": "template", "replicas": "replicas"}
    kind = declared.kind_of(workload_kind(components=[rule]))
    by_name = {"spec": {"roles": {"Worker": {"replicas": 2, "template": POD}, "PS": {"template": POD}}}}
    assert [(each.name, each.pods) for each in kind.components(by_name)] == [("role-ps", 1), ("role-worker", 2)]
    named = declared.kind_of(workload_kind(components=[{**rule, "namePath": "name"}]))
    listed = {"spec": {"roles": [{"name": "head", "template": POD}, {"name": "tail", "replicas": 4, "template": POD}]}}
    assert [(each.name, each.pods) for each in named.components(listed)] == [("head", 1), ("tail", 4)]
    assert named.components(listed)[1].template == ("spec", "roles", 1, "template")


def test_a_member_gets_it_resumed_and_with_as_many_pods_as_its_part() -> None:
    part = Part("m", {"master": 1, "worker": 2}, 3, identity={keys.EPOCH: "1"})
    made = KIND.rewrite(training(3), part)
    assert made["spec"]["paused"] is False
    assert made["spec"]["workers"]["count"] == 2
    notes = made["spec"]["workers"]["template"]["metadata"]["annotations"]
    assert (notes[keys.GROUP_MIN_MEMBER], notes[keys.TASK_SPEC], notes[keys.EPOCH]) == ("3", "worker", "1")


def test_a_switch_may_have_other_values_than_true_and_false() -> None:
    switch = {"path": "spec.runState", "suspended": "Paused", "resumed": "Active"}
    kind = declared.kind_of(workload_kind(suspend=switch, managedBy="spec.managedBy"))
    obj = training(runState="Paused", managedBy=keys.CONTROLLER)
    assert kind.takes(obj)
    assert kind.suspension(obj, suspended=True) == ()
    assert [each["value"] for each in kind.suspension(obj, suspended=False)] == ["Active"]
    assert kind.rewrite(obj, Part("m", {"master": 1, "worker": 3}, 4))["spec"]["runState"] == "Active"


def test_its_status_is_read_as_declared() -> None:
    running = {"phase": "Going", "replicas": {"a": {"ready": 1}, "b": {"ready": 2}, "c": {}}}
    assert (KIND.running(running), KIND.started(running), KIND.finished(running)) == (True, 3, None)
    assert KIND.running({"phase": "Going"}) is False
    done = {"conditions": [{"type": "Done", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    assert (KIND.finished(done), KIND.ended_at(done)) == (Outcome.SUCCEEDED, "2026-01-01T00:00:00Z")
    assert KIND.finished({"phase": "Broken"}) is Outcome.FAILED
    assert KIND.healthy({"phase": "Broken"}) is False
    assert KIND.suspended({"paused": True})
    assert KIND.healthy({"placement": {}}) is None


def test_the_host_shows_what_the_member_says() -> None:
    obj = training()
    status = KIND.aggregate(obj, [Report("m", {"phase": "Going", "placement": {}})], waiting=("", ""), now="t")
    assert status["phase"] == "Going"
    assert "placement" not in status
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Dispatched", "True")]
    assert KIND.standing({**obj, "status": status}).state == "Going"


def test_a_process_knows_what_it_was_told_last() -> None:
    obj = training()
    try:
        declare([KIND])
        assert kind_of(obj) is KIND
        assert known() == (*KINDS, KIND)
    finally:
        declare([])
    assert kind_of(obj) is None
    assert known() == KINDS


def test_what_can_not_be_followed_is_left_out() -> None:
    bad = copy.deepcopy(workload_kind())
    bad["spec"]["components"][0]["template"] = "nowhere"
    assert [kind.words.title for kind in declared.followed([bad, workload_kind()])] == ["Training"]


def test_the_example_of_the_page_charges_every_role() -> None:
    """A PaddleJob has Masters and Workers, or Workers alone."""
    page = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text("utf-8")
    block = next(
        each for each in page.split("```yaml\n") if each.startswith("apiVersion: atoll.sh/v1alpha1\nkind: WorkloadKind")
    )
    paddle = declared.kind_of(next(yaml.safe_load_all(block.split("```")[0])))
    roles = {"Master": {"replicas": 1, "template": POD}, "Worker": {"replicas": 3, "template": POD}}
    about = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}
    for present, pods in ((["Master", "Worker"], 4), (["Worker"], 3)):
        job = {**about, "spec": {"paddleReplicaSpecs": {role: roles[role] for role in present}}}
        assert paddle.gang(job, priority=0).total() == {"cpu": 1000 * pods, "pods": pods}
