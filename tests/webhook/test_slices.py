"""Slices, as Kueue's annotations ask for them, of pods of which no index is known: warned of, and not made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from atoll.kinds import app_wrapper, declare, declared
from atoll.kinds.templated import Templated
from atoll.model.gang import Partition
from atoll.webhook import server
from tests.kinds.builders import workload_kind
from tests.webhook.builders import Json
from tests.webhook.reviews import make_answers, review

LEVEL, SIZE = "kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"
LAYERS = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
SLICES = {LEVEL: "rack", SIZE: "2"}
IN_SLICES = {LAYERS: '[{"topology": "block", "size": 4}, {"topology": "rack", "size": 2}]'}


def template(notes: dict[str, str] = SLICES) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"annotations": notes}, "spec": {"containers": [container]}}


def wrapper(*wrapped: Json, notes: dict[str, str] | None = None) -> Json:
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "w", "namespace": "team-a", "annotations": notes or {}},
        "spec": {"components": list(wrapped)},
    }


def job(notes: dict[str, str] = SLICES, **spec: Any) -> Json:
    spec = {"parallelism": 4, "completions": 4, "template": template(notes), **spec}
    return {"template": {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}}


def replicated(kind: str) -> Json:
    spec = {"replicas": 4, "template": template()}
    return {"template": {"apiVersion": "apps/v1", "kind": kind, "spec": spec}}


def job_set() -> Json:
    jobs = [{"name": "a", "replicas": 2, "template": {"spec": job(parallelism=2, completions=2)["template"]["spec"]}}]
    wrapped = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": jobs}}
    path = "template.spec.replicatedJobs[0].template.spec.template"
    return {"podSets": [{"path": path, "replicas": 4}], "template": wrapped}


def unknown() -> Json:
    wrapped = {"apiVersion": "ml.example.com/v1", "kind": "Training", "spec": {"pods": template()}}
    return {"podSets": [{"path": "template.spec.pods", "replicas": 4}], "template": wrapped}


async def warnings(obj: Json, path: str = "appwrappers", **request: Any) -> list[str]:
    _, answer = await server.answer(make_answers(), f"/validate/{path}", json.dumps(review(obj, **request)).encode())
    assert isinstance(answer.body, bytes)
    found: Json = json.loads(answer.body)["response"]
    assert found["allowed"], found
    return list(found.get("warnings") or [])


def slices(kind: Templated, obj: Json) -> list[Partition | None]:
    return [task.partition for task in kind.gang(obj, priority=0).tasks]


@pytest.mark.parametrize(
    ("wrapped", "key", "why"),
    [
        pytest.param(job(), LEVEL, "completionMode: Indexed", id="a Job that is not Indexed"),
        pytest.param(job(IN_SLICES), LAYERS, "completionMode: Indexed", id="slices in slices"),
        pytest.param(replicated("Deployment"), LEVEL, "pods of a Deployment have none", id="a Deployment"),
        pytest.param(unknown(), LEVEL, "not known that pods of a Training (ml.example.com/v1)", id="an unknown kind"),
    ],
)
async def test_slices_of_what_an_app_wrapper_wraps_need_an_index(wrapped: Json, key: str, why: str) -> None:
    obj = wrapper(wrapped)
    [told] = await warnings(obj)
    assert f"metadata.annotations[{key}]" in told
    assert why in told
    assert slices(app_wrapper.KIND, obj) == [None]


@pytest.mark.parametrize(
    "wrapped",
    [
        pytest.param(job(completionMode="Indexed"), id="an Indexed Job"),
        pytest.param(replicated("StatefulSet"), id="a StatefulSet"),
        pytest.param(job_set(), id="a JobSet"),
    ],
)
async def test_where_its_pods_have_one_there_are_slices(wrapped: Json) -> None:
    obj = wrapper(wrapped)
    assert await warnings(obj) == []
    [part] = slices(app_wrapper.KIND, obj)
    assert part is not None
    assert part.size == 2


async def test_what_an_app_wrapper_says_for_all_is_told_of_those_that_have_none() -> None:
    obj = wrapper(
        job({}, completionMode="Indexed"), {"template": {**replicated("Deployment")["template"]}}, notes=SLICES
    )
    obj["spec"]["components"][1]["template"]["spec"]["template"] = template({})
    [told] = await warnings(obj)
    assert told.startswith(f"metadata.annotations[{LEVEL}]")
    first, second = slices(app_wrapper.KIND, obj)
    assert first is not None
    assert second is None


async def test_what_pod_sets_say_of_nearness_is_told_to_have_no_effect() -> None:
    obj = wrapper(unknown())
    obj["spec"]["components"][0]["template"]["spec"]["pods"] = template({})
    obj["spec"]["components"][0]["podSets"][0]["annotations"] = SLICES
    told = await warnings(obj)
    assert len(told) == 2
    assert "spec.components[0].podSets[0].annotations[" in told[0]


# -- kinds that users declare ------------------------------------------------------------------------------------------


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Iterator[Templated]:
    """One whose workers have an index, or not."""
    wanted = workload_kind()
    wanted["spec"]["components"][1] |= request.param
    found = declared.kind_of(wanted)
    declare([found])
    yield found
    declare([])


def training() -> Json:
    return {
        "apiVersion": "ml.example.com/v1",
        "kind": "Training",
        "metadata": {"name": "t", "namespace": "team-a"},
        "spec": {"paused": True, "master": template({}), "workers": {"template": template(), "count": 4}},
    }


OF = {"resource": {"group": "ml.example.com", "version": "v1", "resource": "trainings"}}


@pytest.mark.parametrize("kind", [{}], indirect=True)
async def test_slices_of_a_declared_kind_need_an_index(kind: Templated) -> None:
    [told] = await warnings(training(), "declared", **OF)
    assert f"spec.workers.template.metadata.annotations[{LEVEL}]" in told
    assert "`indexed`" in told
    assert slices(kind, training()) == [None, None]


@pytest.mark.parametrize("kind", [{"indexed": True}], indirect=True)
async def test_one_that_says_it_has_an_index_has_slices(kind: Templated) -> None:
    assert await warnings(training(), "declared", **OF) == []
    _, part = slices(kind, training())
    assert part is not None
    assert part.size == 2
