"""The leader's time that questions may take is shared by those who ask."""

from __future__ import annotations

import time

import pytest

from atoll.dispatcher.query.budget import Budget, Exhausted


def spend(budget: Budget, user: str, seconds: float) -> None:
    with budget.spend(user):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass


async def test_a_user_who_had_its_part_is_refused_before_anything_is_read():
    budget = Budget(0.01, patience=0.5)
    await budget.wait("alice")
    spend(budget, "alice", 0.02)
    with pytest.raises(Exhausted) as refused:
        await budget.wait("alice")
    assert refused.value.wait > 0.5


async def test_one_user_s_questions_don_t_use_up_another_s_part():
    budget = Budget(0.01, patience=0.5)
    await budget.wait("alice")
    spend(budget, "alice", 0.02)
    await budget.wait("bob")


async def test_who_asked_little_waits_for_its_part():
    budget = Budget(0.1, patience=1.0)
    await budget.wait("alice")
    spend(budget, "alice", 0.02)
    began = time.perf_counter()
    await budget.wait("alice")
    assert time.perf_counter() - began >= 0.1


async def test_users_that_share_the_time_wait_longer():
    alone, shared = Budget(0.01, patience=0.0), Budget(0.01, patience=0.0)
    for other in ("bob", "carol"):
        await shared.wait(other)
    waits = []
    for budget in (alone, shared):
        await budget.wait("alice")
        spend(budget, "alice", 0.02)
        with pytest.raises(Exhausted) as refused:
            await budget.wait("alice")
        waits.append(refused.value.wait)
    assert waits[1] > 2 * waits[0]
