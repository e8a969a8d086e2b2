"""Placements per second in one process, no API server: what deciding costs before anything is written."""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from atoll.agent.objects import HyperNode, PodGroup, PodGroupSpec, decode_node, decode_pod
from atoll.agent.scheduler.core.gangs import Standing
from atoll.agent.scheduler.core.planner import Plan, plan
from atoll.agent.scheduler.core.room import Room
from atoll.fit import Miss, Nodes, Profile, place
from atoll.local import layout
from atoll.model import keys, topology
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.objects import Meta
from bench.report import Progress, Report, median, progress, rate, run, sizes

NAME = "place"
DESCRIPTION = "Gang placements per second in process, on a tree of three tiers."
BOUND = (
    "naive answers to the same question, measured beside it: per task one numpy capacity vector (the least free // "
    "request over the resources) and per tier one bincount of it over the domains, taking the first with enough"
)
FULL: dict[str, Any] = {"nodes": [1000, 5000, 20000], "gangs": 200, "repeats": 3, "seconds": 1.0, "verdicts": 100}
QUICK: dict[str, Any] = {"nodes": [500], "gangs": 20, "repeats": 1, "seconds": 0.1, "verdicts": 3}
_GPU = "nvidia.com/gpu"
_OFFER = {"cpu": 64_000, "memory": 512 << 30, _GPU: 8, "pods": 110}
_REQUEST = {"cpu": 4_000, "memory": 32 << 30, _GPU: 1, "pods": 1}
_RACK, _BLOCK = 16, 16
_SEED = 20_260_101
_GANG_PODS = 8


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--nodes", type=int, nargs="+", help="sizes of the member")
    parser.add_argument("--gangs", type=int, help="gangs that the agent plans at once")
    parser.add_argument("--repeats", type=int, help="each figure is the median of so many")
    parser.add_argument("--seconds", type=float, help="length of one repeat")
    parser.add_argument("--verdicts", type=int, help="gangs of each kind that are placed or refused one by one")
    parser.add_argument("--profile", action="store_true", help="print the hot spots on standard error")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    report = Report(NAME, {**params, "pods_per_planned_gang": _GANG_PODS, "bound": BOUND})
    for count in params["nodes"]:
        nodes = make_nodes(count)
        for case, gang in gangs().items():
            told(f"{case} on {count} nodes")
            _placements(report, f"{case}, {count} nodes", nodes, gang, params)
            if chosen.profile:
                profile(f"{case}, {count} nodes", lambda n=nodes, g=gang: place(n, g), params["seconds"])  # type: ignore[misc]
        told(f"the agent's plan on {count} nodes")
        _plans(report, f"agent plans {params['gangs']} gangs, {count} nodes", count, nodes, params, chosen.profile)
    told("verdicts")
    _verdicts(report, params["verdicts"], min(1.0, max(params["nodes"]) / max(FULL["nodes"])))
    return report


def member(count: int) -> layout.Member:
    """Racks of 16 nodes, blocks of 16 racks, one root."""
    tiers = [
        layout.Tier(name="rack", size=_RACK),
        layout.Tier(name="block", size=_BLOCK),
        layout.Tier(name="root", size=1),
    ]
    return layout.Member(name="m", nodes=[layout.NodeGroup(count=count)], topology=layout.Topology(tiers=tiers))


def make_nodes(count: int, shape: layout.Member | None = None) -> Nodes:
    """Nodes of 8 GPUs, a random part of which is in use (the same part in every run)."""
    shape = shape if shape is not None else member(count)
    names = shape.node_names()
    built = topology.build(layout.hypernode_objects(shape), {name: {} for name in names})
    tree, lowest = built.tree, built.lowest
    free = [{name: amount - _REQUEST[name] * used for name, amount in _OFFER.items()} for used in gpus_in_use(count)]
    return Nodes(tree, [lowest[name] for name in names], names, [Profile()], [0] * count, free)


