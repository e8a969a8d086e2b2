"""Pods that do not go: after a while their queue has its quota back, and nobody gets their nodes."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core import Explain
from atoll.model.decision import Phase
from atoll.model.queues import EVICT_TIMEOUT
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    Scene,
    dispatched,
    evicted,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    wishes,
)

STUCK = "m: pod a-0 on node m-0 is terminating since 2026-01-01T00:00:00Z, finalizer example.com/keep"


def taken_back(*more: object) -> Scene:
    """All 8 GPUs of the member, and of the queue, are held by what was taken back and does not go."""
    s = Scene(make_queue("q", gpu=8), make_cluster("m"), make_capacity("m", [8]), *more)  # type: ignore[arg-type]
    s.submit(make_binding("a").tasks(8))
    assert names(s.run()) == ["a"]
    s.bound("a", generation=2)
    s.tell(make_capacity("m", [0], generation=2))
    wishes(s, "a", hold=True)
    assert evicted(s.run()) == ["a"]
    s.change("a", placed={}, stuck=STUCK)
    return s


def test_quota_returns_in_time_and_the_nodes_do_not() -> None:
    """1. What was taken back keeps its queue's quota. 2. After the timeout the quota is back, and the story says why.
    3. The next one waits for room, not for quota. 4. Another member has room: it starts there. 5. The pods go.
    """
    s = taken_back()
    s.submit(make_binding("b").tasks(8))
    s.run()
    assert (s.used("q"), s.verdict("b")) == (8, Reason.QUOTA_EXCEEDED)
    assert s.run(after=EVICT_TIMEOUT - 5) == []
    [told, *_] = [c for c in s.run(after=6) if isinstance(c, Explain) and c.name == "a"]
    assert (told.decision.phase, told.decision.reason) == (Phase.LEAVING, Reason.EVICTION_OVERDUE)
    assert STUCK in told.decision.story[-1].text
    assert s.used("q") == 0
    s.run()
    assert s.verdict("b") is Reason.INSUFFICIENT_RESOURCES
    s.tell(make_cluster("n"), make_capacity("n", [8]))
    assert dispatched(s.run()) == [("b", "n")]
    assert s.verdict("a") is None, "it is not gone, so it does not wait yet"
    let_go(s, "a")
    s.run()
    assert s.verdict("a") is Reason.HELD


def test_a_leader_that_begins_does_not_charge_it_again() -> None:
    s = taken_back()
    s.run(after=EVICT_TIMEOUT + 1)
    s.restart()
    assert s.used("q") == 0
    s.run()
    assert s.used("q") == 0


def test_time_to_go_begins_with_the_last_eviction() -> None:
    s = taken_back()
    let_go(s, "a")
    s.tell(make_capacity("m", [8], generation=3))
    wishes(s, "a", hold=False)
    assert dispatched(s.run()) == [("a", "m")]
    s.bound("a", generation=4)
    assert evicted(s.run(after=2 * EVICT_TIMEOUT)) == []
    wishes(s, "a", hold=True)
    assert evicted(s.run()) == ["a"]
    s.change("a", placed={}, stuck=STUCK)
    s.restart()
    s.run()
    assert s.used("q") == 8


def test_a_leader_that_begins_knows_since_when_it_was_to_go() -> None:
    s = taken_back()
    s.restart()
    assert s.used("q") == 8
    s.run(after=EVICT_TIMEOUT + 1)
    assert s.used("q") == 0


def test_a_write_that_is_refused_leaves_it_charged_until_it_is_written() -> None:
    s = taken_back()
    [command] = s.decide(after=EVICT_TIMEOUT + 1)
    assert s.used("q") == 0
    s.refuse(command)
    assert s.used("q") == 8
    assert [c.name for c in s.run()] == ["a"]
    assert s.used("q") == 0


@pytest.mark.parametrize(
    ("queue", "root", "seconds"),
    [(30.0, None, 30.0), (None, 90.0, 90.0), (30.0, 90.0, 30.0)],
    ids=["its queue says", "the root says for all", "the nearest one says"],
)
def test_queues_say_how_long_pods_may_take(queue: float | None, root: float | None, seconds: float) -> None:
    s = taken_back()
    view = {"evict_timeout": queue}
    s.tell(make_queue("q", gpu=8, view=view), make_queue("root", view={"evict_timeout": root}))
    s.run(after=seconds - 2)
    assert s.used("q") == 8
    s.run(after=3)
    assert s.used("q") == 0


def test_what_goes_in_time_is_not_overdue() -> None:
    s = taken_back()
    let_go(s, "a")
    s.run()
    assert s.used("q") == 0
    assert s.run(after=2 * EVICT_TIMEOUT) == []
