"""The order inside a queue by fair share, against an oracle that computes every share anew from all that happened."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import pytest

from atoll.dispatcher.core import CapacitySet, Dispatch, NamespaceSet, NamespaceView, QueueGone, Strategy
from atoll.dispatcher.core.events import Event
from atoll.dispatcher.core.settings import CoreSettings, FairSettings
from atoll.dispatcher.explain import verdicts
from atoll.model.fairness import Order
from tests.dispatcher.builders import (
    GPU,
    BindingBuilder,
    Scene,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    with_amounts,
)

TEAMS = ("red", "green", "blue", "white")
EXACT = CoreSettings(fair=FairSettings(every=1e-6))


def fair(order: Order = Order.FAIR_NAMESPACES, **view: Any) -> dict[str, Any]:
    return {"order": order, **view}


def scene(view: dict[str, Any], *more: Event, gpus: int = 8, settings: CoreSettings = EXACT) -> Scene:
    # The queue is short, not the member.
    nodes: list[Event] = [make_cluster("m"), make_capacity("m", [8] * 16)]
    return Scene(make_queue("q", gpu=gpus, view=view), *nodes, *more, settings=settings)


def job(name: str, namespace: str, pods: int = 1, *, age: int = 0) -> BindingBuilder:
    created = f"2026-01-01T00:{age // 60:02}:{age % 60:02}Z"
    return make_binding(name).having(namespace=namespace, created=created).tasks(pods)


def weight(namespace: str, value: float) -> NamespaceSet:
    return NamespaceSet(NamespaceView(namespace, weight=value))


def test_the_namespace_that_uses_least_goes_first() -> None:
    town = scene(fair(), gpus=4)
    town.submit(*(job(f"r{number}", "red", age=number) for number in range(4)), job("g", "green", age=30))
    town.submit(job("b", "blue", age=40))
    assert names(town.run()) == ["r0", "g", "b", "r1"]


def test_without_the_order_the_oldest_goes_first() -> None:
    town = scene({}, gpus=4)
    town.submit(*(job(f"r{number}", "red", age=number) for number in range(4)), job("g", "green", age=30))
    assert names(town.run()) == ["r0", "r1", "r2", "r3"]


def test_a_queue_that_may_use_nothing_any_more_starts_no_further_workload() -> None:
    town = scene(fair(), gpus=2)
    town.submit(job("r", "red"), job("g", "green", age=1))
    assert names(town.run()) == ["r", "g"]
    town.tell(make_queue("q", gpu=0, view=fair()))
    town.submit(job("b", "blue", age=2))
    assert names(town.run()) == []


def test_a_higher_priority_class_goes_before_every_share() -> None:
    town = scene(fair(), gpus=2)
    town.submit(job("r0", "red"), job("r1", "red", age=9).priority(1), job("r2", "red", age=8).priority(1))
    town.submit(job("g", "green", age=1))
    assert names(town.run()) == ["r2", "r1"]


def test_a_namespace_of_twice_the_weight_gets_twice_as_much() -> None:
    town = scene(fair(), weight("green", 2.0), gpus=6)
    town.submit(*(job(f"r{n}", "red", age=n) for n in range(6)), *(job(f"g{n}", "green", age=n) for n in range(6)))
    assert sorted(name[0] for name in names(town.run())) == ["g"] * 4 + ["r"] * 2


def test_a_weight_that_changes_reorders_what_waits() -> None:
    town = scene(fair(), gpus=2)
    town.submit(job("r0", "red"), job("g0", "green", age=1))
    town.run()
    town.submit(job("r1", "red", age=2), job("g1", "green", age=3), job("w", "white").priority(1))
    town.tell(weight("green", 10.0), make_queue("q", gpu=3, view=fair()))
    assert names(town.run()) == ["w"]
    town.tell(make_queue("q", gpu=4, view=fair()))
    assert names(town.run()) == ["g1"]


def test_the_dominant_resource_decides() -> None:
    """Red uses 2 of 8 GPUs and no CPU, green one GPU and 12 of 16 CPUs: green's share is larger."""
    town = Scene(make_queue("q", gpu=8, cpu=16, view=fair()), make_cluster("m"), settings=EXACT)
    [node] = make_capacity("m", [99]).capacity.classes
    wide = dataclasses.replace(node, free={GPU: 99, "cpu": 99, "pods": 99})
    town.tell(CapacitySet(dataclasses.replace(make_capacity("m", [99]).capacity, classes=(wide,))))
    town.submit(job("r", "red", 2), make_binding("g").having(namespace="green").tasks(1, requests={"cpu": 12}))
    assert sorted(names(town.run())) == ["g", "r"]
    town.submit(job("g1", "green", age=1), job("r1", "red", age=2))
    assert names(town.run()) == ["r1", "g1"]


