"""What is wrong with HyperNodes, as status and admission say it."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.topology.findings import judge, look
from tests.topology.builders import hyper_node, nodes

RACKS = [hyper_node("r1", 1, nodes="n1 n2"), hyper_node("r2", 1, nodes="n3 n4"), hyper_node("top", 2, below="r1 r2")]
NODES = nodes("n1", "n2", "n3", "n4")


@pytest.mark.parametrize(
    ("applied", "refused"),
    [
        pytest.param(hyper_node("r3", 1, nodes="n1"), "node n1 is in both HyperNode r1 and r3", id="overlap"),
        pytest.param(hyper_node("more", 2, below="r1"), "HyperNode r1 is a member of both top and more", id="parents"),
        pytest.param(hyper_node("r3", 1, below="r1"), "a member's tier must be smaller", id="tier order"),
        pytest.param(hyper_node("r1", 1, below="top"), "members lead back to it: top -> r1 -> top", id="a cycle"),
        pytest.param(hyper_node("r3", 1, pattern="["), "is not a regular expression", id="a bad pattern"),
        pytest.param(
            hyper_node("feeds", 2, below="r1", tree="power"),
            "HyperNode r1 is in tree that has no name and feeds in tree power",
            id="a member of another tree",
        ),
    ],
)
def test_what_would_be_wrong_is_refused_with_its_reason(applied: dict[str, Any], refused: str) -> None:
    assert refused in "; ".join(judge(RACKS, NODES, applied).refusals)


def test_members_that_do_not_exist_are_warned_of_for_files_begin_at_the_top() -> None:
    found = judge([], NODES, hyper_node("top", 2, below="r1", nodes="n1 n9"))
    assert found.refusals == []
    assert found.warnings == ["no such member yet: HyperNode r1, Node n9"]


def test_what_was_wrong_before_refuses_nothing_that_makes_it_no_worse() -> None:
    wrong = [*RACKS, hyper_node("r3", 1, nodes="n1")]
    assert judge(wrong, NODES, hyper_node("r3", 1, nodes="n1 n1")).refusals == []
    assert judge(wrong, NODES, hyper_node("r4", 1, pattern="nothing")).refusals == []
    assert judge(wrong, NODES, hyper_node("r3", 1, nodes="n1 n3")).refusals != []


def test_one_wrong_hyper_node_costs_its_subtree_and_is_named() -> None:
    found = look([*RACKS, hyper_node("r3", 1, nodes="n1"), hyper_node("bad", 3, pattern="(")], NODES)
    assert found.wrong.keys() == {"r3", "bad"}
    assert found.built.lowest.keys() == NODES.keys()


def test_a_cycle_is_told_of_all_that_are_on_it_and_of_no_others() -> None:
    ring = [hyper_node("a", 3, below="b"), hyper_node("b", 2, below="c"), hyper_node("c", 1, below="a")]
    found = look([*ring, *RACKS], NODES)
    assert {name for name, text in found.wrong.items() if "lead back" in text} == {"a", "b", "c"}
    assert "a -> b -> c -> a" in found.wrong["b"]


def test_nodes_may_be_in_several_trees() -> None:
    feed = hyper_node("feed", 1, nodes="n1 n3", tree="power")
    assert judge(RACKS, NODES, feed).refusals == []
    again = hyper_node("feed2", 1, nodes="n1", tree="power")
    assert "node n1 is in both HyperNode feed and feed2" in "; ".join(judge([*RACKS, feed], NODES, again).refusals)
    built = look([*RACKS, feed], NODES).built
    assert {name: sorted(grown.lowest) for name, grown in built.trees.items()} == {
        "": ["n1", "n2", "n3", "n4"],
        "power": ["n1", "n3"],
    }
