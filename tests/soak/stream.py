"""The load of a soak: jobs that come, run, end and are deleted, so that what exists stays the same while all is used.

Every way through Atoll that keeps something per object gets its share: Volcano and batch Jobs, gangs over two members,
gangs that never fit, queues and namespaces that come and go.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, JOBS, NAMESPACES, POLICIES, QUEUES, ApiResource
from atoll.model.objects import Full, decode_full
from tests.integration.federation import batch_job, job

Json = dict[str, Any]

KINDS = ("plain", "batch", "plain", "divided", "plain", "too large", "plain", "queue of its own")
HOPELESS_FOR = 3.0
"""Seconds after which a gang that can't fit is given up."""
PATIENCE = 60.0
"""Seconds that a job may take to end before it counts as lost."""
NAMESPACE_FOR = 200
"""Jobs after which their namespace is deleted and a new one made."""


class Stream:
    """A steady stream of jobs on one host."""

    def __init__(self, host: ApiServer, per_second: float, amount: int | None = None) -> None:
        """No I/O happens here.

        Args:
            host: with the rights of a user who may do all of this.
            per_second: jobs that begin in a second.
            amount: jobs after which it ends; None for no end.
        """
        self._host = host
        self._pause = 1.0 / per_second
        self._numbers = itertools.count() if amount is None else range(amount)
        self._finished: dict[str, asyncio.Event] = {}
        self._caches = {resource: Reflector(host, resource, decode_full) for resource in (JOBS, BATCH_JOBS)}
        for cache in self._caches.values():
            cache.on_change(self._changed)
        #: outcome -> jobs
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Start jobs until cancelled, or until all have come and gone; nothing of them is left on the host then but
        what is being deleted.
        """
        namespace, running = "", set[asyncio.Task[None]]()
        spaces: list[str] = []
        async with asyncio.TaskGroup() as caches:
            tasks = [caches.create_task(cache.run()) for cache in self._caches.values()]
            try:
                for number in self._numbers:
                    if number % NAMESPACE_FOR == 0:
                        namespace = await self._open(f"soak-{number // NAMESPACE_FOR}")
                        spaces.append(namespace)
                        # The one before still has jobs; the one before that has none.
                        if len(spaces) > 2:
                            await self._host.delete(NAMESPACES, spaces.pop(0))
                    task = asyncio.create_task(self._job(namespace, number))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    await asyncio.sleep(self._pause)
                await asyncio.gather(*running)
            finally:
                for task in (*running, *tasks):
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
                for name in spaces:
                    await self._host.delete(NAMESPACES, name)

    async def _open(self, name: str) -> str:
        metadata = {"name": name, "labels": {keys.ENABLED: "true"}}
        await self._host.create(NAMESPACES, {"metadata": metadata})
        placement = {
            "replicaScheduling": {"replicaSchedulingType": "Divided"},
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}],
        }
        selector = {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "labelSelector": {"matchLabels": {"soak": "divided"}},
        }
        policy = {
            "apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": {"name": "divided", "namespace": name},
            "spec": {"resourceSelectors": [selector], "placement": placement},
        }  # fmt: skip
        await self._host.create(POLICIES, policy)
        return name

    async def _job(self, namespace: str, number: int) -> None:
        sort = KINDS[number % len(KINDS)]
        name = f"j{number}"
        queue = f"soak-q{number}" if sort == "queue of its own" else ""
        resource, body = (
            (BATCH_JOBS, batch_job(name, parallelism=2)) if sort == "batch" else (JOBS, _gang(name, sort, queue))
        )
        body["metadata"]["namespace"] = namespace
        key = f"{resource.group}/{namespace}/{name}"
        ended = self._finished[key] = asyncio.Event()
        try:
            if queue:
                await self._host.create(QUEUES, _queue(queue))
            await self._host.create(resource, body)
            async with asyncio.timeout(HOPELESS_FOR if sort == "too large" else PATIENCE):
                await ended.wait()
            self.counts["finished"] += 1
        except TimeoutError:
            self.counts["given up" if sort == "too large" else "lost"] += 1
        except errors.ApiError as error:
            self.counts[f"refused: {type(error).__name__}"] += 1
        finally:
            self._finished.pop(key, None)
            await self._delete(resource, name, namespace)
            if queue:
                await self._delete(QUEUES, queue, None)

    async def _delete(self, resource: ApiResource, name: str, namespace: str | None) -> None:
        try:
            await self._host.delete(resource, name, namespace)
        except errors.ApiError as error:
            self.counts[f"not deleted: {type(error).__name__}"] += 1

    def _changed(self, old: Full | None, new: Full | None) -> None:
        if new is None or not _over(new.body.get("status") or {}):
            return
        group = str(new.body.get("apiVersion", "")).partition("/")[0]
        event = self._finished.get(f"{group}/{new.metadata.key}")
        if event is not None:
            event.set()


def _over(status: Json) -> bool:
    if (status.get("state") or {}).get("phase") in ("Completed", "Failed", "Aborted", "Terminated"):
        return True
    return any(
        c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in status.get("conditions") or ()
    )


def _gang(name: str, sort: str, queue: str) -> Json:
    made = job(name, replicas=4 if sort == "divided" else 2, cpu="4000" if sort == "too large" else "100m")
    if queue:
        made["spec"]["queue"] = queue
    made["metadata"]["labels"] = {"soak": sort.replace(" ", "-")}
    return made


def _queue(name: str) -> Json:
    return {
        "apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": name},
        "spec": {"capability": {"cpu": "8"}},
    }  # fmt: skip
