"""Events for the core. Values only, so that a recorded log of them replays to the same commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from atoll.model import keys
from atoll.model.decision import Decision
from atoll.model.failover import EvictionTask
from atoll.model.fairness import Order
from atoll.model.flavors import NONE, Flavors, Variant
from atoll.model.gang import Gang
from atoll.model.numa import Cells
from atoll.model.queues import Strategy
from atoll.model.quotas import Quota
from atoll.model.vector import Vector

NOTHING: Mapping[str, Any] = {}
"""Empty value for parts of a binding not reported yet: one for all, for a hundred thousand bindings wait at once."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A queue's part in one member."""

    weight: int = 1
    """Preference among the members of the queue."""
    capability: Vector = field(default_factory=dict)
    """A resource that is not named is unlimited."""


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue as its object says."""

    name: str
    capability: Vector
    """A resource that is not named is unlimited."""
    priority: int = 0
    open: bool = True
    parent: str = ""
    """Name of the queue above; empty for a child of the root."""
    guarantee: Vector = field(default_factory=dict)
    deserved: Vector = field(default_factory=dict)
    weight: int = 1
    reclaimable: bool = True
    created: str = ""
    """RFC 3339; the older one goes first where nothing else decides."""
    strategy: Strategy = Strategy.TRAVERSE
    members: Mapping[str, Ceiling] = field(default_factory=dict)
    """Members that serve it; empty for all."""
    affinity: Mapping[str, Any] = field(default_factory=dict)
    """Label selector of the members that serve it; empty for all."""
    estimate: float | None = None
    """Seconds that its workloads run if they don't say; None for unknown."""
    patience: float | None = None
    """Seconds after which a waiting workload gets a reservation; None for never."""
    ready_timeout: float | None = None
    """Seconds after they were bound within which the minimum of its workloads must run; None for any time."""
    evict_timeout: float | None = None
    """Seconds after which the quota of an evicted workload is returned though its pods have not gone; None for what the
    queue above says.
    """
    protection: float | None = None
    """Seconds after its start in which a workload is not evicted for others; None for the usual time."""
    reclaims_firm: bool = True
    """Whether other queues may reclaim workloads whose users set `preemptable: false`: that setting is about its own
    queue.
    """
    problem: str = ""
    """What of the object can't be read; such a queue admits nothing."""
    flavors: Flavors = field(default_factory=lambda: NONE)
    """Of resources in the whole federation, where this is the root queue; known to who tells the core, not to it."""
    namespaces: Mapping[str, Any] | None = None
    """Label selector of the namespaces that it is open to; None for all."""
    order: Order = Order.PRIORITY
    half_life: float | None = None
    """Seconds after which a namespace's use counts half as much for `order`; None for its present use alone."""
    score: str = ""
    """Strategy that orders members for its workloads; empty for the usual order."""
    split: str = ""
    """Strategy that divides its workloads; empty for the native division."""


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace, and the limits of its ResourceQuotas."""

    name: str
    limits: Vector = field(default_factory=dict)
    """For all of its pods; a resource that is not named is unlimited."""
    labels: Mapping[str, str] = field(default_factory=dict)
    scoped: tuple[Quota, ...] = ()
    """For some of its pods."""
    weight: float = 1.0
    """Its part of queues that are ordered by the shares of namespaces; above 0."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A member as its Cluster object says."""

    name: str
    ready: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """provider, region and zone: what the Cluster object says of each."""
    honours_needs: bool = False
    """Whether who places there looks at all that pods may insist on."""
    features: frozenset[str] | None = None
    """Features that its agent announces (`atoll.model.member`); None where it announces none."""
    skew: str = ""
    """Why nothing new goes there: its agent is of a version that does not go with this process."""
    ceiling: Vector = field(default_factory=dict)
    """The most of it that is believed and used, at any published figure; a resource without an entry is unlimited."""
    lost_since: float | None = None
    """Since when it is away, in seconds since the epoch; None where it is there."""
    fenced_after: float | None = None
    """Seconds after that in which its agent ends exclusive work; None where that is not guaranteed."""

    @property
    def cordoned(self) -> bool:
        """Whether an administrator keeps new work away from it."""
        return any(taint.get("key") == keys.CORDONED for taint in self.taints)


