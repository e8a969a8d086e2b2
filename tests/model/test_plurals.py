"""Numbers and verdicts as sentences."""

from __future__ import annotations

import pytest

from atoll.model.plurals import counted
from atoll.model.verdict import Reason, Verdict, blocker


@pytest.mark.parametrize(("number", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs")])
def test_one_is_not_many(number: int, text: str) -> None:
    assert counted(number, "job") == text


@pytest.mark.parametrize(
    ("names", "says"),
    [
        pytest.param("east", "cluster east holds 1 of the 4 pods", id="one of several"),
        pytest.param("east, west", "clusters east, west hold 1 of the 4 pods", id="several"),
    ],
)
def test_a_verdict_on_several_members_agrees_with_their_number(names: str, says: str) -> None:
    assert says in Verdict(Reason.INSUFFICIENT_RESOURCES, blocker("Clusters", names, "pods", 4, 1)).sentence()


@pytest.mark.parametrize(
    ("pods", "says"),
    [
        pytest.param(1, "cluster east has no room for its pod", id="a single pod"),
        pytest.param(4, "cluster east holds 0 of the 4 pods that must start together", id="a gang"),
    ],
)
def test_a_verdict_on_pods_is_a_sentence(pods: int, says: str) -> None:
    verdict = Verdict(Reason.INSUFFICIENT_RESOURCES, blocker("Cluster", "east", "pods", pods, 0))
    assert verdict.sentence() == f"no member has room for the whole gang: {says}"
