"""Capacity of each node that online pods leave over, and whether it is published, held or withdrawn. Pure.

An unknown figure is never idle and never 0: a node without figures keeps the amounts of pods that run, so that nothing
new comes and its kubelet refuses nothing that runs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from atoll.agent.colocation.rules import Colocation
from atoll.agent.descheduler.world import Figures, Subject, World
from atoll.agent.objects import Node
from atoll.model import keys, placer, quantity, selectors
from atoll.model.colocation import BATCH, BATCH_MEMORY, charged
from atoll.model.vector import Vector, total

_PUBLISHES: Final = "volcano.sh/oversubscription"
"""Label of a node on which Volcano's agent publishes; it writes annotations that begin with it."""
CONDITIONS: Final = ("MemoryPressure", "DiskPressure")
"""Of nodes, by which kubelets say that they evict."""
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """Use of one node in one look: thousandths of cores and bytes, by `cpu` and `memory`."""

    at: float
    online: Mapping[str, float]
    """Of all but pods on reclaimed capacity: of online pods, of the system, of pods that are not measured yet."""
    use: Mapping[str, float]


@dataclass
class Memory:
    """What of earlier looks the next one needs."""

    #: node -> samples of the window, the oldest first
    samples: defaultdict[str, deque[Sample]] = field(default_factory=lambda: defaultdict(deque))
    #: (node, resource) -> looks in a row above the bound
    above: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: (node, resource) under pressure
    pressed: set[tuple[str, str]] = field(default_factory=set)
    #: node -> until when it gives no other pod
    gave: dict[str, float] = field(default_factory=dict)
    #: UID of a pod that leaves -> until when nothing may take its place
    leaving: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Share:
    """Reclaimed capacity of one node, by batch resource."""

    node: Node
    allocatable: Vector
    """`cpu` and `memory`."""
    placed: Vector
    """Requests of pods on it."""
    published: Vector | None
    """As its status has it; None for nothing, or nothing of ours."""
    reclaimable: Vector | None
    """By the formula; None where it is unknown."""
    wanted: Vector | None
    """For its status; empty to remove it, None to leave it."""
    publisher: str = ""
    """The other agent that publishes here."""
    held: str = ""
    """Why no new offline work comes; empty where it may."""


def measure(name: str, pods: Sequence[Subject], figures: Figures, now: float) -> Sample | None:
    """Use of a node; None where it is unknown. Use of offline pods that is not known counts as online."""
    use = figures.nodes.get(name, {})
    if not use.keys() >= BATCH.keys():
        return None
    online = dict.fromkeys(BATCH, 0.0)
    for key in BATCH:
        known = {each.metadata.key: figures.pods.get(each.metadata.key, {}).get(key) for each in pods}
        # Kernels take CPU beyond a request back at once; memory beyond it is gone for all others.
        offline = sum(
            min(
                known[each.metadata.key] or 0.0, each.pod.requests.get(BATCH_MEMORY, 0) if key == "memory" else math.inf
            )
            for each in pods
            if charged(each.pod.requests)
        )
        unseen = sum(each.pod.requests.get(key, 0) for each in pods if known[each.metadata.key] is None)
        online[key] = max(0.0, use[key] - offline) + unseen
    return Sample(now, online, {key: use[key] for key in BATCH})


def reclaimable(allocatable: Mapping[str, int], samples: Sequence[Sample], rules: Colocation) -> Vector:
    """Allocatable x (1 - reserve) - max(percentile of online use over the window, online use now); at least 0."""
    found: Vector = {}
    for key, reserve in (("cpu", rules.reserve_cpu), ("memory", rules.reserve_memory)):
        ranked = sorted(each.online[key] for each in samples)
        peak = max(ranked[max(0, math.ceil(rules.percentile * len(ranked)) - 1)], samples[-1].online[key])
        found[BATCH[key]] = max(0, int(allocatable.get(key, 0) * (1 - reserve) - peak))
    found[BATCH_MEMORY] -= found[BATCH_MEMORY] % _MIB
    return found


def publication(node: Node, koordinated: bool) -> tuple[Vector | None, str]:
    """(amounts that we published on a node, the other agent that publishes there).

    Amounts and the annotation that repeats them are written at once: where they differ, another wrote last.

    Args:
        node: as its API server has it.
        koordinated: whether Koordinator has a NodeMetric of it.
    """
    annotations = node.metadata.annotations
    if koordinated:
        return None, "koordlet (NodeMetric)"
    if node.metadata.labels.get(_PUBLISHES) == "true" or any(each.startswith(f"{_PUBLISHES}-") for each in annotations):
        return None, "Volcano's agent (volcano.sh/oversubscription)"
    offers = quantity.capacity({k: v for k, v in node.status.allocatable.items() if k in BATCH.values()})
    if not offers:
        return None, ""
    try:
        ours = orjson.loads(annotations.get(keys.RECLAIMED, "null")) == offers
    except ValueError:
        ours = False
    return (offers, "") if ours else (None, f"another: its amounts are not those of {keys.RECLAIMED}")


