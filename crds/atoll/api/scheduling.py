"""scheduling.volcano.sh/v1beta1: Queue and PodGroup.

Queues carry the quota tree of the federation on the host; PodGroups carry gangs in a member. Both
are Volcano's, field by field, so that its YAML and tools work unchanged.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from atoll.api.base import (
    AGE,
    ApiModel,
    ApiObject,
    Column,
    Conditions,
    Count,
    Int32,
    LabelSelector,
    PositiveInt32,
    Resource,
    ResourceList,
    Time,
    keyed_by,
    rules,
    served,
)

GROUP = "scheduling.volcano.sh"

Weight = Annotated[Int32, Field(ge=1, le=65535)]


class NetworkTopology(ApiModel):
    """How close together the pods of a gang must run."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!(has(self.highestTierAllowed) && has(self.highestTierName))",
                "set highestTierAllowed or highestTierName, not both",
            )
        )
    )

    mode: Literal["hard", "soft"] | None = None
    """hard, also if absent: the gang waits for a domain within the allowed tier; soft: closeness is only
    preferred."""
    highest_tier_allowed: Count | None = None
    """Highest HyperNode tier that the gang may span."""
    highest_tier_name: Annotated[str, Field(max_length=253)] | None = None
    """The same limit by tierName."""


class NodeGroupTerms(ApiModel):
    """Names of node groups."""

    required_during_scheduling_ignored_during_execution: list[str] = Field(default_factory=list)
    """Must hold."""
    preferred_during_scheduling_ignored_during_execution: list[str] = Field(default_factory=list)
    """Should hold."""


class QueueAffinity(ApiModel):
    """Node groups that the queue's pods use or avoid."""

    node_group_affinity: NodeGroupTerms | None = None
    """Groups to use."""
    node_group_anti_affinity: NodeGroupTerms | None = None
    """Groups to avoid."""


class Guarantee(ApiModel):
    """Amounts kept for a queue even while it is idle."""

    resource: ResourceList = Field(default_factory=dict)
    """Amounts that are never lent to others."""


class QueueCluster(ApiModel):
    """Share of a queue in one member."""

    name: str | None = None
    """Member cluster."""
    weight: Int32 | None = None
    """Kept for other readers; members are chosen by where work fits."""
    capacity: ResourceList = Field(default_factory=dict)
    """Ceiling of the queue in that member."""


class QueueSpec(ApiModel):
    """Quota and rank of a queue."""

    weight: Weight = 1
    """Share among siblings where none of them sets deserved."""
    capability: ResourceList = Field(default_factory=dict)
    """Hard ceiling of the queue and everything below it."""
    deserved: ResourceList = Field(default_factory=dict)
    """Entitlement; use above it is borrowed and can be reclaimed."""
    guarantee: Guarantee | None = None
    """Amounts that are never lent to others."""
    reclaimable: bool = True
    """Whether other queues may reclaim what this one borrowed."""
    parent: str | None = None
    """Parent in the tree; workloads go to leaves only."""
    priority: Count | None = None
    """Higher is served first and reclaimed from last."""
    affinity: QueueAffinity | None = None
    """Node groups inside a cluster; kept for other readers, without effect in Atoll."""
    extend_clusters: list[QueueCluster] = Field(default_factory=list)
    """Members that serve this queue, each with its ceiling; empty means all of them."""
    type: str | None = None
    """Free label for the kind of queue; does not affect scheduling."""
    dequeue_strategy: Literal["fifo", "traverse", "backfill"] | None = None
    """fifo: nothing passes a blocked head; traverse: whatever fits goes; backfill: others pass only
    if the head is not delayed."""


class Reservation(ApiModel):
    """Nodes locked for a queue."""

    nodes: list[str] = Field(default_factory=list)
    """Node names."""
    resource: ResourceList = Field(default_factory=dict)
    """Idle resources on them."""


class QueueStatus(ApiModel):
    """Observed state of a queue."""

    state: str | None = None
    """Open, Closed, Closing or Unknown; changed by a Command, never by spec."""
    unknown: Int32 | None = None
    """Gangs in phase Unknown."""
    pending: Int32 | None = None
    """Gangs that wait; these counts include the queues below."""
    running: Int32 | None = None
    """Gangs that run."""
    inqueue: Int32 | None = None
    """Gangs that are dispatched and not yet running."""
    completed: Int32 | None = None
    """Gangs that ended and are not deleted yet."""
    reservation: Reservation | None = None
    """Nodes locked for the queue."""
    allocated: ResourceList = Field(default_factory=dict)
    """Resources charged to the queue and everything below it."""
    conditions: Conditions = Field(default_factory=list)
    """Valid: whether it is part of a valid tree, and if not, why."""


