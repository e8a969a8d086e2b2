"""The explanation itself: a pure function from objects to data, and from data to text.

The data is what `-o json` prints; the text says nothing that is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atoll.model import keys, numbers, quantity, shards, vector
from atoll.model.ages import duration
from atoll.model.conditions import condition, is_true
from atoll.model.decision import Phase
from atoll.model.gang import TopologyWish
from atoll.model.namespaces import LABELLED, opted_in
from atoll.model.plurals import counted
from atoll.model.timestamps import to_seconds
from atoll.model.verdict import Reason, Verdict
from atoll.view import arrays, charges, jobs, queue_objects, verdicts
from atoll.view.seen import Seen, seen, waits_since

Json = dict[str, Any]

DISPATCHER_LEASE = "atoll-dispatcher"


@dataclass(frozen=True, slots=True)
class Facts:
    """The objects on the host that an explanation rests on, as the API server gave them."""

    workload: Json
    binding: Json | None = None
    queues: list[Json] = field(default_factory=list)
    """Its queue, and those above it."""
    clusters: list[Json] = field(default_factory=list)
    """Members to which it was sent, as far as this user may see them."""
    works: list[Json] = field(default_factory=list)
    """Of this binding."""
    leases: list[Json] | None = field(default_factory=list)
    """Of the system namespace: which processes live; None where this user may not see them."""
    namespace_labels: dict[str, str] | None = field(default_factory=dict)
    """None where this user may not see them."""
    verdict: Json | None = None
    """What the query API says of the binding; None where it does not answer."""
    hint: str = ""
    """Why it does not."""
    unseen: tuple[str, ...] = ()
    """What this user may not see, in words."""
    made: list[tuple[Json, Json | None]] | None = None
    """Workloads that it has made, each with its binding; None where it makes none."""
    predecessor: Json | None = None
    """The binding of a workload of the same kind and name that was deleted before, and is not gone."""
    warning: Json | None = None
    """The last Event by which atoll-control says why it makes no binding."""


def explain(facts: Facts, now: float) -> Json:
    """Everything that is known about the workload's way, as plain data.

    Args:
        facts: as read from the host.
        now: seconds since the epoch.
    """
    meta = facts.workload["metadata"]
    data: Json = {
        "workload": {
            "kind": facts.workload["kind"],
            "apiVersion": facts.workload["apiVersion"],
            "namespace": meta.get("namespace", ""),
            "name": meta["name"],
            "created": meta.get("creationTimestamp", ""),
            "status": _own_status(facts.workload),
        }
    }
    if facts.unseen:
        data["unseen"] = list(facts.unseen)
    if (indices := arrays.indices(facts.workload)) is not None:
        data["indices"] = indices
    if facts.made is not None:
        data["makes"] = _made(facts.workload, facts.made)
        return data
    view = seen(facts.binding) if facts.binding else None
    if view is None:
        data["steps"] = _steps(facts, None)
        data["why"] = _why_unseen(facts, now)
        return data
    data["binding"] = {"name": view.name, "phase": view.decision.phase.value, "epoch": view.epoch}
    if view.gang is not None:
        data["gang"] = _gang(view)
        data["queue"] = _queue(facts, view.gang.queue)
    data["steps"] = _steps(facts, view)
    if not view.finished and (view.decision.phase.going or not view.decision.phase.charged):
        data["waiting"] = _waiting(facts, view, now)
        if facts.verdict is not None and facts.verdict.get("phase") == Phase.SUSPENDED:
            data["waiting"] = _by_verdict(data["waiting"], facts.verdict, now)
        elif facts.hint:
            data["waiting"]["hint"] = facts.hint
    clusters = _clusters(facts, view)
    if clusters:
        data["clusters"] = clusters
    away = condition(facts.binding or {}, "MemberReady")
    known = any("notReadySince" in each for each in data.get("clusters") or ())
    if away.get("status") == "False" and not view.finished and not known:
        # A user who may not list members reads it off the binding.
        data["away"] = away.get("message", "")
    data["story"] = [
        {"at": line.at, "phase": line.phase.value, "reason": line.reason.value, "text": line.text}
        for line in view.decision.story
    ]
    return data


def _own_status(workload: Json) -> str:
    status = workload.get("status") or {}
    state = status.get("state")
    return str(state.get("phase", "")) if isinstance(state, dict) else str(status.get("phase") or "")


def _gang(view: Seen) -> Json:
    gang = view.gang
    assert gang is not None
    result: Json = {
        "queue": gang.queue,
        "priority": gang.priority,
        "pods": gang.replicas,
        "minAvailable": gang.min_available,
        "tasks": [{"name": task.name, "replicas": task.replicas} for task in gang.tasks],
        "request": _quantities(gang.total()),
    }
    if gang.running_estimate is not None:
        result["runningEstimate"] = duration(gang.running_estimate)
    wish = gang.network_topology
    if wish is not None:
        result["topology"] = {"mode": wish.mode, "highestTier": _tier(wish)}
    if gang.apart is not None:
        result["apart"] = {"mode": gang.apart.mode, "tier": _tier(gang.apart)}
    if gang.balanced is not None:
        result["balancedOver"] = _tier(gang.balanced)
    return result


def _tier(wish: TopologyWish) -> str | int | None:
    return wish.highest_tier_name if wish.highest_tier_allowed is None else wish.highest_tier_allowed


def _quantities(amounts: vector.Vector) -> dict[str, str]:
    return {name: quantity.format_units(name, amounts[name]) for name in sorted(amounts)}


def _made(maker: Json, made: list[tuple[Json, Json | None]]) -> Json:
    """What came of an object that makes workloads, and what each of these waits for."""
    entries = []
    for workload, binding in made:
        [row] = jobs.rows([workload], jobs.by_workload([binding] if binding else []), 0.0, namespaced=False, wide=True)
        entry = dict(zip(("name", "queue", "status", "clusters"), row, strict=False)) | {"reason": row[-1]}
        entries.append({key: value for key, value in entry.items() if value})
    spec = maker.get("spec") or {}
    result: Json = {"workloads": entries}
    if spec.get("suspend"):
        result["stopped"] = "its spec.suspend is true: it makes no more until that is lifted"
    elif spec.get("schedule"):
        result["schedule"] = str(spec["schedule"])
    return result


# -- the way ---------------------------------------------------------------------------------------------------------


def _steps(facts: Facts, view: Seen | None) -> list[Json]:
    """The way from submission to the end; the last step that was reached is the current one, unless it is the end."""
    binding = facts.binding or {}
    bound = condition(binding, "Bound")
    finished = condition(binding, "Finished")
    applied = condition(binding, "FullyApplied")
    charged = view is not None and view.decision.phase.charged and not view.decision.phase.going
    ended = view is not None and view.finished
    sent = charged or ended
    lines = view.decision.story if view is not None else []
    dispatched_at = next((line.at for line in reversed(lines) if line.reason is Reason.DISPATCHED), "")
    running = _runs(facts)
    done: list[tuple[str, bool, str]] = [
        ("submitted", True, facts.workload["metadata"].get("creationTimestamp", "")),
        ("binding made", view is not None, (binding.get("metadata") or {}).get("creationTimestamp", "")),
        ("queued", view is not None and (sent or view.decision.reason is not Reason.SUBMITTED), _queued_at(view)),
        ("dispatched", sent, dispatched_at),
        ("work delivered", sent and is_true(applied), _since(applied)),
        ("pods bound", sent and is_true(bound), _since(bound)),
        ("running", running or ended, _since(condition(binding, "Running"))),
        ("finished", ended, _since(finished)),
    ]
    # What comes later implies what comes before: conditions may reach us in any order.
    last = max((index for index, (_, reached, _) in enumerate(done) if reached), default=0)
    return [
        {
            "step": name,
            "state": "ahead" if index > last else "current" if index == last and not ended else "done",
            **({"at": at} if at and index <= last else {}),
        }
        for index, (name, _, at) in enumerate(done)
    ]


def _queued_at(view: Seen | None) -> str:
    return view.gang.submitted or view.created if view is not None and view.gang is not None else ""


def _runs(facts: Facts) -> bool:
    from atoll.kinds import kind_of

    kind = kind_of(facts.workload)
    runs = kind is not None and kind.standing(facts.workload).running > 0
    return is_true(condition(facts.binding or {}, "Running")) or runs


def _since(found: Json) -> str:
    return str(found.get("lastTransitionTime") or "") if is_true(found) else ""


# -- why it waits ----------------------------------------------------------------------------------------------------


def _why_unseen(facts: Facts, now: float) -> Json:
    """Why no binding exists, and what to do."""
    namespace = facts.workload["metadata"].get("namespace", "")
    if facts.binding is not None:
        name = facts.binding["metadata"]["name"]
        return {
            "reason": "NotAtolls",
            "message": f"binding {name} has no annotation {keys.GANG}: another system made it",
            "help": ["set schedulerName: atoll in its policy, and check that atoll-control runs"],
        }
    labels = facts.namespace_labels
    if labels is not None and not opted_in(labels):
        return {
            "reason": "NamespaceNotEnabled",
            "message": f"namespace {namespace} is not opted in, so Atoll leaves its workloads alone",
            "help": [f"kubectl label namespace {namespace} {keys.ENABLED}=true"],
        }
    if labels is not None and not _asks(facts.workload, labels):
        return {
            "reason": "NamesNoQueue",
            "message": f"it names no queue, and in namespace {namespace} ({keys.ENABLED}={LABELLED}) only what does is"
            " Atoll's",
            "help": [f"create it again with label {keys.QUEUE_LABEL}, if Atoll is to run it"],
        }
    if why := _left_alone(facts.workload):
        return why
    if facts.predecessor is not None:
        return _after_another(facts, facts.predecessor)
    if facts.leases is not None and not _alive(facts.leases, lease := _lease_of(namespace, facts.leases), now):
        return {
            "reason": "ControlNotRunning",
            "message": f"no atoll-control holds lease {lease}, so no bindings are made in namespace {namespace}",
            "help": ["start atoll-control, a replica for each shard at least, and look at its log"],
        }
    if facts.warning is not None:
        return {
            "reason": facts.warning["reason"],
            "message": " ".join(facts.warning["note"].split()),
            "help": ["fix what the message names; atoll-control looks again when the workload or that changes"],
        }
    return {
        "reason": "NoBinding",
        "message": "there is no binding yet" + ("" if facts.leases is None else ", though atoll-control runs"),
        "help": ["wait a moment and ask again; then look at the log of atoll-control"],
    }


def _asks(workload: Json, labels: Mapping[str, str]) -> bool:
    """Whether its namespace leaves it to Atoll; so does every namespace with a kind that is not Atoll's."""
    from atoll.kinds import kind_of, left_to_atoll

    kind = kind_of(workload)
    return kind is None or left_to_atoll(kind.resource, workload, labels)


