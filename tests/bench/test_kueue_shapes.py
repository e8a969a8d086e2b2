"""The loads of Kueue's benchmark: their sizes and times are those that its project documents."""

from __future__ import annotations

import pytest

from bench.dispatch import waits
from bench.kueue_shapes import SHAPES, Arrival, Outcome, Record, arrivals


@pytest.mark.parametrize(
    ("name", "queues", "workloads"),
    [
        pytest.param("baseline", 30, 15_000, id="baseline: 5 cohorts of 6 queues, 500 workloads in each"),
        pytest.param("large-scale", 1000, 50_000, id="large-scale: 10 cohorts of 100 queues, 50 workloads in each"),
    ],
)
def test_a_shape_has_the_size_of_its_original(name, queues, workloads):
    load = arrivals(SHAPES[name], 1.0)
    assert len(SHAPES[name].names) == len({each.queue for each in load}) == queues
    assert SHAPES[name].workloads == len({each.name for each in load}) == workloads


def test_a_smaller_shape_keeps_cohorts_and_proportions():
    shape = SHAPES["baseline"].sized(12, 600)
    assert (shape.cohorts, shape.queues) == (2, 6)
    assert [each.count for each in shape.classes] == [35, 10, 5]


def test_the_smallest_shape_has_one_of_everything():
    shape = SHAPES["baseline"].sized(1, 1)
    assert (shape.cohorts, shape.queues, shape.workloads) == (1, 1, 3)


def test_a_slower_clock_spreads_the_same_arrivals():
    shape = SHAPES["baseline"].sized(1, 50)
    usual, slow = arrivals(shape, 1.0), arrivals(shape, 3.0)
    assert [each.name for each in slow] == [each.name for each in usual]
    assert [each.at for each in slow] == pytest.approx([3 * each.at for each in usual])


@pytest.mark.parametrize("name", SHAPES)
def test_no_second_of_a_load_has_more_than_its_peak(name):
    shape = SHAPES[name].sized(6, 300)
    times = [each.at for each in arrivals(shape, 20.0)]
    for start in range(0, 60, 7):
        # One more of each class: a window may begin and end with one.
        assert sum(start <= at < start + 7 for at in times) <= 7 * shape.peak / 20.0 + len(shape.classes)


def test_use_counts_what_was_charged_in_vain_too():
    large = SHAPES["baseline"].classes[2]
    load = [Arrival(0.0, "a", "queue", large), Arrival(0.0, "b", "queue", large)]
    evicted, other = Record(created=0.0), Record(created=1.0)
    evicted.start(2.0, 1)
    evicted.stop(3.0)
    evicted.start(6.0, 3)
    evicted.stop(7.0)
    other.start(4.0, 1)
    other.stop(6.0)
    outcome = Outcome({"a": evicted, "b": other})
    assert outcome.use(load, cores=40, wall=10.0) == pytest.approx((2 + 2) * 20 / (40 * 10))
    assert outcome.admission(load) == {"large": [2.0, 3.0]}
    assert outcome.span() == 4.0


def test_a_binding_waits_from_when_there_was_room_for_one_more():
    room = [(10.0, 2), (20.0, 1)]
    assert waits(room, [12.0, 11.0, 21.0]) == [1.0, 2.0, 1.0]
    assert waits(room, [19.0]) == [9.0]
    # The log of the server that publishes room may be a moment later than that of the decision.
    assert waits([(10.0, 1)], [9.9, 30.0]) == [0.0]
