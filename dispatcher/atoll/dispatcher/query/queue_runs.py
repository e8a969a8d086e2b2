"""Runs of queues, for their administrators: the last runs that bindings have, read from the host when asked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from atoll.dispatcher.core.quota.queue import subtree
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import runs
from atoll.model.apiresource import BINDINGS, QUEUE_RUNS
from atoll.model.runs import Run

if TYPE_CHECKING:
    from atoll.dispatcher.core.dispatcher import Dispatcher

Json = dict[str, Any]

WORKLOADS: Final = 50
"""In one answer, with at most `runs.KEPT` runs each."""
_AT_ONCE: Final = 8
"""Bindings that are read at once."""


def below(core: Dispatcher, top: str, only: str) -> frozenset[str]:
    """Names of a queue and the ones below it; none where there is no such queue.

    Args:
        core: not changed.
        top: the queue.
        only: a queue of these: its names alone; empty for all.
    """
    tree = core.tree.queues
    names = frozenset(each.name for each in subtree(tree[top])) if top in tree else frozenset[str]()
    return below(core, only, "") if only in names else names if not only else frozenset()


def dispatched(core: Dispatcher, queues: Collection[str]) -> list[str]:
    """`namespace/name` of the bindings in these queues that were dispatched once."""
    return [
        f"{each.view.namespace}/{each.view.name}"
        for each in core.bindings.values()
        if each.epoch and each.leaf.name in queues
    ]


async def read(host: ApiServer, bindings: Iterable[str], queues: Collection[str]) -> list[Json]:
    """A QueueRuns for each binding that has runs in these queues.

    Args:
        host: that has the bindings.
        bindings: `namespace/name` of each.
        queues: whose runs to give.

    Raises:
        ApiError: the host does not answer.
    """
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(key: str) -> Json | None:
        namespace, _, name = key.partition("/")
        async with turns:
            try:
                return _shown(await host.get(BINDINGS, name, namespace), queues)
            except errors.NotFound:
                return None

    return [each for each in await asyncio.gather(*map(one, bindings)) if each is not None]


def _shown(binding: Json, queues: Collection[str]) -> Json | None:
    reference = (binding.get("spec") or {}).get("resource") or {}
    found = [_seen(run, queues) for run in runs.runs_of(binding.get("status") or {}) if run.queue in queues]
    metadata = binding["metadata"]
    return {
        "apiVersion": QUEUE_RUNS.api_version,
        "kind": QUEUE_RUNS.kind,
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
        "workload": str(reference.get("name") or metadata["name"]),
        "workloadKind": runs.kind_of(str(reference.get("apiVersion") or ""), str(reference.get("kind") or "")),
        "runs": msgspec.to_builtins(found),
    } if found else None  # fmt: skip


def _seen(run: Run, queues: Collection[str]) -> Run:
    """Workloads of other queues have no names here."""
    if not run.evicted_for or run.for_queue in queues:
        return run
    # A claimant that is gone has a UID there, and no queue.
    return msgspec.structs.replace(run, evicted_for="" if run.for_queue else run.evicted_for, message="")
