"""atoll.sh/v1alpha1: ClusterCapacity, what the dispatcher knows of a member's nodes; WorkloadKind, a declared kind;
ClusterRequest, an invitation of a member.

No existing API has the tree of domains together with the free amounts of each. Nodes are not listed but
counted by class, so that an object stays small whatever the size of the member.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from atoll.api.base import (
    AGE,
    ATOMIC,
    WHOLE,
    ApiModel,
    ApiObject,
    Column,
    Conditions,
    Count,
    Resource,
    SchemaExtra,
    Time,
    keyed_by,
    rules,
    served,
)

GROUP = "atoll.sh"

MAX_DOMAINS = 4096
#: 16 classes in each domain, the bound to which members merge them.
MAX_CLASSES = 16 * MAX_DOMAINS
#: Nodes that one object names at most.
MAX_NAMES = 2000
MAX_LEFT_OUT = 1024
#: Domains with lost nodes, and nodes of each that are named.
MAX_LOST = 256
MAX_LOST_NAMES = 16
MAX_PROBLEMS = 20
MAX_TREES = 16


class Domain(ApiModel):
    """A HyperNode."""

    name: str
    """Name, unique in the member."""
    tier: Count
    """Level in the tree."""
    tier_name: str | None = None
    """Name of the level."""
    parent: str | None = None
    """The domain above; empty for the top."""


class OtherTree(ApiModel):
    """A further tree that the nodes are in, such as power."""

    name: str
    """Its name."""
    domains: Annotated[list[Domain], Field(max_length=MAX_DOMAINS), ATOMIC] = Field(default_factory=list)
    """Its domains around the nodes described here; one may be in several objects of the member."""


class ProfileTaint(ApiModel):
    """A taint that nodes have in common."""

    key: str
    """Key of the taint."""
    value: str | None = None
    """Value of the taint."""
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute."""


class ProfileNuma(ApiModel):
    """NUMA nodes of nodes, and how their kubelets align to them."""

    policy: str
    """Of the topology manager: none, best-effort, restricted or single-numa-node."""
    by_pod: bool | None = None
    """Whether it aligns whole pods rather than containers."""
    nodes: Annotated[list[dict[str, int]], Field(max_length=8), ATOMIC] = Field(default_factory=list)
    """What each NUMA node has, free or not: whole CPUs that may be a container's own, and devices."""


class Profile(ApiModel):
    """What several nodes have in common."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels, without those of leftOut."""
    taints: Annotated[list[ProfileTaint], ATOMIC] = Field(default_factory=list)
    """Taints."""
    allocatable: dict[str, str] = Field(default_factory=dict)
    """Allocatable resources of each node, as quantities."""
    numa: ProfileNuma | None = None
    """NUMA nodes of each node, where the member knows them."""


class NodeClass(ApiModel):
    """Nodes of a domain with the same profile and as much free."""

    domain: str
    """Lowest domain that holds them; empty for nodes outside any."""
    profile: Annotated[int, Field(ge=0)]
    """Index in profiles."""
    nodes: Annotated[int, Field(ge=1)]
    """How many there are."""
    free: dict[str, int] = Field(default_factory=dict)
    """What each has free: cpu in milli, all else in base units, pods included. HASH.claims.atoll.sh/pods: how many pods
    with such ResourceClaims get devices, where the host asked about them."""
    names: Annotated[list[str], Field(max_length=MAX_NAMES), ATOMIC] = Field(default_factory=list)
    """Names of the nodes, sorted; empty where the object would become too large."""
    in_trees: dict[str, str] = Field(default_factory=dict)
    """Name of a further tree, of those in trees, to the lowest domain there that holds them."""


class LostNodes(ApiModel):
    """Nodes of a domain that are not ready, or in a HyperNode that is lost; no other field counts them."""

    domain: str
    """Lowest domain that holds them; empty for nodes outside any."""
    nodes: Annotated[int, Field(ge=1)]
    """How many there are."""
    names: Annotated[list[str], Field(max_length=MAX_LOST_NAMES), ATOMIC] = Field(default_factory=list)
    """Names of the first ones, sorted."""


