"""What the member's core is told. Values only, so that a recorded log of them replays to the same commands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from atoll.agent.objects import HyperNode, Node, Pod, PodGroup
from atoll.agent.scheduler.core.holds import Plan
from atoll.agent.volumes import Claim, StorageClass, Volume
from atoll.model.decision import Gone, Spots
from atoll.model.gang import Gang


class Whose(StrEnum):
    """Who places a pod."""

    OURS = "ours"
    """This core."""
    JOINING = "joining"
    """This core, once it has got a PodGroup."""
    LET_GO = "letGo"
    """Another scheduler, on the node that this core planned before its gate was lifted."""
    OTHERS = "others"
    """Another scheduler, alone."""


@dataclass(frozen=True, slots=True)
class NodeSet:
    """A node came or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node went."""

    name: str


@dataclass(frozen=True, slots=True)
class NodesUsed:
    """Place on these nodes and no others from now on."""

    selector: str
    """Of labels, as kubectl takes it; empty for all."""


@dataclass(frozen=True, slots=True)
class HyperNodeSet:
    """A domain came or changed."""

    hyper_node: HyperNode


@dataclass(frozen=True, slots=True)
class HyperNodeGone:
    """A domain went."""

    name: str


@dataclass(frozen=True, slots=True)
class PodSet:
    """A pod came or changed, or another places it than before."""

    pod: Pod
    whose: Whose


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod went."""

    key: str


@dataclass(frozen=True, slots=True)
class PodGroupSet:
    """A gang was declared or changed."""

    group: PodGroup
    ours: bool = True
    """Whether it is this core's while it has no pods."""


@dataclass(frozen=True, slots=True)
class PodGroupGone:
    """A gang's declaration went."""

    key: str


@dataclass(frozen=True, slots=True)
class ClaimSet:
    """A PersistentVolumeClaim came or changed."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class ClaimGone:
    """A PersistentVolumeClaim went."""

    key: str


@dataclass(frozen=True, slots=True)
class VolumeSet:
    """A PersistentVolume came or changed."""

    volume: Volume


@dataclass(frozen=True, slots=True)
class VolumeGone:
    """A PersistentVolume went."""

    name: str


@dataclass(frozen=True, slots=True)
class StorageClassSet:
    """A StorageClass came or changed."""

    storage_class: StorageClass


@dataclass(frozen=True, slots=True)
class StorageClassGone:
    """A StorageClass went."""

    name: str


@dataclass(frozen=True, slots=True)
class HoldAsked:
    """Keep nodes for a part, renew that, or say whether it would fit without some pods."""

    uid: str
    """Of the binding."""
    epoch: int
    gang: Gang
    name: str
    """Of the workload."""
    namespace: str
    now: float
    gone: Gone | None = None
    """Pods to leave out, which makes it a question; None to keep nodes."""


@dataclass(frozen=True, slots=True)
class HoldAdopted:
    """An earlier process kept these nodes."""

    plan: Plan
    namespace: str
    settled: tuple[tuple[str, str], ...]
    """(task, node) of the pods of its epoch that have a node already."""
    now: float


@dataclass(frozen=True, slots=True)
class SpotsExpected:
    """The host expects pods of a dispatch on these nodes."""

    uid: str
    epoch: int
    spots: Spots


@dataclass(frozen=True, slots=True)
class Released:
    """Nothing is kept or expected for a binding any more."""

    uid: str


@dataclass(frozen=True, slots=True)
class NotBound:
    """Pods of a `Bind` that won't be bound to their nodes."""

    pods: tuple[tuple[str, str], ...]
    """(key, UID)."""


@dataclass(frozen=True, slots=True)
class Again:
    """A gang of which some pods were not bound may be planned again."""

    gang: str


@dataclass(frozen=True, slots=True)
class Pass:
    """Decide on what came since the last one, or go on with it."""

    now: float
    """Seconds; never decreases."""


Event = (
    NodeSet
    | NodeGone
    | NodesUsed
    | HyperNodeSet
    | HyperNodeGone
    | PodSet
    | PodGone
    | PodGroupSet
    | PodGroupGone
    | ClaimSet
    | ClaimGone
    | VolumeSet
    | VolumeGone
    | StorageClassSet
    | StorageClassGone
    | HoldAsked
    | HoldAdopted
    | SpotsExpected
    | Released
    | NotBound
    | Again
    | Pass
)
