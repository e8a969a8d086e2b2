"""Two queues that contend for two resources: evictions make their shares more equal, and come to rest."""

from __future__ import annotations

from random import Random

import pytest

from atoll.dispatcher.core.events import QueueView
from atoll.dispatcher.core.quota.lending import lends
from atoll.dispatcher.core.quota.tree import Tree
from tests.dispatcher.builders import GPU, make_binding, make_queue
from tests.dispatcher.virtual import Town


def contended(*, cpu: int, declared: int | None = None) -> Town:
    """Two nodes of 8 GPUs, 8 of which each queue deserves; of the cores as many, or what is left by weight."""
    deserved = {GPU: 8} if declared is None else {GPU: 8, "cpu": declared}
    queues = [make_queue(name, view={"deserved": deserved}) for name in "ab"]
    return Town(*queues, m=[{GPU: 8, "cpu": cpu, "pods": 100}] * 2)


@pytest.mark.parametrize(
    ("a", "b"), [((1, 2), (1, 1)), ((1, 1), (1, 2)), ((1, 3), (1, 1)), ((1, 2), (2, 2)), ((1, 2), (2, 1))]
)
def test_no_victim_is_evicted_where_nothing_comes_or_ends(a: tuple[int, int], b: tuple[int, int]) -> None:
    """Each queue has 16 equal workloads of so many GPUs and cores; all start at once, as the shares say."""
    t = contended(cpu=12)
    for number in range(16):
        for queue, (gpu, cpu) in (("a", a), ("b", b)):
            t.submit(make_binding(f"{queue}{number:02}").queue(queue).tasks(1, gpu=gpu, requests={"cpu": cpu}))
    t.run(900)
    assert len(t.evicted()) <= 1


@pytest.mark.parametrize("declared", [None, 8, 12, 16])
@pytest.mark.parametrize("seed", range(4))
def test_of_whatever_sizes_evictions_come_to_rest(seed: int, declared: int | None) -> None:
    random = Random(seed)
    t = contended(cpu=random.choice([8, 12, 16]), declared=declared)
    count = random.randint(8, 16)
    for number in range(count):
        for queue in "ab":
            builder = make_binding(f"{queue}{number:02}").queue(queue)
            pods, gpu, cpu = random.choice([1, 1, 2]), random.choice([0, 1, 1, 2]), random.choice([0, 1, 2, 3, 4])
            t.submit(builder.tasks(pods, gpu=gpu, requests={"cpu": cpu}))
    t.run(900)
    assert len(t.evicted()) <= 4
    before = len(t.evicted())
    t.run(2000)
    assert len(t.evicted()) == before


def test_the_larger_of_two_shares_falls_with_each_eviction() -> None:
    """x uses 6 of 8 GPUs and 12 of 8 cores, y 10 GPUs and 4 cores."""
    tree = Tree()
    deserved = {GPU: 8, "cpu": 8}
    tree.set_queues([QueueView("x", {}, deserved=deserved), QueueView("y", {}, deserved=deserved)])
    x, y = tree.queue("x"), tree.queue("y")
    tree.charge(x, {GPU: 6, "cpu": 12}, {})
    tree.charge(y, {GPU: 10, "cpu": 4}, {})
    one = {GPU: 1}
    assert not lends(y, x, one, one), "x has the larger share already, of cores"
    assert lends(x, y, {"cpu": 4}, {"cpu": 4})
    assert lends(x, y, {"cpu": 4}, {"cpu": 4}, whole={GPU: 1, "cpu": 4})
    assert not lends(x, y, {"cpu": 4}, {"cpu": 4}, whole={GPU: 2, "cpu": 4}), "both would have 12 of 8"