class TopologyProblem(ApiModel):
    """A HyperNode of the member, part of which is left out."""

    hyper_node: str
    """Name of the HyperNode."""
    message: str
    """The problem, and what to do."""


class ClusterCapacitySpec(ApiModel):
    """One top domain of a member, and its free amounts."""

    cluster: str
    """Name of the member."""
    generation: Annotated[int, Field(ge=0)]
    """One counter per member, the same in all its objects; a placement names the one that includes
    it."""
    root: str
    """Name of the top domain described here; empty for the nodes outside any."""
    objects: Annotated[int, Field(ge=1)]
    """How many objects make up this generation of the member."""
    total: Annotated[dict[str, int], WHOLE] = Field(default_factory=dict)
    """Allocatable of all nodes described here together, in the units of free."""
    # Atomic, though names are unique: the one writer replaces lists whole, and field management per
    # item would be larger than the object.
    domains: Annotated[list[Domain], Field(max_length=MAX_DOMAINS), ATOMIC] = Field(default_factory=list)
    """Domains, the top one first."""
    profiles: Annotated[list[Profile], Field(max_length=MAX_CLASSES), ATOMIC] = Field(default_factory=list)
    """What nodes have in common; classes refer to them by index."""
    classes: Annotated[list[NodeClass], Field(max_length=MAX_CLASSES), ATOMIC] = Field(default_factory=list)
    """Nodes by class."""
    lost: Annotated[list[LostNodes], Field(max_length=MAX_LOST), ATOMIC] = Field(default_factory=list)
    """Lost nodes, for people: nothing is decided by them. Where many domains have some, the ones with most of them."""
    left_out: Annotated[list[str], Field(max_length=MAX_LEFT_OUT), ATOMIC] = Field(default_factory=list)
    """Label keys that the member's nodes have and profiles do not say, for there would be too many classes; whatever
    selects by one of them is asked of the member before it goes there. The same in all objects of the member."""
    trees: Annotated[list[OtherTree], Field(max_length=MAX_TREES), ATOMIC] = Field(default_factory=list)
    """Further trees that the nodes are in."""
    asked_tiers: Annotated[list[str], Field(max_length=MAX_LEFT_OUT), ATOMIC] = Field(default_factory=list)
    """Names of tiers of further trees that are not described, for there would be too many classes; whatever is to be
    in a domain of one is asked of the member before it goes there. The same in all objects of the member."""
    aligns: bool | None = None
    """Whether kubelets of the member reject pods that they can't align to NUMA nodes: pods that may be aligned are
    asked of the member before they go there. The same in all objects of the member."""
    problems: Annotated[list[TopologyProblem], Field(max_length=MAX_PROBLEMS), ATOMIC] = Field(default_factory=list)
    """HyperNodes that are wrong; the same in all objects of the member."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="ClusterCapacity",
        plural="clustercapacities",
        short_names=("ccap",),
        selectable=(".spec.cluster",),
        columns=(
            Column("Cluster", ".spec.cluster"),
            Column("Root", ".spec.root"),
            Column("Generation", ".spec.generation", "integer"),
            Column("Objects", ".spec.objects", "integer", wide=True),
            AGE,
        ),
    )
)
class ClusterCapacity(ApiObject):
    """Capacity of one top domain of a member; written by the member, in its execution namespace."""

    spec: ClusterCapacitySpec
    """The domain and its free amounts."""


Path = Annotated[str, Field(min_length=1, max_length=512)]
Word = Annotated[str, Field(min_length=1, max_length=63)]
JsonValue = Annotated[Any, SchemaExtra((("x-kubernetes-preserve-unknown-fields", True),))]


class SuspendSwitch(ApiModel):
    """The field by which the operator of a kind makes no pods yet."""

    path: Path
    """Of the field, such as spec.suspend."""
    suspended: JsonValue = True
    """Its value in a workload that waits."""
    resumed: JsonValue = False
    """Its value in one that runs."""


class KindComponent(ApiModel):
    """Equal pods of one role, or several such roles by one rule."""

    name: Word
    """Of the role: the task in bindings, in explain and in the agent."""
    for_each: Path | None = None
    """Of a list or a map whose items are roles of their own; the paths below are then of each item, and its task is
    named after this component and the item's key or index."""
    name_path: Path | None = None
    """Within each item of forEach: its name, instead of this component's name and the index."""
    template: Path
    """Of the PodTemplateSpec."""
    replicas: Path | None = None
    """Of the number of its pods; without it, one pod."""
    default_replicas: Count | None = None
    """Pods where nothing stands at replicas; 1 if absent."""
    min_replicas: Path | None = None
    """Of the pods that must start together; without it, or where nothing stands there, all."""
    optional: bool | None = None
    """A workload may lack it; else a workload without the template is refused."""
    indexed: bool | None = None
    """Its pods have their index as label batch.kubernetes.io/job-completion-index, apps.kubernetes.io/pod-index or
    training.kubeflow.org/replica-index, as those of Indexed Jobs and StatefulSets: slices of them follow it."""


