"""Whatever is sent gets an answer, and the answer is an AdmissionReview or a 400 that says why."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from collections.abc import Callable

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from atoll.kube.config import Connection
from atoll.kube.reflector import Reflector
from atoll.kube.serving import Guard
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import NAMESPACES, PRIORITY_CLASSES, QUEUES
from atoll.model.objects import decode_meta
from atoll.webhook import protocol, queues, reviews, server
from atoll.webhook.settings import ReviewSettings
from tests.webhook.builders import Json, changed, defaulted, make_job, make_queue, make_task
from tests.webhook.reviews import PATHS, make_answers, nobody, review


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
        pytest.param(json.dumps(review(uid="")).encode(), id="an empty UID"),
        pytest.param(json.dumps(review(uid=7)).encode(), id="a UID that is a number"),
    ],
)
def test_what_is_no_review_is_a_400(path: str, body: bytes) -> None:
    outcome, status, text = ask(path, body)
    assert (outcome, status) == ("malformed", 400)
    assert text.strip()


def deep(levels: int) -> bytes:
    nested = b'{"a":' * levels + b"1" + b"}" * levels
    return json.dumps(review({"spec": "NESTED"})).encode().replace(b'"NESTED"', nested)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(json.dumps({**review(), "apiVersion": "admission.k8s.io/v1beta1"}).encode(), "send admission.k8s"
                     ".io/v1 ", id="an old version"),
        pytest.param(json.dumps({**review(), "apiVersion": 7}).encode(), "no AdmissionReview", id="a wrong type"),
        pytest.param(json.dumps({**review(), "kind": "Pod"}).encode(), "got Pod of version", id="another kind"),
        pytest.param(json.dumps(review([1])).encode(), "Expected `object", id="an object that is a list"),
        pytest.param(json.dumps(review({"spec": float("nan")})).encode(), "malformed", id="NaN"),
        pytest.param(
            json.dumps({**review(), "apiVersion": ["N"]}).replace('"N"', "9" * 5000).encode(),
            "no AdmissionReview",
            id="a number of 5000 digits before the request",
        ),
        pytest.param(deep(5000), "nested too deeply", id="an object of 5000 levels"),
    ],
)  # fmt: skip
def test_a_review_that_can_not_be_judged_is_refused_under_its_uid(path: str, body: bytes, said: str) -> None:
    outcome, status, text = ask(path, body)
    assert (outcome, status) == ("malformed", 200)
    answer = json.loads(text)
    response = answer["response"]
    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("u1", False, 400)
    assert said in response["status"]["message"]
    beta = b"v1beta1" in body
    assert answer["apiVersion"] == ("admission.k8s.io/v1beta1" if beta else "admission.k8s.io/v1")


def test_of_a_key_that_is_there_twice_the_last_one_counts_as_in_the_api_server() -> None:
    text = json.dumps(review({"spec": {}})).replace('"spec": {}', '"spec": {"queue": "a"}, "spec": {"queue": "b"}')
    outcome, _, body = ask("/mutate/jobs", text.encode())
    assert outcome == "patched"
    patch = json.loads(base64.b64decode(json.loads(body)["response"]["patch"]))
    assert "/spec/queue" not in [each["path"] for each in patch]


def test_a_message_quotes_no_more_than_a_person_reads() -> None:
    message = response_to("/validate/jobs", review(make_job(make_task("x" * 100_000)), name="y" * 100_000))
    assert len(message["status"]["message"]) < 4000


MANY = 100_000
WIDE = {"containers": [{"name": "c", "image": "i", "env": [{"name": f"n{n}"} for n in range(MANY)]}]}
HUGE = {
    "tasks": ("/validate/jobs", make_job(*[{"name": f"t{n}"} for n in range(MANY)]), "at most 1024"),
    "policies": ("/validate/jobs", make_job(policies=[{}] * MANY), "at most 10000"),
    "resources": (
        "/validate/jobs",
        make_job(make_task(template={"spec": {"containers": [{"resources": {"requests": dict.fromkeys(map(str, range(MANY)), "1")}}]}})),
        "at most 10000",
    ),
    "quantities": ("/validate/queues", make_queue(deserved=dict.fromkeys(map(str, range(MANY)), "1")), "at most 10000"),
    "digits": ("/validate/queues", make_queue(deserved={"cpu": "9" * 3_000_000}), "is not a quantity"),
    "names": ("/validate/jobs", make_job(make_task("x" * 3_000_000)), "can't name a task"),
    "environment": ("/validate/jobs", defaulted(make_job(make_task(template={"spec": WIDE}))), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", HUGE)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_huge_objects_are_answered_briefly_and_soon(case: str, operation: str) -> None:
    path, obj, said = HUGE[case]
    old = {**obj, "spec": {**obj["spec"], "tasks": [{}]}} if operation == "UPDATE" else None
    body = json.dumps(review(obj, old, operation)).encode()

    def seconds(run: Callable[[], object]) -> float:
        """CPU time of the quickest of three: a collection of garbage may fall into one."""
        times = []
        for _ in range(3):
            began = time.process_time()
            run()
            times.append(time.process_time() - began)
        return min(times)

    outcome, _, text = ask(path, body)
    message = json.loads(text)["response"].get("status", {}).get("message", "")
    assert outcome in ("allowed", "refused")
    assert said in message
    assert len(message) < 10_000
    # A multiple of the time that reading it takes, so that it holds on any machine.
    assert seconds(lambda: ask(path, body)) < 0.2 + 10 * seconds(lambda: json.loads(body))


@pytest.mark.asyncio
async def test_a_body_without_end_is_a_413() -> None:
    async with TestClient(TestServer(server.application(make_answers(), CollectorRegistry(), Guard()))) as client:
        answer = await client.post("/mutate/jobs", data=io.BytesIO(b"x" * (8 * 2**20 + 1)))
        assert answer.status == 413
        assert "Maximum request body size" in await answer.text()


@pytest.mark.asyncio
async def test_reviews_are_served_and_measured() -> None:
    metrics = CollectorRegistry()
    app = server.application(make_answers(), metrics, Guard())
    async with TestClient(TestServer(app)) as client:
        assert (await client.get("/readyz")).status == 200
        answer = await client.post("/mutate/jobs", json=review(make_job()))
        assert (await answer.json())["response"]["allowed"]
        assert (await client.post("/mutate/nothing", json={})).status == 404
    labels = {"path": "/mutate/jobs", "outcome": "patched"}
    assert metrics.get_sample_value("atoll_webhook_review_seconds_count", labels) == 1


@pytest.mark.asyncio
async def test_a_wait_for_a_queue_is_no_time_that_a_review_took() -> None:
    metrics, api = CollectorRegistry(), ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    cache = Reflector(api, QUEUES, queues.decode)
    waits = ReviewSettings(settle=2)
    answers = reviews.Reviews(cache, Reflector(api, NAMESPACES, decode_meta), settings=waits)
    cache.synced.set()
    async with TestClient(TestServer(server.application(answers, metrics, Guard()))) as client:
        answer = await client.post("/validate/jobs", json=review(defaulted(make_job(queue="nowhere"))))
        assert "does not exist" in (await answer.json())["response"]["warnings"][0]
    labels = {"path": "/validate/jobs", "outcome": "allowed"}
    took = metrics.get_sample_value("atoll_webhook_review_seconds_sum", labels)
    assert took is not None
    assert took < waits.settle


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
    cache.take_line(json.dumps(event).encode())
    assert (await asked)[0] == "allowed"


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/validate/jobs", "/validate/batch-jobs"])
async def test_a_priority_class_that_is_not_on_the_host_is_warned_of(path: str) -> None:
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    classes = Reflector(api, PRIORITY_CLASSES, decode_meta)
    answers = reviews.Reviews(Reflector(api, QUEUES, queues.decode), Reflector(api, NAMESPACES, decode_meta), classes)
    template = {"spec": {"priorityClassName": "gold"}}
    job = {"spec": {"template": template, "tasks": [{"template": template}]}}
    request = protocol.decode(json.dumps(review(job)).encode())
    assert not [each for each in answers.routes[path].warn(request) if "gold" in str(each)]
    classes.synced.set()
    [told] = [each for each in answers.routes[path].warn(request) if "gold" in str(each)]
    assert told.field.endswith("template.spec.priorityClassName")
    assert "does not exist on the host" in told.message
    classes.take_line(json.dumps({"type": "ADDED", "object": {"metadata": {"name": "golden"}}}).encode())
    [told] = [each for each in answers.routes[path].warn(request) if "gold" in str(each)]
    assert told.message.endswith("did you mean golden?")
    classes.take_line(json.dumps({"type": "ADDED", "object": {"metadata": {"name": "gold"}}}).encode())
    assert not [each for each in answers.routes[path].warn(request) if "gold" in str(each)]


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/validate/jobs", "/validate/batch-jobs"])
@pytest.mark.parametrize(
    ("queue", "said"),
    [
        pytest.param("free", "", id="that takes it"),
        pytest.param("shut", "queue 'shut' is Closed", id="that is closed"),
        pytest.param("strict", "queue 'strict' does not allow class 'gold'", id="that does not allow its class"),
    ],
)
async def test_a_job_that_waits_goes_only_to_a_queue(path: str, queue: str, said: str) -> None:
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    cache = Reflector(api, QUEUES, queues.decode)
    answers = reviews.Reviews(cache, Reflector(api, NAMESPACES, decode_meta))
    shut, strict = make_queue("shut"), make_queue("strict")
    shut["status"] = {"state": "Closed"}
    strict["metadata"]["annotations"] = {keys.PRIORITY_CLASSES: "bronze"}
    for each in (make_queue("free"), shut, strict):
        cache.take_line(json.dumps({"type": "ADDED", "object": each}).encode())
    batch = path == "/validate/batch-jobs"
    pod = {"spec": {"restartPolicy": "Never", "priorityClassName": "gold", "containers": [{"name": "c", "image": "i"}]}}
    old = make_job(queue="free", priorityClassName="gold")
    if batch:
        old = {"metadata": {"name": "j", "labels": {keys.QUEUE_LABEL: "free"}}}
        old["spec"] = {"managedBy": keys.CONTROLLER, "suspend": True, "template": pod}
    new = json.loads(json.dumps(old))
    (new["metadata"]["labels"] if batch else new["spec"])[keys.QUEUE_LABEL if batch else "queue"] = queue
    outcome, answer = await server.answer(answers, path, json.dumps(review(new, old, "UPDATE")).encode())
    assert outcome == ("refused" if said else "allowed")
    assert said in json.loads(answer.text or "")["response"].get("status", {}).get("message", "")


@pytest.mark.parametrize(
    ("path", "spec", "told"),
    [
        pytest.param("/validate/policies", {"schedulerName": "x"}, "spec.schedulerName: has no effect", id="policy"),
        pytest.param(
            "/validate/cluster-policies",
            {"failover": {"cluster": {"purgeMode": "Never"}}},
            "spec.failover.cluster.purgeMode: has no effect",
            id="cluster policy",
        ),
        pytest.param("/validate/queues", {"affinity": {"nodeGroupAffinity": {}}}, "spec.affinity", id="queue"),
    ],
)
def test_what_has_no_effect_is_allowed_with_a_warning(path: str, spec: Json, told: str) -> None:
    response = response_to(path, review({"metadata": {"name": "p"}, "spec": spec}))
    assert response["allowed"]
    [warning] = response["warnings"]
    assert warning.startswith(told)


@pytest.mark.parametrize(
    ("path", "told"),
    [pytest.param("/validate/jobs", True, id="Volcano"), pytest.param("/validate/batch-jobs", False, id="batch")],
)
def test_what_pod_security_is_to_audit_is_in_the_audit_log(path: str, told: bool) -> None:
    """Of batch Jobs the API server's own PodSecurity says it."""
    job = defaulted(make_job(make_task()))
    template = job["spec"]["tasks"][0]["template"]
    template["spec"]["hostPID"] = True
    job = job if told else {"metadata": {"name": "j"}, "spec": {"template": template, "managedBy": keys.CONTROLLER}}

    async def once() -> Json:
        api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
        namespaces = Reflector(api, NAMESPACES, decode_meta)
        answers = reviews.Reviews(Reflector(api, QUEUES, queues.decode), namespaces)
        labels = {"pod-security.kubernetes.io/audit": "baseline"}
        there = {"type": "ADDED", "object": {"metadata": {"name": "team-a", "labels": labels}}}
        namespaces.take_line(json.dumps(there).encode())
        _, response = await server.answer(answers, path, json.dumps(review(job)).encode())
        assert isinstance(response.body, bytes)
        found: Json = json.loads(response.body)["response"]
        return found

    response = asyncio.run(once())
    assert response["allowed"]
    said = response.get("auditAnnotations", {}).get("audit-violations", "")
    assert ('would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)' in said) == told