def _left_alone(workload: Json) -> Json | None:
    """Why Atoll leaves this very workload alone, as it says itself; None where it does not."""
    from atoll.kinds import BY_GVK

    kind = BY_GVK.get((workload["apiVersion"], workload["kind"]))
    if kind is None:
        known = ", ".join(f"{each} of {version}" for version, each in BY_GVK)
        return {
            "reason": "KindNotSupported",
            "message": f"Atoll does not run {workload['kind']} of {workload['apiVersion']}",
            "help": [f"one of {known}"],
        }
    why = kind.left_alone(workload)
    return None if why is None else {"reason": why.reason, "message": why.message, "help": [why.help]}


def _after_another(facts: Facts, predecessor: Json) -> Json:
    names = [item["name"] for item in (predecessor.get("spec") or {}).get("clusters") or ()]
    silent = {each["metadata"]["name"]: since for each in facts.clusters if (since := _not_ready(each))}
    where = ", ".join(
        f"{name}, which does not answer since {silent[name]}" if name in silent else name for name in names
    )
    return {
        "reason": "PredecessorRemains",
        "message": "its predecessor of the same name is still being removed" + (f" from {where}" if where else ""),
        "help": [f"{name} that answers again, or `atollctl unjoin {name} --force` where it is lost" for name in silent]
        or [f"{_NOTHING}it starts when its predecessor is gone"],
    }


