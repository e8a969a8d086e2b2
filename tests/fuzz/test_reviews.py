"""Admission reviews as nobody should send them: each gets an answer under its UID, and no patch spoils an object."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from functools import cache
from typing import Any

import orjson
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from atoll.admission import jsonpatch
from atoll.api import batch, scheduling
from atoll.webhook import reviews, server
from tests.fuzz import examples
from tests.integration.federation import batch_job
from tests.kinds.samples import BY_TITLE, new
from tests.webhook.builders import Json, defaulted, make_job, make_queue, make_task
from tests.webhook.reviews import make_answers, review

SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))

BINDING: Json = {
    "apiVersion": "work.karmada.io/v1alpha2",
    "kind": "ResourceBinding",
    "metadata": {"name": "b", "namespace": "team-a"},
    "spec": {"resource": {"apiVersion": "v1", "kind": "Pod", "name": "p"}, "suspension": {"dispatching": True}},
}
RICH = make_job(
    make_task("master", 1, policies=[{"event": "PodFailed", "action": "RestartJob"}]),
    make_task("worker", 4, dependsOn={"name": ["master"]}, partitionPolicy={"totalPartitions": 2, "partitionSize": 2}),
    plugins={"mpi": ["--master=master"]},
    volumes=[{"mountPath": "/data", "volumeClaimName": "data"}],
    networkTopology={"mode": "hard", "highestTierAllowed": 2},
)
POLICY: Json = {
    "metadata": {"name": "p"},
    "spec": {
        "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
        "placement": {"clusterAffinity": {"clusterNames": ["a"]}},
        "propagateDeps": True,
    },
}
OVERRIDE: Json = {
    "metadata": {"name": "o"},
    "spec": {
        "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
        "overrideRules": [
            {
                "targetCluster": {"clusterNames": ["a"], "labelSelector": {"matchLabels": {"size": "large"}}},
                "overriders": {"plaintext": [{"path": "/spec/minAvailable", "operator": "replace", "value": 2}]},
            }
        ],
    },
}
PROBE: Json = {
    "taskStatusList": [{"taskName": "w", "phase": "Running"}],
    "httpGetList": [{"taskName": "w", "path": "/ready", "port": 80}],
}
STEPS: Json = {"flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"], "probe": PROBE}}]}
GROUP: Json = {"name": "g", "replicas": 2, "splitPolicy": {"mode": "static"}, "templateSpec": RICH["spec"]}
DECLARED: Json = {
    "metadata": {"name": "engines.example.org"},
    "spec": {
        "group": "example.org",
        "version": "v1",
        "kind": "Engine",
        "resource": "engines",
        "tasks": [{"name": "main", "template": "spec.template", "replicas": "spec.replicas"}],
    },
}
GROUPED: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "annotations": {"scheduling.k8s.io/group-name": "g"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
}
VALID: dict[str, list[Json]] = {
    "jobs": [make_job(), RICH, defaulted(RICH)],
    "batch-jobs": [batch_job("train"), batch_job("held", suspend=True)],
    "queues": [make_queue(), make_queue("leaf", parent="root", deserved={"cpu": "4"}, capability={"cpu": "8"})],
    "bindings": [BINDING],
    "hypernodes": [{"metadata": {"name": "s0"}, "spec": {"tier": 1, "members": []}}],
    "workload-kinds": [DECLARED],
    "declared": [RICH],
    "grouped-pods": [GROUPED],
    "policies": [POLICY],
    "cluster-policies": [POLICY],
    "overrides": [OVERRIDE],
    "cluster-overrides": [OVERRIDE],
    "cronjobs": [{"metadata": {"name": "c"}, "spec": {"schedule": "@hourly", "jobTemplate": {"spec": RICH["spec"]}}}],
    "jobflows": [{"metadata": {"name": "f"}, "spec": STEPS}],
    "hyperjobs": [{"metadata": {"name": "h"}, "spec": {"replicatedJobs": [GROUP]}}],
    "jobtemplates": [{"metadata": {"name": "t"}, "spec": RICH["spec"]}],
    **{kind.admission().route: [new(title)] for title, kind in BY_TITLE.items()},
}
MODELS: dict[str, Any] = {"jobs": batch.Job, "queues": scheduling.Queue}

scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["", "0", "-1", "1e999", "9" * 5000, "\x00", "\ud800", "a" * 300, "root", "default", "100m", "*"]),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(["name", "spec"]), inner, max_size=4)
    ),
    max_leaves=8,
)


PATHS = sorted(make_answers().routes)
TWICE = ("jobs", "batch-jobs", "queues", "bindings")
"""Patched objects of these need no second patch; workloads of other kinds that come suspended would be held by one, so
the registration says `reinvocationPolicy: Never`.
"""


def test_every_path_has_an_object() -> None:
    assert {path.rsplit("/", 1)[1] for path in PATHS} == VALID.keys()


@cache
def _answers() -> tuple[reviews.Reviews, asyncio.AbstractEventLoop]:
    return make_answers(), asyncio.new_event_loop()


def ask(path: str, body: bytes) -> tuple[str, int, bytes]:
    """The real handler, without a socket."""
    answers, loop = _answers()
    outcome, response = loop.run_until_complete(server.answer(answers, path, body))
    assert isinstance(response.body, bytes)
    return outcome, response.status, response.body


def check(path: str, body: bytes, uid: object) -> Json:
    """It is answered; under its UID if it has one; gives the response."""
    outcome, status, said = ask(path, body)
    assert outcome != "failed"
    if not isinstance(uid, str) or not uid:
        assert status == 400
        assert said.strip()
        return {}
    assert status == 200
    answer = orjson.loads(said)
    assert answer["kind"] == "AdmissionReview"
    response: Json = answer["response"]
    assert response["uid"] == uid
    assert response["allowed"] or response["status"]["message"]
    return response


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@st.composite
def mutated(draw: st.DrawFn, document: Json) -> Json:
    """The document with up to four places replaced, removed, doubled or extended."""
    result = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(places(result)[1:] or [("spec",)]))
        holder: Any = result
        for step in path[:-1]:
            holder = holder[step]
        last = path[-1]
        match draw(st.sampled_from(["replace", "remove", "double", "extend"])):
            case "remove" if last in holder or isinstance(holder, list):
                del holder[last]
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[last]))
            case "extend" if isinstance(holder, dict):
                holder[draw(st.text(max_size=8))] = draw(values)
            case _:
                holder[last] = draw(values)
    return result


def spoiled(obj: Json, old: Json | None = None, operation: str = "CREATE") -> bytes:
    return json.dumps(review(obj, old, operation)).encode()


@st.composite
def mutated_reviews(draw: st.DrawFn) -> tuple[str, bytes, object]:
    path = draw(st.sampled_from(PATHS))
    obj = draw(st.sampled_from(VALID[path.rsplit("/", 1)[1]]))
    old = draw(st.none() | st.just(obj) | mutated(obj))
    body = review(draw(st.just(obj) | mutated(obj)), old, draw(st.sampled_from(["CREATE", "UPDATE", "DELETE"])))
    if draw(st.booleans()):
        body = draw(mutated(body))
    request = body.get("request")
    text = json.dumps(body).encode()
    return path, text, request.get("uid") if isinstance(request, dict) else None


@given(mutated_reviews())
@example(("/validate/queues", spoiled(make_queue(capability={"cpu": []}), operation="DELETE"), "u1"))
@example(("/validate/queues", spoiled(make_queue(), make_queue(capability={"cpu": []}), operation="UPDATE"), "u1"))
@example(("/validate/overrides", spoiled({**OVERRIDE, "spec": {**OVERRIDE["spec"], "more": 10**20}}), "u1"))
@example(("/mutate/jobs", spoiled(make_job(), {"metadata": []}, operation="UPDATE"), "u1"))
@example(("/mutate/grouped-pods", spoiled({**GROUPED, "metadata": {"annotations": []}}), "u1"))
@settings(SETTINGS, max_examples=examples(150))
def test_a_spoiled_review_is_answered_under_its_uid(case: tuple[str, bytes, object]) -> None:
    path, body, uid = case
    if isinstance(uid, str) and (not uid.isprintable() or not uid.isascii()):
        assert ask(path, body)[0] != "failed"
    else:
        check(path, body, uid)


@given(st.sampled_from(PATHS), values)
@settings(SETTINGS, max_examples=examples(100))
def test_any_json_is_answered(path: str, value: Any) -> None:
    outcome, status, _ = ask(path, json.dumps(value).encode())
    assert (outcome, status) == ("malformed", 400)


@given(st.sampled_from(PATHS), st.binary(max_size=200), st.integers(0, 2000), st.booleans())
@settings(SETTINGS, max_examples=examples(100))
def test_any_bytes_are_answered(path: str, noise: bytes, at: int, cut: bool) -> None:
    whole = json.dumps(review(RICH)).encode()
    for body in (noise, whole[:at] + noise + (b"" if cut else whole[at:])):
        outcome, status, said = ask(path, body)
        assert outcome != "failed"
        assert status in (200, 400)
        assert said


@given(st.data())
@settings(SETTINGS, max_examples=examples(150))
def test_a_patched_object_needs_no_second_patch(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(TWICE))
    path = f"/mutate/{kind}"
    valid = data.draw(st.sampled_from(VALID[kind]))
    obj = data.draw(st.just(valid) | mutated(valid))
    response = check(path, json.dumps(review(obj)).encode(), "u1")
    if not response["allowed"]:
        return
    patch = orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    after = jsonpatch.applied(obj, patch)
    again = check(path, json.dumps(review(after)).encode(), "u1")
    assert "patch" not in again
    if obj is valid and kind in MODELS:
        MODELS[kind].model_validate(after)
    elif kind in MODELS and _accepts(kind, obj):
        assert _accepts(kind, after), "what the schema takes, it takes with its defaults too"


def _accepts(kind: str, obj: Json) -> bool:
    try:
        MODELS[kind].model_validate(obj)
    except (ValueError, RecursionError):
        return False
    return True
