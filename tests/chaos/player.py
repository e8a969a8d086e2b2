"""Plays the faults: one after the other at moments that the seed decides, several at a time."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from atoll.kube.errors import ApiError
from atoll.local.atoll_federation import AtollFederation
from atoll.local.keeper import KeptProcess
from atoll.model import keys
from atoll.model.apiresource import CLUSTERS, LEASES
from atoll.model.timestamps import rfc3339_micro, rfc3339_seconds
from tests.chaos import faults
from tests.chaos.connections import Connections, Trap, Write, component_of
from tests.chaos.faults import KILLS, MEMBERS, Card, Kind
from tests.chaos.record import HOST, Checkpoint, Span
from tests.chaos.servers import Servers
from tests.faults.play import EVENTS_ONLY, Fault
from tests.faults.proxy import FaultProxy

LEASE_S = 5.0
"""As in QUICK_ELECTION."""
CUT_S = (6.0, 26.0)
"""For how long a member is cut off: with less than the fence, between it and the host's own time, and with more."""
PATIENCE_S = 6.0
"""How long a fault waits for the request or the write that it is meant for."""
UNDER_WAY_S = 0.3
"""A write this soon after the death of its process was under way."""
LATELY_S = 20.0
"""A write that has not been seen for so long is not waited for: it may need what does not come again."""
_READY_S = 60.0


