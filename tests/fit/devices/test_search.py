"""The search against every combination: the same first solution, or none where there is none."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.fit.devices import Refused, Undecided, prepare, solve
from atoll.model.device_claims import Claim, Constraint, Request, Wish
from atoll.model.devices import Attribute, Device, DeviceId, Nodes, Pool, Taken
from tests.fit.devices import nodes


def answer(case: nodes.Case) -> list[nodes.Pair] | Undecided | None:
    problem = prepare(case.claims, case.pools, nodes.CLASSES, nodes.selects, nodes.NODE, {})
    found = solve(problem, case.taken)
    if isinstance(found, Undecided):
        return found
    if isinstance(found, Refused):
        assert found.reason
        return None
    assert nodes.valid(case, nodes.chosen_of(case, found))
    return nodes.pairs(found)


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_first_solution_in_order_is_found_or_none_exists(rng: Random):
    case = nodes.random_case(rng)
    assert answer(case) == nodes.first_solution(case)


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_random_nodes_are_decided(count: int):
    undecided = 0
    for seed in range(count):
        case = nodes.random_case(Random(seed))
        found = answer(case)
        if isinstance(found, Undecided):
            undecided += 1
        else:
            assert found == nodes.first_solution(case), seed
    assert undecided < count / 100


def rooted(kind: str, number: int, root: str) -> Device:
    attributes = {nodes.KIND: Attribute("string", (kind,)), nodes.ROOT: Attribute("string", (root,))}
    return Device(DeviceId("d", "p", f"{kind}-{number}"), attributes, nodes=Nodes(nodes.NODE))


def pairs_of(count: int) -> Claim:
    """As many GPUs, each with a NIC under its root."""
    requests = [Request(f"{kind}{n}", (Wish(f"{kind}{n}", kind),)) for n in range(count) for kind in nodes.KINDS]
    return Claim("c", tuple(requests), tuple(Constraint((f"gpu{n}", f"nic{n}"), nodes.ROOT) for n in range(count)))


def solve_pairs(roots_of_gpus: str, roots_of_nics: str, count: int, steps: int) -> object:
    devices = [
        rooted(kind, number, root)
        for kind, roots in zip(nodes.KINDS, (roots_of_gpus, roots_of_nics), strict=True)
        for number, root in enumerate(roots)
    ]
    problem = prepare([pairs_of(count)], [Pool("d", "p", tuple(devices))], nodes.CLASSES, nodes.selects, nodes.NODE, {})
    return solve(problem, Taken(), steps)


def test_eight_pairs_under_common_roots_are_refused_in_few_steps():
    found = solve_pairs("aaabbcdd", "aabbbcdd", 8, steps=5_000)
    assert isinstance(found, Refused)


def test_eight_pairs_under_common_roots_are_found():
    found = solve_pairs("aabbccdd", "ddccbbaa", 8, steps=1_000)
    assert not isinstance(found, (Refused, Undecided))


def test_search_without_steps_left_is_undecided():
    assert solve_pairs("aabbccdd", "ddccbbaa", 8, steps=3) == Undecided(3)


def test_more_requests_than_devices_are_refused_without_a_search():
    found = solve_pairs("aabbccd", "aabbccdd", 8, steps=0)
    assert isinstance(found, Refused)
    assert found.reason.startswith("claim c, request gpu")
