"""One run: the federation up, the stream through it while everything fails, then the verdict from its audit logs."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from tests.chaos import checks, drive, kubelets, plan, record
from tests.chaos.checks import Violation
from tests.chaos.connections import Connections
from tests.chaos.plan import Submission
from tests.chaos.player import Player
from tests.chaos.record import Facts, Record

log = structlog.get_logger(__name__)

EVERY_S = 0.9
"""Seconds from one fault to the next, on average."""


_ELECTION = {"lease-seconds": 5, "renew-deadline": 3.5, "retry-period": 1}
"""As QUICK_ELECTION, at pace 1."""
_PROGRESS = {"reserve": 10, "commit": 30, "regain": 30, "grow": 30}
"""The defaults of the dispatcher's deadlines."""
_HEARTBEAT = {"period": 1, "silent": 4, "duration": 6, "fence": 6}
MOVES = ("--moved-gangs-per-hour=10000", "--set=core.preemption.protection=0", "--set=core.defragmentation.pause=1",
          "--set=core.defragmentation.longestPause=5", "--set=core.defragmentation.restart=0")  # fmt: skip
"""Gangs move as soon as another one waits for a rack."""
_OTHERS_S = 5.0
"""Between two other workloads where gangs move."""
_FACTS = "chaos.json"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    facts: Facts
    record: Record
    violations: Sequence[Violation]

    @property
    def good(self) -> bool:
        """Whether work was done, faults were played to the end, and nothing violates a check."""
        return bool(self.facts.spans and self.record.pods) and not (self.violations or self.facts.broken)


