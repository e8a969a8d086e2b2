"""The tree of domains."""

from __future__ import annotations

import time
from typing import Any

import pytest

from atoll.model.topology import NO_DOMAIN, TopologyError, Tree, build


def domain(name: str, tier: int, *members: str, of: str = "Node", **selector: Any) -> dict[str, Any]:
    chosen = [{"type": of, "selector": {"exactMatch": {"name": member}}} for member in members]
    if selector:
        chosen.append({"type": of, "selector": selector})
    return {"metadata": {"name": name}, "spec": {"tier": tier, "members": chosen}}


NODES: dict[str, dict[str, str]] = {"n1": {"rack": "a"}, "n2": {"rack": "b"}, "n3": {}}


def lowest(*objects: dict[str, Any]) -> dict[str, str]:
    tree, found = build(objects, NODES)
    return {node: tree.domains[index].name for node, index in found.items()}


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
    _, found = build([domain("r", 1, regexMatch={"pattern": pattern})], {"a" * 252 + "!": {}})
    assert (found, time.process_time() - began < 1) == ({}, True)


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
    with pytest.raises(TopologyError, match=f"HyperNode r: regexMatch .*{said}"):
        build([domain("r", 1, regexMatch={"pattern": pattern})], NODES)


def test_a_node_knows_its_domain_at_every_tier() -> None:
    tree, found = build([domain("r", 1, "n1"), domain("s", 2, "r", of="HyperNode"), domain("x", 3, "n2")], NODES)
    names = [[tree.domains[i].name if i != NO_DOMAIN else "" for i in tree.at_tiers(found[n])] for n in ("n1", "n2")]
    assert (tree.tiers, names) == ((1, 2, 3), [["r", "s", ""], ["", "", "x"]])
    assert Tree().at_tiers(NO_DOMAIN) == []


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        pytest.param(
            [domain("r", 1), domain("s", 2, "r", of="HyperNode"), domain("t", 2, "r", of="HyperNode")],
            ["r", "both s and t"],
            id="two parents",
        ),
        pytest.param(
            [domain("r", 2), domain("s", 2, "r", of="HyperNode")],
            ["r", "tier 2", "must be smaller"],
            id="a member of its own tier",
        ),
        pytest.param(
            [domain("r", 1, "s", of="HyperNode"), domain("s", 2, "r", of="HyperNode")],
            ["must be smaller"],
            id="a cycle",
        ),
        pytest.param(
            [domain("r", 1, "n1"), domain("s", 1, "n1")], ["node n1", "r and s", "not nested"], id="a node in two racks"
        ),
        pytest.param([domain("r", 1, regexMatch={"pattern": "("})], ["r", "regexMatch", "'('"], id="a bad expression"),
    ],
)
def test_what_is_no_forest_is_refused_by_name(objects: list[dict[str, Any]], words: list[str]) -> None:
    with pytest.raises(TopologyError) as error:
        build(objects, NODES)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "(" * 1025])
def test_what_is_no_regular_expression_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(TopologyError, match=r"HyperNode r: regexMatch .* is not a regular expression"):
        build([domain("r", 1, regexMatch={"pattern": pattern})], NODES)
