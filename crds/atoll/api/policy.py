"""policy.karmada.io/v1alpha1: propagation policies, and the placement they share with bindings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from atoll.api.base import (
    ApiModel,
    ApiObject,
    Column,
    Count,
    Int32,
    LabelSelector,
    Resource,
    served,
)

GROUP = "policy.karmada.io"


class FieldRequirement(ApiModel):
    """One condition on a field of a cluster."""

    key: str
    """provider, region or zone."""
    operator: str
    """In or NotIn."""
    values: list[str] = Field(default_factory=list)
    """Values to compare with."""


class FieldSelector(ApiModel):
    """Selects clusters by their provider, region or zone."""

    match_expressions: list[FieldRequirement] = Field(default_factory=list)
    """Conditions; all must hold."""


class ClusterAffinity(ApiModel):
    """Selects clusters; all that is set must hold."""

    label_selector: LabelSelector | None = None
    """Labels of the Cluster."""
    field_selector: FieldSelector | None = None
    """Fields of the Cluster."""
    cluster_names: list[str] = Field(default_factory=list)
    """Only these; empty means any."""
    exclude: list[str] = Field(default_factory=list)
    """Never these."""


class OverflowAffinity(ClusterAffinity):
    """A further tier of clusters, used once those before it are full."""

    affinity_name: str | None = None
    """Name of the tier."""


class ClusterAffinityTerm(ClusterAffinity):
    """A named group of clusters."""

    affinity_name: Annotated[str, Field(min_length=1, max_length=32)]
    """Name of the group."""
    overflow_affinities: list[OverflowAffinity] = Field(default_factory=list)
    """Tiers to fill, in order, once the group is full."""


class SpreadConstraint(ApiModel):
    """Over how many groups of clusters a workload is spread."""

    spread_by_field: Literal["cluster", "region", "zone", "provider"] | None = None
    """What makes a group."""
    spread_by_label: str | None = None
    """Label of the Cluster that makes a group, instead of a field."""
    min_groups: Int32 | None = None
    """Fewest groups."""
    max_groups: Int32 | None = None
    """Most groups."""


class StaticClusterWeight(ApiModel):
    """Fixed weight of some clusters."""

    target_cluster: ClusterAffinity
    """Which clusters."""
    weight: Annotated[int, Field(ge=1)]
    """Weight of each."""


class WeightPreference(ApiModel):
    """How replicas are divided by weight."""

    static_weight_list: list[StaticClusterWeight] = Field(default_factory=list)
    """Fixed weights; clusters that match none get nothing."""
    dynamic_weight: Literal["AvailableReplicas"] | None = None
    """Weights from what each cluster could hold; wins over the list."""


class ReplicaScheduling(ApiModel):
    """How replicas are split over clusters."""

    # No default: an empty replicaScheduling means Divided, and a missing one means one cluster.
    replica_scheduling_type: Literal["Duplicated", "Divided"] | None = None
    """Duplicated: all replicas in each cluster; Divided: each replica once."""
    replica_division_preference: Literal["Aggregated", "Weighted"] | None = None
    """Aggregated: few clusters; Weighted: in proportion."""
    weight_preference: WeightPreference | None = None
    """Weights; equal if absent."""


class ClusterToleration(ApiModel):
    """A taint of clusters that is tolerated."""

    key: str | None = None
    """Key of the taint; empty with Exists tolerates all."""
    operator: str | None = None
    """Exists or Equal."""
    value: str | None = None
    """Value of the taint, for Equal."""
    effect: str | None = None
    """NoSchedule, PreferNoSchedule or NoExecute; empty tolerates each."""
    toleration_seconds: int | None = None
    """How long NoExecute is tolerated; for ever if absent."""


class WorkloadGroup(ApiModel):
    """Workloads that belong to one group."""

    group_by_label_key: str
    """Label of the workload; equal values make a group."""


class WorkloadAffinity(ApiModel):
    """Workloads to run beside, and to keep away from."""

    affinity: WorkloadGroup | None = None
    """Run only in members in which each of the group runs that runs anywhere."""
    anti_affinity: WorkloadGroup | None = None
    """Run only in members in which no other of the group runs."""


class Placement(ApiModel):
    """Where a workload may run and how it is split."""

    cluster_affinity: ClusterAffinity | None = None
    """Clusters that may be used; not together with clusterAffinities."""
    cluster_affinities: list[ClusterAffinityTerm] = Field(default_factory=list)
    """Groups of clusters that are tried in order."""
    cluster_tolerations: list[ClusterToleration] = Field(default_factory=list)
    """Taints of clusters that are tolerated."""
    spread_constraints: list[SpreadConstraint] = Field(default_factory=list)
    """How far to spread."""
    replica_scheduling: ReplicaScheduling | None = None
    """How replicas are split; absent means one cluster."""
    workload_affinity: WorkloadAffinity | None = None
    """Workloads to run beside, and to keep away from."""


class StatePreservationRule(ApiModel):
    """One value carried to the next cluster."""

    alias_label_name: str
    """Label under which the next cluster sees it."""
    json_path: str
    """Where it is found in the status."""


class StatePreservation(ApiModel):
    """State carried over a failover."""

    rules: list[StatePreservationRule]
    """The carried value."""


class DecisionConditions(ApiModel):
    """When an application counts as failed."""

    toleration_seconds: Count | None = 300
    """How long it may be unhealthy."""


PurgeMode = Literal["Directly", "Gracefully", "Immediately", "Graciously", "Never"]


class ApplicationFailover(ApiModel):
    """Failover of an application that stays unhealthy."""

    decision_conditions: DecisionConditions
    """When it counts as failed."""
    purge_mode: PurgeMode | None = None
    """How the old copy is removed."""
    grace_period_seconds: Int32 | None = None
    """How long the old copy may stay when removed gracefully."""
    state_preservation: StatePreservation | None = None
    """State carried over."""


class ClusterFailover(ApiModel):
    """Failover from a cluster that is lost."""

    purge_mode: PurgeMode | None = None
    """How the old copy is removed."""
    state_preservation: StatePreservation | None = None
    """State carried over."""


class Failover(ApiModel):
    """What moves a workload to another cluster."""

    application: ApplicationFailover | None = None
    """The application stays unhealthy."""
    cluster: ClusterFailover | None = None
    """The cluster is lost."""


class PolicySuspendClusters(ApiModel):
    """Clusters to which nothing is sent."""

    cluster_names: list[str] = Field(default_factory=list)
    """Cluster names."""


class PolicySuspension(ApiModel):
    """Pauses by the policy."""

    dispatching: bool | None = None
    """Send to no cluster."""
    dispatching_on_clusters: PolicySuspendClusters | None = None
    """Send to all but these."""


class ResourceSelector(ApiModel):
    """Workloads that a policy is for."""

    api_version: str
    """Their apiVersion."""
    kind: str
    """Their kind."""
    namespace: str | None = None
    """Their namespace; that of the policy if absent."""
    name: str | None = None
    """One by name."""
    label_selector: LabelSelector | None = None
    """Several by label; not looked at when a name is given."""


class PolicySchedulePriority(ApiModel):
    """Where the priority of a workload comes from."""

    priority_class_source: Literal["KubePriorityClass", "PodPriorityClass", "FederatedPriorityClass"]
    """What kind of class is named."""
    priority_class_name: str
    """Its name."""


class PropagationSpec(ApiModel):
    """Which workloads go where."""

    resource_selectors: Annotated[list[ResourceSelector], Field(min_length=1)]
    """Workloads that the policy is for."""
    association: bool | None = None
    """Older name of propagateDeps: true counts where that is not set."""
    propagate_deps: bool | None = None
    """Whether what the workload refers to, such as ConfigMaps, goes to members with it; it does unless this is false. A
    change counts for workloads that run as well."""
    placement: Placement | None = None
    """Where they may run and how they are split."""
    priority: Int32 = 0
    """Among policies for the same workload, the highest wins."""
    dependent_overrides: list[str] = Field(default_factory=list)
    """Override policies that must exist first."""
    scheduler_name: str | None = None
    """Who places the workload."""
    failover: Failover | None = None
    """What moves it to another cluster."""
    conflict_resolution: Literal["Abort", "Overwrite"] = "Abort"
    """What happens when the object already exists in the member."""
    activation_preference: Literal["Lazy"] | None = None
    """Lazy: a changed policy applies with the next change of the workload."""
    suspension: PolicySuspension | None = None
    """Pauses."""
    preserve_resources_on_deletion: bool | None = None
    """Objects in members outlive the workload on the host."""
    preemption: Literal["Always", "Never"] = "Never"
    """Whether this policy takes workloads over from one of lower priority."""
    schedule_priority: PolicySchedulePriority | None = None
    """Priority of the workload in scheduling."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="PropagationPolicy",
        plural="propagationpolicies",
        short_names=("pp",),
        categories=("atoll", "karmada-io"),
        columns=(
            Column("CONFLICT-RESOLUTION", ".spec.conflictResolution"),
            Column("PRIORITY", ".spec.priority", "integer"),
            Column("AGE", ".metadata.creationTimestamp", "date"),
        ),
    )
)
class PropagationPolicy(ApiObject):
    """Says to which clusters some workloads of a namespace go."""

    spec: PropagationSpec
    """Which workloads go where."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="ClusterPropagationPolicy",
        plural="clusterpropagationpolicies",
        namespaced=False,
        short_names=("cpp",),
        categories=("atoll", "karmada-io"),
        columns=(
            Column("CONFLICT-RESOLUTION", ".spec.conflictResolution"),
            Column("PRIORITY", ".spec.priority", "integer"),
            Column("AGE", ".metadata.creationTimestamp", "date"),
        ),
    )
)
class ClusterPropagationPolicy(ApiObject):
    """Says to which clusters some workloads of any namespace go; a PropagationPolicy for the same workload wins."""

    spec: PropagationSpec
    """Which workloads go where."""
