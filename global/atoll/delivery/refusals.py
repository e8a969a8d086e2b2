"""What the member's controllers were refused when they made the pods of a workload, by their Events.

Every controller that makes pods of a Job tells of a refused one by an Event FailedCreate about it, with the API
server's own words: a full quota, a LimitRange, Pod Security, a missing PriorityClass, a webhook that says no.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import versions
from atoll.model.apiresource import EVENTS
from atoll.model.objects import Slim
from atoll.model.reports import readable

_PREFIX = "Error creating: "
"""Of Kubernetes' own controllers; not the server's words."""


class Regarding(msgspec.Struct, frozen=True, gc=False):
    """The object that an Event is about."""

    uid: str = ""


class EventObject(Slim, frozen=True, rename="camel"):
    """An Event."""

    regarding: Regarding = Regarding()
    note: str = ""


class PodRefusals:
    """The last words about pods that could not be made, by the workload's UID."""

    def __init__(self, member: ApiServer) -> None:
        """No I/O happens here; `run` does it."""
        decode = msgspec.json.Decoder(EventObject).decode
        self._events: Reflector[EventObject] = Reflector(
            member, EVENTS, decode, field_selector="reason=FailedCreate,regarding.kind=Job"
        )
        self._events.add_index("about", lambda event: [event.regarding.uid] if event.regarding.uid else [])

    async def run(self) -> None:
        """List and watch until cancelled."""
        await self._events.run()

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call `callback(UID of the workload)` when there is something new about one."""

        def changed(old: EventObject | None, new: EventObject | None) -> None:
            if new is not None:
                callback(new.regarding.uid)

        self._events.on_change(changed)

    def of(self, uid: str) -> str:
        """Why a pod of the workload could not be made when that was tried last; empty where nothing was refused."""
        found = self._events.by_index("about", uid)
        if not found:
            return ""
        newest = max(found, key=lambda event: (versions.number(event.metadata.resource_version), event.metadata.name))
        return readable(newest.note.removeprefix(_PREFIX))
