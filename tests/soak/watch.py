"""Samples of every process of Atoll, taken from its own /metrics."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

import aiohttp

from atoll.local.atoll_federation import AtollFederation
from tests.soak.figures import MB, Figures, Sample, figures, read


async def sample(federation: AtollFederation, began: float) -> dict[str, Sample]:
    """Process -> its sample now; one that does not answer is left out.

    Args:
        federation: that runs.
        began: time.monotonic() of the start.
    """
    found = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        for name, kept in federation.processes.items():
            url = (kept.process.spec.ready_url or "").replace("/readyz", "/metrics")
            try:
                async with session.get(url) as answer:
                    found[name] = read(await answer.text(), time.monotonic() - began, kept.pid or 0)
            except (aiohttp.ClientError, TimeoutError):
                continue
    return found


class Watch:
    """The samples of a soak."""

    def __init__(self, federation: AtollFederation) -> None:
        """No I/O happens here."""
        self._federation = federation
        self._began = time.monotonic()
        self._samples: defaultdict[str, list[Sample]] = defaultdict(list)

    async def run(self, seconds: float, every: float) -> None:
        """Take samples for so long, one at the start and one at the end."""
        end = self._began + seconds
        while True:
            for name, each in (await sample(self._federation, self._began)).items():
                self._samples[name].append(each)
            left = end - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(min(every, left))

    def memory(self) -> dict[str, list[tuple[float, float]]]:
        """Process -> (seconds since the start, MB) of each sample."""
        return {name: [(round(s.at, 1), round(s.rss / MB, 2)) for s in each] for name, each in self._samples.items()}

    def figures(self, warm_up: float) -> list[Figures]:
        """Of each process, in order of their names."""
        return [figures(name, samples, warm_up) for name, samples in sorted(self._samples.items())]
