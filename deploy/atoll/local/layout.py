"""What a local federation looks like: members, their nodes, their HyperNode trees.

The configuration is what a person writes; the functions expand it to the Kubernetes objects that
a real cluster would hold.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DEFAULT_ALLOCATABLE = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}
RAISED_LIMITS = (3000, 2000)
"""Reads and writes that an API server serves at once with `raised_limits`."""
_LEASE_SECONDS = 40
_RENEWALS_PER_S = 25
"""All nodes of a member together; each is a write."""
HYPERNODE_API = "topology.volcano.sh/v1alpha1"


class LayoutError(ValueError):
    """The configuration cannot be used. The message names the field and what to do."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Program = Literal["apiserver", "controller-manager", "scheduler", "kwok"]


class NodeGroup(_Strict):
    """Nodes that are alike, named `<prefix><0..count-1>`."""

    count: int = Field(ge=0, le=100_000, description="How many nodes.")
    prefix: str = Field(default="", description="Start of every name; empty: `<member>-n`.")
    allocatable: dict[str, str] = Field(
        default_factory=lambda: dict(_DEFAULT_ALLOCATABLE),
        description="Allocatable resources of each node, Kubernetes quantities.",
    )
    labels: dict[str, str] = Field(default_factory=dict, description="Labels of each node.")
    taints: list[dict[str, Any]] = Field(default_factory=list, description="Taints of each node.")

    @field_validator("allocatable", mode="before")
    @classmethod
    def _numbers_are_quantities(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: str(item) for key, item in value.items()}
        return value


class Tier(_Strict):
    """One level of a regular tree."""

    name: str = Field(description="Name of the tier, as in HyperNode.spec.tierName.")
    size: int = Field(ge=1, description="Children per domain: nodes, or domains one tier below.")


class Topology(_Strict):
    """A regular tree from the bottom up; the last tier is one root over all that is below."""

    tiers: list[Tier] = Field(min_length=1)


class Kubernetes(_Strict):
    """Which Kubernetes a cluster behaves as."""

    version: str = Field(
        default="",
        pattern=r"^$|^\d+\.\d+$",
        description="An older version that its programs emulate, such as `1.33`; empty: their own.",
    )
    feature_gates: dict[str, bool] = Field(default_factory=dict, description="Feature gates that differ from it.")
    flags: dict[Program, list[str]] = Field(
        default_factory=dict, description="Further flags by program; they come last and count."
    )


class Member(_Strict):
    """One member cluster."""

    name: str
    labels: dict[str, str] = Field(default_factory=dict, description="Labels of its Cluster object on the host.")
    nodes: list[NodeGroup] = Field(default_factory=list, description="Node groups, one or a list, in topology order.")
    kubernetes: Kubernetes = Kubernetes()
    placer: Literal["atoll", "kube-scheduler", "volcano", "kueue", "auto"] = Field(
        default="atoll",
        description="Who places what Atoll sends there; with `atoll` the nodes are Atoll's alone and have its taint, "
        "with `auto` the agent finds out.",
    )
    member_queue: str = Field(default="", description="Queue of Volcano or Kueue there, for what Atoll sends.")
    scheduler: bool = Field(default=True, description="Whether kube-scheduler runs in it, for pods of its name.")
    real_nodes: int = Field(
        default=0,
        ge=0,
        le=15,
        description="How many nodes run real containers, named `<member>-real<0..>`, with label "
        "`atoll.sh/node: real`; needs root and Debian packages.",
    )
    real_cpu: int | None = Field(
        default=None,
        ge=100,
        description="Thousandths of cores that each real node offers, at most those of the machine, which they share; "
        "empty: all of them.",
    )
    cdi: bool = Field(
        default=False,
        description="Whether real nodes have a containerd with CDI, for DRA drivers of devices (`examples/dra`); built "
        "once where the machine's is older than 1.7.",
    )
    allow_exec: bool = Field(
        default=False,
        description="Whether users of the host may exec into their pods there (`join --allow-exec`).",
    )
    push: bool = Field(
        default=False,
        description="Whether its agent runs beside the host (push mode) and finds the member by a Secret there.",
    )
    strict_kubelets: bool = Field(
        default=False,
        description="Whether its kubelets reject pods that their node has no room for; costs a write per pod.",
    )
    node_lease_seconds: int | None = Field(
        default=None,
        ge=4,
        description="How long a node's lease lasts; one that is late by a quarter is dead. Empty: 40, as in any "
        "Kubernetes, and more with over 250 nodes, which would renew too many.",
    )
    topology: Topology | None = None
    hypernodes: list[dict[str, Any]] = Field(
        default_factory=list, description="HyperNode objects as they are, instead of `topology`."
    )

    @field_validator("nodes", mode="before")
    @classmethod
    def _one_group_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict | NodeGroup) else value

    @field_validator("name")
    @classmethod
    def _name_is_a_dns_label(cls, value: str) -> str:
        if not _DNS_LABEL.fullmatch(value) or len(value) > 48:
            raise ValueError(f"{value!r} must be lower-case letters, digits and '-', at most 48 characters")
        return value

    @model_validator(mode="after")
    def _one_source_of_topology(self) -> Member:
        if self.topology is not None and self.hypernodes:
            raise ValueError("give either topology or hypernodes, not both")
        names = self.node_names()
        if len(set(names)) != len(names):
            raise ValueError("two node groups produce the same node name: give each its own prefix")
        if self.real_nodes and self.strict_kubelets:
            raise ValueError("give either real_nodes or strict_kubelets, which admits the pods of all nodes")
        return self

    @property
    def lease_seconds(self) -> int:
        """How long a node's lease lasts; it is renewed four times as often."""
        return self.node_lease_seconds or max(_LEASE_SECONDS, 4 * len(self.node_names()) // _RENEWALS_PER_S)

    def node_names(self) -> list[str]:
        """Names of all nodes, in the order in which the lowest tier takes them."""
        simulated = [name for group in self.nodes for name in _group_names(self, group)]
        return [*simulated, *self.real_node_names()]

    def real_node_names(self) -> list[str]:
        """Names of the nodes that run real containers."""
        return [f"{self.name}-real{index}" for index in range(self.real_nodes)]


class FederationConfig(_Strict):
    """The members of a local federation."""

    members: Annotated[list[Member], Field(min_length=1, max_length=100)]
    host: Kubernetes = Kubernetes()
    images: list[Path] = Field(
        default_factory=list, description="Folders of images that real nodes have, as `local image build` takes them."
    )
    address: Literal["127.0.0.1", "::1"] = Field(
        default="127.0.0.1", description="Loopback address on which everything listens."
    )
    raised_limits: bool = Field(
        default=False,
        description="Let the API servers serve 3000 reads and 2000 writes at once, for benchmarks; off: 400 and 200, "
        "as Kubernetes ships them.",
    )

    @property
    def has_real_nodes(self) -> bool:
        """Whether any member has."""
        return any(member.real_nodes for member in self.members)

    @model_validator(mode="after")
    def _real_nodes_have_ipv4(self) -> FederationConfig:
        if self.has_real_nodes and ":" in self.address:
            raise ValueError("real_nodes: their network is IPv4: leave address out")
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> FederationConfig:
        names = [member.name for member in self.members]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"members: the name {name!r} is used more than once")
            if name == "host":
                raise ValueError("members: the name 'host' is taken by the host cluster")
        return self


