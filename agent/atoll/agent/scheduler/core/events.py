"""Events for the member's core. Values only, so that a recorded log of them replays to the same commands."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from atoll.agent.devices import DeviceClass, DeviceTaintRule, KoordinatorDevice, ResourceClaim, ResourceSlice
from atoll.agent.numa import NumaTopology
from atoll.agent.objects import Budget, HyperNode, Node, Pod, PodGroup
from atoll.agent.queues import Queue
from atoll.agent.scheduler.core.holds import Plan
from atoll.agent.volumes import Claim, CsiNode, StorageClass, Volume
from atoll.model.decision import Gone, Spots
from atoll.model.gang import Gang
from atoll.model.scoring import Scoring


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


class NodeSet(Struct, frozen=True, gc=False):
    """A node came or changed."""

    node: Node


class NodeGone(Struct, frozen=True, gc=False):
    """A node went."""

    name: str


class NodesUsed(Struct, frozen=True, gc=False):
    """Place on these nodes and no others from now on."""

    selector: str
    """Of labels, as kubectl takes it; empty for all."""


class Configured(Struct, frozen=True, gc=False):
    """The scheduler's configuration is another one from now on."""

    scoring: Scoring = Scoring()
    """By which nodes are preferred where workloads say nothing."""
    preempts: bool = True
    """Whether work in the member may be evicted for work of a higher priority there, as far as settings let it."""
    waiting_time: float | None = None
    """Seconds after which work that entered in the member has waited too long, where nothing else says so; None for
    never.
    """


class QueueSet(Struct, frozen=True, gc=False):
    """A queue of the member came or changed."""

    queue: Queue


class QueueGone(Struct, frozen=True, gc=False):
    """A queue of the member went."""

    name: str


class Measured(Struct, frozen=True, gc=False):
    """So much of nodes is in use, as was just measured; of others that is not known."""

    uses: dict[str, tuple[int, int]]
    """Node -> (milli-CPU, bytes of memory)."""


class HyperNodeSet(Struct, frozen=True, gc=False):
    """A domain came or changed."""

    hyper_node: HyperNode


class HyperNodeGone(Struct, frozen=True, gc=False):
    """A domain went."""

    name: str


class PodSet(Struct, frozen=True, gc=False):
    """A pod came or changed, or another places it than before."""

    pod: Pod
    whose: Whose


class PodGone(Struct, frozen=True, gc=False):
    """A pod went."""

    key: str


class PodGroupSet(Struct, frozen=True, gc=False):
    """A gang was declared or changed."""

    group: PodGroup
    ours: bool = True
    """Whether it is this core's while it has no pods."""


class PodGroupGone(Struct, frozen=True, gc=False):
    """A gang's declaration went."""

    key: str


