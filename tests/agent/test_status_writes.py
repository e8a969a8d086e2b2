"""Each fact of a Job is written once in its member: nothing before its pods, one status when it runs, one at its end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from aiohttp import web

from atoll.agent.cache import MemberCache
from atoll.agent.jobs.controller import JobController
from atoll.agent.objects import decode_pod
from atoll.agent.settings import JobSettings
from atoll.kube.events import Recorder
from atoll.model import keys
from atoll.model.objects import decode_full
from tests.agent.builders import make_job, make_task
from tests.kube.servers import serving

OWNER = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
POD = {
    "metadata": {
        "name": "j-w-0", "namespace": "default", "uid": "p", "ownerReferences": [OWNER],
        "annotations": {"volcano.sh/task-spec": "w"},
    },
    "spec": {"nodeName": "n", "containers": []},
    "status": {"phase": "Running"},
}  # fmt: skip


def job() -> dict[str, Any]:
    found = {**make_job(make_task("w", 1)), "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    notes = {keys.BINDING_UID: "b", keys.EPOCH: "3"}
    found["metadata"] = {
        "name": "j",
        "namespace": "default",
        "uid": "uid-j",
        "resourceVersion": "5",
        "annotations": notes,
    }
    return found


class Member:
    """Answers writes, and remembers them."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body: Any = await request.json()
        self.written.append((request.method, request.path.rpartition("/")[2], body))
        return web.json_response(body | {"metadata": {"name": "j", "resourceVersion": "10", "uid": "u"}}, status=201)

    @property
    def short(self) -> list[tuple[str, str]]:
        return [(method, what) for method, what, _ in self.written]


@pytest.mark.parametrize("sent", [("b", 3), ("b", 2), None], ids=["just sent", "an epoch before", "long ago"])
async def test_a_job_that_was_just_delivered_gets_its_pods_without_a_status_before(
    sent: tuple[str, int] | None,
) -> None:
    member = Member()
    async with serving(member.answer) as api:
        cache = MemberCache(api)
        controller = JobController(api, cache, Recorder(api, "agent"))
        controller.statuses.just_sent = lambda uid, epoch: (uid, epoch) == sent
        cache.jobs.put("default/j", decode_full(orjson.dumps(job())))
        await controller.reconcile("default/j")
        first = [] if sent == ("b", 3) else [("PATCH", "status")]
        assert sorted(member.short) == sorted([*first, ("POST", "podgroups"), ("POST", "pods")])
        running = decode_pod(orjson.dumps(POD))
        cache.pods.put("default/j-w-0", running)
        member.written.clear()
        await controller.reconcile("default/j")
        [(_, what, body)] = member.written
        assert (what, body["status"]["state"]["phase"], body["status"]["running"]) == ("status", "Running", 1)


async def test_a_job_whose_pod_does_not_run_in_a_moment_shows_that_it_is_pending() -> None:
    member = Member()
    async with serving(member.answer) as api:
        cache = MemberCache(api)
        controller = JobController(api, cache, Recorder(api, "agent"), settings=JobSettings(pending_after=0.0))
        controller.statuses.just_sent = lambda *_: True
        cache.jobs.put("default/j", decode_full(orjson.dumps(job())))
        await controller.reconcile("default/j")
    status = next(body["status"] for _, what, body in member.written if what == "status")
    assert (status["state"]["phase"], status["pending"]) == ("Pending", 1)
