"""A submitted job, and where it is."""

from __future__ import annotations

import html
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from atoll.kinds import BY_RESOURCE
from atoll.model.apiresource import ApiResource

Json = dict[str, Any]


class State(StrEnum):
    """Where a job is."""

    PENDING = "Pending"
    """Not over; `explain` says the rest."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def final(self) -> bool:
        """Whether it stays so."""
        return self is not State.PENDING


class Vanished(RuntimeError):
    """The job was deleted before it ended."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job on the host."""

    resource: ApiResource
    namespace: str
    name: str
    uid: str

    @property
    def ref(self) -> str:
        """As the command line names it: `vcjob/train`."""
        return f"{self.resource.plural}.{self.resource.group}/{self.name}"

    def _repr_html_(self) -> str:
        """A line of a notebook."""
        return f"<code>{html.escape(self.ref)}</code> in namespace <code>{html.escape(self.namespace)}</code>"


def submitted(resource: ApiResource, found: Json) -> Submitted:
    """The job that an object of the host is."""
    meta = found["metadata"]
    return Submitted(resource, meta["namespace"], meta["name"], meta["uid"])


def state_of(job: Submitted, found: Json | None) -> State:
    """Where a job is by what the host has under its name.

    Raises:
        Vanished: nothing, or another job.
    """
    if found is None or found["metadata"]["uid"] != job.uid:
        raise Vanished(f"{job.ref} of namespace {job.namespace} was deleted before it ended")
    outcome = BY_RESOURCE[job.resource].finished(found.get("status") or {})
    return State(str(outcome)) if outcome is not None else State.PENDING
