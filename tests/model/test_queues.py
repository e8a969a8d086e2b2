"""What a queue says for those below it."""

from __future__ import annotations

import pytest

from atoll.model import keys
from atoll.model.queues import most_grace

TREE = {
    "root": ({keys.EVICT_TIMEOUT: "30m"}, ""),
    "org": ({keys.EVICT_TIMEOUT: "5m"}, "root"),
    "team": ({}, "org"),
    "other": ({}, ""),
    "wrong": ({keys.EVICT_TIMEOUT: "soon"}, "org"),
    "none": ({keys.EVICT_TIMEOUT: "0s"}, "root"),
    "circle": ({}, "circle"),
}


@pytest.mark.parametrize(
    ("queue", "seconds"),
    [
        pytest.param("org", 300, id="its own"),
        pytest.param("team", 300, id="that of the nearest queue above"),
        pytest.param("other", 1800, id="that of the root"),
        pytest.param("wrong", 300, id="what can't be read is not said"),
        pytest.param("none", 1, id="a pod has a second at least"),
        pytest.param("circle", 1800, id="a circle ends"),
        pytest.param("unknown", 1800, id="a queue that is not there"),
    ],
)
def test_how_long_pods_of_a_queue_may_take_to_end(queue: str, seconds: int) -> None:
    assert most_grace(queue, TREE.get) == seconds


def test_twenty_minutes_where_none_is_given() -> None:
    assert most_grace("q", {"q": ({}, "")}.get) == 1200
