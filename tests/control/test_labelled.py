"""Namespaces where only what names a queue is Atoll's: control makes bindings of that, and ends and tells of no other."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest
from aiohttp import web

from atoll.control.caches import Caches
from atoll.control.detector import Detector
from atoll.kube.config import Connection
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, DEPLOYMENTS, JOBS, PODS, ApiResource
from atoll.model.objects import Full, decode_full, decode_meta
from tests.kube.servers import serving
from tests.webhook.reviews import nobody

Json = dict[str, Any]
pytestmark = pytest.mark.asyncio

POD = {"containers": [{"name": "c"}]}
QUEUED = {"labels": {keys.QUEUE_LABEL: "q"}}
BATCH_JOB = {"managedBy": keys.CONTROLLER, "suspend": True, "template": {"spec": POD}}
JOB = {"tasks": [{"name": "w", "replicas": 1, "template": {"spec": POD}}]}


def raw(spec: Json, **metadata: Any) -> bytes:
    about = {"name": "w", "namespace": "ns", "uid": "u", "generation": 1, **metadata}
    return orjson.dumps({"metadata": about, "spec": spec})


@pytest.mark.parametrize(
    ("resource", "workload", "bound"),
    [
        pytest.param(BATCH_JOBS, raw(BATCH_JOB), False, id="a Job that asks for Atoll by its field alone"),
        pytest.param(BATCH_JOBS, raw(BATCH_JOB, **QUEUED), True, id="a Job with a queue label"),
        pytest.param(DEPLOYMENTS, raw({"template": {"spec": POD}}), False, id="a Deployment"),
        pytest.param(JOBS, raw(JOB), True, id="a Volcano Job, which no other program runs"),
    ],
)
async def test_only_what_names_a_queue_is_bound(resource: ApiResource, workload: bytes, bound: bool) -> None:
    made = []

    async def answer(request: web.Request) -> web.Response:
        made.append(request.path)
        return web.json_response(await request.json(), status=201)

    async with serving(answer) as host:
        caches = Caches(host)
        detector = Detector(host, caches, Recorder(host, "control"))
        labels = {keys.ENABLED: "labelled"}
        caches.namespaces.put("ns", decode_meta(orjson.dumps({"metadata": {"name": "ns", "labels": labels}})))
        found = decode_full(workload)
        cast(Reflector[Full], caches.workloads[resource]).put(found.metadata.key, found)
        await detector.reconcile((resource, found.metadata.key))
    assert bool(made) == bound


@pytest.mark.parametrize(
    ("way", "metadata", "left"),
    [
        pytest.param("labelled", {}, False, id="without a queue"),
        pytest.param("labelled", QUEUED, True, id="with a queue"),
        pytest.param(
            "labelled", {"annotations": {keys.QUEUE_ANNOTATION: "q"}}, True, id="with a queue in an annotation"
        ),
        pytest.param("labelled", {"labels": {keys.QUEUE_LABEL: ""}}, False, id="with the empty name of a queue"),
        pytest.param("labelled", {**QUEUED, "namespace": "kube-system"}, False, id="in a system namespace"),
        pytest.param("true", {}, True, id="where all is Atoll's"),
        pytest.param("false", QUEUED, False, id="where nothing is"),
    ],
)
async def test_what_a_namespace_leaves_to_atoll(way: str, metadata: Json, left: bool) -> None:
    caches = Caches(ApiServer(Connection("http://127.0.0.1:9", None, nobody)))
    for name in ("ns", "kube-system"):
        labels = {keys.ENABLED: way}
        caches.namespaces.put(name, decode_meta(orjson.dumps({"metadata": {"name": name, "labels": labels}})))
    assert caches.left_to_atoll(PODS, decode_meta(raw(POD, **metadata)).metadata) == left
