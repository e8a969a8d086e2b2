"""Several leaders of control, each for the namespaces of one shard, under a lease of that shard.

A process takes the first shard whose lease is free and keeps it while it can; one that finds none stands by for all.
Numbers of shards don't mix: a leader begins only once no lease is held for another number, so a namespace never has
two, also while the number changes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from atoll.kube import errors
from atoll.kube.election import Elector
from atoll.kube.settings import Election
from atoll.kube.transport import ApiServer
from atoll.model import keys, shards
from atoll.model.apiresource import LEASES
from atoll.model.shards import Shard

_LEASE_S = 15.0

log = structlog.get_logger(__name__)


class Candidate:
    """Leads one shard, or stands by."""

    def __init__(self, host: ApiServer, identity: str, settings: Election, of: int) -> None:
        """No I/O happens here. From then on `host` writes only while it is certain that no other leads the shard.

        Args:
            host: its API server.
            identity: unique per process instance.
            settings: times of the leases.
            of: how many shards there are.
        """
        self._host, self._settings, self._of = host, settings, of
        said = {keys.SHARDS: str(of)}
        self._electors = [
            Elector(host, shards.lease(number), identity, settings, annotations=lambda _: said) for number in range(of)
        ]
        #: the one that leads, or led last
        self._current = self._electors[0]
        host.writes.guard, host.writes.lasts = lambda: self._current.certain, lambda: self._current.left

    @property
    def leading(self) -> bool:
        """Whether the work runs."""
        return self._current.leading.is_set()

    @property
    def can_lead(self) -> bool:
        """Whether this process could take a shard over."""
        return any(each.can_lead for each in self._electors)

    async def run(self, work: Callable[[Shard], Awaitable[None]]) -> None:
        """Lead one shard after the other, each while it can, until cancelled."""
        while True:
            for number, elector in enumerate(self._electors):
                if await elector.tries():
                    self._current = elector
                    await elector.run(partial(self._lead, Shard(number, self._of), work), once=True)
                    break
            else:
                await asyncio.sleep(self._settings.retry_period * random.uniform(0.8, 1.2))

    async def _lead(self, shard: Shard, work: Callable[[Shard], Awaitable[None]]) -> None:
        #: name of a lease -> its spec as it was seen last, and when that changed
        seen: dict[str, tuple[Any, float]] = {}
        while others := [name for name in shards.NAMES if await self._is_of_other_shards(name, seen)]:
            log.warning("waits for leaders of another number of shards", leases=others, shards=self._of)
            await asyncio.sleep(self._settings.retry_period)
        log.info("leads a shard", shard=shard.number, shards=shard.of)
        await work(shard)

    async def _is_of_other_shards(self, name: str, seen: dict[str, tuple[Any, float]]) -> bool:
        """Whether a lease is held by a leader of another number of shards, by when it last changed here."""
        try:
            lease = await self._host.get(LEASES, name, keys.SYSTEM_NAMESPACE)
        except errors.NotFound:
            return False
        spec, notes = lease.get("spec") or {}, lease["metadata"].get("annotations") or {}
        if notes.get(keys.SHARDS, "1") == str(self._of) or not spec.get("holderIdentity"):
            return False
        now = asyncio.get_running_loop().time()
        before = seen.get(name)
        if before is None or before[0] != spec:
            seen[name] = before = spec, now
        return now - before[1] < float(spec.get("leaseDurationSeconds") or _LEASE_S)
