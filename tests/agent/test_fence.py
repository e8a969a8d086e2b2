"""The fence counts from the last contact to the host, also over restarts and leaders."""

from __future__ import annotations

import time

import pytest

from atoll.agent.fence import Fence
from atoll.agent.settings import HeartbeatSettings
from atoll.model import keys
from atoll.model.timestamps import rfc3339, to_seconds

SETTINGS = HeartbeatSettings(fence=60)


@pytest.mark.parametrize(("ago", "closed"), [(59.0, False), (61.0, True)])
def test_it_closes_once_the_host_was_not_heard_for_so_long(ago: float, closed: bool) -> None:
    fence = Fence(None, settings=SETTINGS)  # type: ignore[arg-type]
    fence.contact(time.monotonic() - ago)
    assert fence.closed is closed


@pytest.mark.parametrize(("ago", "closed"), [(59.0, False), (61.0, True)])
def test_it_goes_on_from_what_the_lease_in_the_member_says(ago: float, closed: bool) -> None:
    fence = Fence(None, settings=SETTINGS)  # type: ignore[arg-type]
    said = {keys.CONTACT: rfc3339(time.time() - ago)}
    assert fence.annotations(said) == said
    assert fence.closed is closed
    fence.contact(time.monotonic())
    assert not fence.closed
    assert to_seconds(fence.annotations(said)[keys.CONTACT]) == pytest.approx(time.time(), abs=5)


def test_a_contact_in_the_future_of_this_clock_was_now() -> None:
    fence = Fence(None, settings=SETTINGS)  # type: ignore[arg-type]
    fence.annotations({keys.CONTACT: rfc3339(time.time() + 1000)})
    assert not fence.closed
    fence.contact(time.monotonic() - 61)
    assert not fence.closed


def test_an_agent_that_never_had_contact_counts_from_its_begin() -> None:
    fence = Fence(None, settings=SETTINGS)  # type: ignore[arg-type]
    assert not fence.closed
    assert fence.annotations({}) == {}


def test_the_host_takes_the_member_for_lost_before() -> None:
    with pytest.raises(ValueError, match=r"duration \(40\) <= fence \(30\)"):
        HeartbeatSettings(fence=30)