def _not_ready(cluster: Json) -> str:
    """RFC 3339: since when a member is not ready; empty where it is."""
    ready = condition(cluster, "Ready")
    return "" if not ready or is_true(ready) else str(ready.get("lastTransitionTime") or "an unknown time")


def _lease_of(namespace: str, leases: list[Json]) -> str:
    """The lease of the shard of control that the namespace is in."""
    found: Json = next((each["metadata"] for each in leases if each["metadata"]["name"] == shards.lease(0)), {})
    of = min(numbers.whole((found.get("annotations") or {}).get(keys.SHARDS)) or 1, shards.MOST)
    return next(shards.lease(number) for number in range(of) if shards.Shard(number, of).owns(namespace))


def _alive(leases: list[Json], name: str, now: float) -> bool:
    for lease in leases:
        spec = lease.get("spec") or {}
        if lease["metadata"]["name"] == name and spec.get("holderIdentity") and spec.get("renewTime"):
            return now - to_seconds(spec["renewTime"]) <= 2 * float(spec.get("leaseDurationSeconds") or 15)
    return False


def _queue(facts: Facts, name: str) -> Json:
    found = next((queue for queue in facts.queues if queue["metadata"]["name"] == name), None)
    result: Json = {"name": name, "exists": found is not None}
    if found is None:
        return result
    result["state"] = queue_objects.own_state(found)
    result["effectiveState"] = queue_objects.states(facts.queues)[name]
    if problem := queue_objects.said_problem(found):
        result["problem"] = problem
    counts = queue_objects.counts(found)
    result["pending"], result["running"] = counts["pending"], counts["inqueue"] + counts["running"]
    used = queue_objects.allocated(found)
    limits = {
        name: str(amount)
        for name, amount in queue_objects.mapping(queue_objects.mapping(found.get("spec")).get("capability")).items()
    }
    known = (facts.verdict or {}).get("figures")
    # Without the dispatcher its own limit is known, not what those above it and its members leave.
    result["resources"] = known or [
        {"resource": name, "used": used.get(name, "0"), **({"limit": limits[name]} if name in limits else {})}
        for name in sorted({*used, *limits})
    ]
    return result


