"""How a SparkApplication is counted: as its operator and Spark make its pods of the spec, sparkConf and templates."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.gang import Task
from tests.kinds.samples import BY_TITLE, pod, taken, wrong

Json = dict[str, Any]
KIND = BY_TITLE["SparkApplication"]
MIB = 2**20
GPU = "nvidia.com/gpu"


def tasks(conf: Json | None = None, **spec: Any) -> dict[str, Task]:
    made = taken("SparkApplication")
    bare: Json = {"type": "Scala", "driver": {"cores": 1, "memory": "2g"}, "executor": {"cores": 4, "memory": "8g"}}
    made["spec"] = {"suspend": True, **bare, **spec, **({"sparkConf": conf} if conf else {})}
    return {task.name: task for task in KIND.gang(made, priority=0).tasks}


def dynamic(**more: str) -> dict[str, str]:
    said = {"enabled": "true", "minExecutors": "2", **more}
    return {f"spark.dynamicAllocation.{name}": value for name, value in said.items()}


@pytest.mark.parametrize(
    ("conf", "spec", "executors"),
    [
        pytest.param({}, {}, 1, id="one by default"),
        pytest.param({"spark.executor.instances": "20"}, {}, 20, id="as sparkConf says"),
        pytest.param({"spark.executor.instances": "2"}, {"executor": {"instances": 5}}, 5, id="the larger of both"),
        pytest.param(dynamic(maxExecutors="50"), {}, 50, id="the most of dynamic ones"),
        pytest.param(dynamic(maxExecutors="50", initialExecutors="60"), {}, 60, id="the first of dynamic ones"),
        pytest.param({}, {"dynamicAllocation": {"enabled": True, "maxExecutors": 7}}, 7, id="the most in the spec"),
        pytest.param(
            dynamic(), {"dynamicAllocation": {"maxExecutors": 9}}, 9, id="enabled in one, bounded in the other"
        ),
    ],
)
def test_executors(conf: Json, spec: Json, executors: int) -> None:
    assert tasks(conf, **spec)["executor"].replicas == executors


OVERHEAD = 8 * 1024 * MIB // 10 + 1
"""A tenth of 8 GiB, rounded up."""


@pytest.mark.parametrize(
    ("conf", "executor", "expected"),
    [
        pytest.param({}, {}, {"cpu": 4000, "memory": 8192 * MIB + OVERHEAD}, id="as the spec says"),
        pytest.param({"spark.executor.memory": "16g"}, {}, {"memory": 16384 * MIB * 11 // 10 + 1}, id="memory"),
        pytest.param({"spark.executor.memoryOverhead": "3g"}, {}, {"memory": 11264 * MIB}, id="overhead"),
        pytest.param({"spark.executor.memoryOverhead": "512"}, {}, {"memory": 8704 * MIB}, id="overhead in MiB"),
        pytest.param({"spark.executor.memoryOverheadFactor": "0.5"}, {}, {"memory": 12288 * MIB}, id="its factor"),
        pytest.param({"spark.kubernetes.memoryOverheadFactor": "0.5"}, {}, {"memory": 12288 * MIB}, id="that of all"),
        pytest.param(
            {"spark.executor.pyspark.memory": "1g"}, {}, {"memory": 9216 * MIB + OVERHEAD}, id="memory of Python"
        ),
        pytest.param(
            {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": str(1024 * MIB)},
            {},
            {"memory": 9216 * MIB + OVERHEAD},
            id="memory outside the heap, in bytes",
        ),
        pytest.param({"spark.executor.cores": "6"}, {"cores": None}, {"cpu": 6000}, id="cores"),
        pytest.param({"spark.kubernetes.executor.request.cores": "500m"}, {}, {"cpu": 500}, id="requested cores"),
        pytest.param(
            {"spark.executor.resource.gpu.amount": "2", "spark.executor.resource.gpu.vendor": "nvidia.com"},
            {},
            {GPU: 2},
            id="devices",
        ),
        pytest.param({}, {"gpu": {"name": GPU, "quantity": 1}}, {GPU: 1}, id="devices of the spec"),
        pytest.param({}, {"sidecars": pod("16")["spec"]["containers"]}, {"cpu": 20000}, id="sidecars"),
        pytest.param({}, {"initContainers": pod("16")["spec"]["containers"]}, {"cpu": 16000}, id="containers before"),
        pytest.param(
            {},
            {"template": {"spec": {"containers": [{"name": "x", "resources": {"limits": {GPU: 4, "cpu": "9"}}}]}}},
            {GPU: 4, "cpu": 4000},
            id="its template, whose first container Spark changes",
        ),
        pytest.param(
            {"spark.kubernetes.executor.podTemplateContainerName": "c"},
            {
                "template": {
                    "spec": {"containers": [{"name": "x", **{"resources": {"requests": {"cpu": "3"}}}}, {"name": "c"}]}
                }
            },
            {"cpu": 7000},
            id="its template, beside the container that Spark changes",
        ),
    ],
)
def test_what_an_executor_requests(conf: Json, executor: Json, expected: dict[str, int]) -> None:
    said = {"cores": 4, "memory": "8g", **executor}
    found = tasks(conf, executor={name: value for name, value in said.items() if value is not None})["executor"]
    assert {name: found.requests.get(name) for name in expected} == expected


def test_where_its_pods_may_go() -> None:
    conf = {"spark.kubernetes.node.selector.a": "1", "spark.kubernetes.driver.node.selector.b": "2"}
    template = {"spec": {"nodeSelector": {"pool": "x"}, "containers": [{"name": "c"}]}}
    found = tasks(conf, driver={"template": template}, nodeSelector={"c": "3"})
    assert found["driver"].node_selector == {"pool": "x", "a": "1", "b": "2", "c": "3"}
    assert found["executor"].node_selector == {"a": "1", "c": "3"}


@pytest.mark.parametrize(
    ("conf", "field"),
    [
        pytest.param(dynamic(), "spec.dynamicAllocation.maxExecutors", id="executors without end"),
        pytest.param(
            {"spark.kubernetes.executor.podTemplateFile": "s3://x"},
            "spec.sparkConf[spark.kubernetes.executor.podTemplateFile]",
            id="a template that nobody can read here",
        ),
        pytest.param(
            {"spark.kubernetes.executor.scheduler.name": "mine"},
            "spec.sparkConf[spark.kubernetes.executor.scheduler.name]",
            id="another scheduler",
        ),
    ],
)
def test_what_is_refused_of_spark_conf(conf: Json, field: str) -> None:
    assert wrong("SparkApplication", sparkConf=conf) == [field]
