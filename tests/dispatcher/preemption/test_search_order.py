"""Whose turn it is when many wait for others to go: by priority, then age; those whom nobody can help step back."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core import Ask, Explain
from tests.dispatcher.builders import GPU, make_binding, make_queue, share
from tests.dispatcher.virtual import Town, gpus


def town(hopeless: int, *, priority: int) -> Town:
    """One member of nodes with a GPU each, full of work of no priority; and classes that fit no node of it, whose queue
    has something of a lower priority."""
    t = Town(make_queue("q"), m=gpus(*[1] * 4))
    for number in range(4):
        t.submit(make_binding(f"low{number}"))
    t.run(100)
    for number in range(hopeless):
        t.submit(make_binding(f"vain{number}").tasks(1, gpu=2 + number).priority(priority))
    return t


def evicted_after(t: Town) -> float:
    begin = t.time
    t.run(120)
    return t.evicted()[0][0] - begin if t.evicted() else float("inf")


@pytest.mark.parametrize("hopeless", [20, 300, 1000])
def test_the_highest_priority_is_looked_at_first_however_many_have_no_victims(hopeless: int) -> None:
    t = town(hopeless, priority=1)
    t.run(5)
    t.submit(make_binding("high").priority(2))
    assert evicted_after(t) < 3


@pytest.mark.parametrize("hopeless", [20, 300])
def test_and_a_lower_one_than_theirs_gets_its_turn(hopeless: int) -> None:
    """Those whom nobody can help take at most the half of all searches."""
    t = town(hopeless, priority=2)
    t.submit(make_binding("high").priority(1))
    begin = t.time
    t.run(2 * hopeless)
    assert t.evicted(), "it never had its turn"
    assert t.evicted()[0][0] - begin < 10 + hopeless


def test_of_equal_ones_the_elder_comes_first() -> None:
    t = Town(share("mine", 2), share("theirs", 2), m=[{GPU: 1, "cpu": 100, "pods": 9}] * 4)
    for number in range(4):
        t.submit(make_binding(f"low{number}").queue("theirs"))
    t.run(100)
    for number in range(50):
        t.submit(make_binding(f"c{number:02}").queue("mine").tasks(1, requests={"cpu": number}))
    t.run(3)
    asked = [c.name for _, c in t.commands if isinstance(c, Ask)]
    assert asked == ["c00", "c01"]


def test_a_claimant_without_victims_is_looked_at_less_and_less_often() -> None:
    t = town(1, priority=1)
    t.run(3600)
    told = [c for _, c in t.commands if isinstance(c, Explain) and c.name == "vain0"]
    assert len(told) == 1
    assert t.passes < 200
