"""topology.volcano.sh/v1alpha1: HyperNode, a domain of the network topology."""

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
    LabelSelector,
    Resource,
    rules,
    served,
)

GROUP = "topology.volcano.sh"


class ExactMatch(ApiModel):
    """One member by name."""

    name: Annotated[str, Field(max_length=253)]
    """Name of the node or HyperNode."""


class RegexMatch(ApiModel):
    """Members by a regular expression."""

    pattern: Annotated[str, Field(max_length=1024)]
    """Found anywhere in the name, unless anchored; in the syntax of Go (RE2)."""


class MemberSelector(ApiModel):
    """Which objects are members; one of the three."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0) + (has(self.labelMatch) ? 1 : 0) == 1",
                "set exactly one of exactMatch, regexMatch and labelMatch",
            )
        )
    )

    exact_match: ExactMatch | None = None
    """One member by name."""
    regex_match: RegexMatch | None = None
    """Members by a regular expression on the name."""
    label_match: LabelSelector | None = None
    """Nodes by label; an empty selector matches none."""


class MemberSpec(ApiModel):
    """Members of a domain."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.type == 'Node' || !has(self.selector) || !has(self.selector.labelMatch)",
                "labelMatch selects nodes only; name HyperNode members with exactMatch",
            )
        )
    )

    type: Literal["Node", "HyperNode"]
    """What the members are."""
    selector: MemberSelector | None = None
    """Which of them."""


class HyperNodeSpec(ApiModel):
    """Place of a domain in the tree."""

    tier: Count
    """Level in the tree; the smaller, the closer are its nodes."""
    tier_name: Annotated[str, Field(max_length=253)] | None = None
    """Name of the level, such as rack."""
    members: Annotated[list[MemberSpec], Field(min_length=1, max_length=8192)] = Field(default_factory=list)
    """Nodes, or domains of a lower tier."""


class AffectedGang(ApiModel):
    """A gang with pods on nodes that are lost."""

    namespace: str
    """Where it is."""
    kind: str
    """PodGroup; the kind of the pods' controller, or Pod, where they have none."""
    name: str
    """Its name."""
    pods: int
    """How many of its pods are on lost nodes of the domain."""


class HyperNodeStatus(ApiModel):
    """Observed state of a domain; `atoll-topology` writes it, of the conditions atoll-agent writes Valid."""

    node_count: int | None = None
    """Nodes in the domain and those below it."""
    ready_nodes: int | None = None
    """Those of them that are not lost."""
    free_slots: int | None = None
    """How many slots (`atoll-topology --slot`) are free on nodes that are not lost."""
    slots: int | None = None
    """How many slots all nodes have."""
    affected_gangs: Annotated[list[AffectedGang], Field(max_length=16)] = Field(default_factory=list)
    """Gangs with pods on nodes that are lost, those with most pods first."""
    conditions: Conditions = Field(default_factory=list)
    """Valid: all of it is part of the tree. Available: the domain is not lost."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="HyperNode",
        plural="hypernodes",
        namespaced=False,
        short_names=("hn",),
        status=True,
        columns=(
            Column("Tier", ".spec.tier", "integer"),
            Column("TierName", ".spec.tierName"),
            Column("NodeCount", ".status.nodeCount", "integer"),
            Column("Ready", ".status.readyNodes", "integer"),
            Column("FreeSlots", ".status.freeSlots", "integer"),
            Column("Available", '.status.conditions[?(@.type=="Available")].status'),
            Column("Valid", '.status.conditions[?(@.type=="Valid")].status'),
            AGE,
        ),
    )
)
class HyperNode(ApiObject):
    """A domain of the network topology: a switch, rack or block with what hangs below it."""

    spec: HyperNodeSpec
    """Place in the tree."""
    status: HyperNodeStatus | None = None
    """Observed state."""