def _waiting(facts: Facts, view: Seen, now: float) -> Json:
    result: Json = {}
    if view.gang is not None:
        submitted, since = view.gang.submitted or view.created, waits_since(view)
        result["seconds"] = max(0, int(now - to_seconds(since)))
        if submitted != since:
            result["submitted"] = submitted
    decided = view.decision
    result["reason"] = decided.reason.value
    result["message"] = Verdict(decided.reason, decided.blocker).sentence()
    if decided.blocker is not None:
        block = decided.blocker
        parts = {
            "kind": block.kind,
            "name": block.name,
            "resource": block.resource,
            "requested": block.requested,
            "available": block.available,
            "cluster": block.cluster,
        }
        result["blocker"] = {key: value for key, value in parts.items() if value}
    if decided.phase.going:
        released = condition(facts.binding or {}, "Released")
        kept = str(released.get("message") or "") if released.get("status") == "False" else ""
        result["leaving"] = "its pods are being removed" + (f": {kept}" if kept else "")
    if decided.story:
        result["told"] = decided.story[-1].at
    result["help"] = _help(facts, view, now)
    if never := _never(facts, view):
        result["never"] = never
        result["help"] = ["a request within that, another queue, or a higher capability of this one"]
    return result


def _never(facts: Facts, view: Seen) -> str:
    """That it asks for more than a queue on its way may ever use, by the queues' objects; empty where it does not."""
    if view.gang is None or view.decision.reason is not Reason.QUOTA_EXCEEDED:
        return ""
    request = view.gang.sized(view.gang.floor()).total()
    for queue in facts.queues:
        capability = queue_objects.mapping(queue_objects.mapping(queue.get("spec")).get("capability"))
        for name, amount in sorted(request.items()):
            if name in capability and amount > quantity.floor_units(name, str(capability[name])):
                wanted = quantity.format_units(name, amount)
                most = f"queue {queue['metadata']['name']} may use {capability[name]} at most"
                return f"it asks for {wanted} {name}, and {most}"
    return ""


def _by_verdict(waiting: Json, verdict: Json, now: float) -> Json:
    """What the dispatcher knows now in place of what the binding says."""
    result = {**waiting, "reason": verdict["reason"], "message": verdict["message"]}
    for key in ("since", "blocker", "limits", "clusters", "reserved", "changes", "never", "moves"):
        if key in verdict:
            result[key] = verdict[key]
    if late := verdicts.overdue(verdict.get("reserved", {}).get("at", ""), now):
        result["reserved"] = {**verdict["reserved"], "overdueSeconds": late}
    if place := verdict.get("queue"):
        named = verdicts.named(place.get("ahead") or ())
        result |= {"position": place["position"], "of": place["waiting"], "ahead": named, "more": place.get("more", 0)}
        if "share" in place:
            result["share"] = place["share"]
    if verdict["reason"] in _NUMBERS:
        result["help"] = verdicts.changes(verdict, now) or waiting["help"]
    return result


_NUMBERS = (
    Reason.QUOTA_EXCEEDED,
    Reason.INSUFFICIENT_RESOURCES,
    Reason.NO_DOMAIN_FITS,
    Reason.NO_CLUSTER,
    Reason.QUEUE_NOT_LEAF,
    Reason.WOULD_DELAY,
)
"""Of these the verdict says best what would help."""
_NOTHING = "nothing: "
"""How a line begins that says why it goes on by itself."""


