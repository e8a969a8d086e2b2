"""One leader at a time, stopped before its lease can expire."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from atoll.kube.election import Elector, elector
from atoll.kube.settings import Election
from atoll.kube.transport import ApiServer
from atoll.model import duration, keys
from atoll.model.apiresource import CONFIGMAPS
from atoll.model.release import VERSION
from tests.kube.servers import LeaseServer, eventually, serving

TIMES = Election(lease=1.0, renew_deadline=0.4, retry_period=0.05)


class Candidate:
    """An elector whose work says when it runs."""

    def __init__(self, api: ApiServer, name: str) -> None:
        self.api = ApiServer(api._connection, user_agent=name)
        self.elector = Elector(self.api, "atoll-test", name, TIMES)
        self.working = False
        self.stopped_at = 0.0
        self.task = asyncio.create_task(self.elector.run(self._work))

    async def _work(self) -> None:
        self.working = True
        try:
            await asyncio.Event().wait()
        finally:
            self.working, self.stopped_at = False, asyncio.get_running_loop().time()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.api.close()


async def test_only_one_leads_and_the_other_takes_over_on_release() -> None:
    server = LeaseServer()
    async with serving(server) as api:
        first = Candidate(api, "first")
        await eventually(lambda: first.working)
        second = Candidate(api, "second")
        await eventually(lambda: second.elector._seen is not None)
        renewed = server.version
        await eventually(lambda: server.version > renewed + 2)
        assert (first.working, second.working, server.holder) == (True, False, "first")
        await first.stop()
        assert not first.working
        await eventually(lambda: second.working)
        assert server.holder == "second"
        assert server.lease is not None
        assert server.lease["spec"]["leaseTransitions"] >= 2
        assert server.lease["metadata"]["annotations"] == {keys.RELEASE: VERSION}
        await second.stop()
        assert server.holder == ""


async def test_a_leader_that_is_cut_off_stops_before_another_can_lead() -> None:
    """1. first leads. 2. It is cut off. 3. Its work is cancelled. 4. Only then does second lead."""
    server = LeaseServer()
    async with serving(server) as api:
        first = Candidate(api, "first")
        await eventually(lambda: first.working)
        second = Candidate(api, "second")
        await eventually(lambda: second.elector._seen is not None)
        server.down.add("first")
        cut = asyncio.get_running_loop().time()
        await eventually(lambda: not first.working)
        assert first.stopped_at - cut < TIMES.lease
        assert not second.working
        assert server.holder == "first"
        await eventually(lambda: second.working)
        await first.stop()
        await second.stop()


async def test_work_that_ends_by_itself_ends_the_run_and_releases() -> None:
    server = LeaseServer()

    async def work() -> None:
        assert server.holder == "only"

    async with serving(server) as api:
        await Elector(api, "atoll-test", "only", TIMES).run(work)
    assert server.holder == ""


async def test_work_that_fails_releases_and_is_heard() -> None:
    server = LeaseServer()

    async def work() -> None:
        raise RuntimeError("broken")

    async with serving(server) as api:
        with pytest.raises(RuntimeError, match="broken"):
            await Elector(api, "atoll-test", "only", TIMES).run(work)
    assert server.holder == ""


async def test_a_leader_renews_without_reading_what_it_wrote() -> None:
    server = LeaseServer()
    methods: list[str] = []

    async def answers(request: web.Request) -> web.Response:
        methods.append(request.method)
        return await server(request)

    async with serving(answers) as api:
        leader = Candidate(api, "leader")
        await eventually(lambda: methods.count("PUT") > 5)
        await leader.stop()
    # Before the first claim, and before the release.
    assert methods.count("GET") == 2


async def test_the_lease_is_released_when_the_answer_to_a_renewal_was_lost() -> None:
    """1. A renewal is carried out, its answer does not come. 2. The leader is stopped. 3. The lease is free."""
    server = LeaseServer()
    lost = asyncio.Event()

    async def answers(request: web.Request) -> web.Response:
        response = await server(request)
        if request.method == "PUT" and not lost.is_set():
            lost.set()
            await asyncio.Event().wait()
        return response

    async with serving(answers) as api:
        leader = Candidate(api, "leader")
        await lost.wait()
        await leader.stop()
    assert server.holder == ""


async def test_the_lease_is_released_when_the_work_fails_while_it_is_stopped() -> None:
    server = LeaseServer()
    working = asyncio.Event()

    async def work() -> None:
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("broken on the way out")

    async with serving(server) as api:
        leader = asyncio.create_task(Elector(api, "atoll-test", "only", TIMES).run(work))
        await working.wait()
        leader.cancel()
        with pytest.raises(RuntimeError, match="broken"):
            await leader
    assert server.holder == ""


@pytest.mark.parametrize(
    "times",
    [
        pytest.param({"lease": 10, "renew_deadline": 10, "retry_period": 1}, id="no time between deadline and expiry"),
        pytest.param({"lease": 10, "renew_deadline": 5, "retry_period": 5}, id="no second attempt"),
        pytest.param(
            {"lease": 15, "renew_deadline": 14, "retry_period": 8},
            id="no second attempt after a pause",
        ),
    ],
)
def test_times_that_can_not_keep_the_promise_are_refused(times: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Election(**times)


async def test_work_that_begins_early_waits_for_the_lease_and_begins_again_after_it() -> None:
    """1. second's work runs beside the leader's. 2. It leads. 3. It is cut off: its work ends and waits again."""
    server = LeaseServer()
    async with serving(server) as api:
        first = Candidate(api, "first")
        await eventually(lambda: first.working)
        candidate, begun, ended = Elector(api, "atoll-test", "second", TIMES), 0, 0

        async def work() -> None:
            nonlocal begun, ended
            begun += 1
            try:
                await asyncio.Event().wait()
            finally:
                ended += 1

        running = asyncio.create_task(candidate.run(work, early=True))
        await eventually(lambda: begun == 1 and candidate.can_lead)
        assert not candidate.leading.is_set()
        await first.stop()
        await eventually(candidate.leading.is_set)
        assert (begun, ended) == (1, 0)
        server.lease = {**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "third"}}
        server.lease["metadata"]["resourceVersion"] = "999999"
        await eventually(lambda: begun == 2)
        assert (ended, candidate.leading.is_set()) == (1, False)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert ended == 2


async def test_early_work_that_fails_ends_the_candidate() -> None:
    server = LeaseServer()
    async with serving(server) as api:
        first = Candidate(api, "first")
        await eventually(lambda: first.working)

        async def work() -> None:
            raise RuntimeError("it can't go on")

        with pytest.raises(RuntimeError, match="can't go on"):
            await Elector(api, "atoll-test", "second", TIMES).run(work, early=True)
        assert server.holder == "first"
        await first.stop()


async def test_the_server_drops_writes_of_a_leader_that_it_carries_out_too_late_for_it_to_lead() -> None:
    """Reads, and the lease itself, have no such end."""
    server, asked = LeaseServer(), list[tuple[str, str, str]]()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((request.method, request.path.rpartition("/")[2], request.query.get("timeout", "")))
        return await server(request) if "leases" in request.path else web.json_response({})

    async with serving(answer) as api:
        leader = elector(api, "atoll-test", "first", TIMES)

        async def work() -> None:
            await api.get(CONFIGMAPS, "read", "n")
            await api.create(CONFIGMAPS, {"metadata": {"name": "made", "namespace": "n"}})

        await leader.run(work)
    [(_, _, within)] = [each for each in asked if each[:2] == ("POST", "configmaps")]
    assert 0 < duration.parse(within) <= TIMES.renew_deadline
    assert {each[2] for each in asked if each[:2] != ("POST", "configmaps")} == {""}
