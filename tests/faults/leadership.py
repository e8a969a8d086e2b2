"""What becomes of decisions when the leading dispatcher dies, is cut off, or does not run for a while.

`python -m tests.faults.leadership --times 10` starts a federation and two dispatchers (lease 5 s, renew deadline 3 s),
each behind a proxy, and prints a table. A fault is played in the middle of a burst of workloads, at a decision that is
on its way. What happened is read from the host's audit log, in which each dispatcher has its proxy's mark.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from atoll import install
from atoll.local import audit
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.keeper import KeptProcess
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec
from atoll.model import keys
from atoll.model.apiresource import LEASES
from tests.faults.proxies import Proxies
from tests.faults.proxy import FaultProxy, Request
from tests.integration.federation import DEADLINE, Site, job, member, until

LEASE_S = 5.0
BOUND_S = LEASE_S + 2
"""By then the standby must have decided."""
_BURST = 12
_AFTER_S = 1.5
"""Seconds for which the old leader is watched once it can act again."""
_EPOCH = "/metadata/annotations/atoll.sh~1epoch"


class Loss(StrEnum):
    """How a leader is lost."""

    KILLED = "SIGKILL"
    CUT = "cut off"
    STOPPED = "SIGSTOP"


@dataclass(frozen=True)
class Candidate:
    """One dispatcher and its way to the host."""

    process: KeptProcess
    proxy: FaultProxy


@dataclass(frozen=True)
class Round:
    """One loss of a leader."""

    loss: Loss
    #: seconds from the loss to the standby's first decision
    takeover: float
    #: writes of the old leader that arrived after the standby's first: refused by the tests in them, or carried out
    #: (and adopted by the new leader, whose own write for that binding is refused)
    late_refused: int
    late_done: int
    #: those among them that it sent when it could act again, rather than before
    fresh: int
    #: decisions written for a (binding, epoch) that had one
    doubled: int


@asynccontextmanager
async def candidates(federation: AtollFederation, directory: Path) -> AsyncIterator[list[Candidate]]:
    """Two dispatchers in place of the federation's own, which must not run."""
    kubeconfig = install.kubeconfig_of(federation.atoll.credentials, "dispatcher")
    async with AsyncExitStack() as stack:
        proxies = await stack.enter_async_context(Proxies(directory, seed=1))
        found = []
        for name, port in zip(("dispatcher-a", "dispatcher-b"), free_ports(2), strict=True):
            flags = [
                f"--kubeconfig={proxies.through(name, kubeconfig)}",
                f"--health-port={port}",
                "--query-port=0",
                *QUICK_ELECTION,
            ]
            spec = ProcessSpec(
                name=name,
                argv=[sys.executable, "-m", "atoll.dispatcher", *flags],
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                ready_url=f"http://127.0.0.1:{port}/readyz",
            )
            process = KeptProcess(spec, federation.federation.directory / "logs")
            await process.start()
            stack.push_async_callback(process.stop)
            found.append(Candidate(process, proxies[name]))
        await asyncio.gather(*(each.process.ready() for each in found))
        yield found


async def play(site: Site, pair: Sequence[Candidate], loss: Loss, *, number: int = 0, early: bool = False) -> Round:
    """Lose the leader once, wait until the standby decides and the old leader has had its chance to do harm.

    Args:
        site: a namespace without bindings.
        pair: the dispatchers.
        loss: how.
        number: in the names of the workloads.
        early: let the old leader act again while the new one is at its first decisions, not only after them all.
    """
    leader = await _leader(site, pair)
    standby = next(each for each in pair if each is not leader)
    struck: asyncio.Future[tuple[float, str]] = asyncio.get_running_loop().create_future()

    def strike(request: Request) -> None:
        # A binding of an earlier test may still be written.
        mine = request.about("resourcebindings") and request.namespace == site.namespace
        if request.method == "PATCH" and mine and not struck.done():
            struck.set_result((time.time(), request.name))
            _lose(leader, loss)

    leader.proxy.on_request = strike
    names = [f"{loss.name.lower()}-{number}-{index}" for index in range(_BURST)]
    for name in names:
        await site.submit(job(name, seconds=0.1, ttlSecondsAfterFinished=5))
    lost_at, held_back = await asyncio.wait_for(struck, DEADLINE)
    # Somebody must be waiting for the new leader, or it has nothing to decide.
    await site.submit(job(f"{names[0]}-later", seconds=0.1, ttlSecondsAfterFinished=5))

    async def taken_over() -> float | None:
        return next((each.at for each in _decided(site, standby) if each.at > lost_at), None)

    decided_at = await until(taken_over, what=f"the standby decides after {loss}")
    if not early:

        async def all_decided() -> bool:
            # A decision whose writer was killed before the answer may have been carried out all the same.
            written = [each for one in pair for each in _writes(site, one) if each.ok or each.unknown]
            return len({each.object_ref.name for each in written if _epoch(each)}) > _BURST

        await until(all_decided, what="everything that waits is decided")
    leader.proxy.on_request = None
    held = leader.proxy.held

    def late() -> list[audit.Event]:
        return [each for each in _writes(site, leader) if each.request_received_timestamp.timestamp() > decided_at]

    if loss is Loss.CUT:
        leader.proxy.heal()

        async def arrived() -> bool:
            return any(each.object_ref.name == held_back for each in late())

        await until(arrived, what=f"what was sent for {held_back} before the cut arrives")
    elif loss is Loss.STOPPED:
        leader.process.signal(signal.SIGCONT)
    else:
        await leader.process.ready()
    # Long enough for whatever was held back to arrive, and for an old leader to write once more.
    await asyncio.sleep(_AFTER_S)
    writes = late()
    return Round(
        loss,
        decided_at - lost_at,
        sum(1 for each in writes if each.response_status.code in (404, 409, 422)),
        sum(1 for each in writes if each.ok or each.unknown),
        max(len(writes) - held, 0),
        sum(count - 1 for count in _decisions(site, pair).values()),
    )


