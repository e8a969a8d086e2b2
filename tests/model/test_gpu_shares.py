"""Parts of GPUs under every system's names are one arithmetic, and combinations that mean nothing are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from atoll.admission.pod_resources import gpu_share_problems
from atoll.fit.constraints import Cards
from atoll.kinds.metadata import task_of, template_for_member
from atoll.model import gpu_shares, needs
from atoll.model.gang import Task
from atoll.model.vector import pod_requests

GIB = 2**30
KOORD = "koordinator.sh/gpu"


def template(*containers: dict[str, str], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"annotations": annotations or {}},
        "spec": {"containers": [{"name": f"c{n}", "resources": {"limits": each}} for n, each in enumerate(containers)]},
    }


def shares(pod: dict[str, Any]) -> tuple[int, int]:
    """(thousandths, bytes) that a pod counts with on the host."""
    made = task_of("t", pod["spec"], replicas=1, min_available=1, annotations=pod["metadata"]["annotations"])
    return made.requests.get("atoll.sh/gpu-milli", 0), made.requests.get("atoll.sh/gpu-memory", 0)


MEANINGS = {
    "ours": (template({"atoll.sh/gpu-milli": "500"}), (500, 0)),
    "ours, by memory": (template({"atoll.sh/gpu-memory": "8Gi"}), (1, 8 * GIB)),
    "Koordinator, half": (template({f"{KOORD}-core": "50", f"{KOORD}-memory-ratio": "50"}), (500, 0)),
    "Koordinator, the larger part": (template({f"{KOORD}-core": "30", f"{KOORD}-memory-ratio": "50"}), (500, 0)),
    "Koordinator, by memory": (template({f"{KOORD}-core": "20", f"{KOORD}-memory": "8Gi"}), (200, 8 * GIB)),
    "Koordinator, memory alone": (template({f"{KOORD}-memory": "8Gi"}), (1, 8 * GIB)),
    "Koordinator, shared": (template({f"{KOORD}.shared": "1", f"{KOORD}-memory-ratio": "25"}), (250, 0)),
    "Koordinator, two cards": (template({f"{KOORD}-core": "200", f"{KOORD}-memory-ratio": "200"}), (2000, 0)),
    "Koordinator, a card": (template({KOORD: "100"}), (1000, 0)),
    "Koordinator, two containers": (
        template({f"{KOORD}-memory-ratio": "30"}, {f"{KOORD}-memory-ratio": "40"}),
        (700, 0),
    ),
    "KAI, a fraction": (template({}, annotations={"gpu-fraction": "0.5"}), (500, 0)),
    "KAI, rounded up": (template({}, annotations={"gpu-fraction": "0.3333"}), (334, 0)),
    "KAI, memory in MiB": (template({}, annotations={"gpu-memory": "2048"}), (1, 2 * GIB)),
    "HAMi counts by its own names": (template({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}), (0, 0)),
    "a MIG profile is a resource like others": (template({"nvidia.com/mig-1g.5gb": "1"}), (0, 0)),
}


@pytest.mark.parametrize("name", MEANINGS)
def test_a_name_means(name: str) -> None:
    pod, expected = MEANINGS[name]
    assert shares(pod) == expected
    assert not list(gpu_share_problems(pod, "spec.template"))


@pytest.mark.parametrize("name", MEANINGS)
def test_pods_of_a_member_ask_for_the_same(name: str) -> None:
    """An agent reads containers alone: annotations reach it as resources."""
    pod, expected = MEANINGS[name]
    found = pod_requests(template_for_member(pod)["spec"])
    assert (found.get("atoll.sh/gpu-milli", 0), found.get("atoll.sh/gpu-memory", 0)) == expected


REFUSED = {
    "one and a half": (template({"atoll.sh/gpu-milli": "1500"}), "multiple of 1000"),
    "one and a half by two containers": (template(*[{"atoll.sh/gpu-milli": "750"}] * 2), "multiple of 1000"),
    "two cards with memory": (template({"atoll.sh/gpu-milli": "2000", "atoll.sh/gpu-memory": "1Gi"}), "alone"),
    "core alone": (template({f"{KOORD}-core": "50"}), "legal are"),
    "memory twice": (template({f"{KOORD}-memory": "1Gi", f"{KOORD}-memory-ratio": "10"}), "legal are"),
    "120 percent": (template({f"{KOORD}-memory-ratio": "120"}), "multiples of 100"),
    "the vendor's name beside": (template({"nvidia.com/gpu": "1", f"{KOORD}-memory-ratio": "10"}), "legal are"),
    "parts of two cards": (template({f"{KOORD}.shared": "2", f"{KOORD}-memory-ratio": "100"}), "a part of one card"),
    "not equal": (template({f"{KOORD}.shared": "2", f"{KOORD}-memory-ratio": "25"}), "equal parts"),
    "two systems": (template({f"{KOORD}-memory-ratio": "10", "atoll.sh/gpu-milli": "100"}), "names of one"),
    "HAMi, memory twice": (
        template({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpumem-percentage": "10"}),
        "nvidia.com/gpumem or nvidia.com/gpumem-percentage",
    ),
    "HAMi, more cores than a card": (template({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "101"}), "up to 100"),
    "Volcano, more cores than a card": (template({"volcano.sh/vgpu-cores": "200"}), "up to 100"),
    "KAI, both": (template({}, annotations={"gpu-fraction": "0.5", "gpu-memory": "1"}), "one of them"),
    "KAI, more than a card": (template({}, annotations={"gpu-fraction": "1.5"}), "such as 0.5"),
    "KAI, of several cards": (
        template({}, annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}),
        "of one card",
    ),
    "KAI, no number": (template({}, annotations={"gpu-memory": "1Gi"}), "MiB"),
    "KAI, with a whole card": (template({"nvidia.com/gpu": "1"}, annotations={"gpu-fraction": "0.5"}), "alone"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_combination_is_refused_with_the_legal_ones(name: str) -> None:
    pod, words = REFUSED[name]
    [problem] = gpu_share_problems(pod, "spec.template")
    assert words in str(problem)


def test_a_bad_combination_that_reached_a_member_fits_nowhere() -> None:
    found = pod_requests(template({f"{KOORD}-core": "50"})["spec"])
    room = Cards(np.array([[1000, 1000]])).room(Task("t", 1, 1, found), 1)
    assert room is not None
    assert room.tolist() == [0]


@pytest.mark.parametrize(
    ("limits", "need"),
    [
        pytest.param({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}, "hami-gpu-shares", id="HAMi"),
        pytest.param({"volcano.sh/vgpu-number": "1"}, "volcano-vgpu", id="Volcano"),
        pytest.param({f"{KOORD}-memory-ratio": "30"}, None, id="Koordinator"),
        pytest.param({"koordinator.sh/rdma": "1"}, "koordinator-devices", id="Koordinator's NICs"),
        pytest.param({"nvidia.com/gpu": "1"}, None, id="whole cards"),
    ],
)
def test_shares_that_only_their_own_scheduler_hands_over_are_a_need(limits: dict[str, str], need: str | None) -> None:
    assert needs.of([template(limits)["spec"]]) == ([need] if need else [])


def test_memory_takes_its_part_of_the_cards_of_each_node() -> None:
    """8Gi is half of a card of 16Gi, a tenth of one of 80Gi, and nothing where the memory is not known."""
    task = Task("t", 9, 1, pod_requests(template({"atoll.sh/gpu-memory": "8Gi"})["spec"]))
    there = Cards(np.array([[1000], [1000], [1000]]), np.array([16 * GIB, 80 * GIB, 0]))
    room = there.room(task, 3)
    assert room is not None
    assert room.tolist() == [2, 10, 0]
    there.take(task, 0, 1)
    there.take(task, 1, 1)
    assert there.free.tolist() == [[500], [900], [1000]]


_RECORD = "GPU-0,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true,0,{}:"


@pytest.mark.parametrize(
    ("node", "koordlet", "words"),
    [
        ({"metadata": {"annotations": {"hami.io/node-nvidia-register": _RECORD.format("mps")}}}, False, "HAMi (mps)"),
        (
            {"metadata": {"annotations": {"hami.io/node-nvidia-register": _RECORD[:-6] + ":"}}},
            False,
            "HAMi (hami-core)",
        ),
        ({"metadata": {"annotations": {"hami.io/node-nvidia-register": _RECORD[:40]}}}, False, "HAMi (unknown)"),
        ({"status": {"allocatable": {"nvidia.com/mig-1g.5gb": "7"}}}, False, "MIG"),
        ({"metadata": {"labels": {"nvidia.com/gpu.sharing-strategy": "mps"}}}, False, "MPS"),
        ({"metadata": {"labels": {"nvidia.com/gpu.sharing-strategy": "time-slicing"}}}, False, "none"),
        ({"status": {"allocatable": {"atoll.sh/gpu-milli": "8000"}}}, False, "not known"),
        ({}, True, "koordlet"),
        ({"status": {"allocatable": {"nvidia.com/gpu": "8"}}}, False, ""),
    ],
    ids=[
        "HAMi by MPS",
        "HAMi of old",
        "no record of HAMi",
        "MIG",
        "MPS",
        "time slices",
        "ours",
        "Koordinator",
        "whole cards",
    ],
)
def test_who_keeps_pods_apart_is_read_from_the_node(node: dict[str, Any], koordlet: bool, words: str) -> None:
    found = gpu_shares.isolation(node, koordlet=koordlet)
    assert found.startswith(words)
    assert bool(found) == bool(words)


CHARGES = {
    "a whole card": ({"nvidia.com/gpu": 2}, 2000),
    "of another vendor": ({"amd.com/gpu": 1}, 1000),
    "of Intel": ({"gpu.intel.com/i915": 1}, 1000),
    "ours": ({"atoll.sh/gpu-milli": 500}, 500),
    "ours, by memory: the card's size is not known": ({"atoll.sh/gpu-milli": 1, "atoll.sh/gpu-memory": 8 * GIB}, 1000),
    "HAMi, percent of memory": ({"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 30}, 2000),
    "HAMi, MiB": ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1, "nvidia.com/gpucores": 1}, 1000),
    "HAMi, no memory is all of it": ({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 1}, 1000),
    "Volcano": ({"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory-percentage": 25}, 2000),
    "Koordinator comes with ours": ({f"{KOORD}-core": 50, f"{KOORD}-memory-ratio": 50, "atoll.sh/gpu-milli": 500}, 500),
    "Koordinator by cards": ({KOORD: 100, "atoll.sh/gpu-milli": 1000}, 1000),
    "MIG": ({"nvidia.com/mig-3g.20gb": 2}, 2 * 429),
    "MIG, a name that is no profile": ({"nvidia.com/mig-x": 1}, 1000),
    "MIG, with its flavor": ({"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-1g.5gb@a100": 1}, 143),
    "time slices": ({"nvidia.com/gpu.shared": 1}, 1000),
    "no GPU": ({"cpu": 4000, "nvidia.com/driver": 1}, 0),
}


@pytest.mark.parametrize("name", CHARGES)
def test_every_name_is_charged_as_thousandths_of_cards(name: str) -> None:
    requests, expected = CHARGES[name]
    assert gpu_shares.charge(requests).get("atoll.sh/any-gpu-milli", 0) == expected


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_small_part_beside_whole_card_does_not_make_it_cheaper(field: str) -> None:
    whole = {"resources": {"requests": {"nvidia.com/gpu": "1"}}}
    part = {"resources": {"requests": {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "1"}}}
    pod: dict[str, Any] = {"containers": [whole]}
    pod[field] = [*pod.get(field, []), part]
    assert gpu_shares.charge(pod_requests(pod))["atoll.sh/any-gpu-milli"] >= 1000


@pytest.mark.parametrize("name", ["nvidia.com/gpumem", "nvidia.com/gpucores", "volcano.sh/vgpu-memory"])
def test_part_without_number_of_cards_is_refused(name: str) -> None:
    """HAMi's webhook would add a card that no queue is charged for."""
    with pytest.raises(gpu_shares.BadShare, match="without"):
        gpu_shares.check([{name: 50}], {})
    assert gpu_shares.of_container({name: 50}) == {"atoll.sh/gpu-milli": 1001}
