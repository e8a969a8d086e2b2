"""Numbers that one tenant may write freely cost no other tenant: property of the pure core.

A thousand objects of each kind of input wait beside another tenant. The functions called for that tenant's arrival,
start and finish stay within twice of the same core without them, and the processor time within four times.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from atoll.dispatcher.core import (
    BindingGone,
    BindingSet,
    BindingView,
    CapacitySet,
    Dispatcher,
    Event,
    NamespaceSet,
    Pass,
)
from atoll.dispatcher.core.events import NamespaceView
from atoll.model import vector
from atoll.model.together import Together
from tests.dispatcher.builders import (
    BACKFILL,
    GPU,
    NEVER,
    START,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    with_amounts,
    written,
)

MANY = 1_000
"""Of each kind: enough for the two whose cost still grows to fail; ten thousand where tests may take long."""
ROUNDS = 30
"""Starts and finishes that are timed; the quickest counts."""
GROWTH = 2.0
"""Of the functions that are called."""
ROWS = 4.0
"""Of the processor time: each decision is compared with the row of every shape that waits, all at once by numpy."""

Input = Iterator[Event | BindingView]


def _shapes(number: int) -> dict[str, int]:
    return {"cpu": 1 + number, "pods": 1}


def blocked_shapes() -> Input:
    """The queue has no GPU left."""
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("theirs").tasks(1, gpu=9, requests=_shapes(n)).build()


def blocked_amounts() -> Input:
    """As many limits to wait for as workloads."""
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("theirs").tasks(1, gpu=9 + n).build()


def shapes_beside() -> Input:
    """The queue above both tenants has no GPU left, except while the other one's next workload is about to start."""
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("guests").tasks(1, node_selector={"rack": f"r{n}"}).build()


def amounts_beside() -> Input:
    """As many limits of the queue above both tenants, all of which are met for that moment."""
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("guests").tasks(1, gpu=0, requests=_shapes(n)).build()


def unknown_queues() -> Input:
    for n in range(MANY):
        yield make_binding(f"x{n}").queue(f"nowhere-{n}").build()


def unknown_queues_of_many_shapes() -> Input:
    for n in range(MANY):
        yield make_binding(f"x{n}").queue(f"nowhere-{n}").tasks(1, gpu=1, requests=_shapes(n)).build()


def many_tasks() -> Input:
    work = make_binding("x").queue("theirs")
    for n in range(MANY):
        work.tasks(1, gpu=0, requests=_shapes(n))
    yield work.build()


def many_replicas() -> Input:
    for n in range(20):
        yield make_binding(f"x{n}").queue("theirs").tasks(MANY + n).build()


def too_large_for_members() -> Input:
    """Within any quota; no node has that much."""
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("free").tasks(1, gpu=100, requests=_shapes(n)).build()


def selectors() -> Input:
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("free").tasks(1, node_selector={"rack": f"r{n}"}).build()


def groups() -> Input:
    """Of a thousand workloads each: arrivals of one group cost its number of members."""
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("theirs").gang(together=Together(f"g{n // 1000}", 1001)).build()


def many_groups() -> Input:
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("theirs").gang(together=Together(f"g{n}", 2)).build()


def held() -> Input:
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("theirs").held().build()


def priorities() -> Input:
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("theirs").tasks(9).priority(n).build()


def namespaces() -> Input:
    for n in range(MANY):
        yield NamespaceSet(NamespaceView(f"ns{n}", {GPU: 0}))
        yield make_binding(f"x{n}").queue("free").having(namespace=f"ns{n}").build()


def quota_shapes() -> Input:
    yield NamespaceSet(NamespaceView("small", {GPU: 0}))
    for n in range(MANY):
        work = make_binding(f"x{n}").queue("free").having(namespace="small")
        yield work.tasks(1, requests=_shapes(n)).build()


def reservations() -> Input:
    yield make_queue("keeps", view=BACKFILL)
    for n in range(MANY):
        yield make_binding(f"x{n}").queue("keeps").tasks(8, requests=_shapes(n)).build()


def patient() -> Input:
    for n in range(MANY):
        work = make_binding(f"x{n}").queue("free").tasks(8, requests=_shapes(n))
        yield work.patient(1.0).build()


