"""What failed is left alone for longer each time."""

from __future__ import annotations

import asyncio
import random

import pytest

from atoll.kube.backoff import Backoff


async def test_pauses_double_up_to_a_limit_and_start_anew_after_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    backoff: Backoff[str] = Backoff(0.5, 3.0)
    assert [backoff.failed("a") for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.failed("b") == 0.5, "each key has its own"
    assert backoff.failed("b", at_least=7.0) == 7.0, "as long as a server asks for"
    backoff.forget("a")
    assert (backoff.failed("a"), len(backoff)) == (0.5, 2)


async def test_a_key_pauses_until_its_time_is_over() -> None:
    backoff: Backoff[str] = Backoff(0.02, 1.0)
    assert not backoff.pauses("a")
    pause = backoff.failed("a")
    assert (backoff.pauses("a"), 0.01 <= pause <= 0.02) == (True, True)
    await asyncio.sleep(pause + 0.005)
    assert not backoff.pauses("a")
