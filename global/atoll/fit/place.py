"""Place a gang on nodes: whole or not at all, as near together as there is room, in the tightest gap that holds it.

1. All replicas before the bare minimum: a domain for the whole workload is worth more than a tighter one for its floor.
2. Tier by tier from the nearest; in a tier the domain with the least room that is enough, so that large empty ones
stay whole.
3. Inside a domain the same rule downwards: the smallest part that holds what is left, else the largest part and go
on, which uses few parts.

A gang of several tasks is tried task by task, the greediest first, on what the earlier ones left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from atoll.fit.nodes import Ints, Nodes
from atoll.model import quantity
from atoll.model.gang import Gang, Task
from atoll.model.topology import NO_DOMAIN
from atoll.model.verdict import Reason

ALL = NO_DOMAIN
"""The "domain" that is every node."""


@dataclass(slots=True)
class Placement:
    """Where the pods of a gang go."""

    pods: list[tuple[int, int, int]] = field(default_factory=list)
    """(task index, node index, how many)."""
    counts: list[int] = field(default_factory=list)
    """Pods placed per task."""
    domain: int | None = None
    """The smallest domain that holds all of them; None when no domain does."""
    tier: int | None = None
    """Its tier."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a gang does not fit, by its nearest miss."""

    reason: Reason
    requested: int
    """Pods wanted at least."""
    available: int
    """Pods that the best domain holds."""
    domain: str = ""
    """The best domain; empty where tiers do not matter."""
    resource: str = ""
    """What is short; empty where it is not one resource."""
    needed: int = 0
    """Units of it that the pods still miss."""

    def sentence(self) -> str:
        """The miss for a person."""
        if self.reason is Reason.NO_NODE_MATCHES:
            return "no node accepts the selectors and tolerations of its pods"
        where = f"domain {self.domain} holds" if self.domain else "there is room for"
        text = f"{where} {self.available} of the {self.requested} pods that must start together"
        if self.resource:
            text += f"; {self.resource} is short by {quantity.format_units(self.resource, self.needed)}"
        return text


def place(nodes: Nodes, gang: Gang, *, within: int | None = None) -> Placement | Miss:
    """Find room for a gang.

    Args:
        nodes: not changed.
        gang: its tasks, minimum and topology wish.
        within: index of the domain to stay inside, for a gang that partly runs.

    Returns:
        A placement of all replicas where they fit, of at least the floor otherwise; or the nearest miss.
    """
    floor, full = gang.floor(), [task.replicas for task in gang.tasks]
    room = [np.where(nodes.accepting(task), nodes.room(task.requests), 0) for task in gang.tasks]
    if within is not None:
        inside = _members(nodes, within)
        room = [np.where(inside, each, 0) for each in room]
    domains = _candidates(nodes, gang)
    for want in (full, floor) if full != floor else (full,):
        for tier_domains in domains:
            for domain in _by_tightness(nodes, tier_domains, room, want):
                placement = _try(nodes, gang, room, want, full, domain)
                if placement is not None:
                    return placement
    return _nearest_miss(nodes, gang, room, floor, domains)


def fill(nodes: Nodes, gang: Gang) -> Placement:
    """As many pods of a gang as there is room for, wherever it is: what it would take at most."""
    full = [task.replicas for task in gang.tasks]
    room = [np.where(nodes.accepting(task), nodes.room(task.requests), 0) for task in gang.tasks]
    placement = _try(nodes, gang, room, [0] * len(full), full, ALL)
    assert placement is not None, "nothing is wanted at least, so something is always placed"
    return placement


def _candidates(nodes: Nodes, gang: Gang) -> list[list[int]]:
    """Domains to try, tier by tier from the nearest; [[ALL]] last where the gang may be anywhere."""
    wish = gang.network_topology
    allowed = None
    if wish is not None and wish.hard:
        allowed = wish.highest_tier_allowed
        if allowed is None:
            allowed = nodes.tree.tier_named(wish.highest_tier_name or "")
            allowed = -1 if allowed is None else allowed
    tiers: dict[int, list[int]] = {}
    for index, domain in enumerate(nodes.tree.domains):
        if allowed is None or domain.tier <= allowed:
            tiers.setdefault(domain.tier, []).append(index)
    result = [tiers[tier] for tier in sorted(tiers)]
    return result if allowed is not None else [*result, [ALL]]