class Failure(StrEnum):
    """What a member did not do in time."""

    NOT_BOUND = "NotBoundInTime"
    NOT_REMOVED = "RemovalNotConfirmed"


@dataclass(frozen=True, slots=True)
class Circuit:
    """Whether a member gets work, after it failed to act in time."""

    open: bool
    """Nothing is sent there but one workload at a time, to see whether it is bound."""
    opened: int
    """How often it was opened, without having been closed for long."""
    until: float
    """Seconds since the epoch: while it is open, when one is tried; else when it is forgotten that it was."""
    failure: Failure = Failure.NOT_BOUND
    """Why it was opened last."""
    pausing: bool = False
    """`until` has not come."""


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Equal nodes of one lowest domain."""

    domain: str
    """Empty outside any domain."""
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]
    nodes: int
    free: Vector
    names: tuple[str, ...] = ()
    """Of the nodes, sorted; empty where the member does not say."""
    devices: Vector = field(default_factory=dict)
    """Allocatable extended resources of each, free or not."""
    in_trees: Mapping[str, str] = field(default_factory=dict)
    """Name of a further tree -> their lowest domain there."""
    numa: Cells | None = None
    """Their NUMA nodes, free or not; None where the member does not say."""


@dataclass(frozen=True, slots=True)
class CapacityView:
    """What a member published about the nodes below one top domain."""

    cluster: str
    root: str
    generation: int
    domains: tuple[tuple[str, int, str, str], ...]
    """(name, tier, tier name, parent name or empty)."""
    classes: tuple[NodeClass, ...]
    total: Vector = field(default_factory=dict)
    """Allocatable of all its nodes, free or not; empty where that is not known."""
    left_out: tuple[str, ...] = ()
    """Keys of labels that its nodes have and `classes` do not say."""
    problems: tuple[tuple[str, str], ...] = ()
    """(HyperNode, its problem)."""
    trees: tuple[tuple[str, tuple[tuple[str, int, str, str], ...]], ...] = ()
    """(name of a further tree, its domains around these nodes); a domain may be in several views of the member."""
    asked_tiers: tuple[str, ...] = ()
    """Names of tiers of further trees that are not described."""
    aligns: bool = False
    """Whether its kubelets reject pods that they can't align to NUMA nodes."""


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """A member's answer to a hold."""

    granted: bool
    generation: int = 0
    """Capacity generation that includes it, when granted."""
    requested: int = 0
    available: int = 0
    message: str = ""
    """Why not, in its words."""


