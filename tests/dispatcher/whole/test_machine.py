"""Random histories against the core, searched by hypothesis and by seeds, and those that were wrong once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from tests.dispatcher.whole.machine import Federation, History

TestFederation = Federation.TestCase
TestFederation.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def test_long_histories_keep_every_invariant() -> None:
    decided: Counter[str] = Counter()
    for seed in range(24):
        history = History(seed)
        history.play(150)
        decided += history.decided
    assert decided.keys() == {"grown", "shrunk", "noted", "evicted"}, "nobody was resized, or nobody made room"


@pytest.mark.parametrize("seed", [413, 625])
def test_histories_that_were_wrong_once_keep_every_invariant(seed: int) -> None:
    """413: what has no place where it was dispatched, for pods landed on other nodes. 625: a growth that is written after its
    own deadline.
    """
    History(seed).play(250)
