"""The checks of `make chaos-nodes`, and a short run of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import beside, nodes
from tests.chaos.record import Pod, Record


def pod(name: str, workload: str, bound: float, ended: float | None = None, *, succeeded: bool = True) -> Pod:
    return Pod(name, "shared", name, workload, "b", 1, bound, "n0", bound, ended, succeeded and ended is not None)


WISHES = {"gang-0": nodes.Wish("gang-0", pods=2, cpus=3, seconds=1, offset=0)}


def test_a_node_that_holds_more_than_it_has_is_told_once() -> None:
    pods = [pod("a", "gang-0", 1), pod("b", "gang-0", 2), pod("bare-0", "", 3), pod("bare-1", "", 4)]
    found = list(nodes.above_allocatable(pods, lambda each: {"cpu": 3000}))
    assert len(found) == 1
    assert "pod bare-0 raises node n0 to 9000m" in found[0]
    assert not list(nodes.above_allocatable(pods[:2], lambda each: {"cpu": 3000}))


@pytest.mark.parametrize(
    ("pods", "violated"),
    [
        pytest.param([pod("a", "gang-0", 1), pod("b", "gang-0", 2)], False, id="both are there"),
        pytest.param([pod("a", "gang-0", 1)], True, id="one never came"),
        pytest.param([pod("a", "gang-0", 1), pod("b", "gang-0", 2, 5)], False, id="one has done its part"),
        pytest.param([pod("a", "gang-0", 1), pod("b", "gang-0", 2, 5, succeeded=False)], True, id="one was rejected"),
    ],
)
def test_a_gang_below_its_minimum_for_too_long_is_told(pods: list[Pod], violated: bool) -> None:
    record = Record({}, {}, {}, pods={each.uid: each for each in pods}, end=nodes.DEADLINE_S + 20)
    assert bool(list(nodes.below_minimum(record, WISHES))) is violated


def test_the_same_seed_draws_the_same_workloads() -> None:
    assert nodes.wishes(3, 30) == nodes.wishes(3, 30) != nodes.wishes(4, 30)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_short_run_violates_nothing(tmp_path: Path) -> None:
    outcome = await nodes.run(11, 30, tmp_path)
    assert outcome.violations == []
    assert min(outcome.counts["bare pod"], outcome.counts["kubelet rejects"]) > 0


def test_what_was_seen_beside_others_is_said_in_figures() -> None:
    pods = [pod("a", "gang-0", 1), pod("b", "gang-0", 3), pod("bare-0", "", 4)]
    record = Record({}, {}, {}, pods={each.uid: each for each in pods}, end=5)
    outcome = nodes.Outcome(record, list(WISHES.values()), {"bare-0": 1}, counts={"bare pod": 1, "node dies": 0})
    assert list(beside.figures(outcome)) == [
        "1 workloads, 3 pods in all; 1 x bare pod",
        "fullest node: 7000m of 8000m CPU",
        "below its minimum: 1 times, the longest for 2.0 s; allowed are 45 s",
        "dispatched more than once: 0 workloads",
    ]


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_beside_others_nothing_is_violated(tmp_path: Path) -> None:
    outcome = await beside.run(3, 20, tmp_path)
    assert outcome.violations == []
    assert (outcome.counts["bare pod"] > 0, outcome.counts["node dies"]) == (True, 0)
