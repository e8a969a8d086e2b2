"""A day in virtual time: nothing bounces, and nodes are above the target for less time."""

from __future__ import annotations

import pytest

from atoll.model.gang import Task
from atoll.sim.jobs import GPU, Job
from tests.agent.descheduler import loads
from tests.agent.descheduler.day import ATOLL, run


@pytest.mark.parametrize("keeps", [False, True], ids=["another scheduler places", "Atoll's placer keeps places"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_bounces_in_a_day_and_nodes_are_crowded_for_less_time(seed: int, keeps: bool) -> None:
    calm, moved = (
        run(loads.random(nodes=20, seed=seed, hours=6), hours=6, rules=rules, keeps=keeps) for rules in (None, ATOLL)
    )
    assert moved.bounces == 0
    assert moved.evictions > 0
    assert moved.crowded < calm.crowded / 2
    assert moved.short <= calm.short


def test_a_curve_is_the_use_of_a_day_over_its_mean() -> None:
    """One virtual cluster: four GPUs all the time, four more for the first half of the second day."""
    jobs = [
        Job(name, begin, lasts, (Task("w", 1, 1, {GPU: gpus}),), "q")
        for name, begin, lasts, gpus in (
            ("a", 0, 2 * loads.DAY, 4),
            ("b", loads.DAY, loads.DAY / 2, 4),
            ("c", 2 * loads.DAY, 1, 0),
        )
    ]
    first, second = loads.curves(jobs)
    assert set(first) == {1.0}
    assert second == [8 / 6] * 48 + [4 / 6] * 48
