"""Webster's method (Sainte-Laguë): seats for parties by their votes, as Karmada shares replicas out over clusters.

Seats go one by one to the party with the largest quotient votes / (2 x seats + 1); of equal ones to the party with
fewer seats, then by name. Here all seats that are certain go at once and only the last few of each party one by one:
O(parties log parties), however many seats there are. Quotients are float64, as Karmada's are: above 2^53 votes unequal
quotients compare equal. Pinned by the conformance suite `webster`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

_ROUNDS = 64


def descending(uid: str) -> bool:
    """Whether ties go to the last name first: where the FNV-32a hash of the template's UID is odd."""
    if not uid:
        return False
    digest = 2166136261
    for byte in uid.encode():
        digest = (digest ^ byte) * 16777619 & 0xFFFFFFFF
    return digest % 2 == 1


def seats(
    new: int, votes: Mapping[str, int], initial: Mapping[str, int] | None = None, *, last_first: bool = False
) -> dict[str, int]:
    """Give `new` seats to parties that have `initial` ones.

    Args:
        new: seats to give; none where there are no parties.
        votes: party -> votes, 0 or more.
        initial: party -> seats that it has already, 0 where it is not named; a party that only this names has no votes.
        last_first: whether ties go to the last name first, see `descending`.

    Returns:
        party -> all of its seats.
    """
    start = initial or {}
    names = sorted({*votes, *start}, reverse=last_first)
    given = [start.get(name, 0) for name in names]
    weights = [float(votes.get(name, 0)) for name in names]
    left = max(new, 0) if names else 0
    for party, count in enumerate(_certain(left, weights, given)):
        given[party] += count
        left -= count
    # Names are in order, so that the index decides where quotient and seats are equal.
    heap = [(-weights[party] / (2 * count + 1), count, party) for party, count in enumerate(given)]
    heapq.heapify(heap)
    for _ in range(left):
        _, count, party = heap[0]
        given[party] = count + 1
        heapq.heapreplace(heap, (-weights[party] / (2 * count + 3), count + 1, party))
    return dict(zip(names, given, strict=True))


def _certain(new: int, votes: Sequence[float], seats: Sequence[int]) -> list[int]:
    """Seats that each party gets in any case: seats whose quotients are above a bound that at most `new` are above."""
    bound = _bound(new, votes, seats)
    while bound > 0:
        counts = [_above(bound, vote, count) for vote, count in zip(votes, seats, strict=True)]
        if sum(counts) <= new:
            return counts
        bound *= 2
    return [0] * len(votes)


def _bound(new: int, votes: Sequence[float], seats: Sequence[int]) -> float:
    """A quotient that few fewer than `new` are above; 0 where there is no use in one.

    With the bound q a party ends with round(votes / 2q) seats, unless it has more already: such parties are set aside
    until none is left.
    """
    active = [party for party, vote in enumerate(votes) if vote > 0]
    for _ in range(_ROUNDS):
        total = new + sum(seats[party] for party in active) - len(active)
        if not active or total <= 0:
            return 0.0
        bound = sum(votes[party] for party in active) / (2 * total)
        staying = [party for party in active if votes[party] >= 2 * bound * (seats[party] - 1)]
        if len(staying) == len(active):
            return bound
        active = staying
    return 0.0


def _above(bound: float, votes: float, seats: int) -> int:
    """How many of a party's next quotients are above a bound."""
    end = max(seats, int((votes / bound - 1) / 2))
    while votes / (2 * end + 1) > bound:
        end += 1
    while end > seats and votes / (2 * end - 1) <= bound:
        end -= 1
    return end - seats


def steady(found: Mapping[str, int], has: Mapping[str, int], sets: int) -> dict[str, int]:
    """Member -> sets, `sets` in all, as near to the found ones as possible without moving running sets: with more in
    all no member gets fewer, with fewer none gets more.
    """
    change = sets - sum(has.values())
    names = sorted({*has, *found})
    lacking = {name: (found.get(name, 0) - has.get(name, 0)) * (1 if change > 0 else -1) for name in names}
    moved = seats(abs(change), {name: max(lack, 0) for name, lack in lacking.items()})
    sign = 1 if change > 0 else -1
    return {name: has.get(name, 0) + sign * moved[name] for name in names}