def _help(facts: Facts, view: Seen, now: float) -> list[str]:
    """What would let it run, most direct first."""
    block = view.decision.blocker
    queue = view.gang.queue if view.gang is not None else ""
    lacking = ""
    if block is not None and block.resource:
        short = quantity.ceil_units(block.resource, block.requested) - quantity.floor_units(
            block.resource, block.available
        )
        lacking = f"{quantity.format_units(block.resource, short)} more {block.resource}"
    if view.decision.phase.going:
        return ["the end of its pods: it goes back to its queue with its age once the last one has gone"]
    match view.decision.reason:
        case Reason.SUBMITTED if facts.leases is not None and not _alive(facts.leases, DISPATCHER_LEASE, now):
            return ["no atoll-dispatcher holds its lease: start it, and look at its log"]
        case Reason.SUBMITTED:
            return ["the dispatcher has not reached it yet: ask again in a moment"]
        case Reason.QUEUE_NOT_FOUND:
            return [f"create the queue: atollctl queue create {queue}", "or submit it again to a queue that exists"]
        case Reason.QUEUE_CLOSED:
            return [f"open the queue, or the one above it that is closed: atollctl queue open {queue}"]
        case Reason.QUEUE_INVALID:
            return [f"fix what condition Valid of the queue names: atollctl queue describe {queue}"]
        case Reason.QUEUE_NOT_LEAF:
            return [f"submit it again to one of the queues below it: atollctl queue describe {queue}"]
        case Reason.QUEUE_NOT_OPEN:
            return [
                f"a queue that is open to its namespace, or one of the labels that {queue} asks of namespaces:"
                f" atollctl queue describe {queue}"
            ]
        case Reason.BEHIND_HEAD:
            return [
                f"the first workload of queue {queue} that starts or leaves",
                f"another strategy: atollctl queue update {queue} --strategy backfill",
            ]
        case Reason.WOULD_DELAY:
            return [
                "a shorter estimate of its run time, if that is true",
                "the start of the workload with the reservation",
            ]
        case Reason.ASKING_MEMBERS:
            return [f"{_NOTHING}the members answer within seconds"]
        case Reason.AWAITING_VICTIMS:
            return [f"{_NOTHING}its victims are ending"]
        case Reason.NOT_READY_IN_TIME:
            until = f", at {view.decision.not_before}" if view.decision.not_before else ""
            return [
                "fix what its containers wait for (an image, a secret, an init container that ends)",
                f"the end of its pause{until}; hold and release end it now",
                f"more time: annotation {keys.READY_TIMEOUT}",
            ]
        case (
            Reason.PREEMPTED
            | Reason.RECLAIMED
            | Reason.MOVED
            | Reason.MEMBER_LOST
            | Reason.MEMBER_TAINTED
            | Reason.MEMBER_DRAINED
            | Reason.UNHEALTHY
        ):
            return [f"{_NOTHING}it is back in its queue with its age, and starts again when there is room"]
        case Reason.QUOTA_EXCEEDED if block is not None and block.kind == "Namespace":
            return [
                f"workloads of namespace {block.name} that finish and give back {lacking or 'what it needs'}",
                f"a higher ResourceQuota in namespace {block.name} on the host",
            ]
        case Reason.QUOTA_EXCEEDED if block is not None and block.kind == "ResourceQuota":
            return [
                f"workloads that count against ResourceQuota {block.name} and finish, and give back"
                f" {lacking or 'what it needs'}",
                f"a higher ResourceQuota {block.name} in the workload's namespace on the host",
            ]
        case Reason.QUOTA_EXCEEDED if block is not None and block.kind == "Cluster":
            return [
                f"workloads in {block.name} that finish and give back {lacking or 'what it needs'}",
                f"a higher ceiling of that member (atollctl cluster ceiling {block.name}), or room in another one",
            ]
        case Reason.QUOTA_EXCEEDED if block is not None and block.cluster:
            return [
                f"workloads of queue {block.name} in {block.cluster} that finish and give back {lacking}",
                f"a higher ceiling of queue {block.name} there (its spec.extendClusters), or room in another member",
            ]
        case Reason.QUOTA_EXCEEDED:
            limiting = block.name if block else queue
            return [
                f"workloads of queue {limiting} that finish and give back {lacking or 'what it needs'}",
                f"a higher limit of queue {limiting}: its spec.capability or that of a queue above it, less that is"
                " guaranteed to others, or more nodes in its members",
            ]
        case Reason.INSUFFICIENT_RESOURCES:
            where = f" in {block.kind.lower()} {block.name}" if block is not None else ""
            return [f"{lacking or 'room'}{where}", "a smaller minAvailable, or a policy that allows several clusters"]
        case Reason.NO_DOMAIN_FITS:
            return [
                f"{lacking or 'room'} in one topology domain",
                "a higher highestTierAllowed in its networkTopology, or none",
            ]
        case Reason.NO_PLACER:
            return [
                "a member in which kube-scheduler, Volcano or Kueue places (annotation atoll.sh/placer of its Cluster)",
                "pods that do not insist on that: `explain` and the warning at admission name the fields",
            ]
        case Reason.FEATURE_MISSING:
            return [
                "a member whose agent and Kubernetes have that (status.agent of its Cluster), or a workload without it"
            ]
        case Reason.AGENT_VERSION:
            return ["the same version on the host and its agents: the host is upgraded first, then `atollctl join`"]
        case Reason.NO_TOPOLOGY:
            return [
                "HyperNodes of a tier that it allows, applied in a member (kubectl get hypernodes there)",
                "a higher highestTierAllowed in its networkTopology, or none",
            ]
        case Reason.TOPOLOGY_INVALID:
            name = block.name.partition("/")[2] if block is not None else ""
            return [
                f"a HyperNode{f' {name}' if name else ''} that is right: kubectl describe hypernodes in that member"
            ]
        case Reason.NO_CLUSTER:
            return [
                "a clusterAffinity in its policy that matches a member which its queue may use (kubectl get clusters"
                f" --show-labels; atollctl queue describe {queue})",
            ]
        case Reason.CLUSTERS_NOT_READY:
            return ["a member that is ready again: kubectl get clusters, and the logs of their agents"]
        case Reason.NO_NODE_MATCHES:
            return ["nodes with the labels that its pods select, or tolerations for the taints that nodes have"]
        case Reason.MEMBER_FAILING:
            return [
                "one workload that is bound there: after a pause one is tried",
                "atollctl cluster describe of that member, which says what failed, and the log of its agent",
                "room in another member that its policy and its queue allow",
            ]
        case Reason.AVOIDED | Reason.PART_REFUSED:
            return [
                "capacity that changes in the members that did not take it, or the end of the pause that they got",
                "the log of the agents there, which says why its pods were not bound",
            ]
        case Reason.REFUSED_BY_MEMBER:
            return ["fix what the member names, there or in the workload; it is tried again by itself"]
        case Reason.OVERRIDE_FAILED:
            return ["fix the override policy that is named, or the workload; it is tried again by itself"]
        case Reason.NAMESPACE_NOT_ACCEPTED:
            return ["the member's administrator lets the namespace in, as the member says; or another namespace"]
        case Reason.DEACTIVATED:
            meta = facts.workload["metadata"]
            again = f"atollctl job retry {meta['name']} -n {meta.get('namespace') or 'default'}"
            return [f"fix what the member names, there or in the workload, and then: {again}"]
        case Reason.GANG_GROUP_INCOMPLETE:
            return [
                "room, or quota, for the one of its gang group that is named",
                "a lower minAvailable of its HyperJob",
            ]
        case Reason.RESERVING:
            return [f"{_NOTHING}the members answer within seconds"]
        case Reason.HELD | Reason.NO_PODS:
            meta = facts.workload["metadata"]
            given = meta.get("annotations") or {}
            helps = []
            if view.decision.reason is Reason.NO_PODS:
                helps.append("pods to run: more replicas in its tasks, or a higher parallelism")
            if view.decision.reason is Reason.HELD or given.get(keys.HOLD) == "true":
                verb = "resume" if keys.ABORTED in given else "release"
                helps.append(f"atollctl job {verb} {meta['name']} -n {meta.get('namespace') or 'default'}")
            return helps
        case Reason.POLICY_SUSPENDED:
            return ["lift spec.suspension of its propagation policy"]
        case Reason.INVALID_GANG:
            return [f"remove annotation {keys.GANG} from the binding: atoll-control writes it again"]
    return []


