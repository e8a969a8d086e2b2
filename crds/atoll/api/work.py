"""work.karmada.io: ResourceBinding (v1alpha2) and Work (v1alpha1).

A ResourceBinding is the decision about one workload; a Work is one manifest on its way to one
member. Three processes write a binding, each its own fields by server-side apply, which is why its
lists are keyed.
"""

from __future__ import annotations

from typing import Annotated, Literal

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
    Resource,
    ResourceList,
    Time,
    keyed_by,
    served,
)
from atoll.api.policy import Failover, Placement, PolicySuspendClusters, PurgeMode

GROUP = "work.karmada.io"


class ObjectReference(ApiModel):
    """The workload on the host."""

    api_version: str
    """Its apiVersion."""
    kind: str
    """Its kind."""
    namespace: str | None = None
    """Its namespace; none for cluster-scoped objects."""
    name: str
    """Its name."""
    uid: str | None = None
    """Its UID; also decides ties when replicas are divided."""
    resource_version: str | None = None
    """The version that the binding was made from."""


class NodeClaim(ApiModel):
    """What a replica asks of its node."""

    hard_node_affinity: FreeForm | None = None
    """Required node affinity (NodeSelector)."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the node must have."""
    tolerations: list[FreeForm] = Field(default_factory=list)
    """Taints that are tolerated."""


class ComponentRequirements(ApiModel):
    """What one replica needs."""

    node_claim: NodeClaim | None = None
    """Its demands on its node."""
    resource_request: ResourceList = Field(default_factory=dict)
    """Requested resources."""
    priority_class_name: str | None = None
    """PriorityClass of its pods."""


class ReplicaRequirements(ComponentRequirements):
    """What one replica needs, of a workload with one pod template."""

    namespace: str | None = None
    """Where its pods run."""


class Component(ApiModel):
    """One pod template of a workload that has several."""

    name: Annotated[str, Field(max_length=32)]
    """Name, unique in the workload."""
    replicas: Count
    """Replicas over all clusters."""
    replica_requirements: ComponentRequirements | None = None
    """What one replica needs."""


class TargetComponent(ApiModel):
    """Share of a component in a cluster."""

    name: Annotated[str, Field(max_length=32)]
    """Name of the component."""
    replicas: Count | None = None
    """Replicas there."""


class TargetCluster(ApiModel):
    """Share of a workload in a cluster."""

    name: str
    """Member cluster."""
    replicas: Int32 | None = None
    """Replicas there."""
    components: Annotated[list[TargetComponent], keyed_by("name")] = Field(default_factory=list)
    """The same per component."""


class GracefulEvictionTask(ApiModel):
    """A part that leaves a cluster once its replacement is up."""

    from_cluster: str
    """The cluster it leaves."""
    purge_mode: PurgeMode | None = None
    """How it is removed."""
    replicas: Int32 | None = None
    """Replicas that leave."""
    reason: str
    """One CamelCase word that says why."""
    message: str | None = None
    """The same for people."""
    producer: str
    """Who asked for it."""
    grace_period_seconds: Int32 | None = None
    """How long it may stay."""
    suppress_deletion: bool | None = None
    """Keep it until this is lifted."""
    preserved_label_state: dict[str, str] = Field(default_factory=dict)
    """State carried to the next cluster."""
    creation_timestamp: Time | None = None
    """Since when it is leaving."""
    clusters_before_failover: list[str] = Field(default_factory=list)
    """Where the workload was before."""


class BindingSnapshot(ApiModel):
    """A binding that depends on this one."""

    namespace: str | None = None
    """Its namespace."""
    name: str
    """Its name."""
    clusters: Annotated[list[TargetCluster], keyed_by("name")] = Field(default_factory=list)
    """Clusters that it goes to."""


class Suspension(ApiModel):
    """Pauses."""

    dispatching: bool | None = None
    """Send to no cluster."""
    dispatching_on_clusters: PolicySuspendClusters | None = None
    """Send to all but these."""
    scheduling: bool | None = None
    """Not placed yet; set at creation, lifted by the dispatcher."""


class SchedulePriority(ApiModel):
    """Rank among waiting workloads."""

    priority: Int32 = 0
    """Higher goes first."""


class WorkloadAffinityGroups(ApiModel):
    """Groups of workloads that belong together or apart."""

    affinity_group: str | None = None
    """Run beside others of this group, as key=value."""
    anti_affinity_group: str | None = None
    """Keep away from others of this group, as key=value."""


class ResourceBindingSpec(ApiModel):
    """The placed workload, its needs, and where it goes."""

    resource: ObjectReference
    """The workload on the host."""
    propagate_deps: bool | None = None
    """Take along what the workload refers to."""
    replica_requirements: ReplicaRequirements | None = None
    """What one replica needs."""
    replicas: Int32 | None = None
    """Replicas over all clusters."""
    components: Annotated[list[Component], keyed_by("name")] = Field(default_factory=list)
    """Pod templates of the workload, where it has several."""
    clusters: Annotated[list[TargetCluster], keyed_by("name")] = Field(default_factory=list)
    """The decision: clusters with their shares."""
    placement: Placement | None = None
    """Placement of the policy that applied."""
    graceful_eviction_tasks: list[GracefulEvictionTask] = Field(default_factory=list)
    """Parts that leave."""
    required_by: list[BindingSnapshot] = Field(default_factory=list)
    """Bindings that depend on this one; their clusters are served as well."""
    scheduler_name: str | None = None
    """Who places the workload."""
    failover: Failover | None = None
    """What moves it to another cluster."""
    conflict_resolution: Literal["Abort", "Overwrite"] = "Abort"
    """What happens when the object already exists in the member."""
    reschedule_triggered_at: Time | None = None
    """Newer than the last decision: decide anew."""
    suspension: Suspension | None = None
    """Pauses."""
    preserve_resources_on_deletion: bool | None = None
    """Objects in members outlive the binding."""
    schedule_priority: SchedulePriority | None = None
    """Rank among waiting workloads."""
    workload_affinity_groups: WorkloadAffinityGroups | None = None
    """Groups of workloads that belong together or apart."""


