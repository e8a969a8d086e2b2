"""What members report that pods really request is charged where it is more than was asked for."""

from __future__ import annotations

import dataclasses

from atoll.dispatcher.core import CapacitySet, NamespaceSet, NamespaceView
from atoll.model.gang import Gang, Task, beyond
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    GPU,
    LATE,
    NEVER,
    Scene,
    evicted,
    explained,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
)
from tests.dispatcher.elastic.scenes import elastic, resized, runs


def capacity(cluster: str, gpus: int) -> CapacitySet:
    """One node with CPUs besides."""
    found = make_capacity(cluster, [gpus]).capacity
    [node] = found.classes
    node = dataclasses.replace(node, free={**node.free, "cpu": 64_000})
    return CapacitySet(dataclasses.replace(found, classes=(node,)))


ROOM = (make_cluster("m"), capacity("m", 8))


def test_the_larger_of_what_was_asked_for_and_what_is_reported_is_charged_to_queue_and_namespace() -> None:
    s = scene(NamespaceSet(NamespaceView("default", {"cpu": 10_000})), room=ROOM)
    s.submit(make_binding("a").tasks(2, gpu=2, requests={"cpu": 1000}))
    s.run()
    s.bound("a", generation=1)
    node = s.core.tree.queue("q")
    assert (node.used["cpu"], node.used[GPU]) == (2000, 4)
    s.change("a", requests={"m": {"t0": {"cpu": 1250, "memory": 64, GPU: 1}}})
    assert (node.used["cpu"], node.used[GPU], node.used["memory"]) == (2500, 4, 128)
    # What was resized to less than it asked for may ask for all of it again.
    s.change("a", requests={"m": {"t0": {"cpu": 500}}})
    assert (node.used["cpu"], node.used.get("memory", 0)) == (2000, 0)


def test_what_is_charged_beyond_what_was_asked_for_is_not_there_for_others() -> None:
    s = scene(make_queue("q", cpu=4000), room=ROOM)
    s.submit(make_binding("a").tasks(1, requests={"cpu": 2000}))
    s.run()
    s.bound("a", generation=1)
    s.change("a", requests={"m": {"t0": {"cpu": 2500}}})
    s.submit(make_binding("b").tasks(1, requests={"cpu": 2000}))
    assert explained(s.run())["b"].decision.reason is Reason.QUOTA_EXCEEDED
    # It is never evicted for that: the queue may be above its limit, but nothing more starts.
    s.change("a", requests={"m": {"t0": {"cpu": 9000}}})
    assert evicted(s.run(after=100)) == []
    s.change("a", finished=True)
    assert names(s.run()) == ["b"]


def test_another_leader_charges_the_same() -> None:
    s = scene(room=ROOM)
    s.submit(make_binding("a").tasks(2, requests={"cpu": 1000}))
    s.run()
    s.bound("a", generation=1)
    s.change("a", requests={"m": {"t0": {"cpu": 1500}}})
    s.restart()
    assert s.core.tree.queue("q").used["cpu"] == 3000


def test_parts_are_charged_each_as_its_own_member_reports() -> None:
    room = (make_cluster("m1"), make_cluster("m2"), capacity("m1", 2), capacity("m2", 2))
    s = scene(room=room)
    s.submit(make_binding("a").tasks(4, requests={"cpu": 1000}).divided())
    s.run()
    assert len(s.view("a").parts) == 2
    s.change("a", requests={"m1": {"t0": {"cpu": 2000}}}, placed={"m1": (1, 2), "m2": (1, 2)})
    assert s.core.tree.queue("q").used["cpu"] == 6000


def test_what_grows_is_admitted_with_what_its_pods_really_request() -> None:
    s = scene(make_queue("q", gpu=6))
    s.submit(elastic("a", 1, 4))
    s.run()
    runs(s, "a")
    assert s.used("q") == 4
    s.change("a", requests={"m": {"t0": {GPU: 2}}})
    assert s.used("q") == 8
    s.submit(make_binding("b").tasks(1).priority(9))
    s.run()
    runs(s, "a")
    assert s.used("q") <= 8
    assert not resized(s.run())


