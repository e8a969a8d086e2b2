"""The tree of domains."""

from __future__ import annotations

import itertools
import re
import time
from typing import Any

import pytest

from atoll.model.gang import TopologyWish
from atoll.model.topology import NO_DOMAIN, Tree, build


def domain(name: str, tier: int, *members: str, of: str = "Node", **selector: Any) -> dict[str, Any]:
    chosen = [{"type": of, "selector": {"exactMatch": {"name": member}}} for member in members]
    if selector:
        chosen.append({"type": of, "selector": selector})
    return {"metadata": {"name": name}, "spec": {"tier": tier, "members": chosen}}


NODES: dict[str, dict[str, str]] = {"n1": {"rack": "a"}, "n2": {"rack": "b"}, "n3": {}}


def lowest(*objects: dict[str, Any]) -> dict[str, str]:
    found = build(objects, NODES)
    assert found.problems == {}
    return {node: found.tree.domains[index].name for node, index in found.lowest.items()}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([], {}, id="no HyperNodes"),
        pytest.param(
            [domain("r", 1, "n1", "gone")], {"n1": "r"}, id="by name; a node that is not there is passed over"
        ),
        pytest.param([domain("r", 1, regexMatch={"pattern": "2$"})], {"n2": "r"}, id="by an unanchored expression"),
        pytest.param([domain("r", 1, labelMatch={"matchLabels": {"rack": "a"}})], {"n1": "r"}, id="by label"),
        pytest.param(
            [domain("s", 2, "r", of="HyperNode"), domain("r", 1, "n1"), domain("t", 3, "s", of="HyperNode")],
            {"n1": "r"},
            id="the lowest of nested ones",
        ),
    ],
)
def test_the_lowest_domain_of_each_node(objects: list[dict[str, Any]], expected: dict[str, str]) -> None:
    assert lowest(*objects) == lowest(*reversed(objects)) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("(a+)+$", id="nested repeats"),
        pytest.param("^(a|aa)+$", id="alternatives that overlap"),
        pytest.param("(.*a){30}$", id="many ways to divide the name"),
    ],
)
@pytest.mark.timeout(20)
def test_an_expression_takes_time_in_proportion_to_the_name(pattern: str) -> None:
    """Go's engine, which Volcano uses, never tries the ways one by one; Python's would take years for these."""
    began = time.process_time()
    found = build([domain("r", 1, regexMatch={"pattern": pattern})], {"a" * 252 + "!": {}})
    assert (found.lowest, time.process_time() - began < 1) == ({}, True)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        pytest.param(r"(node)-\1", "invalid escape", id="a reference back, which Go does not know either"),
        pytest.param("(?=node)", "invalid", id="a look ahead"),
        pytest.param("n" * 1025, "1025 characters; the most is 1024", id="too long"),
        pytest.param(r"\pL{20}", "too complex", id="too large once compiled"),
        pytest.param("n\ud800", "surrogates", id="no text"),
    ],
)
def test_an_expression_that_go_would_refuse_or_that_takes_too_long_is_refused(pattern: str, said: str) -> None:
    [(name, problem)] = build([domain("r", 1, regexMatch={"pattern": pattern})], NODES).problems.items()
    assert name == "r"
    assert re.search(f"regexMatch .*{said}", problem), problem


def test_a_node_knows_its_domain_at_every_tier() -> None:
    built = build([domain("r", 1, "n1"), domain("s", 2, "r", of="HyperNode"), domain("x", 3, "n2")], NODES)
    tree, found = built.tree, built.lowest
    names = [[tree.domains[i].name if i != NO_DOMAIN else "" for i in tree.at_tiers(found[n])] for n in ("n1", "n2")]
    assert (tree.tiers, names) == ((1, 2, 3), [["r", "s", ""], ["", "", "x"]])
    assert Tree().at_tiers(NO_DOMAIN) == []


def aged(obj: dict[str, Any], second: int) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}}


RIGHT = [domain("r1", 1, "n1"), domain("r2", 1, "n2"), domain("s", 2, "r1", "r2", of="HyperNode")]


@pytest.mark.parametrize(
    ("wrong", "named", "words"),
    [
        pytest.param(domain("t", 2, "r1", of="HyperNode"), {"r1", "t"}, ["r1", "both s and t"], id="a second parent"),
        pytest.param(
            domain("t", 1, "r1", of="HyperNode"),
            {"t"},
            ["r1 (tier 1)", "must be smaller"],
            id="a member of its own tier",
        ),
        pytest.param(domain("t", 1, "s", of="HyperNode"), {"t"}, ["s (tier 2)", "must be smaller"], id="a cycle"),
        pytest.param(domain("t", 1, "t", of="HyperNode"), {"t"}, ["must be smaller"], id="a member of itself"),
        pytest.param(domain("t", 1, "n1"), {"t"}, ["node n1", "r1 and t", "not nested"], id="a node in two racks"),
        pytest.param(domain("t", 1, regexMatch={"pattern": "("}), {"t"}, ["regexMatch", "'('"], id="a bad expression"),
        pytest.param(domain("t", -1, "n3"), {"t"}, ["spec.tier: -1"], id="a tier that can't be"),
    ],
)
def test_what_is_wrong_is_named_and_the_rest_is_as_without_it(
    wrong: dict[str, Any], named: set[str], words: list[str]
) -> None:
    """The older ones keep what they have, whatever the order and the names."""
    objects = [*(aged(each, 1) for each in RIGHT), aged(wrong, 2)]
    without = build(RIGHT, NODES)
    for order in itertools.permutations(objects):
        found = build(order, NODES)
        assert set(found.problems) == named
        assert all(word in text for text in found.problems.values() for word in words), found.problems
        above = {
            each.name: found.tree.domains[each.parent].name if each.parent != NO_DOMAIN else ""
            for each in found.tree.domains
            if each.name != "t"
        }
        assert above == {"s": "", "r1": "s", "r2": "s"}
        assert {node: found.tree.domains[index].name for node, index in found.lowest.items()} == {
            node: without.tree.domains[index].name for node, index in without.lowest.items()
        }


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "(" * 1025])
def test_what_is_no_regular_expression_is_named(pattern: str) -> None:
    found = build([domain("r", 1, "n1", regexMatch={"pattern": pattern})], NODES)
    assert "is not a regular expression" in found.problems["r"]
    assert list(found.lowest) == ["n1"], "what else it has is as it says"


def test_a_ceiling_holds_for_hard_wishes_everywhere_and_for_soft_ones_where_there_are_domains() -> None:
    tree = build(RIGHT, NODES).tree
    for mode, where, expected in (("hard", tree, 2), ("soft", tree, 2), ("hard", Tree(), 2), ("soft", Tree(), None)):
        assert where.ceiling(TopologyWish(mode, 2)) == expected, mode
    assert [tree.ceiling(wish) for wish in (None, TopologyWish("hard"), TopologyWish("soft"))] == [None] * 3
    named = build([domain("r", 1, "n1") | {"spec": {"tier": 1, "tierName": "rack"}}], NODES).tree
    assert [named.ceiling(TopologyWish("hard", None, name)) for name in ("rack", "block")] == [1, -1]
    assert named.ceiling(TopologyWish("soft", None, "block")) is None, "a name that nobody has limits nothing softly"
