"""What the dispatcher reads of the host's objects, and how it becomes the core's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar

import msgspec
import structlog

from atoll.dispatcher.core import (
    BindingView,
    Ceiling,
    ClusterView,
    MemberAnswer,
    NamespaceView,
    Order,
    QueueView,
    Strategy,
)
from atoll.dispatcher.core.capacity.refusals import MOST_WORDS
from atoll.dispatcher.core.events import NOTHING, Circuit, Failure
from atoll.dispatcher.split import webster
from atoll.model import (
    conditions,
    decision,
    duration,
    failover,
    fairness,
    flavors,
    gang,
    keys,
    numbers,
    placer,
    quantity,
    selectors,
    skew,
    vector,
)
from atoll.model.failover import EvictionTask
from atoll.model.lost import STALE_GONE, absence
from atoll.model.member import UNSAID, AgentFacts, features_of
from atoll.model.objects import Slim
from atoll.model.placement import Divided, Mode, Placement, Scattered, Shared
from atoll.model.placer import Placer
from atoll.model.queue_object import Quantities, QueueObject
from atoll.model.queues import truth
from atoll.model.quotas import Quota, scopes_in
from atoll.model.timestamps import is_time, to_seconds
from atoll.model.vector import Vector
from atoll.model.verdict import PODS_LOST

T = TypeVar("T")

log = structlog.get_logger(__name__)

Json = dict[str, Any]

MAX_CAPACITY = 512 * 1024
"""Bytes of one ClusterCapacity; agents publish at most 200 kB, and field management adds to it."""
#: of a workload whose pods its controller did not make
_UNMADE = "fewer of its pods exist than must start together: is the controller of its kind at work there?"
_LONGEST_QUANTITY = 64
_KNOWN_GANGS = 256
"""A text has up to 128 KiB."""
_MOST_AMOUNT = 2**63
"""Of a resource, for a queue: any number of 63 bits, as people write them where they mean no limit, is less."""


class Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Of any struct below: a piece of an object."""


class Suspension(Part, frozen=True, rename="camel"):
    scheduling: bool = False


class Component(Part, frozen=True, rename="camel"):
    name: str
    replicas: int = 0


class Target(Part, frozen=True, rename="camel"):
    name: str
    replicas: int = 0
    components: list[Component] = []


