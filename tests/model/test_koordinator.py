"""Koordinator's Device objects are read as GPUs, and pods get its annotation for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.admission.trust import template_problems
from atoll.kinds.metadata import template_for
from atoll.model import joint, keys, koordinator
from atoll.model.gang import DeviceHint, DeviceWish, GpuPartitionSpec
from atoll.model.placer import MadeFor, Placer, Unplaceable
from atoll.model.vector import pod_requests

TOTAL = 85198045184
KOORD = "koordinator.sh/gpu"


def device(minors: range = range(8), *, ill: tuple[int, ...] = ()) -> dict[str, Any]:
    """The spec of the Device of a node with such GPUs and a NIC."""
    devices: list[dict[str, Any]] = [
        {
            "type": "gpu",
            "minor": minor,
            "id": f"GPU-{minor}",
            "health": minor not in ill,
            "resources": {f"{KOORD}-core": "100", f"{KOORD}-memory-ratio": "100", f"{KOORD}-memory": str(TOTAL)},
        }
        for minor in minors
    ]
    return {"devices": [*devices, {"type": "rdma", "minor": 1, "health": True, "id": "0000:1f:00.0"}]}


def annotation(part: int, *which: int, **limits: str) -> list[dict[str, Any]]:
    pod = {"containers": [{"resources": {"limits": {f"{KOORD}{name}": each for name, each in limits.items()}}}]}
    asked = pod_requests(pod) if limits else {"atoll.sh/gpu-milli": part * len(which)}
    found: list[dict[str, Any]] = json.loads(koordinator.allocated(koordinator.devices(device()), which, part, asked))[
        "gpu"
    ]
    return found


def amounts(**named: int) -> dict[str, str]:
    return {f"{KOORD}-{name.replace('_', '-')}": str(amount) for name, amount in named.items()}


def test_two_whole_cards_are_written_as_koordinator_does() -> None:
    whole = amounts(core=100, memory_ratio=100, memory=TOTAL)
    expected = [{"minor": minor, "id": f"GPU-{minor}", "resources": whole} for minor in (0, 1)]
    assert annotation(1000, 0, 1, **{"-core": "200", "-memory-ratio": "200"}) == expected
    assert annotation(1000, 0, 1, **{"": "200"}) == expected
    assert annotation(1000, 0, 1) == expected, "by Atoll's own name"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"-core": "50", "-memory-ratio": "25"}, amounts(core=50, memory_ratio=25, memory=TOTAL // 4)),
        ({"-memory-ratio": "25"}, amounts(memory_ratio=25, memory=TOTAL // 4)),
        ({"-core": "10", "-memory": "8Gi"}, amounts(core=10, memory_ratio=10, memory=8 * 2**30)),
        ({}, amounts(core=33, memory_ratio=33, memory=TOTAL * 333 // 1000)),
    ],
    ids=["core and ratio", "ratio", "bytes", "ours"],
)
def test_a_part_of_a_card_fills_the_missing_amount_from_its_total(
    limits: dict[str, str], expected: dict[str, str]
) -> None:
    [entry] = annotation(333, 3, **limits)
    assert entry["minor"] == 3
    assert entry["resources"] == expected


def test_only_healthy_gpus_are_offered() -> None:
    there = koordinator.devices(device(ill=(0, 5)))
    assert sorted(there["gpu"]) == [1, 2, 3, 4, 6, 7]
    assert koordinator.offered(there) == {"atoll.sh/gpu-milli": 6000, "atoll.sh/gpu-memory": 6 * TOTAL}


@pytest.mark.parametrize(
    "spec",
    [{}, {"devices": None}, {"devices": [1, {"type": "gpu", "health": True, "minor": -1}, {"type": "gpu"}]}],
)
def test_what_can_not_be_read_is_no_gpu(spec: dict[str, Any]) -> None:
    assert koordinator.devices(spec) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"gpu": [{"minor": "x"}]}', '{"gpu": [{"minor": 4000}]}', '{"rdma": []}'])
def test_an_annotation_without_gpus_names_none(text: str) -> None:
    assert koordinator.minors(text) == ()


def test_an_annotation_is_read_back() -> None:
    text = koordinator.allocated(koordinator.devices(device()), (2, 7), 1000, {"atoll.sh/gpu-milli": 2000})
    assert koordinator.minors(text) == (2, 7)


def test_a_placer_that_hands_nothing_over_refuses_koordinators_names() -> None:
    template: Any = {"spec": {"containers": [{"name": "c", "resources": {"limits": {f"{KOORD}-memory-ratio": "50"}}}]}}
    with pytest.raises(Unplaceable, match="no devices"):
        template_for(template, MadeFor(Placer.VOLCANO))
    assert template_for(template, MadeFor(Placer.ATOLL))["spec"]["containers"]
    asked: list[Any] = [
        {"metadata": {"annotations": {key: "{}"}}, "spec": {"containers": [{"name": "c"}]}} for key in joint.WISHES
    ]
    template["spec"]["containers"][0]["resources"] = {"limits": {"koordinator.sh/rdma": "1"}}
    for each in (template, *asked):
        with pytest.raises(Unplaceable, match="no devices"):
            template_for(each, MadeFor(Placer.KUBE_SCHEDULER))


@pytest.mark.parametrize("key", [keys.KOORDINATOR_DEVICES, "atoll.sh/gpu-cards", "hami.io/vgpu-devices-to-allocate"])
def test_a_tenant_can_not_give_itself_devices(key: str) -> None:
    [problem] = template_problems({"metadata": {"annotations": {key: "0"}}, "spec": {}}, "spec.template")
    assert key in str(problem)


def problems(asked: dict[str, str], **notes: object) -> str:
    """Of a pod with such requests, and annotations `joint`, `hint` and `partition`."""
    keys_of = {"joint": joint.JOINT, "hint": joint.HINT, "partition": joint.PARTITION}
    named = {keys_of[name]: json.dumps(each) for name, each in notes.items()}
    spec = {"containers": [{"name": "c", "resources": {"limits": asked}}]}
    found = template_problems({"metadata": {"annotations": named}, "spec": spec}, "spec.template")
    return "; ".join(map(str, found))


PAIR = {"nvidia.com/gpu": "2", "koordinator.sh/rdma": "1"}


def test_joint_wishes_are_read() -> None:
    notes = {
        joint.JOINT: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
        joint.HINT: '{"rdma":{"vfSelector":{"matchLabels":{"type":"general"}}}}',
    }
    wish = joint.of(notes, {"nvidia.com/gpu": 2})
    assert wish == DeviceWish(
        ["gpu", "rdma"], True, {"rdma": DeviceHint(vf_selector={"matchLabels": {"type": "general"}})}
    )
    assert not problems(PAIR, joint=json.loads(notes[joint.JOINT]), hint=json.loads(notes[joint.HINT]))
    assert joint.of({}, {"nvidia.com/gpu": 2}) is None
    spec = {joint.PARTITION: '{"allocatePolicy":"Restricted","ringBusBandwidth":"200Gi"}'}
    assert joint.of(spec, {"nvidia.com/gpu": 2}) == DeviceWish(partition=GpuPartitionSpec(True, 200 * 2**30))
    assert not problems(PAIR, partition={})
    assert joint.of({}, {"koordinator.sh/rdma": 1}) == DeviceWish()


@pytest.mark.parametrize(
    ("asked", "notes", "words"),
    [
        (PAIR, {"joint": {"deviceTypes": ["gpu", "nic"]}}, "Invalid enum value 'nic'"),
        (PAIR, {"joint": {"deviceTypes": ["rdma", "gpu"]}}, "gpu not first"),
        (PAIR, {"joint": {"deviceTypes": ["gpu", "gpu"]}}, "one twice"),
        (PAIR, {"joint": {"deviceTypes": []}}, "name none"),
        (PAIR, {"joint": {"deviceTypes": ["gpu"], "requiredScope": "SameNUMA"}}, "SameNUMA"),
        (PAIR, {"joint": {"types": ["gpu"]}}, "unknown field"),
        (PAIR, {"hint": {"nic": {}}}, "nic"),
        (PAIR, {"hint": {"rdma": {"exclusivePolicy": "Always"}}}, "exclusivePolicy (DeviceLevel, PCIeLevel)"),
        (PAIR, {"hint": {"rdma": {"allocateStrategy": "All"}}}, "ApplyForAll, RequestsAsCount"),
        (PAIR, {"hint": {"rdma": {"requiredTopologyScope": "PCIe"}}}, "rdma has a field that is not for it"),
        (PAIR, {"hint": {"gpu": {"vfSelector": {}}}}, "gpu has a field that is not for it"),
        (PAIR, {"hint": {"rdma": {"selector": {"matchLabels": 1}}}}, "label selector"),
        (PAIR, {"hint": {"rdma": {"selector": {"matchLabels": {"a": "b" * 5000}}}}}, "4096 is the most"),
        ({"cpu": "1"}, {"joint": {"deviceTypes": ["gpu", "rdma"]}}, "the pod asks for none"),
        ({"koordinator.sh/rdma": "150"}, {}, "no multiple"),
        (PAIR, {"partition": {"allocatePolicy": "Honor"}}, "legal are allocatePolicy (Restricted, BestEffort)"),
        (PAIR, {"partition": {"ringBusBandwidth": "fast"}}, "ringBusBandwidth, a quantity such as 200Gi"),
        (PAIR, {"partition": {"size": 2}}, "unknown field"),
        ({"koordinator.sh/rdma": "1"}, {"partition": {}}, "the pod asks for none"),
        ({"atoll.sh/gpu-milli": "500"}, {"partition": {}}, "parts of GPUs are in no partition"),
    ],
)
def test_bad_wishes_are_refused_with_the_legal_ones(asked: dict[str, str], notes: dict[str, Any], words: str) -> None:
    assert words in problems(asked, **notes)


def test_other_devices_are_written_and_read_back() -> None:
    parts = (koordinator.Part("rdma", 1, 1, "0000:1f:00.2"), koordinator.Part("rdma", 2, 100, "0000:90:00.3", 1))
    text = koordinator.allocated(koordinator.devices(device()), (0,), 1000, {"nvidia.com/gpu": 1}, parts)
    assert json.loads(text)["rdma"] == [
        {"minor": 1, "id": "0000:1f:00.0", "resources": {"koordinator.sh/rdma": "1"}, "extension": {"vfs": [{"busID": "0000:1f:00.2"}]}},
        {"minor": 2, "resources": {"koordinator.sh/rdma": "100"}, "extension": {"vfs": [{"busID": "0000:90:00.3", "minor": 1}]}},
    ]  # fmt: skip
    assert koordinator.others(text) == parts
    assert koordinator.others("x") == koordinator.others('{"rdma": [{"minor": "1"}]}') == ()
