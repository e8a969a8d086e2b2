"""Places on nodes for pods that leave others, written before these leave and removed once their time is over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import structlog

from atoll.agent.descheduler.cluster import Cluster
from atoll.agent.scheduler.core import kept
from atoll.agent.scheduler.core.kept import Place
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import NODES

log = structlog.get_logger(__name__)


class Places:
    """Annotation `atoll.sh/kept-places` of the nodes of one cluster; this is its only writer."""

    def __init__(self, api: ApiServer, cluster: Cluster, *, field_manager: str) -> None:
        """No I/O happens here."""
        self._api, self._cluster, self._manager = api, cluster, field_manager
        #: node -> its places as written; the watch may be behind
        self._on: dict[str, Counter[Place]] | None = None

    async def keep(self, places: Iterable[tuple[str, Place]]) -> None:
        """Keep (node, place) of each pod."""
        await self._change(places, 1)

    async def drop(self, places: Iterable[tuple[str, Place]]) -> None:
        """Inverse of `keep`, for pods that stay."""
        await self._change(places, -1)

    async def tidy(self) -> None:
        """Remove places whose time is over."""
        now = time.time()
        for name, places in list(self._known().items()):
            if any(place.over(now) for place in places):
                await self._write(name, Counter({each: n for each, n in places.items() if not each.over(now)}))

    async def _change(self, places: Iterable[tuple[str, Place]], sign: int) -> None:
        changed: dict[str, Counter[Place]] = {}
        for name, place in places:
            changed.setdefault(name, Counter(self._known().get(name, Counter())))[place] += sign
        for name, wanted in changed.items():
            await self._write(name, +wanted)

    def _known(self) -> dict[str, Counter[Place]]:
        if self._on is None:
            # An earlier leader may have written some.
            texts = {
                each.metadata.name: each.metadata.annotations.get(keys.KEPT_PLACES) for each in self._cluster.nodes
            }
            self._on = {name: Counter(kept.decode(text)) for name, text in texts.items() if text}
        return self._on

    async def _write(self, name: str, wanted: Counter[Place]) -> None:
        text: Any = kept.encode(wanted.elements()) if wanted else None
        try:
            patch = {"metadata": {"annotations": {keys.KEPT_PLACES: text}}}
            await self._api.merge_patch(NODES, name, patch, field_manager=self._manager)
        except errors.NotFound:
            wanted = Counter()
        except errors.ApiError as error:
            # The place is there all the same: it may be taken by others before the pod comes.
            log.warning("places were not written", node=name, error=str(error))
            return
        if wanted:
            self._known()[name] = wanted
        else:
            self._known().pop(name, None)
