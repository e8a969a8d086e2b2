"""Images that nodes have already: of equally good nodes those with them, and a preference of pods that go one by one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.agent.objects import Node, Pod, decode_node
from atoll.agent.scheduler.core import Bind
from atoll.agent.scheduler.core.events import NodeSet, PodGone, PodSet, Whose
from tests.agent.builders import make_node, make_pod
from tests.agent.telling import core_of, gang, of, settle

MI = 1024 * 1024
BIG = "registry.example.com/train:2"


def node(name: str, *, cpu: str = "8", labels: dict[str, str] | None = None, **images: int) -> Node:
    """One that has these images, by the last part of their name, in MiB."""
    there = [
        {"names": [f"registry.example.com/{each}@sha256:{'0' * 64}", f"registry.example.com/{each}:2"], "sizeBytes": size * MI}
        for each, size in images.items()
    ]  # fmt: skip
    offer = {"cpu": cpu, "memory": "16Gi", "pods": "10"}
    status = {"allocatable": offer, "conditions": [{"type": "Ready", "status": "True"}], "images": there}
    meta = {"name": name, "uid": name, "labels": labels or {}}
    return decode_node(orjson.dumps({"metadata": meta, "status": status}))


def pod(name: str, *, image: str = BIG, **more: Any) -> Pod:
    spec = {
        "containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": "4"}}}],
        **more.pop("spec", {}),
    }
    return make_pod(name, spec=spec, **more)


def chosen(nodes: list[Node], *pods: Pod) -> set[str]:
    core = core_of(*nodes)
    if pods[0].group:
        gang(core, "g", *pods)
    else:
        for each in pods:
            core.handle(PodSet(each, Whose.OURS))
    return {node for each in of(Bind, settle(core)) for _, _, node in each.pods}


def test_of_equal_nodes_a_pod_takes_the_one_with_its_image() -> None:
    assert chosen([node("a"), node("b", other=900), node("c", train=900)], pod("p")) == {"c"}


def test_an_image_that_a_node_gets_later_counts_for_the_next_pod() -> None:
    core = core_of(node("a"), node("b"))
    core.handle(PodSet(pod("p"), Whose.OURS))
    [first] = of(Bind, settle(core))
    core.handle(PodGone("default/p"))
    core.handle(NodeSet(node("b", train=900)))
    core.handle(PodSet(pod("q"), Whose.OURS))
    [second] = of(Bind, settle(core))
    assert [each.pods[0][2] for each in (first, second)] == ["a", "b"]


def test_a_gang_takes_the_nodes_with_its_image() -> None:
    nodes = [node("a"), node("b", train=900), node("c"), node("d", train=900)]
    assert chosen(nodes, *(pod(f"p{n}", group="g", index=n) for n in range(4))) == {"b", "d"}


def test_a_tighter_gap_is_worth_more_than_an_image() -> None:
    assert chosen([node("a", train=900), node("b", cpu="4")], pod("p")) == {"b"}


@pytest.mark.parametrize("size", [0, 20], ids=["none", "one that is soon pulled"])
def test_without_large_images_the_first_by_name_is_taken(size: int) -> None:
    assert chosen([node("a"), node("b", train=size)], pod("p")) == {"a"}


def test_an_image_without_a_tag_is_the_latest() -> None:
    there = {"names": ["train:latest"], "sizeBytes": 500 * MI}
    body = {"metadata": {"name": "b", "uid": "b"}, "status": {"allocatable": {"cpu": "8", "memory": "1Gi", "pods": "9"},
            "conditions": [{"type": "Ready", "status": "True"}], "images": [there]}}  # fmt: skip
    assert chosen([node("a"), decode_node(orjson.dumps(body))], pod("p", image="train")) == {"b"}


def test_an_image_is_weighed_with_what_else_a_pod_prefers() -> None:
    """The score of the image: 900 MiB on one node of two count 450; (450 - 23) * 100 / (1000 - 23) is 43.

    1. A preference among values that differ is worth 200, more than the image. 2. Where it says nothing, the image
    decides.
    """

    def preferring(*values: str) -> dict[str, Any]:
        term = {
            "weight": 1,
            "preference": {"matchExpressions": [{"key": "z", "operator": "In", "values": list(values)}]},
        }
        return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}

    nodes = [node("a", labels={"z": "a"}), node("b", labels={"z": "b"}, train=900)]
    assert chosen(nodes, pod("p", spec=preferring("a"))) == {"a"}
    assert chosen(nodes, pod("p", spec=preferring("a", "b"))) == {"b"}


def test_images_that_come_later_count() -> None:
    core = core_of(make_node("a"), make_node("b"))
    settle(core)
    core.handle(NodeSet(node("b", cpu="8", train=900)))
    core.handle(NodeSet(node("a", cpu="8")))
    core.handle(PodSet(pod("p"), Whose.OURS))
    assert [each.pods[0][2] for each in of(Bind, settle(core))] == ["b"]
