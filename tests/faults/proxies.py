"""A fault proxy in front of each connection of each process of a federation."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.faults.proxy import Fault, FaultProxy

_MEMBER = ".member.kubeconfig"


class Proxies:
    """`AtollFederation(..., through=proxies.through)`: then `proxies["atoll-dispatcher"]`.

    An agent has two: `atoll-agent-alpha` is its connection to the host, `atoll-agent-alpha/member` the one to its
    member. The User-Agent of what passes ends in the process' name in brackets.
    """

    def __init__(self, directory: Path, *, seed: int) -> None:
        """No I/O happens here.

        Args:
            directory: for their certificates and kubeconfigs.
            seed: each proxy draws from one made of this and its name's place.
        """
        self._directory, self._seed = directory, seed
        #: by name, in the order in which processes were given theirs
        self.all: dict[str, FaultProxy] = {}
        self._starting: list[asyncio.Task[None]] = []

    def __getitem__(self, name: str) -> FaultProxy:
        return self.all[name]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def through(self, name: str, kubeconfig: Path) -> Path:
        """Put a proxy in front of one connection; needs a running loop."""
        key = f"{name}/member" if kubeconfig.name.endswith(_MEMBER) else name
        proxy = FaultProxy(
            kubeconfig, self._directory / key.replace("/", "-"), seed=self._seed * 1000 + len(self.all), mark=name
        )
        self.all[key] = proxy
        self._starting.append(asyncio.get_running_loop().create_task(proxy.start()))
        return proxy.kubeconfig(kubeconfig)

    async def stop(self) -> None:
        """Close them all. Safe to repeat."""
        await asyncio.gather(*self._starting)
        await asyncio.gather(*(proxy.stop() for proxy in self.all.values()))

    @property
    def hits(self) -> Counter[Fault]:
        """How often each fault happened anywhere."""
        return sum((proxy.hits for proxy in self.all.values()), Counter())
