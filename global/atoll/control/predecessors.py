"""A workload that was deleted and made again under the same name while a member still has the one before.

The new one gets its binding once nothing is left of the old one, which a member that does not answer may delay for
long. Meanwhile the new workload says why it waits, and the old binding where it is still there.
"""

from __future__ import annotations

import time
from typing import Any

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.control.settings import PredecessorSettings
from atoll.kinds import Kind, statuses
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import BINDINGS, ApiResource
from atoll.model.conditions import with_condition
from atoll.model.keys import cluster_of
from atoll.model.objects import Full
from atoll.model.plurals import listed
from atoll.model.timestamps import rfc3339_seconds, to_seconds

Json = dict[str, Any]

REASON = "PredecessorRemaining"
"""Of the Event and in the status of the workload."""


class Predecessors:
    """Writes the reason of their wait on workloads whose predecessor is not gone."""

    def __init__(
        self,
        host: ApiServer,
        caches: Caches,
        recorder: Recorder,
        *,
        settings: PredecessorSettings = PredecessorSettings(),
    ) -> None:
        """No I/O happens here."""
        self._settings = settings
        self._host, self._caches, self._recorder = host, caches, recorder

    async def tell(self, kind: Kind, obj: Full, binding: BindingObject) -> None:
        """Say it once it lasts.

        Args:
            kind: of the workload.
            obj: the new one.
            binding: of the one before.

        Raises:
            Retry: always, for leftovers change.
        """
        since = binding.metadata.deletion_timestamp
        late = self._settings.patience if since is None else to_seconds(since) + self._settings.patience - time.time()
        if late > 0:
            raise errors.Retry(late)
        where = remains(self._caches, binding)
        await self._put_condition(binding, f"it is deleted, and {where}; what it used stays charged")
        text = f"its predecessor {where}"
        metadata = obj.metadata
        about = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
        about |= {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        self._recorder.record(about, REASON, text, warning=True)
        status = kind.aggregate(obj.body, [], waiting=(REASON, text), now=rfc3339_seconds(time.time()))
        for each, wanted in statuses(kind, obj.body, status):
            place = each["metadata"]
            await self._put(kind.resource, place["name"], place["namespace"], place["resourceVersion"], wanted)
        raise errors.Retry(self._settings.again)

    async def _put_condition(self, binding: BindingObject, text: str) -> None:
        """On the old binding: where it is still there."""
        metadata, before = binding.metadata, list(binding.status.get("conditions") or ())
        conditions = with_condition(
            before, "Removed", False, REASON, text, now=time.time(), generation=metadata.generation
        )
        if conditions != before:
            status = {**binding.status, "conditions": conditions}
            await self._put(BINDINGS, metadata.name, metadata.namespace, metadata.resource_version, status)

    async def _put(self, resource: ApiResource, name: str, namespace: str, seen: str, status: Json) -> None:
        operations: list[Json] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": seen},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            await self._host.json_patch(
                resource, name, operations, namespace, subresource="status", field_manager="atoll-control"
            )
        except (errors.NotFound, errors.Invalid):
            # It changed meanwhile; the next look goes by its new state.
            return


def remains(caches: Caches, binding: BindingObject) -> str:
    """Where something of a binding is left, as the end of a sentence about it."""
    names = sorted({cluster_of(work.metadata.namespace) for work in caches.works_of(binding.metadata.uid)})
    if not names:
        return "is still being removed"
    silent = [name for name in names if not _ready(caches, name)]
    text = f"is still being removed from {listed(names)}"
    if not silent:
        return text
    verb = "does" if len(silent) == 1 else "do"
    return f"{text}, which {verb} not answer" if silent == names else f"{text}; {listed(silent)} {verb} not answer"


def _ready(caches: Caches, name: str) -> bool:
    cluster = caches.clusters.get(name)
    conditions = (cluster.status.get("conditions") or ()) if cluster is not None else ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
