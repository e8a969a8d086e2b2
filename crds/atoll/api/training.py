"""training.volcano.sh/v1alpha1: HyperJob, a set of Volcano Jobs over members."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from atoll.api.base import AGE, ApiModel, ApiObject, Column, Condition, Int32, Resource, served
from atoll.api.batch import JobSpec, JobState

GROUP = "training.volcano.sh"


class SplitPolicy(ApiModel):
    """How the replicas become Jobs."""

    mode: Literal["static", "auto"] | None = None
    """`static`, also if absent: a Job for each replica, each in one member. `auto`: one Job of all replicas, one gang,
    which is divided over as few members as hold it.
    """
    accelerators: Int32 | None = None
    """Refused: the requests of the template's pods say it."""
    accelerator_type: str | None = None
    """Refused: the requests of the template's pods say it."""


class ReplicatedJob(ApiModel):
    """Equal Jobs of the set."""

    name: str
    """Its name in the set; Jobs are called `hyperjob-name-index`."""
    template_spec: JobSpec = Field(default_factory=JobSpec)
    """Of each Job."""
    replicas: Int32 | None = None
    """How many of them; 1 if absent."""
    cluster_names: list[str] = Field(default_factory=list)
    """Members that its Jobs may use; any where it is empty."""
    split_policy: SplitPolicy | None = None
    """How the replicas become Jobs."""


class HyperJobSpec(ApiModel):
    """The Jobs of the set."""

    replicated_jobs: Annotated[list[ReplicatedJob], Field(max_length=256)] = Field(default_factory=list)
    """Groups of equal Jobs."""
    min_available: Int32 | None = None
    """Replicas that must start together: the Jobs of that many are reserved in their members, and start then, or none
    is. Jobs start one by one where it is not set.
    """
    max_domains: Int32 | None = None
    """Most members that the set may use."""
    plugins: dict[str, list[str]] = Field(default_factory=dict)
    """Refused: plugins belong in the templates."""


class ReplicatedJobStatus(ApiModel):
    """The Jobs of one group."""

    name: str
    """Of the group."""
    job_states: dict[str, JobState] = Field(default_factory=dict)
    """Job -> phase, also of Jobs that ended and are gone."""
    pending: Int32 | None = None
    """Jobs that are Pending, or not made yet."""
    running: Int32 | None = None
    """Jobs that run, or are on their way to an end."""
    completed: Int32 | None = None
    """Jobs that are Completed."""
    failed: Int32 | None = None
    """Jobs that are Failed."""
    terminated: Int32 | None = None
    """Jobs that are Terminated or Aborted."""
    unknown: Int32 | None = None
    """Jobs in any other phase."""


class HyperJobStatus(ApiModel):
    """Observed state of the set."""

    conditions: list[Condition] = Field(default_factory=list)
    """Completed, or Failed, once all Jobs have ended."""
    replicated_jobs_status: list[ReplicatedJobStatus] = Field(default_factory=list)
    """Groups as in the spec."""
    split_count: Int32 | None = None
    """Jobs of the set."""
    observed_generation: int | None = None
    """The metadata.generation that this was computed from."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="HyperJob",
        plural="hyperjobs",
        short_names=("hj",),
        status=True,
        columns=(
            Column("Jobs", ".status.splitCount", type="integer"),
            Column("Completed", '.status.conditions[?(@.type=="Completed")].status'),
            Column("Failed", '.status.conditions[?(@.type=="Failed")].status'),
            AGE,
        ),
    )
)
class HyperJob(ApiObject):
    """Volcano Jobs that belong together, over members."""

    spec: HyperJobSpec = Field(default_factory=HyperJobSpec)
    """Its Jobs."""
    status: HyperJobStatus | None = None
    """Observed state."""
