"""What every workload kind answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from atoll.model.apiresource import ApiResource
from atoll.model.gang import Gang

Json = dict[str, Any]


class Outcome(StrEnum):
    """How a finished workload ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Part:
    """What of a workload goes to one member."""

    cluster: str
    counts: Mapping[str, int]
    """Task name to pods."""
    min_available: int


@dataclass(frozen=True, slots=True)
class Report:
    """What one member says of its part: the status of the object there, as received."""

    cluster: str
    status: Mapping[str, Any]


class Kind(Protocol):
    """One workload kind. Every method is pure."""

    resource: ApiResource

    def queue_of(self, obj: Mapping[str, Any]) -> str:
        """The queue by the order of the design; `default` when nothing names one."""

    def priority_class_of(self, obj: Mapping[str, Any]) -> str:
        """Name of the PriorityClass, or empty."""

    def gang(self, obj: Mapping[str, Any], *, priority: int) -> Gang:
        """What it needs.

        Raises:
            ValueError: a field can't be read; the message names it.
        """

    def namespaced_needs(self, obj: Mapping[str, Any]) -> Sequence[tuple[ApiResource, str]]:
        """Objects that must be in the member before it: (resource, name)."""

    def rewrite(self, obj: Mapping[str, Any], part: Part) -> Json:
        """The manifest for a member: spec for this part, user metadata, no server fields."""

    def finished(self, status: Mapping[str, Any]) -> Outcome | None:
        """How the object of this status ended; None while it has not."""

    def healthy(self, status: Mapping[str, Any]) -> bool | None:
        """Health for the Work; None when nothing is known yet."""

    def running(self, status: Mapping[str, Any]) -> bool:
        """Whether its minimum runs."""

    def aggregate(
        self, obj: Mapping[str, Any], reports: Sequence[Report], *, waiting: tuple[str, str], now: str
    ) -> Json:
        """The status on the host.

        Args:
            obj: the object on the host.
            reports: one per member that has a part.
            waiting: (reason, message) while it is not dispatched; empty strings otherwise.
            now: RFC 3339, for transitions.
        """
