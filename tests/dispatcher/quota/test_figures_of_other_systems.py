"""Figures that other systems state for their own division and order, where the rule is ours too; else ours beside it.

Ours differs on purpose in two places: a guarantee is never lent (Koordinator's minimum is, while it is idle), and what
is left over deserved amounts goes by share of what is deserved (in KAI by a weight of its own).
"""

from __future__ import annotations

import pytest

from atoll.dispatcher.core import Command
from atoll.model.weighted_shares import Claim, water_fill
from tests.dispatcher.builders import (
    EARLY,
    GPU,
    LATE,
    NEVER,
    OLD,
    Scene,
    evicted,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
)

ENDLESS = 10**9


def claim(name: str, weight: int, wanted: int, guarantee: int = 0) -> Claim:
    return Claim(weight, wanted, None, guarantee, "", name)


# -- Koordinator's elastic quota: (weight, request, minimum) of 100 ----------------------------------------------------

KOORDINATOR = [claim("n1", 40, 5, 10), claim("n2", 60, 20, 15), claim("n3", 50, 40, 20), claim("n4", 80, 70, 15)]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param(KOORDINATOR[3], [10, 20, 27, 43], id="5 20 35 40 there: n1 lends the half of its minimum"),
        pytest.param(claim("n4", 0, 70, 15), [10, 20, 40, 15], id="5 20 40 15 there: without weight the minimum alone"),
    ],
)
def test_the_example_of_koordinator(last: Claim, expected: list[int]) -> None:
    assert water_fill(100, [*KOORDINATOR[:3], last]) == expected


def test_a_guarantee_above_its_share_comes_on_top_as_in_volcano() -> None:
    """Koordinator: 5 20 30 45, with 45 guaranteed to n4 and no weight of its own; Volcano's loop divides the 100 first."""
    assert water_fill(100, [*KOORDINATOR[:3], claim("n4", 0, 70, 45)]) == [10, 20, 33, 45]


def test_of_81_cards_every_one_is_given_and_none_gets_less_than_its_minimum() -> None:
    """Koordinator's integer case; there the donor's three go on, here they are kept for it."""
    minimums = [3, *[8] * 8, 7, 7]
    claims = [claim(f"b{i:02}", 1, 100 if i else 0, least) for i, least in enumerate(minimums)]
    assert water_fill(81, claims) == minimums
    lent = [each._replace(guarantee=0) if not index else each for index, each in enumerate(claims)]
    parts = water_fill(81, lent)
    assert parts[0] == 0
    assert sum(parts) == 81
    assert all(part >= each.guarantee for part, each in zip(parts, lent, strict=True))


# -- Armada's fair shares, in thousandths ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "demands", "capped", "uncapped"),
    [
        pytest.param([1, 1], [10, 10], [10, 10], [990, 990], id="two small demands"),
        pytest.param([1, 1, 1], [10, 400, 10_000], [10, 400, 590], [None, 495, 590], id="small, medium and endless"),
        pytest.param([1, 3], [10_000, 10], [990, 10], [990, 750], id="weight 3 with little demand"),
        pytest.param([1], [0], [0], [1000], id="no demand"),
    ],
)
def test_the_shares_of_armada(
    weights: list[int], demands: list[int], capped: list[int], uncapped: list[int | None]
) -> None:
    """Capped: what each gets. Uncapped: what it would get if its demand had no end (the first of three is defined
    otherwise there).
    """
    claims = [claim(f"q{i}", *each) for i, each in enumerate(zip(weights, demands, strict=True))]
    assert water_fill(1000, claims) == capped
    for index, expected in enumerate(uncapped):
        if expected is not None:
            more = [each._replace(wanted=ENDLESS) if i == index else each for i, each in enumerate(claims)]
            assert water_fill(1000, more)[index] == expected


@pytest.mark.parametrize(
    ("weight", "others", "expected"),
    [
        pytest.param(1, [(1, ENDLESS)], 300, id="half next to a busy queue"),
        pytest.param(1, [(1, ENDLESS)] * 2, 200, id="a third next to two"),
        pytest.param(2, [(1, ENDLESS)], 400, id="two thirds next to one of half its weight"),
        pytest.param(1, [(1, 6)], 594, id="0.99 next to a demand of 0.01"),
    ],
)
def test_the_share_that_a_new_queue_can_expect(weight: int, others: list[tuple[int, int]], expected: int) -> None:
    claims = [claim("new", weight, ENDLESS), *(claim(f"q{i}", *each) for i, each in enumerate(others))]
    assert water_fill(600, claims)[0] == expected


