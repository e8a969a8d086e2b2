"""Sub-groups of a PodGroup: each whole and near together, beside the gang's own wish."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.planner import NOT_ENOUGH_RESOURCES, NOT_ENOUGH_TASKS, Plan, Wait, plan
from atoll.agent.scheduler.core.room import Room
from atoll.model import keys
from atoll.model.gang import HOST
from tests.agent.builders import make_domain, make_group, make_node, make_pod, make_room
from tests.agent.plans import assert_waits, gang, racks

RACK = {"mode": "hard", "highestTierAllowed": 1}


def policy(size: int, *, least: int = 0, topology: dict[str, Any] | None = RACK, **more: Any) -> dict[str, Any]:
    found = {"name": "w", "subGroupSize": size, "minSubGroups": least, "matchLabelKeys": [keys.PARTITION], **more}
    return {**found, "networkTopology": topology} if topology else found


def partitions(count: int, size: int, *, first: int = 0, node: str = "", gpu: int = 4) -> list[Pod]:
    found = []
    for number in range(first * size, (first + count) * size):
        pod = make_pod(f"g-{number}", group="g", index=number, gpu=gpu, node=node)
        pod.metadata.labels[keys.PARTITION] = str(number // size)
        found.append(pod)
    return found


def racks_by_partition(outcome: Plan | Wait) -> dict[str, set[str]]:
    assert isinstance(outcome, Plan), outcome
    found = defaultdict(set)
    for pod, node in outcome.nodes:
        found[pod.metadata.labels[keys.PARTITION]].add(node[:2])
    return dict(found)


def test_each_partition_is_in_a_rack_and_the_gang_in_several() -> None:
    room = racks(2, 2)
    group = make_group("g", 6, sub_groups=[policy(3)])
    [outcome] = plan(room, [gang(room, group, partitions(2, 3))])
    assert racks_by_partition(outcome) == {"0": {"r0"}, "1": {"r1"}}


def test_it_waits_where_racks_hold_no_whole_partitions() -> None:
    room = racks(2, 2)
    group = make_group("g", 6, sub_groups=[policy(6)])
    [outcome] = plan(room, [gang(room, group, partitions(1, 6))])
    assert_waits(outcome, NOT_ENOUGH_RESOURCES)


def test_a_pod_that_takes_the_place_of_a_lost_one_joins_its_partition() -> None:
    """Partition 0 runs in r1 but for one pod; r0 would be the tighter gap."""
    room = racks(2, 2)
    running = [*partitions(1, 3, node="r1n0")[:2], make_pod("other", gpu=8, node="r0n0")]
    for pod in running:
        room.pod_changed(None, pod)
    group = make_group("g", 3, sub_groups=[policy(3)])
    [outcome] = plan(room, [gang(room, group, [*running[:2], partitions(1, 3)[2]])])
    assert racks_by_partition(outcome) == {"0": {"r1"}}


def test_a_partition_whose_rack_is_full_waits_though_others_have_room() -> None:
    room = racks(2, 2)
    running = [*partitions(1, 3, node="r1n0")[:2], make_pod("other", gpu=8, node="r1n1")]
    for pod in running:
        room.pod_changed(None, pod)
    group = make_group("g", 3, sub_groups=[policy(3)])
    [outcome] = plan(room, [gang(room, group, [*running[:2], partitions(1, 3)[2]])])
    assert_waits(outcome, NOT_ENOUGH_RESOURCES)


def test_a_gang_starts_with_as_many_whole_sub_groups_as_it_needs() -> None:
    room = racks(2, 2)
    group = make_group("g", 1, sub_groups=[policy(3, least=2)])
    [outcome] = plan(room, [gang(room, group, partitions(2, 3)[:5])])
    assert_waits(outcome, NOT_ENOUGH_TASKS, "1 of at least 2 whole groups of 3 pods of w exist")
    [outcome] = plan(room, [gang(room, group, partitions(3, 3))])
    assert racks_by_partition(outcome) == {"0": {"r0"}, "1": {"r1"}}


def test_pods_of_several_tasks_without_a_label_that_tells_groups_apart_are_one_sub_group() -> None:
    """A leader (8 GPUs) and two workers (4 each) need all of a rack; r0 has no room for all three."""
    room = racks(2, 2)
    room.pod_changed(None, make_pod("other", gpu=1, node="r0n0"))
    pods = [make_pod("g-l", group="g", task="leader", gpu=8)]
    pods += [make_pod(f"g-w{i}", group="g", task="worker", index=i, gpu=4) for i in range(2)]
    term = {"key": keys.TASK_SPEC, "operator": "In", "values": ["leader", "worker"]}
    group = make_group("g", 3, sub_groups=[policy(3, labelSelector={"matchExpressions": [term]}, matchLabelKeys=[])])
    [outcome] = plan(room, [gang(room, group, pods)])
    assert isinstance(outcome, Plan)
    assert {node[:2] for _, node in outcome.nodes} == {"r1"}


def test_groups_on_single_nodes_need_no_hyper_nodes_and_are_joined_there() -> None:
    room = make_room(*(make_node(f"n{number}") for number in range(3)))
    group = make_group("g", 4, sub_groups=[policy(2, topology={"mode": "hard", "highestTierName": HOST})])
    [outcome] = plan(room, [gang(room, group, partitions(2, 2))])
    assert isinstance(outcome, Plan)
    by_partition = defaultdict(set)
    for pod, node in outcome.nodes:
        by_partition[pod.metadata.labels[keys.PARTITION]].add(node)
    assert sorted(map(len, by_partition.values())) == [1, 1]
    room = make_room(*(make_node(f"n{number}") for number in range(3)))
    running = [*partitions(1, 2, node="n2")[:1], make_pod("other", gpu=4, node="n0")]
    for pod in running:
        room.pod_changed(None, pod)
    [outcome] = plan(room, [gang(room, group, [*running[:1], partitions(1, 2)[1], *partitions(1, 2, first=1)])])
    assert isinstance(outcome, Plan)
    assert {pod.metadata.name: node for pod, node in outcome.nodes}["g-1"] == "n2"


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"matchLabelKeys": []}, id="by index where no label tells them apart"),
        pytest.param({"labelSelector": {"matchLabels": {"role": "none"}}}, id="a selector that chooses none"),
    ],
)
def test_how_pods_are_chosen(how: dict[str, Any]) -> None:
    room = racks(2, 2)
    group = make_group("g", 6, sub_groups=[policy(3, **how)])
    [outcome] = plan(room, [gang(room, group, partitions(2, 3))])
    split = racks_by_partition(outcome)
    chosen = "labelSelector" not in how
    assert (split == {"0": {"r0"}, "1": {"r1"}}) == chosen


def test_a_leader_and_its_workers_are_a_sub_group() -> None:
    room = racks(2, 2)
    pods = []
    for number in range(2):
        for role, gpu, index in (("leader", 8, 0), ("worker", 4, 0), ("worker", 4, 1)):
            pod = make_pod(f"g-{role}-{number}-{index}", group="g", task=role, index=2 * number + index, gpu=gpu)
            pod.metadata.labels[keys.PARTITION] = str(number)
            pods.append(pod)
    [outcome] = plan(room, [gang(room, make_group("g", 6, sub_groups=[policy(3)]), pods)])
    assert sorted(map(sorted, racks_by_partition(outcome).values())) == [["r0"], ["r1"]]


def test_a_topology_that_cannot_be_read_is_named() -> None:
    room = racks(1, 2)
    group = make_group("g", 2, sub_groups=[policy(2, topology={"mode": 7})])
    [outcome] = plan(room, [gang(room, group, partitions(1, 2))])
    assert_waits(outcome, NOT_ENOUGH_RESOURCES, "can't be read")


# -- slices in slices --------------------------------------------------------------------------------------------------

BLOCK = {"mode": "hard", "highestTierName": "block"}
LAYERS = [policy(4, name="w", topology=BLOCK, matchLabelKeys=[]), policy(2, name="w/1", matchLabelKeys=[])]


def blocks(room: Mapping[str, int]) -> Room:
    """Nodes `<block><rack><node>` with so many GPUs free, two nodes in each rack."""
    racks = {name[:2] for name in room}
    domains = [
        make_domain(rack, 1, [name for name in room if name.startswith(rack)], tier_name="rack")
        for rack in sorted(racks)
    ]
    for block in sorted({rack[0] for rack in racks}):
        inside = sorted(rack for rack in racks if rack[0] == block)
        domains.append(make_domain(block, 2, inside, of="HyperNode", tier_name="block"))
    made = make_room(*(make_node(name) for name in room), domains=domains)
    for name, free in room.items():
        if free < 8:
            made.pod_changed(None, make_pod(f"other-{name}", gpu=8 - free, node=name))
    return made


def workers(*numbers: int, **on: str) -> list[Pod]:
    """Pods of the gang by index, of 4 GPUs each; some are on nodes."""
    return [make_pod(f"g-{n}", group="g", index=n, gpu=4, node=on.get(f"g{n}", "")) for n in numbers]


def nodes_of(outcome: Plan | Wait) -> list[str]:
    assert isinstance(outcome, Plan), outcome
    found = {pod.metadata.name: node for pod, node in outcome.nodes}
    return [found[name] for name in sorted(found)]


def test_slices_of_a_rack_are_in_slices_of_a_block() -> None:
    """Each block has room for one slice of 4 pods; in block a it is in two racks of 3."""
    room = blocks({"a0x": 8, "a0y": 4, "a1x": 4, "a1y": 8, "b0x": 8, "b0y": 8, "b1x": 0, "b1y": 4})
    group = make_group("g", 8, sub_groups=LAYERS)
    [outcome] = plan(room, [gang(room, group, workers(*range(8)))])
    inner = [node[:2] for node in nodes_of(outcome)]
    assert inner[0::2] == inner[1::2], "each pair of pods is in one rack"
    assert sorted({rack[0] for rack in half} == {half[0][0]} for half in (inner[:4], inner[4:])) == [True, True]
    assert {rack[0] for rack in inner} == {"a", "b"}
    room = blocks({"a0x": 8, "a0y": 4, "a1x": 4, "a1y": 0, "b0x": 8, "b0y": 8, "b1x": 0, "b1y": 4})
    [outcome] = plan(room, [gang(room, group, workers(*range(8)))])
    assert_waits(outcome, NOT_ENOUGH_RESOURCES, "there is room for 4 of the 8 pods")


def test_a_pod_that_takes_the_place_of_a_lost_one_joins_its_inner_slice() -> None:
    """Pods 0, 1 and 2 run; 3 goes beside 2 though the rack of 0 and 1 would be the tighter gap."""

    def decided(**free: int) -> Plan | Wait:
        room = blocks(free)
        running = workers(0, 1, 2, g0="a0x", g1="a0x", g2="a1x")
        for pod in running:
            room.pod_changed(None, pod)
        group = make_group("g", 4, sub_groups=LAYERS)
        [outcome] = plan(room, [gang(room, group, [*running, *workers(3)])])
        return outcome

    assert nodes_of(decided(a0x=8, a0y=4, a1x=8, a1y=8))[0][:2] == "a1"
    assert_waits(decided(a0x=8, a0y=8, a1x=4, a1y=0), NOT_ENOUGH_RESOURCES)


def test_an_inner_slice_that_is_lost_comes_back_whole_in_the_block_of_its_fellows() -> None:

    def decided(**free: int) -> Plan | Wait:
        room = blocks(free)
        running = workers(0, 1, g0="a0x", g1="a0x")
        for pod in running:
            room.pod_changed(None, pod)
        group = make_group("g", 4, sub_groups=LAYERS)
        [outcome] = plan(room, [gang(room, group, [*running, *workers(2, 3)])])
        return outcome

    assert sorted(nodes_of(decided(a0x=8, a0y=4, a1x=4, a1y=0, a2x=4, a2y=4, b0x=8))) == ["a2x", "a2y"]
    assert_waits(decided(a0x=8, a0y=4, a1x=4, a1y=0, a2x=4, a2y=0, b0x=8), NOT_ENOUGH_RESOURCES)


def test_policies_that_divide_by_other_labels_or_sizes_are_no_slices_in_slices() -> None:
    room = blocks({"a0x": 4, "a0y": 0, "b0x": 8, "b0y": 4})
    other = [LAYERS[0], {**LAYERS[1], "subGroupSize": 3}, {**LAYERS[1], "labelSelector": {"matchLabels": {"a": "b"}}}]
    [outcome] = plan(room, [gang(room, make_group("g", 3, sub_groups=other), workers(0, 1, 2))])
    assert {node[0] for node in nodes_of(outcome)} == {"b"}


def test_indices_of_jobs_of_a_set_go_on_from_one_to_the_next() -> None:
    room = blocks({"a0x": 8, "a0y": 0, "b0x": 8, "b0y": 8})
    pods = workers(*range(4))
    for number, pod in enumerate(pods):
        indices = {"jobset.sigs.k8s.io/job-index": str(number // 2), keys.TASK_INDEX: str(number % 2)}
        pod.metadata.labels.update(indices)
        pod.metadata.annotations[keys.RANKS] = "2"
    group = make_group("g", 4, sub_groups=[policy(4, topology=RACK, matchLabelKeys=[])])
    [outcome] = plan(room, [gang(room, group, pods)])
    assert {node[:2] for node in nodes_of(outcome)} == {"b0"}
