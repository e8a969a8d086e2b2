"""How near together gangs are placed on random trees, beside the best that there is and two rules of others.

Trees are uneven, of three tiers, with nodes that are partly in use. The best is exact: of the domains whose nodes
hold the gang, by trying all distributions of its tasks, the lowest tier; and the fewest racks that hold it. *Best
fit* is Kueue's rule as its documentation describes it (per level the domain that leaves least, else the largest
first; each task by itself), and *gradient* Volcano's (hard: tier by tier the fullest domain in which pods fit one by
one; soft: pod by pod next to those that are placed); both are told again here, no program of theirs runs.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atoll.fit import Miss, Nodes, Profile, place
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.topology import Domain, Tree
from bench.report import Progress, Report, progress, run, sizes

NAME = "quality"
DESCRIPTION = "Tiers and racks of gangs on random trees, beside the exact optimum and rules of Kueue and Volcano."
BOUND = "the exact optimum of the same gang on the same tree"
FULL: dict[str, Any] = {"trees": 2000}
QUICK: dict[str, Any] = {"trees": 150}
_SEED = 11
_NOWHERE = 9
"""Tier of what is not placed, or in no domain: worse than any."""


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--trees", type=int, help="random trees, each with one gang, per case")


@dataclass(frozen=True)
class Scene:
    """A tree and a gang; `gpus[n]` and `cpus[n]` are free on node n, in rack `rack[n]` and block `block[n]`."""

    gpus: list[int]
    cpus: list[int]
    rack: list[int]
    block: list[int]
    tasks: list[tuple[int, int, int]]
    """(pods, GPUs, CPUs) of each."""

    def domains(self) -> dict[int, list[list[int]]]:
        """Tier -> its domains, each as its nodes."""
        found: dict[int, list[list[int]]] = {3: [list(range(len(self.gpus)))]}
        for tier, of_node in ((1, self.rack), (2, self.block)):
            found[tier] = [[n for n, each in enumerate(of_node) if each == name] for name in sorted(set(of_node))]
        return found

    def tier(self, nodes: set[int]) -> int:
        """The lowest tier with a domain around these nodes."""
        return min(t for t, domains in self.domains().items() if any(nodes <= set(each) for each in domains))

    def holds(self, nodes: Sequence[int]) -> bool:
        """Whether these nodes hold all tasks, exactly: over the nodes, the most of the second task per number of the
        first.
        """
        (first, gpu, cpu), *more = self.tasks
        second, gpu2, cpu2 = more[0] if more else (0, 1, 0)
        most = [0] + [-1] * first
        for node in nodes:
            grown = list(most)
            for here in range(1 + min(first, self.gpus[node] // gpu, self.cpus[node] // cpu if cpu else first)):
                left = (self.gpus[node] - here * gpu) // gpu2
                left = min(left, (self.cpus[node] - here * cpu) // cpu2) if cpu2 else left
                for before in range(first + 1 - here):
                    if most[before] >= 0:
                        grown[before + here] = max(grown[before + here], most[before] + left)
            most = grown
        return most[first] >= second

    def best(self, ceiling: int) -> tuple[int, int]:
        """(lowest tier of a domain that holds it, fewest racks of that tier's domains that do); _NOWHERE for none."""
        domains = self.domains()
        for tier in range(1, ceiling + 1):
            fitting = [each for each in domains[tier] if self.holds(each)]
            if fitting:
                return tier, min(self._fewest(each) for each in fitting)
        return _NOWHERE, 0

    def _fewest(self, nodes: list[int]) -> int:
        racks = [[n for n in nodes if self.rack[n] == name] for name in sorted({self.rack[n] for n in nodes})]
        for number in range(1, len(racks) + 1):
            if any(self.holds(list(itertools.chain(*some))) for some in itertools.combinations(racks, number)):
                return number
        raise AssertionError("all racks together hold it")


def scene(rng: random.Random, tasks: int) -> Scene:
    """Two or three blocks of one to four racks of one to four nodes."""
    rack: list[int] = []
    block: list[int] = []
    for number in range(rng.randint(2, 3)):
        for _ in range(rng.randint(1, 4)):
            nodes = rng.randint(1, 4)
            rack += [max(rack, default=-1) + 1] * nodes
            block += [number] * nodes
    gpus, cpus = ([rng.randint(0, 8) for _ in rack] for _ in range(2))
    wanted = [(rng.randint(2, 12), rng.choice((1, 1, 2)), 0)]
    if tasks == 2:
        wanted = [(rng.randint(1, 6), 2, 1), (rng.randint(1, 6), 1, 2)]
    return Scene(gpus, cpus, rack, block, wanted)


def atoll(it: Scene, wish: TopologyWish) -> set[int] | None:
    """Where the placer puts it; None for nowhere."""
    first = 1 + len(set(it.block))
    domains = [Domain("all", 3), *(Domain(f"b{number}", 2, 0) for number in sorted(set(it.block)))]
    above = {rack: 1 + block for rack, block in zip(it.rack, it.block, strict=True)}
    domains += [Domain(f"r{number}", 1, above[number]) for number in sorted(above)]
    names = [f"n{number:02}" for number in range(len(it.rack))]
    free = [{"gpu": gpu, "cpu": cpu} for gpu, cpu in zip(it.gpus, it.cpus, strict=True)]
    lowest = [first + rack for rack in it.rack]
    nodes = Nodes(Tree(domains), lowest, names, [Profile()], [0] * len(names), free)
    tasks = [
        Task(f"t{number}", pods, pods, {"gpu": gpu, **({"cpu": cpu} if cpu else {})})
        for number, (pods, gpu, cpu) in enumerate(it.tasks)
    ]
    found = place(nodes, Gang("", tasks, sum(task.replicas for task in tasks), network_topology=wish))
    return None if isinstance(found, Miss) else {node for _, node, _ in found.pods}


def best_fit(it: Scene, wish: TopologyWish) -> set[int] | None:
    """Kueue's rule, each task by itself; required at the ceiling's level, or preferred from the lowest up."""
    ceiling = wish.highest_tier_allowed
    starts = [ceiling] if ceiling is not None else [1, 2, 3]
    free = [it.gpus.copy(), it.cpus.copy()]
    used: set[int] = set()
    for pods, gpu, cpu in it.tasks:
        room = [min(free[0][n] // gpu, free[1][n] // cpu if cpu else 99) for n in range(len(it.rack))]
        for start in starts:
            fitting = [each for each in it.domains()[start] if sum(room[n] for n in each) >= pods]
            if fitting:
                within = min(fitting, key=lambda each: (sum(room[n] for n in each), each))
                break
        else:
            return None
        for node, count in _down(it, within, room, pods, it.tier(set(within))):
            free[0][node] -= count * gpu
            free[1][node] -= count * cpu
            used.add(node)
    return used


def _down(it: Scene, nodes: list[int], room: list[int], pods: int, tier: int) -> list[tuple[int, int]]:
    """(node, pods): level by level the part that leaves least if one holds all, else the largest parts."""
    parts = [[n] for n in nodes]
    if tier > 1:
        parts = [[n for n in each if n in nodes] for each in it.domains()[tier - 1]]
        parts = [each for each in parts if each]
    taken: list[tuple[int, int]] = []
    while pods > 0:
        sums = [sum(room[n] for n in each) for each in parts]
        enough = [number for number, held in enumerate(sums) if held >= pods]
        number = min(enough, key=lambda each: sums[each]) if enough else max(range(len(parts)), key=lambda e: sums[e])
        some = min(pods, sums[number])
        if tier <= 1:
            taken.append((parts[number][0], some))
        else:
            taken += _down(it, parts[number], room, some, tier - 1)
        pods -= some
        parts.pop(number)
    return [each for each in taken if each[1]]


def gradient(it: Scene, wish: TopologyWish) -> set[int] | None:
    """Volcano's rule."""
    if wish.mode == "soft":
        return _one_by_one(it, list(range(len(it.rack))), near=True)
    assert wish.highest_tier_allowed is not None
    for tier in range(1, wish.highest_tier_allowed + 1):
        for domain in sorted(it.domains()[tier], key=lambda each: (sum(it.gpus[n] for n in each), each)):
            if (found := _one_by_one(it, domain, near=False)) is not None:
                return found
    return None


def _one_by_one(it: Scene, nodes: list[int], *, near: bool) -> set[int] | None:
    gpus, cpus = it.gpus.copy(), it.cpus.copy()
    used: set[int] = set()
    for pods, gpu, cpu in it.tasks:
        for _ in range(pods):
            fitting = [n for n in nodes if gpus[n] >= gpu and cpus[n] >= cpu]
            if not fitting:
                return None
            node = min(fitting, key=lambda n: (it.tier(used | {n}) if near and used else 0, gpus[n], n))
            gpus[node] -= gpu
            cpus[node] -= cpu
            used.add(node)
    return used


RULES = {"atoll": atoll, "best fit": best_fit, "gradient": gradient}


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    report = Report(NAME, {**params, "bound": BOUND})
    cases = [("hard, tier 2", TopologyWish("hard", 2), 2), ("soft", TopologyWish("soft"), 3)]
    for (name, wish, ceiling), tasks in itertools.product(cases, (1, 2)):
        told(f"{name}, tasks: {tasks}")
        rng = random.Random(_SEED)
        scenes = [it for it in (scene(rng, tasks) for _ in range(params["trees"])) if it.best(ceiling)[0] != _NOWHERE]
        best = [it.best(ceiling) for it in scenes]
        for rule, place_it in RULES.items():
            found = [place_it(it, wish) for it in scenes]
            tiers = [
                it.tier(nodes) - least
                for it, nodes, (least, _) in zip(scenes, found, best, strict=True)
                if nodes is not None
            ]
            racks = [
                len({it.rack[n] for n in nodes}) - fewest
                for it, nodes, (least, fewest) in zip(scenes, found, best, strict=True)
                if nodes is not None and it.tier(nodes) == least
            ]
            case = f"{name}, {tasks} task{'s' * (tasks > 1)}: {rule}"
            report.add(case, "not_placed", 100 * found.count(None) / len(found), "%")
            report.add(case, "tiers_too_high", float(np.mean(tiers)), "1")
            report.add(case, "racks_too_many", float(np.mean(racks)), "1")
    return report


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