# -- where it runs ---------------------------------------------------------------------------------------------------


_COUNTS = ("pending", "active", "ready", "running", "terminating", "succeeded", "failed", "unknown")
"""Pods in the status of a Volcano Job, and of a batch Job."""


def _clusters(facts: Facts, view: Seen) -> list[Json]:
    binding = facts.binding or {}
    reports = {item["clusterName"]: item for item in (binding.get("status") or {}).get("aggregatedStatus") or ()}
    if view.decision.question is not None:
        # Nothing of it is there: these members are only asked.
        return []
    works = {keys.cluster_of(work["metadata"]["namespace"]): work for work in facts.works}
    silent = {each["metadata"]["name"]: since for each in facts.clusters if (since := _not_ready(each))}
    targets = {item["name"]: item for item in (binding.get("spec") or {}).get("clusters") or ()}
    result = []
    for name in sorted({*targets, *reports, *works}):
        entry: Json = {"cluster": name}
        if (targets.get(name) or {}).get("replicas") is not None:
            entry["replicas"] = targets[name]["replicas"]
        if name in silent:
            entry["notReadySince"] = silent[name]
        report = reports.get(name) or {}
        entry["applied"] = bool(report.get("applied")) or is_true(condition(works.get(name) or {}, "Applied"))
        if not entry["applied"]:
            why = report.get("appliedMessage") or condition(works.get(name) or {}, "Applied").get("message")
            entry["message"] = why or (
                "the Work waits for the agent of this member" if name in works else "no Work was made yet"
            )
        if report.get("health"):
            entry["health"] = report["health"]
        status = report.get("status") or {}
        counts = {key: status[key] for key in _COUNTS if status.get(key)}
        if counts:
            entry["pods"] = counts
        placement = status.get("placement") or {}
        for key in ("nodes", "domain", "tier", "waiting", "starting", "moves"):
            if placement.get(key) not in (None, "", {}) and (key != "tier" or placement.get("domain")):
                entry[key] = placement[key]
        if charged := charges.of_part(view.gang, placement):
            entry["charged"] = charged
        result.append(entry)
    return result


