"""cluster.karmada.io/v1alpha1: Cluster, the host's record of a member."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from atoll.api.base import (
    AGE,
    ApiModel,
    ApiObject,
    Column,
    Conditions,
    Int32,
    Quantity,
    Resource,
    ResourceList,
    Time,
    keyed_by,
    served,
)

GROUP = "cluster.karmada.io"


class LocalSecretReference(ApiModel):
    """A Secret on the host."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""


class Taint(ApiModel):
    """Keeps workloads without a toleration away."""

    key: str
    """Key of the taint."""
    value: str | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What happens to workloads that do not tolerate it."""
    time_added: Time | None = None
    """Since when."""


class ResourceModelRange(ApiModel):
    """Range of one resource in a grade."""

    name: str
    """Resource."""
    min: Quantity
    """Lower bound, included."""
    max: Quantity
    """Upper bound, excluded."""


class ResourceModel(ApiModel):
    """A grade of nodes by their free amounts."""

    grade: Annotated[int, Field(ge=0)]
    """Rank of the grade."""
    ranges: list[ResourceModelRange]
    """Range of each resource."""


class ClusterSpec(ApiModel):
    """How a member is reached, and facts about it."""

    id: str | None = None
    """Identity of the cluster; by convention the UID of its kube-system namespace."""
    sync_mode: Literal["Push", "Pull"]
    """Push: the host talks to the member; Pull: its agent talks to the host."""
    api_endpoint: str | None = None
    """URL of its API server."""
    secret_ref: LocalSecretReference | None = None
    """Credentials."""
    impersonator_secret_ref: LocalSecretReference | None = None
    """Credentials for acting as another user."""
    insecure_skip_tls_verification: bool | None = Field(default=None, alias="insecureSkipTLSVerification")
    """Do not check its certificate."""
    proxy_url: str | None = Field(default=None, alias="proxyURL")
    """Proxy in front of it."""
    proxy_header: dict[str, str] = Field(default_factory=dict)
    """Headers for the proxy."""
    provider: str | None = None
    """Who runs it."""
    region: str | None = None
    """Where it is."""
    zone: str | None = None
    """Older form of zones."""
    zones: list[str] = Field(default_factory=list)
    """Failure zones that it covers."""
    taints: Annotated[list[Taint], keyed_by("key", "effect")] = Field(default_factory=list)
    """Keep workloads without a toleration away."""
    resource_models: list[ResourceModel] = Field(default_factory=list)
    """Grades of nodes."""


class ApiResource(ApiModel):
    """A kind that the member serves."""

    name: str
    """Plural."""
    kind: str
    """Kind."""


class ApiEnablement(ApiModel):
    """A group version that the member serves."""

    group_version: str
    """`group/version`."""
    resources: list[ApiResource] = Field(default_factory=list)
    """Its kinds."""


class NodeSummary(ApiModel):
    """Nodes of the member."""

    total_num: Int32 | None = None
    """All nodes."""
    ready_num: Int32 | None = None
    """Ready nodes."""


class AllocatableModeling(ApiModel):
    """Nodes of one grade."""

    grade: int
    """Rank of the grade."""
    count: int
    """Nodes whose free resources fall in it."""


class ResourceSummary(ApiModel):
    """Resources of the member."""

    allocatable: ResourceList = Field(default_factory=dict)
    """All that nodes offer."""
    allocating: ResourceList = Field(default_factory=dict)
    """Requests of pods that have no node yet."""
    allocated: ResourceList = Field(default_factory=dict)
    """Requests of pods that have a node and are not over."""
    allocatable_modelings: list[AllocatableModeling] = Field(default_factory=list)
    """Nodes by grade."""


class Agent(ApiModel):
    """What works for the member."""

    version: str | None = None
    """Of the agent."""
    features: list[str] = Field(default_factory=list)
    """Features of the member: kinds that the agent knows, and versions as which the member behaves."""
    unserved: dict[str, str] = Field(default_factory=dict)
    """Declared kinds that may not be sent there, and what the agent may not do with them."""


class Lost(ApiModel):
    """Absence of a member."""

    since: Time
    """When it was last heard of as ready; from then on tolerations count."""
    fenced_at: Time | None = None
    """When its agent ends the pods of workloads with on-lost: exclusive; absent where it can't be relied on for that.
    """
    heartbeat: str = ""
    """Renewal of the agent's Lease that was the last one before."""


class UndatedTaint(ApiModel):
    """A NoExecute taint that does not say since when it is there."""

    key: str
    """Its key."""
    value: str = ""
    """Its value."""
    since: Time
    """When it was seen first; tolerationSeconds count from then."""


class Circuit(ApiModel):
    """Circuit breaker of a member that did not follow decisions."""

    open: bool
    """Nothing is sent there but one workload at a time, after a pause."""
    opened: int
    """How often it was opened without having been closed for long."""
    until: Time
    """While it is open, when one workload is tried; else when it is forgotten that it was."""
    reason: str
    """Why it was opened last."""


class ClusterStatus(ApiModel):
    """Observed state of a member."""

    kubernetes_version: str | None = None
    """Version of its API server."""
    api_enablements: list[ApiEnablement] = Field(default_factory=list)
    """Served kinds."""
    conditions: Conditions = Field(default_factory=list)
    """Ready and others."""
    node_summary: NodeSummary | None = None
    """Its nodes."""
    resource_summary: ResourceSummary | None = None
    """Its resources."""
    remedy_actions: list[str] = Field(default_factory=list)
    """Remedies of its conditions."""
    agent: Agent | None = None
    """Of Atoll in the member."""
    circuit: Circuit | None = None
    """What the dispatcher knows against the member; absent where that is nothing."""
    lost: Lost | None = None
    """Absent while the member is ready."""
    undated_taints: list[UndatedTaint] = Field(default_factory=list)
    """NoExecute taints of others without timeAdded."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="Cluster",
        plural="clusters",
        namespaced=False,
        categories=("atoll", "karmada-io"),
        status=True,
        columns=(
            Column("Version", ".status.kubernetesVersion"),
            Column("Mode", ".spec.syncMode"),
            Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            Column("Placer", '.status.conditions[?(@.type=="Placer")].reason'),
            AGE,
            Column("Nodes", ".status.nodeSummary.readyNum", wide=True),
            Column("Agent", ".status.agent.version", wide=True),
            Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
            Column("Since", '.status.conditions[?(@.type=="Ready")].lastTransitionTime', "date", wide=True),
            Column("Used", ".status.resourceSummary.allocated", wide=True),
            Column("Allocatable", ".status.resourceSummary.allocatable", wide=True),
            Column("Taints", ".spec.taints[*].key", wide=True),
            Column("Region", ".spec.region", wide=True),
            Column("APIEndpoint", ".spec.apiEndpoint", wide=True),
        ),
    )
)
class Cluster(ApiObject):
    """A member of the federation."""

    spec: ClusterSpec
    """How it is reached."""
    status: ClusterStatus | None = None
    """Observed state."""
