"""What the member's controllers were refused when they made the pods of a workload, by their Events.

Kubernetes' controllers, Atoll's and the training operator report a refused pod by an Event about the object that the
pod is made for, with the API server's own words: a full quota, a LimitRange, Pod Security, a missing PriorityClass, a
webhook that says no. That object is the workload, or one that was made for it: a ReplicaSet, a Job of a JobSet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import versions
from atoll.model.apiresource import EVENTS
from atoll.model.objects import Slim
from atoll.model.reports import readable

_PREFIX = "Error creating: "
"""Of Kubernetes' own controllers; not the server's words."""


_REASONS = ("FailedCreate", "FailedCreatePod")
"""Of the training operator: the second."""


class Ownership(Protocol):
    """Which objects of the member were made for which."""

    def top(self, uid: str) -> str:
        """UID of the highest known controller above an object; its own where none is known."""
        ...

    def beneath(self, uid: str) -> Iterable[str]:
        """UIDs of all objects below a workload, but pods."""
        ...


class Regarding(msgspec.Struct, frozen=True, gc=False):
    """The object that an Event is about."""

    uid: str = ""


class EventObject(Slim, frozen=True, rename="camel"):
    """An Event."""

    regarding: Regarding = Regarding()
    note: str = ""


class PodRefusals:
    """The last words about pods that could not be made, by the workload's UID."""

    def __init__(self, member: ApiServer, ownership: Ownership | None = None) -> None:
        """No I/O happens here; `run` does it. Without ownership only Events about workloads themselves count."""
        decode = msgspec.json.Decoder(EventObject).decode
        self._ownership = ownership
        self.events: list[Reflector[EventObject]] = [
            Reflector(member, EVENTS, decode, field_selector=f"reason={reason}") for reason in _REASONS
        ]
        for events in self.events:
            events.add_index("about", lambda event: [event.regarding.uid] if event.regarding.uid else [])

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for events in self.events:
                group.create_task(events.run())

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call `callback(UID of the workload)` when there is something new about one."""

        def changed(old: EventObject | None, new: EventObject | None) -> None:
            if new is not None:
                uid = new.regarding.uid
                callback(uid if self._ownership is None else self._ownership.top(uid))

        for events in self.events:
            events.on_change(changed)

    def of(self, uid: str) -> str:
        """Why a pod of the workload could not be made when that was tried last; empty where nothing was refused."""
        makers = [uid] if self._ownership is None else [uid, *self._ownership.beneath(uid)]
        found = [event for maker in makers for events in self.events for event in events.by_index("about", maker)]
        if not found:
            return ""
        newest = max(found, key=lambda event: (versions.number(event.metadata.resource_version), event.metadata.name))
        return readable(newest.note.removeprefix(_PREFIX))
