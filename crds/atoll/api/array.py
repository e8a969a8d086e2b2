"""atoll.sh/v1alpha1: JobArray, one object for up to 100,000 equal Jobs that differ in their index."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from atoll.api.base import (
    AGE,
    ApiModel,
    ApiObject,
    Column,
    Conditions,
    Count,
    FreeForm,
    Int32,
    IntOrString,
    Resource,
    Time,
    served,
)
from atoll.api.batch import JobSpec

GROUP = "atoll.sh"


class ArrayTemplate(ApiModel):
    """The Volcano Job of one index, a gang by itself."""

    metadata: FreeForm = Field(default_factory=dict)
    """Labels and annotations of its Jobs in members."""
    spec: JobSpec = Field(default_factory=JobSpec)
    """Its tasks, plugins and policies. The queue is the array's."""


class JobArraySpec(ApiModel):
    """Indices, and the Job that runs for each."""

    indices: IntOrString
    """How many, such as 200; or ranges, such as "0-199" or "0-9,20,30-39". It does not change."""
    at_once: Annotated[int, Field(ge=1, le=1000)] = 100
    """Indices that run at once, at most; fewer where there is no capacity."""
    retries: Annotated[int, Field(ge=0, le=10)] = 0
    """How often an index that failed runs again."""
    arguments: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=100_000)] | None = None
    """A text for each index in order, which its containers read from ATOLL_ARRAY_ARGUMENT; 128 kB in all. They do not
    change."""
    ttl_seconds_after_finished: Count | None = None
    """How long a finished array is kept."""
    template: ArrayTemplate
    """The Job of each index. It does not change."""


class ArrayFailure(ApiModel):
    """Indices that failed for one reason."""

    reason: str
    """Why, without names of pods and their output."""
    count: Int32 = 0
    """How many failed for it."""
    indices: str | None = None
    """Which failed, as ranges in the order in which they failed; the first ones where they are many."""
    last: str | None = None
    """The last one of them, and the message of its Job."""


class ArrayMember(ApiModel):
    """A member that runs some indices."""

    name: str
    """Of the member."""
    work: str
    """UID of the Work by which it got them."""
    indices: Int32 = 0
    """Indices that it has and that have not ended."""


class JobArrayStatus(ApiModel):
    """Observed state of an array."""

    phase: str | None = None
    """Pending, Running, Completed or Failed."""
    pending: Int32 | None = None
    """Indices that wait for their turn, or to run again."""
    running: Int32 | None = None
    """Indices whose Job exists."""
    succeeded: Int32 | None = None
    """Indices that succeeded; they never run again."""
    failed: Int32 | None = None
    """Indices that failed more often than spec.retries; they never run again."""
    retried: Int32 | None = None
    """Failures of indices that ran again, or will."""
    failed_indices: str | None = None
    """Which failed, as ranges; the first ones where they are many."""
    failures: Annotated[list[ArrayFailure], Field(max_length=8)] | None = None
    """Reasons of indices that failed more often than spec.retries: the first seven, and one entry for all others."""
    states: Annotated[str, Field(max_length=140_000)] | None = None
    """State and failures of each index, compressed: base64 of zlib of a byte for each index in order, failures * 4 and
    0 pending, 1 running, 2 succeeded or 3 failed."""
    members: Annotated[list[ArrayMember], Field(max_length=100)] | None = None
    """Members among which its indices are divided, for an array that may run in several."""
    owners: Annotated[str, Field(max_length=140_000)] | None = None
    """The member of each index, in the form of `states`: its place in `members`, from 1, and 0 for none."""
    start_time: Time | None = None
    """When its first index was started."""
    completion_time: Time | None = None
    """When its last index ended."""
    conditions: Conditions = Field(default_factory=list)
    """Dispatched, and where it is not why."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="JobArray",
        plural="jobarrays",
        short_names=("ja",),
        status=True,
        columns=(
            Column("Phase", ".status.phase"),
            Column("Pending", ".status.pending", "integer"),
            Column("Running", ".status.running", "integer"),
            Column("Succeeded", ".status.succeeded", "integer"),
            Column("Failed", ".status.failed", "integer"),
            AGE,
        ),
    )
)
class JobArray(ApiObject):
    """Equal Jobs that differ in their index, queued and sent to a member as one."""

    spec: JobArraySpec
    """What runs."""
    status: JobArrayStatus | None = None
    """Observed state."""