class AggregatedStatusItem(ApiModel):
    """What one member reports."""

    cluster_name: str
    """Member cluster."""
    status: FreeForm | None = None
    """Status as the member has it."""
    applied: bool | None = None
    """Whether the manifest is there."""
    applied_message: str | None = None
    """Why it is not."""
    health: Literal["Healthy", "Unhealthy", "Unknown"] | None = None
    """Health of the part."""


class ResourceBindingStatus(ApiModel):
    """Observed state of a binding."""

    scheduler_observed_generation: int | None = None
    """Generation that the last decision was made from."""
    scheduler_observing_affinity_name: str | None = None
    """Group of clusters in use."""
    last_scheduled_time: Time | None = None
    """When the last decision was made."""
    conditions: Conditions = Field(default_factory=list)
    """Scheduled and FullyApplied."""
    aggregated_status: list[AggregatedStatusItem] = Field(default_factory=list)
    """What the members report."""
    runs: list[FreeForm] = Field(default_factory=list)
    """The last 16 dispatches, from the decision to the release of their capacity (docs/records.md)."""
    recorded: int | None = None
    """Epoch of the last run that is in the records."""
    notified: list[str] = Field(default_factory=list)
    """The last notifications that reached their targets (docs/notifications.md)."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha2",
        kind="ResourceBinding",
        plural="resourcebindings",
        short_names=("rb",),
        categories=("atoll", "karmada-io"),
        status=True,
        columns=(
            Column("Scheduled", '.status.conditions[?(@.type=="Scheduled")].status'),
            Column("Reason", '.status.conditions[?(@.type=="Scheduled")].reason'),
            Column("Clusters", ".spec.clusters[*].name"),
            Column("Bound", '.status.conditions[?(@.type=="Bound")].status'),
            AGE,
            Column("Wanted", ".spec.replicas", "integer", wide=True),
            Column("FullyApplied", '.status.conditions[?(@.type=="FullyApplied")].status', wide=True),
            Column("Epoch", r".metadata.annotations.atoll\.sh/epoch", wide=True),
            Column("Message", '.status.conditions[?(@.type=="Scheduled")].message', wide=True),
        ),
    )
)
class ResourceBinding(ApiObject):
    """The decision about one workload."""

    spec: ResourceBindingSpec
    """The placed workload, its needs, and where it goes."""
    status: ResourceBindingStatus | None = None
    """Observed state."""


class WorkloadTemplate(ApiModel):
    """The objects for the member."""

    manifests: list[FreeForm] = Field(default_factory=list)
    """Whole objects; one as a rule."""


class WorkSpec(ApiModel):
    """The objects for the member, and when they are applied."""

    workload: WorkloadTemplate = Field(default_factory=WorkloadTemplate)
    """The objects."""
    suspend_dispatching: bool | None = None
    """Plan and reserve, but apply nothing yet."""
    preserve_resources_on_deletion: bool | None = None
    """The object in the member outlives the Work."""


class ResourceIdentifier(ApiModel):
    """Which manifest a status belongs to."""

    ordinal: Annotated[int, Field(ge=0)]
    """Index in the manifests."""
    group: str | None = None
    """API group."""
    version: str
    """API version."""
    kind: str
    """Kind."""
    resource: str
    """Plural of the kind."""
    namespace: str | None = None
    """Namespace in the member."""
    name: str
    """Name in the member."""


class ManifestStatus(ApiModel):
    """What the member reports of one manifest."""

    identifier: ResourceIdentifier
    """Which manifest."""
    status: FreeForm | None = None
    """Status as the member has it, with the placement of its pods."""
    health: Literal["Healthy", "Unhealthy", "Unknown"] | None = None
    """Health of the object."""


class WorkStatus(ApiModel):
    """Observed state of a Work."""

    conditions: Conditions = Field(default_factory=list)
    """Applied, Progressing, Available, Degraded and Dispatching."""
    manifest_statuses: list[ManifestStatus] = Field(default_factory=list)
    """What the member reports."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="Work",
        plural="works",
        short_names=("wk",),
        categories=("atoll", "karmada-io"),
        status=True,
        columns=(
            Column("Workload-Kind", ".spec.workload.manifests[-1:].kind"),
            Column("Workload-Name", ".spec.workload.manifests[-1:].metadata.name"),
            Column("Applied", '.status.conditions[?(@.type=="Applied")].status'),
            Column("Health", ".status.manifestStatuses[0].health"),
            AGE,
            Column("Queue", ".spec.workload.manifests[-1:].spec.queue", wide=True),
            Column("Reason", '.status.conditions[?(@.type=="Applied")].reason', wide=True),
            Column("Epoch", r".metadata.annotations.atoll\.sh/epoch", wide=True),
            Column("Message", '.status.conditions[?(@.type=="Applied")].message', wide=True),
        ),
    )
)
class Work(ApiObject):
    """One part of a workload on its way to one member; lives in its execution namespace."""

    spec: WorkSpec
    """The objects."""
    status: WorkStatus | None = None
    """Observed state."""
