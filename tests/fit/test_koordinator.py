"""Devices of a node for a pod as Koordinator's allocator gives them: its worked example, and figures of its fixture of 8
GPUs and 4 NICs."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable

import pytest

from atoll.fit import koordinator as fitting
from atoll.fit.koordinator import Found, Node, Taken
from atoll.model import cards, joint, koordinator
from atoll.model.gang import DeviceWish
from atoll.model.koordinator import Devices, Part
from tests.fit.koordinator_devices import BESIDE, BUSES, GENERAL, SAME, TOTAL, Json, fixture, gpu, nic


def node(devices: list[Json] | None = None, gpus: Iterable[int] = (), taken: Iterable[Part] = ()) -> Node:
    there = koordinator.devices({"devices": fixture() if devices is None else devices})
    free = [cards.CARD if at in there.get("gpu", {}) and at not in gpus else 0 for at in range(8)]
    held = Taken()
    fitting.hold(held, taken)
    return Node(there, free, held, TOTAL)


def find(at: Node, gpus: int, rdma: int = 1, together: Json | None = None, hint: Json | None = None) -> Found | str:
    asked = {"nvidia.com/gpu": gpus, "koordinator.sh/rdma": rdma}
    notes = {joint.JOINT: json.dumps(together or BESIDE), joint.HINT: json.dumps(GENERAL if hint is None else hint)}
    wish = joint.of(notes, asked)
    assert wish is not None
    return fitting.find(at, asked, wish)


def short(found: Found | str) -> tuple[list[int], list[int]]:
    assert not isinstance(found, str), found
    return list(found.gpus), [each.minor for each in found.others]


FIRST_VF = Part("rdma", 1, 1, "0000:1f:00.2")


@pytest.mark.parametrize("together", [BESIDE, SAME], ids=["no scope", "SamePCIe"])
@pytest.mark.parametrize(
    ("number", "gpus", "nics"),
    [
        (0, [], [1]), (1, [0], [1]), (2, [0, 1], [1]), (3, [0, 1, 2], [1, 2]), (4, [0, 1, 2, 3], [1, 2]),
        (6, [0, 1, 2, 3, 4, 5], [1, 2, 3]), (8, [*range(8)], [1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_gpus_get_a_nic_of_each_root(number: int, gpus: list[int], nics: list[int], together: Json) -> None:
    found = find(node(), number, together=together)
    assert short(found) == (gpus, nics)
    assert isinstance(found, Found)
    assert [each.bus for each in found.others] == [f"0000:{BUSES[minor - 1]}:00.2" for minor in nics]


def test_used_devices_move_the_choice() -> None:
    there = node(gpus=[0], taken=[FIRST_VF])
    assert short(find(there, 2)) == ([2, 3], [2])
    found = find(there, 3)
    assert short(found) == ([1, 2, 3], [1, 2])
    assert isinstance(found, Found)
    assert found.others[0].bus == "0000:1f:00.3"


def test_a_full_nic_under_a_needed_root_refuses_the_node() -> None:
    full = node(taken=[Part("rdma", 1, 100, "0000:1f:00.2")])
    assert "same PCIe roots" in str(find(full, 8, together=SAME))
    assert short(find(full, 8)) == ([*range(8)], [2, 3, 4]), "without a scope fewer NICs do"
    # Koordinator refuses the next one: it takes GPUs first, and looks for their NICs then.
    assert short(find(full, 2, together=SAME)) == ([2, 3], [2])


def test_eight_gpus_over_two_nodes_of_numa() -> None:
    assert short(find(node(gpus=range(4), taken=[FIRST_VF]), 4)) == ([4, 5, 6, 7], [3, 4])


def test_one_nic_with_functions_does_for_gpus_of_two_roots() -> None:
    alone = [each for each in fixture() if each["type"] == "gpu"] + [nic(1, "0", "1f"), nic(2, "1", "90", vfs=0)]
    assert short(find(node(alone), 4)) == ([0, 1, 2, 3], [1])


def test_whole_nics_are_taken_one_of_each_root_in_turn() -> None:
    double = fixture() + [nic(at + 5, str(at), f"{bus}a", numa=at // 2) for at, bus in enumerate(BUSES)]
    assert short(find(node(double, range(4)), 4, 400)) == ([4, 5, 6, 7], [3, 4, 7, 8])
    uneven = [gpu(at, str(at)) for at in range(4)]
    uneven += [nic(at, str(max(at - 2, 0)), f"2{at}") for at in range(6)]
    assert short(find(node(uneven), 4, 400)) == ([0, 1, 2, 3], [0, 3, 4, 5])


def test_gpus_are_spread_out_where_their_nics_are() -> None:
    found = find(node(), 4, 400, SAME)
    assert short(found) == ([0, 2, 4, 6], [1, 2, 3, 4])


def test_apply_for_all_takes_all_nics_beside_any_gpus() -> None:
    hint = {"rdma": {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"type": "fakeW"}}}}
    found = find(node(), 4, together=SAME, hint=hint)
    assert short(found) == ([0, 1, 2, 3], [1, 2, 3, 4])
    assert isinstance(found, Found)
    assert {each.bus for each in found.others} == {""}
    assert find(node(), 4, hint={"rdma": {**hint["rdma"], "selector": {"matchLabels": {"type": "other"}}}}) == (
        "0 of the 1 rdma devices that it asks for are free"
    )


def test_requests_as_count_take_units_or_whole_nics() -> None:
    hint: Json = {"rdma": {"allocateStrategy": "RequestsAsCount"}}
    found = find(node(), 0, 2, hint=hint)
    assert isinstance(found, Found)
    assert [(each.minor, each.units) for each in found.others] == [(1, 1), (2, 1)]
    hint["rdma"]["exclusivePolicy"] = "DeviceLevel"
    found = find(node(taken=[Part("rdma", 1, 1)]), 0, 2, hint=hint)
    assert isinstance(found, Found)
    assert [(each.minor, each.units) for each in found.others] == [(2, 100), (3, 100)]


def test_exclusive_policies_avoid_used_devices_and_roots() -> None:
    """Koordinator's PCIeLevel has no effect, as it drops the result."""
    used = [Part("rdma", 1, 1)]
    assert short(find(node(taken=used), 0, hint={"rdma": {"exclusivePolicy": "DeviceLevel"}})) == ([], [2])
    double = [*fixture(), nic(5, "0", "1e")]
    apart = {"rdma": {"exclusivePolicy": "PCIeLevel"}}
    assert short(find(node(double, taken=used), 0, hint=apart)) == ([], [2])
    assert short(find(node(gpus=[0]), 1, hint={"gpu": {"exclusivePolicy": "PCIeLevel"}})) == ([2], [2])


