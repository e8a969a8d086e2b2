"""Room that is kept for work that would borrow: nothing of it is kept from those below what they deserve."""

from __future__ import annotations

import pytest

from tests.dispatcher.builders import BACKFILL, GPU, make_binding, make_queue
from tests.dispatcher.virtual import Town, gpus


@pytest.mark.parametrize("wish", ["backfill", "waiting time"])
@pytest.mark.parametrize("priority", [0, 5])
def test_a_borrower_keeps_no_room_from_a_queue_below_what_it_deserves(wish: str, priority: int) -> None:
    """Eight GPUs, four of which each queue deserves. The borrower uses all of its own, ends unknown, and its head needs
    six; the other queue uses two and wants two more."""
    view = BACKFILL if wish == "backfill" else {"patience": 1.0}
    t = Town(
        make_queue("borrows", view={**view, "deserved": {GPU: 4}}),
        make_queue("other", view={"deserved": {GPU: 4}}),
        m=gpus(8),
    )
    t.submit(make_binding("mine").queue("borrows").tasks(4))
    t.submit(make_binding("theirs").queue("other").tasks(2).firm())
    t.run(10)
    t.submit(make_binding("head").queue("borrows").tasks(4, gpu=1).priority(priority).firm())
    t.run(10)
    assert t.core.reservations.own("uid-head") is not None or wish == "waiting time"
    t.submit(make_binding("due").queue("other").tasks(2))
    t.run(10)
    assert t.started("due") is not None


def test_of_two_that_borrow_one_has_a_reservation_all_the_same() -> None:
    t = Town(
        make_queue("borrows", view={**BACKFILL, "deserved": {GPU: 2}}),
        make_queue("other", view={"deserved": {GPU: 2}}),
        m=gpus(8),
    )
    t.submit(make_binding("mine").queue("borrows").tasks(3))
    t.submit(make_binding("theirs").queue("other").tasks(3))
    t.run(10)
    t.submit(make_binding("head").queue("borrows").tasks(4))
    t.run(10)
    t.submit(make_binding("late").queue("other"))
    t.run(10)
    assert t.started("late") is None