@served(
    Resource(
        group=GROUP,
        version="v1beta1",
        kind="Queue",
        plural="queues",
        namespaced=False,
        short_names=("q", "queue-v1beta1"),
        status=True,
        columns=(
            Column("Parent", ".spec.parent"),
            Column("State", ".status.state"),
            Column("Pending", ".status.pending", "integer"),
            Column("Inqueue", ".status.inqueue", "integer"),
            Column("Running", ".status.running", "integer"),
            AGE,
            Column("Used", ".status.allocated", wide=True),
            Column("Deserved", ".spec.deserved", wide=True),
            Column("Capability", ".spec.capability", wide=True),
            Column("Weight", ".spec.weight", "integer", wide=True),
            Column("Priority", ".spec.priority", "integer", wide=True),
            Column("Strategy", ".spec.dequeueStrategy", wide=True),
            Column("Valid", '.status.conditions[?(@.type=="Valid")].status', wide=True),
            Column("Reason", '.status.conditions[?(@.type=="Valid")].reason', wide=True),
        ),
    )
)
class Queue(ApiObject):
    """A node of the quota tree."""

    spec: QueueSpec = Field(default_factory=QueueSpec)
    """Quota and rank."""
    status: QueueStatus | None = None
    """Observed state."""


class SubGroupPolicy(ApiModel):
    """How pods of a gang are divided in sub-gangs."""

    name: str
    """Name of the policy, unique in the PodGroup."""
    network_topology: NetworkTopology | None = None
    """Closeness inside each sub-gang."""
    sub_group_size: PositiveInt32 | None = None
    """Pods in one sub-gang; 1 if absent."""
    min_sub_groups: Count | None = None
    """Complete sub-gangs needed before the gang starts; 0 if absent."""
    label_selector: LabelSelector | None = None
    """Pods that this policy is for."""
    match_label_keys: list[str] = Field(default_factory=list)
    """Pods with equal values of these labels form one sub-gang."""


class PodGroupSpec(ApiModel):
    """What a gang needs to start."""

    min_member: Int32 | None = None
    """Pods that must start together."""
    min_task_member: dict[str, Int32] = Field(default_factory=dict)
    """The same per task."""
    queue: str = "default"
    """Queue that is charged."""
    priority_class_name: str | None = None
    """PriorityClass of the gang."""
    min_resources: ResourceList = Field(default_factory=dict)
    """Resources needed for the minimum."""
    network_topology: NetworkTopology | None = None
    """Closeness of the whole gang."""
    sub_group_policy: Annotated[list[SubGroupPolicy], Field(max_length=1024)] = Field(default_factory=list)
    """Sub-gangs with a closeness of their own."""


class PodGroupCondition(ApiModel):
    """One observed aspect of a gang."""

    type: str
    """Scheduled or Unschedulable."""
    status: str | None = None
    """True, False or Unknown."""
    transition_id: str | None = Field(default=None, alias="transitionID")
    """The scheduling pass that set it."""
    last_transition_time: Time | None = None
    """When it changed."""
    reason: str | None = None
    """One CamelCase word that says why."""
    message: str | None = None
    """The same for people."""


class PodGroupStatus(ApiModel):
    """Observed state of a gang."""

    phase: str | None = None
    """Pending, Inqueue, Running, Unknown or Completed."""
    conditions: Annotated[list[PodGroupCondition], keyed_by("type")] = Field(default_factory=list)
    """Observed aspects."""
    running: Int32 | None = None
    """Running pods."""
    succeeded: Int32 | None = None
    """Succeeded pods."""
    failed: Int32 | None = None
    """Failed pods."""


@served(
    Resource(
        group=GROUP,
        version="v1beta1",
        kind="PodGroup",
        plural="podgroups",
        short_names=("pg", "podgroup-v1beta1"),
        # As upstream: its clients write status with the object; a subresource would drop it unseen.
        status=False,
        selectable=(".spec.queue",),
        columns=(
            Column("STATUS", ".status.phase"),
            Column("minMember", ".spec.minMember", "integer"),
            Column("RUNNINGS", ".status.running", "integer"),
            Column("AGE", ".metadata.creationTimestamp", "date"),
            Column("QUEUE", ".spec.queue", wide=True),
        ),
    )
)
class PodGroup(ApiObject):
    """A gang: pods that start together or not at all."""

    spec: PodGroupSpec = Field(default_factory=PodGroupSpec)
    """What the gang needs."""
    status: PodGroupStatus | None = None
    """Observed state."""
