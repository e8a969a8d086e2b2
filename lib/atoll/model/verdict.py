"""Why a workload waits: the closed set of reasons, and the one thing that blocks it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from atoll.model import quantity
from atoll.model.namespaces import NOT_ACCEPTED

PODS_LOST: Final = "PodsLost"
"""Reason of a binding's condition Bound: pods of its minimum had nodes, lost them, and wait for others."""


class Reason(StrEnum):
    """Why a binding is not dispatched, or why it moved; each is explained in docs/reasons.md."""

    SUBMITTED = "Submitted"
    DISPATCHED = "Dispatched"
    GROWN = "Grown"
    SHRUNK = "Shrunk"
    SIZE_KEPT = "SizeKept"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_INVALID = "QueueInvalid"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    QUEUE_NOT_OPEN = "QueueNotOpen"
    QUOTA_EXCEEDED = "QuotaExceeded"
    BEHIND_HEAD = "BehindHead"
    WOULD_DELAY = "WouldDelayHead"
    ASKING_MEMBERS = "AskingMembers"
    AWAITING_VICTIMS = "AwaitingVictims"
    NO_CLUSTER = "NoClusterMatches"
    CLUSTERS_NOT_READY = "ClustersNotReady"
    NO_NODE_MATCHES = "NoNodeMatches"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    NO_DOMAIN_FITS = "NoDomainFits"
    NO_TOPOLOGY = "NoTopology"
    TOPOLOGY_INVALID = "TopologyInvalid"
    NO_PLACER = "NoPlacerHonours"
    FEATURE_MISSING = "FeatureMissing"
    AGENT_VERSION = "AgentVersionUnsupported"
    INVALID_GANG = "InvalidGang"
    GANG_GROUP_INCOMPLETE = "GangGroupIncomplete"
    RESERVING = "Reserving"
    PART_REFUSED = "PartRefused"
    AVOIDED = "ClustersAvoided"
    MEMBER_FAILING = "MemberFailing"
    HELD = "Held"
    NO_PODS = "NoPods"
    POLICY_SUSPENDED = "SuspendedByPolicy"
    REFUSED_BY_MEMBER = "RefusedByMember"
    NAMESPACE_NOT_ACCEPTED = "NamespaceNotAccepted"
    OVERRIDE_FAILED = "OverrideFailed"
    DEACTIVATED = "Deactivated"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    NOT_READY_IN_TIME = "NotReadyInTime"
    EVICTION_OVERDUE = "EvictionOverdue"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    RECLAIMED = "Reclaimed"
    MOVED = "Moved"
    MEMBER_LOST = "MemberLost"
    MEMBER_TAINTED = "MemberTainted"
    MEMBER_DRAINED = "MemberDrained"
    UNHEALTHY = "Unhealthy"


WITHHELD = (Reason.HELD, Reason.NO_PODS)
"""Of work that its user keeps from running."""


class Bound(StrEnum):
    """From what the limit of a queue follows."""

    CAPABILITY = ""
    """Of the workload's own queue."""
    ABOVE = "above"
    """The capability of a queue above its own."""
    GUARANTEES = "guarantees"
    """Guarantees of other queues, which leave no more."""
    MEMBERS = "members"
    """What the members have."""


