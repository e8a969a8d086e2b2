"""Real processes under load: what they leave when they are asked to end, and what their logs say."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

BOUND = 5.0
"""The default of --drain-seconds."""
ENDING = ("atoll-control", "atoll-dispatcher", "atoll-agent-alpha", "atoll-agent-beta")


async def end(federation: AtollFederation, *names: str) -> dict[str, int | None]:
    """SIGTERM to these processes at once: the exit code of each, 0 where it ended by itself within its bound."""
    # At the bound a process ends itself with code 1, long after it a signal gives -9.
    codes = await asyncio.gather(*(federation.process(name).stop(grace_s=4 * BOUND) for name in names))
    return dict(zip(names, codes, strict=True))


async def begin(federation: AtollFederation, *names: str) -> None:
    await asyncio.gather(*(federation.process(name).start() for name in names))
    await asyncio.gather(*(federation.process(name).ready() for name in names))


@contextmanager
def hanging_host(federation: AtollFederation) -> Iterator[None]:
    """The host's API server keeps its connections and answers nobody."""
    [pid] = [p.pid for p in federation.federation.processes.processes if p.spec.name == "host-apiserver"]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def cut_writes(federation: AtollFederation, asked: float, ended: float) -> list[str]:
    """Writes of Atoll's processes that were under way when they were to end, and whose client was gone before the answer.

    Others don't count: on a busy machine a leader loses its lease now and then, and must stop then whatever it is at.
    So do attempts on the lease: each has a deadline of its own, much shorter than the drain.
    """
    found = []
    for cluster in (federation.host, *federation.members.values()):
        for event in audit.read(cluster.audit_log):
            ours = event.user_agent.startswith("atoll-") and event.verb in audit.WRITES
            then = event.request_received_timestamp.timestamp() <= ended and event.at >= asked
            cut = event.unknown or event.response_status.code == 504
            if ours and then and cut and event.object_ref.resource != "leases":
                found.append(f"{cluster.name}: {event.user_agent} {event.verb} {event.object_ref.path}")
    return found


async def test_processes_that_end_under_load_cut_no_write_and_exit_0_in_time(
    site: Site, federation: AtollFederation
) -> None:
    names = [f"load{number}" for number in range(24)]
    submitting = asyncio.create_task(submit(site, names))
    try:

        async def busy() -> bool:
            return bool(await site.pods("alpha")) or bool(await site.pods("beta"))

        await until(busy, what="the first pods are made")
        asked = time.time()
        codes = await end(federation, *ENDING)
        ended = time.time()
    finally:
        await submitting
        await begin(federation, *ENDING)
    assert codes == dict.fromkeys(ENDING, 0)
    # The rest is done by those that come after; nothing that was written is missing.
    for name in names:
        await site.phase(name, "Completed")
    assert cut_writes(federation, asked, ended) == []


async def submit(site: Site, names: list[str]) -> None:
    for name in names:
        await site.submit(job(name, replicas=3, seconds=0.5))


async def test_an_api_server_that_hangs_does_not_hold_a_process_beyond_its_bound(
    site: Site, federation: AtollFederation
) -> None:
    try:
        await submit(site, [f"hang{number}" for number in range(5)])
        with hanging_host(federation):
            ended = await end(federation, "atoll-control", "atoll-dispatcher", "atoll-agent-topo")
    finally:
        await begin(federation, "atoll-control", "atoll-dispatcher", "atoll-agent-topo")
    assert set(ended.values()) == {0}


async def test_every_line_of_a_log_is_json_and_lines_about_a_workload_name_it(
    site: Site, federation: AtollFederation
) -> None:
    await site.submit(job("told", replicas=2, seconds=0.5))
    await site.phase("told", "Completed")
    member = await site.where("told")
    lines: dict[str, list[dict[str, Any]]] = {}
    nameless = []
    for name, process in federation.processes.items():
        lines[name] = [json.loads(line) for line in process.log.read_text().splitlines()]
        ours = [line for line in lines[name] if f"{site.namespace}/" in json.dumps(line)]
        nameless += [(name, line) for line in ours if "workload" not in line]
    assert nameless == []
    workload = f"{site.namespace}/told"
    about = {name: [line for line in each if line.get("workload") == workload] for name, each in lines.items()}
    [dispatched] = [line for line in about["atoll-dispatcher"] if line["event"] == "dispatched"]
    assert (dispatched["cycle"] > 0, dispatched["clusters"]) == (True, [member])
    agent = about[f"atoll-agent-{member}"]
    assert {"delivered", "job phase"} <= {line["event"] for line in agent}
    assert {line["cluster"] for line in lines[f"atoll-agent-{member}"]} == {member}
    assert not [name for name, each in lines.items() if "Bearer " in json.dumps(each)]
