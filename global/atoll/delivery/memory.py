"""Memory of one Work, for as long as it exists: what caches do not show yet, and what the member refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atoll.delivery.work import WorkObject

Json = dict[str, Any]


@dataclass(slots=True)
class WorkMemory:
    """Times are on the loop's clock."""

    changed_at: float | None = None
    """Since when the status differs from the one last written."""
    written_at: float | None = None
    """When a status was last written."""
    written: tuple[str, Json] | None = None
    """(resourceVersion, status) as last written, while the cache is behind."""
    created: tuple[str, int, float] | None = None
    """(binding UID, epoch, until when) of a created object that no cache shows yet."""
    sent: tuple[str, int, float] | None = None
    """(binding UID, epoch, until when) of an object that was sent: when the watch shows it, it is still there."""
    record: tuple[tuple[str, int, str], str] | None = None
    """((UID, generation, way it is made for the member), record of its manifest)."""
    declined: tuple[str, str] | None = None
    """(record, why) of the change that the member refused last."""

    def created_unseen(self, work: WorkObject, now: float) -> bool:
        """Whether this dispatch was created a moment ago, and the cache is behind."""
        uid, epoch, until = self.created or ("", -1, 0.0)
        return (uid, epoch) == (work.binding_uid, work.epoch) and now < until