class Player:
    """The misfortune of one run."""

    def __init__(
        self, federation: AtollFederation, connections: Connections, seed: int, *, every: float, pace: float = 1.0
    ) -> None:
        """No I/O happens here.

        Args:
            federation: running.
            connections: the proxies in it.
            seed: of order and moments.
            every: seconds from one fault to the next, on average.
            pace: every wait is so many times as long.
        """
        self._federation, self._connections, self._every, self._pace = federation, connections, every, pace
        self._ready_s = _READY_S * pace
        self._servers = Servers(federation, self._ready_s)
        self._random = random.Random(f"player {seed}")
        self._deal = faults.deal(seed)
        #: cards that found nothing to hit, to be played again
        self._again: list[Card] = []
        #: fault -> how often it found nothing to hit
        self.missed: Counter[str] = Counter()
        #: what is down or cut now: a second fault of that kind there would only be taken for the first
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.spans: list[Span] = []
        self.checkpoints: list[Checkpoint] = []
        #: component -> kills
        self.kills: Counter[str] = Counter(dict.fromkeys(faults.COMPONENTS, 0))
        #: `before agent-alpha create alpha pods` -> kills at that moment
        self.killed_at: Counter[str] = Counter()
        #: proxy -> requests that had passed when a connection was last chosen
        self._passed: Counter[FaultProxy] = Counter()
        self._tried: Counter[tuple[str, Write, bool]] = Counter()

    async def run(self) -> None:
        """Play until cancelled; then wait until everything that is played is over and every process is back."""
        try:
            while True:
                await asyncio.sleep(self._lasts(0.5, 1.5) * self._every)
                self._start(self._next())
        finally:
            await self._end()

    async def _end(self) -> None:
        self._connections.calm()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in self._federation.processes.values():
            await process.ready(self._ready_s)

    def _lasts(self, least: float, most: float) -> float:
        """Seconds for which something lasts."""
        return self._random.uniform(least, most) * self._pace

    def _next(self) -> Card:
        if self._again and self._random.random() < 0.5:
            return self._again.pop(0)
        return next(self._deal)

    def _start(self, card: Card) -> None:
        task = asyncio.get_running_loop().create_task(self._play(card), name=card.name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _play(self, card: Card) -> None:
        try:
            if card.kind is Kind.WIRE:
                played = await self._wire(card)
            elif card.kind is Kind.OUTAGE:
                played = await self._outage(card)
            elif card.kind in MEMBERS:
                played = await self._member(card)
            elif card.kind in KILLS:
                played = await self._kill(card)
            else:
                played = await self._lease(card)
        except (ApiError, ProcessLookupError, RuntimeError):
            # What it was to hit is away because of another fault.
            played = False
        if not played:
            self.missed[card.name] += 1
            self._again.append(card)

    def _add(
        self, card: Card, began: float, *, harms: str, detail: str = "", process: str = "", quiet: float = 0.0
    ) -> None:
        """Note a fault that is over now; what harms a process of several can be made good from its beginning on."""
        ended = time.time()
        counted = ended if card.kind in (Kind.WIRE, Kind.OUTAGE, *MEMBERS) else began
        self.spans.append(Span(card.name, card.target, began, ended, harms, detail, counted, process, quiet))

    # -- kills -------------------------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """SIGKILL to a process that runs."""
        process = self._federation.process(name)
        if process.running:
            process.kill()
            self.kills[component_of(name)] += 1

    def _replicas(self, component: str) -> list[KeptProcess]:
        return [each for name, each in self._federation.processes.items() if component_of(name) == component]

    async def _kill(self, card: Card) -> bool:
        if card.kind is Kind.KILL:
            alive = [each for each in self._replicas(card.target) if each.running]
            if not alive:
                return False
            process, detail = self._random.choice(alive), ""
            began = time.time()
            self.kill(process.name)
        else:
            trap = self._trap(card)
            if trap is None:
                return False
            self._connections.traps.append(trap)
            try:
                async with asyncio.timeout(PATIENCE_S * self._pace):
                    await trap.sprung.wait()
            except TimeoutError:
                if trap in self._connections.traps:
                    self._connections.traps.remove(trap)
                return False
            began = time.time()
            when = "after" if trap.after else "before"
            cluster, verb, path = trap.write
            self.killed_at[f"{when} {trap.component} {verb} {path} on {cluster}"] += 1
            process, detail = self._federation.process(trap.process), " ".join(trap.write)
        await process.ready(self._ready_s)
        told = f"{process.name} {detail}".rstrip()
        self._add(
            card,
            began,
            harms=_harms(card.target),
            detail=told,
            process=process.name,
            quiet=began + UNDER_WAY_S * self._pace,
        )
        return True

    def _trap(self, card: Card) -> Trap | None:
        """Set at the kind of write at which this component was killed least often so far."""
        after = card.kind is Kind.KILL_AFTER
        passed = self._connections.writes.get(card.target, {})
        seen = sorted(write for write, at in passed.items() if time.monotonic() - at < LATELY_S * self._pace)
        if not seen:
            return None
        self._random.shuffle(seen)
        write = min(seen, key=lambda each: self._tried[card.target, each, after])
        self._tried[card.target, write, after] += 1
        return Trap(card.target, write, after)

    # -- leases ------------------------------------------------------------------------------------------------------

    async def _lease(self, card: Card) -> bool:
        name = f"atoll-{card.target}"
        if name in self._busy:
            return False
        self._busy.add(name)
        try:
            async with await self._federation.host.connect() as host:
                lease = await host.get(LEASES, name, keys.SYSTEM_NAMESPACE)
                holder, process = str(lease["spec"].get("holderIdentity") or ""), ""
                if card.kind is Kind.LEASE_DELETED:
                    began = time.time()
                    await host.delete(LEASES, name, keys.SYSTEM_NAMESPACE)
                elif card.kind is Kind.LEASE_STOLEN:
                    began = time.time()
                    stolen = {"holderIdentity": "thief", "renewTime": rfc3339_micro(began)}
                    await host.merge_patch(LEASES, name, {"spec": stolen}, keys.SYSTEM_NAMESPACE)
                else:
                    leaders = [each for each in self._replicas(card.target) if holder.endswith(f"-{each.pid}")]
                    if not leaders or not leaders[0].running:
                        return False
                    began = time.time()
                    process = leaders[0].name
                    await self._silence(leaders[0], stopped=card.kind is Kind.LEADER_STOPPED)
            self._add(card, began, harms=_harms(card.target), detail=holder, process=process, quiet=time.time())
            return True
        finally:
            self._busy.discard(name)

    async def _silence(self, leader: KeptProcess, *, stopped: bool) -> None:
        lasts = LEASE_S * self._pace + self._lasts(1, 3)
        if not stopped:
            proxy = self._connections.proxies[leader.name, HOST]
            proxy.cut()
            await asyncio.sleep(lasts)
            proxy.heal()
            return
        pid = leader.pid
        leader.signal(signal.SIGSTOP)
        await asyncio.sleep(lasts)
        if leader.running and leader.pid == pid:
            leader.signal(signal.SIGCONT)

    # -- members -----------------------------------------------------------------------------------------------------

    async def _member(self, card: Card) -> bool:
        """One at a time, so that there is somewhere to go."""
        if "member" in self._busy:
            return False
        self._busy.add("member")
        began = time.time()
        try:
            if card.kind is Kind.MEMBER_CUT:
                proxy = self._connections.proxies[f"atoll-agent-{card.target}", HOST]
                if proxy.is_cut:
                    return False
                proxy.cut()
                await asyncio.sleep(self._lasts(*CUT_S))
                proxy.heal()
            else:
                await self._tainted(card)
        finally:
            self._busy.discard("member")
        self._add(card, began, harms=f"{card.target} agent-{card.target}")
        return True

    async def _tainted(self, card: Card) -> None:
        taint = {"key": keys.CORDONED, "effect": "NoSchedule"}
        if card.kind is Kind.DRAINED:
            how = self._random.choice(("all", "one-by-one"))
            taint = {
                "key": keys.DRAINED,
                "value": how,
                "effect": "NoExecute",
                "timeAdded": rfc3339_seconds(time.time()),
            }
        try:
            await self._taint(card.target, [taint])
            await asyncio.sleep(self._lasts(2, 6))
        finally:
            await self._taint(card.target, None)

    async def _taint(self, member: str, taints: list[dict[str, str]] | None) -> None:
        end = time.monotonic() + self._ready_s
        while True:
            try:
                async with await self._federation.host.connect() as host:
                    await host.merge_patch(CLUSTERS, member, {"spec": {"taints": taints}})
                    return
            except ApiError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.2)

    # -- servers -----------------------------------------------------------------------------------------------------

    async def _outage(self, card: Card) -> bool:
        if any(each.startswith("server") for each in self._busy):
            return False
        self._busy.add(f"server {card.target}")
        try:
            began = time.time()
            found = await self._servers.outage(card.target, self._lasts(0.5, 3))
            if found is None:
                return False
            self.checkpoints += found
            harms = f"{HOST} control" if card.target in (HOST, "etcd") else f"{card.target} agent-{card.target}"
            self._add(card, began, harms=harms)
            return True
        finally:
            self._busy.discard(f"server {card.target}")

    # -- connections -------------------------------------------------------------------------------------------------

    async def _wire(self, card: Card) -> bool:
        assert card.wire is not None
        process, cluster, proxy = self._connection()
        where = f"{process} {cluster}"
        if where in self._busy or proxy.is_cut:
            return False
        self._busy.add(where)
        began = time.time()
        try:
            if card.wire is Fault.BLACKHOLE:
                play = proxy.play(card.wire, seconds=self._lasts(0.5, 3))
                await play.stopped.wait()
            else:
                watch = True if card.wire in EVENTS_ONLY else self._random.choice((None, None, True, False))
                times = self._random.randint(1, 5)
                seconds = self._lasts(0.2, 2.0)
                play = proxy.play(card.wire, watch=watch, times=times, seconds=seconds)
                end = time.monotonic() + PATIENCE_S * self._pace
                while play.active and time.monotonic() < end:
                    await asyncio.sleep(0.05)
                if card.wire in (Fault.HANG, Fault.SLOW, Fault.LATENCY, Fault.HALF_OPEN):
                    await asyncio.sleep(seconds)
                play.stop()
        finally:
            self._busy.discard(where)
        if play.hits:
            component = component_of(process)
            self._add(card, began, harms=f"{cluster} {component}", detail=f"{where}, {play.hits} hits")
        return bool(play.hits)

    def _connection(self) -> tuple[str, str, FaultProxy]:
        """Any connection; those over which much passed of late are more likely."""
        found = [(process, cluster, proxy) for (process, cluster), proxy in self._connections.proxies.items()]
        weights = [1 + proxy.requests - self._passed[proxy] for *_, proxy in found]
        self._passed = Counter({proxy: proxy.requests for *_, proxy in found})
        return self._random.choices(found, weights)[0]


def _harms(component: str) -> str:
    """`cluster user` whose next write shows that a component works."""
    if component == "webhook":
        return f"{HOST} users"
    return (
        f"{component.removeprefix('agent-')} {component}" if component.startswith("agent-") else f"{HOST} {component}"
    )


def recoveries(
    spans: Sequence[Span], writes: Mapping[tuple[str, str], Sequence[tuple[float, str]]]
) -> Iterator[tuple[Span, float]]:
    """Every fault with the seconds until what it harmed wrote something again."""
    for span in spans:
        cluster, _, user = span.harms.partition(" ")
        for at, process in writes.get((cluster, user), ()):
            if at > span.counted and not (process == span.process and at < span.quiet):
                yield span, at - span.counted
                break