def gpus_in_use(count: int) -> list[int]:
    """Half of the nodes empty, the others partly filled."""
    rng = random.Random(_SEED)
    return [0 if rng.random() < 0.5 else rng.randint(1, 8) for _ in range(count)]


def gangs() -> dict[str, Gang]:
    """The workloads that are placed."""

    def of(pods: int, wish: TopologyWish | None = None) -> Gang:
        return Gang("default", [Task("worker", pods, pods, _REQUEST)], pods, network_topology=wish)

    return {
        "1-pod job": of(1),
        "64-pod gang, hard tier 2": of(64, TopologyWish("hard", 2)),
        "512-pod gang": of(512),
    }


def naive(nodes: Nodes, gang: Gang) -> int:
    """The bound: room per node, and per tier a sum per domain; the first domain with enough, or -1."""
    found = -1
    for task in gang.tasks:
        room = np.full(len(nodes), np.iinfo(np.int64).max)
        for row, name in enumerate(nodes.resources):
            amount = task.requests.get(name, 0)
            if amount:
                np.minimum(room, nodes.free[row] // amount, out=room)
        np.maximum(room, 0, out=room)
        for level in range(len(nodes.tree.tiers)):
            sums = np.bincount(nodes.domain[level], weights=room, minlength=len(nodes.tree.domains))
            if sums.max() >= task.replicas:
                found = int(np.argmax(sums >= task.replicas))
                break
    return found


def timed(action: Callable[[], object], seconds: float) -> float:
    """Calls per second over at least that long; the first call is not counted."""
    action()
    calls, began = 0, time.perf_counter()
    while (now := time.perf_counter()) - began < seconds or not calls:
        action()
        calls += 1
    return rate(calls, now - began)


def _placements(report: Report, case: str, nodes: Nodes, gang: Gang, params: dict[str, Any]) -> None:
    requests = [task.requests for task in gang.tasks]

    def once() -> None:
        outcome = place(nodes, gang)
        if isinstance(outcome, Miss):
            raise RuntimeError(f"{case}: {outcome.sentence()}; give more --nodes")  # noqa: TRY004
        # Taking and giving back is part of it: every decision changes what the next one sees.
        nodes.take(requests, outcome)
        nodes.take(requests, outcome, -1)

    seen, bounds = [], []
    for _ in range(params["repeats"]):
        bounds.append(timed(lambda: naive(nodes, gang), params["seconds"]))
        seen.append(timed(once, params["seconds"]))
    report.add(case, "placements_per_s", median(seen), "1/s", median(bounds))


def _verdicts(report: Report, times: int, scale: float) -> None:
    """Processor time of one answer, with reasons where it is no."""
    large, small, deep = (max(int(count * scale), 10) for count in (20_000, 2_500, 6_000))
    # A domain for every node, then pairs, then fives of these: 9,600 in all, and a root.
    tiers = [layout.Tier(name=f"tier{at}", size=size) for at, size in enumerate((1, 2, 5, 1), start=1)]
    shape = layout.Member(name="m", nodes=[layout.NodeGroup(count=deep)], topology=layout.Topology(tiers=tiers))
    many = f"{deep} nodes in {len(layout.hypernode_objects(shape))} HyperNodes"
    hard = TopologyWish("hard", 2)
    asked = [
        (make_nodes(large), f"{large} nodes", int(512 * scale), None),
        (make_nodes(small), f"{small} nodes", int(2304 * scale), None),
        (make_nodes(deep, shape), many, int(512 * scale), None),
        (make_nodes(large), f"{large} nodes", large * 8 + 1, None),
        (make_nodes(large), f"{large} nodes, hard tier 2", _RACK * _BLOCK * 8 + 1, hard),
        (make_nodes(deep, shape), f"{many}, hard tier 2", 17, hard),
    ]
    for nodes, where, pods, wish in asked:
        gang = Gang("default", [Task("worker", pods, pods, _REQUEST)], pods, network_topology=wish)
        place(nodes, gang)
        spent = []
        for _ in range(times):
            began = time.process_time()
            outcome = place(nodes, gang)
            spent.append(time.process_time() - began)
        what = f"{pods} pods refused" if isinstance(outcome, Miss) else f"{pods} pods"
        report.add_latency(f"{what}, {where}", spent)


# -- the agent ---------------------------------------------------------------------------------------------------------


def make_room(count: int) -> Room:
    """The agent's view of the same nodes; what is in use there is one pod per node."""
    room, shape = Room(), member(count)
    allocatable = {"cpu": "64", "memory": "512Gi", _GPU: "8", "pods": "110"}
    for name, used in zip(shape.node_names(), gpus_in_use(count), strict=True):
        body = {
            "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        room.node_changed(name, decode_node(orjson.dumps(body)))
        if used:
            room.pod_changed(None, decode_pod(orjson.dumps(_pod(f"other-{name}", used, node=name))))
    for domain in layout.hypernode_objects(shape):
        meta = Meta(name=domain["metadata"]["name"])
        room.hyper_node_changed(meta.name, HyperNode(metadata=meta, spec=domain["spec"]))
    return room


def make_gangs(count: int) -> list[Standing]:
    """Gangs of 8 pods, each pod asking for one GPU; every second one wants one rack."""
    found = []
    for number in range(count):
        key = f"default/gang-{number}"
        pods = [decode_pod(orjson.dumps(_pod(f"gang-{number}-{index}", 1, group=key))) for index in range(_GANG_PODS)]
        wish = {"mode": "hard", "highestTierAllowed": 1} if number % 2 else None
        created = f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z"
        meta = Meta(name=f"gang-{number}", namespace="default", uid=key, creation_timestamp=created)
        group = PodGroup(metadata=meta, spec=PodGroupSpec(_GANG_PODS, {}, wish))
        found.append(Standing(key, group, pods, created=created, uid=key))
    return found


def _pod(name: str, gpus: int, *, node: str = "", group: str = "") -> dict[str, Any]:
    requests = {"cpu": f"{4 * gpus}", "memory": f"{32 * gpus}Gi", _GPU: str(gpus)}
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": {keys.GROUP_NAME: group, keys.TASK_SPEC: "worker"} if group else {},
        },
        "spec": {"nodeName": node, "schedulerName": "atoll", "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": "Running" if node else "Pending"},
    }  # fmt: skip


