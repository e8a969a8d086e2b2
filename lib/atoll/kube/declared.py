"""The kinds that users declared on the host, as far as a cluster gives Atoll the rights to them; always up to date.

Parts built from the kinds at its start (caches, handlers) are built anew when others are declared: that is rare, and
every part of Atoll may be started anew at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson
import structlog

from atoll.kinds import declare
from atoll.kinds.declared import followed
from atoll.kinds.templated import Templated
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys, rights
from atoll.model.apiresource import CLUSTER_ROLES, WORKLOAD_KINDS
from atoll.model.objects import Full, decode_full

log = structlog.get_logger(__name__)


class Declared:
    """Watches WorkloadKinds, and the role that gives the rights to them."""

    def __init__(
        self,
        host: ApiServer,
        cluster: ApiServer,
        wanted: Iterable[tuple[str, tuple[str, ...]]],
        *,
        settle: float = 0.2,
        patience: float = 3.0,
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: has the WorkloadKinds; an account that may not read them knows none.
            cluster: where the kinds are used.
            wanted: rights needed there, see `atoll.model.rights`.
            settle: seconds for further changes, before parts built from them are built anew.
            patience: seconds for the host to list declared kinds, before `keep` begins without.
        """
        self._wanted, self._settle, self._patience = tuple(wanted), settle, patience
        #: (name, spec) of the kinds that `keep` works with
        self._now: list[tuple[str, bytes]] = []
        self.objects: Reflector[Full] = Reflector(host, WORKLOAD_KINDS, decode_full, optional=True, withheld=True)
        self.roles: Reflector[Full] = Reflector(
            cluster,
            CLUSTER_ROLES,
            decode_full,
            field_selector=f"metadata.name={keys.KIND_RIGHTS}",
            optional=True,
            withheld=True,
        )
        self._changed = asyncio.Event()
        for each in (self.objects, self.roles):
            each.on_change(lambda _, __: self._changed.set())

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.objects.run())
            group.create_task(self.roles.run())

    def lacking(self, kind: Templated) -> list[str]:
        """Missing rights for a kind."""
        role = self.roles.get(keys.KIND_RIGHTS)
        return rights.missing((role.body.get("rules") or ()) if role is not None else (), kind.resource, self._wanted)

    def all(self) -> list[Templated]:
        """Kinds that can be followed, with rights or without."""
        return followed(each.body for each in self.objects)

    def usable(self) -> list[Templated]:
        """Kinds among them with rights."""
        return [kind for kind in self.all() if not self.lacking(kind)]

    async def keep(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do this with the kinds that are usable, anew whenever others are, until it ends or is cancelled.

        A host that can't be reached holds up only what waits for `settled`.
        """
        await self.roles.synced.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.objects.synced.wait(), self._patience)
        while True:
            declare(self.usable())
            self._now = self._said()
            log.info("declared kinds", kinds=[name for name, _ in self._now])
            tasks = (asyncio.ensure_future(work()), asyncio.ensure_future(self._others()))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done():
                    await tasks[0]
                    return
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Return once it is known that the kinds that `keep` works with are the ones that the host declares."""
        await self.objects.synced.wait()
        if self._said() != self._now:
            # Whoever waits is cancelled, and begun anew with the others.
            await asyncio.Event().wait()

    async def _others(self) -> None:
        """Return once other kinds are usable than the ones that `keep` works with."""
        while self._said() == self._now:
            self._changed.clear()
            await self._changed.wait()
            await asyncio.sleep(self._settle)

    def _said(self) -> list[tuple[str, bytes]]:
        """What the usable kinds are made of."""
        names = {f"{kind.resource.plural}.{kind.resource.group}" for kind in self.usable()}
        found: list[tuple[str, Any]] = [
            (each.metadata.name, each.body.get("spec")) for each in self.objects if each.metadata.name in names
        ]
        return sorted((name, orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)) for name, spec in found)
