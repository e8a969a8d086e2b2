"""Read the audit logs of API servers: the clock of measurements and the proof of what happened, and in which order.

The policy (audit-policy.yaml) has one line logged per answered request, with the bodies of those writes that
are evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson

Json = dict[str, Any]
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class AuditError(ValueError):
    """A line of a log can't be read; the message names file and line."""


class User(msgspec.Struct, frozen=True):
    """Who asked."""

    username: str = ""


class ObjectRef(msgspec.Struct, frozen=True, rename="camel"):
    """The object; its name is empty where the server had not chosen one yet."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    api_group: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def path(self) -> str:
        """The resource with its subresource: `pods`, `pods/binding`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Response(msgspec.Struct, frozen=True):
    """How it ended."""

    code: int = 0
    message: str = ""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """One answered request."""

    stage: str
    verb: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    #: path and query
    uri: str = msgspec.field(default="", name="requestURI")
    user: User = User()
    user_agent: str = ""
    object_ref: ObjectRef = ObjectRef()
    response_status: Response = Response()
    annotations: dict[str, str] = {}
    #: empty where the policy does not keep it
    request_object: msgspec.Raw = msgspec.Raw()
    #: the same
    response_object: msgspec.Raw = msgspec.Raw()

    @property
    def at(self) -> float:
        """Seconds since the epoch when the answer was complete, exact to a microsecond."""
        return self.stage_timestamp.timestamp()

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return self.stage == "ResponseComplete" and 200 <= self.response_status.code < 300

    @property
    def unknown(self) -> bool:
        """Whether its client was gone, or its time over, before the answer: the store may have carried it out."""
        return self.stage == "ResponseComplete" and self.response_status.code == 504

    @property
    def forbidden(self) -> bool:
        """Whether these credentials may not do that; an object that admission refused is none of it."""
        return self.response_status.code == 401 or self.annotations.get("authorization.k8s.io/decision") == "forbid"

    def wrote(self, path: str, *verbs: str, group: str | None = None, or_unknown: bool = False) -> bool:
        """Whether this is a write to `path` that was carried out.

        Args:
            path: such as `pods/binding`.
            verbs: any of these; none given means any write.
            group: only of this API group; None for any (a Volcano Job and a batch Job are both `jobs`).
            or_unknown: take it as carried out where its client died too early to tell.
        """
        return (
            (self.ok or (or_unknown and self.unknown))
            and self.verb in (verbs or WRITES)
            and self.object_ref.path == path
            and (group is None or self.object_ref.api_group == group)
        )

    def body(self) -> Any:
        """The request's body, decoded; None where the policy does not keep it."""
        body = bytes(self.request_object)
        return orjson.loads(body) if body else None

    def answer(self) -> Any:
        """The answer's body, decoded; None where the policy does not keep it."""
        body = bytes(self.response_object)
        return orjson.loads(body) if body else None


_decoder = msgspec.json.Decoder(Event)


def read(path: Path) -> Iterator[Event]:
    """The events of a log, in the order in which they were written.

    A last line without its end is left out: the server may be writing it, or was killed while it did.

    Raises:
        AuditError: another line can't be read.
    """
    with path.open("rb") as log:
        for number, line in enumerate(log, start=1):
            try:
                event = _decoder.decode(line)
            except msgspec.MsgspecError as error:
                if not line.endswith(b"\n"):
                    return
                raise AuditError(f"{path}, line {number} is no audit event: {error}") from error
            yield event


def creation_times(events: Iterable[Event], path: str, *, group: str | None = None) -> dict[str, float]:
    """Key -> when it was created (seconds since the epoch); the last time where that happened more than once."""
    return {event.object_ref.key: event.at for event in events if event.wrote(path, "create", group=group)}


def status_in(body: Any) -> Json:
    """The status that a write carries, as merge patch, whole object or JSON patch; empty if none.

    A merge patch carries what changed only.
    """
    if isinstance(body, Mapping):
        return dict(body.get("status") or {})
    for operation in body or ():
        if operation.get("path") == "/status" and operation.get("op") in ("add", "replace"):
            return dict(operation.get("value") or {})
    return {}
