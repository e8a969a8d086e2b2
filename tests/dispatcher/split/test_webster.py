"""Webster's method: all at once gives what one by one gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.dispatcher.split import webster


def one_by_one(new: int, votes: dict[str, int], initial: dict[str, int], *, last_first: bool) -> dict[str, int]:
    """The definition."""
    names = sorted({*votes, *initial}, reverse=last_first)
    seats = {name: initial.get(name, 0) for name in names}
    for _ in range(new if names else 0):
        best = min(names, key=lambda name: (-float(votes.get(name, 0)) / (2 * seats[name] + 1), seats[name]))
        seats[best] += 1
    return seats


names = st.sampled_from(["a", "b", "c", "d", "e", "f"])
votes = st.one_of(st.integers(0, 5), st.integers(0, 200), st.integers(2**53 - 3, 2**53 + 3), st.integers(0, 2**62))


@given(st.integers(0, 120), st.dictionaries(names, votes), st.dictionaries(names, st.integers(0, 60)), st.booleans())
def test_seats_are_those_of_giving_them_one_by_one(new, votes, initial, last_first):
    expected = one_by_one(new, votes, initial, last_first=last_first)
    assert webster.seats(new, votes, initial, last_first=last_first) == expected


@given(st.dictionaries(names, st.integers(0, 1000), min_size=1), st.data())
def test_no_cluster_gets_more_than_it_holds_while_all_hold_enough(room, data):
    replicas = data.draw(st.integers(0, sum(room.values())))
    found = webster.seats(replicas, room)
    assert sum(found.values()) == replicas
    assert all(found[name] <= room[name] for name in room)


def test_billions_of_seats_are_given_at_once():
    assert webster.seats(3_000_000_000, {"a": 2, "b": 1}) == {"a": 2_000_000_000, "b": 1_000_000_000}


@pytest.mark.parametrize(("uid", "last_first"), [("", False), ("a", False), ("b", True)])
def test_ties_go_to_the_last_name_where_the_hash_of_the_uid_is_odd(uid, last_first):
    assert webster.descending(uid) is last_first
