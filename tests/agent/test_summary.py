"""The summary of a member: small, and never too optimistic."""

from __future__ import annotations

import copy
import dataclasses
import random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.agent.capacity import MemberCapacity
from atoll.agent.summary import (
    MANY_CARRIERS,
    MAX_BYTES,
    MAX_CLASSES,
    MAX_LOST,
    MAX_LOST_NAMES,
    MAX_NAMES,
    NodeRoom,
    Summary,
    object_name,
)
from atoll.api.atoll import ClusterCapacity
from atoll.model.topology import Domain, Tree
from atoll.model.vector import MOST_ON_NODE
from tests.agent import builders

GI = 2**30
OFFER = {"cpu": 64_000, "memory": 512 * GI, "nvidia.com/gpu": 8, "pods": 110}
TREE = Tree([Domain("top", 2, tier_name="block"), Domain("rack-a", 1, 0), Domain("rack-b", 1, 0)])


def make_room(name: str, *, lowest: int = -1, labels: dict[str, str] | None = None, **free: int) -> NodeRoom:
    named = {"nvidia.com/gpu" if key == "gpu" else key: amount for key, amount in free.items()}
    return NodeRoom(name, labels or {}, [], OFFER, {**OFFER, **named}, lowest)


def summarise(*arguments: Any) -> dict[str, Any]:
    return Summary(*arguments).specs()


def fits(free: dict[str, int], shape: dict[str, int]) -> int:
    return min((free.get(name, 0) // amount for name, amount in shape.items() if amount), default=0)


def promised(spec: dict[str, Any], shape: dict[str, int], domain: str) -> int:
    return sum(fits(c["free"], shape) * c["nodes"] for c in spec["classes"] if c["domain"] == domain)


def test_equal_nodes_are_one_class() -> None:
    spec = summarise("m", [make_room(f"n{i}", labels={"zone": "z"}) for i in range(5)], Tree())["nodes"]
    names = [f"n{i}" for i in range(5)]
    assert spec["classes"] == [{"domain": "", "profile": 0, "nodes": 5, "free": OFFER, "names": names}]
    assert spec["profiles"][0]["labels"] == {"zone": "z"}
    assert spec["profiles"][0]["allocatable"]["memory"] == "512Gi"
    assert (spec["root"], spec["objects"]) == ("", 1)


HOST = "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("count", "left"),
    [
        pytest.param(MANY_CARRIERS, [], id="few nodes are told by name"),
        pytest.param(MANY_CARRIERS + 1, [HOST], id="many are not, and that is said"),
    ],
)
def test_host_names_are_left_out_of_large_members_only(count: int, left: list[str]) -> None:
    rooms = [make_room(f"n{i:02}", labels={HOST: f"n{i:02}", "zone": "abc"[i % 3]}) for i in range(count)]
    spec = summarise("m", rooms, Tree())["nodes"]
    assert spec.get("leftOut", []) == left
    assert sum(each["nodes"] for each in spec["classes"]) == count
    assert all((HOST in each["labels"]) is (not left) for each in spec["profiles"])
    assert {each["labels"]["zone"] for each in spec["profiles"]} == {"a", "b", "c"}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"topology.kubernetes.io/zone": ["a", "b", "c"]}, id="three zones on three nodes"),
        pytest.param({"nvidia.com/gpu.product": ["A100", "H100"]}, id="one A100 node beside one H100 node"),
    ],
)
def test_labels_that_differ_on_few_nodes_are_told(values: dict[str, list[str]]) -> None:
    [(key, each)] = values.items()
    spec = summarise("m", [make_room(f"n{i}", labels={key: value}) for i, value in enumerate(each)], Tree())["nodes"]
    assert [profile["labels"][key] for profile in spec["profiles"]] == each
    assert "leftOut" not in spec


def test_every_node_is_told_however_its_labels_differ() -> None:
    """Two labels on ten nodes each, both different everywhere: each alone could be told, both together could not."""
    rooms = [make_room(f"n{i:02}", labels={"zone": "z", "ab"[i % 2]: str(i), "kind": str(i % 4)}) for i in range(20)]
    spec = summarise("m", rooms, Tree())["nodes"]
    assert sum(each["nodes"] for each in spec["classes"]) == 20
    assert len(spec["leftOut"]) == 1
    assert {"zone", "kind"} <= spec["profiles"][0]["labels"].keys()


def test_there_is_one_object_per_top_domain_and_one_for_the_rest() -> None:
    specs = summarise("m", [make_room("a", lowest=1), make_room("b", lowest=2), make_room("c")], TREE)
    assert sorted(specs) == ["nodes", "top"]
    assert {spec["objects"] for spec in specs.values()} == {2}
    assert [domain["name"] for domain in specs["top"]["domains"]] == ["top", "rack-a", "rack-b"]
    assert [c["domain"] for c in specs["top"]["classes"]] == ["rack-a", "rack-b"]


