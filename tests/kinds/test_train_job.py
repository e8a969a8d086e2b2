"""TrainJobs: what of the training runtime and of the TrainJob is charged, sent and told."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from atoll.admission import jsonpatch
from atoll.admission.rules import Change
from atoll.kinds import brought, train_job
from atoll.kinds.templated import value_at
from atoll.model import keys
from atoll.model.gang import Gang
from tests.kinds.samples import RUNTIME, new, part_of, taken, wrong

Json = dict[str, Any]
KIND = train_job.KIND


def written(runtime: Json, **spec: Any) -> Json:
    """A TrainJob with this runtime, as the webhook leaves it."""
    obj = taken("TrainJob")
    obj["spec"] |= spec
    obj["metadata"]["annotations"] = {keys.RUNTIME: orjson.dumps(runtime).decode()}
    return obj


def runtime_sent(obj: Json) -> Json:
    [made] = brought(KIND, KIND.rewrite(obj, part_of("TrainJob")))
    return made


def pod_sent(obj: Json, index: int = 1) -> Json:
    path = ("spec", "template", "spec", "replicatedJobs", index, "template", "spec", "template")
    found: Json = value_at(runtime_sent(obj), path)
    return found


def gang(obj: Json) -> Gang:
    return KIND.gang(obj, priority=0)


def test_its_nodes_and_their_resources_are_those_of_the_train_job_before_those_of_its_runtime() -> None:
    mine = written(RUNTIME)
    assert {task.name: (task.replicas, task.requests["cpu"]) for task in gang(mine).tasks} == {
        "dataset-initializer": (1, 1000),
        "node": (3, 2000),
    }
    theirs = written({**RUNTIME, "mlPolicy": {"numNodes": 5}}, trainer={})
    assert [task.replicas for task in gang(theirs).tasks] == [1, 5]


def test_a_member_gets_the_runtime_as_it_was_changed_and_a_train_job_that_names_it() -> None:
    made = KIND.rewrite(written(RUNTIME), part_of("TrainJob"))
    assert made["spec"]["runtimeRef"] == {"apiGroup": train_job.GROUP, "kind": "TrainingRuntime", "name": "w"}
    assert "runtime" not in made["spec"]
    [runtime] = brought(KIND, made)
    assert (runtime["kind"], runtime["metadata"]["name"], runtime["metadata"]["namespace"]) == (
        "TrainingRuntime",
        "w",
        "team",
    )
    assert runtime["metadata"]["labels"][keys.MADE] == "true"
    assert "podGroupPolicy" not in runtime["spec"]
    node = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]
    assert (node["parallelism"], node["completions"], node["template"]["spec"]["schedulerName"]) == (3, 3, "atoll")
    # What came back from the member's store is what was sent.
    assert KIND.entire(made) == {**made, "spec": {**made["spec"], "runtime": runtime["spec"]}}


def test_each_dispatch_sends_another_version_of_the_runtime() -> None:
    made = KIND.rewrite(written(RUNTIME), part_of("TrainJob"))
    made["metadata"]["annotations"][keys.EPOCH] = "7"
    [runtime] = brought(KIND, made)
    assert runtime["metadata"]["annotations"][keys.SOURCE_VERSION].startswith("7-")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"podSpecOverrides": [{"targetJobs": [{"name": "node"}], "nodeSelector": {"c": "d"}}]}, id="2.0"),
        pytest.param(
            {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"c": "d"}}}]},
            id="2.1",
        ),
        pytest.param(
            {
                "runtimePatches": [
                    {
                        "manager": "me",
                        "trainingRuntimeSpec": {
                            "template": {
                                "spec": {
                                    "replicatedJobs": [
                                        {
                                            "name": "node",
                                            "template": {"spec": {"template": {"spec": {"nodeSelector": {"c": "d"}}}}},
                                        }
                                    ]
                                }
                            }
                        },
                    }
                ]
            },
            id="2.2",
        ),
    ],
)
def test_overrides_of_pods_are_carried_out_in_the_runtime_and_sent_no_more(changes: Json) -> None:
    obj = written(RUNTIME, **changes)
    assert [task.node_selector for task in gang(obj).tasks] == [{}, {"a": "b", "c": "d"}]
    assert pod_sent(obj)["spec"]["nodeSelector"] == {"a": "b", "c": "d"}
    assert not changes.keys() & KIND.rewrite(obj, part_of("TrainJob"))["spec"].keys()


def test_nobody_says_of_which_gang_the_pods_are_but_atoll() -> None:
    over = {
        "targetJobs": [{"name": "node"}],
        "metadata": {"annotations": {keys.BINDING_UID: "of another", "mine": "1"}},
    }
    notes = pod_sent(written(RUNTIME, podTemplateOverrides=[over]))["metadata"]["annotations"]
    assert (notes[keys.BINDING_UID], notes["mine"]) == ("b", "1")


def test_what_its_containers_refer_to_is_found() -> None:
    obj = written(
        RUNTIME,
        initializer={"dataset": {"storageUri": "hf://d", "secretRef": {"name": "token"}}},
        trainer={"env": [{"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "keys", "key": "a"}}}]},
    )
    assert pod_sent(obj, 0)["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "token"}}]
    assert pod_sent(obj)["spec"]["containers"][0]["env"][0]["name"] == "KEY"


@pytest.mark.parametrize(("launches", "nodes"), [(True, 3), (False, 4)])
def test_a_launcher_of_mpi_is_one_of_the_nodes_where_the_runtime_says_so(launches: bool, nodes: int) -> None:
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    containers = {"template": {"spec": {"containers": [{"name": "node"}]}}}
    jobs = [
        {"name": "launcher", "template": {"metadata": step, "spec": containers}},
        {"name": "node", "template": {"spec": containers}},
    ]
    runtime = {"mlPolicy": {"mpi": {"runLauncherAsNode": launches}}, "template": {"spec": {"replicatedJobs": jobs}}}
    trainer = {"numNodes": 4, "resourcesPerNode": {"requests": {"cpu": "1"}}}
    obj = written(copy.deepcopy(runtime), trainer=trainer)
    assert {task.name: (task.replicas, task.requests["cpu"]) for task in gang(obj).tasks} == {
        "launcher": (1, 1000),
        "node": (nodes, 1000),
    }
    sent = runtime_sent(obj)["spec"]
    assert sent["mlPolicy"]["numNodes"] == 1
    again = gang(KIND.rewrite(obj, part_of("TrainJob")))
    assert [task.replicas for task in again.tasks] == [1, nodes]


def test_its_pods_wait_for_those_that_are_made_first() -> None:
    notes = pod_sent(written(RUNTIME))["metadata"]["annotations"]
    assert notes[keys.GROUP_MIN_MEMBER] == "1"


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"unread": "there is no ClusterTrainingRuntime torch"}, "spec.runtimeRef", "no ClusterTrainingRuntime torch"),
        ({"referred": {"spec": {}}}, "metadata.annotations", "is Atoll's to write"),
    ],
)
def test_without_its_runtime_it_is_refused_with_the_reason(change: Json, field: str, said: str) -> None:
    obj = taken("TrainJob")
    [problem] = KIND.admission().problems(Change(new=obj, namespace={}, **change))
    assert problem.field == field
    assert said in str(problem)


def test_a_runtime_of_another_api_is_refused() -> None:
    obj = new("TrainJob")
    obj["spec"]["runtimeRef"]["kind"] = "MyRuntime"
    [problem] = KIND.admission().problems(Change(new=obj, namespace={}))
    assert "must name a ClusterTrainingRuntime" in str(problem)


def test_what_is_written_of_its_runtime_stays() -> None:
    old = taken("TrainJob")
    for changed in ("", "{}"):
        after = copy.deepcopy(old)
        after["metadata"]["annotations"] = {keys.RUNTIME: changed} if changed else {}
        patch = KIND.admission().defaults(Change(new=after, old=old, namespace={}))
        assert jsonpatch.applied(after, patch)["metadata"]["annotations"] == old["metadata"]["annotations"]


def test_an_override_of_a_job_that_its_runtime_does_not_have_is_refused() -> None:
    over = [{"targetJobs": [{"name": "launcher"}], "spec": {}}]
    assert wrong("TrainJob", podTemplateOverrides=over) == ["spec.podTemplateOverrides[0].targetJobs"]


def test_an_elastic_runtime_is_refused() -> None:
    runtime = {**RUNTIME, "mlPolicy": {"torch": {"elasticPolicy": {"maxNodes": 9}}}}
    obj = written(runtime)
    assert KIND.referred is not None
    obj["metadata"]["annotations"][keys.RUNTIME] = KIND.referred.written({"spec": runtime})
    change = Change(new=obj, namespace={}, referred={"spec": runtime})
    assert "elasticPolicy" in str(KIND.admission().problems(change)[0])
