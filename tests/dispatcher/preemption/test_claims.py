"""Heads for whom others are to go: what they were promised stays theirs until they start."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core import Command, MemberAnswer
from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.settings import CoreSettings
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    HOUR,
    LATE,
    NEVER,
    OLD,
    START,
    Scene,
    evicted,
    let_go,
    make_binding,
    make_cluster,
    make_queue,
    named,
    names,
)

SETTLE = CoreSettings().backfill.settle
PATIENCE = CoreSettings().backfill.dry_run
RESERVE_TIMEOUT = CoreSettings().progress.reserve

NO = MemberAnswer(False, requested=1, available=0)


def step(s: Scene, *, after: float = 0.001) -> list[Command]:
    """A pass whose commands are written; nobody answers."""
    commands = s.decide(after=after)
    s.write(*commands)
    return commands


def asked() -> tuple[Scene, Reservation]:
    """Two nodes of 8, and what the head was promised: the second, of which `half` has 4 for an hour. Then members are
    asked whether it would fit on the first once `low` has gone.
    """
    s = Scene(make_queue("q", view=BACKFILL), make_queue("r", view=BACKFILL), make_queue("z"), make_cluster("m"))
    s.tell(named("m", [8, 8]))
    for node, work in enumerate((make_binding("low").tasks(1, gpu=8), make_binding("half").tasks(1, gpu=4).firm())):
        [name] = names(s.submit(work.runs(HOUR if node else 9 * HOUR).created(EARLY)).run())
        s.change(name, placed={"m": (2 + node, 1)}, nodes={"m": {f"m-{node}": 1}})
        s.tell(named("m", [0, 4 if node else 8], generation=2 + node))
    s.submit(make_binding("head").tasks(1, gpu=8).priority(1).runs(HOUR).submitted(EARLY))
    s.decide()
    reservation = s.core.reservations.made["uid-head"]
    assert reservation.at == pytest.approx(START + HOUR + SETTLE, abs=1)
    s.now += OLD
    step(s)
    assert s.view("head").decision.question is not None
    return s, reservation


def is_kept(s: Scene, reservation: Reservation) -> None:
    """The head is promised what it was, and that binds others."""
    found = s.core.reservations.made["uid-head"]
    assert (found.at, found.first, found.since, found.member) == (
        reservation.at,
        reservation.first,
        reservation.since,
        reservation.member,
    )
    if "uid-passes" not in s.views:
        s.submit(make_binding("passes").queue("z").tasks(1, gpu=4).runs(5 * HOUR).submitted(LATE))
    assert names(step(s)) == []


def test_a_place_is_kept_while_members_are_asked_and_when_one_says_no() -> None:
    s, reservation = asked()
    is_kept(s, reservation)
    s.answer("head", m=NO)
    step(s)
    is_kept(s, reservation)
    s.change("half", finished=True, placed={"m": (4, 0)})
    s.tell(named("m", [0, 8], generation=4))
    assert names(step(s)) == ["head"]


def test_and_when_no_member_answers() -> None:
    s, reservation = asked()
    step(s, after=RESERVE_TIMEOUT)
    is_kept(s, reservation)


def test_and_when_the_question_is_overtaken() -> None:
    s, reservation = asked()
    s.change("low", gang=make_binding("low").tasks(1, gpu=8).runs(9 * HOUR).firm().build().gang)
    s.answer("head")
    assert evicted(step(s)) == []
    is_kept(s, reservation)


def test_and_when_the_room_does_not_come_that_others_left() -> None:
    s, reservation = asked()
    s.answer("head")
    assert evicted(step(s)) == ["low"]
    is_kept(s, reservation)
    # Somebody else has a pod there.
    let_go(s, "low")
    s.tell(named("m", [7, 4], generation=4))
    is_kept(s, reservation)
    step(s, after=PATIENCE)
    assert not s.core.claims.awaits("uid-head")
    is_kept(s, reservation)


@pytest.mark.parametrize(
    ("nodes", "firm", "elder"),
    [([4, 8], 8, True), ([8], 4, False)],
    ids=["an elder elsewhere", "a younger one beside it"],
)
def test_a_claim_and_the_reservation_before_take_the_room_of_one(nodes: list[int], firm: int, elder: bool) -> None:
    """The head is promised the 4 GPUs of `low`, and members are asked whether it would fit once that has gone. The
    other head is promised those of `firm`, half an hour later.
    """
    s = Scene(make_queue("q", view=BACKFILL), make_queue("r", view=BACKFILL), make_cluster("m"), named("m", nodes))
    low, other = make_binding("low").tasks(1, gpu=4), make_binding("firm").tasks(1, gpu=firm).firm()
    for work in (low.runs(5 * HOUR), other.runs(5.5 * HOUR)):
        [name] = names(s.submit(work.created(EARLY)).run())
        s.bound(name, generation=NEVER)
    heads = [make_binding("other").queue("r").tasks(1, gpu=firm), make_binding("head").tasks(1, gpu=4).priority(1)]
    for head in heads if elder else heads[::-1]:
        s.submit(head.runs(10 * HOUR))
        s.decide()
    reservations = s.core.reservations
    assert reservations.made["uid-head"].at < reservations.made["uid-other"].at
    step(s, after=OLD)
    assert list(reservations.claims) == ["uid-head"]
    assert [reservations.spot(each).placement is None for each in reservations.all()] == [False] * 3


def test_room_that_does_not_come_is_not_looked_for_where_others_had_it_reserved_before() -> None:
    """Two nodes of 8: the second is promised to `elder`, who waits for `half` of it; then another GPU of it is free.
    `low` leaves the first to the head, but somebody else has taken 5 there.
    """
    s = Scene(make_queue("q", view=BACKFILL), make_queue("r", view=BACKFILL), make_cluster("m"), named("m", [8, 8]))
    for name, gpu, hours in (("low", 8, 9), ("half", 4, 1), ("little", 1, 1)):
        work = make_binding(name).tasks(1, gpu=gpu).runs(hours * HOUR).created(EARLY)
        assert names(s.submit(work if name == "low" else work.firm()).run()) == [name]
        s.bound(name, generation=NEVER)
    s.submit(make_binding("elder").queue("r").tasks(1, gpu=8).priority(1).submitted(EARLY))
    s.run()
    s.submit(make_binding("head").tasks(1, gpu=4).priority(1).submitted(EARLY))
    assert evicted(s.run(after=OLD)) == ["low"]
    let_go(s, "low")
    s.change("little", finished=True)
    s.tell(named("m", [3, 4], generation=NEVER))
    assert names(s.decide()) == []
    reservations = s.core.reservations
    assert reservations.spot(reservations.claims["uid-head"]).placement is None
    elder = reservations.spot(reservations.made["uid-elder"]).placement
    assert elder is not None
    assert [node for _, node, _ in elder.pods] == [1]


def test_another_head_gets_a_time_meanwhile_and_its_going_away_changes_nothing() -> None:
    s, reservation = asked()
    s.tell(make_queue("r", view=BACKFILL, gpu=100))
    s.submit(make_binding("other").queue("r").tasks(1, gpu=8).submitted(LATE))
    step(s)
    reservations = s.core.reservations
    assert reservations.made["uid-other"].at == pytest.approx(reservation.at + HOUR + SETTLE, abs=1)
    s.gone("other")
    assert reservations.claims["uid-head"].leaving == {"uid-low": None}


def test_an_older_head_whose_time_has_passed_gets_the_place_of_a_younger_claimant() -> None:
    """What runs before the elder takes longer than expected, by a tenth of 20 hours; the younger's place is free in 1."""
    s = Scene(make_queue("q", view=BACKFILL), make_queue("r", view=BACKFILL), make_cluster("m"), named("m", [8, 8, 8]))
    for name, hours in (("low", 40), ("late", 20), ("next", 21)):
        work = make_binding(name).tasks(1, gpu=8).runs(hours * HOUR).created(EARLY)
        assert names(s.submit(work if name == "low" else work.firm()).run()) == [name]
        s.bound(name, generation=NEVER)
    s.submit(make_binding("elder").queue("r").tasks(1, gpu=8).runs(HOUR).submitted(EARLY))
    step(s)
    s.now = START + 20 * HOUR - 5
    s.submit(make_binding("head").tasks(1, gpu=8).priority(1).runs(HOUR).submitted(EARLY))
    step(s)
    made = s.core.reservations.made
    assert [round((made[uid].at - START) / HOUR) for uid in ("uid-elder", "uid-head")] == [20, 21]
    step(s, after=9.0)
    assert list(s.core.reservations.claims) == ["uid-head"]
    assert round((made["uid-elder"].at - START) / HOUR) == 21