class StatusTest(ApiModel):
    """What a status says when something is so; one that has both fields is met by either."""

    condition: str | None = None
    """Type of a condition that is True."""
    path: Path | None = None
    """Of a field, such as status.phase."""
    values: Annotated[list[str], Field(max_length=32), ATOMIC] = Field(default_factory=list)
    """Of the field at path."""


class KindStatus(ApiModel):
    """How the status that the operator writes is read; conditions are those of status.conditions."""

    running: StatusTest | None = None
    """It runs: for kinds that do not count ready pods."""
    succeeded: StatusTest | None = None
    """It has ended well."""
    failed: StatusTest | None = None
    """It has ended badly."""
    suspended: StatusTest | None = None
    """Its operator keeps it suspended."""
    ready_replicas: Annotated[list[Path], Field(max_length=32), ATOMIC] = Field(default_factory=list)
    """Of numbers of pods that run, added up; [*] stands for each item of a list or map."""
    succeeded_replicas: Annotated[list[Path], Field(max_length=32), ATOMIC] = Field(default_factory=list)
    """Of numbers of pods that have succeeded, added up."""
    failed_replicas: Annotated[list[Path], Field(max_length=32), ATOMIC] = Field(default_factory=list)
    """Of numbers of pods that have failed, added up."""
    state: Path | None = None
    """Of what lists show as its state."""
    finished_at: Path | None = None
    """Of the time at which it ended, for ttlSecondsAfterFinished; else the time of the condition that says so."""


class WorkloadKindSpec(ApiModel):
    """Where a custom resource has what Atoll needs to queue, place and follow it."""

    group: Annotated[str, Field(min_length=1, max_length=253)]
    """API group of the custom resource."""
    version: Word
    """Version in which Atoll reads and writes it; the host and each member that runs it must serve that."""
    kind: Word
    """Kind, as in manifests."""
    plural: Word
    """Plural, as in the name of its CRD."""
    short_names: Annotated[list[Word], Field(max_length=16), ATOMIC] = Field(default_factory=list)
    """Names that stand before the slash of KIND/NAME in atollctl, besides singular and plural."""
    operator: Annotated[str, Field(max_length=128)] | None = None
    """What makes its pods in members, for messages."""
    service: bool = False
    """It runs until it is deleted, and never finishes."""
    suspend: SuspendSwitch | None = None
    """Its suspend switch; without one, nothing may run it on the host, which must be one for Atoll alone."""
    managed_by: Path | None = None
    """Of a field in which its operator accepts atoll.sh/control and leaves the workload alone; then the suspend switch
    on the host follows the dispatch, else it stays set there."""
    components: Annotated[list[KindComponent], Field(min_length=1, max_length=32), keyed_by("name")]
    """All of its pods."""
    host_only: Annotated[list[Path], Field(max_length=32), ATOMIC] = Field(default_factory=list)
    """Fields that members do not get, such as a time to live after the end."""
    pods_label: str | None = None
    """Label of its pods in members whose value is the workload's name, for atollctl logs."""
    status: KindStatus = Field(default_factory=KindStatus)
    """How its status is read."""