class Blocker(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What stands in the way, with numbers; `requested` and `available` are quantities."""

    kind: str
    """`Queue`, `Namespace`, `ResourceQuota` (with scopes), `Cluster`, `Domain`, `HyperNode`, `Need`, `Feature` or
    `Workload`.
    """
    name: str
    resource: str = ""
    requested: str = ""
    available: str = ""
    cluster: str = ""
    """The member in which a queue stands in the way; empty where it does so everywhere."""
    message: str = ""
    """What a member says of it in its own words."""
    bound: str = ""
    """From what the limit of a queue follows, see `Bound`; unknown ones count as its capability."""


def blocker(
    kind: str,
    name: str,
    resource: str,
    requested: int,
    available: int,
    cluster: str = "",
    bound: Bound = Bound.CAPABILITY,
) -> Blocker:
    """A blocker from integer units; without a resource it carries no numbers."""
    if not resource:
        return Blocker(kind, name)
    return Blocker(
        kind,
        name,
        resource,
        quantity.format_units(resource, requested),
        quantity.format_units(resource, max(available, 0)),
        cluster,
        bound=bound.value,
    )


REFUSED: Final = (Reason.REFUSED_BY_MEMBER, Reason.NAMESPACE_NOT_ACCEPTED, Reason.OVERRIDE_FAILED)
"""Of work that a member did not take, or could not be sent."""
OVERRIDE_POLICY: Final = "override policy "
"""How the host's words begin on a part that it could not make for a member."""


_QUOTA_FULL: Final = "exceeded quota"
"""What every API server says where a ResourceQuota is full."""
_NO_CLASS: Final = "no PriorityClass with name"
"""What every API server says of pods that name one that it does not have."""


def lacks_class(words: str) -> bool:
    """Whether a member refused pods because it does not have their PriorityClass."""
    return _NO_CLASS in words


def reason_of_refusal(words: str) -> Reason:
    """The reason of work that a member did not take, by the member's words, or the host's on why it sent none."""
    if words.startswith(OVERRIDE_POLICY):
        return Reason.OVERRIDE_FAILED
    return Reason.NAMESPACE_NOT_ACCEPTED if NOT_ACCEPTED in words else Reason.REFUSED_BY_MEMBER


def concerns_namespace(words: str) -> bool:
    """Whether a refusal holds for every workload of the namespace: a ResourceQuota is full, or the member has a
    namespace of that name of its own.
    """
    return _QUOTA_FULL in words or NOT_ACCEPTED in words


class Verdict(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Why a pending workload does not run now."""

    reason: Reason
    blocker: Blocker | None = None

    def sentence(self) -> str:
        """The verdict for a person."""
        block = self.blocker
        if block is None:
            return _SENTENCES[self.reason]
        if self.reason is Reason.NO_CLUSTER and block.message:
            return f"{_SENTENCES[self.reason]}: {block.message}"
        several = block.kind == "Clusters" and "," in block.name
        what = "clusters" if several else kind_for_people(block.kind)
        text = f"{self._why(block)}: {what} {block.name}"
        if block.resource == "pods" and block.requested == "1":
            text += f" {'have' if several else 'has'} no room for its pod"
        elif block.resource == "pods":
            text += " hold" if several else " holds"
            text += f" {block.available} of the {block.requested} pods that must start together"
        elif block.resource:
            where = f" in cluster {block.cluster}" if block.cluster and block.kind != "Cluster" else ""
            available, requested = map(quantity.for_people, (block.available, block.requested))
            text += f" has {available} {block.resource} free for it{where}, {requested} needed"
        return f"{text}: {block.message}" if block.message else text

    def _why(self, block: Blocker) -> str:
        """The sentence of its reason; a quota is of a queue, of a queue in one member, or of a namespace."""
        if self.reason is Reason.NO_NODE_MATCHES and block.message:
            return "no node accepts its pods"
        if self.reason is Reason.QUOTA_EXCEEDED and block.kind == "ResourceQuota":
            return "it would exceed a quota of its namespace"
        if self.reason is Reason.QUOTA_EXCEEDED and block.kind == "Namespace":
            return "it would exceed the ResourceQuota of its namespace"
        if self.reason is Reason.QUOTA_EXCEEDED and block.kind == "Cluster":
            return "it would exceed what may be used of a member"
        if self.reason is Reason.QUOTA_EXCEEDED and block.cluster:
            return "it would exceed its queue's ceiling in a member"
        if self.reason is Reason.QUOTA_EXCEEDED and block.bound in _BOUNDS:
            return _BOUNDS[block.bound]
        if self.reason is Reason.NO_NODE_MATCHES and block.message:
            return "no node can take its pods"
        return _SENTENCES[self.reason]


def kind_for_people(kind: str) -> str:
    """The kind of one object in a sentence."""
    return {"Clusters": "cluster", "ResourceQuota": "ResourceQuota"}.get(kind, kind.lower())


_BOUNDS: Final[dict[str, str]] = {
    Bound.ABOVE: "it would exceed the capability of a queue above its own",
    Bound.GUARANTEES: "it would exceed what the guarantees of other queues leave",
    Bound.MEMBERS: "it would exceed what the members that its queue may use have in all",
}
_SENTENCES: dict[Reason, str] = {
    Reason.SUBMITTED: "not looked at yet",
    Reason.DISPATCHED: "dispatched",
    Reason.GROWN: "more of its pods run",
    Reason.SHRUNK: "fewer of its pods run",
    Reason.SIZE_KEPT: "it runs in several members and keeps the size that it began with",
    Reason.QUEUE_NOT_FOUND: "its queue does not exist",
    Reason.QUEUE_CLOSED: "its queue is closed",
    Reason.QUEUE_INVALID: "its queue is not part of a valid tree",
    Reason.QUEUE_NOT_LEAF: "its queue is divided into other queues and takes no workloads itself",
    Reason.QUEUE_NOT_OPEN: "its queue is not open to its namespace",
    Reason.BEHIND_HEAD: "it waits behind the head of its queue, which nothing may pass",
    Reason.WOULD_DELAY: "it would delay a workload with a reservation",
    Reason.ASKING_MEMBERS: "members are asked whether it would fit without its victims",
    Reason.AWAITING_VICTIMS: "it waits until its victims have ended",
    Reason.QUOTA_EXCEEDED: "it would exceed its queue's capability",
    Reason.NO_CLUSTER: "no member cluster matches both its policy and its queue",
    Reason.CLUSTERS_NOT_READY: "no matching member cluster is ready",
    Reason.NO_NODE_MATCHES: "no node accepts its selectors and tolerations",
    Reason.INSUFFICIENT_RESOURCES: "no member has room for the whole gang",
    Reason.NO_DOMAIN_FITS: "no topology domain of an allowed tier has room for the whole gang",
    Reason.NO_TOPOLOGY: "no member that it may use has a topology domain (HyperNode) of a tier that it allows",
    Reason.TOPOLOGY_INVALID: "HyperNodes are wrong, and there is no topology domain of a tier that it allows",
    Reason.NO_PLACER: "no member that it may use has a placer that looks at what its pods insist on",
    Reason.FEATURE_MISSING: "no member that it may use has what it needs",
    Reason.AGENT_VERSION: "the agents of the members that it may use are too old, or too new, for the host",
    Reason.INVALID_GANG: "the gang annotation of its binding can't be read",
    Reason.GANG_GROUP_INCOMPLETE: "too few of the workloads that start together with it can run",
    Reason.RESERVING: "its parts are being reserved",
    Reason.PART_REFUSED: "a member could not reserve its part",
    Reason.AVOIDED: "the members that match failed it lately and are avoided for a while, or until their room changes",
    Reason.MEMBER_FAILING: "the members that match do not bind what is sent to them, make no pods of its kind, or"
    " confirm no removals; one workload at a time is tried there",
    Reason.HELD: "it is held by its user",
    Reason.NO_PODS: "it asks for no pods",
    Reason.POLICY_SUSPENDED: "its propagation policy suspends dispatching (spec.suspension)",
    Reason.REFUSED_BY_MEMBER: "a member refused it",
    Reason.NAMESPACE_NOT_ACCEPTED: "a member has a namespace of that name of its own",
    Reason.OVERRIDE_FAILED: "an override policy of the host can't be applied to it",
    Reason.DEACTIVATED: "the members that it may use refused it, or did not get it to run; it is not tried until its"
    " user acts (atollctl job retry)",
    Reason.DEADLINE_EXCEEDED: "its pods were not bound in time",
    Reason.NOT_READY_IN_TIME: "its pods were bound and did not run in time; it is tried again after a pause",
    Reason.EVICTION_OVERDUE: "its pods have not gone in time; its quota is returned, their nodes are not",
    Reason.EVICTED: "it was evicted from its cluster",
    Reason.PREEMPTED: "it was evicted for a workload of higher priority in its queue",
    Reason.RECLAIMED: "it was evicted for a queue that is entitled to what its own queue had borrowed",
    Reason.MOVED: "it was moved to free a topology domain for a gang that fits nowhere else",
    Reason.MEMBER_LOST: "its member was away for longer than it tolerates",
    Reason.MEMBER_TAINTED: "its member has a NoExecute taint that its policy does not tolerate, or no longer",
    Reason.MEMBER_DRAINED: "its member is drained",
    Reason.UNHEALTHY: "it was unhealthy in its member for longer than its policy tolerates",
}
