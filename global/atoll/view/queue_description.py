"""`atollctl queue describe`: limits of a queue, its use, its running workloads, and why the rest waits.

A pure function from objects to data, which is what `-o json` prints, and one from data to text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.quota.tree import Tree
from atoll.model import keys, quantity, selectors, vector
from atoll.model.ages import duration
from atoll.model.cards import ANY
from atoll.model.timestamps import to_seconds
from atoll.model.verdict import Verdict
from atoll.view import fair_shares, queue_objects, queue_tree
from atoll.view.bindings import Memory, QueueUse, charges, use_by_queue, views, waiting_line
from atoll.view.seen import waits_since
from atoll.view.tables import table

Json = dict[str, Any]

_SHOWN_AS = {
    "runningEstimate": (keys.RUNNING_ESTIMATE, "estimate"),
    "slaWaitingTime": (keys.SLA_WAITING_TIME, "sla"),
    "protectedFor": (keys.PROTECTED_FOR, "protected"),
    "reclaimUnpreemptable": (keys.RECLAIM_UNPREEMPTABLE, "reclaim firm"),
    "readyTimeout": (keys.READY_TIMEOUT, "ready within"),
    "evictTimeout": (keys.EVICT_TIMEOUT, "gone within"),
    "nodeScoring": (keys.NODE_SCORING, "nodes by"),
    "defaultPolicy": (keys.DEFAULT_POLICY, "policy"),
    "order": (keys.ORDER, "order"),
    "fairHalfLife": (keys.FAIR_HALF_LIFE, "half-life"),
}
"""Field of the data -> annotation, and the word for it in the text."""
_BAR = 24
_SHOWN = 20
"""Workloads that the text names of each sort; the data has all of them."""


@dataclass(frozen=True, slots=True)
class Federation:
    """Objects of the host, read once for all queues."""

    queues: dict[str, Json]
    by_queue: Mapping[str, Sequence[BindingView]]
    """Workloads that have not ended."""
    deleted: frozenset[str]
    """UIDs of bindings that are being deleted."""
    tree: Tree
    use: dict[str, QueueUse]
    clusters: Sequence[Json] | None
    namespaces: Sequence[Json]
    partial: bool
    unseen: Sequence[str]


def read(
    queues: Sequence[Json],
    bindings: Sequence[Json],
    *,
    clusters: Sequence[Json] | None = (),
    capacities: Sequence[Json] = (),
    namespaces: Sequence[Json] = (),
    partial: bool = False,
    unseen: Sequence[str] = (),
    memory: Memory | None = None,
) -> Federation:
    """The federation as `describe` and `waiting` need it.

    Args:
        queues: all of them.
        bindings: all of the federation.
        clusters: all of them; None where this user may not list them.
        capacities: all ClusterCapacity objects.
        namespaces: all Namespaces, for their weights.
        partial: these bindings are not all; contents of queues are from their status.
        unseen: parts that this user may not see, in words.
        memory: of an earlier call.
    """
    everyone = views(bindings, queue_tree.flavors_of(queues), memory)
    by_queue: dict[str, list[BindingView]] = {}
    for view in everyone:
        if view.gang is not None and not view.finished:
            by_queue.setdefault(view.gang.queue, []).append(view)
    if partial:
        use = queue_tree.said_use(queues)
        tree = queue_tree.build(queues, (), clusters or (), capacities, use=use)
    else:
        use = use_by_queue(everyone)
        tree = queue_tree.build(queues, everyone, clusters or (), capacities)
    return Federation(
        {queue["metadata"]["name"]: queue for queue in queues},
        by_queue,
        frozenset(each["metadata"].get("uid") for each in bindings if each["metadata"].get("deletionTimestamp")),
        tree,
        use,
        clusters,
        namespaces,
        partial,
        unseen,
    )


def describe(queue: Json, federation: Federation, now: float) -> Json:
    """Everything that is known about a queue, as plain data.

    Args:
        queue: the Queue.
        federation: all queues, this one among them, and the objects around them.
        now: seconds since the epoch.
    """
    meta, spec = queue["metadata"], queue_objects.mapping(queue.get("spec"))
    name, clusters = meta["name"], federation.clusters
    mine = federation.by_queue.get(name, ())
    data: Json = {
        "name": name,
        "state": queue_objects.own_state(queue),
        "effectiveState": queue_tree.states([*federation.queues.values()])[name],
        "weight": spec.get("weight", 1),
        "priority": spec.get("priority") or 0,
    }
    if name != keys.ROOT_QUEUE:
        data["parent"] = spec.get("parent") or keys.ROOT_QUEUE
    if spec.get("dequeueStrategy"):
        data["dequeueStrategy"] = spec["dequeueStrategy"]
    annotations = meta.get("annotations") or {}
    if text := annotations.get(keys.NAMESPACE_SELECTOR):
        data["namespaces"] = _selector(text)
    data |= {key: annotations[name] for key, (name, _) in _SHOWN_AS.items() if annotations.get(name)}
    node = federation.tree.queues[name]
    if node.problem:
        data["problem"] = node.problem
    if node.serving is not None and clusters is not None:
        data["members"] = sorted(node.serving)
    if clusters is not None and (missing := queue_tree.missing_members(node, clusters)):
        data["missingMembers"] = missing
    if clusters is not None and (unserved := queue_tree.unserved(node)):
        data["unserved"] = unserved
    if node.children:
        data["children"] = sorted(node.children)
        data["leaves"] = queue_tree.leaves(node)
        data["tree"] = queue_tree.branch(node, federation.use)
    data["resources"] = queue_tree.resources(node)
    if shares := _shares(federation, name):
        data["shares"] = list(shares.values())
    data["running"] = [
        {**workload(view, now), **({"removing": True} if view.uid in federation.deleted else {})}
        for view in sorted(mine, key=lambda view: (view.namespace, view.name))
        if view.decision.phase.charged
    ]
    data["pending"] = [pending(place, view, now) for place, view in waiting(federation, name)]
    # The status of a divided queue counts the workloads below it, which are not in its own lists.
    if federation.partial and not node.children:
        held = queue_objects.counts(queue)
        data["held"] = {"pending": held["pending"], "running": held["inqueue"] + held["running"]}
    if federation.unseen:
        data["unseen"] = list(federation.unseen)
    return data


def _shares(federation: Federation, name: str) -> dict[str, Json]:
    if federation.partial:
        return {}
    node = federation.tree.queue(name)
    return fair_shares.of_queue(node, federation.by_queue.get(name, ()), federation.namespaces)


def waiting(federation: Federation, name: str) -> Iterator[tuple[int | None, BindingView]]:
    """Waiting workloads of a queue, the next one first, with their positions as far as this user may know them."""
    line = waiting_line(federation.by_queue.get(name, ()), name)
    ordered = fair_shares.in_order(federation.tree.queue(name), line, _shares(federation, name))
    for place, view in enumerate(ordered, start=1):
        yield (None if federation.partial else place), view


def pending(place: int | None, view: BindingView, now: float) -> Json:
    """A waiting workload as data.

    Args:
        place: its position in its queue; None where it is not known.
        view: its binding.
        now: seconds since the epoch.
    """
    return {
        **({} if place is None else {"position": place}),
        **workload(view, now),
        "reason": view.decision.reason.value,
        "message": Verdict(view.decision.reason, view.decision.blocker).sentence(),
    }


def workload(view: BindingView, now: float) -> Json:
    """A workload that has not ended, as data.

    Args:
        view: its binding, of a readable gang.
        now: seconds since the epoch.
    """
    gang = view.gang
    assert gang is not None
    charged = view.decision.phase.charged
    since = gang.submitted or view.created if charged else waits_since(view)
    asked, pods = gang.total(), gang.replicas
    if charged and view.parts:
        asked = vector.total(charges(view).values())
        pods = sum(sum(counts) for _, counts in view.parts)
    request = {name: quantity.format_units(name, amount) for name, amount in sorted(asked.items())}
    result: Json = {
        "namespace": view.namespace,
        "binding": view.name,
        "priority": gang.priority,
        "pods": pods,
        "request": {name: amount for name, amount in request.items() if name not in ("pods", ANY)},
        "seconds": max(0, int(now - to_seconds(since))),
    }
    if charged:
        result["phase"] = view.decision.phase.value
        result["clusters"] = [cluster for cluster, _ in view.parts]
    return result


def _selector(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


# -- for people ------------------------------------------------------------------------------------------------------


def text(data: Json) -> str:
    """The description as a person reads it."""
    head = f"Queue {data['name']}: {data['effectiveState']}, weight {data['weight']}, priority {data['priority']}"
    lines = [f"{head}, below {data['parent']}" if "parent" in data else head]
    if "problem" in data:
        lines.append(f"  INVALID     {data['problem']}")
    if "dequeueStrategy" in data:
        lines.append(f"  strategy    {data['dequeueStrategy']}")
    if "children" in data:
        there = "there" if data["leaves"] == data["children"] else f"to {', '.join(data['leaves'])}"
        lines.append(f"  divided into {', '.join(data['children'])}: workloads go {there}")
    lines.append(f"  namespaces  {_namespaces(data.get('namespaces'))}")
    lines += [f"  {word:<11} {data[key]}" for key, (_, word) in _SHOWN_AS.items() if key in data]
    if "members" in data:
        lines.append(f"  members     {', '.join(data['members']) or 'none'}")
    if "missingMembers" in data:
        names = ", ".join(data["missingMembers"])
        lines.append(f"  MISSING     {names}: spec.extendClusters names it, and there is no such member (yet)")
    if "unserved" in data:
        lines.append(f"  NO MEMBER   {data['unserved']}")
    lines += ["", "Resources"]
    empty = "nothing is used, and nothing can be" if "unserved" in data else "nothing is used, nothing is limited"
    lines += [_bar(line) for line in data["resources"]] or [f"  {empty}"]
    if "shares" in data:
        lines += ["", *fair_shares.text(data)]
    if "tree" in data:
        lines += ["", "Below it", *(line for each in data["tree"]["children"] for line in _branch(each, 1))]
    lines += ["", f"Running: {_counted(data, 'running')}"]
    lines += _table(
        ("NAMESPACE", "BINDING", "CLUSTERS", "PODS", "REQUEST", "AGE"),
        [
            [
                each["namespace"],
                # Another one of that name may wait until it is gone, and is charged for nothing.
                f"{each['binding']} (deleted)" if each.get("removing") else each["binding"],
                ",".join(each["clusters"]),
                each["pods"],
                _amounts(each),
                _age(each),
            ]
            for each in data["running"]
        ],
    )
    lines += ["", f"Pending: {_counted(data, 'pending')}"]
    lines += _table(
        ("#", "NAMESPACE", "BINDING", "PRIORITY", "REQUEST", "WAITS", "WHY"),
        [
            [
                each.get("position", "?"),
                each["namespace"],
                each["binding"],
                each["priority"],
                _amounts(each),
                _age(each),
                each["message"],
            ]
            for each in data["pending"]
        ],
    )
    if "unseen" in data:
        lines += ["", *(f"  not shown  {each}" for each in data["unseen"])]
    return "\n".join(lines)


def _counted(data: Json, sort: str) -> str:
    """Number of them, with a note where not all are shown."""
    shown = len(data[sort])
    # Counts are written once a second.
    whole = max(shown, data.get("held", {}).get(sort, 0))
    return str(shown) if whole == shown else f"{whole}, of which you see {shown}"


def _namespaces(selector: Any) -> str:
    if selector is None:
        return "all"
    if not isinstance(selector, dict):
        return f"none, as the selector can't be read: {selector}"
    return selectors.text(selector) or "all"


def _branch(data: Json, depth: int) -> list[str]:
    indent = "  " * depth
    counts = f"{data['running']} running, {data['pending']} waiting"
    lines = [f"{indent}{data['name']}: {counts}{', INVALID: ' + data['problem'] if 'problem' in data else ''}"]
    lines += [indent + _bar(line) for line in data["resources"]]
    return [*lines, *(line for each in data.get("children", ()) for line in _branch(each, depth + 1))]


def _bar(line: Json) -> str:
    limits = [f"{word} {line[key]}" for key, word in (("deserved", "deserves"), ("guarantee", "keeps")) if key in line]
    if "borrowed" in line:
        lenders = f" from {', '.join(line['lenders'])}" if line.get("lenders") else ""
        limits.append(f"borrows {line['borrowed']}{lenders}")
    rest = f"  ({', '.join(limits)})" if limits else ""
    if "share" not in line:
        return f"  {line['resource']:<20} {' ' * (_BAR + 2)} {line['used']} of unlimited{rest}"
    filled = min(_BAR, round(line["share"] * _BAR))
    bar = "#" * filled + "." * (_BAR - filled)
    return f"  {line['resource']:<20} [{bar}] {line['used']} of {line['limit']} ({line['share']:.0%}){rest}"


def _amounts(workload: Json) -> str:
    return ",".join(f"{name}={amount}" for name, amount in workload["request"].items())


def _age(workload: Json) -> str:
    return duration(workload["seconds"])


def _table(headers: tuple[str, ...], rows: list[list[object]]) -> list[str]:
    if not rows:
        return []
    lines = [f"  {line}" for line in table(headers, rows[:_SHOWN]).splitlines()]
    more = len(rows) - _SHOWN
    return [*lines, f"  and {more} more (-o json names all)"] if more > 0 else lines
