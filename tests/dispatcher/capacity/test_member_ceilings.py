"""What an administrator says that a member may be used of at most is kept, whatever the member publishes."""

from __future__ import annotations

import dataclasses

from atoll.dispatcher.core import CapacitySet, ClusterSet, Dispatch, Dispatcher, Pass
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    GPU,
    START,
    dispatched,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    scene,
)


def with_ceiling(name: str, *, gpu: int) -> ClusterSet:
    return ClusterSet(dataclasses.replace(make_cluster(name).cluster, ceiling={GPU: gpu}))


def claiming(name: str, *free: int) -> CapacitySet:
    capacity = make_capacity(name, free).capacity
    return CapacitySet(dataclasses.replace(capacity, total={GPU: sum(free), "pods": 100 * len(free)}))


def test_no_more_of_it_is_used_than_that_by_all_queues_together_and_the_next_one_says_why() -> None:
    s = scene(make_queue("a"), make_queue("b"), with_ceiling("m", gpu=6), claiming("m", 8, 8, 8, 8))
    for number in range(8):
        s.submit(make_binding(f"w{number}").queue("ab"[number % 2]).tasks(1, gpu=2))
    assert len(dispatched(s.run())) == 3
    uid = next(uid for uid in s.core.bindings if (verdict := s.core.verdict(uid)) is not None)
    verdict = s.core.verdict(uid)
    assert verdict is not None
    assert verdict.reason is Reason.QUOTA_EXCEEDED
    assert verdict.sentence() == (
        "it would exceed what may be used of a member: cluster m has 0 nvidia.com/gpu free for it, 2 needed"
    )


def test_what_ends_there_or_a_higher_ceiling_lets_the_next_ones_in() -> None:
    s = scene(make_queue("q"), with_ceiling("m", gpu=4), claiming("m", 8))
    for name in ("a", "b"):
        s.submit(make_binding(name).tasks(1, gpu=4))
    [(first, _)] = dispatched(s.run())
    s.gone(first)
    [(second, _)] = dispatched(s.run())
    s.submit(make_binding("c").tasks(1, gpu=4))
    assert dispatched(s.run()) == []
    s.tell(with_ceiling("m", gpu=8))
    assert {first, second, *(name for name, _ in dispatched(s.run()))} == {"a", "b", "c"}


def test_what_a_member_claims_beyond_it_raises_no_queue_s_share() -> None:
    core = Dispatcher()
    for event in (make_queue("a"), make_queue("b"), make_cluster("n"), claiming("n", 8)):
        core.handle(event)
    core.handle(with_ceiling("m", gpu=8))
    core.handle(claiming("m", *[1024] * 64))
    core.handle(Pass(START))
    assert core.tree.queue("a").limit[GPU] == 16


def test_a_divided_gang_takes_the_rest_elsewhere() -> None:
    s = scene(make_queue("q"), with_ceiling("m", gpu=2), claiming("m", 8), make_cluster("n"), claiming("n", 6))
    s.submit(make_binding("w").divided().tasks(8))
    [command] = s.run()
    assert isinstance(command, Dispatch)
    assert {part.cluster: part.pods for part in command.parts} == {"m": 2, "n": 6}
