"""What is remembered of a binding or a Job goes with it, however late the last word about it comes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest
from aiohttp import web

from atoll.agent.cache import MemberCache
from atoll.agent.jobs.controller import JobController
from atoll.agent.placements import Placements
from atoll.agent.publisher import Publisher
from atoll.agent.scheduler.loop import Scheduler
from atoll.agent.settings import JobSettings
from atoll.agent.tainted import Tainted
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.objects import Full, Meta, decode_full
from tests.agent.builders import make_group, make_job, make_node, make_pod, make_task
from tests.kube.servers import client, serving


def tell(cache: Reflector[Any], type_: str, obj: Any) -> None:
    """The watch event of a Job."""
    cache.take_line(orjson.dumps({"type": type_, "object": obj}))


async def test_the_generation_of_a_binding_goes_with_its_last_object() -> None:
    """1. its pods run; 2. they end and are gone, the PodGroup is still there: nothing is placed, a generation is
    promised for that; 3. the PodGroup goes, and no pass of the scheduler speaks of the binding again.
    """
    api = client(9)
    cache = MemberCache(api)
    publisher = Publisher(api, "alpha", dict)
    scheduler = Scheduler(api, cache, Recorder(api, "agent"), promise=publisher.promise)
    tainted = Tainted(cache, scheduler.room.devices.taints, Recorder(api, "agent"))
    placements = Placements(cache, scheduler, publisher, tainted)
    group = make_group("g", 1)
    owned = Meta(name="g", namespace="default", uid="uid-g", annotations={keys.BINDING_UID: "b"})
    cache.nodes.put("n", make_node("n"))
    cache.pod_groups.put("default/g", type(group)(metadata=owned, spec=group.spec))
    pod = make_pod("p", group="g", node="n", phase="Running", binding="b")
    cache.pods.put("default/p", pod)
    placements.observe({"b"})
    placed = placements.get("b")
    assert placed is not None
    assert placed["nodes"] == {"n": 1}
    cache.pods.put("default/p", None)
    placements.observe({"b"})
    assert placements._generations
    cache.pod_groups.put("default/g", None)
    assert (placements.get("b"), placements._generations) == (None, {})


async def test_nothing_is_remembered_of_a_job_that_goes_while_it_is_worked_on() -> None:
    job = {**make_job(make_task("w", 2)), "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    job["metadata"] = {"name": "j", "namespace": "default", "uid": "uid-j", "resourceVersion": "5"}
    caches: list[MemberCache] = []

    async def answer(request: web.Request) -> web.Response:
        body: Any = await request.json()
        caches[0].jobs.put("default/j", None)
        return web.json_response(body | {"metadata": {"name": "x", "resourceVersion": "6", "uid": "u"}}, status=201)

    async with serving(answer) as api:
        controller = controlling(api, caches)
        for _ in range(3):
            found: Full = decode_full(orjson.dumps(job))
            caches[0].jobs.put("default/j", found)
            await controller.reconcile("default/j")
            if "default/j" not in caches[0].jobs.store:
                break
        else:
            raise AssertionError("no pod was made")
    kept = {name: value for name, value in vars(controller).items() if "uid-j" in repr(value) and name != "_queue"}
    assert kept == {}


def controlling(api: ApiServer, caches: list[MemberCache], *, trust: float = 5.0) -> JobController:
    caches.append(MemberCache(api))
    return JobController(api, caches[0], Recorder(api, "agent"), settings=JobSettings(trust=trust))


@pytest.mark.parametrize(("trust", "times"), [(0.0, 2), (60.0, 1)], ids=["trusted no more", "may still be seen"])
async def test_a_store_that_was_put_back_is_believed_after_a_while(trust: float, times: int) -> None:
    """1. the Job gets its pod and its status; 2. the store goes back to a state before both: no watch shows either;
    3. the next look makes the pod and writes the status again.
    """
    job = {**make_job(make_task("w", 1)), "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    job["metadata"] = {"name": "j", "namespace": "default", "uid": "uid-j", "resourceVersion": "5"}
    caches: list[MemberCache] = []
    written: Counter[tuple[str, str]] = Counter()

    async def answer(request: web.Request) -> web.Response:
        written[request.method, request.path.rpartition("/")[2]] += 1
        body: Any = await request.json()
        return web.json_response(body | {"metadata": {"name": "j", "resourceVersion": "10", "uid": "u"}}, status=201)

    async with serving(answer) as api:
        controller = controlling(api, caches, trust=trust)
        caches[0].jobs.put("default/j", decode_full(orjson.dumps(job)))
        for _ in range(2):
            await controller.reconcile("default/j")
    assert (written["POST", "pods"], written["PATCH", "status"]) == (times, times)


async def test_a_pod_of_an_earlier_job_of_the_same_name_leaves_nothing() -> None:
    caches: list[MemberCache] = []
    controller = controlling(client(9), caches)
    job = {**make_job(make_task("w", 1)), "metadata": {"name": "j", "namespace": "default", "uid": "new"}}
    caches[0].jobs.put("default/j", decode_full(orjson.dumps(job)))
    pod = orjson.loads(orjson.dumps({"metadata": {"name": "p", "namespace": "default", "uid": "p"}}))
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": "old", "controller": True}]
    pod["status"] = {"phase": "Succeeded"}
    tell(caches[0].pods, "ADDED", pod | {"metadata": pod["metadata"] | {"resourceVersion": "1"}})
    tell(caches[0].pods, "DELETED", pod | {"metadata": pod["metadata"] | {"resourceVersion": "2"}})
    assert "old" not in controller._unseen


async def test_a_job_of_billions_of_pods_gets_none_and_is_told_why() -> None:
    job = {**make_job(make_task("w", 2**31 - 1)), "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    caches: list[MemberCache] = []
    controller = controlling(client(9), caches)
    caches[0].jobs.put("default/train", decode_full(orjson.dumps(job)))
    await controller.reconcile("default/train")
    event = repr(controller._recorder._queue.get_nowait())
    assert "asks for 2147483647 pods at once, and one Job gets at most 100000" in event


async def test_a_job_that_is_gone_already_gets_no_pods() -> None:
    """A watch that was silent tells what it missed, one event after the other: Jobs too that are long gone, and whose
    binding runs elsewhere.
    """
    job = {**make_job(make_task("w", 2)), "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    job["metadata"] = {"name": "j", "namespace": "default", "uid": "uid-j", "resourceVersion": "5"}
    caches: list[MemberCache] = []
    created: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        if request.method == "PATCH":
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        created.append(request.path)
        return web.json_response(await request.json(), status=201)

    async with serving(answer) as api:
        controller = controlling(api, caches)
        caches[0].jobs.put("default/j", decode_full(orjson.dumps(job)))
        with pytest.raises(errors.Retry):
            await controller.reconcile("default/j")
    assert not [path for path in created if path.endswith("/pods")]
