"""Fields that Kubernetes does not have: which are refused, which are told of, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from atoll.admission import pod_fields
from atoll.kinds.batch_job import admission as batch_jobs
from atoll.kinds.volcano_job import admission as jobs
from tests.integration.federation import Site
from tests.webhook import pod_fields as generator
from tests.webhook.builders import Json, defaulted, make_container, make_job, make_task, with_container

CONTAINER = "spec.tasks[0].template.spec.containers[0]"


def refused(job: Json) -> dict[str, str]:
    return {problem.field: problem.message for problem in jobs.validate_job(defaulted(job))}


def told(job: Json) -> dict[str, str]:
    return {problem.field: problem.message for problem in jobs.warnings(defaulted(job))}


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        pytest.param({"resources": {"nvidia.com/gpu": 1}}, "resources.nvidia.com/gpu", "limits: {nvidia.com/gpu: 1}", id="a device beside requests and limits"),
        pytest.param({"resources": {"cpu": "2"}}, "resources.cpu", "limits: {cpu: 2}", id="cpu beside requests and limits"),
        pytest.param({"resources": {"request": {"cpu": 1}}}, "resources.request", "write requests", id="request"),
        pytest.param({"resources": {"limit": {"cpu": 1}}}, "resources.limit", "write limits", id="limit"),
        pytest.param({"resources": {"gpu": 1}}, "resources.gpu", "limits: {gpu: 1}", id="anything beside requests and limits"),
        pytest.param({"resorces": {"requests": {"cpu": 1}}}, "resorces", "write resources", id="resources misspelt"),
        pytest.param({"Resources": {"requests": {"cpu": 1}}}, "Resources", "write resources", id="with a capital"),
        pytest.param({"limits": {"nvidia.com/gpu": 1}}, "limits", "write resources: {limits: {}}", id="limits outside of resources"),
        pytest.param({"nvidia.com/gpu": 1}, "nvidia.com/gpu", "limits: {nvidia.com/gpu: 1}", id="a device in the container"),
    ],
)  # fmt: skip
def test_what_was_meant_to_be_a_resource_is_refused(fields: Json, field: str, words: str) -> None:
    found = refused(with_container(**fields))
    assert list(found) == [f"{CONTAINER}.{field}"]
    assert words in found[f"{CONTAINER}.{field}"]


@pytest.mark.parametrize(
    ("pod", "field", "words"),
    [
        pytest.param({"nodeselector": {"a": "b"}}, "nodeselector", "did you mean nodeSelector?", id="a lower-case letter"),
        pytest.param({"tolerationz": []}, "tolerationz", "did you mean tolerations?", id="a letter"),
        pytest.param({"color": "red"}, "color", "has no effect", id="nothing like it"),
        pytest.param({"affinity": {"nodeAffinty": {}}}, "affinity.nodeAffinty", "did you mean nodeAffinity?", id="deeper"),
        pytest.param({"volumes": [{"name": "v", "emptydir": {}}]}, "volumes[0].emptydir", "did you mean emptyDir?", id="in a list"),
    ],
)  # fmt: skip
def test_other_unknown_fields_are_told_of(pod: Json, field: str, words: str) -> None:
    task = make_task()
    task["template"]["spec"] |= pod
    job = make_job(task)
    assert refused(job) == {}
    found = told(job)
    assert list(found) == [f"spec.tasks[0].template.spec.{field}"]
    assert words in found[f"spec.tasks[0].template.spec.{field}"]


def test_a_group_of_pods_of_kubernetes_own_is_told_to_have_no_effect() -> None:
    task = make_task()
    task["template"]["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    [(field, words)] = told(make_job(task)).items()
    assert field == "spec.tasks[0].template.spec.schedulingGroup"
    assert "has no effect" in words


def test_a_wrapped_pod_is_an_object_and_a_template_is_none() -> None:
    wrapped: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}, "status": {}}
    assert pod_fields.unknown_fields(wrapped, "p") == []
    [found] = pod_fields.unknown_fields({"apiVersion": "v1", "spec": {}}, "p")
    assert found.problem.field == "p.apiVersion"


def test_every_known_field_passes() -> None:
    container = make_container(
        resources={"requests": {"cpu": 1, "vendor.example/x": 1}, "limits": {"vendor.example/x": 1}},
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        securityContext={"capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}},
        volumeMounts=[{"name": "v", "mountPath": "/v"}],
        livenessProbe={"httpGet": {"path": "/", "port": "http"}},
    )
    task = make_task()
    task["template"] = {
        "metadata": {"labels": {"any": "thing"}, "annotations": {"more": "things"}, "creationTimestamp": None},
        "spec": {
            "containers": [container],
            "nodeSelector": {"any": "label"},
            "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c", "items": []}}]}}],
        },
    }
    assert (refused(make_job(task)), told(make_job(task))) == ({}, {})


def test_a_container_without_a_name_is_called_that() -> None:
    container = make_container()
    del container["name"]
    task = make_task()
    task["template"]["spec"]["containers"] = [container]
    assert refused(make_job(task)) == {f"{CONTAINER}.name": "is missing; give the container a name, such as main"}


def test_many_unknown_fields_take_no_time() -> None:
    task = make_task()
    task["template"]["spec"] |= {f"field{number}": number for number in range(50_000)}
    assert len(pod_fields.unknown_fields(task["template"], "t")) == 20


@pytest.mark.integration
async def test_the_table_is_that_of_the_version_it_names(site: Site) -> None:
    version: dict[str, Any] = orjson.loads(site.kubectl("get", "--raw", "/version"))
    if f"{version['major']}.{version['minor']}" != pod_fields.VERSION:
        pytest.skip(f"the federation runs {version['gitVersion']}")
    table = generator.table(orjson.loads(site.kubectl("get", "--raw", "/openapi/v3/api/v1")))
    text = (Path(pod_fields.__file__).parent / "pod_fields.txt").read_text("utf-8")
    assert text.split("\n", 2)[2] == table


def test_the_elastic_job_has_both_of_its_mistakes_named() -> None:
    job = yaml.safe_load((Path(__file__).parents[1] / "documents" / "001-elastic.yaml").read_text())
    found = refused(job)
    template = "spec.tasks[0].template.spec.containers[0]"
    assert found == {
        f"{template}.name": "is missing; give the container a name, such as main",
        f"{template}.resources.nvidia.com/gpu": (
            "stands beside requests and limits, where nothing reads it; write limits: {nvidia.com/gpu: 1}"
        ),
    }


def test_a_runtime_class_is_told_to_be_charged_late_unless_its_overhead_is_written_down() -> None:
    job = make_job(make_task())
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    pod["runtimeClassName"] = "kata"
    [(field, words)] = told(job).items()
    assert field == "spec.tasks[0].template.spec.runtimeClassName"
    assert "known in members only" in words
    pod["overhead"] = {"cpu": "250m"}
    assert told(job) == {}


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_plain_requests_of_an_offline_pod_are_told_of(where: str) -> None:
    job = with_container(resources={"requests": {"memory": "1Gi"}, "limits": {"cpu": 1}})
    template = job["spec"]["tasks"][0]["template"]
    assert told(job) == {}
    key = "volcano.sh/qos-level" if where == "annotations" else "koordinator.sh/qosClass"
    template["metadata"] = {where: {key: "BE"}}
    [(field, words)] = told(job).items()
    assert field == f"{CONTAINER}.resources"
    assert "kubernetes.io/batch-" in words
    batch = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
    job = with_container(resources={"requests": batch})
    job["spec"]["tasks"][0]["template"]["metadata"] = template["metadata"]
    assert refused(job) == told(job) == {}


def test_a_duration_that_can_not_be_read_is_told_of() -> None:
    annotations = {"atoll.sh/ready-timeout": "10 minutes", "sla-waiting-time": "1h", "atoll.sh/running-estimate": "90s"}
    job = make_job(metadata={"annotations": annotations})
    [(field, words)] = told(job).items()
    assert field == "metadata.annotations[atoll.sh/ready-timeout]"
    assert "has no effect: '10 minutes' is not a duration" in words
    spec = {"managedBy": "atoll.sh/control"}
    batch = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": annotations}, "spec": spec}
    assert [problem.field for problem in batch_jobs.warnings(batch)] == [field]
