"""A member is cut off for 3 minutes while its work is of each on-lost mode: requeue, exclusive, wait."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.plan import Submission
from tests.faults.ground import Ground, jobs

EXEMPT: frozenset[str] = frozenset()


def wishes(quick: bool) -> list[Submission]:
    """A third of each; long enough to be there when the member goes."""
    number = 8 if quick else 30
    found = jobs("requeued", number, moves=True) + jobs("waits", number, waits=True)
    found += [replace(each, batch=False) for each in jobs("exclusive", number, exclusive=True)]
    return [replace(each, seconds=each.seconds * 3) for each in found]


async def play(ground: Ground) -> None:
    for member in ("alpha",) if ground.quick else ("alpha", "beta"):
        await ground.sleep(3)
        proxy = ground.connections.proxies[f"atoll-agent-{member}", "host"]
        async with ground.fault("member cut off", member):
            proxy.cut()
            # The fence is 6 s here, the toleration 1 s: the quick cut lasts beyond both.
            await ground.sleep(ground.size(180, 30))
            proxy.heal()