def load(path: Path) -> FederationConfig:
    """Read a configuration file; raise LayoutError with the field that is wrong."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise LayoutError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise LayoutError(f"{path} is not YAML: {error}") from error
    try:
        return FederationConfig.model_validate(content)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(str(part) for part in item['loc']) or '(file)'}: {item['msg']}" for item in error.errors()
        ]
        raise LayoutError(f"{path} cannot be used:\n" + "\n".join(lines)) from error


def default_config(members: int = 3, nodes: int = 16, real_nodes: int = 0) -> FederationConfig:
    """Members `member1`..`memberN`: 8 GPUs per simulated node, racks of 4 nodes, blocks of 4 racks."""
    if members < 1 or nodes < 0:
        raise LayoutError(f"members must be >= 1 and nodes >= 0, not {members} and {nodes}")
    blocks = max(1, -(-(nodes + real_nodes) // 16))
    tiers = [Tier(name="rack", size=4), Tier(name="block", size=4), Tier(name="root", size=blocks)]
    return FederationConfig(
        members=[
            Member(
                name=f"member{index}",
                nodes=[NodeGroup(count=nodes)],
                real_nodes=real_nodes,
                topology=Topology(tiers=tiers) if nodes else None,
            )
            for index in range(1, members + 1)
        ]
    )


def node_objects(member: Member) -> list[dict[str, Any]]:
    """Expand to v1 Node objects, simulated by kwok, status included."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/os": "linux",
                    **group.labels,
                },
            },
            "spec": {"taints": group.taints} if group.taints else {},
            "status": {"allocatable": group.allocatable, "capacity": group.allocatable},
        }
        for group in member.nodes
        for name in _group_names(member, group)
    ]


def hypernode_objects(member: Member) -> list[dict[str, Any]]:
    """Expand to HyperNode objects, lowest tier first, tiers numbered from 1.

    Below the root a domain is named `<member>-<tier name>-<index>`; the last one of a tier takes
    what is left.
    """
    if member.topology is None:
        return member.hypernodes
    children, kind = member.node_names(), "Node"
    objects: list[dict[str, Any]] = []
    tiers = member.topology.tiers
    for number, tier in enumerate(tiers, start=1):
        top = number == len(tiers)
        size = max(len(children), 1) if top else tier.size
        groups = [children[at : at + size] for at in range(0, len(children), size)]
        names = [f"{member.name}-{tier.name}" + ("" if top else f"-{index}") for index in range(len(groups))]
        objects += [
            {
                "apiVersion": HYPERNODE_API,
                "kind": "HyperNode",
                "metadata": {"name": name},
                "spec": {
                    "tier": number,
                    "tierName": tier.name,
                    "members": [{"type": kind, "selector": {"exactMatch": {"name": child}}} for child in group],
                },
            }
            for name, group in zip(names, groups, strict=True)
        ]
        children, kind = names, "HyperNode"
    return objects


def _group_names(member: Member, group: NodeGroup) -> list[str]:
    prefix = group.prefix or f"{member.name}-n"
    return [f"{prefix}{index}" for index in range(group.count)]