def _plans(report: Report, case: str, count: int, nodes: Nodes, params: dict[str, Any], profiled: bool) -> None:
    room, waiting = make_room(count), make_gangs(params["gangs"])
    began = time.perf_counter()
    room.arrays.nodes()
    built = time.perf_counter() - began
    one = Gang("default", [Task("worker", _GANG_PODS, _GANG_PODS, _REQUEST)], _GANG_PODS)
    seen, bounds = [], []
    for _ in range(params["repeats"]):
        bounds.append(timed(lambda: naive(nodes, one), params["seconds"]))
        began = time.perf_counter()
        outcomes = list(plan(room, waiting))
        seen.append(rate(len(outcomes), time.perf_counter() - began))
        _undo(room, case, outcomes)
    if profiled:
        profile(case, lambda: _undo(room, case, list(plan(room, waiting))), 0)
    report.add(case, "placements_per_s", median(seen), "1/s", median(bounds))
    report.add(case, "first_view_built", built * 1000, "ms")


def _undo(room: Room, case: str, outcomes: list[Any]) -> None:
    for outcome in outcomes:
        if not isinstance(outcome, Plan):
            raise RuntimeError(f"{case}: {outcome.gang.key}: {outcome.message}; give fewer --gangs or more --nodes")  # noqa: TRY004
        for pod, _ in outcome.nodes:
            room.forget(pod)
    room.arrays.nodes()


def profile(case: str, action: Callable[[], object], seconds: float) -> None:
    """Print where the time goes on standard error."""
    profiler = cProfile.Profile()
    end = time.perf_counter() + min(seconds, 2.0)
    profiler.enable()
    while True:
        action()
        if time.perf_counter() >= end:
            break
    profiler.disable()
    print(f"--- {case}", file=sys.stderr)
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(12)


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
