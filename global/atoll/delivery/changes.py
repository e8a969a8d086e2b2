"""Manifests of Works as a member gets them, and changes of these that come after the delivery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.delivery.delivered import change, encode, recorded
from atoll.delivery.memory import WorkMemory
from atoll.delivery.work import WorkObject
from atoll.kinds import Kind
from atoll.kube import errors
from atoll.kube.backoff import Backoff
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model.objects import Full
from atoll.model.placer import MadeFor, made_for

Json = dict[str, Any]


class LaterChanges:
    """Brings later changes on the host to objects of one member."""

    def __init__(
        self,
        member: ApiServer,
        cluster: str,
        queue: WorkQueue[str],
        memory: Mapping[str, WorkMemory],
        pauses: Backoff[str],
    ) -> None:
        """No I/O happens here.

        Args:
            member: its API server.
            cluster: its name.
            queue: of keys of Works.
            memory: of each Work, by its key.
            pauses: of Works with something that the member refused.
        """
        self._member, self._cluster, self._queue = member, cluster, queue
        self._memory, self._pauses = memory, pauses

    async def follow(self, work: WorkObject, kind: Kind, found: Full) -> str:
        """Bring changes on the host since the last delivery to the object; the member's refusal of these, or "".

        The member's own changes stand. A refused change is offered again with a growing pause, and
        at once where the host asks for something else.
        """
        key, metadata, memory = work.metadata.key, found.metadata, self._memory[work.metadata.key]
        # As it was when it was delivered.
        made = manifest_for(work, kind, made_for(metadata.annotations.get(keys.MADE_FOR)))
        record = self.record(work, made)
        if metadata.annotations.get(keys.DELIVERED) == record:
            memory.declined = None
            return ""
        last = recorded(metadata.annotations)
        patch = change(last, made, found.body)
        declined = memory.declined
        if declined is not None and declined[0] == record and self._pauses.pauses(key):
            return declined[1]
        patch.setdefault("metadata", {}).setdefault("annotations", {})[keys.DELIVERED] = record
        patch["metadata"]["resourceVersion"] = metadata.resource_version
        try:
            await self._member.merge_patch(
                kind.resource, metadata.name, patch, metadata.namespace, field_manager="atoll-delivery"
            )
        except (errors.NotFound, errors.Conflict):
            # The cache is behind; its event brings us back.
            return declined[1] if declined is not None else ""
        except errors.Unauthorized:
            raise
        except (errors.Invalid, errors.Forbidden) as error:
            problem = f"{self._cluster} refused a change and runs it as it was: {error.said}"
            if declined is None or declined[0] != record:
                self._pauses.forget(key)
            memory.declined = (record, problem)
            self._queue.add(key, after=self._pauses.failed(key))
            return problem
        memory.declined = None
        self._pauses.forget(key)
        return ""

    def record(self, work: WorkObject, made: Json) -> str:
        """See `delivered.encode`; made once for each version of the Work's spec and each way to make it."""
        way = made["metadata"]["annotations"].get(keys.MADE_FOR, "")
        memory, version = self._memory[work.metadata.key], (work.metadata.uid, work.metadata.generation, way)
        if memory.record is None or memory.record[0] != version:
            memory.record = (version, encode(made))
        return memory.record[1]


def manifest_for(work: WorkObject, kind: Kind, how: MadeFor | None) -> Json:
    """The manifest as a member's placer wants it, or as it is.

    Raises:
        Unplaceable: the placer does not take it.
    """
    if how is None:
        return work.manifest
    made = kind.placed(work.manifest, how)
    annotations = {**made["metadata"].get("annotations", {}), keys.MADE_FOR: how.text()}
    return {**made, "metadata": {**made["metadata"], "annotations": annotations}}
