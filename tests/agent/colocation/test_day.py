"""A day in virtual time: offline work is done, and no online pod lacks what it requested."""

from __future__ import annotations

import pytest

from tests.agent.colocation.day import ATOLL, BOLD, run


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_online_pods_have_their_requests_while_offline_work_is_done(seed: int) -> None:
    day = run(nodes=10, seed=seed, hours=6, rules=ATOLL)
    assert day.lacking == 0
    assert day.useful > 0.3 * day.idle
    assert day.evicted > 0
    # The rules are why.
    assert run(nodes=10, seed=seed, hours=6, rules=BOLD).lacking > 0
