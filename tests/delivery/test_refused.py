"""What stands in the way in a member reaches the host at once, as a refusal in the member's words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from atoll.agent.cache import MemberCache
from atoll.delivery import Delivery
from atoll.delivery.refusals import EventObject, PodRefusals, Regarding
from atoll.delivery.work import work_name
from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.model import gang, keys
from atoll.model.apiresource import BATCH_JOBS, DEPLOYMENTS, JOBS, ApiResource
from atoll.model.gang import Gang, Task
from atoll.model.objects import Full, Meta, OwnerReference, Slim, decode_full
from tests.kube.servers import client, serving

ONE = Gang("q", [Task("w", 1, 1, {"cpu": 1000})], 1)


def a_work(resource: ApiResource) -> dict[str, Any]:
    """A Work of namespace team's workload `j`, dispatched for the second time."""
    about = {"apiVersion": resource.api_version, "kind": resource.kind}
    manifest = {**about, "metadata": {"name": "j", "namespace": "team"}, "spec": {}}
    notes = {keys.BINDING_UID: "b", keys.EPOCH: "2", keys.GANG: gang.encode(ONE)}
    name = work_name("team", "j", resource.kind, resource.group)
    metadata = {"name": name, "namespace": "karmada-es-m", "annotations": notes, "uid": "w", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"workload": {"manifests": [manifest]}}}


@pytest.mark.parametrize("resource", [BATCH_JOBS, JOBS, DEPLOYMENTS], ids=lambda each: str(each.plural))
@pytest.mark.parametrize(
    ("about", "by"),
    [
        ({"managedFields": [{"manager": "helm", "operation": "Apply"}]}, "made by helm"),
        ({"ownerReferences": [{"kind": "CronJob", "name": "c", "uid": "c", "controller": True}]}, "of CronJob c"),
    ],
    ids=["a client", "a controller"],
)
async def test_a_name_that_is_taken_is_refused_and_says_by_whom(
    resource: ApiResource, about: dict[str, Any], by: str
) -> None:
    written: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        written.append(await request.json())
        return web.json_response({"metadata": {"resourceVersion": "2"}})

    async with serving(answer) as host:
        objects: dict[ApiResource, Reflector[Full]] = {resource: Reflector(client(9), resource, decode_full)}
        delivery = Delivery(host, client(9), "m", objects=objects, placement=lambda _: None)
        work = a_work(resource)
        delivery.works.take_line(json.dumps({"type": "ADDED", "object": work}).encode())
        there = {"metadata": {"name": "j", "namespace": "team", "uid": "other", **about}}
        objects[resource].put("team/j", decode_full(json.dumps(there).encode()))
        # The member may be rid of that object before the host has taken its Work back.
        with pytest.raises(errors.Retry):
            await delivery.reconcile(f"karmada-es-m/{work['metadata']['name']}")
    [wrote] = written
    assert wrote["metadata"]["resourceVersion"] == work["metadata"]["resourceVersion"]
    [item] = wrote["status"]["manifestStatuses"]
    message = item["status"]["refused"]["message"]
    assert item["status"]["refused"]["epoch"] == 2
    assert f"{resource.kind} team/j exists there and is not Atoll's ({by})" in message


async def test_a_status_for_a_work_that_has_changed_is_written_over_the_change_and_not_lost() -> None:
    """1. The cache is behind, and the write refused. 2. The watch shows the change. 3. It is written over that."""
    written: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        written.append(await request.json())
        if written[-1]["metadata"]["resourceVersion"] != "9":
            return web.json_response({"kind": "Status", "code": 409, "reason": "Conflict"}, status=409)
        return web.json_response({"metadata": {"resourceVersion": "10"}})

    async with serving(answer) as host:
        resource = JOBS
        objects: dict[ApiResource, Reflector[Full]] = {resource: Reflector(client(9), resource, decode_full)}
        delivery = Delivery(host, client(9), "m", objects=objects, placement=lambda _: None)
        work = a_work(resource)
        key = f"karmada-es-m/{work['metadata']['name']}"
        there = {"metadata": {"name": "j", "namespace": "team", "uid": "other"}}
        objects[resource].put("team/j", decode_full(json.dumps(there).encode()))
        delivery.works.take_line(json.dumps({"type": "ADDED", "object": work}).encode())
        with pytest.raises(errors.Retry):
            await delivery.reconcile(key)
        work["metadata"]["resourceVersion"] = "9"
        delivery.works.take_line(json.dumps({"type": "MODIFIED", "object": work}).encode())
        with pytest.raises(errors.Retry):
            await delivery.reconcile(key)
    assert [each["metadata"]["resourceVersion"] for each in written][1:] == ["9"]
    assert written[1]["status"]["manifestStatuses"][0]["status"]["refused"]["epoch"] == 2


def event(uid: str, note: str, version: str) -> EventObject:
    return EventObject(Meta(name=f"e{version}", resource_version=version), Regarding(uid), note)


async def test_what_a_controller_below_the_workload_was_refused_is_the_workloads() -> None:
    """A ReplicaSet of a Deployment; the newest words count, those about another Deployment don't."""
    cache = MemberCache(client(9))
    refusals = PodRefusals(client(9), cache.owners)
    deployment = Meta(name="web", namespace="team", uid="d", annotations={keys.BINDING_UID: "b"})
    cache.workloads[DEPLOYMENTS].put("team/web", Full(deployment, {}))
    owner = [OwnerReference("Deployment", "web", "d", controller=True)]
    cache.replica_sets.put("team/web-1", Slim(Meta(name="web-1", namespace="team", uid="r", owner_references=owner)))
    heard: list[str] = []
    refusals.on_change(heard.append)
    [created, by_operators] = refusals.events
    created.put("1", event("r", "Error creating: exceeded quota: old", "1"))
    created.put("2", event("r", 'Error creating: pods "web-1-x" is forbidden: exceeded quota: small', "2"))
    created.put("3", event("other", "Error creating: exceeded quota: theirs", "3"))
    assert refusals.of("d") == 'pods "web-1-x" is forbidden: exceeded quota: small'
    assert heard == ["d", "d", "other"]
    # The training operator reports by another reason, about the workload itself.
    by_operators.put("4", event("t", "Error creating: exceeded quota: of operators", "4"))
    assert refusals.of("t") == "exceeded quota: of operators"
