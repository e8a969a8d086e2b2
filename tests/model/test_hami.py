"""What HAMi's device plug-in registers of a node's GPUs, and what it reads."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.admission import trust
from atoll.admission.pods import template_warnings
from atoll.model import cards, gpu_shares, hami
from atoll.model.hami import Container, Gpu

GPU, MEMORY, PERCENT, CORES = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)
V100 = "NVIDIA-Tesla V100-PCIE-32GB"
JSON = {"id": "GPU-a", "count": 10, "devmem": 32768, "devcore": 100, "type": V100, "numa": 1, "health": True}

REGISTERS = {
    "seven fields, before 2.5": (f"GPU-a,10,32768,100,{V100},1,true:", {0: Gpu("GPU-a", 10, 32768, 100, V100, 1)}),
    "nine fields, before 2.8": (
        f"GPU-b,10,32768,100,{V100},0,false,1,mps:GPU-a,10,32768,100,{V100},1,true,0,hami-core:",
        {1: Gpu("GPU-b", 10, 32768, 100, V100, 0, "mps", False), 0: Gpu("GPU-a", 10, 32768, 100, V100, 1)},
    ),
    "JSON leaves zeros and false out": (
        orjson.dumps([{**JSON, "mode": "hami-core"}, {"id": "GPU-b", "index": 3, "devmem": 5, "mode": "mig"}]).decode(),
        {0: Gpu("GPU-a", 10, 32768, 100, V100, 1), 3: Gpu("GPU-b", 0, 5, 0, mode="mig", healthy=False)},
    ),
    "without indices the UUIDs number them": (
        f"GPU-b,10,1,100,{V100},0,true:GPU-a,10,1,100,{V100},0,true:",
        {0: Gpu("GPU-a", 10, 1, 100, V100), 1: Gpu("GPU-b", 10, 1, 100, V100)},
    ),
    "what can't be read is left out": (
        orjson.dumps([3, {"id": 4}, {**JSON, "devmem": -1}, {**JSON, "count": 2**31}, {**JSON, "id": "a;b"}]).decode(),
        {},
    ),
    "no JSON": ("[{", {}),
    "nothing": ("", {}),
    "too long": (orjson.dumps([JSON, {"type": "x" * 70_000}]).decode(), {}),
    "too many": (orjson.dumps([{**JSON, "id": f"GPU-{at}"} for at in range(65)]).decode(), {}),
}


@pytest.mark.parametrize("case", REGISTERS)
def test_the_register_of_a_node(case: str) -> None:
    text, wanted = REGISTERS[case]
    assert hami.registered(text) == wanted


@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda raw: f"[{raw.decode('latin-1')}]"))
def test_any_text_is_read(text: str) -> None:
    assert len(hami.registered(text)) <= cards.MOST_CARDS
    assert isinstance(hami.given(text, {0: Gpu("GPU-a", 1, 1, 1)}), tuple)


def test_cards_that_are_ill_cordoned_or_divided_by_mig_are_not_given() -> None:
    there = {at: Gpu(f"GPU-{at}", 10, 1, 100) for at in range(5)}
    there[1] = there[1]._replace(healthy=False)
    there[2] = there[2]._replace(mode="mig")
    there[3] = there[3]._replace(splits=0)
    assert [*hami.usable(there, " GPU-4,GPU-9")] == [0]


@given(
    # A percent of the memory is a mebibyte at least: HAMi would take 0 for the whole card.
    st.builds(Gpu, st.just("GPU-a"), st.integers(1, 20), st.integers(100, 90_000), st.integers(0, 300)),
    st.lists(
        st.fixed_dictionaries(
            {GPU: st.just(1)},
            optional={
                MEMORY: st.integers(1, 90_000),
                PERCENT: st.integers(1, 100),
                CORES: st.integers(1, 100),
            },
        ),
        max_size=30,
    ),
)
def test_pods_of_one_card_never_exceed_its_memory_cores_or_splits(gpu: Gpu, pods: list[dict[str, int]]) -> None:
    """HAMi's own rules: `Fit` in its `pkg/device/nvidia/device.go`."""
    free, memory, cores, splits = cards.CARD, 0, 0, 0
    for requests in pods:
        amount, count = hami.asked(requests, {0: gpu})
        if amount > free:
            continue
        assert count == 1
        free -= amount
        text = hami.allocated({0: gpu}, (0,), [hami.container(requests)], "n")[hami.ALLOCATED]
        _, kind, mebibytes, _ = text.rstrip(":;").split(",")
        assert kind == "NVIDIA"
        memory, splits = memory + int(mebibytes), splits + 1
        cores += requests.get(CORES, 0)
        assert hami.given(text, {0: gpu})[0] <= amount
    assert memory <= gpu.memory
    assert splits <= gpu.splits
    assert cores <= (gpu.cores or cores)


def test_containers_get_cards_in_their_order_and_init_containers_before_them_the_same() -> None:
    there = {at: Gpu(f"GPU-{at}", 10, 1000, 100) for at in range(3)}
    pod = [
        Container(1, memory=100, ends=True),
        Container(1, percent=10),
        Container(),
        Container(2, memory=200, cores=5),
    ]
    text = hami.allocated(there, (0, 1, 2), pod, "n")[hami.TO_ALLOCATE]
    assert text == "GPU-0,NVIDIA,100,0:;GPU-0,NVIDIA,100,0:;;GPU-1,NVIDIA,200,5:GPU-2,NVIDIA,200,5:;"
    assert hami.given(text, there) == (200, (0, 1, 2))
    whole = hami.allocated(there, (2,), [Container(1)], "n")[hami.TO_ALLOCATE]
    assert whole == "GPU-2,NVIDIA,1000,100:;"


def test_whole_gpus_beside_parts_are_refused() -> None:
    gpu_shares.check([{GPU: 1, MEMORY: 1}, {GPU: 2, PERCENT: 5}, {"cpu": 1}], {})
    with pytest.raises(gpu_shares.BadShare, match="in each, or in none"):
        gpu_shares.check([{GPU: 1, MEMORY: 1}, {GPU: 1}], {})


def test_the_lock_of_a_node() -> None:
    assert hami.locked("2026-11-29T04:00:00Z,team,p") == ("2026-11-29T04:00:00Z", "team/p")
    assert hami.locked("2026-11-29T04:00:00Z") == ("2026-11-29T04:00:00Z", "")
    assert hami.locked("") == ("", "")


def test_admission_warns_of_wishes_that_only_hamis_scheduler_heeds_and_refuses_forged_devices() -> None:
    template = {"metadata": {"annotations": {"nvidia.com/use-gputype": "A100", "hami.io/vgpu-node": "n"}}, "spec": {}}
    [warning] = template_warnings(template, "t")
    assert "only where HAMi's scheduler places" in warning.message
    [problem] = trust.template_problems(template, "t")
    assert problem.field == "t.metadata.annotations[hami.io/vgpu-node]"
