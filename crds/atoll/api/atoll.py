"""atoll.sh/v1alpha1: ClusterCapacity, what the dispatcher knows of a member's nodes.

No existing API has the tree of domains together with what is free in each. Nodes are not listed but
counted by class, so that an object stays small whatever the size of the member.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from atoll.api.base import AGE, ATOMIC, ApiModel, ApiObject, Column, Count, Resource, served

GROUP = "atoll.sh"

MAX_DOMAINS = 4096
#: 16 classes in each domain, the bound to which members merge them.
MAX_CLASSES = 16 * MAX_DOMAINS
#: Nodes that one object names at most.
MAX_NAMES = 2000
MAX_LEFT_OUT = 1024
MAX_PROBLEMS = 20


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


class ProfileTaint(ApiModel):
    """A taint that nodes have in common."""

    key: str
    """Key of the taint."""
    value: str | None = None
    """Value of the taint."""
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute."""


class Profile(ApiModel):
    """What several nodes have in common."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels, without those of leftOut."""
    taints: Annotated[list[ProfileTaint], ATOMIC] = Field(default_factory=list)
    """Taints."""
    allocatable: dict[str, str] = Field(default_factory=dict)
    """Allocatable resources of each node, as quantities."""


class NodeClass(ApiModel):
    """Nodes of a domain with the same profile and as much free."""

    domain: str
    """Lowest domain that holds them; empty for nodes outside any."""
    profile: Annotated[int, Field(ge=0)]
    """Index in profiles."""
    nodes: Annotated[int, Field(ge=1)]
    """How many there are."""
    free: dict[str, int] = Field(default_factory=dict)
    """What each has free: cpu in milli, all else in base units, pods included."""
    names: Annotated[list[str], Field(max_length=MAX_NAMES), ATOMIC] = Field(default_factory=list)
    """Names of the nodes, sorted; empty where the object would become too large."""


class TopologyProblem(ApiModel):
    """A HyperNode of the member, part of which is left out."""

    hyper_node: str
    """Name of the HyperNode."""
    message: str
    """What is wrong with it, and what to do."""


class ClusterCapacitySpec(ApiModel):
    """One top domain of a member, and what is free in it."""

    cluster: str
    """Name of the member."""
    generation: Annotated[int, Field(ge=0)]
    """One counter per member, the same in all its objects; a placement names the one that includes
    it."""
    root: str
    """Name of the top domain described here; empty for the nodes outside any."""
    objects: Annotated[int, Field(ge=1)]
    """How many objects make up this generation of the member."""
    total: dict[str, int] = Field(default_factory=dict)
    """Allocatable of all nodes described here together, in the units of free."""
    # Atomic, though names are unique: the one writer replaces lists whole, and field management per
    # item would be larger than the object.
    domains: Annotated[list[Domain], Field(max_length=MAX_DOMAINS), ATOMIC] = Field(default_factory=list)
    """Domains, the top one first."""
    profiles: Annotated[list[Profile], Field(max_length=MAX_CLASSES), ATOMIC] = Field(default_factory=list)
    """What nodes have in common; classes refer to them by index."""
    classes: Annotated[list[NodeClass], Field(max_length=MAX_CLASSES), ATOMIC] = Field(default_factory=list)
    """Nodes by class."""
    left_out: Annotated[list[str], Field(max_length=MAX_LEFT_OUT), ATOMIC] = Field(default_factory=list)
    """Label keys that the member's nodes have and profiles do not say, for there would be too many classes; whatever
    selects by one of them is asked of the member before it goes there. The same in all objects of the member."""
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
    """The domain and what is free in it."""