# -- KAI's two queues, reached by dispatch and reclaim -----------------------------------------------------------------


def settled(gpus: int, *queues: dict[str, object], jobs: int = 6) -> list[int]:
    """GPUs of each queue once nothing changes any more; each wants `jobs` jobs of one."""
    s = Scene(make_cluster("m"), make_capacity("m", [gpus]))
    for number, more in enumerate(queues):
        limit = {"gpu": more.pop("limit")} if "limit" in more else {}
        wants = int(str(more.pop("wants", jobs)))
        view = {"deserved": {GPU: 2}, "created": f"2026-01-0{number + 1}T00:00:00Z", **more}
        priority = int(str(view.pop("priority", 0)))
        s.tell(make_queue(f"q{number}", priority=priority, view=view, **limit))  # type: ignore[arg-type]
        s.submit(*(make_binding(f"q{number}-{job}").queue(f"q{number}").submitted(EARLY) for job in range(wants)))
    commands: list[Command] = []
    for _ in range(40):
        # Room that was made is kept for a while only.
        commands = s.run(after=1.0 if evicted(commands) else OLD)
        for name in names(commands):
            s.bound(name, generation=NEVER)
        for name in evicted(commands):
            s.change(name, released=s.view(name).generation, placed={})
        if not names(commands) and not evicted(commands):
            break
    else:
        pytest.fail("it never comes to rest")
    return [s.used(f"q{number}") for number in range(len(queues))]


@pytest.mark.parametrize(
    ("gpus", "queues", "expected"),
    [
        pytest.param(15, [{}, {}], [6, 6], id="15: both get what they want and 3 are left"),
        pytest.param(12, [{"limit": 5}, {}], [5, 6], id="12: a limit of 5"),
        pytest.param(11, [{}, {}], [6, 5], id="11: the older queue gets the odd one"),
        pytest.param(
            6,
            [{}, {"priority": 1}],
            [2, 4],
            id="6: who deserves 2 has 2, what is left goes by priority",
        ),
        pytest.param(6, [{"weight": 100}, {"priority": 1}], [2, 4], id="6: whatever its weight"),
        pytest.param(
            5, [{}, {}, {"priority": -1, "deserved": {GPU: 1}, "wants": 0}], [3, 2, 0], id="5: an idle third lends"
        ),
    ],
)
def test_the_queues_of_kai(gpus: int, queues: list[dict[str, object]], expected: list[int]) -> None:
    assert settled(gpus, *[dict(each) for each in queues]) == expected


# -- volcano-global's dispatcher ---------------------------------------------------------------------------------------


def test_one_queue_goes_by_age() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("rb2").submitted(LATE), make_binding("rb1").submitted(EARLY))
    assert names(s.run()) == ["rb1", "rb2"]


def test_two_queues_take_turns() -> None:
    s = Scene(make_queue("q1"), make_queue("q2"), make_cluster("m"), make_capacity("m", [8]))
    for number in range(1, 7):
        s.submit(make_binding(f"rb{number}").queue("q1" if number < 4 else "q2"))
    assert names(s.run()) == ["rb1", "rb4", "rb2", "rb5", "rb3", "rb6"]


@pytest.mark.parametrize(
    ("arrivals", "admitted"),
    [
        pytest.param([(2, 1)], ["a0"], id="2 x 1 beside 2 x 1 of 5"),
        pytest.param([(4, 1)], [], id="4 x 1 does not fit"),
        pytest.param([(2, 1), (1, 2)], ["a0"], id="2 x 1, then 1 x 2 does not fit any more"),
    ],
)
def test_a_capability_of_five(arrivals: list[tuple[int, int]], admitted: list[str]) -> None:
    s = Scene(make_queue("q", gpu=5), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("runs").tasks(2))
    assert names(s.run()) == ["runs"]
    s.submit(*(make_binding(f"a{i}").tasks(pods, gpu=gpu) for i, (pods, gpu) in enumerate(arrivals)))
    assert names(s.run()) == admitted
