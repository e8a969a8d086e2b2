"""Whatever is sent gets an answer, and the answer is an AdmissionReview or a 400 that says why."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from atoll.kube.config import Connection
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import NAMESPACES, QUEUES
from atoll.model.objects import decode_meta
from atoll.webhook import queues, reviews, server
from tests.webhook.builders import Json, defaulted, make_job, make_queue, make_task
from tests.webhook.test_jobs import json_values

PATHS = [
    *("/mutate/jobs", "/mutate/batch-jobs", "/mutate/queues", "/mutate/bindings"),
    *("/validate/jobs", "/validate/batch-jobs", "/validate/queues"),
]


async def nobody() -> None:
    return None


def make_answers() -> reviews.Reviews:
    """Answers from empty caches that are connected to nothing."""
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    return reviews.Reviews(Reflector(api, QUEUES, queues.decode), Reflector(api, NAMESPACES, decode_meta))


def review(obj: Any = None, old: Any = None, operation: str = "CREATE", **request: Any) -> Json:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u1",
            "operation": operation,
            "namespace": "team-a",
            "object": obj,
            "oldObject": old,
            **request,
        },
    }


def ask(path: str, body: bytes) -> tuple[str, int, bytes]:
    async def once() -> tuple[str, int, bytes]:
        outcome, response = await server.answer(make_answers(), path, body)
        assert isinstance(response.body, bytes)
        return outcome, response.status, response.body

    # A loop of its own: asyncio.run would unset the one that belongs to the test runner.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(once())
    finally:
        loop.close()


def response_to(path: str, body: Json) -> Json:
    _, status, answer = ask(path, json.dumps(body).encode())
    assert status == 200
    parsed = json.loads(answer)
    assert (parsed["apiVersion"], parsed["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert parsed["response"]["uid"] == "u1"
    result: Json = parsed["response"]
    return result


def test_a_job_is_patched() -> None:
    response = response_to("/mutate/jobs", review(make_job()))
    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(response["patch"]))
    assert {"op": "add", "path": "/spec/queue", "value": "default"} in patch


def test_a_complete_job_gets_no_patch() -> None:
    response = response_to("/mutate/jobs", review(defaulted(make_job())))
    assert response == {"uid": "u1", "allowed": True}


def test_a_refusal_names_the_object_the_field_and_what_to_do() -> None:
    job = defaulted(make_job(make_task("worker", 2), minAvailable=5))
    response = response_to("/validate/jobs", review(job, name="train"))
    assert not response["allowed"]
    assert response["status"]["message"] == (
        "Job team-a/train: spec.minAvailable: 5 is more than the 2 replicas of all tasks; lower it, or add replicas"
    )


def test_several_problems_come_in_one_message() -> None:
    job = defaulted(make_job(make_task("A"), minAvailable=5))
    message = response_to("/validate/jobs", review(job, name="train"))["status"]["message"]
    assert message.startswith("Job team-a/train has 2 problems:\n- spec.")


def test_the_default_queue_is_not_deleted() -> None:
    body = review(None, make_queue("default"), "DELETE", namespace="")
    assert not response_to("/validate/queues", body)["allowed"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="half of a document"),
        pytest.param(b"[" * 100_000, id="a very deep document"),
        pytest.param(b'"hello"', id="a string"),
        pytest.param(b'{"request": {}}', id="a request without UID"),
        pytest.param(
            json.dumps({**review(), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
            id="an old version",
        ),
        pytest.param(json.dumps({**review(), "kind": "Pod"}).encode(), id="another kind"),
        pytest.param(json.dumps(review(uid="")).encode(), id="an empty UID"),
        pytest.param(json.dumps(review([1])).encode(), id="an object that is a list"),
    ],
)
def test_what_is_no_review_is_a_400(path: str, body: bytes) -> None:
    outcome, status, text = ask(path, body)
    assert (outcome, status) == ("malformed", 400)
    assert text.strip()


@given(
    st.sampled_from(PATHS),
    st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT", ""]),
    st.none() | st.dictionaries(st.sampled_from(["metadata", "spec"]), json_values),
    st.none() | st.dictionaries(st.sampled_from(["metadata", "spec"]), json_values),
)
@settings(max_examples=200, deadline=None)
def test_a_hostile_review_gets_an_answer(path: str, operation: str, obj: Any, old: Any) -> None:
    outcome, status, _ = ask(path, json.dumps(review(obj, old, operation)).encode())
    assert status in (200, 400)
    assert outcome != "failed"


@given(
    st.sampled_from(PATHS),
    st.binary(max_size=60) | json_values.map(lambda v: json.dumps(v).encode()),
)
@settings(max_examples=200, deadline=None)
def test_any_body_gets_an_answer(path: str, body: bytes) -> None:
    assert ask(path, body)[1] == 400


@pytest.mark.asyncio
async def test_reviews_are_served_and_measured() -> None:
    metrics = CollectorRegistry()
    app = server.application(make_answers(), metrics)
    async with TestClient(TestServer(app)) as client:
        assert (await client.get("/readyz")).status == 200
        answer = await client.post("/mutate/jobs", json=review(make_job()))
        assert (await answer.json())["response"]["allowed"]
        assert (await client.post("/mutate/nothing", json={})).status == 404
    labels = {"path": "/mutate/jobs", "outcome": "patched"}
    assert metrics.get_sample_value("atoll_webhook_review_seconds_count", labels) == 1


@pytest.mark.asyncio
async def test_a_child_that_comes_before_the_news_of_its_parent_is_admitted() -> None:
    """1. The parent is created; 2. the child is reviewed; 3. the watch tells of the parent."""
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    cache = Reflector(api, QUEUES, queues.decode)
    answers = reviews.Reviews(cache, Reflector(api, NAMESPACES, decode_meta))
    body = json.dumps(review(make_queue("team", parent="org"), namespace="")).encode()
    asked = asyncio.create_task(server.answer(answers, "/validate/queues", body))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asked.done()
    event = {"type": "ADDED", "object": make_queue("org")}
    cache._handle(json.dumps(event).encode())
    assert (await asked)[0] == "allowed"
