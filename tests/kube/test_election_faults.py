"""Leadership under faults on the way to the API server, in virtual time: never two at work, never nobody for long.

The lease is kept by a tiny server behind real connections; what happens to a candidate's requests is said per
candidate. Times are those of the measurements on real processes: lease 5 s, renew deadline 3 s.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.kube import election
from atoll.kube.election import Elector
from atoll.kube.settings import Election
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CONFIGMAPS
from tests.kube import virtual_time
from tests.kube.servers import LeaseServer, serving

LEASE, DEADLINE, RETRY = 5.0, 3.0, 0.5
TAKEOVER = LEASE + 2
TIMES = Election(lease=LEASE, renew_deadline=DEADLINE, retry_period=RETRY)
LASTING = ("hang", "error", "busy", "reset", "garbage", "lost")
"""What can happen to every request of a candidate. `lost`: carried out, its answer is not given."""

Fate = Callable[[web.Request], str]


class Court:
    """The lease, and what befalls each candidate on the way to it."""

    def __init__(self) -> None:
        self.server = LeaseServer()
        #: candidate -> what happens to its next request; "" is nothing
        self.fates: dict[str, Fate] = {}
        self.written: list[str] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        who = request.headers["User-Agent"].partition("/")[0]
        if "/configmaps" in request.path:
            self.written.append(who)
            return web.json_response({})
        fate = self.fates[who](request) if who in self.fates else ""
        transport: Any = request.transport
        match fate:
            case "hang":
                await asyncio.Event().wait()
            case "error":
                return web.json_response({"reason": "InternalError"}, status=500)
            case "busy":
                return web.json_response({}, status=429, headers={"Retry-After": "1"})
            case "reset":
                transport.abort()
                return web.Response()
            case "garbage":
                return web.Response(body=b"<html>", content_type="application/json")
            case "late":
                # It arrives when its sender has given up, as a packet may after a partition.
                return await asyncio.shield(asyncio.ensure_future(self._late(request, await request.read())))
        answer = await self.server(request)
        if fate == "lost" or (fate == "lost writes" and request.method != "GET"):
            transport.abort()
        return answer

    async def _late(self, request: web.Request, _: bytes) -> web.Response:
        await asyncio.sleep(2.5)
        return await self.server(request)


class Candidate:
    """An elector whose work keeps a record of when it ran."""

    def __init__(self, api: ApiServer, name: str, *, slow_to_end: float = 0.0) -> None:
        self.name = name
        self.api = ApiServer(api._connection, user_agent=name)
        self.elector = Elector(self.api, "atoll-test", name, TIMES, overdue=self._overdue)
        self.slow_to_end = slow_to_end
        #: (from, to) of each time that the work ran
        self.terms: list[tuple[float, float]] = []
        self.working_since: float | None = None
        self.died_at: float | None = None
        self.task = asyncio.create_task(self.elector.run(self._work))

    def _overdue(self) -> None:
        self.died_at = now()
        self._end()

    def _end(self) -> None:
        if self.working_since is not None:
            self.terms.append((self.working_since, now()))
            self.working_since = None

    async def _work(self) -> None:
        self.working_since = now()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self.slow_to_end)
            self._end()

    @property
    def working(self) -> bool:
        return self.working_since is not None


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], bool], within: float) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.05)


@asynccontextmanager
async def two(court: Court, **first: Any) -> Any:
    """The first leads, the second stands by."""
    async with serving(court) as api:
        candidates = [Candidate(api, "first", **first)]
        try:
            await until(lambda: candidates[0].working, 1)
            candidates.append(Candidate(api, "second"))
            await asyncio.sleep(2)
            assert not candidates[1].working
            yield candidates
        finally:
            for each in candidates:
                each.slow_to_end = 0.0
                each.task.cancel()
                await asyncio.gather(each.task, return_exceptions=True)
                await each.api.close()


def always(fate: str) -> Fate:
    return lambda _: fate


def once(fate: str) -> Fate:
    fates = iter([fate])
    return lambda _: next(fates, "")


def overlaps(candidates: Iterable[Candidate]) -> list[Any]:
    """Times at which two worked."""
    terms = sorted((*term, each.name) for each in candidates for term in each.terms)
    return [(a, b) for a, b in pairwise(terms) if b[0] < a[1]]


@pytest.mark.parametrize("fate", LASTING)
def test_a_leader_that_can_not_renew_stops_before_the_other_starts(fate: str) -> None:
    """1. first leads. 2. Its requests fail from now on. 3. It stops by the renew deadline. 4. second leads."""

    async def main() -> None:
        court = Court()
        async with two(court) as (first, second):
            court.fates["first"] = always(fate)
            began = now()
            await until(lambda: not first.working, DEADLINE + 0.1)
            assert not second.working
            await until(lambda: second.working, TAKEOVER - (now() - began))
            assert not overlaps([first, second])

    virtual_time.run(main())


def test_a_candidate_that_never_hears_of_its_writes_leads_by_what_it_reads() -> None:
    """1. first's writes are carried out, no answer comes. 2. It reads that they were: it goes on leading, rather than
    keep the lease alive without leading, and everybody else from it.
    """

    async def main() -> None:
        court = Court()
        async with two(court) as (first, second):
            court.fates["first"] = always("lost writes")
            await asyncio.sleep(12)
            assert first.working
            first.task.cancel()
            await until(lambda: second.working, TAKEOVER)
            court.fates["second"] = always("lost writes")
            court.server.steal("")
            await asyncio.sleep(12)
            assert second.working
            assert not overlaps([first, second])

    virtual_time.run(main())


@pytest.mark.parametrize("fate", [*LASTING, "lost writes", "late"])
def test_one_failed_renewal_costs_nothing(fate: str) -> None:
    async def main() -> None:
        court = Court()
        async with two(court) as (first, second):
            for _ in range(4):
                court.fates["first"] = once(fate)
                await asyncio.sleep(DEADLINE)
            assert first.working
            assert not first.terms
            assert not second.terms

    virtual_time.run(main())


def test_a_stolen_lease_stops_the_work_at_the_next_look() -> None:
    """1. first leads. 2. Somebody writes another holder into the lease. 3. first stops within one renewal, not only
    at its renew deadline: a machine that slept can't know from its own clock that another leads.
    """

    async def main() -> None:
        court = Court()
        async with two(court) as (first, second):
            court.server.steal("thief")
            await until(lambda: not first.working, RETRY + 0.1)
            assert court.server.holder == "thief"
            await until(lambda: first.working or second.working, TAKEOVER)

    virtual_time.run(main())


def test_a_deleted_lease_binds_whoever_has_not_heard_of_it_for_long() -> None:
    """1. second hears nothing for longer than a lease. 2. The lease is deleted, and first can't make it anew at once.
    3. second hears again: first may still work, and it waits.
    """

    async def main() -> None:
        court = Court()
        async with two(court) as (first, second):
            court.fates["second"] = always("error")
            await asyncio.sleep(LEASE + 2)
            assert first.working
            court.server.lease = None
            court.fates = {"first": always("error")}
            await until(lambda: second.working, TAKEOVER)
            assert not first.working
            assert not overlaps([first, second])

    virtual_time.run(main())


def test_a_deleted_lease_binds_until_it_would_have_expired() -> None:
    """1. first leads. 2. The lease is deleted. 3. second waits: first makes it anew before it knows of anything."""

    async def main() -> None:
        court = Court()
        async with two(court) as (first, second):
            for _ in range(20):
                court.server.lease = None
                await until(lambda: court.server.holder != "", LEASE)
                assert court.server.holder == "first"
                await asyncio.sleep(0.3)
            assert first.working
            assert not second.terms
            court.fates["first"] = always("reset")
            court.server.lease = None
            await until(lambda: second.working, TAKEOVER)
            assert not overlaps([first, second])

    virtual_time.run(main())


def test_a_process_that_was_stopped_is_certain_of_nothing() -> None:
    """1. first leads. 2. It does not run for longer than a lease. 3. The very next thing that it does finds it not
    certain, before the elector ran. 4. Its work ends without an attempt to get the lease back first.
    """

    async def main() -> None:
        court = Court()
        async with two(court) as (first, _):
            assert first.elector.certain
            tried: list[str] = []

            def fate(request: web.Request) -> str:
                tried.append(f"{request.method} while {'working' if first.working else 'idle'}")
                return ""

            court.fates["first"] = fate
            virtual_time.sleep_through(LEASE + 1)
            assert not first.elector.certain
            await until(lambda: bool(first.terms), 0.1)
            assert not tried or tried[0].endswith("idle")

    virtual_time.run(main())


def test_a_client_of_a_leader_writes_only_while_that_is_certain() -> None:
    """1. A leader's task is about to write. 2. The process stops for longer than a lease. 3. The write never begins.
    4. Reads do, and the next term writes again.
    """

    async def main() -> None:
        court = Court()
        async with serving(court) as raw:
            api = ApiServer(raw._connection, user_agent="first")
            elector = election.elector(api, "atoll-test", "first", TIMES)
            gate = asyncio.Event()
            terms = 0

            async def work() -> None:
                nonlocal terms
                terms += 1
                await gate.wait()
                if terms == 1:
                    virtual_time.sleep_through(LEASE + 1)
                await api.create(CONFIGMAPS, {"metadata": {"name": "a", "namespace": "n"}})
                await asyncio.Event().wait()

            task = asyncio.create_task(elector.run(work))
            await until(lambda: terms == 1, 1)
            gate.set()
            await until(lambda: terms == 2, TAKEOVER)
            await until(lambda: bool(court.written), 1)
            assert court.written == ["first"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.close()

    virtual_time.run(main())


def test_the_wall_clock_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    days = random.Random(1)

    async def main() -> None:
        court = Court()
        async with two(court) as (first, second):
            monkeypatch.setattr("atoll.kube.election.time.time", lambda: days.uniform(0, 4e9))
            await asyncio.sleep(60)
            assert first.working
            assert not second.terms

    virtual_time.run(main())


def test_the_lease_is_kept_until_work_that_is_slow_to_end_has_ended() -> None:
    async def main() -> None:
        court = Court()
        async with two(court, slow_to_end=1.5) as (first, second):
            first.task.cancel()
            await asyncio.sleep(1)
            assert (first.working, second.working, court.server.holder) == (True, False, "first")
            await until(lambda: second.working, 2)
            assert not overlaps([first, second])

    virtual_time.run(main())


def test_work_that_does_not_end_takes_the_process_with_it_before_another_leads() -> None:
    """1. first is cut off. 2. Its work ignores the cancellation. 3. first dies. 4. Only then does second lead."""

    async def main() -> None:
        court = Court()
        async with two(court, slow_to_end=600) as (first, second):
            court.fates["first"] = always("hang")
            await until(lambda: first.died_at is not None, LEASE + 0.1)
            assert not second.terms
            assert not second.working
            await until(lambda: second.working, TAKEOVER)
            assert not overlaps([first, second])

    virtual_time.run(main())


def test_a_cancellation_while_the_work_is_being_stopped_is_not_lost() -> None:
    """1. first is cut off. 2. Its work is slow to end. 3. The process is asked to stop just then. 4. It does."""

    async def main() -> None:
        court = Court()
        async with two(court, slow_to_end=1.5) as (first, _):
            court.fates["first"] = always("hang")
            await until(lambda: not first.elector.leading.is_set(), DEADLINE + 0.1)
            assert first.working
            first.task.cancel()
            await asyncio.sleep(0.5)
            first.task.cancel()
            assert first.working
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.wait({first.task})), 5)
            assert first.task.cancelled()
            assert not first.working

    virtual_time.run(main())


def _drawn(fates: Iterator[str], _: web.Request) -> str:
    return next(fates)


@settings(max_examples=5)
@given(seed=st.integers(0, 2**32))
def test_never_two_at_work_whatever_happens_to_requests(seed: int) -> None:
    drawn = random.Random(seed)

    def weather() -> Iterator[str]:
        while True:
            kinds = drawn.choice(
                [["", "", "", *LASTING, "lost writes", "late"], [""], ["hang"], ["lost writes", "late"]]
            )
            for _ in range(drawn.randrange(1, 20)):
                yield drawn.choice(kinds)

    async def main() -> None:
        court = Court()
        async with serving(court) as api:
            candidates = [Candidate(api, name, slow_to_end=drawn.uniform(0, 1)) for name in ("first", "second")]
            for each in candidates:
                fates = weather()
                court.fates[each.name] = partial(_drawn, fates)
            for _ in range(40):
                await asyncio.sleep(1)
                assert sum(each.working for each in candidates) < 2
                if drawn.random() < 0.02:
                    court.server.lease = None
            court.fates.clear()
            await until(lambda: any(each.working for each in candidates), TAKEOVER + LEASE)
            for each in candidates:
                each.task.cancel()
                await asyncio.gather(each.task, return_exceptions=True)
                await each.api.close()
            assert not overlaps(candidates)

    virtual_time.run(main())
