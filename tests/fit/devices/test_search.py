"""The search against every combination: the same first solution, or none where there is none."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.fit.devices import Refused, Undecided, prepare, solve
from atoll.model.device_claims import Claim, Constraint, Request, Wish
from atoll.model.devices import Attribute, Device, DeviceId, Nodes, Pool, Taken
from tests.fit.devices import nodes

FREE = Taken()


def answer(case: nodes.Case) -> list[nodes.Pair] | Undecided | None:
    problem = prepare(case.claims, case.pools, nodes.CLASSES, nodes.selects, nodes.NODE, {})
    found, _ = solve(problem, case.taken)
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
    return solve(problem, Taken(), steps)[0]


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


def searched(claims: list[Claim], pools: list[Pool], taken: Taken = FREE) -> list[str] | None:
    """The names of the devices."""
    found, _ = solve(prepare(claims, pools, nodes.CLASSES, nodes.selects, nodes.NODE, {}), taken)
    assert not isinstance(found, Undecided)
    return None if isinstance(found, Refused) else [pick.option.device.id.name for pick in found]


def listed(name: str, *roots: str) -> Device:
    attributes = {nodes.KIND: Attribute("string", ("gpu",)), nodes.ROOT: Attribute("string", roots, is_list=True)}
    return Device(DeviceId("d", "p", name), attributes, nodes=Nodes(nodes.NODE))


def test_pools_of_two_drivers_with_one_name_have_counters_of_their_own():
    """Upstream keys counters by the pool's name (kubernetes/kubernetes#140434)."""
    pools = [
        Pool(
            driver,
            "same",
            (
                Device(
                    DeviceId(driver, "same", f"{driver}-part"),
                    {nodes.KIND: Attribute("string", ("gpu",))},
                    counters={("set", "slices"): Fraction(4)},
                    nodes=Nodes(nodes.NODE),
                ),
            ),
            counters={("set", "slices"): Fraction(4)},
        )
        for driver in ("d", "e")
    ]
    assert searched([Claim("c", (Request("r", (Wish("r", "gpu", count=2),)),))], pools) == ["d-part", "e-part"]


def test_distinct_values_are_kept_for_every_device_of_a_request():
    """Upstream remembers one value per request, so that the third device may repeat the first one's."""
    claim = Claim("c", (Request("r", (Wish("r", "gpu", count=3),)),), (Constraint((), nodes.ROOT, distinct=True),))
    pool = [rooted("gpu", number, root) for number, root in enumerate("aba")]
    assert searched([claim], [Pool("d", "p", tuple(pool))]) is None
    assert searched([claim], [Pool("d", "p", (*pool, rooted("gpu", 3, "c")))]) == ["gpu-0", "gpu-1", "gpu-3"]


def test_common_values_of_lists_are_restored_when_a_device_is_given_back():
    """Upstream keeps the narrowed set after it backtracks, and refuses."""
    devices = (listed("d0", "x", "y"), listed("d1", "x"), listed("d2", "y"), rooted("nic", 3, "y"))
    wishes = (Request("r", (Wish("r", "gpu", count=2),)), Request("n", (Wish("n", "nic"),)))
    claim = Claim("c", wishes, (Constraint((), nodes.ROOT),))
    assert searched([claim], [Pool("d", "p", devices)]) == ["d0", "d2", "nic-3"]


def test_counters_of_a_refused_device_are_given_back():
    """Older versions of upstream leaked them."""
    partitions = [
        Device(
            DeviceId("d", "p", f"part-{root}"),
            {nodes.KIND: Attribute("string", ("gpu",)), nodes.ROOT: Attribute("string", (root,))},
            counters={("set", "slices"): Fraction(3)},
            nodes=Nodes(nodes.NODE),
        )
        for root in "ab"
    ]
    pool = Pool("d", "p", (*partitions, rooted("nic", 0, "b")), counters={("set", "slices"): Fraction(3)})
    claim = Claim(
        "c", (Request("n", (Wish("n", "nic"),)), Request("g", (Wish("g", "gpu"),))), (Constraint((), nodes.ROOT),)
    )
    assert searched([claim], [pool]) == ["nic-0", "part-b"]


def every(stated: int | None, kind: str = "gpu", name: str = "r") -> Wish:
    return Wish(name, kind, count=None, stated=stated)


def solve_all(*wishes: Wish, gpus: int = 2, constraints: tuple[Constraint, ...] = (), used: int = 0) -> object:
    pool = Pool("d", "p", tuple(rooted("gpu", number, "a") for number in range(gpus)))
    claims = [Claim("c", (Request("r", wishes),), constraints)]
    problem = prepare(claims, [pool], nodes.CLASSES, nodes.selects, nodes.NODE, {})
    found, _ = solve(problem, Taken(device.id for device in pool.devices[:used]))
    return found if isinstance(found, Refused) else [pick.option.number for pick in found]  # type: ignore[union-attr]


SAME = (Constraint((), nodes.ROOT),)


@pytest.mark.parametrize("constraints", [(), SAME], ids=["free", "constrained"])
def test_a_node_gives_all_devices_where_they_are_as_many_as_stated(constraints: tuple[Constraint, ...]):
    assert solve_all(every(2), constraints=constraints) == [0, 1]
    assert solve_all(every(None), constraints=constraints) == [0, 1]
    for stated in (1, 3):
        reason = f"claim c, request r: 2 devices match, and the claim states {stated}"
        assert solve_all(every(stated), constraints=constraints) == Refused(reason)


def test_all_stated_devices_are_given_or_none():
    assert isinstance(solve_all(every(2), used=1), Refused)


def test_of_alternatives_one_that_states_the_number_of_the_node_serves():
    eight, two, one = every(8, name="r/eight"), every(2, name="r/two"), Wish("r/one", "gpu")
    assert solve_all(eight, two, one) == [0, 1]
    assert solve_all(eight, two, one, gpus=1) == [0]
    assert solve_all(eight, every(4, name="r/four")) == Refused(
        "claim c, request r/eight: 2 devices match, and the claim states 8"
    )
