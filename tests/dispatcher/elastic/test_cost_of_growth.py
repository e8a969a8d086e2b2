"""Elastic workloads cost a pass what they get, not what they could ask for: other tenants start and end as quickly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.calls import calls
from tests.dispatcher.builders import LATE, Scene, make_binding, make_capacity, make_cluster, make_queue, names
from tests.dispatcher.elastic.scenes import elastic, runs

PARENT = {"parent": "p"}
ROOM = 64


def federation(replicas: int, *, tasks: int = 1, room: int = ROOM) -> Scene:
    """Eight elastic workloads in a queue that may borrow, one of which alone could use all that there is."""
    s = Scene(
        make_queue("p", gpu=room),
        make_queue("loud", gpu=room - 8, view=PARENT),
        make_queue("quiet", view=PARENT),
        make_cluster("m"),
        make_capacity("m", [8] * (room // 8)),
    )
    loud = [make_binding(f"loud-{number}").queue("loud").submitted(LATE) for number in range(8)]
    for each in loud:
        for _ in range(tasks):
            each.tasks(replicas, minimum=1)
    s.submit(*(each.minimum(1) for each in loud))
    s.run()
    for number in range(8):
        runs(s, f"loud-{number}")
    s.run()
    return s


def start_and_end(s: Scene) -> None:
    """Another tenant's workload starts and ends; what the tests verify after each event is left out."""
    s.core.check = lambda: None  # type: ignore[method-assign]
    s.submit(make_binding("q").queue("quiet").tasks(4))
    assert names(s.run()) == ["q"]
    s.bound("q", generation=2)
    s.run()
    s.change("q", finished=True)
    s.tell(make_capacity("m", [4], generation=3))
    s.run()
    s.gone("q")
    s.run()


@pytest.mark.parametrize(("tasks", "most"), [(1, 100_000), (3, 33_000)])
def test_replicas_that_never_run_cost_others_nothing(tasks: int, most: int) -> None:
    few, many = federation(30, tasks=tasks), federation(most, tasks=tasks)
    first, second = calls(lambda: start_and_end(few)), calls(lambda: start_and_end(many))
    assert second < 2 * first, (second, first)


def test_what_could_shrink_by_thousands_of_pods_is_looked_at_in_few_steps() -> None:
    def preempt(each: int) -> Callable[[], object]:
        s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [each] * 200))
        s.submit(elastic("a", 1, 100_000))
        s.run()
        runs(s, "a")
        s.core.check = lambda: None  # type: ignore[method-assign]
        return lambda: (s.submit(make_binding("b").tasks(8).submitted(LATE)), s.run())

    assert calls(preempt(100)) < 3 * calls(preempt(1))
