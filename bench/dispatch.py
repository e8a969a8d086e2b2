"""Suspended bindings resumed per second by the production dispatcher through a real API server.

The bound is what that server takes of the very same patches from a bare client. Both run on the same server, in turns,
on as many bindings, beside the same open watch; times are those of the server's audit log. Nothing else of Atoll runs:
members are objects. Then once more with everything: control and agents carry out what is decided while it is decided.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from atoll.kube.transport import MERGE_PATCH
from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, JOBS, QUEUES
from bench import endtoend, machine
from bench.host import DISPATCHER_ACCOUNT, RESUMED, Host, installed
from bench.load import Request, clear, creation, measured, namespace, open_loop, read_log, send, watching
from bench.objects import GPU, NODE_GPUS, capacity_object, numbered_binding
from bench.report import Progress, Report, median, progress, rate, run
from bench.resumer import Example, Orders, resuming, resumption

NAME = "dispatch"
DESCRIPTION = "Bindings resumed per second by the production dispatcher through a real API server."
BOUND = (
    "the dispatcher's own JSON patch, repeated on as many other bindings of the same API server by a bare aiohttp "
    "client with 32 connections, an open watch beside it, in alternating order in the same run; medians. Latencies: a "
    "client that patches at once what its own watches tell it of (bench.resumer), at the same pace, in turns"
)
FULL: dict[str, Any] = {"members": [3, 20], "bindings": 5000, "repeats": 3, "half_load_s": 5.0, "whole": 500}
QUICK: dict[str, Any] = {"members": [2], "bindings": 100, "repeats": 1, "half_load_s": 0.5, "whole": 20}
_ADMINISTRATOR = "admin"
_LATE_S = 0.1
"""More than this between the time at which the client should have sent and did send is no even pace."""
_STALL_S = 20.0
_QUEUE = "bench"


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--members", type=int, nargs="+", help="numbers of members, which are objects only")
    parser.add_argument("--bindings", type=int, help="bindings per repeat, and as many for the bound")
    parser.add_argument("--repeats", type=int, help="turns of bound and dispatch for each number of members")
    parser.add_argument(
        "--half-load-s", type=float, help="seconds of each latency measurement at half of the rate; 0 leaves them out"
    )
    parser.add_argument("--whole", type=int, help="Jobs through a whole federation of three members; 0 leaves it out")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


@dataclass(slots=True)
class Turn:
    """What the audit log says of one round of dispatching."""

    resumed: dict[str, float] = field(default_factory=dict)
    """`namespace/name` -> when it was resumed."""
    patches: int = 0
    """Writes of decisions by the dispatcher, refused ones and evictions included."""
    refused: int = 0
    bodies: list[bytes] = field(default_factory=list)
    """Of the resumptions."""
    reasons: int = 0
    """Writes that say why a binding waits."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What one round cost."""

    used: dict[str, float]
    """Process -> CPU seconds."""
    others: float
    """Share of the machine that others used meanwhile."""


def account(events: Iterable[audit.Event], namespace: str, user: str = DISPATCHER_ACCOUNT) -> Turn:
    """What the dispatcher, or whoever resumes in its place, wrote to the bindings of a namespace."""
    turn = Turn()
    for event in events:
        ref = event.object_ref
        if (ref.namespace, ref.resource, event.user.username) != (namespace, BINDINGS.plural, user):
            continue
        if event.verb not in audit.WRITES or event.stage != "ResponseComplete":
            continue
        body = event.body()
        items = body if isinstance(body, list) else []
        suspended = [item["value"] for item in items if item.get("path") == "/spec/suspension/scheduling"]
        if not suspended:
            turn.reasons += 1
            continue
        turn.patches += 1
        if not event.ok:
            turn.refused += 1
        elif suspended == [False]:
            turn.resumed[ref.key] = event.at
            turn.bodies.append(orjson.dumps(body))
    return turn


def waits(room: Iterable[tuple[float, int]], resumed: Iterable[float]) -> list[float]:
    """Seconds from when there was room for one more binding until one more was resumed, for each that was.

    Args:
        room: (when it was there, bindings that it holds), in order.
        resumed: when each was; those beyond the room that is known are left out.
    """
    ready = [at for at, count in room for _ in range(count)]
    return [max(after - before, 0.0) for before, after in zip(ready, sorted(resumed), strict=False)]


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    return measured(chosen, told, _measure, NAME, QUICK, FULL, bound=BOUND)


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    bound = 0.0
    async with installed(directory / "alone", told) as host:
        known: list[str] = []
        for count in sorted(params["members"]):
            members = [f"member{number}" for number in range(1, count + 1)]
            await host.add_members(members[len(known) :])
            known = members
            bound = await _Rounds(report, params, host, members, told).run()
    if params["whole"]:
        await _whole(report, params["whole"], bound, directory / "whole", told)


