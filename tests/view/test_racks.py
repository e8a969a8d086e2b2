"""Nodes of a workload in the domains of its member."""

from __future__ import annotations

from typing import Any

from atoll.view import racks
from tests.view.capacities import capacity, three_racks

Json = dict[str, Any]


def named() -> Json:
    made = three_racks()
    for each, names in zip(made["spec"]["classes"], (["a1", "a2"], ["b1"], ["b2"]), strict=True):
        each["names"] = names
    made["spec"]["lost"] = [{"domain": "rack-b", "nodes": 1, "names": ["b3"]}]
    return made


def test_nodes_are_in_their_domains_with_the_path_from_the_top() -> None:
    found = racks.drawn("east", {"b3": 1, "a2": 4, "a1": 2, "new": 1}, [named()])
    assert [(each["path"], each["tier"], each["others"]) for each in found] == [
        (["block", "rack-a"], "rack", 0), (["block", "rack-b"], "", 2), ([], "", 0),
    ]  # fmt: skip
    assert [[(each["name"], each["pods"], each["lost"]) for each in domain["nodes"]] for domain in found] == [
        [("a1", 2, False), ("a2", 4, False)], [("b3", 1, True)], [("new", 1, False)],
    ]  # fmt: skip


def test_without_the_right_to_see_capacity_nodes_have_no_domain() -> None:
    [found] = racks.drawn("east", {"a1": 1}, [])
    assert (found["path"], found["nodes"]) == ([], [{"name": "a1", "pods": 1, "lost": False}])


def test_domains_in_a_circle_end() -> None:
    made = capacity(
        domains=[{"name": "x", "parent": "y"}, {"name": "y", "parent": "x"}],
        lost=[{"domain": "x", "nodes": 1, "names": ["n"]}],
    )
    assert len(racks.drawn("east", {"n": 1}, [made])[0]["path"]) == 16