class ClaimSet(Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim came or changed."""

    claim: Claim


class ClaimGone(Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim went."""

    key: str


class VolumeSet(Struct, frozen=True, gc=False):
    """A PersistentVolume came or changed."""

    volume: Volume


class VolumeGone(Struct, frozen=True, gc=False):
    """A PersistentVolume went."""

    name: str


class CsiNodeSet(Struct, frozen=True, gc=False):
    """A CSINode came or changed."""

    csi_node: CsiNode


class CsiNodeGone(Struct, frozen=True, gc=False):
    """A CSINode went."""

    name: str


class NumaSet(Struct, frozen=True, gc=False):
    """The report about NUMA nodes of a node is new or has changed."""

    numa: NumaTopology
    zones: bool = False
    """Whether a NodeResourceTopology says so; else a Numatopology."""


class NumaGone(Struct, frozen=True, gc=False):
    """The report about a node is gone."""

    name: str
    zones: bool = False


class KoordinatorSet(Struct, frozen=True, gc=False):
    """The report about GPUs of a node is new or has changed."""

    device: KoordinatorDevice


class KoordinatorGone(Struct, frozen=True, gc=False):
    """The report about a node is gone."""

    name: str


class SliceSet(Struct, frozen=True, gc=False):
    """A ResourceSlice came or changed."""

    slice: ResourceSlice


class SliceGone(Struct, frozen=True, gc=False):
    """A ResourceSlice went."""

    name: str


class DeviceClassSet(Struct, frozen=True, gc=False):
    """A DeviceClass came or changed."""

    device_class: DeviceClass


class DeviceClassGone(Struct, frozen=True, gc=False):
    """A DeviceClass went."""

    name: str


class TaintRuleSet(Struct, frozen=True, gc=False):
    """A DeviceTaintRule came or changed."""

    rule: DeviceTaintRule


class TaintRuleGone(Struct, frozen=True, gc=False):
    """A DeviceTaintRule went."""

    name: str


class ResourceClaimSet(Struct, frozen=True, gc=False):
    """A ResourceClaim came or changed."""

    claim: ResourceClaim


class ResourceClaimGone(Struct, frozen=True, gc=False):
    """A ResourceClaim went."""

    key: str


class BudgetSet(Struct, frozen=True, gc=False):
    """A PodDisruptionBudget came or changed."""

    budget: Budget


class BudgetGone(Struct, frozen=True, gc=False):
    """A PodDisruptionBudget went."""

    key: str


class NamespaceSet(Struct, frozen=True, gc=False):
    """A namespace came or changed."""

    name: str
    labels: dict[str, str]


class NamespaceGone(Struct, frozen=True, gc=False):
    """A namespace went."""

    name: str


class StorageClassSet(Struct, frozen=True, gc=False):
    """A StorageClass came or changed."""

    storage_class: StorageClass


class StorageClassGone(Struct, frozen=True, gc=False):
    """A StorageClass went."""

    name: str


class HoldAsked(Struct, frozen=True, gc=False):
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


class HoldAdopted(Struct, frozen=True, gc=False):
    """An earlier process kept these nodes."""

    plan: Plan
    namespace: str
    settled: tuple[tuple[str, str], ...]
    """(task, node) of the pods of its epoch that have a node already."""
    now: float


class SpotsExpected(Struct, frozen=True, gc=False):
    """The host expects pods of a dispatch on these nodes."""

    uid: str
    epoch: int
    spots: Spots


class Granted(Struct, frozen=True, gc=False):
    """The host sent this part of a dispatch: so many pods of each task, so large."""

    uid: str
    epoch: int
    gang: Gang


class Released(Struct, frozen=True, gc=False):
    """Nothing is kept, expected or granted for a binding any more."""

    uid: str


class NotBound(Struct, frozen=True, gc=False):
    """Pods of a `Bind` that won't be bound to their nodes."""

    pods: tuple[tuple[str, str], ...]
    """(key, UID)."""


class Again(Struct, frozen=True, gc=False):
    """A gang of which some pods were not bound may be planned again."""

    gang: str


class Pass(Struct, frozen=True, gc=False):
    """Decide on what came since the last one, or go on with it."""

    now: float
    """Seconds; never decreases."""
    clock: float = 0.0
    """Seconds since 1970 at that moment; 0 where that means nothing."""


NodeEvent = (
    NodeSet
    | NodeGone
    | NodesUsed
    | HyperNodeSet
    | HyperNodeGone
    | Measured
    | CsiNodeSet
    | CsiNodeGone
    | NumaSet
    | NumaGone
    | KoordinatorSet
    | KoordinatorGone
    | SliceSet
    | SliceGone
    | DeviceClassSet
    | DeviceClassGone
    | TaintRuleSet
    | TaintRuleGone
    | NamespaceSet
    | NamespaceGone
)
"""Events about nodes, domains, devices and namespaces."""
Event = (
    NodeEvent
    | Granted
    | Configured
    | QueueSet
    | QueueGone
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
    | ResourceClaimSet
    | ResourceClaimGone
    | BudgetSet
    | BudgetGone
    | HoldAsked
    | HoldAdopted
    | SpotsExpected
    | Released
    | NotBound
    | Again
    | Pass
)