class Reference(Part, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    @property
    def whole_kind(self) -> str:
        """Kind and group, as `Job.batch.volcano.sh`."""
        return f"{self.kind}.{self.api_version.partition('/')[0]}" if "/" in self.api_version else self.kind


class SchedulePriority(Part, frozen=True, rename="camel"):
    priority: int = 0


class BindingSpec(Part, frozen=True, rename="camel"):
    resource: Reference = Reference()
    suspension: Suspension | None = None
    clusters: list[Target] = []
    placement: Placement | None = None
    schedule_priority: SchedulePriority | None = None
    reschedule_triggered_at: str = ""
    graceful_eviction_tasks: list[EvictionTask] = []


class Condition(Part, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class Placed(Part, frozen=True, rename="camel"):
    generation: int = 0
    nodes: dict[str, int] = {}
    starting: str = ""
    move: str = ""
    moves: str = ""
    waiting: str = ""
    requests: dict[str, dict[str, int]] = {}


_UNPLACED = Placed()


class Hold(Part, frozen=True, rename="camel"):
    epoch: int = -1
    state: str = ""
    generation: int = 0
    message: str = ""
    requested: int = 0
    available: int = 0


class Refusal(Part, frozen=True, rename="camel"):
    epoch: int = -1
    message: str = ""


class MemberStatus(Part, frozen=True, rename="camel"):
    placement: Placed | None = None
    reservation: Hold | None = None
    refused: Refusal | None = None
    unmade: bool = False
    suspended: str = ""
    released: dict[str, int] = {}

    @property
    def placed(self) -> Placed:
        """The placement; an empty one where there is none."""
        return self.placement or _UNPLACED

    @property
    def waiting(self) -> str:
        """Why pods have no node; empty where all have."""
        return self.placed.waiting or self.suspended or (_UNMADE if self.unmade else "")


class Aggregated(Part, frozen=True, rename="camel"):
    cluster_name: str
    status: MemberStatus | None = None
    health: str = ""


class BindingStatus(Part, frozen=True, rename="camel"):
    conditions: list[Condition] = []
    aggregated_status: list[Aggregated] = []


class BindingObject(Slim, frozen=True, rename="camel"):
    """A ResourceBinding."""

    spec: BindingSpec = BindingSpec()
    status: BindingStatus = BindingStatus()
    left: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Member -> labels that the next copy is to have, by what the status there says; of no object, but read with it."""

    @property
    def workload(self) -> str:
        """`namespace/name` of its workload."""
        return f"{self.metadata.namespace}/{self.spec.resource.name}"


class QuotaSpec(Part, frozen=True, rename="camel"):
    hard: Quantities = {}
    scopes: list[str] = []
    scope_selector: dict[str, Any] | None = None


class QuotaObject(Slim, frozen=True, rename="camel"):
    """A ResourceQuota."""

    spec: QuotaSpec = QuotaSpec()


class ClusterSpec(Part, frozen=True, rename="camel"):
    taints: list[dict[str, Any]] = []
    provider: str = ""
    region: str = ""
    zone: str = ""
    zones: list[str] = []


class ClusterAgent(Part, frozen=True, rename="camel"):
    version: str = ""
    features: list[str] = []


class ClusterStatus(Part, frozen=True, rename="camel"):
    """As it was last written; conditions and the state of the breaker as they are, to compare."""

    conditions: list[dict[str, Any]] = []
    kubernetes_version: str = ""
    agent: ClusterAgent | None = None
    circuit: dict[str, Any] | None = None
    lost: dict[str, Any] | None = None
    undated_taints: list[dict[str, Any]] = []


class ClusterObject(Slim, frozen=True, rename="camel"):
    """A Cluster."""

    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


class CapacityDomain(Part, frozen=True, rename="camel"):
    name: str
    tier: int
    tier_name: str = ""
    parent: str = ""


class CapacityNuma(Part, frozen=True, rename="camel"):
    policy: str = ""
    by_pod: bool = False
    nodes: list[dict[str, int]] = []


class CapacityProfile(Part, frozen=True, rename="camel"):
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    allocatable: dict[str, str | int | float] = {}
    numa: CapacityNuma | None = None


class CapacityClass(Part, frozen=True, rename="camel"):
    nodes: int
    profile: int
    free: dict[str, int]
    domain: str = ""
    names: list[str] = []
    in_trees: dict[str, str] = {}


class CapacityTree(Part, frozen=True, rename="camel"):
    name: str
    domains: list[CapacityDomain] = []


class CapacityProblem(Part, frozen=True, rename="camel"):
    hyper_node: str = ""
    message: str = ""


class CapacitySpec(Part, frozen=True, rename="camel"):
    generation: int = 0
    root: str = ""
    objects: int = 1
    domains: list[CapacityDomain] = []
    profiles: list[CapacityProfile] = []
    classes: list[CapacityClass] = []
    total: dict[str, int] = {}
    left_out: list[str] = []
    trees: list[CapacityTree] = []
    asked_tiers: list[str] = []
    aligns: bool = False
    problems: list[CapacityProblem] = []


class CapacityObject(Slim, frozen=True, rename="camel"):
    """A ClusterCapacity."""

    spec: CapacitySpec = CapacitySpec()


class CapacityReport(Slim, frozen=True, rename="camel"):
    """A ClusterCapacity of which nothing but metadata was read yet: that is cheap, however much it says."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _AsSaid(Part, frozen=True, rename="camel"):
    cluster_name: str
    status: msgspec.Raw = msgspec.Raw(b"null")
    health: str = ""


class _StatusAsSaid(Part, frozen=True, rename="camel"):
    conditions: list[Condition] = []
    aggregated_status: list[_AsSaid] = []


class _BindingAsSaid(Slim, frozen=True, rename="camel"):
    spec: BindingSpec = BindingSpec()
    status: _StatusAsSaid = _StatusAsSaid()


_decode_binding = msgspec.json.Decoder(BindingObject).decode
_decode_as_said = msgspec.json.Decoder(_BindingAsSaid).decode
_decode_member_status = msgspec.json.Decoder(MemberStatus | None).decode
decode_quota = msgspec.json.Decoder(QuotaObject).decode
decode_cluster = msgspec.json.Decoder(ClusterObject).decode
_decode_capacity_spec = msgspec.json.Decoder(CapacitySpec).decode
_decode_report = msgspec.json.Decoder(CapacityReport).decode


def decode_binding(raw: bytes | msgspec.Raw) -> BindingObject:
    """A ResourceBinding; a member whose report in it can't be read counts as silent.

    Raises:
        msgspec.MsgspecError: what the host wrote can't be read.
    """
    try:
        found = _decode_binding(raw)
        return found if _CARRIES not in found.metadata.annotations.get(keys.GANG, "") else _with_state(found, raw)
    except msgspec.ValidationError:
        # It must not vanish, and give back its charge, because of a member's report.
        received = _decode_as_said(raw)
    items = []
    for item in received.status.aggregated_status:
        status = None
        try:
            status = _decode_member_status(item.status)
        except msgspec.MsgspecError as error:
            log.warning(
                "a report can't be read", cluster=item.cluster_name, binding=received.metadata.key, error=str(error)
            )
        items.append(Aggregated(item.cluster_name, status, item.health))
    return BindingObject(received.metadata, received.spec, BindingStatus(received.status.conditions, items))


_CARRIES = '"state":'
"""In the annotation of gangs whose next copies get labels by what members say of this one."""


def _with_state(found: BindingObject, raw: bytes | msgspec.Raw) -> BindingObject:
    """The binding with the state for its next copies."""
    try:
        wish = gang.decode(found.metadata.annotations[keys.GANG])
    except msgspec.MsgspecError:
        return found
    rules = {
        label: path for each in (wish.leaving, wish.unhealthy) if each is not None for label, path in each.state.items()
    }
    left = {
        item.cluster_name: failover.preserved(rules, msgspec.json.decode(item.status))
        for item in _decode_as_said(raw).status.aggregated_status
    }
    return msgspec.structs.replace(found, left={name: labels for name, labels in left.items() if labels})


def decode_report(raw: bytes | msgspec.Raw) -> CapacityReport:
    """A ClusterCapacity, its spec not looked at.

    Raises:
        msgspec.MsgspecError: not an object of Kubernetes.
    """
    report = _decode_report(raw)
    # Of the whole it would keep the rest in memory.
    return CapacityReport(report.metadata, report.spec.copy())


def read_report(report: CapacityReport) -> CapacityObject:
    """The report in the form for the core.

    Raises:
        msgspec.MsgspecError: that can't be read, or is larger than what members may publish.
    """
    if (size := memoryview(report.spec).nbytes) > MAX_CAPACITY:
        raise msgspec.ValidationError(f"{size} bytes; the most that is read is {MAX_CAPACITY}")
    return CapacityObject(report.metadata, _decode_capacity_spec(report.spec))


_YES = ("Reserved", "Fits")
"""What members say of a hold that they grant, and of a question."""
_NO_REASON = "it does not say why"


def binding_view(obj: BindingObject) -> BindingView | None:
    """The core's view; None for a binding that is not Atoll's (no gang annotation)."""
    if keys.GANG not in obj.metadata.annotations:
        return None
    read, decided = _gang(obj), _decision(obj)
    conditions = {condition.type: condition for condition in obj.status.conditions}
    released, bound = conditions.get("Released"), conditions.get("Bound", Condition())
    healthy = conditions.get("Healthy", Condition())
    whole, lost = bound.status == "True", bound.status == "False" and bound.reason == PODS_LOST
    placement = obj.spec.placement or Placement()
    mode, tasks = placement.mode(read), obj.spec.graceful_eviction_tasks
    # Its policy sends nothing there, or it left them and its tasks there are not over.
    excluded = [*(read.suspended if read is not None else ()), *(task.from_cluster for task in tasks)]
    at = numbers.whole(obj.metadata.annotations.get(keys.EPOCH)) or 0
    reports = {item.cluster_name: item.status for item in obj.status.aggregated_status if item.status is not None}
    of_each = partial(_by_member, reports)
    return BindingView(
        uid=obj.metadata.uid,
        namespace=obj.metadata.namespace,
        name=obj.metadata.name,
        generation=obj.metadata.generation,
        epoch=at,
        gang=read,
        decision=decided,
        created=obj.metadata.creation_timestamp,
        kind=obj.spec.resource.whole_kind,
        suspended=obj.spec.suspension is not None and obj.spec.suspension.scheduling,
        parts=tuple((target.name, _counts(read, target)) for target in obj.spec.clusters),
        affinities=placement.affinities(excluded, together=isinstance(mode, Shared)),
        tolerations=tuple(placement.cluster_tolerations),
        divided=isinstance(mode, Divided | Shared),
        scattered=isinstance(mode, Scattered),
        least_clusters=mode.least,
        most_clusters=mode.most,
        sharing=_sharing(placement, mode, obj.spec.resource.uid),
        rescheduled=_asked_anew(obj.spec.reschedule_triggered_at, decided, reports),
        leaves=of_each(lambda status: status.placed.moves[:MOST_WORDS]),
        bound=whole or lost,
        bound_at=bound.last_transition_time if whole else "",
        lost_at=bound.last_transition_time if lost else "",
        waiting=of_each(lambda status: status.waiting),
        started="Running" in conditions and conditions["Running"].status == "True",
        held_up=of_each(lambda status: status.placed.starting),
        finished="Finished" in conditions and conditions["Finished"].status == "True",
        stuck=released.message if released is not None and released.status == "False" else "",
        released=released.observed_generation if released is not None and released.status == "True" else 0,
        placed=of_each(
            lambda status: (status.placed.generation, sum(status.placed.nodes.values())) if status.placement else None
        ),
        reserved=of_each(lambda status: _answer(status.reservation, at)),
        nodes=of_each(lambda status: status.placed.nodes),
        requests=of_each(lambda status: status.placed.requests),
        ended=of_each(lambda status: status.released),
        unmade=tuple(cluster for cluster, status in reports.items() if status.unmade),
        refused=of_each(lambda status: _reason(status.refused, at)),
        unhealthy_at=healthy.last_transition_time if healthy.status == "False" else "",
        unhealthy={
            item.cluster_name: healthy.message or _NO_REASON
            for item in obj.status.aggregated_status
            if healthy.status == "False" and item.health == "Unhealthy"
        }
        or NOTHING,
        tasks=tuple(tasks),
        state=obj.left or NOTHING,
    )


def _gang(obj: BindingObject) -> gang.Gang | None:
    """The wish; None where it can't be read."""
    try:
        wish = _wish(obj.metadata.annotations[keys.GANG])
    except (msgspec.MsgspecError, gang.BadGang) as error:
        log.warning("gang annotation can't be read", **_about(obj), error=str(error))
        return None
    rank = obj.spec.schedule_priority
    return wish if rank is None else msgspec.structs.replace(wish, priority=rank.priority)


@lru_cache(_KNOWN_GANGS)
def _wish(text: str) -> gang.Gang:
    """The gang of an annotation: each change of a binding brings it again, and many bindings have the same."""
    wish = gang.decode(text)
    gang.check(wish)
    return wish.with_any_gpu()


def _decision(obj: BindingObject) -> decision.Decision:
    """The last decision; an empty one where it can't be read."""
    try:
        last = decision.decode(obj.metadata.annotations.get(keys.DECISION))
        decision.check(last)
        return last
    except (msgspec.MsgspecError, decision.BadDecision) as error:
        log.warning("decision annotation can't be read", **_about(obj), error=str(error))
        return decision.Decision()


def _by_member(reports: Mapping[str, MemberStatus], value: Callable[[MemberStatus], T | None], /) -> Mapping[str, T]:
    """Member -> value, of members whose report has one that is not empty."""
    if not reports:
        return NOTHING
    return {cluster: found for cluster, status in reports.items() if (found := value(status))} or NOTHING


def _answer(hold: Hold | None, epoch: int) -> MemberAnswer | None:
    if hold is None or hold.epoch != epoch:
        return None
    words = hold.message[:MOST_WORDS]
    return MemberAnswer(hold.state in _YES, hold.generation, hold.requested, hold.available, words)


def _reason(refusal: Refusal | None, epoch: int) -> str:
    return (refusal.message or _NO_REASON) if refusal is not None and refusal.epoch == epoch else ""


def _counts(read: gang.Gang | None, target: Target) -> tuple[int, ...]:
    """Pods per task of a part."""
    if read is None:
        return ()
    told = {component.name: component.replicas for component in target.components}
    return tuple(gang.counts_in(read, target.replicas, told))


def _asked_anew(by_user: str, decided: decision.Decision, members: Mapping[str, MemberStatus]) -> str:
    """The latest request to place it anew: by its user, or by a member that moves its gang.

    A member's counts a minute after the dispatch at the earliest, so that no member can have a gang go in circles.
    """
    asked = [by_user] if is_time(by_user) else []
    if decided.dispatched:
        earliest = to_seconds(decided.dispatched) + decision.MOVES_AFTER
        moves = [status.placed.move for status in members.values()]
        asked += [move for move in moves if is_time(move) and to_seconds(move) >= earliest]
    return max(asked, key=to_seconds, default="")


def _sharing(placement: Placement, mode: Mode, uid: str) -> dict[str, Any] | None:
    """`BindingView.sharing`."""
    if not isinstance(mode, Shared):
        return None
    found: dict[str, Any] = {"replicaScheduling": mode.scheduling}
    if placement.spread_constraints:
        found["spreadConstraints"] = placement.spread_constraints
    if webster.descending(uid):
        found["lastFirst"] = True
    return found


def _about(obj: BindingObject) -> dict[str, str]:
    return {"binding": obj.metadata.key, "workload": obj.workload}


def queue_view(obj: QueueObject) -> QueueView:
    """The core's view; what can't be read makes the queue invalid rather than opening it without limit."""
    spec, annotations = obj.spec, obj.metadata.annotations
    problems: list[str] = []

    def read(field: str, parse: Callable[[Any], T], value: Any, otherwise: T) -> T:
        try:
            return parse(value) if value else otherwise
        except ValueError as error:
            problems.append(f"{field} can't be read: {error}")
            return otherwise

    def amounts(field: str, value: Quantities) -> Vector:
        return read(field, _amounts, value, {})

    def by_annotation(key: str, parse: Callable[[Any], T], otherwise: T) -> T:
        return read(f"annotation {key}", parse, annotations.get(key), otherwise)

    if keys.DEQUEUE_STRATEGY in annotations:
        strategy = by_annotation(keys.DEQUEUE_STRATEGY, _strategy, Strategy.TRAVERSE)
    else:
        strategy = read("spec.dequeueStrategy", _strategy, spec.dequeue_strategy, Strategy.TRAVERSE)
    if not all(each.name for each in spec.extend_clusters):
        problems.append("spec.extendClusters has an item without the name of a member")
    found_flavors = flavors.NONE
    if obj.metadata.name == keys.ROOT_QUEUE:
        found_flavors = by_annotation(keys.FLAVORS, flavors.parse, flavors.NONE)
    parent = "" if spec.parent == keys.ROOT_QUEUE or obj.metadata.name == keys.ROOT_QUEUE else spec.parent or ""
    return QueueView(
        name=obj.metadata.name,
        capability=amounts("spec.capability", spec.capability),
        priority=spec.priority or 0,
        open=obj.status.state in ("", "Open") and obj.metadata.deletion_timestamp is None,
        parent=parent,
        guarantee=amounts("spec.guarantee.resource", spec.guarantee.resource if spec.guarantee else {}),
        deserved=amounts("spec.deserved", spec.deserved),
        weight=max(spec.weight or 1, 1),
        reclaimable=spec.reclaimable is not False,
        created=obj.metadata.creation_timestamp,
        strategy=strategy,
        members={
            each.name: Ceiling(
                max(each.weight or 1, 1), amounts(f"spec.extendClusters[{index}].capacity", each.capacity)
            )
            for index, each in enumerate(spec.extend_clusters)
        },
        affinity=by_annotation(keys.CLUSTER_AFFINITY, selectors.parse, {}),
        estimate=by_annotation(keys.RUNNING_ESTIMATE, duration.parse, None),
        patience=by_annotation(keys.SLA_WAITING_TIME, duration.parse, None),
        ready_timeout=by_annotation(keys.READY_TIMEOUT, duration.parse, None),
        evict_timeout=by_annotation(keys.EVICT_TIMEOUT, duration.parse, None),
        protection=by_annotation(keys.PROTECTED_FOR, duration.parse, None),
        score=annotations.get(keys.SCORE_STRATEGY, ""),
        split=annotations.get(keys.SPLIT_STRATEGY, ""),
        order=by_annotation(keys.ORDER, Order, Order.PRIORITY),
        half_life=by_annotation(keys.FAIR_HALF_LIFE, fairness.half_life, None),
        namespaces=by_annotation(keys.NAMESPACE_SELECTOR, selectors.parse, None),
        reclaims_firm=by_annotation(keys.RECLAIM_UNPREEMPTABLE, truth, True),
        problem="; ".join(problems),
        flavors=found_flavors,
    )


def _amounts(quantities: Quantities) -> Vector:
    for name, text in quantities.items():
        # Such numbers can't be shown, and arithmetic on a million digits takes seconds.
        if len(str(text)) > _LONGEST_QUANTITY or abs(quantity.exact(text)) > _MOST_AMOUNT:
            raise ValueError(f"{str(text)[:_LONGEST_QUANTITY]} of {name} is more than there can be")
    return quantity.capacity(quantities)


def _strategy(text: str) -> Strategy:
    try:
        return Strategy(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is none of {', '.join(Strategy)}") from error


def namespace_view(
    name: str, labels: Mapping[str, str], quotas: Iterable[QuotaObject], weight: str | None = None
) -> NamespaceView:
    """The core's view: of the ResourceQuotas for all pods of a namespace the least of each resource; those with scopes
    one by one.
    """
    limits: Vector = {}
    scoped = []
    for quota in sorted(quotas, key=lambda each: each.metadata.name):
        hard = _hard(quota.spec.hard)
        conditions = scopes_in(quota.spec.scopes, quota.spec.scope_selector)
        if conditions and hard:
            scoped.append(Quota(quota.metadata.name, hard, conditions))
        elif not conditions:
            limits = vector.lower(limits, hard)
    return NamespaceView(name, limits, labels, tuple(scoped), fairness.weight_or_one(weight))


def _hard(quantities: Quantities) -> Vector:
    """What a quota limits: `requests.X` and X count for cpu, memory, ephemeral-storage, pods, huge pages and extended
    resources.
    """
    hard: Vector = {}
    for key, value in quantities.items():
        name = key.removeprefix("requests.")
        if name in _QUOTA_NAMES or name.startswith("hugepages-") or _extended(name):
            amount = quantity.floor_units(name, value)
            hard[name] = min(amount, hard.get(name, amount))
    return hard


_QUOTA_NAMES = ("cpu", "memory", "ephemeral-storage", "pods")


def _extended(name: str) -> bool:
    """Whether it is a resource with a domain, such as nvidia.com/gpu; not a count of objects or a storage class."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and domain != "count" and ".storageclass.storage.k8s.io" not in name


def _placer(obj: ClusterObject) -> Placer:
    """Who places in the member, as control says in condition Placer; our own scheduler until it does."""
    said = (conditions.find(obj.status.conditions, "Placer") or {}).get("reason")
    return placer.of_reason(str(said or "")) or Placer.ATOLL


def _features(status: ClusterStatus) -> frozenset[str] | None:
    """Kinds and features that the member accepts; None for unknown. Without an agent of ours its version does."""
    if status.agent is not None and status.agent.features:
        return frozenset(status.agent.features)
    version = skew.minor_of(status.kubernetes_version.removeprefix("v"))
    if version is None:
        return None
    return features_of(AgentFacts(behaves=f"{version[0]}.{version[1]}", kinds=tuple(UNSAID)))


def cluster_view(obj: ClusterObject) -> ClusterView:
    """The core's view."""
    agent = obj.status.agent
    ready = (conditions.find(obj.status.conditions, "Ready") or {}).get("status") == "True"
    stale = (conditions.find(obj.status.conditions, STALE_GONE) or {}).get("status") == "False"
    # No toleration keeps work in a member that is emptied.
    drained = any(taint.get("key") == keys.DRAINED for taint in obj.spec.taints)
    since, fenced_after = (absence(obj.status.lost) if not ready else None) or (None, None)
    return ClusterView(
        obj.metadata.name,
        ready and not stale and not drained and obj.metadata.deletion_timestamp is None,
        obj.metadata.labels,
        _dated(obj),
        {
            "provider": (obj.spec.provider,),
            "region": (obj.spec.region,),
            "zone": tuple(obj.spec.zones) or (obj.spec.zone,),
        },
        _placer(obj).honours_needs,
        _features(obj.status),
        wrong[1] if agent is not None and (wrong := skew.wrong_with_agent(agent.version)) is not None else "",
        ceiling_of(obj)[0],
        since,
        fenced_after,
    )


def _dated(obj: ClusterObject) -> tuple[dict[str, Any], ...]:
    """Its taints; those without timeAdded with when control saw them first."""
    since = {(each.get("key"), each.get("value") or ""): each.get("since") for each in obj.status.undated_taints}
    return tuple(
        {**taint, "timeAdded": at}
        if taint.get("effect") == "NoExecute"
        and not taint.get("timeAdded")
        and (at := since.get((taint.get("key"), taint.get("value") or "")))
        else taint
        for taint in obj.spec.taints
    )


def ceiling_of(obj: ClusterObject) -> tuple[Vector, str]:
    """The most of a member that is believed and used, as its annotation says; and why that can't be read, if it can't:
    then nothing more is.
    """
    text = obj.metadata.annotations.get(keys.CEILING, "")
    try:
        return _amounts(dict(quantity.resource_list(text))), ""
    except ValueError as error:
        return {"pods": 0}, f"annotation {keys.CEILING} can't be read: {error}"


def circuit_of(obj: ClusterObject) -> Circuit | None:
    """The state of a member's breaker as it was last written; None where it was not, or can't be read."""
    said = obj.status.circuit
    if not said:
        return None
    try:
        until = to_seconds(said["until"])
        return Circuit(said["open"] is True, int(said["opened"]), until, Failure(said["reason"]))
    except (KeyError, TypeError, ValueError) as error:
        log.warning("the state of a member's breaker can't be read", cluster=obj.metadata.name, error=str(error))
        return None
