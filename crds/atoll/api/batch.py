"""batch.volcano.sh/v1alpha1: the Volcano Job.

The schema holds the rules of any Job; defaults of the Job as a whole (minAvailable, queue, schedulerName) are the
admission webhook's. No default is inside a list: tools that compare objects with files take lists as a whole.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from atoll.api.base import (
    AGE,
    ApiModel,
    ApiObject,
    Column,
    Count,
    FreeForm,
    Int32,
    LabelSelector,
    PositiveInt32,
    Resource,
    ResourceList,
    Time,
    rules,
    served,
)
from atoll.api.lifecycle import Action, Event
from atoll.api.scheduling import NetworkTopology

GROUP = "batch.volcano.sh"


class LifecyclePolicy(ApiModel):
    """What to do when something happens to a pod or task."""

    action: Action | None = None
    """What to do."""
    event: Event | None = None
    """On which event; `*` is any of them but PodPending, PodRunning and JobUpdated."""
    events: list[Event] = Field(default_factory=list)
    """On which of several events."""
    exit_code: Int32 | None = None
    """On which container exit code; not 0, and not together with events."""
    timeout: str | None = None
    """How long to wait before acting, such as 10m; PodPending and PodRunning need it."""


class ClaimSource(ApiModel):
    """What a volume is filled from."""

    api_group: str | None = None
    """API group; empty for the core group."""
    kind: str
    """Kind, such as VolumeSnapshot."""
    name: str
    """Name."""
    namespace: str | None = None
    """Namespace, of dataSourceRef only."""


class ClaimResources(ApiModel):
    """Size of a volume."""

    requests: ResourceList = Field(default_factory=dict)
    """At least; `storage`."""
    limits: ResourceList = Field(default_factory=dict)
    """At most."""


class ClaimSpec(ApiModel):
    """A PersistentVolumeClaimSpec."""

    access_modes: list[str] = Field(default_factory=list)
    """ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod."""
    resources: ClaimResources | None = None
    """Size."""
    storage_class_name: str | None = None
    """StorageClass of the member."""
    volume_mode: str | None = None
    """Filesystem or Block."""
    volume_name: str | None = None
    """A PersistentVolume by name."""
    selector: LabelSelector | None = None
    """PersistentVolumes by label."""
    data_source: ClaimSource | None = None
    """A snapshot or claim to fill it from."""
    data_source_ref: ClaimSource | None = None
    """The same, also from other namespaces."""
    volume_attributes_class_name: str | None = None
    """VolumeAttributesClass of the member."""


class VolumeSpec(ApiModel):
    """A volume mounted in every container of every task."""

    mount_path: str
    """Where it is mounted; unique in the Job and without a colon."""
    volume_claim_name: str | None = None
    """An existing claim."""
    volume_claim: ClaimSpec | None = None
    """A PersistentVolumeClaim spec from which a claim is made; instead of volumeClaimName."""


class DependsOn(ApiModel):
    """Tasks that must have started first: so many of their pods as their minAvailable are ready or have succeeded."""

    name: list[str] = Field(default_factory=list)
    """Names of tasks."""
    iteration: Literal["any", "all"] | None = None
    """Whether one of them is enough (`any`); `all` if absent."""


class PartitionPolicy(ApiModel):
    """Groups of replicas that stay together."""

    total_partitions: PositiveInt32
    """Number of partitions."""
    partition_size: PositiveInt32
    """Replicas in each; times totalPartitions it gives the replicas of the task."""
    min_partitions: Count | None = None
    """Complete partitions needed before the Job starts; 0 if absent."""
    network_topology: NetworkTopology | None = None
    """Closeness inside each partition."""


class TaskSpec(ApiModel):
    """A role of the Job: replicas of one pod template."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.minAvailable) || !has(self.replicas) || self.minAvailable <= self.replicas",
                "minAvailable is more than replicas: lower it, or raise replicas",
            )
        )
    )

    # Not a list map by name: a map key has to be there.
    name: str | None = None
    """DNS label, unique in the Job; made from the index if absent."""
    replicas: Count | None = None
    """Pods of this task."""
    min_available: Count | None = None
    """Pods of this task that the gang needs; all replicas if absent."""
    template: FreeForm = Field(default_factory=dict)
    """PodTemplateSpec."""
    policies: list[LifecyclePolicy] = Field(default_factory=list)
    """Override those of the Job."""
    topology_policy: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    """NUMA alignment on a node."""
    max_retry: Annotated[Int32, Field(ge=-1)] | None = None
    """Container restarts before the task counts as failed; 3 if absent, -1 is without limit."""
    depends_on: DependsOn | None = None
    """Tasks that must have started first."""
    partition_policy: PartitionPolicy | None = None
    """Groups of replicas that stay together."""


