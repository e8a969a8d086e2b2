"""Jobs of the indices of an array, as the agent makes them."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from atoll.agent.cache import MemberCache
from atoll.agent.jobs.arrays import ArrayController, child_of
from atoll.agent.ours import Ours
from atoll.agent.settings import JobSettings
from atoll.cli.submission import Submission, manifest
from atoll.kube.events import Recorder
from atoll.model.apiresource import JOB_ARRAYS
from atoll.model.objects import decode_full
from tests.kube.servers import serving


def test_containers_read_their_index_and_its_argument() -> None:
    words = [f"seed {each}" for each in range(5)]
    array = manifest(Submission(command=["run"], image="i", name="sweep", array="0-2,10-11", arguments=words))
    array["metadata"]["uid"] = "u"
    made = child_of(array, 10, 0)
    [container] = made["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert {each["name"]: each["value"] for each in container["env"]} == {
        "JOB_COMPLETION_INDEX": "10",
        "ATOLL_ARRAY_INDEX": "10",
        "ATOLL_ARRAY_ARGUMENT": "seed 3",
    }
    assert made["metadata"]["name"] == "sweep-10"


class Member:
    """Has one array, and remembers the Jobs that are made and removed."""

    def __init__(self, array: dict[str, Any]) -> None:
        self.array = array
        self.jobs: list[tuple[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "PATCH":
            self.array = {**self.array, "status": (await request.json())["status"]}
            self.array["metadata"] = {**self.array["metadata"], "resourceVersion": "10"}
        elif request.method == "DELETE":
            self.jobs.append(("DELETE", request.path.rpartition("/")[2]))
        elif request.method == "POST":
            made = await request.json()
            self.jobs.append(("POST", made["metadata"]["name"]))
            return web.json_response(made, status=201)
        return web.json_response(self.array)


async def test_an_index_that_ended_runs_no_second_time_while_the_watch_of_arrays_is_late() -> None:
    array = manifest(Submission(command=["run"], image="i", name="sweep", array="0-1%1"))
    array["metadata"] |= {"uid": "u", "namespace": "default", "resourceVersion": "5"}
    member = Member(array)
    async with serving(member.answer) as api:
        cache = MemberCache(api)
        Ours(cache)
        arrays = ArrayController(api, cache, Recorder(api, "agent"), settings=JobSettings(trust=0, states_after=0.001))
        cache.workloads[JOB_ARRAYS].put("default/sweep", decode_full(orjson.dumps(array)))
        await arrays.reconcile("default/sweep")
        assert member.jobs == [("POST", "sweep-0")]
        # The watch shows what the first write left, and nothing after it.
        seen = {**member.array, "metadata": {**member.array["metadata"], "resourceVersion": "9"}}
        cache.workloads[JOB_ARRAYS].put("default/sweep", decode_full(orjson.dumps(seen)))
        job = child_of(array, 0, 0)
        job["metadata"] |= {"uid": "j", "resourceVersion": "6"}
        job["status"] = {"state": {"phase": "Completed"}}
        ended = decode_full(orjson.dumps(job))
        cache.jobs.put(ended.metadata.key, ended)
        # Two writes of states have a pause in between.
        while ("DELETE", "sweep-0") not in member.jobs:
            await arrays.reconcile("default/sweep")
        cache.jobs.put(ended.metadata.key, None)
        await arrays.reconcile("default/sweep")
    assert member.jobs.count(("POST", "sweep-0")) == 1
