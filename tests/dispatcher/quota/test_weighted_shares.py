"""The arithmetic of entitlements: golden numbers computed by hand, and laws."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.weighted_shares import Claim, dominant_share, real_capability, share_and_burden, water_fill


def claim(
    name: str, weight: int, wanted: int, limit: int | None = None, guarantee: int = 0, created: str = ""
) -> Claim:
    return Claim(weight, wanted, limit, guarantee, created, name)


def two(pool: int, q1: Claim, q2: Claim) -> list[int]:
    return water_fill(pool, [q1, q2])


@pytest.mark.parametrize(
    ("pool", "claims", "expected"),
    [
        pytest.param(15, [claim("a", 2, 6), claim("b", 2, 6)], [6, 6], id="both get what they want and some is left"),
        pytest.param(
            12, [claim("a", 2, 6, 5), claim("b", 2, 6)], [5, 6], id="a limit stops one, the other gets its wish"
        ),
        pytest.param(
            11,
            [claim("a", 2, 6, created="2"), claim("b", 2, 6, created="1")],
            [5, 6],
            id="the odd unit goes to the older",
        ),
        pytest.param(11, [claim("b", 2, 6), claim("a", 2, 6)], [5, 6], id="the odd unit goes to the first by name"),
        pytest.param(8, [claim("a", 1, 6), claim("b", 3, 6)], [2, 6], id="weights 1 to 3"),
        pytest.param(
            11, [claim("a", 1, 10), claim("b", 4, 10)], [2, 9], id="2.2 and 8.8: the larger remainder is rounded up"
        ),
        pytest.param(100, [claim("a", 1, 1), claim("b", 1, 1)], [1, 1], id="small demands are met"),
        pytest.param(
            100,
            [claim("a", 1, 1), claim("b", 1, 40), claim("c", 1, 1000)],
            [1, 40, 59],
            id="what the modest leave goes on",
        ),
        pytest.param(100, [claim("a", 1, 1000), claim("b", 3, 1)], [99, 1], id="weight without demand takes nothing"),
        pytest.param(
            81,
            [claim("donor", 1, 0), *(claim(f"b{i}", 1, 100) for i in range(10))],
            [0, 9, *[8] * 9],
            id="81 cards among ten: every card is given, the odd one to the first",
        ),
        pytest.param(0, [claim("a", 1, 5, guarantee=2), claim("b", 1, 5)], [2, 0], id="a guarantee needs no pool"),
        pytest.param(
            10,
            [claim("a", 1, 10, guarantee=8), claim("b", 1, 10, 2)],
            [8, 2],
            id="the others' limit makes room for a guarantee",
        ),
        pytest.param(
            9, [claim("a", 1, 0, guarantee=3), claim("b", 1, 9)], [3, 6], id="a guarantee is kept without demand"
        ),
        pytest.param(
            2, [claim("a", 1, 9), claim("b", 1, 9), claim("c", 1, 9)], [1, 1, 0], id="fewer units than queues"
        ),
        pytest.param(5, [claim("a", 0, 9), claim("b", 0, 9)], [0, 0], id="without any weight nothing is divided"),
        pytest.param(5, [], [], id="nobody"),
        pytest.param(-3, [claim("a", 1, 9)], [0], id="an overdrawn pool holds nothing"),
    ],
)
def test_water_fill(pool: int, claims: list[Claim], expected: list[int]) -> None:
    assert water_fill(pool, claims) == expected


def by_fractions(pool: int, claims: list[Claim]) -> list[Fraction]:
    """The plugin's loop word by word, on exact fractions."""
    d = [Fraction(0)] * len(claims)
    unmet, remaining = set(range(len(claims))), Fraction(pool)
    for _ in range(100):
        total = sum(claims[i].weight for i in unmet)
        if not total:
            break
        before, share = remaining, remaining
        for i in sorted(unmet):
            c = claims[i]
            new = d[i] + share * c.weight / total
            if c.limit is not None:
                new = min(new, Fraction(c.limit))
            new = max(min(new, Fraction(c.wanted)), Fraction(c.guarantee))
            if c.wanted <= new or new == d[i]:
                unmet.discard(i)
            remaining -= new - d[i]
            d[i] = new
        remaining = max(remaining, Fraction(0))
        if remaining == before or not unmet:
            break
    return d


claims_of = st.lists(
    st.builds(
        Claim,
        st.integers(1, 9),
        st.integers(0, 60),
        st.none() | st.integers(10, 60),
        st.integers(0, 10),
        st.sampled_from(["", "1", "2"]),
        st.uuids().map(str),
    ),
    max_size=6,
)


