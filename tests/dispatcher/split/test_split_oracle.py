"""The native division beside the best there is: an integer program that knows every node, solved by HiGHS.

Best is, in this order: fewest clusters; the tightest tiers, added up over the parts; the least room in the clusters
that are used, so that large empty ones stay whole.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import cache

import highspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.dispatcher.split import Division, Short, divide_natively
from atoll.dispatcher.split.native import sets_of
from atoll.fit import Nodes
from atoll.model.gang import Gang, Task, TopologyWish
from tests.fit.builders import make_nodes

Racks = tuple[tuple[int, ...], ...]
"""Free GPUs of each node of each rack of one cluster; racks are of tier 1 below a spine of tier 2."""


@dataclass(frozen=True)
class Case:
    clusters: tuple[Racks, ...]
    tasks: tuple[tuple[int, int], ...]
    """(replicas, GPUs of one)."""
    hard: int | None = None
    at_most: int | None = None

    def gang(self) -> Gang:
        tasks = [Task(f"t{n}", pods, pods, {"gpu": gpu, "pods": 1}) for n, (pods, gpu) in enumerate(self.tasks)]
        wish = TopologyWish("hard", self.hard) if self.hard is not None else None
        return Gang("q", tasks, sum(pods for pods, _ in self.tasks), network_topology=wish)

    def nodes(self) -> dict[str, Nodes]:
        return {f"m{n}": make_nodes(racks) for n, racks in enumerate(self.clusters)}


@dataclass(frozen=True)
class Quality:
    """What a division is judged by, the first figure first."""

    clusters: int
    tiers: int
    room: int
    """Sets that the used clusters hold by themselves."""


class _Program:
    """All divisions of a gang over some clusters, and the best of them by one figure after the other."""

    def __init__(self, case: Case, *, whole: bool = True) -> None:
        """`whole`: all sets of the gang; else any number of them."""
        gang = case.gang()
        self._sets = sets_of(gang)
        unit = [task.replicas // self._sets for task in gang.tasks]
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self._solver.silent()
        add = self._solver
        #: per cluster: is it used, how many sets, per domain whether its part is there
        self.used, self.taken, self.spots = [], [], []
        for racks in case.clusters:
            used, taken = add.addBinary(), add.addIntegral(0, self._sets)
            add.addConstr(taken <= self._sets * used)
            add.addConstr(taken >= used)
            tiers = [1] * len(racks) + [2]
            spots = [add.addBinary() for _ in tiers]
            allowed = [tier for tier in tiers if case.hard is None or tier <= case.hard]
            add.addConstr(sum(spots[: len(allowed)]) == used)
            for spot in spots[len(allowed) :]:
                add.addConstr(spot == 0)
            pods = {
                (task, rack, node): add.addIntegral(0, gang.tasks[task].replicas)
                for task in range(len(unit))
                for rack, free in enumerate(racks)
                for node in range(len(free))
            }
            for task, count in enumerate(unit):
                mine = [pod for (each, _, _), pod in pods.items() if each == task]
                add.addConstr(sum(mine) == count * taken)
            for rack, free in enumerate(racks):
                for node, gpus in enumerate(free):
                    here = [(task, pod) for (task, r, n), pod in pods.items() if (r, n) == (rack, node)]
                    add.addConstr(sum(gang.tasks[t].requests["gpu"] * pod for t, pod in here) <= gpus)
                    # Nothing in a rack unless the part is there, or anywhere below the spine.
                    add.addConstr(sum(pod for _, pod in here) <= gang.replicas * (spots[rack] + spots[-1]))
            self.used.append(used)
            self.taken.append(taken)
            self.spots.append([(spot, tier) for spot, tier in zip(spots, tiers, strict=True)])
        if whole:
            add.addConstr(sum(self.taken) == self._sets)
        if case.at_most is not None:
            add.addConstr(sum(self.used) <= case.at_most)

    def least(self, figure: highspy.highs_linear_expression) -> int | None:
        """The least of a figure, which is kept from now on; None where there is no division."""
        self._solver.minimize(figure)
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        value = round(self._solver.getObjectiveValue())
        self._solver.addConstr(figure <= value)
        return value


def best(case: Case) -> Quality | None:
    """The best division there is; None where there is none."""
    program = _Program(case)
    clusters = program.least(sum(program.used))
    if clusters is None:
        return None
    tiers = program.least(sum(tier * spot for spots in program.spots for spot, tier in spots))
    held = [room(racks, case.tasks, case.hard) for racks in case.clusters]
    least = program.least(sum(count * used for count, used in zip(held, program.used, strict=True)))
    assert tiers is not None
    assert least is not None
    return Quality(clusters, tiers, least)


@cache
def room(racks: Racks, tasks: tuple[tuple[int, int], ...], hard: int | None) -> int:
    """The most sets of the gang that one cluster holds."""
    program = _Program(Case((racks,), tasks, hard), whole=False)
    fewest = program.least(-1 * program.taken[0])
    assert fewest is not None
    return -fewest


def quality(case: Case, division: Division) -> Quality:
    held = [room(case.clusters[int(name[1:])], case.tasks, case.hard) for name in division.clusters]
    tiers = [each.tier for each in division.placements if each.tier is not None]
    return Quality(len(division.clusters), sum(tiers), sum(held))


def some_case(rng: random.Random) -> Case:
    clusters = tuple(
        tuple(tuple(rng.choice([0, 1, 2, 4, 8]) for _ in range(rng.randint(1, 2))) for _ in range(rng.randint(1, 2)))
        for _ in range(rng.randint(2, 4))
    )
    sets = rng.randint(2, 6)
    tasks = [(sets * rng.choice([1, 1, 2]), rng.choice([1, 1, 2, 4])) for _ in range(rng.choice([1, 1, 2]))]
    return Case(clusters, tuple(tasks), rng.choice([None, None, 1]), rng.choice([None, None, 2]))


@pytest.mark.parametrize("seed", range(4))
def test_few_divisions_are_worse_than_the_best(seed: int) -> None:
    """The stated gap; `pytest -s` prints what was found."""
    rng = random.Random(seed)
    found: Counter[str] = Counter()
    while found["possible"] < 50:
        case = some_case(rng)
        outcome, optimum = divide_natively(case.gang(), case.nodes(), at_most=case.at_most), best(case)
        if optimum is None:
            assert isinstance(outcome, Short), f"nothing fits, and yet {case} is divided"
            continue
        found["possible"] += 1
        if isinstance(outcome, Short):
            found["not found"] += 1
            assert optimum.clusters > 1, f"one cluster holds all of {case}"
            continue
        got = quality(case, outcome)
        assert optimum.clusters <= got.clusters <= optimum.clusters + 1, case
        if got.clusters == optimum.clusters:
            found["fewest clusters"] += 1
            found["tightest tiers"] += got.tiers == optimum.tiers
            found["least room"] += got.room <= optimum.room
    print(dict(found))
    assert found["fewest clusters"] >= 48
    assert found["tightest tiers"] >= 43
    assert found["least room"] >= 45


one_cluster = st.builds(
    Case,
    st.lists(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=2).map(tuple), min_size=1, max_size=2).map(tuple), min_size=1, max_size=3).map(tuple),
    st.tuples(st.tuples(st.integers(1, 12), st.integers(1, 4))),
    st.none() | st.integers(1, 2),
    st.just(1),
)  # fmt: skip


@settings(max_examples=100)
@given(one_cluster)
def test_what_one_cluster_holds_is_found(case: Case) -> None:
    outcome = divide_natively(case.gang(), case.nodes(), at_most=1)
    assert isinstance(outcome, Division) == (best(case) is not None)


def test_a_cluster_that_holds_less_than_it_seems_is_taken_for_what_it_holds() -> None:
    """Of four racks one takes a part; the others' room counts only as long as nobody looks closely."""
    case = Case((((1,), (1,), (1,), (1,)), ((3,),), ((3,),)), ((6, 1),), hard=1, at_most=2)
    outcome = divide_natively(case.gang(), case.nodes(), at_most=2)
    assert isinstance(outcome, Division)
    assert quality(case, outcome) == best(case) == Quality(2, 2, 6)
