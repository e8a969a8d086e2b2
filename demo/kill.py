"""Kill Atoll's processes while the workload runs: whatever is lost with them must not matter."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping

from atoll.local.keeper import KeptProcess

_BETWEEN_S = (0.5, 2.0)
"""Seconds from one kill to the next in a round."""
_REST_S = (8.0, 12.0)
"""Seconds from one round to the next: a killed leader's lease must expire before anything of its work goes on."""


class Killer:
    """Kills each process in turn, round after round, in an order and at moments that the seed decides."""

    def __init__(self, processes: Mapping[str, KeptProcess], seed: int) -> None:
        """No I/O happens here."""
        self._processes = processes
        self._random = random.Random(seed)
        #: process -> how often it was killed
        self.killed: Counter[str] = Counter(dict.fromkeys(processes, 0))

    async def run(self) -> None:
        """Kill until cancelled."""
        while True:
            for name in self._random.sample(sorted(self._processes), len(self._processes)):
                await asyncio.sleep(self._random.uniform(*_BETWEEN_S))
                process = self._processes[name]
                if process.running:
                    process.kill()
                    self.killed[name] += 1
            await asyncio.sleep(self._random.uniform(*_REST_S))