def test_an_object_for_the_rest_exists_only_if_there_is_a_rest() -> None:
    assert sorted(summarise("m", [make_room("a", lowest=1)], TREE)) == ["top"]


def test_a_member_without_nodes_still_says_so() -> None:
    assert summarise("m", [], Tree())["nodes"]["classes"] == []


def test_cpu_and_memory_are_rounded_down_and_devices_are_exact() -> None:
    [found] = summarise("m", [make_room("n", cpu=63_999, memory=9 * GI - 1, gpu=3, pods=7)], Tree())["nodes"]["classes"]
    assert found["free"] == {"cpu": 63_000, "memory": 8 * GI, "nvidia.com/gpu": 3, "pods": 7}


def test_an_overbooked_node_has_nothing_free() -> None:
    [found] = summarise("m", [make_room("n", cpu=-1)], Tree())["nodes"]["classes"]
    assert found["free"]["cpu"] == 0


def test_the_result_does_not_depend_on_the_order_of_nodes() -> None:
    random_ = random.Random(1)
    rooms = [make_room(f"n{i}", gpu=random_.randint(0, 8), cpu=random_.randint(0, 64_000)) for i in range(60)]
    shuffled = random_.sample(rooms, len(rooms))
    assert summarise("m", rooms, Tree()) == summarise("m", shuffled, Tree())


def test_a_large_member_stays_small() -> None:
    random_ = random.Random(2)
    tree = Tree([Domain("top", 2), *(Domain(f"rack-{i}", 1, 0) for i in range(250))])
    rooms = [
        make_room(
            f"n{i}",
            lowest=1 + i // 16,
            labels={f"label-{k}": "x" * 40 for k in range(10)},
            gpu=random_.randint(0, 8),
            cpu=random_.randint(0, 64_000),
            pods=random_.randint(0, 110),
        )
        for i in range(4000)
    ]
    spec = summarise("m", rooms, tree)["top"]
    assert len(str(spec)) <= MAX_BYTES * 1.2
    assert sum(c["nodes"] for c in spec["classes"]) == 4000
    assert not any("names" in c for c in spec["classes"]), "names are left out of a large object"


def test_the_total_is_of_all_nodes_also_of_those_that_no_class_shows() -> None:
    rooms = [
        NodeRoom(f"n{i}", {}, [{"key": f"k{i}", "effect": "NoSchedule"}], OFFER, {**OFFER, "cpu": i * 1000})
        for i in range(40)
    ]
    spec = summarise("m", rooms, Tree())["nodes"]
    assert sum(c["nodes"] for c in spec["classes"]) == MAX_CLASSES
    assert spec["total"] == {name: 40 * amount for name, amount in OFFER.items()}
    assert all(len(c["names"]) == c["nodes"] for c in spec["classes"])


