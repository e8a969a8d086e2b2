"""A day in virtual time: nothing bounces, and nodes are above the target for less time."""

from __future__ import annotations

import pytest

from tests.agent.descheduler.day import ATOLL, run


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_bounces_in_a_day_and_nodes_are_crowded_for_less_time(seed: int) -> None:
    calm = run(nodes=20, seed=seed, hours=6, rules=None)
    moved = run(nodes=20, seed=seed, hours=6, rules=ATOLL)
    assert moved.bounces == 0
    assert moved.evictions > 0
    assert moved.crowded < calm.crowded / 2
