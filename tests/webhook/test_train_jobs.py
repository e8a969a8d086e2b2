"""What admission reads of the training runtime that a TrainJob names."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from atoll.admission import jsonpatch
from atoll.kinds.train_job import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from atoll.kube.config import Connection
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import NAMESPACES, QUEUES, ApiResource
from atoll.model.objects import Full, decode_full, decode_meta
from atoll.webhook import queues, reviews, server
from tests.webhook.builders import make_queue
from tests.webhook.reviews import nobody, review

Json = dict[str, Any]
Caches = dict[ApiResource, Reflector[Full]]
NODE = {"containers": [{"name": "node", "image": "torch", "resources": {"requests": {"cpu": "1"}}}]}
RUNTIME = {
    "metadata": {"name": "torch"},
    "spec": {
        "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": NODE}}}}]}}
    },
}


def served() -> tuple[reviews.Reviews, Caches]:
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    caches = {
        each: Reflector(api, each, decode_full, optional=True)
        for each in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)
    }
    for cache in caches.values():
        cache.synced.set()
    known = Reflector(api, QUEUES, queues.decode)
    known.take_line(json.dumps({"type": "ADDED", "object": make_queue("default")}).encode())
    return reviews.Reviews(known, Reflector(api, NAMESPACES, decode_meta), referable=caches), caches


def comes(cache: Reflector[Full], runtime: Json) -> None:
    cache.take_line(json.dumps({"type": "ADDED", "object": runtime}).encode())


def train_job(kind: str = "ClusterTrainingRuntime") -> Json:
    return {"metadata": {"name": "t"}, "spec": {"runtimeRef": {"name": "torch", "kind": kind}}}


async def asked(answers: reviews.Reviews, path: str, obj: Json) -> Json:
    _, answer = await server.answer(answers, path, json.dumps(review(obj)).encode())
    assert isinstance(answer.body, bytes)
    found: Json = json.loads(answer.body)["response"]
    return found


async def mutated(answers: reviews.Reviews, obj: Json) -> Json:
    response = await asked(answers, "/mutate/trainjobs", obj)
    return jsonpatch.applied(obj, json.loads(base64.b64decode(response["patch"])))


@pytest.mark.asyncio
async def test_a_runtime_that_comes_a_moment_later_is_written_on_the_train_job() -> None:
    answers, caches = served()
    asking = asyncio.create_task(mutated(answers, train_job()))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    comes(caches[CLUSTER_TRAINING_RUNTIMES], RUNTIME)
    obj = await asking
    assert json.loads(obj["metadata"]["annotations"][keys.RUNTIME]) == RUNTIME["spec"]
    assert (await asked(answers, "/validate/trainjobs", obj))["allowed"]


@pytest.mark.asyncio
async def test_a_runtime_of_a_namespace_is_that_of_the_train_jobs_own() -> None:
    answers, caches = served()
    comes(caches[TRAINING_RUNTIMES], {**RUNTIME, "metadata": {"name": "torch", "namespace": "team-b"}})
    obj = await mutated(answers, train_job("TrainingRuntime"))
    assert keys.RUNTIME not in obj["metadata"].get("annotations", {})
    refused = await asked(answers, "/validate/trainjobs", obj)
    assert "namespace team-a has no TrainingRuntime torch" in refused["status"]["message"]
    comes(caches[TRAINING_RUNTIMES], {**RUNTIME, "metadata": {"name": "torch", "namespace": "team-a"}})
    obj = await mutated(answers, train_job("TrainingRuntime"))
    assert (await asked(answers, "/validate/trainjobs", obj))["allowed"]


@pytest.mark.asyncio
async def test_what_a_user_writes_of_a_runtime_counts_nothing() -> None:
    answers, caches = served()
    comes(caches[CLUSTER_TRAINING_RUNTIMES], RUNTIME)
    forged = train_job()
    forged["metadata"]["annotations"] = {keys.RUNTIME: "{}"}
    assert json.loads((await mutated(answers, forged))["metadata"]["annotations"][keys.RUNTIME]) == RUNTIME["spec"]
    refused = await asked(
        answers, "/validate/trainjobs", await mutated(answers, forged) | {"metadata": forged["metadata"]}
    )
    assert not refused["allowed"]
    assert keys.RUNTIME in refused["status"]["message"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("absent", "said"),
    [(True, "CRD clustertrainingruntimes.trainer.kubeflow.org is not there"), (False, "could be read yet; try again")],
)
async def test_a_host_that_does_not_show_its_runtimes_says_so(absent: bool, said: str) -> None:
    answers, caches = served()
    cache = caches[CLUSTER_TRAINING_RUNTIMES]
    cache.absent = absent
    cache.synced.clear()
    refused = await asked(answers, "/validate/trainjobs", await mutated(answers, train_job()))
    assert said in refused["status"]["message"]