@pytest.mark.parametrize(
    ("before", "warned"),
    [
        pytest.param(None, True, id="a new queue"),
        pytest.param({"capability": {"nvidia.com/gpu": 4}, "weight": 2}, False, id="another field changes"),
        pytest.param({"capability": {"nvidia.com/gpu": 8}}, True, id="the bound changes"),
        pytest.param({"capability": {"cpu": 1}}, True, id="the bound is added"),
    ],
)
def test_one_name_of_gpus_is_warned_of_where_the_bounds_change(before: Json | None, warned: bool) -> None:
    queue = {"metadata": {"name": "q"}, "spec": {"capability": {"nvidia.com/gpu": 4}}}
    old = {"metadata": {"name": "q"}, "spec": before} if before is not None else None
    response = response_to("/validate/queues", review(queue, old, "UPDATE" if old else "CREATE"))
    assert response["allowed"]
    assert ["any-gpu-milli" in each for each in response.get("warnings", ())] == [True] * warned


def test_many_warnings_are_counted_and_long_ones_cut() -> None:
    job = defaulted(make_job(make_task()))
    job["spec"]["tasks"][0]["template"]["spec"] |= {f"{'x' * 300}{number}": 1 for number in range(40)}
    warnings = response_to("/validate/jobs", review(job))["warnings"]
    assert (len(warnings), warnings[-1]) == (16, "and 5 more")
    assert max(map(len, warnings)) == 256


