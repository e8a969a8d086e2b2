"""Gangs of several tasks, which fit only together: what each task would find alone does not say when to look again."""

from __future__ import annotations

from tests.dispatcher.builders import (
    BACKFILL,
    NEVER,
    BindingBuilder,
    Scene,
    dispatched,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
)


def pair(name: str = "pair") -> BindingBuilder:
    """One pod of 5 GPUs and one of 6: on one node they need 11."""
    return make_binding(name).tasks(1, gpu=5).tasks(1, gpu=6)


def test_a_gang_of_two_tasks_starts_once_a_node_holds_both_though_neither_alone_finds_more_room() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [10]))
    s.submit(pair())
    assert names(s.run()) == []
    s.tell(make_capacity("m", [11], generation=2))
    assert names(s.run()) == ["pair"]


def test_and_once_something_ends_there() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [11]))
    s.submit(make_binding("small"))
    assert names(s.run()) == ["small"]
    s.bound("small", generation=NEVER)
    s.submit(pair())
    assert names(s.run()) == []
    s.gone("small")
    assert names(s.run()) == ["pair"]


def test_and_where_it_may_be_divided() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_cluster("n"))
    s.tell(make_capacity("m", [10]), make_capacity("n", [10]))
    s.submit(make_binding("wide").tasks(2, gpu=5).tasks(2, gpu=6).divided())
    assert dispatched(s.run()) == []
    s.tell(make_capacity("m", [11], generation=2), make_capacity("n", [11], generation=2))
    assert names(s.run()) == ["wide"]


def test_what_would_delay_the_head_in_one_member_goes_to_another_once_that_holds_both_tasks() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_queue("z"), make_cluster("m"), make_cluster("n"))
    s.tell(make_capacity("m", [22]), make_capacity("n", [10]))
    s.submit(make_binding("runs").tasks(1, gpu=11).firm().affinity(clusterNames=["m"]))
    assert names(s.run()) == ["runs"]
    s.submit(make_binding("head").tasks(1, gpu=22).priority(1))
    assert names(s.run()) == []
    s.submit(pair("late").queue("z"))
    assert names(s.run()) == []
    s.tell(make_capacity("n", [11], generation=2))
    assert dispatched(s.run()) == [("late", "n")]
