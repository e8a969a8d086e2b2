"""The clock of an agent is 5 minutes ahead, then 5 minutes behind, and jumps while it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.chaos.plan import Submission
from tests.faults.ground import Ground, jobs

EXEMPT: frozenset[str] = frozenset()
_AGENTS = ("alpha", "beta")
_SKEW_S = 300


def wishes(quick: bool) -> list[Submission]:
    found = jobs("clock", 20 if quick else 100)
    return found + [replace(each, batch=False) for each in jobs("fenced", 6 if quick else 30, exclusive=True)]


async def play(ground: Ground) -> None:
    offsets = {name: ground.federation.federation.directory / f"clock-{name}" for name in _AGENTS}
    for name, file in offsets.items():
        file.write_text("0")
        await ground.replace(f"agent-{name}", prefix=("-m", "tests.faults.skewed", str(file)))
    try:
        for skews in ((_SKEW_S, -_SKEW_S), (-_SKEW_S, _SKEW_S), (0, 0)):
            await ground.sleep(2)
            async with ground.fault("clock", " ".join(f"{n}:{s:+}" for n, s in zip(_AGENTS, skews, strict=True))):
                for file, skew in zip(offsets.values(), skews, strict=True):
                    _set(file, skew)
                await ground.sleep(ground.size(20, 6))
        # A process that starts with a wrong clock.
        for skew in (_SKEW_S, -_SKEW_S):
            async with ground.fault("clock", f"{_AGENTS[0]}:{skew:+} from the start"):
                _set(offsets[_AGENTS[0]], skew)
                process = ground.federation.process(f"agent-{_AGENTS[0]}")
                process.kill()
                await process.ready(ground.ready_s)
                await ground.sleep(ground.size(10, 3))
    finally:
        for file in offsets.values():
            _set(file, 0)


def _set(file: Path, skew: int) -> None:
    file.write_text(str(skew))