def test_what_is_refused_earns_no_warnings() -> None:
    job = defaulted(make_job(make_task()))
    job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {"cpu": 1}
    response = response_to("/validate/jobs", review(job))
    assert not response["allowed"]
    assert "warnings" not in response


@pytest.mark.asyncio
async def test_what_nothing_keeps_from_running_on_the_host_is_refused_where_its_own_controllers_run() -> None:
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    namespaces = Reflector(api, NAMESPACES, decode_meta)
    answers = reviews.Reviews(Reflector(api, QUEUES, queues.decode), namespaces)
    labels = {keys.QUEUE_LABEL: "q"}
    sized: Json = {"metadata": {"name": "web", "labels": labels}, "spec": {"replicas": 1, "template": {"spec": {}}}}
    request = protocol.decode(json.dumps(review(sized)).encode())
    assert await answers.routes["/validate/deployments"].validate(request) == []
    profile = {"name": keys.SYSTEM_NAMESPACE, "labels": {keys.HOST_PROFILE: "shared"}}
    namespaces.take_line(json.dumps({"type": "ADDED", "object": {"metadata": profile}}).encode())
    [problem] = await answers.routes["/validate/deployments"].validate(request)
    assert "own controllers from running a Deployment" in problem.message
    assert await answers.routes["/validate/batch-jobs"].validate(request) == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("queue", "default", "told"),
    [
        pytest.param("reserch", "", ["'reserch' does not exist", "did you mean research?"], id="a misspelt queue"),
        pytest.param("other", "", ["'other' does not exist", "`atollctl queue list`"], id="a queue like no other"),
        pytest.param("resaerch", "resaerch", ["'resaerch', the default of namespace team-a,"], id="a default queue"),
        pytest.param("secrets", "", ["`atollctl queue list`"], id="a queue like one that takes none of the namespace"),
        pytest.param("research", "", [], id="a queue that is there"),
    ],
)
async def test_a_queue_that_does_not_exist_is_warned_of(queue: str, default: str, told: list[str]) -> None:
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    cache, namespaces = Reflector(api, QUEUES, queues.decode), Reflector(api, NAMESPACES, decode_meta)
    answers = reviews.Reviews(cache, namespaces, settings=ReviewSettings(settle=0))
    shut = make_queue("secret")
    shut["metadata"]["annotations"] = {keys.NAMESPACE_SELECTOR: "team=b"}
    for each in (make_queue("research"), shut):
        cache.take_line(json.dumps({"type": "ADDED", "object": each}).encode())
    notes = {keys.QUEUE_ANNOTATION: default} if default else {}
    there = {"metadata": {"name": "team-a", "annotations": notes}}
    namespaces.take_line(json.dumps({"type": "ADDED", "object": there}).encode())

    async def warnings(new: Json, old: Json | None = None) -> list[str]:
        body = json.dumps(review(new, old, "CREATE" if old is None else "UPDATE")).encode()
        outcome, answer = await server.answer(answers, "/validate/jobs", body)
        assert outcome == "allowed"
        return [each for each in json.loads(answer.text or "")["response"].get("warnings", ()) if "queue" in each]

    job = defaulted(make_job(queue=queue))
    assert not await warnings(job), "nothing is known before the cache has all queues"
    cache.synced.set()
    said = await warnings(job)
    assert len(said) == bool(told)
    assert all(each.startswith("spec.queue: queue ") for each in said)
    assert [each for each in told if each not in said[0]] == []
    assert bool(await warnings(job, defaulted(make_job(queue="research")))) == bool(told), "a move"
    assert not await warnings(changed(job, "metadata", "labels", value={"a": "b"}), job), "it was warned of before"