# Never changed. A frozen one of so many fields takes three times as long to make, and a dispatcher that begins
# makes one of each binding.
@dataclass(slots=True)
class BindingView:
    """A binding as its object says."""

    uid: str
    namespace: str
    name: str
    generation: int
    epoch: int
    gang: Gang | None
    """None when the annotation can't be read."""
    decision: Decision
    created: str
    """RFC 3339 with seconds; the order of arrival."""
    kind: str = ""
    """Of its workload, with the group: `Job.batch.volcano.sh`."""
    suspended: bool = True
    """spec.suspension.scheduling."""
    variants: tuple[Variant, ...] = ()
    """The gang with each flavor that it may get, where it leaves that open; the first to be tried first."""
    parts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(member, pods per task) for each of spec.clusters; perhaps more than its user asks for by now."""
    affinities: tuple[Mapping[str, Any], ...] = ({},)
    """Cluster affinities (clusterNames, exclude, labelSelector, fieldSelector), tried in turn; empty takes any."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    divided: bool = False
    """Whether its policy lets it run in several clusters at once."""
    scattered: bool = False
    """Whether it may grow into further clusters, up to `most_clusters`; `divided` is false."""
    least_clusters: int = 1
    most_clusters: int | None = None
    """None for any number."""
    sharing: Mapping[str, Any] | None = None
    """replicaScheduling and spreadConstraints of its policy where it is shared out in one of Karmada's ways, and
    `lastFirst` where ties go to the last name; None for the native division. `divided` is true as well.
    """
    rescheduled: str = ""
    """RFC 3339: workloads dispatched before that get a new placement at that time; empty for never."""
    bound: bool = False
    """Whether all parts had their minimum bound, as control saw it; stays true while pods complete."""
    bound_at: str = ""
    """RFC 3339: since when, as control saw it."""
    lost_at: str = ""
    """RFC 3339: since when pods of its minimum that were bound are without a node again; empty where none are."""
    waiting: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Member -> why pods have no node there."""
    leaves: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Member -> why pods have to leave their nodes or devices there."""
    started: bool = False
    """Whether its minimum ran in this epoch, as control saw it."""
    held_up: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Member -> why pods that have nodes don't run there."""
    finished: bool = False
    released: int = 0
    """Newest generation at which control saw no Work of it."""
    stuck: str = ""
    """Why it is not released though it was evicted, as far as that is known."""
    placed: Mapping[str, tuple[int, int]] = field(default_factory=lambda: NOTHING)
    """Member -> (capacity generation that includes its pods, pods placed)."""
    reserved: Mapping[str, MemberAnswer] = field(default_factory=lambda: NOTHING)
    """Member -> its answer to the hold of this epoch."""
    nodes: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: NOTHING)
    """Member -> node -> pods placed there."""
    requests: Mapping[str, Mapping[str, Vector]] = field(default_factory=lambda: NOTHING)
    """Member -> task -> what a pod of it requests there, of the resources of which that is more than was asked for."""
    ended: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: NOTHING)
    """Member -> task -> pods that have ended there and are never made again."""
    unmade: tuple[str, ...] = ()
    """Members that have the workload, and fewer pods of it than its minimum."""
    refused: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Member -> why its API server or admission refused something of this epoch, in its words."""
    unhealthy_at: str = ""
    """RFC 3339: since when it is unhealthy in a member, as control saw it; empty where it is not, or is to stay."""
    unhealthy: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Member in which it is -> why, which names members itself."""
    tasks: tuple[EvictionTask, ...] = ()
    """Members that it left and is kept from."""
    state: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: NOTHING)
    """Member -> labels that the next copy is to have, as the status of the one there says."""


@dataclass(frozen=True, slots=True)
class QueueSet:
    queue: QueueView


@dataclass(frozen=True, slots=True)
class QueueGone:
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceSet:
    namespace: NamespaceView


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    name: str


@dataclass(frozen=True, slots=True)
class ClusterSet:
    cluster: ClusterView
    circuit: Circuit | None = None
    """As it is written on the Cluster; only the first one that is seen counts."""


@dataclass(frozen=True, slots=True)
class ClusterGone:
    name: str


@dataclass(frozen=True, slots=True)
class CapacitySet:
    capacity: CapacityView


@dataclass(frozen=True, slots=True)
class CapacityGone:
    cluster: str
    root: str


@dataclass(frozen=True, slots=True)
class BindingSet:
    binding: BindingView


@dataclass(frozen=True, slots=True)
class BindingGone:
    uid: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A command's write did not happen: the binding had changed."""

    uid: str
    epoch: int
    """The epoch that the command would have made."""
    generation: int | None = None
    """The one that it was decided on; None in logs of earlier versions."""


@dataclass(frozen=True, slots=True)
class StrategyOff:
    """A user's strategy took too long."""

    group: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Pass:
    """Decide now: all events before are taken into account."""

    now: float
    """Seconds since the epoch."""


Event = (
    QueueSet
    | QueueGone
    | NamespaceSet
    | NamespaceGone
    | ClusterSet
    | ClusterGone
    | CapacitySet
    | CapacityGone
    | BindingSet
    | BindingGone
    | Refused
    | StrategyOff
    | Pass
)
