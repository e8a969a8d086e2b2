"""Works as the host may believe them: the member's status in them checked, or left out with the reason.

Every Work that control looks at comes through here, so nothing that a member writes reaches a binding, a workload or
the dispatcher unchecked.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import structlog

from atoll.delivery.work import WorkObject, WorkSpec, identifier
from atoll.kinds import BY_GVK
from atoll.kube import client_metrics
from atoll.model import reports
from atoll.model.objects import Slim
from atoll.model.reports import BadReport

MAX_STATUS = 256 * 1024
"""Bytes of one Work's status."""

Json = dict[str, Any]

log = structlog.get_logger(__name__)


class _Received(Slim, frozen=True, rename="camel"):
    spec: WorkSpec = WorkSpec()
    status: msgspec.Raw = msgspec.Raw(b"{}")


_decode = msgspec.json.Decoder(_Received).decode
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_item = reports.record(
    ordinal=reports.number(),
    group=reports.text(253),
    version=reports.text(63),
    kind=reports.text(63),
    resource=reports.text(253),
    namespace=reports.text(63),
    name=reports.text(253),
)


def decode_reported(raw: bytes | msgspec.Raw) -> WorkObject:
    """A Work reduced to permitted reports of its member; `refused` has the reason where none is kept.

    Raises:
        msgspec.MsgspecError: its metadata or spec, which the host writes, can't be read.
    """
    received = _decode(raw)
    work = WorkObject(received.metadata, received.spec)
    try:
        return msgspec.structs.replace(work, status=checked(work, bytes(received.status)))
    except BadReport as error:
        client_metrics.refused["Work", received.metadata.namespace] += 1
        log.warning("a report was refused", work=received.metadata.key, error=str(error))
        return msgspec.structs.replace(work, refused=reports.readable(str(error)))


def checked(work: WorkObject, raw: bytes) -> Json:
    """The status of a Work without whatever a member may not say.

    Raises:
        BadReport: it is too large, or a field has a value that can't be.
    """
    if len(raw) > MAX_STATUS:
        raise BadReport(f"status: {len(raw)} bytes; the most that is read is {MAX_STATUS}")
    try:
        status = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadReport(f"status: {error}") from error
    given = reports.record(conditions=reports.conditions, manifestStatuses=reports.items(_as_it_is, 64))(
        status, "status"
    )
    kept = _about_the_workload(work, given.pop("manifestStatuses", []))
    return {**given, "manifestStatuses": [kept]} if kept is not None else given


def _about_the_workload(work: WorkObject, items: list[Any]) -> Json | None:
    """The item about the workload; items about anything else are ignored."""
    for index, item in enumerate(items):
        field = f"status.manifestStatuses[{index}]"
        if not isinstance(item, dict):
            raise BadReport(f"{field}: an object is wanted")
        if not work.spec.workload.manifests:
            raise BadReport(f"{field}: nothing was sent")
        manifest = work.manifest
        kind = BY_GVK.get((manifest.get("apiVersion", ""), manifest.get("kind", "")))
        if kind is None:
            raise BadReport(f"{field}: what was sent has no status that is known")
        named, known = _item(item.get("identifier") or {}, f"{field}.identifier"), identifier(work, kind)
        if named != known:
            continue
        health = item.get("health", "Unknown")
        if health not in _HEALTH:
            raise BadReport(f"{field}.health: {reports.readable(str(health), 40)!r} is none of {', '.join(_HEALTH)}")
        said = kind.reported(manifest, item.get("status") or {}, field=f"{field}.status")
        if released := kind.released(manifest, said):
            said["released"] = dict(released)
        return {"identifier": known, "status": said, "health": health}
    return None


def _as_it_is(value: Any, _: str) -> Any:
    return value