@pytest.mark.parametrize(
    ("path", "where"),
    [
        pytest.param(("metadata", "annotations"), "metadata.annotations", id="an annotation"),
        pytest.param(("metadata", "labels"), "metadata.labels", id="a label"),
        pytest.param(
            ("spec", "tasks", 0, "template", "metadata"),
            "spec.tasks[0].template.metadata.annotations",
            id="of its pods",
        ),
    ],
)
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("atoll.sh/runing-estimate", "did you mean atoll.sh/running-estimate?", id="misspelt"),
        pytest.param("atoll.sh/queue", "did you mean label volcano.sh/queue-name?", id="a queue"),
        pytest.param("atoll.sh/hold", "", id="known"),
        pytest.param("example.com/atoll", "", id="another system's"),
    ],
)
def test_names_that_look_like_atolls_and_that_nothing_reads(
    path: tuple[str | int, ...], where: str, name: str, hint: str
) -> None:
    value: Json = {name: "true"} if path[0] == "metadata" else {"annotations": {name: "true"}}
    job = changed(defaulted(make_job()), *path, value=value)
    warnings = [each for each in response_to("/validate/jobs", review(job)).get("warnings", ()) if name in each]
    assert warnings == ([f"{where}[{name}]: has no effect: Atoll reads none of that name; {hint}"] if hint else [])
    again = response_to("/validate/jobs", review(job, job, "UPDATE"))
    assert not [each for each in again.get("warnings", ()) if name in each]


@pytest.mark.asyncio
async def test_a_queue_that_was_made_a_moment_before_is_not_warned_of() -> None:
    """1. The queue is created; 2. a Job in it is reviewed; 3. the watch tells of the queue."""
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    cache = Reflector(api, QUEUES, queues.decode)
    answers = reviews.Reviews(cache, Reflector(api, NAMESPACES, decode_meta))
    cache.synced.set()
    body = json.dumps(review(defaulted(make_job(queue="fresh")))).encode()
    asked = asyncio.create_task(server.answer(answers, "/validate/jobs", body))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asked.done()
    cache.take_line(json.dumps({"type": "ADDED", "object": make_queue("fresh")}).encode())
    assert "warnings" not in json.loads((await asked)[1].text or "")["response"]
