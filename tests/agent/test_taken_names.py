"""Names that other owners have in the member: the Job's author hears which object is in the way, and of whom it is."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from aiohttp import web

from atoll.agent.cache import MemberCache
from atoll.agent.jobs.controller import JobController
from atoll.agent.volumes import decode_claim
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.model.objects import decode_full
from tests.agent.builders import make_job, make_task
from tests.kube.servers import serving

STRANGER = {"managedFields": [{"manager": "kubectl-create", "operation": "Update"}]}
CONTROLLED = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}]}
OURS = {"ownerReferences": [{"kind": "Job", "name": "train", "uid": "j1", "controller": True}]}


class Notes(Recorder):
    """Keeps what is told, by its reason."""

    def __init__(self, api: ApiServer, component: str) -> None:
        super().__init__(api, component)
        self.notes: dict[str, str] = {}

    def record(self, about: Mapping[str, Any], reason: str, note: str, **_: Any) -> None:
        self.notes[reason] = note


async def told(
    plural: str, there: dict[str, Any], *, volumes: list[dict[str, Any]] | None = None, **spec: Any
) -> tuple[str, list[str]]:
    """(Event of the Job or "", plurals created) where an object of that kind with this metadata is in the way."""
    job = {**make_job(make_task("w", 1), **spec), "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    job["metadata"]["resourceVersion"] = "5"
    if volumes:
        job["spec"]["volumes"] = volumes
    created: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        kind = request.path.split("/")[-1 if request.method == "POST" else -2]
        if request.method == "POST":
            if kind == plural:
                return web.json_response({"kind": "Status", "code": 409, "reason": "AlreadyExists"}, status=409)
            created.append(kind)
            return web.json_response(await request.json(), status=201)
        if kind == "secrets":
            assert request.method == "PATCH"
            same = there.get("ownerReferences", [{}])[0].get("uid") == (await request.json())[0]["value"]
            return web.json_response({"metadata": {}} if same else {"code": 422}, status=200 if same else 422)
        if request.method == "GET":
            name = request.path.split("/")[-1]
            return web.json_response({"metadata": {"name": name, "namespace": "default", **there}})
        return web.json_response({"metadata": {"resourceVersion": "6"}})

    async with serving(answer) as api:
        cache = MemberCache(api)
        recorder = Notes(api, "agent")
        controller = JobController(api, cache, recorder)
        cache.jobs.put("default/train", decode_full(orjson.dumps(job)))
        claim = {"metadata": {"name": "train-volume-0", "namespace": "default", **there}}
        cache.claims.put("default/train-volume-0", decode_claim(orjson.dumps(claim)))
        with contextlib.suppress(errors.Retry):
            await controller.reconcile("default/train")
    return recorder.notes.get("FailedCreate", ""), created


CLAIM = [{"mountPath": "/data", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}]


@pytest.mark.parametrize(
    ("plural", "spec", "which"),
    [
        ("pods", {}, "Pod default/train-w-0"),
        ("services", {"plugins": {"svc": []}}, "Service default/train"),
        ("configmaps", {"plugins": {"svc": []}}, "ConfigMap default/train-svc"),
        ("networkpolicies", {"plugins": {"svc": []}}, "NetworkPolicy default/train"),
        ("secrets", {"plugins": {"ssh": []}}, "Secret default/train-ssh"),
        ("persistentvolumeclaims", {"volumes": CLAIM}, "PersistentVolumeClaim default/train-volume-0"),
    ],
    ids=lambda each: each if isinstance(each, str) and each.islower() else "",
)
@pytest.mark.parametrize(("there", "by"), [(STRANGER, "kubectl-create"), (CONTROLLED, "ReplicaSet web")])
async def test_an_object_of_another_owner_is_named_by_an_event(
    plural: str, spec: dict[str, Any], which: str, there: dict[str, Any], by: str
) -> None:
    event, created = await told(plural, there, **spec)
    assert f"{which} exists and is not of this Job" in event
    if plural not in ("secrets", "persistentvolumeclaims"):
        # Of these two the agent does not see who made them.
        assert by in event
    assert "pods" not in created


async def test_an_object_of_the_job_itself_is_taken_up_without_a_word() -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("services", {"plugins": {"svc": []}}),
        ("secrets", {"plugins": {"ssh": []}}),
        ("persistentvolumeclaims", {"volumes": CLAIM}),
    ]
    for plural, spec in cases:
        there = OURS | ({"labels": {"atoll.sh/binding-uid": "b1"}} if "claim" in plural else {})
        event, created = await told(plural, there, **spec)
        assert (event, "pods" in created) == ("", True)


async def test_an_object_of_another_owner_that_goes_is_waited_for_in_silence() -> None:
    going = STRANGER | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    cases: list[tuple[str, dict[str, Any]]] = [("pods", {}), ("services", {"plugins": {"svc": []}})]
    for plural, spec in cases:
        assert await told(plural, going, **spec) == ("", ["podgroups"])