async def run(
    seed: int,
    seconds: float,
    directory: Path,
    *,
    every: float = EVERY_S,
    pace: float = 1.0,
    patience: float = drive.PATIENCE_S,
    moves: bool = False,
    warm: bool = False,
    shards: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> Facts:
    """Everything but the verdict; nothing is left running.

    Args:
        seed: of workloads and faults. The moments at which they meet are the machine's own.
        seconds: how long workloads come and faults are played, at pace 1.
        directory: data, logs and audit logs.
        every: seconds from one fault to the next, at pace 1.
        pace: every wait is so many times as long; see `pace.measured`.
        patience: seconds after the last fault within which all must be over.
        moves: gangs are in racks, and move for others.
        warm: standbys of the dispatcher follow everything before they lead.
        shards: of control, each with a leader.
        say: gets a line per step.
    """
    facts = Facts(seed, seconds, pace, moves)
    wishes = _wishes(facts)
    connections = Connections(directory / "proxies", seed, lambda name: player.kill(name))
    federation = stage(directory, connections, pace=pace, moves=moves, warm=warm, shards=shards, say=say)
    player = Player(federation, connections, seed, every=every, pace=pace)
    try:
        async with federation, clients(federation) as (host, members):
            await drive.prepare(host, pace=pace)
            say(f"{len(wishes)} workloads and faults for {seconds * pace:g} s")
            users = drive.Drive(host, wishes, pace=pace)
            await play(users, _timed(player, seconds * pace), facts, wishes, members, patience, say)
            facts.repeated = users.repeated
            facts.pods_left = await kubelets.left(members, directory / "logs")
    except Exception as error:
        # What was seen until then is judged all the same.
        log.exception("the run broke")
        facts.broken = repr(error)
    finally:
        await connections.stop()
    facts.spans, facts.checkpoints = player.spans, player.checkpoints
    facts.missed = dict(player.missed)
    facts.kills, facts.killed_at = dict(player.kills), sorted(player.killed_at.items())
    (directory / _FACTS).write_bytes(msgspec.json.encode(facts))
    return facts


async def _timed(player: Player, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await player.run()


def _wishes(facts: Facts) -> list[Submission]:
    if facts.moves:
        # Few others, so that half of most racks is free.
        return plan.in_racks(plan.generate(facts.seed, facts.seconds, every=_OTHERS_S), facts.seconds)
    return plan.generate(facts.seed, facts.seconds)


def stage(
    directory: Path,
    connections: Connections,
    *,
    pace: float,
    say: Callable[[str], None],
    moves: bool = False,
    warm: bool = False,
    shards: int = 1,
) -> AtollFederation:
    """A federation with standbys, each of its connections through a proxy; members are lost within seconds."""
    flags = deadlines(pace)
    if moves:
        flags["dispatcher"] += MOVES
    if warm:
        flags["dispatcher"] += ("--set=shell.warm=true",)
    flags["control"] += (f"--shards={shards}",)
    return AtollFederation(
        plan.LAYOUT,
        directory,
        replicas={"control": shards + 1, "dispatcher": 2},
        flags=flags,
        through=connections.through,
        on_progress=say,
    )


def deadlines(pace: float) -> dict[str, tuple[str, ...]]:
    """Flags of each process, for deadlines that are `pace` times as long."""
    election = tuple(f"--{name}={seconds * pace:g}" for name, seconds in _ELECTION.items())
    progress = (f"--set=core.progress.{name}={seconds * pace:g}" for name, seconds in _PROGRESS.items())
    # A Lease has whole seconds.
    heartbeat = (f"--set=heartbeat.{name}={math.ceil(seconds * pace)}" for name, seconds in _HEARTBEAT.items())
    return {"control": election, "dispatcher": (*election, *progress), "agent": (*election, *heartbeat)}


async def play(
    users: drive.Drive,
    faults: Coroutine[Any, Any, None],
    facts: Facts,
    wishes: Sequence[Submission],
    members: Mapping[str, ApiServer],
    patience: float,
    say: Callable[[str], None],
) -> None:
    """Have the users submit and the faults happen at the same time, and gather what becomes of it."""
    submitting = asyncio.create_task(users.submit())
    looking = asyncio.create_task(kubelets.look_again(members, facts.pace))
    try:
        await faults
        say("the faults are over; waiting for the rest of the workloads")
        await submitting
        facts.final = await users.finish(wishes, patience)
        facts.unreturned = await users.probe()
        facts.astray = await users.services(members)
        say("deleting everything")
        facts.left = await users.clear(members)
    finally:
        submitting.cancel()
        looking.cancel()


def judge(facts: Facts, logs: Path) -> Outcome:
    """The verdict on a run, from its facts and its audit logs."""
    return judge_of(facts, _wishes(facts), logs)


def judge_of(
    facts: Facts,
    wishes: Sequence[Submission],
    logs: Path,
    since: float = 0.0,
    undone: tuple[float, float] | None = None,
) -> Outcome:
    """The same of any workloads.

    Args:
        facts: of the run.
        wishes: the workloads.
        logs: audit logs of all clusters.
        since: events before that are of no account.
        undone: between these moments nothing happened in the end: the store went back from the second to the first.
    """
    found = Record(
        plan.by_name([*wishes, *plan.probes()]), plan.capabilities(), plan.allocatable(), facts.spans,
        {**dict.fromkeys((wish.name for wish in wishes), drive.UNREAD), **facts.final}, facts.left, facts.unreturned,
        facts.astray, pace=facts.pace,
    )  # fmt: skip
    clusters = (record.HOST, *(member.name for member in plan.LAYOUT.members))
    kept = {name: logs / f"{name}-audit.log" for name in clusters}
    events = {name: _counted(audit.read(path), since, undone) for name, path in kept.items() if path.exists()}
    record.build(found, events, facts.checkpoints)
    return Outcome(facts, found, checks.judge(found))


def _counted(events: Iterable[audit.Event], since: float, undone: tuple[float, float] | None) -> Iterator[audit.Event]:
    return (
        event for event in events if event.at >= since and not (undone is not None and undone[0] < event.at < undone[1])
    )


def judge_kept(directory: Path) -> Outcome:
    """The verdict on a run that was kept, by the checks as they are now."""
    facts = msgspec.json.decode((directory / _FACTS).read_bytes(), type=Facts)
    return judge(facts, directory / "logs")


@contextlib.asynccontextmanager
async def clients(federation: AtollFederation) -> AsyncIterator[tuple[ApiServer, dict[str, ApiServer]]]:
    """The administrator's clients of host and members; they go through no proxy."""
    async with contextlib.AsyncExitStack() as stack:
        host = await stack.enter_async_context(await federation.host.connect())
        members = {
            name: await stack.enter_async_context(await each.connect()) for name, each in federation.members.items()
        }
        yield host, members