# -- for people ------------------------------------------------------------------------------------------------------


_MARKS = {"done": "x", "current": ">", "ahead": " "}


def text(data: Json) -> str:
    """The explanation as a person reads it."""
    workload = data["workload"]
    lines = [f"{workload['kind']} {workload['namespace']}/{workload['name']} ({workload['apiVersion']})"]
    if workload["status"]:
        lines.append(f"  status    {workload['status']}")
    if gang := data.get("gang"):
        tasks = ", ".join(f"{task['name']} x{task['replicas']}" for task in gang["tasks"])
        together = f" (at least {gang['minAvailable']} together)" if gang["pods"] > 1 else ""
        lines += [
            f"  queue     {gang['queue']}, priority {gang['priority']}",
            f"  pods      {gang['pods']}{together}: {tasks}",
        ]
        if amounts := _amounts(gang["request"]):
            lines.append(f"  request   {amounts}")
        if estimate := gang.get("runningEstimate"):
            lines.append(f"  estimate  runs for {estimate}")
        if wish := gang.get("topology"):
            lines.append(f"  topology  {_topology(wish)}")
        if apart := gang.get("apart"):
            lines.append(f"  apart     {apart['mode']}, groups in different domains of tier {apart['tier']}")
        if over := gang.get("balancedOver"):
            lines.append(f"  balanced  over domains of tier {over}")
    if (makes := data.get("makes")) is not None:
        return "\n".join([*lines, *_made_text(makes), *_unseen_text(data)])
    if indices := data.get("indices"):
        lines += ["", *arrays.lines(indices)]
    lines += ["", "Way"]
    for step in data["steps"]:
        here = "   <- here" if step["state"] == "current" else ""
        lines.append(f"  [{_MARKS[step['state']]}] {step['step']:<15} {step.get('at', '')}{here}".rstrip())
    if why := data.get("why"):
        lines += ["", f"No binding: {why['message']} ({why['reason']})", *_helps(why["help"])]
    if waiting := data.get("waiting"):
        lines += ["", *_waiting_text(waiting, data.get("queue"))]
    if queue := data.get("queue"):
        lines += ["", *_queue_text(queue)]
    for cluster in data.get("clusters") or ():
        lines += ["", *_cluster_text(cluster)]
    lines += _unseen_text(data)
    if away := data.get("away"):
        lines += ["", f"NOTE  {away}"]
    if story := data.get("story"):
        lines += ["", "Story"]
        for line in story:
            lines.append(f"  {line['at']}  {line['phase']:<10} {line['reason']:<22} {line['text']}".rstrip())
    return "\n".join(lines)


def _unseen_text(data: Json) -> list[str]:
    return ["", *(f"  not shown  {each}" for each in data["unseen"])] if "unseen" in data else []