def _lose(leader: Candidate, loss: Loss) -> None:
    match loss:
        case Loss.KILLED:
            leader.process.kill()
        case Loss.CUT:
            leader.proxy.cut()
        case Loss.STOPPED:
            leader.process.signal(signal.SIGSTOP)


async def _leader(site: Site, pair: Sequence[Candidate]) -> Candidate:
    async def look() -> Candidate | None:
        lease = await site.host.get(LEASES, "atoll-dispatcher", keys.SYSTEM_NAMESPACE)
        holder = str(lease["spec"].get("holderIdentity") or "")
        return next((each for each in pair if holder.endswith(f"-{each.process.pid}")), None)

    return await until(look, what="one of the two leads")


# -- the audit log -----------------------------------------------------------------------------------------------------


def _writes(site: Site, candidate: Candidate) -> list[audit.Event]:
    """Writes to bindings of this test by one dispatcher, in the order in which they were answered."""
    log = site.federation.host.audit_log
    mark = f"({candidate.proxy.mark.decode()})"
    return [
        event
        for event in audit.read(log)
        if event.verb == "patch"
        and event.object_ref.resource == "resourcebindings"
        and event.object_ref.namespace == site.namespace
        and event.user_agent.endswith(mark)
        and event.stage == "ResponseComplete"
    ]


def _epoch(event: audit.Event) -> str | None:
    """The epoch that a decision raises its binding to; None for other writes."""
    found = [each["value"] for each in event.body() or () if each["op"] == "replace" and each["path"] == _EPOCH]
    return found[0] if found else None


def _decided(site: Site, candidate: Candidate) -> Iterable[audit.Event]:
    return (event for event in _writes(site, candidate) if event.ok and _epoch(event))


def _decisions(site: Site, pair: Sequence[Candidate]) -> Counter[tuple[str, str, str]]:
    """How often each (binding, UID, epoch) was decided with success."""
    found: Counter[tuple[str, str, str]] = Counter()
    for candidate in pair:
        for event in _decided(site, candidate):
            uid = next(each["value"] for each in event.body() if each["path"] == "/metadata/uid")
            found[event.object_ref.name, uid, _epoch(event) or ""] += 1
    return found


# -- the table ---------------------------------------------------------------------------------------------------------


def table(rounds: Sequence[Round]) -> str:
    """A line per kind of loss, for docs."""
    lines = [
        f"| leader lost by | times | standby decides after: min / median / max | within {BOUND_S:g} s "
        "| late writes: refused | carried out and adopted | sent after the loss | decided twice |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for loss in Loss:
        mine = [each for each in rounds if each.loss is loss]
        if not mine:
            continue
        times = [each.takeover for each in mine]
        lines.append(
            f"| {loss} | {len(mine)} | {min(times):.2f} / {statistics.median(times):.2f} / {max(times):.2f} s "
            f"| {sum(each <= BOUND_S for each in times)} | {sum(each.late_refused for each in mine)} "
            f"| {sum(each.late_done for each in mine)} | {sum(each.fresh for each in mine)} "
            f"| {sum(each.doubled for each in mine)} |"
        )
    return "\n".join(lines)


async def _main(times: int, losses: Sequence[Loss]) -> int:
    rounds: list[Round] = []
    try:
        await _rounds(times, losses, rounds)
    finally:
        # What was seen is worth reading even where a round fails.
        print(table(rounds))
    return int(any(each.takeover > BOUND_S or each.doubled or each.fresh for each in rounds))


async def _rounds(times: int, losses: Sequence[Loss], rounds: list[Round]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = FederationConfig(members=[member("alpha", 8)])
        async with (
            AtollFederation(config, Path(folder) / "federation", leave_out=["atoll-dispatcher"]) as federation,
            await federation.host.connect() as host,
            await federation.members["alpha"].connect() as alpha,
            candidates(federation, Path(folder) / "proxies") as pair,
        ):
            for number in range(times):
                for loss in losses:
                    # A namespace for each round: its part of the audit log is the round's own.
                    site = Site(federation, host, {"alpha": alpha})
                    await site.open()
                    rounds.append(await play(site, pair, loss, number=number, early=number % 2 == 1))
                    print(f"{len(rounds)}/{times * len(losses)} {rounds[-1]}", file=sys.stderr, flush=True)
                    await site.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=10, help="of each kind (default: 10)")
    parser.add_argument("--loss", choices=[each.name.lower() for each in Loss], help="only this kind")
    given = parser.parse_args()
    sys.exit(asyncio.run(_main(given.times, [Loss[given.loss.upper()]] if given.loss else list(Loss))))