class _Rounds:
    """Bound and dispatch in turns, with so many members on one host."""

    def __init__(self, report: Report, params: dict[str, Any], host: Host, members: list[str], told: Progress) -> None:
        self._report, self._params, self._host, self._told = report, params, host, told
        self._api, self._members = host.api, members
        self._case = f"{params['bindings']} one-pod bindings to {len(members)} members"
        self._efforts: dict[str, list[Effort]] = {"bound": [], "dispatch": []}

    async def run(self) -> float:
        """Measure and report; gives the bound."""
        count, case = self._params["bindings"], self._case
        self._told(f"{case}: one, to see what the dispatcher writes")
        example = await self._example()
        bounds: list[float] = []
        turns: list[tuple[float, Turn]] = []
        for number in range(self._params["repeats"]):
            # Whoever goes second finds a larger database and a warmer server: they take turns at it.
            for kind in ("bound", "dispatch") if number % 2 == 0 else ("dispatch", "bound"):
                self._told(f"{case}: {kind}, repeat {number + 1} of {self._params['repeats']}")
                if kind == "bound":
                    bounds.append(await self._bound(self._name(f"bound-{number}"), example))
                else:
                    turns.append(await self._dispatch(self._name(f"dispatch-{number}"), count))
        bound, reached = median(bounds), median(found for found, _ in turns)
        self._report.add(case, "decisions_per_s", reached, "1/s", bound)
        for number, (low, (got, _)) in enumerate(zip(bounds, turns, strict=True), start=1):
            self._report.add(f"{case}, repeat {number}", "decisions_per_s", got, "1/s", low)
        _add_writes(self._report, case, [turn for _, turn in turns], count * len(turns))
        self._add_efforts(count)
        if self._params["half_load_s"] > 0 and reached > 0:
            await self._latencies(reached / 2, example)
        return bound

    def _name(self, what: str) -> str:
        """Of a namespace of its own."""
        return f"{what}-of-{len(self._members)}"

    def _add_efforts(self, count: int) -> None:
        """CPU is hardly changed by who else is on the machine, rates are."""
        case = f"{self._case}: CPU per binding"
        for name in ("host-apiserver", "etcd", "atoll-dispatcher"):
            bound, spent = (
                median(each.used.get(name, 0.0) for each in self._efforts[kind]) for kind in ("bound", "dispatch")
            )
            # The bound of a process is what it took while the bound was measured.
            self._report.add(case, name, spent * 1000 / count, "ms", bound * 1000 / count or None)
        client = median(each.used.get("bench", 0.0) for each in self._efforts["bound"])
        self._report.add(case, "bare client and its watch", client * 1000 / count, "ms")
        for kind, efforts in self._efforts.items():
            worst = max(each.others for each in efforts)
            self._report.add(self._case, f"used_by_others_during_{kind}", worst, "share")
            if worst > machine.QUIET:
                self._report.remarks.append(
                    f"DISTURBED: others used up to {worst:.0%} of the machine during {kind}; rates mean little"
                )

    async def _example(self) -> Example:
        where = self._name("example")
        (made,) = await self._make_bindings(where, 1)
        _, turn = await self._dispatch(where, 1, made=True)
        self._efforts["dispatch"].clear()
        (body,) = turn.bodies
        return Example(made["metadata"]["uid"], body.decode())

    async def _bound(self, where: str, example: Example) -> float:
        """Patches per second by the bare client."""
        made = await self._make_bindings(where, self._params["bindings"])
        requests = [resumption(obj, example) for obj in made]
        async with watching(self._api, BINDINGS, where, RESUMED) as seen:
            before = self._host.sample()
            await send(self._host.handle, requests)
            await seen.reach(len(requests), _STALL_S)
            after = self._host.sample()
        self._efforts["bound"].append(Effort(machine.used(before, after), machine.others(before, after)))

        def mine(events: list[audit.Event]) -> list[audit.Event]:
            return [each for each in events if each.wrote(BINDINGS.plural, "patch")]

        log = self._host.handle.audit_log
        events = mine(await read_log(log, lambda all_: len(mine(all_)) >= len(requests), where))
        await clear(self._api, BINDINGS, where)
        began = min(each.request_received_timestamp for each in events).timestamp()
        return rate(len(events), max(each.at for each in events) - began)

    async def _dispatch(self, where: str, count: int, *, made: bool = False) -> tuple[float, Turn]:
        """Bindings resumed per second, from the moment at which the first capacity is there."""
        if not made:
            await self._make_bindings(where, count)
        async with self._host.dispatcher() as dispatcher:
            await dispatcher.pending(count)
            async with watching(self._api, BINDINGS, where, RESUMED) as seen:
                before = self._host.sample()
                began = await self._offer(count)
                if not await seen.reach(count, _STALL_S):
                    if not dispatcher.process.running:
                        raise dispatcher.process.failure()
                    self._report.remarks.append(f"{where}: only {seen.count} of {count} bindings were resumed")
                after = self._host.sample()
                self._efforts["dispatch"].append(Effort(machine.used(before, after), machine.others(before, after)))
        turn = account(await self._log(where, seen.count), where)
        await self._withdraw(where)
        return rate(len(turn.resumed), max(turn.resumed.values(), default=began) - began), turn

    async def _latencies(self, per_second: float, example: Example) -> None:
        """Latency of the dispatcher and of a bare client, at this pace."""
        arriving = max(int(per_second * self._params["half_load_s"]), 1)
        opening = max(arriving // NODE_GPUS, 1) * NODE_GPUS
        cases: dict[str, tuple[Callable[[str, float, int, Example | None], Awaitable[list[float]]], str, int]] = {
            "arriving": (self._arriving, f"{arriving} created at {per_second:.0f}/s while there is room", arriving),
            "opening": (
                self._opening,
                f"{opening} waiting, room for {NODE_GPUS} at {per_second / NODE_GPUS:.0f}/s",
                opening,
            ),
        }
        for name, (latency, words, count) in cases.items():
            found: dict[str, list[float]] = {"bound": [], "dispatch": []}
            for number in range(self._params["repeats"]):
                for kind in ("bound", "dispatch") if number % 2 == 0 else ("dispatch", "bound"):
                    self._told(f"{self._case}: latency, {name}, {kind}")
                    where = self._name(f"{name}-{kind}-{number}")
                    found[kind] += await latency(where, per_second, count, example if kind == "bound" else None)
            case = f"{self._case}, half load: {words}"
            self._report.add_latency(case, found["dispatch"], found["bound"])

    @contextlib.asynccontextmanager
    async def _resuming(self, where: str, waiting: int, example: Example | None, room: int) -> AsyncIterator[str]:
        """A dispatcher that knows what waits; with an example the bare client in its place, which begins with this
        much room. Gives the account that it writes with.
        """
        if example is None:
            async with self._host.dispatcher() as dispatcher:
                await dispatcher.pending(waiting)
                yield DISPATCHER_ACCOUNT
        else:
            handle = self._host.handle
            async with resuming(Orders(handle.url, handle.ca, handle.token, where, example, room, NODE_GPUS)):
                yield _ADMINISTRATOR

    async def _arriving(self, where: str, per_second: float, count: int, example: Example | None) -> list[float]:
        """Of bindings that arrive at an even pace while there is room: from creation to resumption.

        A creation costs the server as much as a decision: this is more than half of what it can take.
        """
        await namespace(self._api, where)
        timed = [(n / per_second, creation(BINDINGS, numbered_binding(where, n))) for n in range(count)]
        async with self._resuming(where, 0, example, count) as user:
            await self._offer(count)
            async with watching(self._api, BINDINGS, where, RESUMED) as seen:
                await self._paced(where, timed)
                await seen.reach(count, _STALL_S)
        events = await self._log(where, seen.count, user)
        created, resumed = audit.creation_times(events, BINDINGS.plural), account(events, where, user).resumed
        await self._withdraw(where)
        return [resumed[key] - created[key] for key in resumed if key in created]

    async def _opening(self, where: str, per_second: float, count: int, example: Example | None) -> list[float]:
        """Of bindings that wait for room, which comes at an even pace, node after node, member after member: from
        when there is room for one more to one more resumption.
        """
        await self._make_bindings(where, count)
        grown = [(n * NODE_GPUS / per_second, request) for n, request in enumerate(self._growth(count // NODE_GPUS))]
        async with self._resuming(where, count, example, 0) as user:
            # Nothing fits at first: a member without nodes says so.
            await self._host.give_room(self._members, 0)
            async with watching(self._api, BINDINGS, where, RESUMED) as seen:
                began = time.time()
                await self._paced(where, grown)
                await seen.reach(count, _STALL_S)
        resumed = account(await self._log(where, seen.count, user), where, user).resumed
        log = await read_log(self._host.handle.audit_log, lambda _: True)
        opened = [(each.at, NODE_GPUS) for each in log if each.wrote(CAPACITIES.plural, "patch") and each.at >= began]
        await self._withdraw(where)
        return waits(sorted(opened), resumed.values())

    async def _paced(self, where: str, timed: list[tuple[float, Request]]) -> None:
        """Send at these times, and say so where that was not possible."""
        late = await open_loop(self._api, timed)
        if late > _LATE_S:
            self._report.remarks.append(f"{where}: a request left {late * 1000:.0f} ms late; the pace was not even")

    def _growth(self, nodes: int) -> Iterator[Request]:
        """One node more with each request, in one member after the other."""
        for number in range(nodes):
            obj = capacity_object(self._members[number % len(self._members)], number // len(self._members) + 1)
            path = CAPACITIES.path(obj["metadata"]["namespace"], obj["metadata"]["name"])
            yield Request("PATCH", path, orjson.dumps({"spec": obj["spec"]}), MERGE_PATCH)

    async def _log(self, where: str, resumed: int, user: str = DISPATCHER_ACCOUNT) -> list[audit.Event]:
        """All of a namespace, once that many resumptions are in it."""
        log = self._host.handle.audit_log
        return await read_log(log, lambda all_: len(account(all_, where, user).resumed) >= resumed, where)

    async def _make_bindings(self, where: str, count: int) -> list[dict[str, Any]]:
        await namespace(self._api, where)
        objects = [numbered_binding(where, number) for number in range(count)]
        answers = await send(self._host.handle, [creation(BINDINGS, obj) for obj in objects])
        return [orjson.loads(answer) for answer in answers]

    async def _offer(self, count: int) -> float:
        """Publish room for all; when the first of it was there, by the wall clock that audit logs use too."""
        nodes = -(-count * 5 // (4 * len(self._members) * NODE_GPUS))
        began = time.time()
        await self._host.give_room(self._members, nodes)
        return began

    async def _withdraw(self, where: str) -> None:
        for name in self._members:
            await clear(self._api, CAPACITIES, keys.execution_namespace(name))
        await clear(self._api, BINDINGS, where)


def _add_writes(report: Report, case: str, turns: list[Turn], count: int) -> None:
    dispatched = sum(len(turn.resumed) for turn in turns)
    for metric, writes in (
        ("writes_per_dispatch", sum(turn.patches for turn in turns)),
        ("reason_writes_per_dispatch", sum(turn.reasons for turn in turns)),
    ):
        report.add(case, metric, writes / max(dispatched, 1), "1/binding")
    report.add(case, "refused_writes", sum(turn.refused for turn in turns), "writes")
    report.add(case, "bindings_dispatched", dispatched, f"of {count}")


async def _whole(report: Report, count: int, bound: float, directory: Path, told: Progress) -> None:
    """Decisions while control and agents carry them out; the queue is opened once everything waits in it."""
    told(f"{count} jobs through a whole federation")
    federation = AtollFederation(endtoend.config(3, -(-count // (2 * NODE_GPUS))), directory, on_progress=told)
    async with federation, await federation.host.connect() as api:
        where = "whole"
        await namespace(api, where, {keys.ENABLED: "true"})
        queue = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": _QUEUE}}
        await api.create(QUEUES, {**queue, "spec": {"capability": {GPU: "0"}}})
        jobs = [endtoend.job_object(where, f"whole-{number:06}", 60.0, queue=_QUEUE) for number in range(count)]
        async with watching(api, QUEUES, None, b'"pending":%d' % count) as waiting:
            await send(federation.host, [creation(JOBS, obj) for obj in jobs])
            if not await waiting.reach(1, 60 + count / 10):
                raise RuntimeError(f"queue {_QUEUE} does not say that {count} jobs wait in it")
        async with watching(api, BINDINGS, where, RESUMED) as seen:
            began = time.time()
            await api.merge_patch(QUEUES, _QUEUE, {"spec": {"capability": {GPU: str(count)}}})
            await seen.reach(count, _STALL_S)
        log = federation.host.audit_log
        turn = account(await read_log(log, lambda all_: len(account(all_, where).resumed) >= seen.count, where), where)
    case = f"{count} waiting jobs, control and agents at work"
    report.add(case, "decisions_per_s", rate(len(turn.resumed), max(turn.resumed.values()) - began), "1/s", bound)
    _add_writes(report, case, [turn], count)


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