def _made_text(makes: Json) -> list[str]:
    workloads = makes["workloads"]
    lines = [f"  schedule  {makes['schedule']}"] if "schedule" in makes else []
    lines += [f"  STOPPED   {makes['stopped']}"] if "stopped" in makes else []
    lines += ["", f"Made so far: {counted(len(workloads), 'workload')}"]
    for each in workloads:
        where = f" in {each['clusters']}" if "clusters" in each else ""
        lines.append(f"  {each['name']}: {each.get('status') or 'waits'}{where}")
        if "reason" in each:
            lines.append(f"    reason  {each['reason']}")
    if workloads:
        lines += ["", "Each of them has an explanation of its own: atollctl explain KIND/NAME"]
    return lines


def _topology(wish: Json) -> str:
    if wish["highestTier"] is not None:
        return f"{wish['mode']}, within tier {wish['highestTier']}"
    # As in Volcano, a hard mode without a tier constrains nothing.
    return "soft: the nearer the better" if wish["mode"] == "soft" else f"{wish['mode']}, no tier named: anywhere"


def _waiting_text(waiting: Json, queue: Json | None) -> list[str]:
    head = "Waits" + (f" for {duration(waiting['seconds'])}" if "seconds" in waiting else "")
    if "submitted" in waiting:
        head += f", since it came back to its queue (submitted {waiting['submitted']})"
    lines = [head]
    if "position" in waiting:
        name = f" in queue {queue['name']}" if queue else ""
        lines.append(f"  position  {waiting['position']} of {waiting['of']}{name}")
        if waiting["ahead"] or waiting.get("more"):
            others = counted(waiting["more"], "other") if waiting.get("more") else ""
            lines.append(f"  ahead     {', then '.join(filter(None, (others, ', '.join(waiting['ahead']))))}")
    if "share" in waiting:
        lines.append(f"  order     {verdicts.share(waiting['share'])}")
    since = f" (since {waiting['since']})" if waiting.get("since") else ""
    lines.append(f"  reason    {waiting['reason']}: {waiting['message']}{since}")
    if "leaving" in waiting:
        lines.append(f"  leaves    {waiting['leaving']}")
    lines += verdicts.details(waiting)
    if "hint" in waiting:
        told = f"; its numbers are of {waiting['told']}" if "told" in waiting else ""
        lines.append(f"  hint      only what the binding says: {waiting['hint']}{told}")
    return [*lines, *_helps(waiting["help"])]


def _helps(lines: list[str]) -> list[str]:
    return [f"  to do     {line}" if line.startswith(_NOTHING) else f"  would help: {line}" for line in lines]


def _queue_text(queue: Json) -> list[str]:
    if not queue["exists"]:
        return [f"Queue {queue['name']} does not exist"]
    counts = f"{queue['running']} running, {queue['pending']} waiting"
    lines = [f"Queue {queue['name']}: {queue['effectiveState']}, {counts}"]
    if "problem" in queue:
        lines.append(f"  INVALID   {queue['problem']}")
    figures = ((line["resource"], line["used"], line.get("limit", "unlimited")) for line in queue["resources"])
    return [*lines, *(f"  {name:<20} {used} of {limit}" for name, used, limit in figures)]


def _cluster_text(cluster: Json) -> list[str]:
    share = f", {counted(cluster['replicas'], 'replica')}" if "replicas" in cluster else ""
    lines = [f"Cluster {cluster['cluster']}{share}: work {'applied' if cluster['applied'] else 'not applied'}"]
    if "notReadySince" in cluster:
        lines.append(f"  NOT READY {cluster['cluster']} since {cluster['notReadySince']}: figures are of then")
    if "message" in cluster:
        lines.append(f"  why       {cluster['message']}")
    if "pods" in cluster:
        lines.append(f"  pods      {', '.join(f'{count} {key}' for key, count in cluster['pods'].items())}")
    if "nodes" in cluster:
        lines.append(f"  nodes     {', '.join(f'{name} x{count}' for name, count in sorted(cluster['nodes'].items()))}")
    if "domain" in cluster:
        lines.append(f"  domain    {cluster['domain']}" + (f" (tier {cluster['tier']})" if "tier" in cluster else ""))
    lines += [f"  charged   {line}" for line in charges.sentences(cluster.get("charged") or {})]
    if "waiting" in cluster:
        lines.append(f"  waits     {cluster['waiting']}")
    if "starting" in cluster:
        lines.append(f"  starts    not yet: {cluster['starting']}")
    if "moves" in cluster:
        lines.append(f"  moves     {cluster['moves']}")
    return lines


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in amounts.items() if name != "pods")
