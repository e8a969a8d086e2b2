"""A fault proxy in front of every connection of every process, which tells what passes and can kill at that moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from atoll.local.audit import WRITES
from tests.faults.proxies import Proxies
from tests.faults.proxy import FaultProxy, Request

Write = tuple[str, str, str]
"""(cluster, verb, resource path)."""


def component_of(process: str) -> str:
    """`dispatcher` of `atoll-dispatcher-2`."""
    name = process.removeprefix("atoll-")
    return name if name.startswith("agent-") else name.partition("-")[0]


@dataclass(slots=True, eq=False)
class Trap:
    """A kill that waits for a write of a component."""

    component: str
    write: Write
    after: bool
    """Once it was carried out, rather than before."""
    sprung: asyncio.Event = field(default_factory=asyncio.Event)
    process: str = ""
    """Which one it killed."""


class Connections:
    """The proxies of one federation; `through` goes into it."""

    def __init__(self, directory: Path, seed: int, kill: Callable[[str], None]) -> None:
        """No I/O happens here.

        Args:
            directory: for the proxies' certificates and kubeconfigs.
            seed: of what they draw.
            kill: ends the process of this name at once.
        """
        self._all = Proxies(directory, seed=seed)
        self._kill = kill
        #: (process, cluster) -> proxy; the cluster is `host` or the member
        self.proxies: dict[tuple[str, str], FaultProxy] = {}
        #: component -> kind of write -> when one passed last, on the monotonic clock
        self.writes: dict[str, dict[Write, float]] = {}
        self.traps: list[Trap] = []

    def through(self, process: str, kubeconfig: Path) -> Path:
        """Put a proxy in front of what this kubeconfig names; see `AtollFederation`."""
        path = self._all.through(process, kubeconfig)
        key, proxy = list(self._all.all.items())[-1]
        cluster = process.removeprefix("atoll-agent-") if key.endswith("/member") else "host"
        self.proxies[process, cluster] = proxy
        proxy.on_request = lambda request: self._asked(process, cluster, request)
        proxy.on_answer = lambda request, status: self._answered(process, cluster, request, status)
        return path

    async def stop(self) -> None:
        """Close all connections."""
        await self._all.stop()

    def calm(self) -> None:
        """Heal what is cut; traps are no more."""
        self.traps.clear()
        for proxy in self.proxies.values():
            proxy.heal()

    def of(self, component: str) -> Iterator[tuple[str, str, FaultProxy]]:
        """(process, cluster, proxy) of every connection of a component."""
        for (process, cluster), proxy in self.proxies.items():
            if component_of(process) == component:
                yield process, cluster, proxy

    def _asked(self, process: str, cluster: str, request: Request) -> bool | None:
        if request.verb not in WRITES:
            return None
        write = (cluster, request.verb, request.path)
        self.writes.setdefault(component_of(process), {})[write] = time.monotonic()
        return False if self._spring(process, write, after=False) else None

    def _answered(self, process: str, cluster: str, request: Request, status: int) -> None:
        if request.verb in WRITES and 200 <= status < 300:
            self._spring(process, (cluster, request.verb, request.path), after=True)

    def _spring(self, process: str, write: Write, *, after: bool) -> bool:
        for trap in self.traps:
            if (trap.component, trap.write, trap.after) == (component_of(process), write, after):
                self.traps.remove(trap)
                trap.process = process
                trap.sprung.set()
                self._kill(process)
                return True
        return False
