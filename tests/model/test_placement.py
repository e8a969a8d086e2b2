"""What a workload's own annotations add to its policy's placement."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import affinity, keys
from atoll.model.placement import with_annotations

CLUSTERS = ("east", "north", "west")
DIVIDED = {"replicaSchedulingType": "Divided"}


@pytest.mark.parametrize(
    ("policy", "only", "allowed"),
    [
        pytest.param({}, "east,west", {"east", "west"}, id="any policy"),
        pytest.param({"clusterNames": ["east", "north"]}, "east, west", {"east"}, id="names of both"),
        pytest.param({"clusterNames": ["north"]}, "east", set(), id="no name of both"),
        pytest.param({"exclude": ["east"]}, "east,west", {"west"}, id="what the policy excludes"),
        pytest.param({}, " , ", set(CLUSTERS), id="no name at all"),
    ],
)
def test_a_workload_may_use_fewer_members_than_its_policy_allows(
    policy: dict[str, Any], only: str, allowed: set[str]
) -> None:
    found = with_annotations({"clusterAffinity": policy}, {keys.ONLY_CLUSTERS: only})
    assert {name for name in CLUSTERS if affinity.matches(found["clusterAffinity"], name, {}, {})} == allowed
    several = with_annotations({"clusterAffinities": [{"affinityName": "a", **policy}]}, {keys.ONLY_CLUSTERS: only})
    [group] = several["clusterAffinities"]
    assert {name for name in CLUSTERS if affinity.matches(group, name, {}, {})} == allowed


@pytest.mark.parametrize(
    ("policy", "text", "spread"),
    [
        pytest.param(None, "any", {"minGroups": 1}, id="any number"),
        pytest.param(None, "3", {"minGroups": 1, "maxGroups": 3}, id="at most three"),
        pytest.param({"maxGroups": 2}, "3", {"minGroups": 1, "maxGroups": 2}, id="fewer by the policy"),
        pytest.param({"minGroups": 2}, "any", {"minGroups": 2}, id="at least two by the policy"),
    ],
)
def test_a_workload_may_be_divided_by_its_own_wish(policy: Any, text: str, spread: dict[str, int]) -> None:
    region = {"spreadByField": "region", "maxGroups": 1}
    mine = [{"spreadByField": "cluster", **policy}] if policy else []
    found = with_annotations({"spreadConstraints": [region, *mine]}, {keys.DIVIDED: text})
    assert found["replicaScheduling"] == DIVIDED
    assert found["spreadConstraints"] == [region, {"spreadByField": "cluster", **spread}]


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1.5"])
def test_what_can_not_be_read_changes_nothing(text: str) -> None:
    assert with_annotations({"clusterAffinity": {}}, {keys.DIVIDED: text}) == {"clusterAffinity": {}}