class JobSpec(ApiModel):
    """What the Job runs, and the gang it forms."""

    # Of replicas that are absent the webhook knows the number.
    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.minAvailable) || !has(self.tasks) || !self.tasks.all(t, has(t.replicas))"
                " || self.minAvailable <= self.tasks.map(t, t.replicas).sum()",
                "minAvailable is more than the replicas of all tasks together: lower it, or raise replicas",
            )
        )
    )

    scheduler_name: Annotated[str, Field(max_length=63)] | None = None
    """Scheduler that binds the pods."""
    min_available: Count | None = None
    """Pods that must start together; the sum over the tasks if absent."""
    volumes: list[VolumeSpec] = Field(default_factory=list)
    """Volumes of every container."""
    tasks: Annotated[list[TaskSpec], Field(max_length=1024)] = Field(default_factory=list)
    """Roles of the Job."""
    policies: list[LifecyclePolicy] = Field(default_factory=list)
    """What to do when something happens."""
    plugins: dict[str, list[str]] = Field(default_factory=dict)
    """Plugins with their arguments: env, svc, ssh, tensorflow, pytorch, mpi, ray, hcclrank, mxnet."""
    running_estimate: str | None = None
    """Expected run time, such as 90m; backfill relies on it."""
    queue: Annotated[str, Field(max_length=253)] | None = None
    """Queue that is charged."""
    max_retry: Count | None = None
    """Restarts of the Job before it counts as failed; 3 if absent."""
    ttl_seconds_after_finished: Count | None = None
    """How long a finished Job is kept."""
    priority_class_name: str | None = None
    """PriorityClass of the gang."""
    min_success: PositiveInt32 | None = None
    """Succeeded pods that complete the Job early."""
    network_topology: NetworkTopology | None = None
    """Closeness of the whole Job."""


class JobState(ApiModel):
    """Phase of a Job and why."""

    phase: str | None = None
    """Pending, Aborting, Aborted, Running, Restarting, Completing, Completed, Terminating,
    Terminated or Failed."""
    reason: str | None = None
    """One CamelCase word that says why."""
    message: str | None = None
    """The same for people."""
    last_transition_time: Time | None = None
    """When the phase changed."""


class JobCondition(ApiModel):
    """A phase that the Job has been in."""

    status: str
    """The phase."""
    last_transition_time: Time | None = None
    """When it was entered."""


class TaskState(ApiModel):
    """Pods of one task."""

    phase: dict[str, Int32] = Field(default_factory=dict)
    """Number of pods by pod phase."""


class ProbeResult(ApiModel):
    """What came of a request that a JobFlow asks for."""

    answered: Int32 | None = None
    """Pods that answered."""
    message: str | None = None
    """Why the first one that did not did not."""


