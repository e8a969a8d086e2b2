"""Who has a reservation starts by its first time, where estimates are exact and nobody is evicted for others."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from atoll.fit.pods import placed_as_told, where_seen
from tests.dispatcher.builders import BACKFILL, GPU, make_binding, make_queue
from tests.dispatcher.virtual import Town, gpus

WISHES: dict[str, list[dict[str, Any]]] = {
    "backfill": [BACKFILL],
    "backfill and waiting times": [{**BACKFILL, "patience": 60.0}],
    "waiting times": [{"patience": 60.0}],
    "either": [BACKFILL, {**BACKFILL, "patience": 60.0}, {"patience": 60.0}],
    "deserved": [{**BACKFILL, "patience": 60.0, "deserved": {GPU: gpus}} for gpus in (4, 6, 8)],
}
"""What queues are like, one of these each."""


def play(seed: int, wish: str = "backfill", priorities: Sequence[int] = (0,)) -> Town:
    """Three queues with limits, and gangs of one task and of two with pods of different sizes."""
    random = Random(seed)
    limits = [random.choice([8, 10, 12]) for _ in range(3)]
    views = [{**random.choice(WISHES[wish]), "reclaimable": False} for _ in limits]
    queues = [make_queue(f"q{number}", view=views[number], gpu=limit) for number, limit in enumerate(limits)]
    town = Town(*queues, m=gpus(4, 4, 4), n=gpus(8))
    for number in range(26):
        builder = make_binding(f"b{number}").queue(f"q{random.randrange(3)}").priority(random.choice(priorities))
        if random.random() < 0.6:
            builder = builder.tasks(random.randint(1, 2), gpu=random.choice([1, 2, 4]))
            builder = builder.tasks(random.randint(1, 4), gpu=random.choice([1, 2]))
        else:
            builder = builder.tasks(random.randint(1, 4), gpu=random.choice([1, 2, 4]))
        town.submit(builder.firm(), random.choice([60.0, 120.0, 300.0, 600.0]))
        town.run(random.choice([1.0, 10.0, 40.0]))
    town.run(20_000)
    return town


@pytest.mark.parametrize(("seed", "wish"), [(3, "backfill"), *((0, wish) for wish in WISHES)], ids=str)
def test_no_head_is_late(seed: int, wish: str) -> None:
    assert play(seed, wish).late() == []


def test_who_must_wait_for_one_that_a_better_rank_overtook_is_overtaken_as_well() -> None:
    assert play(8, priorities=(0, 0, 0, 0, 1)).late() == []


def test_pods_of_two_sizes_are_where_they_were_expected() -> None:
    """A report counts pods per node: which of them the large one is on follows from where they were expected."""
    gang = make_binding("a").tasks(1, gpu=2).tasks(3).build().gang
    assert gang is not None
    index = {"n0": 0, "n1": 1}
    told = placed_as_told(gang, [("t1", "n0", 2), ("t1", "n1", 1), ("t0", "n1", 1)], index)
    assert where_seen(gang, {"n0": 2, "n1": 2}, index, (told,)) == [(1, 0, 2), (1, 1, 1), (0, 1, 1)]
    elsewhere = where_seen(gang, {"n0": 3, "n1": 1}, index, (told,))
    assert elsewhere == where_seen(gang, {"n0": 3, "n1": 1}, index), "it is on other nodes"


@pytest.mark.long
@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("seed", range(100))
def test_no_head_is_late_in_many_more(seed: int, wish: str) -> None:
    assert play(seed, wish).late() == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_nor_where_some_are_of_a_higher_class(seed: int) -> None:
    assert play(seed, priorities=(0, 0, 0, 0, 1)).late() == []