class WorkloadKindStatus(ApiModel):
    """What became of the declaration."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed from."""
    conditions: Conditions = Field(default_factory=list)
    """Served: whether workloads of the kind are taken over on this host, and if not why."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="WorkloadKind",
        plural="workloadkinds",
        namespaced=False,
        short_names=("wkind",),
        status=True,
        columns=(
            Column("Kind", ".spec.kind"),
            Column("Version", ".spec.version"),
            Column("Served", '.status.conditions[?(@.type=="Served")].status'),
            Column("Reason", '.status.conditions[?(@.type=="Served")].reason'),
            AGE,
        ),
    )
)
class WorkloadKind(ApiObject):
    """A custom resource that Atoll runs as a workload; its name is plural.group, as that of the CRD."""

    spec: WorkloadKindSpec
    """Where everything is."""
    status: WorkloadKindStatus | None = None
    """Whether it is served."""


class ClusterRequestSpec(ApiModel):
    """An invitation, and the answer of the host's administrator."""

    expires: Time
    """When the invitation ends, and its token with it."""
    id: Annotated[str, Field(max_length=64)] | None = None
    """UID of the one cluster that may ask, namely of its namespace kube-system; any cluster where it is absent."""
    decision: Literal["Approved", "Denied"] | None = None
    """The answer; absent while the request waits for it."""
    message: Annotated[str, Field(max_length=1024)] | None = None
    """Reason for a denial."""
    credentials: Literal["Token", "Certificate"] | None = None
    """Credentials of the agent for the host; a token of its account where it is absent."""


class ClusterRequestStatus(ApiModel):
    """The request of a cluster; it can be written once."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.labels) || self.labels.all(key, key.size() <= 317)",
                "the key of a label has more than 317 characters",
            )
        )
    )

    id: Annotated[str, Field(min_length=1, max_length=64)]
    """UID of the cluster's namespace kube-system."""
    asked_at: Annotated[str, Field(max_length=32)]
    """Time of the request (RFC 3339)."""
    version: Annotated[str, Field(max_length=64)] | None = None
    """Version of its Kubernetes."""
    api_endpoint: Annotated[str, Field(max_length=512)] | None = None
    """URL of its API server; absent where only its own pods know it."""
    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Labels for its Cluster."""
    region: Annotated[str, Field(max_length=253)] | None = None
    """Region for its Cluster."""
    provider: Annotated[str, Field(max_length=253)] | None = None
    """Provider for its Cluster."""
    zones: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=16), ATOMIC] = Field(
        default_factory=list
    )
    """Zones for its Cluster."""
    placer: Annotated[str, Field(max_length=63)] | None = None
    """Placer of pods in the cluster."""
    member_queue: Annotated[str, Field(max_length=253)] | None = None
    """Queue of Volcano or Kueue in the cluster."""
    nodes: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of its nodes that are Atoll's."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="ClusterRequest",
        plural="clusterrequests",
        namespaced=False,
        status=True,
        columns=(
            Column("Decision", ".spec.decision"),
            Column("Asked", ".status.askedAt"),
            Column("UID", ".status.id"),
            Column("Expires", ".spec.expires"),
            AGE,
        ),
    )
)
class ClusterRequest(ApiObject):
    """An invitation to join under this name: the host writes the spec, the invited cluster the status."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(oldSelf.status) || (has(self.status) && self.status == oldSelf.status)",
                "a cluster has asked with this invitation already; one invitation is for one request",
            ),
            (
                "!has(self.status) || !has(self.spec.id) || self.spec.id == self.status.id",
                "this invitation is for another cluster: spec.id is not the UID of the cluster that asks",
            ),
        )
    )

    spec: ClusterRequestSpec
    """The invitation."""
    status: ClusterRequestStatus | None = None
    """The request."""