def _members(nodes: Nodes, domain: int) -> NDArray[np.bool_]:
    if domain == ALL:
        return np.ones(len(nodes), np.bool_)
    level = nodes.tree.tiers.index(nodes.tree.domains[domain].tier)
    inside: NDArray[np.bool_] = nodes.domain[level] == domain
    return inside


def _sums(nodes: Nodes, domains: Sequence[int], room: Ints) -> list[int]:
    """Pods that each domain holds, all domains being of one tier (or ALL)."""
    if domains[0] == ALL:
        return [int(room.sum())]
    level = nodes.tree.tiers.index(nodes.tree.domains[domains[0]].tier)
    per_domain = np.zeros(len(nodes.tree.domains) + 1, np.int64)
    np.add.at(per_domain, nodes.domain[level], room)
    return [int(per_domain[domain]) for domain in domains]


def _by_tightness(nodes: Nodes, domains: Sequence[int], room: Sequence[Ints], want: Sequence[int]) -> list[int]:
    """The domains that may hold the wanted pods (each task by itself does), the tightest first.

    Of equally tight ones first that with less room above it, so that what is broken up already is used up first; then
    by name.
    """
    sums = [_sums(nodes, domains, each) for each in room]
    fitting = [i for i in range(len(domains)) if all(sums[t][i] >= want[t] for t in range(len(want)))]
    if len(fitting) > 1:
        tree = nodes.tree
        held = np.zeros(len(tree.domains) + 1, np.int64)
        for level in range(len(tree.tiers)):
            np.add.at(held, nodes.domain[level], np.sum(room, axis=0))
        fitting.sort(
            key=lambda i: ([int(held[each]) for each in tree.ancestors(domains[i])], tree.domains[domains[i]].name)
        )
    return [domains[i] for i in fitting]


def _try(
    nodes: Nodes, gang: Gang, room: Sequence[Ints], want: Sequence[int], full: Sequence[int], domain: int
) -> Placement | None:
    """Place `want` inside the domain, then as many more as there is room for there."""
    inside = _members(nodes, domain)
    free = nodes
    placement = Placement(counts=[0] * len(gang.tasks))
    order = _greediest_first(nodes, gang.tasks, want)
    single = len(order) == 1
    if not single:
        free = nodes.copy()
    for target in (want, full) if want is not full else (want,):
        for index in order:
            missing = target[index] - placement.counts[index]
            if missing <= 0:
                continue
            if single and target is want:
                here = np.where(inside, room[index], 0)
            else:
                if free is nodes:
                    free = nodes.copy()
                    free.take([task.requests for task in gang.tasks], placement)
                here = np.where(inside & (room[index] > 0), free.room(gang.tasks[index].requests), 0)
            held = int(here.sum())
            if held < missing and target is want:
                return None
            chosen = _fill(nodes, here, min(missing, held), domain)
            placement.pods.extend((index, node, count) for node, count in chosen)
            placement.counts[index] += sum(count for _, count in chosen)
            if free is not nodes:
                column = free.column(gang.tasks[index].requests)
                for node, count in chosen:
                    free.free[:, node] -= column * count
    placement.domain, placement.tier = covering(nodes, {node for _, node, _ in placement.pods})
    return placement


def _greediest_first(nodes: Nodes, tasks: Sequence[Task], want: Sequence[int]) -> list[int]:
    """Task order by the largest part of the average node that one pod takes; then as written."""
    if len(tasks) == 1:
        return [0]
    mean = np.maximum(nodes.free.sum(axis=1), 1)
    weight = [float((nodes.column(task.requests) / mean).max(initial=0.0)) for task in tasks]
    return sorted(range(len(tasks)), key=lambda i: (-weight[i], i))