@given(st.integers(0, 100), claims_of)
def test_whole_units_are_the_exact_division_rounded(pool: int, claims: list[Claim]) -> None:
    for whole, exact in zip(water_fill(pool, claims), by_fractions(pool, claims), strict=True):
        assert abs(whole - exact) < 1


@given(st.integers(0, 100), claims_of)
def test_everything_is_divided_and_none_gets_more_than_it_may(pool: int, claims: list[Claim]) -> None:
    parts = water_fill(pool, claims)
    ceilings = [min(c.wanted, c.wanted if c.limit is None else c.limit) for c in claims]
    for part, c, ceiling in zip(parts, claims, ceilings, strict=True):
        assert c.guarantee <= part <= max(ceiling, c.guarantee)
    hungry = any(part < ceiling for part, ceiling in zip(parts, ceilings, strict=True))
    if hungry:
        assert sum(parts) >= pool
    if sum(c.guarantee for c in claims) == 0:
        assert sum(parts) == min(pool, sum(ceilings))


@given(st.integers(0, 100), claims_of, st.randoms(use_true_random=False))
def test_the_order_of_the_siblings_does_not_matter(pool: int, claims: list[Claim], random) -> None:
    shuffled = random.sample(claims, len(claims))
    parts = dict(zip(claims, water_fill(pool, claims), strict=True))
    assert dict(zip(shuffled, water_fill(pool, shuffled), strict=True)) == parts


@pytest.mark.parametrize(
    ("capability", "parent", "pledged", "guarantee", "expected"),
    [
        pytest.param(None, None, 0, 0, None, id="nothing known, nothing limited"),
        pytest.param(7, None, 5, 2, 7, id="only the capability is known"),
        pytest.param(None, 10, 6, 4, 8, id="what the siblings' guarantees leave and the own"),
        pytest.param(5, 10, 6, 4, 5, id="the capability is lower"),
        pytest.param(None, 4, 6, 4, 4, id="lost capacity leaves the own guarantee"),
        pytest.param(None, 4, 6, 0, 0, id="lost capacity leaves nothing to whom nothing is guaranteed"),
    ],
)
def test_real_capability(capability, parent, pledged, guarantee, expected) -> None:
    assert real_capability(capability, parent, pledged, guarantee) == expected


@pytest.mark.parametrize(
    ("used", "deserved", "expected"),
    [
        pytest.param({"cpu": 2, "gpu": 3}, {"cpu": 4, "gpu": 4}, 0.75, id="the largest decides"),
        pytest.param({"cpu": 1}, {"cpu": 0}, 1.0, id="used without being deserved counts as 1"),
        pytest.param({"cpu": 2}, {}, 1.0, id="so does what no queue deserves"),
        pytest.param({}, {"cpu": 0}, 0.0, id="neither used nor deserved is 0"),
        pytest.param({"gpu": 9}, {"gpu": 3}, 3.0, id="borrowing goes beyond 1"),
    ],
)
def test_dominant_share(used, deserved, expected) -> None:
    assert dominant_share(used, deserved, {**used, **deserved}) == expected


def test_a_burden_counts_cores_gibibytes_and_devices_alike_per_weight() -> None:
    assert share_and_burden({"cpu": 3000, "memory": 2 * 2**30, "gpu": 1}, {}, (), {}, 2) == (0.0, 1.5)
    assert share_and_burden({"cpu": 3000, "gpu": 1}, {"cpu": 6000}, ("cpu",), {}, 2) == (0.5, 0.5)
    assert share_and_burden({"gpu": 0}, {"gpu": 0}, ("gpu",), {}, 1) == (0.0, 0.0), "nothing of nothing is used"


@pytest.mark.parametrize(
    ("deserved", "limit", "expected"),
    [
        pytest.param({"gpu": 4}, {"gpu": 1}, (0.5, 0.0), id="what siblings share is measured by what is deserved"),
        pytest.param({}, {"gpu": 1}, (1.0, 2.0), id="what is shared and not deserved counts as 1 and is a burden"),
    ],
)
def test_a_share_is_against_what_is_deserved(deserved, limit, expected) -> None:
    assert share_and_burden({"gpu": 2}, deserved, ("gpu",), limit, 1) == expected


def test_what_siblings_do_not_share_is_measured_by_the_limit() -> None:
    assert share_and_burden({"gpu": 2}, {}, (), {"gpu": 8}, 1) == (0.25, 0.0)
    assert share_and_burden({"gpu": 2}, {}, (), {"gpu": 0}, 1) == (1.0, 0.0)