def test_a_limit_that_is_raised_and_lowered_again_orders_as_before() -> None:
    """Red uses 2 of 3 GPUs, green one GPU and 12 CPUs, which is more of 16, and less of 64."""

    def limited(cpu: int) -> Event:
        return make_queue("q", gpu=3, cpu=cpu, view=fair())

    town = Scene(limited(16), make_cluster("m"))
    town.tell(with_amounts(make_capacity("m", [99]), cpu=99))
    town.submit(job("r", "red", 2), make_binding("g").having(namespace="green").tasks(1, requests={"cpu": 12}))
    town.run()
    town.submit(job("r1", "red", age=1), job("g1", "green", age=2))
    firsts = []
    for cpu in (16, 64, 16):
        town.tell(limited(cpu)).run()
        account = verdicts.account(town.core, "uid-g1")
        assert account is not None
        assert account.queue is not None
        firsts.append("r1" if account.queue.ahead else "g1")
    assert firsts == ["r1", "g1", "r1"]


def test_of_jobs_the_smallest_goes_first_and_of_equal_ones_the_oldest() -> None:
    town = scene(fair(Order.FAIR_JOBS), gpus=7)
    town.submit(job("large", "red", 4), job("small", "red", 1, age=9), job("middle", "green", 2, age=5))
    town.submit(job("same", "green", 2, age=6), job("late", "green", 4, age=7))
    assert names(town.run()) == ["small", "middle", "same"]
    assert town.verdict("large") is not None


def test_history_fades_until_age_decides_again() -> None:
    """1. Red used everything for long. 2. At once green is first. 3. After 40 half-lives both are equal: age decides."""
    for pause, first in ((0.001, "g"), (4000.0, "r")):
        town = scene(fair(half_life=100.0), gpus=4)
        town.submit(job("r0", "red", 4))
        town.run()
        town.run(after=1000.0)
        town.submit(job("wait", "white", 4, age=0).priority(9))
        town.change("r0", finished=True)
        assert names(town.run(after=pause)) == ["wait"]
        town.submit(job("r", "red", 4, age=1), job("g", "green", 4, age=2))
        town.change("wait", finished=True)
        assert names(town.run()) == [first]


def test_a_strict_queue_looks_again_as_history_fades() -> None:
    town = scene(fair(half_life=100.0, strategy=Strategy.FIFO), settings=CoreSettings())
    town.submit(job("r", "red", 4))
    town.run()
    town.submit(job("g", "green", 8, age=1), job("r1", "red", 1, age=2))
    assert names(town.run()) == []
    assert town.core.next_deadline is not None
    assert town.core.next_deadline <= town.now + 10.0


def test_the_head_of_a_backfill_queue_follows_the_shares() -> None:
    town = scene(fair(strategy=Strategy.BACKFILL), gpus=4)
    town.submit(job("r", "red", 2).runs(100.0), job("g", "green", 1, age=1).runs(50.0))
    town.run()
    town.submit(job("r1", "red", 4, age=2).runs(10.0), job("g1", "green", 4, age=3).runs(10.0))
    town.run()
    assert [each.uid for each in town.core.reservations.made.values()] == ["uid-g1"]
    town.submit(job("g2", "green", 1, age=4).priority(1).runs(20.0))
    town.run()
    town.submit(job("g3", "green", 1, age=5).priority(1).runs(20.0))
    town.change("r", finished=True)
    town.run()
    assert [each.uid for each in town.core.reservations.made.values()] == ["uid-r1"]


def test_another_order_refiles_what_waits() -> None:
    town = scene({}, gpus=1)
    town.submit(job("r0", "red"), job("r1", "red", age=1), job("g", "green", age=2))
    assert names(town.run()) == ["r0"]
    town.tell(make_queue("q", gpu=2, view=fair()))
    assert names(town.run()) == ["g"]
    town.submit(job("b", "blue", age=3))
    town.tell(make_queue("q", gpu=3))
    assert names(town.run()) == ["r1"]


def test_explain_says_by_which_share_and_who_is_ahead() -> None:
    town = scene(fair(), weight("red", 2.0), gpus=4)
    town.submit(job("r", "red", 4))
    town.run()
    town.submit(job("r1", "red", age=1), job("g1", "green", age=2), job("g2", "green", age=3))
    town.run()
    account = verdicts.account(town.core, "uid-r1")
    assert account is not None
    place = account.queue
    assert place is not None
    assert (place.position, place.waiting) == (3, 3)
    assert [each.name for each in place.ahead] == ["g1", "g2"]
    assert place.share is not None
    assert (place.share.order, place.share.resource, place.share.part, place.share.weight) == (
        "fair-namespaces",
        GPU,
        1.0,
        2.0,
    )