def _fill(nodes: Nodes, room: Ints, count: int, domain: int) -> list[tuple[int, int]]:
    """(node, pods) for `count` pods in the domain, by rule 3; `room` is zero outside and holds enough."""
    if count <= 0:
        return []
    chosen: list[tuple[int, int]] = []
    rest = room
    level = len(nodes.tree.tiers) if domain == ALL else nodes.tree.tiers.index(nodes.tree.domains[domain].tier)
    while level > 0:
        level -= 1
        parts = nodes.domain[level]
        while True:
            sums = np.zeros(len(nodes.tree.domains) + 1, np.int64)
            np.add.at(sums, parts, rest)
            sums[NO_DOMAIN] = 0
            enough = np.flatnonzero(sums >= count)
            if enough.size:
                part = int(enough[np.argmin(sums[enough])])
                rest = np.where(parts == part, rest, 0)
                break
            part = int(sums.argmax())
            if sums[part] == 0:
                break
            inside = parts == part
            chosen.extend((int(each), int(rest[each])) for each in np.flatnonzero(inside & (rest > 0)))
            count -= int(sums[part])
            rest = np.where(inside, 0, rest)
    order = np.argsort(-rest, kind="stable")
    while count > 0:
        enough = np.flatnonzero(rest >= count)
        if enough.size:
            chosen.append((int(enough[np.argmin(rest[enough])]), count))
            break
        node = int(order[0])
        order = order[1:]
        chosen.append((node, int(rest[node])))
        count -= int(rest[node])
        if not order.size:
            break
        rest = rest.copy()
        rest[node] = 0
    return chosen


def covering(nodes: Nodes, chosen: set[int]) -> tuple[int | None, int | None]:
    """The smallest domain that holds all of these nodes, and its tier; (None, None) when none does."""
    columns = nodes.domain[:, sorted(chosen)]
    for level, tier in enumerate(nodes.tree.tiers):
        row = columns[level]
        if row.size and row[0] != NO_DOMAIN and (row == row[0]).all():
            return int(row[0]), tier
    return None, None


def _nearest_miss(
    nodes: Nodes, gang: Gang, room: Sequence[Ints], floor: Sequence[int], domains: Sequence[Sequence[int]]
) -> Miss:
    wanted = sum(floor)
    if any(want and not nodes.accepting(task).any() for task, want in zip(gang.tasks, floor, strict=True)):
        return Miss(Reason.NO_NODE_MATCHES, wanted, 0)
    hard = gang.network_topology is not None and gang.network_topology.hard
    best, best_name, held = ALL, "", -1
    for tier_domains in domains:
        sums = [_sums(nodes, tier_domains, each) for each in room]
        for i, domain in enumerate(tier_domains):
            total = sum(min(s[i], want) for s, want in zip(sums, floor, strict=True))
            if total > held:
                best, held = domain, total
                best_name = nodes.tree.domains[domain].name if domain != ALL else ""
    reason = Reason.NO_DOMAIN_FITS if hard else Reason.INSUFFICIENT_RESOURCES
    if held < 0:
        return Miss(reason, wanted, 0)
    if held >= wanted:
        # Each task fits by itself, together they do not.
        held = max(0, wanted - 1)
    resource, needed = _shortest(nodes, gang, floor, best)
    return Miss(reason, wanted, held, best_name if hard else "", resource, needed)


def _shortest(nodes: Nodes, gang: Gang, floor: Sequence[int], domain: int) -> tuple[str, int]:
    """The resource that is short in total by the largest part of the wish; empty when only its spread over nodes is."""
    inside = _members(nodes, domain)
    worst, result = 0.0, ("", 0)
    wish: dict[str, int] = {}
    for task, want in zip(gang.tasks, floor, strict=True):
        for name, amount in task.requests.items():
            wish[name] = wish.get(name, 0) + amount * want
    for name, amount in sorted(wish.items()):
        row = nodes.resources.index(name) if name in nodes.resources else None
        free = int(nodes.free[row][inside].clip(min=0).sum()) if row is not None else 0
        if amount > free and (amount - free) / amount > worst:
            worst, result = (amount - free) / amount, (name, amount - free)
    return result
