"""Who places in this member, now: by its Cluster on the host, else by the schedulers running in the member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from atoll.kube import schedulers
from atoll.kube.reflector import Reflector
from atoll.kube.schedulers import Deployment, Placing, WebhookConfiguration, decide
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CLUSTERS, DEPLOYMENTS
from atoll.model.objects import Slim, decode_meta

log = structlog.get_logger(__name__)


class Surroundings:
    """Watches the Cluster on the host and what runs in the member."""

    def __init__(self, host: ApiServer, member: ApiServer, cluster: str) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: with the right to read this one Cluster.
            member: the member.
            cluster: its name.
        """
        self._member, self._cluster = member, cluster
        self._clusters: Reflector[Slim] = Reflector(
            host, CLUSTERS, decode_meta, field_selector=f"metadata.name={cluster}", metadata_only=True
        )
        self._deployments: Reflector[Deployment] = Reflector(member, DEPLOYMENTS, schedulers.decode_deployment)
        self._webhooks: list[Reflector[WebhookConfiguration]] = [
            Reflector(member, resource, schedulers.decode_webhooks) for resource in schedulers.WEBHOOKS
        ]
        self._kube_scheduler = False
        self._had_volcano = False
        self._observers: list[Callable[[Placing], None]] = []
        self._known = asyncio.Event()
        #: as it is now; meaningless before `wait` has returned
        self.placing = Placing()

    def on_change(self, observer: Callable[[Placing], None]) -> None:
        """Call `observer(placing)` whenever it is another one, first when it is known."""
        self._observers.append(observer)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")
            self._kube_scheduler = await schedulers.asks_until_told(self._member)
            for reflector in self._reflectors:
                await reflector.synced.wait()
            for reflector in self._reflectors:
                reflector.on_change(self._changed)
            self._look()

    async def wait(self) -> None:
        """Return once it is known who places."""
        await self._known.wait()

    @property
    def known(self) -> bool:
        """Whether `wait` would return at once."""
        return self._known.is_set()

    @property
    def _reflectors(self) -> list[Reflector[Any]]:
        return [self._clusters, self._deployments, *self._webhooks]

    def _changed(self, old: Any, new: Any) -> None:
        self._look()

    def _look(self) -> None:
        deployments = list(self._deployments)
        self._had_volcano = self._had_volcano or any(schedulers.is_volcano(each) for each in deployments)
        found = schedulers.judge(
            deployments,
            [each for reflector in self._webhooks for each in reflector],
            kube_scheduler=self._kube_scheduler,
            had_volcano=self._had_volcano,
        )
        cluster = self._clusters.get(self._cluster)
        placing = decide(cluster.metadata.annotations if cluster is not None else {}, found)
        if self._known.is_set() and placing == self.placing:
            return
        self.placing = placing
        log.info("who places", placer=str(placing.placer), why=placing.sentence)
        self._known.set()
        for observer in self._observers:
            observer(placing)