def _amounts(node: Node) -> Vector:
    return quantity.capacity({k: v for k, v in node.status.allocatable.items() if k in BATCH})


def _press(node: Node, sample: Sample, memory: Memory, rules: Colocation) -> None:
    """Pressure begins after looks in a row above a bound, and ends below the bound by the margin."""
    allocatable = _amounts(node)
    # Kernels take CPU back from offline pods at once, and memory never: all of it counts.
    for key, used, bound in (("cpu", sample.online, rules.cpu), ("memory", sample.use, rules.memory)):
        about, amount = (node.metadata.name, key), allocatable.get(key, 0)
        memory.above[about] = memory.above[about] + 1 if used[key] > bound * amount else 0
        if memory.above[about] >= rules.looks:
            memory.pressed.add(about)
        elif used[key] < (bound - rules.margin) * amount:
            memory.pressed.discard(about)


def pressure(node: Node, memory: Memory) -> str:
    """What a node is short of; empty for nothing."""
    found = [f"{key} is above its bound" for key in BATCH if (node.metadata.name, key) in memory.pressed]
    true = {each.type for each in node.status.conditions if each.status == "True"}
    found += [f"its kubelet has condition {each}" for each in CONDITIONS if each in true]
    return ", ".join(found)


def shares(
    world: World,
    figures: Figures,
    koordinated: frozenset[str],
    memory: Memory,
    rules: Colocation,
    *,
    stale: float,
    now: float,
) -> list[Share]:
    """Reclaimed capacity of all nodes; samples of `memory` follow.

    Args:
        world: the cluster.
        figures: of this look; with a problem where it has none.
        koordinated: names of nodes with a NodeMetric.
        memory: of earlier looks.
        rules: settings.
        stale: seconds after which a figure says nothing.
        now: seconds of a clock that never goes back, the one of `figures`.
    """
    on: defaultdict[str, list[Subject]] = defaultdict(list)
    for each in world.subjects:
        if each.pod.node and not each.pod.finished:
            on[each.pod.node].append(each)
    selector = placer.parse_selector(rules.nodes) if rules.nodes else None
    found = []
    for node in world.nodes:
        name = node.metadata.name
        samples = memory.samples[name]
        if not figures.problem and (sample := measure(name, on[name], figures, now)) is not None:
            samples.append(sample)
        while samples and now - samples[0].at > max(rules.window, stale):
            samples.popleft()
        if samples and samples[-1].at == now:
            _press(node, samples[-1], memory, rules)
        chosen = selector is None or selectors.label_selector_matches(selector, node.metadata.labels)
        found.append(_share(node, on[name], samples, memory, rules, chosen, name in koordinated, stale, now))
    for name in memory.samples.keys() - {each.node.metadata.name for each in found}:
        del memory.samples[name]
    return found


def _share(
    node: Node,
    pods: Sequence[Subject],
    samples: Sequence[Sample],
    memory: Memory,
    rules: Colocation,
    chosen: bool,
    koordinated: bool,
    stale: float,
    now: float,
) -> Share:
    allocatable = _amounts(node)
    asked = total(each.pod.requests for each in pods)
    placed = {each: asked.get(each, 0) for each in BATCH.values()}
    published, publisher = publication(node, koordinated)
    known = bool(samples) and now - samples[-1].at <= stale
    found = reclaimable(allocatable, samples, rules) if known else None

    def share(wanted: Vector | None, held: str = "") -> Share:
        return Share(node, allocatable, placed, published, found, wanted, publisher, held)

    if publisher:
        return share(None)
    # Amounts below the requests of pods on the node would have its kubelet refuse them when it starts again.
    held = placed if published is not None else None
    if rules.mode == "withdraw" or not chosen:
        return share(({} if not any(placed.values()) else placed) if published is not None else None, "it is withdrawn")
    if found is None:
        return share(held, "its use is unknown")
    if why := pressure(node, memory):
        return share(held, why)
    target = {each: max(found[each], placed[each]) for each in BATCH.values()}
    if len(samples) < rules.least:
        if published is None:
            return share(None, f"{len(samples)} of {rules.least} looks")
        target = {each: min(target[each], max(published.get(each, 0), placed[each])) for each in target}
    small = published is not None and all(
        abs(target[each] - published.get(each, 0)) <= rules.change * allocatable.get(key, 0)
        and published.get(each, 0) >= placed[each]
        for key, each in BATCH.items()
    )
    return share(published if small else target)


def lowered(shares: Iterable[Share], world: World, going: Collection[str]) -> list[Share]:
    """The same, held nodes without the requests of pods that go (UIDs): nothing takes the place of these there."""
    away: defaultdict[str, list[Vector]] = defaultdict(list)
    for each in world.subjects:
        if each.metadata.uid in going and not each.pod.finished:
            away[each.pod.node].append(each.pod.requests)
    found = []
    for share in shares:
        name = share.node.metadata.name
        if share.held and share.wanted and name in away:
            gone = total(away[name])
            share = replace(share, wanted={key: max(0, each - gone.get(key, 0)) for key, each in share.wanted.items()})
        found.append(share)
    return found
