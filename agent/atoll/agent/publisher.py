"""Publishes free amounts of the member to the host, at most twice a second, under one counter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from atoll.agent.settings import CapacitySettings
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CAPACITIES

FIELD_MANAGER = "atoll-agent"

log = structlog.get_logger(__name__)


class Publisher:
    """Writes the ClusterCapacity objects of one member."""

    def __init__(
        self,
        host: ApiServer,
        cluster: str,
        summary: Callable[[], Mapping[str, dict[str, Any]]],
        *,
        settings: CapacitySettings = CapacitySettings(),
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: where the objects are.
            cluster: name of the member.
            summary: gives the specs by object name, as they are at the moment of the call, without generation.
            settings: its times and bounds.
        """
        self._settings = settings
        self._host = host
        self._cluster = cluster
        self._namespace = keys.execution_namespace(cluster)
        self._summary = summary
        #: generation of the last summary that was taken, whether or not it is written already
        self.taken = 0
        #: the host expects the present state in the next generation
        self._promised = False
        self._wake = asyncio.Event()
        #: object name -> spec on the host, without generation; None where it is unknown
        self._published: dict[str, dict[str, Any] | None] = {}
        #: whether the counter has been read back from the host
        self.resumed = asyncio.Event()

    def wake(self) -> None:
        """Free amounts may have changed."""
        self._wake.set()

    def promise(self) -> int:
        """The generation that will contain everything that is so now."""
        self._promised = True
        self._wake.set()
        return self.taken + 1

    async def resume(self) -> None:
        """Read the counter back, so that it never decreases; before anything is promised."""
        while not self.resumed.is_set():
            try:
                for found in await self._host.list(CAPACITIES, self._namespace):
                    self.taken = max(self.taken, int(found["spec"]["generation"]))
                    self._published[found["metadata"]["name"]] = None
                self.resumed.set()
            except errors.ApiError as error:
                log.warning("can't read capacity back from the host", error=str(error))
                await asyncio.sleep(self._settings.again)

    async def run(self) -> None:
        """Publish until cancelled."""
        await self.resume()
        self._wake.set()
        first = True
        clock = asyncio.get_running_loop().time
        while True:
            await self._wake.wait()
            self._wake.clear()
            began = clock()
            specs = dict(self._summary())
            if not (first or self._promised or specs != self._published):
                continue
            self.taken += 1
            self._promised = False
            wrote = clock()
            try:
                await self._publish(specs)
                first = False
            except errors.ApiError as error:
                log.warning("capacity was not published", error=str(error))
                self._published = dict.fromkeys(self._published)
                self._wake.set()
                await asyncio.sleep(self._settings.again)
            # Reports of many nodes cost the server much of its time, and a slow server has none to spare.
            pause = max(self._settings.interval, (clock() - wrote) / self._settings.share)
            await asyncio.sleep(max(0.0, began + min(pause, self._settings.longest) - clock()))

    async def _publish(self, specs: dict[str, dict[str, Any]]) -> None:
        generation = self.taken
        await asyncio.gather(*(self._write(name, spec, generation) for name, spec in specs.items()))
        for name in [name for name in self._published if name not in specs]:
            await self._host.delete(CAPACITIES, name, self._namespace)
            del self._published[name]

    async def _write(self, name: str, spec: dict[str, Any], generation: int) -> None:
        if self._published.get(name) == spec:
            try:
                await self._host.merge_patch(
                    CAPACITIES,
                    name,
                    {"spec": {"generation": generation}},
                    self._namespace,
                    field_manager=FIELD_MANAGER,
                )
                return
            except errors.NotFound:
                log.warning("a capacity object was deleted", name=name)
        body = {
            "apiVersion": CAPACITIES.api_version,
            "kind": CAPACITIES.kind,
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": {**spec, "generation": generation},
        }
        await self._host.apply(CAPACITIES, body, field_manager=FIELD_MANAGER)
        self._published[name] = spec
