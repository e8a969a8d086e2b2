"""Partitions of GPUs as Koordinator gives them: figures of its tests on the Hopper table, and tables at random."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.fit import koordinator as fitting
from atoll.fit.constraints import Cards
from atoll.fit.koordinator import Found, Node, Reported, Taken
from atoll.model import cards, gpu_partitions, joint, koordinator
from atoll.model.gang import DeviceWish, Task
from atoll.model.gpu_partitions import GpuPartitions
from tests.fit.koordinator_devices import SAME, TOTAL, fixture

HOPPER = {gpu_partitions.MODEL: "H100"}
HONOR = {gpu_partitions.POLICY: "Honor"}
Table = dict[int, list[dict[str, Any]]]


def table(entries: Table, **labels: str) -> GpuPartitions:
    read = gpu_partitions.of_device({gpu_partitions.TABLE: json.dumps(entries)}, labels)
    assert read is not None
    return read


def node(partitions: GpuPartitions, used: Iterable[int] = ()) -> Node:
    free = [0 if at in set(used) else cards.CARD for at in range(8)]
    return Node(koordinator.devices({"devices": fixture()}), free, Taken(), TOTAL, partitions)


def find(
    at: Node, number: int, spec: dict[str, str] | None = None, notes: dict[str, Any] | None = None
) -> list[int] | str:
    notes = {**(notes or {}), **({} if spec is None else {joint.PARTITION: spec})}
    asked = {"nvidia.com/gpu": number} | ({"koordinator.sh/rdma": 1} if joint.JOINT in notes else {})
    wish = joint.of({key: json.dumps(each) for key, each in notes.items()}, asked)
    found = fitting.find(at, asked, wish or DeviceWish())
    return list(found.gpus) if isinstance(found, Found) else found


NONE = "no partition of so many GPUs is free"


@pytest.mark.parametrize(
    ("used", "number", "expected"),
    [
        ([], 1, [0]), ([], 2, [0, 1]), ([], 3, NONE), ([], 4, [0, 1, 2, 3]), ([], 6, NONE), ([], 8, [*range(8)]),
        ([2, 3], 2, [0, 1]), ([4], 2, [6, 7]), ([4], 1, [5]), ([4], 8, "7 of the 8 gpu devices that it asks for are free"),
        ([0, 4], 4, NONE),
    ],
)  # fmt: skip
def test_a_hopper_node_that_honours_partitions_gives_no_other_gpus(
    used: list[int], number: int, expected: list[int] | str
) -> None:
    assert find(node(gpu_partitions.of_node(HOPPER | HONOR), used), number) == expected


@pytest.mark.parametrize(("number", "expected"), [(3, [4, 5, 6]), (2, [0, 1]), (1, [0]), (4, [4, 5, 6, 7])])
def test_a_node_that_prefers_partitions_gives_others_by_topology(number: int, expected: list[int]) -> None:
    assert find(node(gpu_partitions.of_node(HOPPER), [2, 3]), number) == expected


def test_a_pod_with_a_spec_gets_a_partition_or_nothing() -> None:
    hopper = gpu_partitions.of_node(HOPPER)
    assert find(node(hopper, [2, 3]), 3, {}) == NONE
    assert find(node(hopper, [2, 3]), 2, {}) == [0, 1]
    assert find(node(gpu_partitions.NONE), 2, {}) == NONE
    assert find(node(hopper), 2, {"ringBusBandwidth": "1"}) == NONE, "the built-in table tells no bandwidth"


def test_the_built_in_table_is_for_hopper_of_nvidia() -> None:
    assert gpu_partitions.of_node({gpu_partitions.MODEL: "A100"}) == gpu_partitions.NONE
    assert not gpu_partitions.of_node(HOPPER | {gpu_partitions.VENDOR: "other"}).by_size
    assert gpu_partitions.of_node({gpu_partitions.MODEL: "H20"}).by_size[8]


SCORED: Table = {
    2: [
        {"minors": [0, 1], "allocationScore": 1, "ringBusBandwidth": "400Gi"},
        {"minors": [2, 3], "allocationScore": 5, "ringBusBandwidth": "100Gi"},
        {"minors": [4, 5], "allocationScore": 5, "ringBusBandwidth": "200Gi"},
    ]
}


def test_the_highest_score_comes_first_then_bandwidth() -> None:
    """Koordinator sorts scores from the lowest, against its own description."""
    there = table(SCORED)
    assert find(node(there), 2) == [4, 5]
    assert find(node(there, [4]), 2) == [2, 3]
    assert find(node(there, [2, 4]), 2) == [0, 1]
    assert find(node(there, [2, 4]), 2, {"allocatePolicy": "Restricted"}) == NONE
    assert find(node(there), 2, {"ringBusBandwidth": "300Gi"}) == [0, 1]
    assert find(node(there), 2, {"allocatePolicy": "Restricted", "ringBusBandwidth": "300Gi"}) == NONE


def test_larger_partitions_stay_free_before_bandwidth_counts() -> None:
    fast: Table = {1: [{"minors": [0]}, {"minors": [2], "ringBusBandwidth": "9Gi"}], 3: [{"minors": [1, 2, 3]}]}
    assert find(node(table(fast)), 1) == [0]


def test_a_table_is_read_as_far_as_it_can_be() -> None:
    mixed: Table = {
        2: [{"minors": [0]}, {"minors": [0, 64]}, {"minors": [1, 0], "ringBusBandwidth": "x"}],
        0: [{"minors": []}],
    }
    assert [each.minors for each in table(mixed).by_size[2]] == [(0, 1)]
    for text in ("", "null", "[]", '{"x": []}', '{"2": [{"minors": "0"}]}'):
        assert gpu_partitions.of_device({gpu_partitions.TABLE: text}, {}) is None
    many: Table = {1: [{"minors": [0]}] * 300, 2: [{"minors": [0, 1]}]}
    assert sum(map(len, table(many).by_size.values())) == 256


def test_a_required_scope_holds_for_partitions_too() -> None:
    across = table({2: [{"minors": [3, 4]}, {"minors": [5, 6]}, {"minors": [0, 2], "allocationScore": 0}]})
    for scope, expected in (("", [3, 4]), ("NUMANode", [5, 6]), ("PCIe", NONE)):
        hint = {"gpu": {"requiredTopologyScope": scope}}
        assert find(node(across, [0]), 2, {}, {joint.HINT: hint}) == expected


def test_nics_beside_partitions_move_the_choice() -> None:
    """The NIC of root 0 is full: the next partition has one."""
    full = node(gpu_partitions.of_node(HOPPER | HONOR))
    full.taken["rdma", 1, ""] = 100
    assert find(full, 2, notes={joint.JOINT: SAME}) == [2, 3]
    assert "same PCIe roots" in str(find(full, 8, notes={joint.JOINT: SAME}))
    one = full._replace(partitions=table({2: [{"minors": [0, 1]}]}, **HONOR))
    assert "same PCIe roots" in str(find(one, 2, notes={joint.JOINT: SAME}))


def test_parts_of_gpus_are_in_no_partition() -> None:
    there = node(gpu_partitions.of_node(HOPPER | HONOR))
    found = fitting.find(there, {"atoll.sh/gpu-milli": 400}, DeviceWish())
    assert isinstance(found, Found)


def constraint(*nodes: Node) -> Cards:
    reported = {at: Reported(each.devices, at, each.partitions) for at, each in enumerate(nodes)}
    return Cards(np.array([each.free for each in nodes], np.int64), None, reported)


def test_nodes_count_pods_by_the_partitions_that_they_get() -> None:
    def room(number: int) -> Any:
        hopper = gpu_partitions.of_node(HOPPER | HONOR), gpu_partitions.of_node(HOPPER)
        counted = constraint(*(node(each, [3, 5]) for each in hopper)).room(
            Task("t", 1, 1, {"nvidia.com/gpu": number}), 2
        )
        assert counted is not None
        return counted.tolist()

    assert [room(number) for number in (1, 2, 3, 4)] == [[6, 6], [2, 3], [0, 2], [0, 1]]


def test_pods_take_the_gpus_that_were_counted() -> None:
    there, task = constraint(node(gpu_partitions.of_node(HOPPER | HONOR), [4])), Task("t", 1, 1, {"nvidia.com/gpu": 2})
    there.take(task, 0, 2)
    assert there.free[0].tolist() == [0, 0, 1000, 1000, 0, 1000, 0, 0]


_SETS = [some for size in (1, 2, 3) for some in itertools.combinations(range(8), size)]
_TABLES = st.lists(st.tuples(st.sampled_from(_SETS), st.integers(0, 2)), max_size=12)


@given(entries=_TABLES, used=st.sets(st.integers(0, 7)), number=st.integers(1, 3), honor=st.booleans())
def test_the_choice_is_the_best_of_all_sets(
    entries: list[tuple[tuple[int, ...], int]], used: set[int], number: int, honor: bool
) -> None:
    """Beside a plain search: a free partition of the best score, of these one that leaves most of the larger ones."""
    made: Table = {}
    for minors, score in entries:
        made.setdefault(len(minors), []).append({"minors": minors, "allocationScore": score})
    there = node(table(made, **(HONOR if honor else {})), used)
    found = find(there, number)
    scores: dict[frozenset[int], int] = {}
    for minors, score in entries:
        if used.isdisjoint(minors):
            scores[frozenset(minors)] = max(scores.get(frozenset(minors), 0), score, 1)
    possible = [each for each in scores if len(each) == number]
    if not possible:
        whole = 8 - len(used) >= number
        assert isinstance(found, list) == (whole and not honor)
        return
    best = [each for each in possible if scores[each] == max(map(scores.__getitem__, possible))]
    assert isinstance(found, list)
    assert frozenset(found) in best

    def left(some: frozenset[int]) -> list[int]:
        kept = [(minors, max(score, 1)) for minors, score in entries if not {*minors} & (used | some)]
        return [sum(score for minors, score in kept if len(minors) == size) for size in (3, 2, 1) if size >= number]

    assert left(frozenset(found)) == max(map(left, best))