def test_a_node_without_topology_has_no_joint_devices() -> None:
    flat = [{**each, "topology": None} for each in fixture()]
    assert "not known" in str(find(node(flat), 1))
    assert "are free" in str(find(node([{**each, "vfGroups": []} for each in flat]), 0))


@pytest.mark.parametrize(
    ("used", "number", "scope", "expected"),
    [
        ([5], 1, "", [4]), ([5], 2, "", [6, 7]), ([], 4, "NUMANode", [0, 1, 2, 3]), ([0, 5], 4, "NUMANode", []),
        ([0, 5], 4, "", [1, 2, 3, 4]), ([], 2, "PCIe", [0, 1]), ([], 3, "PCIe", []), ([], 1, "Device", [0]),
    ],
)  # fmt: skip
def test_gpus_are_packed_by_topology(used: list[int], number: int, scope: str, expected: list[int]) -> None:
    hint = {"gpu": {"requiredTopologyScope": scope}} if scope else {}
    asked = {"nvidia.com/gpu": number}
    wish = joint.of({joint.HINT: json.dumps(hint)}, asked)
    assert wish is not None
    found = fitting.find(node(gpus=used), asked, wish)
    assert (list(found.gpus) if isinstance(found, Found) else []) == expected


def test_a_part_of_a_gpu_shares_the_fullest_one() -> None:
    there = node()._replace(free=[1000, 500, 400, 300, 1000, 1000, 1000, 1000])
    asked = {"atoll.sh/gpu-milli": 400, "koordinator.sh/rdma": 1}
    found = fitting.find(there, asked, DeviceWish(["gpu", "rdma"], same_root=True))
    assert short(found) == ([2], [2])


def test_pods_are_counted_as_they_are_given_devices() -> None:
    asked = {"nvidia.com/gpu": 2, "koordinator.sh/rdma": 1}
    wish = joint.of({joint.JOINT: json.dumps(SAME)}, asked)
    assert wish is not None
    assert fitting.count(node(), asked, wish) == 4
    assert fitting.count(node(taken=[Part("rdma", 1, 100)]), asked, wish) == 3


def _exists(there: Devices, free: list[int], full: set[int], gpus: int) -> bool:
    """Whether some GPUs have a NIC that is not full under each of their roots, by trying all."""
    roots = {each.root for minor, each in there["rdma"].items() if minor not in full}
    whole = [minor for minor in there["gpu"] if free[minor] == cards.CARD]
    return any({there["gpu"][each].root for each in some} <= roots for some in itertools.combinations(whole, gpus))


def test_a_joint_wish_is_met_wherever_it_can_be() -> None:
    rng = random.Random(20261128)
    for _ in range(1000):
        roots = [str(each) for each in range(rng.randint(1, 4))]
        made = [gpu(at, rng.choice(roots), numa=rng.randint(0, 1)) for at in range(rng.randint(1, 6))]
        made += [nic(at, rng.choice(roots), f"1{at}", vfs=0) for at in range(rng.randint(1, 4))]
        full = {each["minor"] for each in made if each["type"] == "rdma" and rng.random() < 0.4}
        there = node(made, [at for at in range(8) if rng.random() < 0.3], [Part("rdma", at, 100) for at in full])
        wanted = rng.randint(1, 4)
        found = find(there, wanted, together=SAME, hint={})
        possible = _exists(there.devices, list(there.free), full, wanted)
        assert isinstance(found, Found) == possible, (made, full, there.free, wanted, found)
