"""How long a member is avoided after a failure, to the moment: it ends when it is said to, and is forgotten later."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core.capacity.failures import Failures
from atoll.dispatcher.core.capacity.refusals import Refusals
from atoll.dispatcher.core.settings import AvoidedSettings, RefusedSettings

BOUNDS = AvoidedSettings(pause=4.0, longest_pause=16.0)
SHAPE = b"shape"


def failed(*times: float) -> Failures:
    """What failed in member m at these times; each failure after the pause of the one before."""
    failures = Failures(BOUNDS)
    for now in times:
        [*failures.ended(now)]
        failures.failed(SHAPE, "m", "default", "uid", now)
    return failures


def test_a_shape_may_try_a_member_again_at_the_time_that_is_said() -> None:
    failures = failed(100.0)
    when = failures.next
    assert when is not None
    assert 4.0 <= when - 100.0 < 8.0
    assert [*failures.ended(when - 0.001)] == []
    assert [*failures.of(SHAPE)] == ["m"]
    assert [*failures.ended(when)] == [(SHAPE, "")]
    assert [*failures.of(SHAPE)] == []
    assert [*failures.ended(when)] == []


def test_failures_are_forgotten_a_while_after_their_pause() -> None:
    failures = failed(100.0)
    over = failures.next
    assert over is not None
    [*failures.ended(over)]
    assert failures.next == over + 2 * BOUNDS.longest_pause
    assert [*failures.ended(over + 2 * BOUNDS.longest_pause - 0.001)] == []
    assert failures.known
    assert [*failures.ended(over + 2 * BOUNDS.longest_pause)] == []
    assert not failures.known


def test_the_next_pause_is_twice_as_long_and_what_was_under_way_counts_once() -> None:
    first, together, again = failed(100.0), failed(100.0, 101.0), failed(100.0, 108.0)
    assert first.next is not None
    assert together.next == pytest.approx(first.next + 1)
    assert again.next == pytest.approx(108.0 + 2 * (first.next - 100.0))


def test_a_namespace_of_which_pods_failed_keeps_shapes_of_its_own_until_that_is_forgotten() -> None:
    failures = Failures(BOUNDS)
    assert failures.mark("default")
    assert not failures.mark("default")
    failures.failed(SHAPE, "m", "default", "uid", 100.0)
    over = failures.next
    assert over is not None
    assert [*failures.ended(over)] == [(SHAPE, "")]
    assert failures.is_marked("default")
    assert [*failures.ended(over + 2 * BOUNDS.longest_pause)] == [(b"", "default")]
    assert not failures.is_marked("default")


def test_a_full_quota_keeps_a_namespace_out_until_the_time_that_is_said() -> None:
    refusals = Refusals(RefusedSettings(pause=4.0, longest_pause=16.0))
    assert refusals.by_namespace("a", "m", "exceeded quota", 100.0)
    assert not refusals.by_namespace("a", "n", "exceeded quota", 100.0)
    when = refusals.next
    assert when is not None
    assert refusals.ended(when - 0.001) == ([], [], [])
    assert refusals.ended(when) == ([], ["a"], [])
    last = refusals.next
    assert last is not None
    assert refusals.ended(last) == ([], ["a"], [])
    assert refusals.next is None
    assert refusals.ended(last + 2 * 16.0 - 0.001) == ([], [], [])
    assert refusals.is_marked("a")
    assert refusals.ended(last + 2 * 16.0) == ([], [], ["a"])
    assert not refusals.is_marked("a")
