"""Compaction under slow watchers: their versions are gone when they go on (410), and they list again."""

from __future__ import annotations

from tests.chaos.plan import Submission
from tests.faults.ground import Ground, jobs, text64
from tests.faults.play import Fault

EXEMPT: frozenset[str] = frozenset()


def wishes(quick: bool) -> list[Submission]:
    return jobs("compacted", 20 if quick else 100)


async def play(ground: Ground) -> None:
    """While nothing passes to watchers: compaction up to now, and an API server that starts with an empty watch cache."""
    for server in ("host", "alpha", "host", "beta") if not ground.quick else ("host", "alpha"):
        await ground.sleep(2)
        proxies = [proxy for (_, cluster), proxy in ground.connections.proxies.items() if cluster == server]
        slow = [proxy.play(Fault.SLOW, watch=True, times=None, seconds=2) for proxy in proxies]
        await ground.sleep(2)
        for each in slow:
            each.stop()
        held = [proxy.play(Fault.BLACKHOLE, seconds=None) for proxy in proxies]
        async with ground.store() as ask:
            found = await ask("kv/range", key=text64("/"))
            await ask("kv/compaction", revision=found["header"]["revision"], physical=True)
        await ground.outage(server, 0.5)
        for each in held:
            each.stop()
        # As well for the watches that are open: the server says so in the stream.
        gone = [proxy.play(Fault.GONE, watch=True, times=2) for proxy in proxies]
        await ground.sleep(2)
        for each in gone:
            each.stop()
