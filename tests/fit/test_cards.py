"""Shares of GPUs fit on a card or not at all, and fragmentation prefers where less of the others is lost."""

from __future__ import annotations

import random

import numpy as np
import pytest

from atoll.fit import Miss, Nodes, Profile, place
from atoll.fit.constraints import Cards
from atoll.fit.scores import Typical
from atoll.model import cards
from atoll.model.cards import SHARE
from atoll.model.gang import Gang, Task
from atoll.model.topology import NO_DOMAIN, Tree


def pods(count: int, share: int, *, scoring: str = "", cpu: int = 0) -> Gang:
    request = {SHARE: share, **({"cpu": cpu} if cpu else {})}
    return Gang("", [Task("t", count, count, request)], count, scoring=scoring)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        pytest.param(500, 3, id="one on the half card, two on the whole one"),
        pytest.param(600, 1, id="half a card is none"),
        pytest.param(1000, 1, id="a whole card"),
        pytest.param(2000, 0, id="two whole cards are not there"),
        pytest.param(1500, 0, id="no node gives one and a half"),
    ],
)
def test_a_node_holds(share: int, expected: int) -> None:
    room = Cards(np.array([[1000, 500, 100]])).room(pods(1, share).tasks[0], 1)
    assert room is not None
    assert room.tolist() == [expected]


def test_a_share_takes_of_the_fullest_card_that_has_it() -> None:
    there = Cards(np.array([[1000, 500, 600]]))
    there.take(pods(1, 500).tasks[0], 0, 2)
    assert there.free.tolist() == [[1000, 0, 100]]
    there.take(pods(1, 1000).tasks[0], 0, 1)
    assert there.free.tolist() == [[0, 0, 100]]


def typical(*shapes: tuple[int, int, int]) -> Typical:
    """Of (share, cpu, pods)."""
    found = Typical()
    for share, cpu, count in shapes:
        found.see(pods(1, share, cpu=cpu).tasks[0], count)
    return found


def lost(known: list[tuple[int, int, int]], cpu: int, free: list[int]) -> float:
    """The formula of the docs, told a second time for one node."""
    total = 0.0
    for share, asked, count in known:
        amount, number = cards.asked({SHARE: share})
        fits = amount and cpu >= asked and sum(each >= amount for each in free) >= number
        total += count * (sum(each for each in free if each < amount) if fits else sum(free))
    return total / sum(count for _, _, count in known)


def test_scores_are_those_of_the_formula() -> None:
    rng = random.Random(3)
    known = [(500, 1000, 5), (1000, 4000, 3), (2000, 8000, 2), (0, 2000, 4), (300, 500, 1)]
    shapes = typical(*known)
    shapes.weigh([Profile()])
    for _ in range(100):
        free = [rng.choice([0, 200, 500, 700, 1000]) for _ in range(4)]
        cpu, share = rng.randint(4000, 12000), rng.choice([300, 500, 1000])
        fitting = [card for card, left in enumerate(free) if left >= share]
        if not fitting:
            continue
        state = np.array([cpu]), np.array([free]), np.array([0])
        [score], [card] = (each.tolist() for each in shapes.scores({SHARE: share, "cpu": 1000}, *state))
        gains = {}
        for each in fitting:
            after = [left - share * (number == each) for number, left in enumerate(free)]
            gains[each] = lost(known, cpu, free) - lost(known, cpu - 1000, after)
        best = max(gains.values()) if share < 1000 else gains[fitting[0]]
        exact = 5000 + 5000 * best / (1000 + abs(best))
        assert exact - 201 <= score <= exact
        assert score % 200 == 0
        assert share == 1000 or gains[card] == pytest.approx(best)


def test_fragmentation_keeps_whole_cards_for_those_that_want_them() -> None:
    """Of two nodes one has a card in use: the share goes there, though the other one is tighter."""
    free = [{"cpu": 10_000, SHARE: 1500}, {"cpu": 5000, SHARE: 2000}]
    nodes = Nodes(Tree([]), [NO_DOMAIN, NO_DOMAIN], ["a", "b"], [Profile()], [0, 0], free)
    nodes.capacity = nodes.matrix([{"cpu": 10_000, SHARE: 2000}] * 2)
    nodes.exact = (Cards(np.array([[1000, 500], [1000, 1000]])),)
    nodes.typical = typical((1000, 1000, 9), (500, 1000, 1))
    placed = place(nodes, pods(1, 400, scoring="fragmentation", cpu=1000))
    assert not isinstance(placed, Miss)
    assert [node for _, node, _ in placed.pods] == [0]
    assert isinstance(place(nodes, pods(5, 800, cpu=1000)), Miss), "three cards have it"