KINDS: dict[str, Callable[[], Input]] = {
    "shapes that the quota of their queue stops": blocked_shapes,
    "amounts that the quota of their queue stops": blocked_amounts,
    "shapes that the quota above both tenants stops": shapes_beside,
    "amounts that the quota above both tenants stops": amounts_beside,
    "names of queues that do not exist": unknown_queues,
    "shapes, each of a queue that does not exist": unknown_queues_of_many_shapes,
    "tasks of one workload": many_tasks,
    "replicas": many_replicas,
    "shapes that no node holds": too_large_for_members,
    "node selectors that no node has": selectors,
    "workloads of gang groups that are large and incomplete": groups,
    "gang groups that are incomplete": many_groups,
    "workloads on hold": held,
    "priorities": priorities,
    "namespaces with a ResourceQuota": namespaces,
    "shapes that a ResourceQuota stops": quota_shapes,
    "shapes in a queue that reserves": reservations,
    "workloads that ask for a reservation": patient,
}


def with_total(event: CapacitySet) -> CapacitySet:
    capacity = event.capacity
    total = vector.total(vector.scaled(each.free, each.nodes) for each in capacity.classes)
    return CapacitySet(dataclasses.replace(capacity, total=total))


class Tenant:
    """Another tenant's queue is full: each of its finishes starts its next workload."""

    def __init__(self) -> None:
        self.core = Dispatcher()
        self.now = START
        self.views: dict[str, BindingView] = {}
        self.serial = 0
        for event in (
            make_queue("shared", gpu=16, cpu=20_000),
            make_queue("mine", gpu=8, priority=1, view={"parent": "shared"}),
            make_queue("theirs", gpu=8, view={"parent": "shared"}),
            make_queue("guests", view={"parent": "shared"}),
            make_queue("free"),
            make_cluster("m"),
            with_total(with_amounts(make_capacity("m", [8, 8, 8]), cpu=64_000)),
        ):
            self.core.handle(event)
        self.take(make_binding("runs").queue("theirs").tasks(8, requests={"cpu": 1250}).build())
        self.run()
        self.arrive()
        self.runs = self.run()

    def take(self, view: BindingView) -> None:
        self.views[view.uid] = view
        self.core.handle(BindingSet(view))

    def decide(self, after: float = 0.01) -> list[str]:
        self.now += after
        commands = self.core.handle(Pass(self.now))
        for command in commands:
            self.take(written(self.views[command.uid], command))
        return [command.uid for command in commands if not command.only_tells]

    def run(self) -> list[str]:
        """Whatever starts is bound at once."""
        started = self.decide()
        for uid in started:
            view = self.views[uid]
            assert view.gang is not None
            placed = {name: (NEVER, sum(pods)) for name, pods in view.parts}
            self.take(dataclasses.replace(view, placed=placed))
        return started

    def flood(self, given: Input) -> None:
        for each in given:
            if isinstance(each, BindingView):
                self.take(each)
            else:
                self.core.handle(each)
        for _ in range(3):
            self.run()
        # All reasons are written by and by, whatever the tenant does.
        for _ in range(60):
            self.now += 20.0
            self.run()

    def arrive(self) -> None:
        self.serial += 1
        work = make_binding(f"mine-{self.serial}").queue("mine").having(namespace="mine")
        self.take(work.tasks(8, requests={"cpu": 1250}).build())

    def finish(self, uid: str) -> None:
        view = self.views.pop(uid)
        self.core.handle(BindingSet(dataclasses.replace(view, finished=True)))
        self.core.handle(BindingGone(uid))

    def turn(self) -> None:
        """A finish, the start that follows, and an arrival."""
        self.finish(self.runs[0])
        self.runs = self.run()
        self.arrive()
        self.run()
        assert len(self.runs) == 1

    def calls(self) -> int:
        """Functions that a turn calls, those of C included."""
        count = 0

        def counted(_frame: object, event: str, _arg: object) -> None:
            nonlocal count
            count += event.endswith("call")

        sys.setprofile(counted)
        try:
            self.turn()
        finally:
            sys.setprofile(None)
        return count


def seconds(tenant: Tenant) -> float:
    began = time.process_time()
    tenant.turn()
    return time.process_time() - began


@pytest.mark.parametrize("many", [MANY, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
def test_another_tenants_start_and_finish_cost_the_same_beside_many(
    given: Callable[[], Input], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "MANY", many)
    alone, beside = Tenant(), Tenant()
    beside.flood(given())
    for tenant in (alone, beside):
        tenant.arrive()
        tenant.run()
        tenant.turn()
    assert min(beside.calls() for _ in range(3)) <= GROWTH * alone.calls()
    # In turns, for the machine may be busy for a while.
    times = [(seconds(alone), seconds(beside)) for _ in range(ROUNDS)]
    assert min(b for _, b in times) <= ROWS * min(a for a, _ in times)
