"""Certificates of the webhook expire: renewed in time again and again, and all of them while it is away."""

from __future__ import annotations

from tests.chaos.plan import Submission
from tests.faults.ground import Ground, jobs

EXEMPT: frozenset[str] = frozenset()


def wishes(quick: bool) -> list[Submission]:
    return jobs("certified", 20 if quick else 100)


async def play(ground: Ground) -> None:
    """1. CAs of 20 s, which expire again and again; 2. the webhook is away until all that it had has expired."""
    lives = [
        f"--{name}-seconds={seconds * ground.pace:g}" for name, seconds in (("ca", 20), ("leaf", 8), ("settle", 1))
    ]
    async with ground.fault("short certificates", "atoll-webhook"):
        await ground.replace("webhook", *lives)
        await ground.sleep(ground.size(60, 15))
    process = ground.federation.process("webhook")
    async with ground.fault("expired certificates", "atoll-webhook"):
        await process.stop()
        await ground.sleep(21)
        await process.start()
        await process.ready(ground.ready_s)
