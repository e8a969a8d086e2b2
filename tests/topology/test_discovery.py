from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.topology import NO_DOMAIN, Built, build
from atoll.topology.discovery import fabric, labels
from atoll.topology.discovery.domains import Found, hyper_nodes, named
from atoll.topology.discovery.plan import changes

DOCUMENTS = Path(__file__).parents[1] / "documents"


def tree_of(found: list[Found], nodes: dict[str, dict[str, str]]) -> dict[str, tuple[int, str, list[str]]]:
    """Domain -> (tier, the one above, nodes in it and below)."""
    return shape(build(hyper_nodes(found, "test"), nodes))


def shape(built: Built) -> dict[str, tuple[int, str, list[str]]]:
    assert not built.problems
    domains = built.tree.domains
    return {
        domain.name: (
            domain.tier,
            domains[domain.parent].name if domain.parent != NO_DOMAIN else "",
            sorted(node for node, lowest in built.lowest.items() if index in built.tree.ancestors(lowest)),
        )
        for index, domain in enumerate(domains)
    }


def test_the_labels_of_the_walk_through_make_the_tree_of_its_hyper_nodes():
    nodes: dict[str, dict[str, str]] = {}
    for line in (DOCUMENTS / "003-labels.sh").read_text().splitlines():
        _, _, _, name, label, _ = shlex.split(line)
        nodes[name] = dict([label.split("=")])
    written = [
        each
        for file in ("003-racks.yaml", "003-upper.yaml")
        for each in yaml.safe_load_all((DOCUMENTS / file).read_text())
    ]
    found = labels.by_path(nodes, "volcano.sh/rack", "-")
    assert tree_of(found, nodes) == shape(build(written, nodes))


def test_the_same_rack_name_in_two_blocks_is_two_domains():
    nodes = {f"{block}{rack}": {"block": block, "rack": rack} for block, rack in itertools.product("ab", "xy")}
    tree = tree_of(labels.by_levels(nodes, ["block", "rack", labels.HOSTNAME]), nodes)
    assert tree == {
        "a": (2, "", ["ax", "ay"]),
        "b": (2, "", ["bx", "by"]),
        "a-x": (1, "a", ["ax"]),
        "a-y": (1, "a", ["ay"]),
        "b-x": (1, "b", ["bx"]),
        "b-y": (1, "b", ["by"]),
    }


def test_a_node_without_all_labels_is_in_no_domain():
    nodes = {"one": {"block": "a", "rack": "x"}, "two": {"block": "a"}}
    assert tree_of(labels.by_levels(nodes, ["block", "rack"]), nodes)["a"] == (2, "", ["one"])


words = st.text("ab", min_size=1, max_size=2)


@given(st.dictionaries(st.from_regex("n[0-9]", fullmatch=True), st.lists(words, min_size=1, max_size=4), max_size=6))
def test_every_labelled_node_is_in_one_tree_whatever_its_path(paths: dict[str, list[str]]):
    nodes = {name: {"path": "-".join(path)} for name, path in paths.items()}
    found = labels.by_path(nodes, "path", "-")
    built = build(hyper_nodes(found, "test"), nodes)
    assert not built.problems
    assert built.lowest.keys() == nodes.keys()
    assert len({domain.name for domain in built.tree.domains}) == len(built.tree.domains)


def test_names_are_the_same_for_the_same_parts_and_differ_where_letters_are_lost():
    assert named("rack", "r1") == "rack-r1"
    assert named("Rack_1") != named("rack-1")
    assert named("x" * 80) == named("x" * 80)
    assert len(named("x" * 80)) <= 63


