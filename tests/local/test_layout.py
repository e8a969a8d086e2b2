"""A layout expands to the nodes and HyperNodes that its author drew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.local import layout

MEMBER: dict[str, Any] = {
    "name": "alpha",
    "labels": {"region": "eu"},
    "nodes": {"count": 16, "prefix": "alpha-n", "allocatable": {"cpu": 64, "pods": "110"}},
    "topology": {
        "tiers": [
            {"name": "rack", "size": 4},
            {"name": "block", "size": 2},
            {"name": "root", "size": 2},
        ]
    },
}


def member(**changes: Any) -> layout.Member:
    return layout.Member.model_validate({**MEMBER, **changes})


def test_a_node_is_marked_for_kwok_and_offers_what_the_group_says() -> None:
    node = layout.node_objects(member())[3]
    assert node["metadata"]["name"] == "alpha-n3"
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "alpha-n3"
    assert node["status"] == {
        "allocatable": {"cpu": "64", "pods": "110"},
        "capacity": {"cpu": "64", "pods": "110"},
    }


def test_labels_and_taints_belong_to_their_group_alone() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    nodes = layout.node_objects(
        member(
            nodes=[
                {"count": 1, "prefix": "cpu-"},
                {"count": 1, "prefix": "gpu-", "labels": {"kind": "gpu"}, "taints": [taint]},
            ]
        )
    )
    assert [node["spec"] for node in nodes] == [{}, {"taints": [taint]}]
    assert ["kind" in node["metadata"]["labels"] for node in nodes] == [False, True]


def test_tiers_are_built_from_the_bottom_up() -> None:
    tree = {
        item["metadata"]["name"]: (
            item["spec"]["tier"],
            [child["selector"]["exactMatch"]["name"] for child in item["spec"]["members"]],
        )
        for item in layout.hypernode_objects(member())
    }
    assert tree["alpha-rack-1"] == (1, ["alpha-n4", "alpha-n5", "alpha-n6", "alpha-n7"])
    assert tree["alpha-block-1"] == (2, ["alpha-rack-2", "alpha-rack-3"])
    assert tree["alpha-root"] == (3, ["alpha-block-0", "alpha-block-1"])
    assert len(tree) == 4 + 2 + 1


@given(
    nodes=st.integers(0, 60),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
)
def test_every_node_is_below_the_one_root_exactly_once(nodes: int, sizes: list[int]) -> None:
    tiers = [{"name": f"t{number}", "size": size} for number, size in enumerate(sizes)]
    built = layout.hypernode_objects(member(nodes={"count": nodes}, topology={"tiers": tiers}))
    by_name = {item["metadata"]["name"]: item["spec"] for item in built}

    def leaves(name: str) -> list[str]:
        found: list[str] = []
        for child in by_name[name]["members"]:
            below = child["selector"]["exactMatch"]["name"]
            found += leaves(below) if child["type"] == "HyperNode" else [below]
        return found

    roots = [name for name, spec in by_name.items() if spec["tier"] == len(sizes)]
    assert len(roots) == (1 if nodes else 0)
    assert [leaf for root in roots for leaf in leaves(root)] == [f"alpha-n{index}" for index in range(nodes)]


def test_raw_hypernodes_are_passed_through() -> None:
    raw = [{"apiVersion": layout.HYPERNODE_API, "kind": "HyperNode", "metadata": {"name": "x"}}]
    assert layout.hypernode_objects(member(topology=None, hypernodes=raw)) == raw


def test_the_default_federation_has_eight_gpus_per_node_and_three_tiers() -> None:
    config = layout.default_config(members=2, nodes=40)
    assert [item.name for item in config.members] == ["member1", "member2"]
    assert layout.node_objects(config.members[0])[0]["status"]["capacity"]["nvidia.com/gpu"] == "8"
    tiers = [item["spec"]["tier"] for item in layout.hypernode_objects(config.members[0])]
    assert (tiers.count(1), tiers.count(2), tiers.count(3)) == (10, 3, 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("members: []", "members: ", id="no member at all"),
        pytest.param("members: [{name: A}]", "members.0.name: ", id="a name that DNS refuses"),
        pytest.param("members: [{name: host}]", "taken by the host", id="a member called host"),
        pytest.param("members: [{name: a}, {name: a}]", "more than once", id="the same name twice"),
        pytest.param("members: [{name: a, nods: 1}]", "members.0.nods: ", id="a misspelt field"),
        pytest.param(
            "members: [{name: a, nodes: [{count: 1}, {count: 2}]}]",
            "own prefix",
            id="two groups with one prefix",
        ),
        pytest.param(
            "members: [{name: a, topology: {tiers: [{name: r, size: 1}]}, hypernodes: [{}]}]",
            "not both",
            id="two sources of topology",
        ),
        pytest.param("members: [", "is not YAML", id="broken YAML"),
    ],
)
def test_a_wrong_configuration_names_its_field(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(text)
    with pytest.raises(layout.LayoutError, match=complaint):
        layout.load(path)
