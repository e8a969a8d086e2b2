"""How long a dispatcher that takes over needs until its first decision, with many bindings in the API server.

It must read every binding before it may decide anything, so the bound is the time in which the same API server gives
the same bindings, page by page, to a client that does nothing with them, measured in the same run. The dispatcher's
time runs from the moment at which it holds the lease (its own log) until its first decision arrives (the audit log of
the server). Half of the bindings run, the others wait; members are objects.

Then another one stands by, which has read everything, and the leader is killed while it decides.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from atoll.model import decision, keys
from atoll.model.apiresource import BINDINGS
from atoll.model.verdict import Reason
from bench import machine
from bench.follower import read_and_discard
from bench.host import DISPATCHER_ACCOUNT, RESUMED, Dispatcher, Host, installed
from bench.load import measured, namespace, read_log, watching
from bench.objects import NODE_GPUS, STAMP, condition, numbered_binding
from bench.report import Progress, Report, median, progress, run
from bench.seed import put

NAME = "restart"
DESCRIPTION = "From holding the lease to the first decision of a dispatcher that takes over."
BOUND = (
    "a bare aiohttp client that reads the same bindings page by page (500) from the same API server and drops them, "
    "before each restart of the same run; medians; smaller is better"
)
FULL: dict[str, Any] = {"members": 3, "bindings": 20_000, "repeats": 3}
QUICK: dict[str, Any] = {"members": 3, "bindings": 500, "repeats": 1}
TARGET = 2.0
_WHERE = "restart"
_SPARE = "spare"
"""A member without nodes until a standby is to take over."""


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--members", type=int, help="members, which are objects only")
    parser.add_argument("--bindings", type=int, help="bindings, half of them dispatched already")
    parser.add_argument("--repeats", type=int, help="restarts, each after a list by the bare client")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    return measured(chosen, told, _measure, NAME, QUICK, FULL, bound=BOUND)


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    async with installed(directory, told) as host:
        members = [f"member{number}" for number in range(1, params["members"] + 1)]
        await host.add_members([*members, _SPARE])
        # Room for an eighth of them: there is something to decide after every restart.
        await host.give_room(members, max(params["bindings"] // (8 * NODE_GPUS * len(members)), 1))
        told(f"{params['bindings']} bindings")
        await namespace(host.api, _WHERE)
        await put(host.federation, BINDINGS, (stored(number, members) for number in range(params["bindings"])))
        # The server has them in its cache once a consistent list shows them.
        size = await read_and_discard(host.api, BINDINGS)
        lists, starts, synced, others = [], [], [], []
        for number in range(params["repeats"]):
            told(f"list and restart {number + 1} of {params['repeats']}")
            before = host.sample()
            began = time.perf_counter()
            await read_and_discard(host.api, BINDINGS)
            lists.append(time.perf_counter() - began)
            until, until_synced, after = await _restart(host)
            starts.append(until)
            synced.append(until_synced)
            others.append(machine.others(before, after))
        told("takeover by a dispatcher that stands by")
        takeover, held = await _take_over(host, max(params["bindings"] // (8 * NODE_GPUS), 8))
    case = f"{params['bindings']} bindings, {params['members']} members"
    report.add(case, "lease_to_first_decision", median(starts), "s", median(lists))
    report.add(case, "lease_to_all_read", median(synced), "s", median(lists))
    for number, (start, listed) in enumerate(zip(starts, lists, strict=True), start=1):
        report.add(f"repeat {number}", "lease_to_first_decision", start, "s", listed)
    report.add(case, "takeover_lease_to_first_decision", takeover, "s")
    report.add(case, "standby_memory", held, "MB")
    report.add(case, "bindings_listed", size / 1e6, "MB")
    report.add("the machine", "used_by_others", max(others), "share")
    if max(others) > machine.QUIET:
        report.remarks.append(f"DISTURBED: others used up to {max(others):.0%} of the machine")
    ratio = median(starts) / median(lists)
    report.remarks.append(f"target: at most {TARGET:g} times the list; {'met' if ratio <= TARGET else 'MISSED'}")


async def _restart(host: Host) -> tuple[float, float, machine.Sample]:
    """Seconds from holding the lease to the first decision, and to having read everything; the clocks afterwards."""
    async with watching(host.api, BINDINGS, _WHERE, RESUMED) as seen:
        began = time.time()
        async with host.dispatcher() as dispatcher:
            if not await seen.reach(1, 120.0):
                raise RuntimeError(f"no decision within 120 s, see {dispatcher.process.log}")
            after = host.sample()

    def first(events: list[Any]) -> list[float]:
        return [
            each.request_received_timestamp.timestamp()
            for each in events
            if each.user.username == DISPATCHER_ACCOUNT and each.wrote(BINDINGS.plural, "patch") and each.at >= began
        ]

    events = await read_log(host.handle.audit_log, lambda all_: bool(first(all_)), _WHERE)
    at = _said(dispatcher)
    return min(first(events)) - at["leading"], at["all read"] - at["leading"], after


async def _take_over(host: Host, nodes: int) -> tuple[float, float]:
    """Seconds from holding the lease to the first decision of one that stood by; megabytes that it had by then."""
    async with host.dispatcher() as leader:
        await leader.leads()
        async with host.dispatcher("standby", "--set=shell.warm=true") as standby:
            await standby.follows()
            memory = machine.resident(standby.process.pid)
            assert leader.process.pid
            os.kill(leader.process.pid, signal.SIGKILL)
            await leader.process.wait()
            async with watching(host.api, BINDINGS, _WHERE, RESUMED) as seen:
                # Nothing else decides until its lease has expired.
                await host.give_room([_SPARE], nodes)
                # The first may be the standby's mark on a binding that runs.
                if not await seen.reach(2, 120.0):
                    raise RuntimeError(f"no decision within 120 s, see {standby.process.log}")
    at = _said(standby)
    # Its mark on a binding is a patch as well: only its log tells decisions apart, once they are answered.
    return at["dispatched"] - at["leading"], memory / 1e6


def _said(dispatcher: Dispatcher) -> dict[str, float]:
    """When it logged each event first, in seconds since the epoch."""
    lines = dispatcher.process.log.read_bytes().splitlines()
    told = [orjson.loads(line) for line in lines if line.startswith(b"{")]
    return {line["event"]: datetime.fromisoformat(line["timestamp"]).timestamp() for line in reversed(told)}


def stored(number: int, members: list[str]) -> dict[str, Any]:
    """A binding as it lies in the store; every second one runs in a member."""
    obj = numbered_binding(_WHERE, number)
    meta = obj["metadata"]
    meta.update(uid=f"{number:08x}-0000-4000-8000-{number:012x}", creationTimestamp=STAMP, generation=1)
    if number % 2:
        return obj
    member = members[number // 2 % len(members)]
    line = decision.Line("2026-01-01T00:00:01.000Z", decision.Phase.DISPATCHED, Reason.DISPATCHED, f"to {member}")
    told = decision.Decision(1, decision.Phase.DISPATCHED, Reason.DISPATCHED, None, "2026-01-01T00:00:31.000Z", [line])
    meta["generation"] = 2
    meta["annotations"] |= {keys.EPOCH: "1", keys.DECISION: decision.encode(told)}
    obj["spec"] |= {"clusters": [{"name": member, "replicas": 1}], "suspension": {"scheduling": False}}
    placement = {"generation": 1, "nodes": {f"node-{number:05}": 1}}
    obj["status"] = {
        "conditions": [condition(kind) for kind in ("Scheduled", "FullyApplied", "Bound")],
        "aggregatedStatus": [{"clusterName": member, "applied": True, "status": {"placement": placement}}],
    }
    return obj


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
