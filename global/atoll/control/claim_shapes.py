"""Shapes of ResourceClaims that workloads wait with, for the members: each counts how many such pods fit.

They are an annotation of the agent's Lease, which comes back to the agent with its next renewal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import structlog

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject, LeaseObject
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import claim_shapes, keys
from atoll.model.apiresource import LEASES
from atoll.model.claim_shapes import MOST, Shape

_EVERY = 5.0
"""Seconds between two looks at most: whatever tenants write costs members no more than that."""

log = structlog.get_logger(__name__)


class ClaimShapes:
    """Keeps the annotation of all members."""

    def __init__(self, host: ApiServer, caches: Caches) -> None:
        """No I/O happens here. Call it before the caches run."""
        self._host, self._caches = host, caches
        #: binding UID -> (namespace, shapes) of what waits
        self._waiting: dict[str, tuple[str, dict[str, Shape]]] = {}
        self._shapes: dict[str, Shape] = {}
        self._news = asyncio.Event()
        caches.bindings.on_change(self._binding_changed)
        caches.leases.on_change(self._lease_changed)

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        binding = new or old
        assert binding is not None, "one of them is there"
        gang = None
        # Most have none, and this is looked at with every change.
        if new is not None and not new.spec.clusters and '"claims":' in new.metadata.annotations.get(keys.GANG, ""):
            gang = new.gang
        before = self._waiting.pop(binding.metadata.uid, None)
        if gang is not None and (shapes := claim_shapes.shapes_of(gang.tasks)):
            self._waiting[binding.metadata.uid] = binding.metadata.namespace, shapes
        if before != self._waiting.get(binding.metadata.uid):
            self._news.set()

    def _lease_changed(self, old: LeaseObject | None, new: LeaseObject | None) -> None:
        if new is not None and self._lacks(new):
            self._news.set()

    def _lacks(self, lease: LeaseObject) -> bool:
        wanted = claim_shapes.encode(self._shapes) if self._shapes else ""
        return wanted != lease.metadata.annotations.get(keys.CLAIM_SHAPES, "")

    async def run(self) -> None:
        """Write new shapes until cancelled."""
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            self._shapes = chosen(self._shapes, self._waiting.values())
            for lease in [each for each in self._caches.leases if self._lacks(each)]:
                if lease.metadata.namespace.startswith(keys.EXECUTION_PREFIX):
                    await self._write(lease)
            await asyncio.sleep(_EVERY)

    async def _write(self, lease: LeaseObject) -> None:
        text = claim_shapes.encode(self._shapes) if self._shapes else None
        about = {"resourceVersion": lease.metadata.resource_version, "annotations": {keys.CLAIM_SHAPES: text}}
        try:
            await self._host.merge_patch(
                LEASES,
                lease.metadata.name,
                {"metadata": about},
                lease.metadata.namespace,
                field_manager="atoll-control",
            )
        except (errors.Conflict, errors.NotFound):
            # Its change comes by the watch.
            pass
        except errors.ApiError as error:
            # The next renewal of the Lease is the next try.
            log.warning("a member is not asked about claims", namespace=lease.metadata.namespace, error=str(error))


def chosen(known: Mapping[str, Shape], waiting: Iterable[tuple[str, Mapping[str, Shape]]]) -> dict[str, Shape]:
    """The shapes that members are asked about, `MOST` at most, in order of their names.

    Each namespace has an equal part, so that none keeps the shapes of others out. Known ones come first, and stay where
    nothing else needs their place: most come back.
    """
    by_namespace: dict[str, dict[str, Shape]] = {}
    for namespace, shapes in waiting:
        by_namespace.setdefault(namespace, {}).update(shapes)
    part = max(1, MOST // max(1, len(by_namespace)))
    ordered = [
        sorted(shapes.items(), key=lambda item: (item[0] not in known, item[0]))
        for _, shapes in sorted(by_namespace.items())
    ]
    found: dict[str, Shape] = {}
    rest = sorted((item for shapes in ordered for item in shapes), key=lambda item: item[0] not in known)
    for name, shape in (*(item for shapes in ordered for item in shapes[:part]), *rest, *known.items()):
        if len(found) < MOST:
            found.setdefault(name, shape)
    return dict(sorted(found.items()))
