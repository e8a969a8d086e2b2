"""How many pods of the claims that the host asks about fit on each node, as figures of a member say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.agent.capacity import MemberCapacity
from atoll.agent.scheduler.core import MemberCore, device_book
from atoll.agent.scheduler.core.events import ResourceClaimGone
from atoll.model import claim_shapes
from atoll.model.claim_shapes import name_of, shape_of
from atoll.model.device_claims import class_resource
from tests.agent.builders import make_node
from tests.agent.claiming import GPU, PAIR, allocation, claim, publish, reserved, two_nodes, with_classes
from tests.agent.telling import core_of

Json = dict[str, Any]
OF_PAIR = shape_of([{"name": "any", "spec": {"devices": PAIR}}])
OF_GPU = shape_of([{"name": "any", "spec": {"devices": GPU}}])
PAIRS, GPUS = name_of(OF_PAIR), name_of(OF_GPU)


def asked(core: MemberCore, *shapes: claim_shapes.Shape) -> MemberCapacity:
    capacity = MemberCapacity("alpha", core.room)
    capacity.ask(claim_shapes.decode(claim_shapes.encode({name_of(each): each for each in shapes})))
    return capacity


def free(capacity: MemberCapacity) -> dict[str, Json]:
    """By node."""
    return {
        name: each["free"] for spec in capacity.specs().values() for each in spec["classes"] for name in each["names"]
    }


def test_devices_that_do_not_go_together_fit_no_pod() -> None:
    core = with_classes(core_of(make_node("a"), make_node("b")))
    publish(core, "a", ("gpu", "0"), ("nic", "1"))
    publish(core, "b", ("gpu", "0"), ("nic", "0"))
    found = free(asked(core, OF_PAIR, OF_GPU))
    assert {name: each[PAIRS] for name, each in found.items()} == {"a": 0, "b": 1}
    assert {name: each[GPUS] for name, each in found.items()} == {"a": 1, "b": 1}
    assert found["a"][class_resource("gpu")] == found["a"][class_resource("nic")] == 1


def test_figures_follow_claims() -> None:
    core = two_nodes()
    capacity = asked(core, OF_PAIR)
    assert {name: each[PAIRS] for name, each in free(capacity).items()} == {"a": 2, "b": 2}
    claim(core, "c", PAIR, allocation=allocation("a", "gpu-0"), reservedFor=reserved("p"))
    assert {name: each[PAIRS] for name, each in free(capacity).items()} == {"a": 1, "b": 2}
    core.handle(ResourceClaimGone("default/c"))
    assert {name: each[PAIRS] for name, each in free(capacity).items()} == {"a": 2, "b": 2}


def test_a_node_without_devices_and_a_shape_that_nobody_asked_about_are_not_spoken_of() -> None:
    core = with_classes(core_of(make_node("a"), make_node("b")))
    publish(core, "a", ("gpu", "0"))
    capacity = asked(core, OF_PAIR)
    assert free(capacity)["a"][PAIRS] == 0
    assert PAIRS not in free(capacity)["b"]
    assert GPUS not in free(capacity)["a"]
    assert capacity.ask({})
    assert not any(map(claim_shapes.is_shape, free(capacity)["a"]))


def test_counting_goes_on_where_a_publication_had_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_book, "_EFFORT_ASIDE", 1)
    core = two_nodes()
    capacity = asked(core, OF_PAIR)
    first = free(capacity)
    assert sum(PAIRS in each for each in first.values()) < 2
    assert capacity.unfinished
    for _ in range(10):
        found = free(capacity)
    assert [each[PAIRS] for each in found.values()] == [2, 2]
    assert not capacity.unfinished


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["gpu", "nic"]), st.sampled_from("012")), max_size=8), st.integers(1, 3))
def test_as_many_pods_are_placed_as_the_figures_say(devices: list[tuple[str, str]], nodes: int) -> None:
    core = with_classes(core_of(*(make_node(f"n{number}") for number in range(nodes))))
    for number in range(nodes):
        publish(core, f"n{number}", *devices)
    found = sum(each.get(PAIRS, 0) for each in free(asked(core, OF_PAIR)).values())
    roots = [{root for kind, root in devices if kind == each} for each in ("gpu", "nic")]
    exact = sum(min(devices.count(("gpu", root)), devices.count(("nic", root))) for root in roots[0] & roots[1])
    assert found == exact * nodes
