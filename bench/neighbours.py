"""What a tenant notices of its neighbours: how long its bindings wait for their dispatch, alone and beside trouble.

The trouble, all at once: 60 clients that connect to the dispatcher's ports and say nothing; 500 bindings of another
namespace of which the API server answers every write with a 500, for a webhook of that namespace does not answer; and a
member of 256 ClusterCapacity objects that it writes again and again. The same dispatcher, the same server and the same
pace in both cases, in turns; times are those of the server's audit log. The dispatcher must hold its lease all the
time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, LEASES, VALIDATING_WEBHOOKS
from bench import machine
from bench.dispatch import account
from bench.host import RESUMED, Dispatcher, Host, installed
from bench.load import clear, creation, measured, namespace, open_loop, read_log, send, watching
from bench.objects import NODE_GPUS, numbered_binding
from bench.report import Progress, Report, percentile, progress, run

NAME = "neighbours"
DESCRIPTION = "Latency of a tenant's dispatches beside slow clients, refused writes and a member that talks too much."
BOUND = "the same tenant at the same pace without the neighbours, in turns in the same run; smaller is better"
FULL: dict[str, Any] = {
    "bindings": 400,
    "per_second": 20.0,
    "repeats": 3,
    "clients": 60,
    "refused": 500,
    "objects": 256,
    "updates_per_s": 50.0,
}
QUICK: dict[str, Any] = {
    "bindings": 30,
    "per_second": 10.0,
    "repeats": 1,
    "clients": 60,
    "refused": 50,
    "objects": 32,
    "updates_per_s": 20.0,
}
TARGET = 2.0
_REFUSED = "bench-refused"
_LIAR = "liar"
_CLASSES = 16
"""Of nodes, in each object of the member that talks too much."""
_STALL_S = 60.0


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--bindings", type=int, help="of the tenant, in each turn")
    parser.add_argument("--per-second", type=float, help="how many of them are created in a second")
    parser.add_argument("--repeats", type=int, help="turns with and without the neighbours")
    parser.add_argument("--clients", type=int, help="that connect and say nothing")
    parser.add_argument("--refused", type=int, help="bindings of which every write is refused")
    parser.add_argument("--objects", type=int, help="ClusterCapacity objects of a member")
    parser.add_argument("--updates-per-s", type=float, help="writes of these objects in a second")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    return measured(chosen, told, _measure, NAME, QUICK, FULL, bound=BOUND)


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    found: dict[str, list[float]] = {"alone": [], "beside": []}
    others = []
    async with installed(directory, told) as host:
        members = ["member1", "member2"]
        await host.add_members([*members, _LIAR])
        nodes = 2 * params["repeats"] * params["bindings"] // NODE_GPUS + params["refused"]
        await host.give_room(members, nodes)
        await namespace(host.api, _REFUSED)
        async with host.dispatcher(query=True) as dispatcher:
            await dispatcher.leads()
            before = await _lease(host.api)
            for number in range(params["repeats"]):
                for kind in ("alone", "beside") if number % 2 == 0 else ("beside", "alone"):
                    told(f"{kind}, repeat {number + 1} of {params['repeats']}")
                    sample = host.sample()
                    async with _neighbours(host, dispatcher, params) if kind == "beside" else contextlib.nullcontext():
                        found[kind] += await _arriving(host, f"{kind}-{number}", params)
                    others.append(machine.others(sample, host.sample()))
            after = await _lease(host.api)
    case = f"{params['bindings'] * params['repeats']} bindings at {params['per_second']:g}/s"
    for percent in (50, 99):
        alone, beside = (percentile(found[kind], percent) * 1000 for kind in ("alone", "beside"))
        report.add(case, f"latency_p{percent}", beside, "ms", alone)
    report.add(case, "leader_changes", float(before != after), "changes")
    report.add(case, "dispatched", len(found["beside"]), "bindings", len(found["alone"]))
    report.add("the machine", "used_by_others", max(others), "share")
    if max(others) > machine.QUIET:
        report.remarks.append(f"DISTURBED: others used up to {max(others):.0%} of the machine")
    ratio = percentile(found["beside"], 50) / percentile(found["alone"], 50)
    report.remarks.append(f"target: P50 at most {TARGET:g} times that without neighbours: {ratio:.2f}; "
                          f"{'met' if ratio <= TARGET and before == after else 'MISSED'}")  # fmt: skip


async def _lease(api: ApiServer) -> tuple[str, int]:
    """Who leads, and how often that changed."""
    spec = (await api.get(LEASES, "atoll-dispatcher", keys.SYSTEM_NAMESPACE))["spec"]
    return spec["holderIdentity"], spec.get("leaseTransitions") or 0


async def _arriving(host: Host, where: str, params: dict[str, Any]) -> list[float]:
    """Seconds from creation to resumption of bindings that arrive at an even pace while there is room."""
    count = params["bindings"]
    await namespace(host.api, where)
    async with watching(host.api, BINDINGS, where, RESUMED) as seen:
        pace = params["per_second"]
        await open_loop(host.api, [(n / pace, creation(BINDINGS, numbered_binding(where, n))) for n in range(count)])
        await seen.reach(count, _STALL_S)
    log = host.handle.audit_log
    events = await read_log(log, lambda all_: len(account(all_, where).resumed) >= seen.count, where)
    created, resumed = audit.creation_times(events, BINDINGS.plural), account(events, where).resumed
    await clear(host.api, BINDINGS, where)
    return [resumed[key] - created[key] for key in resumed if key in created]


@contextlib.asynccontextmanager
async def _unwritable(host: Host, count: int) -> AsyncIterator[None]:
    """So many bindings that can't be changed: the server answers with a 500."""
    rule = {
        "apiGroups": [BINDINGS.group],
        "apiVersions": ["*"],
        "resources": [BINDINGS.plural],
        "operations": ["UPDATE"],
    }
    webhook = {
        "name": "away.bench.atoll.sh",
        "clientConfig": {"url": "https://127.0.0.1:1"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": _REFUSED}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    about = {"apiVersion": VALIDATING_WEBHOOKS.api_version, "kind": VALIDATING_WEBHOOKS.kind}
    await host.api.create(VALIDATING_WEBHOOKS, {**about, "metadata": {"name": "bench"}, "webhooks": [webhook]})
    await send(host.handle, [creation(BINDINGS, numbered_binding(_REFUSED, n)) for n in range(count)])
    try:
        yield
    finally:
        await host.api.delete(VALIDATING_WEBHOOKS, "bench")
        await clear(host.api, BINDINGS, _REFUSED)


@contextlib.asynccontextmanager
async def _neighbours(host: Host, dispatcher: Dispatcher, params: dict[str, Any]) -> AsyncIterator[None]:
    """The trouble, from when it has begun until it is over; the refused bindings are there all the time."""
    async with contextlib.AsyncExitStack() as stack:
        for number in range(params["clients"]):
            port = dispatcher.ports[number % len(dispatcher.ports)]
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"G")
            stack.callback(writer.close)
        await send(
            host.handle, [creation(CAPACITIES, _capacity(n, 1, params["objects"])) for n in range(params["objects"])]
        )
        talks = asyncio.create_task(_talk(host, params["objects"], params["updates_per_s"]))
        try:
            yield
        finally:
            talks.cancel()
            await asyncio.gather(talks, return_exceptions=True)
            await clear(host.api, CAPACITIES, keys.execution_namespace(_LIAR))


async def _talk(host: Host, objects: int, per_second: float) -> None:
    """Write the objects again and again, with other figures, and now and then with other nodes."""
    for number in range(100_000):
        obj = _capacity(number % objects, 2 + number // objects, objects, nodes=1 + number // objects % 3)
        meta = obj["metadata"]
        await host.api.merge_patch(CAPACITIES, meta["name"], {"spec": obj["spec"]}, meta["namespace"])
        await asyncio.sleep(1 / per_second)


def _capacity(number: int, generation: int, objects: int, nodes: int = 1) -> dict[str, Any]:
    """One of the liar's objects: nodes that hold nothing that the tenant asks for."""
    root = f"root-{number}"
    classes = [
        {"domain": root, "profile": 0, "nodes": nodes, "free": {"cpu": 1000 + 100 * each + generation, "pods": 10}}
        for each in range(_CLASSES)
    ]
    return {
        "apiVersion": CAPACITIES.api_version,
        "kind": CAPACITIES.kind,
        "metadata": {"name": root, "namespace": keys.execution_namespace(_LIAR)},
        "spec": {
            "cluster": _LIAR,
            "generation": generation,
            "root": root,
            "objects": objects,
            "domains": [{"name": root, "tier": 1}],
            "profiles": [{}],
            "classes": classes,
        },
    }


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
