"""Dividing in one process, no API server: a large gang over members with many domains, Karmada's modes, and how far the
native division is from the best there is.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import highspy
import numpy as np

from atoll.dispatcher.split import Division, divide_natively, karmada
from atoll.fit import Nodes, Placement, Profile
from atoll.fit.placement import Ints
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.topology import Domain, Tree
from bench.place import profile
from bench.report import Progress, Report, percentile, progress, run, sizes

NAME = "split"
DESCRIPTION = "Milliseconds to divide a gang over many members, and to share replicas out as Karmada does."
BOUND = (
    "for times: one numpy sum per member of what its domains hold, and a sort of the members; for quality: an integer"
    " program of the same members, solved to the end by HiGHS"
)
FULL: dict[str, Any] = {
    "pods": 1024, "members": 100, "domains": 160, "replicas": 100_000, "clusters": 200, "repeats": 15, "cases": 100,
}  # fmt: skip
QUICK: dict[str, Any] = {
    "pods": 64, "members": 6, "domains": 8, "replicas": 1000, "clusters": 20, "repeats": 2, "cases": 3,
}  # fmt: skip
_SEED = 20_260_101
_GPU = "nvidia.com/gpu"
_REQUEST = {_GPU: 1, "pods": 1}
_MOST = 8
"""GPUs of a node; a domain of the lowest tier has two nodes."""
_SMALL = (12, 16)
"""Members, and domains of each, of the cases that are solved to the end."""


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--pods", type=int, help="of the gang")
    parser.add_argument("--members", type=int, help="over which it is divided")
    parser.add_argument("--domains", type=int, help="of the lowest tier in each member")
    parser.add_argument("--replicas", type=int, help="shared out by Karmada's modes")
    parser.add_argument("--clusters", type=int, help="over which they are")
    parser.add_argument("--repeats", type=int, help="each time is the median of so many")
    parser.add_argument("--cases", type=int, help="random cases that are compared with the best division")
    parser.add_argument("--profile", action="store_true", help="print the hot spots on standard error")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    report = Report(NAME, {**params, "bound": BOUND})
    _gangs(report, params, told, profiled=chosen.profile)
    _modes(report, params, told, profiled=chosen.profile)
    _quality(report, params, told)
    return report


def timed(action: Callable[[], object], repeats: int) -> float:
    """CPU milliseconds, the median; the first call is not counted."""
    action()
    seen = []
    for _ in range(repeats):
        began = time.process_time()
        action()
        seen.append((time.process_time() - began) * 1000)
    return statistics.median(seen)


# -- a gang ------------------------------------------------------------------------------------------------------------


def make_member(name: str, domains: int, rng: random.Random) -> Nodes:
    """Two nodes to a domain of tier 1, sixteen of these to one of tier 2, one root; most GPUs are in use."""
    blocks = -(-domains // 16)
    made = [Domain(f"{name}-root", 3, tier_name="root")]
    made += [Domain(f"{name}-block-{number}", 2, 0, "block") for number in range(blocks)]
    made += [Domain(f"{name}-rack-{number}", 1, 1 + number // 16, "rack") for number in range(domains)]
    count = 2 * domains
    free = np.array([[rng.choice([0, 0, 1, 2, 4, _MOST]) for _ in range(count)], [100] * count], np.int64)
    lowest = np.array([1 + blocks + node // 2 for node in range(count)], np.int64)
    zeros = np.zeros(count, np.int64)
    names = [f"{name}-{node}" for node in range(count)]
    return Nodes.of_arrays(Tree(made), lowest, [Profile()], zeros, (_GPU, "pods"), free, names)


def make_gang(pods: int, wish: TopologyWish | None = None) -> Gang:
    """Equal pods of one GPU each."""
    return Gang("q", [Task("worker", pods, pods, _REQUEST)], pods, network_topology=wish)


def _rooms(nodes: Mapping[str, Nodes], gang: Gang) -> dict[str, Sequence[Ints]]:
    """What the dispatcher knows of each shape already."""
    return {name: [each.room(task.requests) for task in gang.tasks] for name, each in nodes.items()}


def _gangs(report: Report, params: dict[str, Any], told: Progress, *, profiled: bool) -> None:
    rng = random.Random(_SEED)
    nodes = {
        f"m{number:03}": make_member(f"m{number:03}", params["domains"], rng) for number in range(params["members"])
    }
    cases = {
        "anywhere": make_gang(params["pods"]),
        "each part in one block (hard, tier 2)": make_gang(params["pods"], TopologyWish("hard", 2)),
    }
    for case, gang in cases.items():
        rooms = _rooms(nodes, gang)
        held = {name: [int(each.sum()) for each in room] for name, room in rooms.items()}

        def once(gang: Gang = gang, rooms: Any = rooms, held: Any = held) -> Division:
            found = divide_natively(gang, nodes, room=rooms.__getitem__, held=held)
            if not isinstance(found, Division):
                raise RuntimeError(f"{found.available} of {found.requested} pods fit; give more --members")  # noqa: TRY004
            return found

        def bound(rooms: Any = rooms) -> object:
            return sorted((-int(room[0].sum()), name) for name, room in rooms.items())

        name = f"{params['pods']} pods over {params['members']} members of {params['domains']} domains, {case}"
        told(name)
        report.add(name, "division", timed(once, params["repeats"]), "ms", timed(bound, params["repeats"]))
        report.add(name, "members_used", len(once().clusters), "1")
        if profiled:
            profile(name, once, 2.0)


# -- Karmada's modes ---------------------------------------------------------------------------------------------------


def _modes(report: Report, params: dict[str, Any], told: Progress, *, profiled: bool) -> None:
    rng = random.Random(_SEED)
    rooms = [rng.randint(0, 4 * params["replicas"] // params["clusters"]) for _ in range(params["clusters"])]
    candidates = [karmada.Candidate(f"m{number:03}", room, room) for number, room in enumerate(rooms)]
    weights = [
        {"targetCluster": {"clusterNames": [each.name]}, "weight": number % 7 + 1}
        for number, each in enumerate(candidates)
    ]
    modes: dict[str, dict[str, Any]] = {
        "Duplicated": {"replicaSchedulingType": "Duplicated"},
        "static weights, even": _divided("Weighted"),
        "dynamic weights": _divided("Weighted", weightPreference={"dynamicWeight": "AvailableReplicas"}),
        "aggregated": _divided("Aggregated"),
        "static weights, a rule for each": _divided("Weighted", weightPreference={"staticWeightList": weights}),
    }
    for mode, scheduling in modes.items():
        name = f"Karmada's {mode}, {params['replicas']} replicas over {params['clusters']} clusters"
        told(name)
        wanted = karmada.Wanted(params["replicas"], {"replicaScheduling": scheduling}, last_first=True)

        def once(wanted: karmada.Wanted = wanted) -> object:
            return karmada.assign(candidates, wanted)

        report.add(
            name, "division", timed(once, params["repeats"]), "ms",
            timed(lambda: sorted((-each.available, each.name) for each in candidates), params["repeats"]),
        )  # fmt: skip
        if profiled:
            profile(name, once, 1.0)


def _divided(preference: str, **more: Any) -> dict[str, Any]:
    return {"replicaSchedulingType": "Divided", "replicaDivisionPreference": preference, **more}


# -- quality -----------------------------------------------------------------------------------------------------------


def _quality(report: Report, params: dict[str, Any], told: Progress) -> None:
    rng = random.Random(_SEED)
    members, domains = _SMALL
    fewest, found_gaps, free_gaps = 0, [], []
    for case in range(params["cases"]):
        told(f"case {case + 1} of {params['cases']} beside the solver")
        nodes = {f"m{number:02}": make_member(f"m{number:02}", domains, rng) for number in range(members)}
        holds = {name: _per_domain(each) for name, each in nodes.items()}
        whole = sum(map(sum, holds.values()))
        gang = make_gang(rng.randint(whole // 8, whole // 2))
        found = divide_natively(gang, nodes)
        if not isinstance(found, Division):
            raise RuntimeError(f"case {case}: the gang fits, and is not divided")  # noqa: TRY004
        clusters, free = solve(holds, gang.replicas)
        fewest += len(found.clusters) == clusters
        parts = list(zip(found.clusters, found.gangs, found.placements, strict=True))
        used = sum(_domains_used(nodes[name], placement) for name, _, placement in parts)
        same = sum(solve({name: holds[name]}, part.replicas)[1] for name, part, _ in parts)
        found_gaps.append((used - same) / same)
        free_gaps.append((used - free) / free)
    name = f"native against HiGHS, {members} members of {domains} domains"
    report.add(name, "fewest_clusters", fewest / params["cases"], "1", 1.0)
    for metric, gaps in (("gap_of_domains", found_gaps), ("gap_of_domains_in_any_members", free_gaps)):
        report.add(name, f"{metric}_p50", percentile(gaps, 50), "1")
        report.add(name, f"{metric}_p95", percentile(gaps, 95), "1")


def _per_domain(nodes: Nodes) -> list[int]:
    """What each domain of the lowest tier holds."""
    room = nodes.room(_REQUEST)
    return [int(room[place : place + 2].sum()) for place in range(0, len(nodes), 2)]


def _domains_used(nodes: Nodes, placement: Placement) -> int:
    return len({int(nodes.domain[0, node]) for _, node, _ in placement.pods})


def solve(holds: Mapping[str, Sequence[int]], pods: int) -> tuple[int, int]:
    """The fewest clusters that hold the pods, and the fewest domains of so many clusters that do."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    used = {name: solver.addBinary() for name in holds}
    spots = {(name, number): solver.addBinary() for name, each in holds.items() for number, _ in enumerate(each)}
    for (name, _), spot in spots.items():
        solver.addConstr(spot <= used[name])
    solver.addConstr(sum(holds[name][number] * spot for (name, number), spot in spots.items()) >= pods)
    solver.minimize(sum(used.values()))
    clusters = round(solver.getObjectiveValue())
    solver.addConstr(sum(used.values()) <= clusters)
    solver.minimize(sum(spots.values()))
    return clusters, round(solver.getObjectiveValue())


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