def test_what_is_beyond_is_told_by_the_tasks_own_names() -> None:
    one = Gang("q", [Task("worker", 2, 2, {"cpu": 1000, "pods": 1})], 2)
    two = Gang("q", [Task("a", 1, 1, {"cpu": 1000}), Task("b", 1, 1, {"cpu": 2000})], 2)
    assert beyond(one, {"": {"cpu": 1200, "pods": 1}, "x": {"cpu": 900, "memory": 5}}) == {
        "worker": {"cpu": 1200, "memory": 5}
    }
    assert beyond(one, {"": {"cpu": 1000, "pods": 1}}) == {}
    assert beyond(two, {"a": {"cpu": 1000}, "b": {"cpu": 2001}, "c": {"cpu": 7}}) == {"b": {"cpu": 2001}}


# -- pods that have ended ----------------------------------------------------------------------------------------------


def test_pods_that_ended_for_good_give_their_quota_back_while_others_run() -> None:
    s = Scene(make_queue("q", gpu=4), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("gang").tasks(3).tasks(1), make_binding("next").tasks(2).submitted(LATE))
    assert names(s.run()) == ["gang"]
    s.bound("gang", generation=NEVER)
    assert (names(s.run()), s.used("q")) == ([], 4)
    s.change("gang", ended={"m": {"t0": 1}})
    assert (names(s.run()), s.used("q")) == ([], 3)
    s.change("gang", ended={"m": {"t0": 3}})
    assert (names(s.run()), s.used("q")) == (["next"], 3)
    # A leader that begins knows it from the objects.
    s.restart()
    s.run()
    assert s.used("q") == 3
    s.change("gang", finished=True)
    s.run()
    assert s.used("q") == 2


def test_of_a_task_that_runs_few_of_its_pods_at_once_the_last_ones_give_their_quota_back() -> None:
    s = Scene(make_queue("q", gpu=2), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("train").tasks(6, minimum=1).minimum(1))
    s.run()
    s.bound("train", generation=NEVER, pods=2)
    s.run()
    for ended, charged in ((1, 2), (4, 2), (5, 1), (6, 0)):
        s.change("train", ended={"m": {"t0": ended}})
        s.run()
        assert s.used("q") == charged, f"{ended} of 6 have ended"


def test_the_parts_of_a_divided_gang_give_back_what_ended_in_each_member() -> None:
    s = Scene(
        make_queue("q", gpu=8), make_cluster("m"), make_cluster("n"), make_capacity("m", [4]), make_capacity("n", [4])
    )
    s.submit(make_binding("wide").tasks(8).divided())
    s.run()
    s.bound("wide", generation=NEVER)
    s.run()
    assert s.used("q") == 8
    s.change("wide", ended={"m": {"t0": 3}, "n": {"t0": 4}})
    s.run()
    assert s.used("q") == 1
    assert [amount.get(GPU, 0) for _, amount in sorted(s.core.bindings["uid-wide"].where().items())] == [1, 0]


def test_what_ended_is_not_among_what_an_elastic_workload_gives_up() -> None:
    s = Scene(make_queue("q", gpu=6), make_cluster("m"), make_capacity("m", [6]))
    s.submit(make_binding("wide").tasks(6, minimum=1).minimum(1))
    s.run()
    s.bound("wide", generation=NEVER, pods=6)
    s.run()
    s.change("wide", ended={"m": {"t0": 5}}, placed={"m": (NEVER, 1)}, nodes={"m": {"n0": 1}})
    s.run()
    s.submit(make_binding("high").tasks(6).priority(1).submitted(LATE))
    s.run(after=3600.0)
    assert s.used("q") <= 6
