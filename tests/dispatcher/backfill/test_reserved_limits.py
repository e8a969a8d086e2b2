"""A head that only a limit stops: what that limit has left is kept for it, as nodes are."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core.backfill.reservation import give_back, left_beside
from tests.dispatcher.builders import BACKFILL, make_binding, make_queue
from tests.dispatcher.quota.trees import queue, tree_of, use
from tests.dispatcher.virtual import Town, gpus


@pytest.mark.parametrize("known", [False, True])
def test_small_work_of_its_queue_does_not_pass_a_head_for_as_long_as_it_comes(known: bool) -> None:
    """8 of 16 GPUs are the queue's; work of one GPU comes each second and runs for ten, and the head needs four."""
    t = Town(make_queue("q", gpu=8, view=BACKFILL), m=gpus(16))
    for number in range(150):
        t.run(1 / 3)
        t.submit(make_binding(f"s{number}").firm(), runs=10 + number % 7, estimate=known)
        if number == 36:
            t.submit(make_binding("head").tasks(4).priority(1), runs=30, estimate=known)
    t.run(300)
    started = t.started("head")
    assert started is not None
    assert started < 35


def test_what_ends_under_a_guarantee_that_both_share_is_left_to_the_other_up_to_the_top() -> None:
    """Of 10 GPUs 8 are guaranteed to the two queues together: 6 are used, and 4 of these end."""
    tree = tree_of(
        queue("top", capability={"gpu": 10}),
        queue("both", "top", guarantee={"gpu": 8}),
        queue("mine", "both"),
        queue("other", "both"),
    )
    use(tree, "other", gpu=6)
    mine, request = tree.queue("mine"), {"gpu": 1}
    left = left_beside(mine, request)
    give_back(left, mine, tree.queue("other"), {"gpu": 4})
    use(tree, "other", gpu=-4)
    top = tree.queue("top"), "gpu"
    assert left[top] == left_beside(mine, request)[top] == 7