def test_a_queue_that_is_deleted_leaves_nothing_behind() -> None:
    town = scene(fair(half_life=1.0))
    town.submit(job("r", "red"))
    town.run()
    town.change("r", finished=True)
    town.gone("r")
    town.tell(QueueGone("q"))
    town.run(after=1000.0)
    assert town.core.state.fair.next is None


# -- the oracle --------------------------------------------------------------------------------------------------------


class Oracle:
    """What each namespace used, and when: shares are computed from the whole history each time."""

    def __init__(self, limit: dict[str, int], weights: dict[str, float], half_life: float | None) -> None:
        self.limit, self.weights, self.half_life = limit, weights, half_life
        #: (time, namespace, resource, change)
        self.changes: list[tuple[float, str, str, int]] = []
        self.waiting: dict[str, tuple[int, str, str, dict[str, int]]] = {}

    def share(self, namespace: str, now: float) -> float:
        worst = 0.0
        for resource, limit in self.limit.items():
            steps = [(at, change) for at, name, what, change in self.changes if (name, what) == (namespace, resource)]
            uses = float(sum(change for _, change in steps))
            if self.half_life is not None:
                uses = max(uses, sum(change * (1 - 0.5 ** ((now - at) / self.half_life)) for at, change in steps))
            worst = max(worst, uses / limit)
        return worst / self.weights.get(namespace, 1.0)

    def first(self, now: float) -> list[str]:
        """All that wait, the next one first."""

        def place(name: str) -> tuple[int, float, str, str]:
            priority, namespace, created, _ = self.waiting[name]
            return -priority, round(self.share(namespace, now), 7), created, name

        return sorted(self.waiting, key=place)

    def use(self, name: str, namespace: str, request: dict[str, int], now: float, times: int = 1) -> None:
        self.waiting.pop(name, None)
        self.changes += [(now, namespace, resource, times * amount) for resource, amount in request.items()]


@pytest.mark.parametrize("half_life", [None, 30.0], ids=["what is used now", "with a half-life"])
@pytest.mark.parametrize("strategy", [Strategy.FIFO, Strategy.TRAVERSE], ids=["mixed sizes, strict", "equal sizes"])
@pytest.mark.parametrize("seed", range(6))
def test_each_start_is_the_next_one_by_the_oracle(seed: int, strategy: Strategy, half_life: float | None) -> None:
    random = Random(f"{seed} {strategy} {half_life}")
    limit = {GPU: 16, "cpu": 24}
    weights = {"green": 2.0, "white": 0.5}
    town = Scene(
        make_queue("q", gpu=16, cpu=24, view=fair(strategy=strategy, half_life=half_life)),
        *(weight(name, value) for name, value in weights.items()),
        make_cluster("m"),
        settings=EXACT,
    )
    # The queue is short, not the member.
    capacity = make_capacity("m", [20]).capacity
    wide = dataclasses.replace(capacity.classes[0], free={GPU: 9999, "cpu": 9999, "pods": 9999})
    town.tell(CapacitySet(dataclasses.replace(capacity, classes=(wide,))))
    oracle = Oracle(limit, weights, half_life)
    running: dict[str, tuple[str, dict[str, int]]] = {}
    started = 0
    for step in range(60):
        for _ in range(random.randrange(4)):
            name, namespace = f"j{step}-{random.random():.6f}", random.choice(TEAMS)
            pods = random.choice([1, 2, 3]) if strategy is Strategy.FIFO else 1
            cpu = random.choice([0, 1, 4]) if strategy is Strategy.FIFO else 1
            priority = random.choice([0, 0, 0, 1])
            built = make_binding(name).having(namespace=namespace, created=f"2026-01-01T00:{step:02}:00Z")
            town.submit(built.priority(priority).tasks(pods, requests={"cpu": cpu} if cpu else {}))
            request = {GPU: pods, "cpu": cpu * pods}
            oracle.waiting[name] = (priority, namespace, f"2026-01-01T00:{step:02}:00Z", request)
        for name in [each for each in running if random.random() < 0.25]:
            namespace, request = running.pop(name)
            town.change(name, finished=True)
            oracle.use(name, namespace, request, town.now, -1)
        commands = town.run(after=random.choice([0.5, 5.0, 40.0]))
        for command in commands:
            if isinstance(command, Dispatch):
                assert oracle.first(town.now)[0] == command.name, f"step {step}"
                _, namespace, _, request = oracle.waiting[command.name]
                oracle.use(command.name, namespace, request, town.now)
                running[command.name] = (namespace, request)
                town.bound(command.name, generation=1)
                started += 1
        for number, name in enumerate(oracle.first(town.now), 1):
            position = verdicts.account(town.core, f"uid-{name}")
            assert position is not None
            assert position.queue is not None
            assert position.queue.position == number
    assert started > 20