IBNETDISCOVER = """
Switch	4 "S-1"		# "leaf1" enhanced port 0 lid 1 lmc 0
[1]	"H-1"[1](aa)		# "te1 mlx5_0" lid 4 4xNDR
[2]	"H-2"[1](ab)		# "te2 mlx5_0" lid 5 4xNDR
[3]	"S-9"[1]		# "spine1" lid 9 4xNDR

Switch	4 "S-2"		# "leaf2" enhanced port 0 lid 2 lmc 0
[1]	"H-3"[1](ac)		# "te3 mlx5_0" lid 6 4xNDR
[3]	"S-9"[2]		# "spine1" lid 9 4xNDR

Switch	4 "S-9"		# "spine1" enhanced port 0 lid 9 lmc 0
[1]	"S-1"[3]		# "leaf1" lid 1 4xNDR
[2]	"S-2"[3]		# "leaf2" lid 2 4xNDR

Ca	1 "H-1"		# "te1 mlx5_0"
[1](aa)	"S-1"[1]		# lid 4 lmc 0 "leaf1" lid 1 4xNDR

Ca	1 "H-2"		# "te2 mlx5_0"
[1](ab)	"S-1"[2]		# lid 5 lmc 0 "leaf1" lid 1 4xNDR

Ca	1 "H-3"		# "te3 mlx5_0"
[1](ac)	"S-2"[1]		# lid 6 lmc 0 "leaf2" lid 2 4xNDR
"""
FABRIC = {
    "fabric-t1-leaf1": (1, "fabric-t2-spine1", ["te1.example", "te2.example"]),
    "fabric-t1-leaf2": (1, "fabric-t2-spine1", ["te3.example"]),
    "fabric-t2-spine1": (2, "", ["te1.example", "te2.example", "te3.example"]),
}


def test_the_links_of_ibnetdiscover_make_leaves_and_spines():
    nodes: dict[str, dict[str, str]] = {
        name: {} for name in ("te1.example", "te2.example", "te3.example", "te4.example")
    }
    assert tree_of(fabric.domains(fabric.of_ibnetdiscover(IBNETDISCOVER), nodes), nodes) == FABRIC


def test_the_ports_of_ufm_make_the_same():
    ports = [
        {"system_name": host, "peer_node_name": leaf, "description": "Computer IB Port"}
        for host, leaf in (("te1", "leaf1"), ("te2", "leaf1"), ("te3", "leaf2"))
    ]
    ports += [
        {"system_name": leaf, "peer_node_name": "spine1", "description": "Switch IB Port"}
        for leaf in ("leaf1", "leaf2")
    ]
    nodes: dict[str, dict[str, str]] = {name: {} for name in ("te1.example", "te2.example", "te3.example")}
    assert tree_of(fabric.domains(fabric.of_ufm(ports), nodes), nodes) == FABRIC


def test_the_rails_of_a_node_join_their_leaves():
    links = fabric.Links()
    for node, rail in itertools.product(("a", "b"), ("rail1", "rail2")):
        links.nodes[node].add(rail)
    links.nodes["c"].add("other")
    nodes: dict[str, dict[str, str]] = {name: {} for name in "abc"}
    tree = tree_of(fabric.domains(links, nodes), nodes)
    assert {name: members for name, (_, _, members) in tree.items()} == {
        "fabric-t1-rail1": ["a", "b"],
        "fabric-t1-other": ["c"],
    }


def test_what_is_no_output_of_ibnetdiscover_is_refused():
    with pytest.raises(ValueError, match="no switch"):
        fabric.of_ibnetdiscover("hello")


def test_what_a_user_wrote_stays_and_what_is_not_found_any_more_goes():
    nodes = {"one": {"rack": "a"}, "two": {"rack": "b"}}
    before = hyper_nodes(labels.by_levels(nodes, ["rack"]), "test")
    mine = {"metadata": {"name": "b"}, "spec": {"tier": 1, "members": []}}
    gone = hyper_nodes([Found("old", ("one",))], "test")
    todo = changes([before[0], mine, *gone], before, "test")
    assert (todo.create, todo.update, [each["metadata"]["name"] for each in todo.delete]) == ([], [], ["old"])
    assert todo.foreign == ["b"]
    assert not changes(before, before, "test")


def test_a_tree_has_names_of_its_own_and_what_is_found_of_one_leaves_others_alone():
    nodes = {"one": {"rack": "a", "feed": "a"}, "two": {"rack": "b", "feed": "a"}}
    racks = hyper_nodes(labels.by_levels(nodes, ["rack"]), "test")
    feeds = hyper_nodes(labels.by_levels(nodes, ["feed"]), "test", "power")
    assert [each["metadata"]["name"] for each in feeds] == ["power-a"]
    built = build([*racks, *feeds], nodes)
    assert (sorted(built.trees), built.problems) == (["", "power"], {})
    assert sorted(built.trees["power"].lowest) == ["one", "two"]
    assert not changes([*racks, *feeds], racks, "test")
    assert not changes([*racks, *feeds], feeds, "test", "power")
    assert [each["metadata"]["name"] for each in changes([*racks, *feeds], [], "test", "power").delete] == ["power-a"]