class JobStatus(ApiModel):
    """Observed state of a Job."""

    state: JobState | None = None
    """Phase and why."""
    min_available: Int32 | None = None
    """Gang size in force."""
    task_status_count: dict[str, TaskState] = Field(default_factory=dict)
    """Pods by task."""
    pending: Int32 | None = None
    """Pending pods."""
    running: Int32 | None = None
    """Running pods."""
    succeeded: Int32 | None = None
    """Succeeded pods."""
    failed: Int32 | None = None
    """Failed pods."""
    terminating: Int32 | None = None
    """Pods on their way out."""
    unknown: Int32 | None = None
    """Pods whose state can't be told."""
    version: Int32 | None = None
    """Raised whenever the pods are made anew."""
    retry_count: Int32 | None = None
    """Restarts so far."""
    running_duration: str | None = None
    """How long the Job ran, once it has ended."""
    controlled_resources: dict[str, str] = Field(default_factory=dict)
    """Objects that plugins made for the Job."""
    restarts: dict[str, Int32] = Field(default_factory=dict)
    """Restarts of tasks, partitions, pods and the whole Job; Atoll's own."""
    last_action: str | None = None
    """The action of the host that was carried out last; Atoll's own."""
    probes: list[ProbeResult] = Field(default_factory=list)
    """Of those in annotation `atoll.sh/probes`, in their order; Atoll's own."""
    seen_update: str | None = None
    """The last change of the Job's spec on the host that its policies were asked about; Atoll's own."""
    evicted: dict[str, Time] = Field(default_factory=dict)
    """Pods that were evicted, and when, as long as a policy may ask; Atoll's own."""
    done: dict[str, str] = Field(default_factory=dict)
    """Indices of pods that have succeeded by task, such as `0,2-4`: these are never made again; Atoll's own."""
    # Atomic: these are phases in order, and none of their fields is a key.
    conditions: list[JobCondition] = Field(default_factory=list)
    """Phases so far."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="Job",
        plural="jobs",
        short_names=("vcjob", "vj"),
        status=True,
        selectable=(".spec.queue",),
        columns=(
            Column("STATUS", ".status.state.phase"),
            Column("minAvailable", ".status.minAvailable", "integer"),
            Column("RUNNINGS", ".status.running", "integer"),
            Column("QUEUE", ".spec.queue"),
            Column("AGE", ".metadata.creationTimestamp", "date"),
            Column("REASON", ".status.state.reason", wide=True),
            Column("MESSAGE", ".status.state.message", wide=True),
        ),
    )
)
class Job(ApiObject):
    """A batch job of several tasks that start together."""

    spec: JobSpec = Field(default_factory=JobSpec)
    """What runs."""
    status: JobStatus | None = None
    """Observed state."""


class JobTemplateSpec(ApiModel):
    """The Jobs that a CronJob makes."""

    metadata: FreeForm = Field(default_factory=dict)
    """Their labels and annotations."""
    spec: JobSpec = Field(default_factory=JobSpec)
    """Their template."""


class CronJobSpec(ApiModel):
    """When Jobs are made, and of what."""

    schedule: str
    """Five fields (minute, hour, day of the month, month, day of the week), or @hourly, @daily, @every 2h and such."""
    time_zone: str | None = None
    """Name in the IANA database, such as Europe/Berlin; UTC if absent."""
    starting_deadline_seconds: Annotated[int, Field(ge=0)] | None = None
    """How late a Job may be made; a run that is later is missed. Without it only the last missed run is made up."""
    concurrency_policy: Literal["Allow", "Forbid", "Replace"] = "Allow"
    """What becomes of a run while a Job of an earlier one has not ended: made too, not made, or made in its place."""
    suspend: bool | None = None
    """No Job is made while it is true; those that there are go on."""
    job_template: JobTemplateSpec
    """The Jobs."""
    successful_jobs_history_limit: Count = 3
    """Jobs that are Completed and stay."""
    failed_jobs_history_limit: Count = 1
    """Jobs that ended otherwise and stay."""


class CronJobStatus(ApiModel):
    """Observed state of a CronJob."""

    active: list[FreeForm] = Field(default_factory=list)
    """References to its Jobs that have not ended."""
    last_schedule_time: Time | None = None
    """For when the last Job was made."""
    last_successful_time: Time | None = None
    """When a Job of it was Completed last."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="CronJob",
        plural="cronjobs",
        short_names=("cronvcjob", "cronvj"),
        status=True,
        columns=(
            Column("Schedule", ".spec.schedule"),
            Column("Suspend", ".spec.suspend", "boolean"),
            Column("Last Schedule", ".status.lastScheduleTime", "date"),
            AGE,
        ),
    )
)
class CronJob(ApiObject):
    """Volcano Jobs that are made at times."""

    spec: CronJobSpec
    """When, and of what."""
    status: CronJobStatus | None = None
    """Observed state."""
