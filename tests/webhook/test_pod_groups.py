"""PodGroups of the host that pods of workloads name: what they say is the workload's wish."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from atoll.admission import jsonpatch
from atoll.kube.config import Connection
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import NAMESPACES, POD_GROUPS, QUEUES
from atoll.model.objects import Full, decode_full, decode_meta
from atoll.webhook import queues, reviews, server
from tests.webhook.builders import make_job, make_queue, make_task
from tests.webhook.reviews import nobody, review

Json = dict[str, Any]
pytestmark = pytest.mark.asyncio


def group(**spec: Any) -> Json:
    return {"metadata": {"name": "mine", "namespace": "team-a"}, "spec": spec}


class Served:
    def __init__(self, *groups: Json) -> None:
        api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
        self.cache: Reflector[Full] = Reflector(api, POD_GROUPS, decode_full, optional=True)
        known = Reflector(api, QUEUES, queues.decode)
        for name in ("default", "gold", "silver"):
            known.take_line(json.dumps({"type": "ADDED", "object": make_queue(name)}).encode())
        namespaces = Reflector(api, NAMESPACES, decode_meta)
        self.answers = reviews.Reviews(known, namespaces, referable={POD_GROUPS: self.cache})
        for each in groups:
            self.comes(each)

    def comes(self, made: Json) -> None:
        self.cache.take_line(json.dumps({"type": "ADDED", "object": made}).encode())

    async def asked(self, path: str, obj: Json, old: Json | None = None) -> Json:
        asks = review(obj) if old is None else review(obj, old, "UPDATE")
        _, answer = await server.answer(self.answers, path, json.dumps(asks).encode())
        assert isinstance(answer.body, bytes)
        found: Json = json.loads(answer.body)["response"]
        return found

    async def mutated(self, obj: Json, path: str = "/mutate/deployments", old: Json | None = None) -> Json:
        response = await self.asked(path, obj, old)
        return jsonpatch.applied(obj, json.loads(base64.b64decode(response.get("patch", "W10="))))


def deployment(**metadata: Any) -> Json:
    pod = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    template = {"metadata": {"annotations": {keys.GROUP_NAME: "mine"}}, "spec": pod}
    return {"metadata": {"name": "web", **metadata}, "spec": {"replicas": 3, "template": template}}


async def test_what_a_pod_group_says_is_the_workloads_wish() -> None:
    wish = {"mode": "soft", "highestTierAllowed": 2}
    served = Served(group(minMember=2, queue="gold", priorityClassName="high", networkTopology=wish))
    found = await served.mutated(deployment())
    notes = found["metadata"]["annotations"]
    assert notes == {keys.GROUP_MIN_MEMBER: "2", keys.TOPOLOGY_MODE: "soft", keys.HIGHEST_TIER: "2"}
    assert found["metadata"]["labels"][keys.QUEUE_LABEL] == "gold"
    assert found["spec"]["template"]["spec"]["priorityClassName"] == "high"
    response = await served.asked("/validate/deployments", found)
    assert response["allowed"]
    assert not [each for each in response.get("warnings") or () if "PodGroup" in each]


async def test_what_the_workload_says_itself_stays() -> None:
    served = Served(group(minMember=2, queue="gold", priorityClassName="high"))
    mine = deployment(annotations={keys.GROUP_MIN_MEMBER: "3"}, labels={keys.QUEUE_LABEL: "silver"})
    mine["spec"]["template"]["spec"]["priorityClassName"] = "low"
    found = await served.mutated(mine)
    assert found["metadata"]["annotations"] == {keys.GROUP_MIN_MEMBER: "3"}
    assert found["metadata"]["labels"] == {keys.QUEUE_LABEL: "silver"}
    assert found["spec"]["template"]["spec"]["priorityClassName"] == "low"


async def test_a_batch_job_is_taken_over_with_it_and_one_of_another_controller_left_alone() -> None:
    served = Served(group(minMember=2, queue="gold"))
    job: Json = {"metadata": {"name": "j"}, "spec": {"parallelism": 2, "template": deployment()["spec"]["template"]}}
    found = await served.mutated(job, "/mutate/batch-jobs")
    assert found["metadata"]["annotations"] == {keys.GROUP_MIN_MEMBER: "2"}
    assert found["metadata"]["labels"] == {keys.QUEUE_LABEL: "gold"}
    job["spec"]["managedBy"] = "example.com/another"
    assert await served.mutated(job, "/mutate/batch-jobs") == job


async def test_a_manifest_that_is_replaced_keeps_its_minimum_and_its_queue() -> None:
    served = Served(group(minMember=2, queue="gold"))
    old = await served.mutated(deployment(labels={keys.QUEUE_LABEL: "silver"}))
    found = await served.mutated(deployment(), old=old)
    assert found["metadata"]["annotations"] == {keys.GROUP_MIN_MEMBER: "2"}
    assert found["metadata"]["labels"] == {keys.QUEUE_LABEL: "silver"}


async def test_a_pod_group_that_comes_a_moment_later_counts_and_one_that_does_not_come_is_told_of() -> None:
    served = Served()
    asking = asyncio.create_task(served.mutated(deployment()))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    served.comes(group(minMember=2))
    assert (await asking)["metadata"]["annotations"] == {keys.GROUP_MIN_MEMBER: "2"}
    lonely = await Served().asked("/validate/deployments", deployment(labels={keys.QUEUE_LABEL: "gold"}))
    assert any("there is no PodGroup mine: create it before the workload" in each for each in lonely["warnings"])


async def test_a_volcano_job_has_one_of_its_own() -> None:
    job = make_job(make_task())
    job["spec"]["tasks"][0]["template"]["metadata"] = {"annotations": {keys.GROUP_NAME: "mine"}}
    served = Served(group(minMember=2, queue="gold"))
    assert keys.GROUP_MIN_MEMBER not in (await served.mutated(job, "/mutate/jobs"))["metadata"].get("annotations", {})
    response = await served.asked("/validate/jobs", job)
    assert any("has no effect: a Volcano Job has a PodGroup of its own" in each for each in response["warnings"])