def test_a_class_is_of_nodes_that_have_as_much_as_its_profile_says() -> None:
    racks = 12
    tree = Tree([Domain("top", 2), *(Domain(f"rack-{i}", 1, 0) for i in range(racks))])
    rooms, whole = [], {}
    for rack in range(racks):
        for number in range(2 * MAX_CLASSES):
            name = f"n{rack:02}-{number:02}"
            whole[name] = 1000 * (64 * (rack + 1) + number % 2)
            offer = {**OFFER, "cpu": whole[name]}
            # More different ones in a rack than may be told: two become one, which has the least of both.
            rooms.append(NodeRoom(name, {}, [], offer, {**offer, "cpu": whole[name] * number // 40}, 1 + rack))
    spec = summarise("m", rooms, tree)["top"]
    for each in spec["classes"]:
        told = int(spec["profiles"][each["profile"]]["allocatable"]["cpu"])
        assert 1000 * told == min(whole[name] for name in each["names"])


@pytest.mark.parametrize("nodes", [pytest.param(2000, id="so many are named"), pytest.param(2001, id="more are not")])
def test_nodes_are_named_up_to_a_number(nodes: int) -> None:
    [found] = summarise("m", [make_room(f"n{i:04}") for i in range(nodes)], Tree())["nodes"]["classes"]
    assert found.get("names", []) == ([f"n{i:04}" for i in range(nodes)] if nodes == MAX_NAMES else [])


def test_the_object_is_valid() -> None:
    spec = summarise("m", [make_room("a", lowest=1)], TREE)["top"]
    ClusterCapacity.model_validate({"spec": {**spec, "generation": 1}})


def test_object_names_are_dns_names_and_differ() -> None:
    names = [object_name(root) for root in ("", "nodes", "s0", "S0", "a_b")]
    assert names[:3:2] == ["nodes", "s0"]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and "_" not in name for name in names)


node = st.builds(
    lambda cpu, memory, gpu, pods, kind, rack: (cpu, memory, gpu, pods, kind, rack),
    st.integers(-500, 64_000),
    st.integers(0, 512 * GI),
    st.integers(0, 8),
    st.integers(0, 110),
    st.integers(0, 2),
    st.sampled_from([-1, 1, 2]),
)
shape = st.fixed_dictionaries(
    {
        "cpu": st.integers(1, 20_000),
        "memory": st.integers(1, 64 * GI),
        "nvidia.com/gpu": st.integers(0, 8),
        "pods": st.just(1),
    }
)


@settings(max_examples=80, deadline=None)
@given(st.lists(node, max_size=60), shape)
def test_no_domain_shows_more_pods_than_its_nodes_hold(
    drawn: list[tuple[int, int, int, int, int, int]], wanted: dict[str, int]
) -> None:
    rooms = [
        make_room(f"n{i}", lowest=rack, labels={"kind": str(kind)}, cpu=cpu, memory=memory, gpu=gpu, pods=pods)
        for i, (cpu, memory, gpu, pods, kind, rack) in enumerate(drawn)
    ]
    specs = summarise("m", rooms, TREE)
    for lowest, domain, name in ((-1, "", "nodes"), (1, "rack-a", "top"), (2, "rack-b", "top")):
        holds = sum(max(0, fits(dict(room.free), wanted)) for room in rooms if room.lowest == lowest)
        spec = specs.get(name)
        assert (promised(spec, wanted, domain) if spec else 0) <= holds
        if spec:
            assert sum(c["domain"] == domain for c in spec["classes"]) <= MAX_CLASSES


def test_lost_nodes_are_named_in_their_domains_and_bounded() -> None:
    lost = [*((f"gone-{i:02}", 1) for i in range(20)), ("away", 2), ("loose", -1)]
    specs = Summary("m", [make_room("n", lowest=1)], TREE, lost=lost).specs()
    assert specs["top"]["lost"] == [
        {"domain": "rack-a", "nodes": 20, "names": [f"gone-{i:02}" for i in range(MAX_LOST_NAMES)]},
        {"domain": "rack-b", "nodes": 1, "names": ["away"]},
    ]
    assert specs["nodes"]["lost"] == [{"domain": "", "nodes": 1, "names": ["loose"]}]
    assert [each["nodes"] for each in specs["top"]["classes"]] == [1], "they count nowhere else"
    for spec in specs.values():
        ClusterCapacity.model_validate({"metadata": {"name": "x"}, "spec": {**spec, "generation": 1}})
    wide = Tree([Domain("top", 2), *(Domain(f"rack-{i}", 1, 0) for i in range(400))])
    [spec] = Summary("m", [], wide, lost=[(f"n{i}", i) for i in range(1, 401)]).specs().values()
    assert len(spec["lost"]) == MAX_LOST


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_summary_that_is_kept_says_the_same_as_one_made_anew(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 12))
    labels = st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])
    gpus = st.integers(-1, 8)
    rooms = [
        make_room(f"n{i}", lowest=data.draw(st.integers(-1, 2)), labels=data.draw(labels), gpu=data.draw(gpus))
        for i in range(count)
    ]
    kept = Summary("m", rooms, TREE)
    for _ in range(data.draw(st.integers(1, 4))):
        before = copy.deepcopy(handed_out := kept.specs())
        for i in data.draw(st.lists(st.integers(0, count - 1))) if count else []:
            free = {**rooms[i].free, "nvidia.com/gpu": data.draw(gpus), "cpu": data.draw(st.integers(0, 64_000))}
            rooms[i] = dataclasses.replace(rooms[i], free=free)
            kept.set_free(rooms[i].name, free)
        assert kept.specs() == summarise("m", rooms, TREE)
        assert handed_out == before, "what was handed out does not change"


@pytest.mark.parametrize("amount", ["8Ei", "9223372036854775807", "1e30"])
def test_nodes_that_claim_to_have_all_there_can_be_are_summed_up_within_64_bits(amount: str) -> None:
    offers: Any = {"memory": amount, "nvidia.com/gpu": amount}
    room = builders.make_room(*[builders.make_node(f"n{number}", **offers) for number in range(20)])
    [spec] = MemberCapacity("m", room).specs().values()
    assert spec["total"]["memory"] == spec["total"]["nvidia.com/gpu"] == 20 * MOST_ON_NODE
    assert orjson.loads(orjson.dumps(spec)) == spec
    assert (room.arrays.nodes().free.sum(axis=1) > 0).all(), "so do the sums that placing works with"
