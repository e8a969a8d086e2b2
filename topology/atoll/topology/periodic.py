"""Discovery that goes on: at each round the sources of a file are read, and the HyperNodes follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import HYPER_NODES
from atoll.topology import sources
from atoll.topology.discovery.plan import changes
from atoll.topology.sources import Source, SourceError

Json = dict[str, Any]

AUTHOR = "atoll-topology"
"""The source that is written on HyperNodes; those of other authors are never changed."""

log = structlog.get_logger(__name__)


class Periodic:
    """Reads the sources at each round; a source that can't be read leaves its tree as it is."""

    def __init__(
        self,
        api: ApiServer,
        file: Path,
        *,
        every: float,
        seen: asyncio.Event,
        nodes: Callable[[], Mapping[str, Mapping[str, str]]],
        metrics: CollectorRegistry,
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            api: the cluster.
            file: a YAML list of sources, read anew at each round.
            every: seconds between two rounds.
            seen: all nodes are known; those that are not yet would seem to be in no rack.
            nodes: name -> labels, of all that there are.
            metrics: where figures go.
        """
        self._api, self._file, self._every, self._seen, self._nodes = api, file, every, seen, nodes
        self._ok = Gauge(
            "atoll_topology_discovery_ok", "0: the sources of this tree can't be read or say nothing", ["tree"],
            registry=metrics,
        )  # fmt: skip
        self._written = Counter(
            "atoll_topology_discovery_writes", "HyperNodes created, changed and deleted", registry=metrics
        )
        #: tree -> the last message about it, so that it comes once
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Rounds until cancelled."""
        await self._seen.wait()
        while True:
            await self._round()
            await asyncio.sleep(self._every)

    async def _round(self) -> None:
        try:
            found = sources.parsed(await asyncio.to_thread(self._file.read_text, "utf-8"))
            present = await self._api.list(HYPER_NODES)
        except (OSError, SourceError, errors.ApiError) as error:
            self._say("", f"{self._file}: {error}")
            return
        trees: dict[str, list[Source]] = {}
        for source in found:
            trees.setdefault(source.tree, []).append(source)
        for tree, those in trees.items():
            self._say(tree, await self._tree(tree, those, present))

    async def _tree(self, tree: str, those: list[Source], present: list[Json]) -> str:
        """Have one tree be as its sources say; why that is not so, or nothing."""
        try:
            wanted = (await sources.wanted(those, self._api, self._nodes(), AUTHOR))[tree]
            todo = changes(present, wanted, AUTHOR, tree)
            if not wanted and todo.delete:
                return f"nothing is found any more: {len(todo.delete)} HyperNodes stay; delete them if that is right"
            await sources.write(self._api, todo, AUTHOR)
        except (SourceError, errors.ApiError) as error:
            return str(error)
        count = len(todo.create) + len(todo.update) + len(todo.delete)
        if count:
            self._written.inc(count)
            log.info("HyperNodes follow what was found", tree=tree, written=count)
        return f"HyperNodes of others have these names: {', '.join(todo.foreign)}" if todo.foreign else ""

    def _say(self, tree: str, wrong: str) -> None:
        self._ok.labels(tree).set(not wrong)
        if wrong and self._said.get(tree) != wrong:
            log.warning("the topology is left as it is", tree=tree, why=wrong)
        self._said[tree] = wrong
