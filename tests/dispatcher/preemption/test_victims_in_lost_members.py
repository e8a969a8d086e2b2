"""Whose departure would make room: not of what runs in members that can't tell."""

from __future__ import annotations

from tests.dispatcher.builders import make_binding, make_queue
from tests.dispatcher.virtual import Town, gpus


def test_what_runs_in_a_member_that_is_not_ready_does_not_go_for_a_limit() -> None:
    """The queue is full: four GPUs of it are in a member that is away, four beside it; the younger ones are away."""
    t = Town(make_queue("q", gpu=8), m=gpus(6), n=gpus(4))
    for number in range(8):
        t.submit(make_binding(f"r{number}").affinity(clusterNames=["m" if number < 4 else "n"]))
        t.run(1)
    t.run(100)
    t.ready("n", ready=False)
    t.submit(make_binding("high").tasks(2).priority(1).affinity(clusterNames=["m"]))
    t.run(20)
    assert t.started("high") is not None
    assert len(t.evicted()) == 2
    assert all(name in ("r0", "r1", "r2", "r3") for _, name in t.evicted())


def test_where_only_such_could_go_none_is_evicted() -> None:
    t = Town(make_queue("q", gpu=4), m=gpus(4), n=gpus(4))
    for number in range(4):
        t.submit(make_binding(f"r{number}").affinity(clusterNames=["n"]))
    t.run(100)
    t.ready("n", ready=False)
    t.submit(make_binding("high").priority(1))
    t.run(300)
    assert t.evicted() == []
    t.ready("n")
    t.run(100)
    assert len(t.evicted()) == 1
