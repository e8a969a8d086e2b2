"""429 and 5xx to half of all requests of every process, over every connection."""

from __future__ import annotations

from tests.chaos.plan import Submission
from tests.faults.ground import Ground, jobs
from tests.faults.play import Fault

EXEMPT: frozenset[str] = frozenset()


def wishes(quick: bool) -> list[Submission]:
    return jobs("storm", 20 if quick else 100)


async def play(ground: Ground) -> None:
    for fault, probability in ((Fault.BUSY, 0.5), (Fault.ERROR, 0.5), (Fault.BUSY, 1.0), (Fault.ERROR, 1.0)):
        # All requests fail for less than a lease lasts, half of them for longer.
        lasts = ground.size(15, 5) if probability < 1 else 3
        async with ground.fault(f"{fault} {probability:.0%}", "host alpha beta gamma"):
            plays = [
                proxy.play(fault, probability=probability, times=None, seconds=0.2)
                for proxy in ground.connections.proxies.values()
            ]
            await ground.sleep(lasts)
            for each in plays:
                each.stop()
        await ground.sleep(2)
