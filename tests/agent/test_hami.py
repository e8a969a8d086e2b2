"""GPUs of nodes that HAMi manages: cards, annotations for its device plug-in, and the lock of the node."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from atoll.agent.objects import Node, Pod
from atoll.agent.scheduler.core import MemberCore
from atoll.agent.scheduler.core.events import NodeSet, PodGone, PodSet, Whose
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.model import hami
from tests.agent.builders import make_node, make_pod
from tests.agent.telling import Placing

GPU = "nvidia.com/gpu"
MEMORY, PERCENT, CORES = (f"nvidia.com/{name}" for name in ("gpumem", "gpumem-percentage", "gpucores"))


def register(*numbers: int, ill: tuple[int, ...] = (), mode: str = "hami-core") -> str:
    """GPUs of 24,000 MiB as HAMi 2.8 writes them, in this order."""
    about = {"count": 10, "devmem": 24_000, "devcore": 100, "type": "NVIDIA-L4", "mode": mode}
    return orjson.dumps(
        [{"id": f"GPU-{at}", **({"index": at} if at else {}), **about, "health": at not in ill} for at in numbers]
    ).decode()


def node(text: str, name: str = "n") -> Node:
    vgpus: dict[str, Any] = {GPU: "20"}
    made = make_node(name, **vgpus)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, annotations={hami.REGISTER: text})
    )


def pod(name: str, *containers: dict[str, Any], annotations: dict[str, str] | None = None, **more: Any) -> Pod:
    spec = {"containers": [{"name": f"c{at}", "resources": {"limits": each}} for at, each in enumerate(containers)]}
    made = make_pod(name, spec=spec, **more)
    return msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(
            made.metadata, annotations={**made.metadata.annotations, **(annotations or {})}
        ),
    )


class Core(Placing):
    """Reads registers of HAMi; pods come by name and containers."""

    def __init__(self, *, reads_hami: bool = True) -> None:
        super().__init__(MemberCore(MemberCoreSettings(hami=reads_hami)))

    def come(self, name: str, *containers: dict[str, Any]) -> Pod:
        made = pod(name, *containers)
        self.handle(PodSet(made, Whose.OURS))
        return made

    def cards_of(self, name: str) -> tuple[int, tuple[int, ...]]:
        return self.core.room.gpus.cards.of(f"default/{name}")

    def free(self) -> dict[str, int]:
        found = self.core.room.amounts.free("n")
        return {name: found[name] for name in (GPU, MEMORY, PERCENT, CORES)}


def test_parts_fill_cards_one_by_one() -> None:
    member = Core()
    member.handle(NodeSet(node(register(0, 1))))
    member.come("a", {GPU: "1", MEMORY: "6000"})
    member.come("b", {GPU: "1", PERCENT: "50", CORES: "70"})
    member.come("c", {GPU: "1", CORES: "10", PERCENT: "5"})
    assert [member.cards_of(name) for name in "abc"] == [(250, (0,)), (700, (0,)), (100, (1,))]
    member.come("both", {GPU: "2", MEMORY: "1200"})
    assert "default/both" not in member.bound, "card 0 has 50 thousandths, and a tenth is a split"
    member.handle(PodGone("default/a"))
    assert member.cards_of("both") == (100, (0, 1))


def test_whole_cards_and_parts_keep_apart_and_figures_follow_the_cards() -> None:
    member = Core()
    member.handle(NodeSet(node(register(0, 1))))
    assert member.free() == {GPU: 20, MEMORY: 48_000, PERCENT: 200, CORES: 200}
    member.come("whole", {GPU: "1"})
    assert member.cards_of("whole") == (1000, (0,))
    member.come("part", {GPU: "1", MEMORY: "12000"})
    assert member.cards_of("part") == (500, (1,))
    assert member.free() == {GPU: 5, MEMORY: 12_000, PERCENT: 50, CORES: 50}
    member.come("more", {GPU: "1"})
    assert "default/more" not in member.bound, "the node still has vGPUs, and no whole card"


def test_parts_of_several_cards_are_of_different_ones() -> None:
    member = Core()
    member.handle(NodeSet(node(register(0, 1, 2))))
    for at in range(3):
        member.come(f"p{at}", {GPU: "2", PERCENT: "50"})
    assert [member.cards_of(f"p{at}")[1] for at in range(3)] == [(0, 1), (0, 1), ()], "one card is left, and not two"
    member.come("one", {GPU: "1"})
    assert member.cards_of("one")[1] == (2,)


def test_the_annotations_give_each_container_its_cards() -> None:
    member = Core()
    member.handle(NodeSet(node(register(0, 1))))
    made = member.come("p", {"cpu": "1"}, {GPU: "1", MEMORY: "3000", CORES: "30"}, {GPU: "1", MEMORY: "5000"})
    notes = member.core.room.gpus.notes_of(made, "n")
    text = ";GPU-0,NVIDIA,3000,30:;GPU-1,NVIDIA,5000,0:;"
    assert notes[hami.TO_ALLOCATE] == notes[hami.ALLOCATED] == text
    assert (notes["hami.io/vgpu-node"], notes["hami.io/bind-phase"]) == ("n", "allocating")
    assert member.cards_of("p")[0] == 334, "each card has the sum of both: 8000 MiB"


def test_pods_that_hamis_scheduler_placed_hold_their_cards() -> None:
    member = Core()
    given = {hami.ALLOCATED: "GPU-1,NVIDIA,24000,0:;"}
    member.handle(NodeSet(node(register(0, 1))))
    theirs = pod("theirs", {GPU: "1"}, annotations=given, node="n", phase="Running", scheduler="hami-scheduler")
    member.handle(PodSet(theirs, Whose.OTHERS))
    assert member.cards_of("theirs") == (1000, (1,))
    member.come("ours", {GPU: "1"})
    assert member.cards_of("ours") == (1000, (0,))


def test_pods_keep_their_cards_when_the_node_registers_in_another_order_or_a_card_is_ill() -> None:
    member = Core()
    member.handle(NodeSet(node(register(0, 1))))
    member.come("a", {GPU: "1", PERCENT: "60"})
    member.come("b", {GPU: "1", PERCENT: "60"})
    assert (member.cards_of("a")[1], member.cards_of("b")[1]) == ((0,), (1,))
    member.handle(NodeSet(node(register(1, 0))))
    assert (member.cards_of("a")[1], member.cards_of("b")[1]) == ((0,), (1,))
    member.handle(NodeSet(node(register(1, 0, ill=(0,)))))
    assert member.cards_of("b")[1] == (1,)
    member.come("c", {GPU: "1", PERCENT: "40"})
    assert member.cards_of("c")[1] == (1,)
    member.come("d", {GPU: "1", PERCENT: "10"})
    assert "default/d" not in member.bound


def test_nodes_are_hamis_own_without_the_setting_and_cards_under_mig_too() -> None:
    asks = {GPU: "1", MEMORY: "1000"}
    for member, text in ((Core(reads_hami=False), register(0)), (Core(), register(0, mode="mig"))):
        member.handle(NodeSet(node(text)))
        member.come("p", asks)
        assert not member.bound


def test_a_pod_of_whole_cards_and_parts_gets_no_node() -> None:
    member = Core()
    member.handle(NodeSet(node(register(0, 1))))
    member.come("p", {GPU: "1"}, {GPU: "1", MEMORY: "1000"})
    assert not member.bound
