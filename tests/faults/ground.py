"""What a scenario plays on."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import aiohttp

from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import AtollFederation
from tests.chaos.connections import Connections
from tests.chaos.plan import Submission
from tests.chaos.record import Checkpoint, Span
from tests.chaos.servers import STORE, Servers

Json = dict[str, Any]


@dataclass(slots=True)
class Ground:
    """A running federation, and what has been done to it."""

    federation: AtollFederation
    connections: Connections
    host: ApiServer
    members: Mapping[str, ApiServer]
    pace: float
    quick: bool
    say: Callable[[str], None]
    spans: list[Span] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    #: between these moments nothing happened in the end, as the store was put back from the second to the first
    undone: tuple[float, float] | None = None
    #: what is there and must not be
    problems: list[str] = field(default_factory=list)

    @property
    def ready_s(self) -> float:
        """Seconds within which what was ended must be back."""
        return 90 * self.pace

    @property
    def servers(self) -> Servers:
        """The API servers and the store."""
        return Servers(self.federation, self.ready_s)

    def size(self, full: float, quick: float) -> float:
        """Seconds or a number, by how much time there is."""
        return quick if self.quick else full

    async def sleep(self, seconds: float) -> None:
        """Let so many seconds of an idle machine pass."""
        await asyncio.sleep(seconds * self.pace)

    @asynccontextmanager
    async def fault(self, name: str, target: str = "") -> AsyncIterator[None]:
        """Note what is done inside as one fault."""
        began = time.time()
        self.say(f"{name} {target}".rstrip())
        yield
        self.spans.append(Span(name, target, began, time.time()))

    async def outage(self, server: str, seconds: float) -> None:
        """Kill an API server or the store for so many seconds of an idle machine."""
        async with self.fault(f"outage ({server})", server):
            self.checkpoints += await self.servers.outage(server, seconds * self.pace) or []

    async def replace(self, process: str, *flags: str, prefix: tuple[str, ...] = ()) -> None:
        """Start a process of Atoll again with more flags; `prefix`: instead of `-m`."""
        kept = self.federation.process(process)
        await kept.stop()
        spec = kept.process.spec
        argv = list(spec.argv)
        if prefix:
            argv[1:2] = prefix
        kept.process.spec = replace(spec, argv=[*argv, *flags])
        await kept.start()
        await kept.ready(self.ready_s)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Callable[..., Any]]:
        """Ask etcd over its JSON gateway: `await ask("kv/compaction", revision=...)`."""
        keys = self.federation.federation.keys
        tls = ssl.create_default_context(cafile=str(keys.etcd_authority.path))
        tls.load_cert_chain(*map(str, keys.etcd))
        url = next(each for each in self.servers.of(STORE).spec.argv if each.startswith("--listen-client-http-urls="))
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=timeout) as session:

            async def ask(path: str, **body: Any) -> Json:
                async with session.post(f"{url.partition('=')[2]}/v3/{path}", json=body) as answer:
                    found: Json = await answer.json(content_type=None)
                    if answer.status != 200:
                        raise RuntimeError(f"etcd {path}: {found}")
                    return found

            yield ask


def text64(text: str) -> str:
    """As etcd's gateway takes bytes."""
    return base64.b64encode(text.encode()).decode()


class Scenario(Protocol):
    """One module below `scenarios`."""

    EXEMPT: frozenset[str]
    """Checks of the judge that mean nothing here; the module says why."""

    def wishes(self, quick: bool) -> list[Submission]:
        """The jobs that run meanwhile."""

    async def play(self, ground: Ground) -> None:
        """Do it."""


def jobs(name: str, number: int, *, every: float = 0.25, **fields: Any) -> list[Submission]:
    """So many gangs of two pods in the three queues, one every so many seconds, 0.5 to 3 s long."""
    queues = ("research", "nightly", "shared")
    return [
        Submission(
            f"{name}-{index}", queues[index % 3], pods=2, gpus=1 + index % 2, seconds=0.5 + index % 6 / 2,
            offset=index * every, batch=index % 4 == 3, **fields,
        )
        for index in range(number)
    ]  # fmt: skip
