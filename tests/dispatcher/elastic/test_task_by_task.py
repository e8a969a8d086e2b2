"""Elastic gangs of several tasks run with whatever fits: task by task, pod by pod."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.kinds.job_set import KIND as JOB_SET
from atoll.kinds.ray import KINDS as RAY
from atoll.model import keys
from atoll.model.gang import Gang
from tests.dispatcher.builders import (
    NEVER,
    BindingBuilder,
    Scene,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
)
from tests.dispatcher.elastic.scenes import resized, runs


def counts(s: Scene, name: str = "a") -> tuple[int, ...]:
    [(_, found)] = s.view(name).parts
    return found


def tasks(*each: tuple[int, int], gpu: int = 1, minimum: int | None = None) -> BindingBuilder:
    """Tasks of (replicas, minAvailable)."""
    made = make_binding("a")
    for replicas, least in each:
        made.tasks(replicas, minimum=least, gpu=gpu)
    return made if minimum is None else made.minimum(minimum)


@pytest.mark.parametrize(
    ("work", "queue", "nodes", "expected"),
    [
        pytest.param(tasks((1, 1), (1, 1), gpu=2, minimum=1), 2, [8], (1, 0), id="room for one of two tasks"),
        pytest.param(
            tasks(*[(1, 1)] * 10, gpu=2, minimum=1), 10, [64], (1,) * 5 + (0,) * 5, id="ten tasks, quota for five"
        ),
        pytest.param(
            tasks(*[(1, 1)] * 4, gpu=40, minimum=1), 999, [64, 64], (1, 1, 0, 0), id="four tasks, nodes for two"
        ),
        pytest.param(tasks((4, 1), (2, 1), gpu=2, minimum=1), 8, [64], (3, 1), id="four and two, quota for four"),
        pytest.param(tasks((2, 0), (2, 0), (2, 0), minimum=1), 4, [8], (2, 1, 1), id="no task has a minimum"),
        pytest.param(tasks((2, 1), (7, 1), minimum=2), 8, [64], (2, 6), id="servers and workers"),
        pytest.param(tasks((1, 1), (3, 1), minimum=2), 3, [8], (1, 2), id="a server and workers"),
    ],
)
def test_each_task_starts_with_what_fits(
    work: BindingBuilder, queue: int, nodes: list[int], expected: tuple[int, ...]
) -> None:
    s = Scene(make_queue("q", gpu=queue), make_cluster("m"), make_capacity("m", nodes))
    s.submit(work)
    s.run()
    assert counts(s) == expected


def test_pods_that_are_too_large_hold_up_no_smaller_ones() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [4]))
    s.submit(make_binding("a").tasks(1, gpu=1).tasks(2, gpu=8, minimum=0).tasks(9, gpu=1, minimum=0).minimum(1))
    s.run()
    assert counts(s) == (1, 0, 3)


def test_what_waits_for_quota_with_one_task_and_for_room_with_another_grows_by_whichever_comes() -> None:
    def scene_of() -> Scene:
        s = Scene(make_queue("q", gpu=2, cpu=4), make_cluster("m"), make_capacity("m", [2]))
        both = make_binding("a").tasks(1).tasks(3, gpu=1, minimum=0).tasks(1, gpu=0, requests={"cpu": 8}, minimum=0)
        s.submit(both.minimum(1))
        s.run()
        runs(s, "a", generation=2)
        s.tell(make_capacity("m", [0], generation=2))
        s.run()
        assert counts(s) == (1, 1, 0)
        return s

    s = scene_of()
    s.tell(make_queue("q", gpu=3, cpu=4))
    s.run()
    assert counts(s) == (1, 1, 0), "its queue has more and its nodes have not"
    s.tell(make_capacity("m", [1], generation=3))
    s.run()
    assert counts(s) == (1, 2, 0)


def end(s: Scene, *ended: int) -> None:
    """So many pods of each task have ended for good; the others that were given room run."""
    gang = s.view("a").gang
    assert gang is not None
    gone = {task.name: number for task, number in zip(gang.tasks, ended, strict=True)}
    left = [max(min(n, task.replicas - gone[task.name]), 0) for n, task in zip(counts(s), gang.tasks, strict=True)]
    s.change("a", ended={"m": gone}, placed={"m": (NEVER, sum(left))})


def test_the_next_task_starts_once_the_one_before_has_ended() -> None:
    s = Scene(make_queue("q", gpu=2), make_cluster("m"), make_capacity("m", [8]))
    s.submit(tasks((1, 1), (1, 1), gpu=2, minimum=1))
    s.run()
    runs(s, "a")
    assert resized(s.run()) == {}
    end(s, 1, 0)
    s.run()
    assert (counts(s), s.used("q")) == ((1, 1), 2)


def test_a_task_of_which_few_are_left_takes_no_quota_from_the_others() -> None:
    s = Scene(make_queue("q", gpu=8), make_cluster("m"), make_capacity("m", [64]))
    s.submit(tasks((4, 1), (2, 1), gpu=2, minimum=1))
    s.run()
    runs(s, "a")
    end(s, 2, 0)
    s.run()
    # Two of the first task are left; the place of a third goes to the other task.
    assert (counts(s), s.used("q")) == ((3, 2), 8)
    end(s, 4, 1)
    assert (s.used("q"), resized(s.run())) == (2, {})


def ray(minimum: int, *groups: tuple[int, int]) -> dict[str, Any]:
    """A RayCluster with worker groups of (replicas, hosts)."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    workers = [
        {"groupName": f"g{number}", "replicas": replicas, "numOfHosts": hosts, "template": template}
        for number, (replicas, hosts) in enumerate(groups)
    ]
    return {
        "metadata": {"name": "a", "namespace": "default", "annotations": {keys.GROUP_MIN_MEMBER: str(minimum)}},
        "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": workers},
    }


def job_set(minimum: int, *jobs: tuple[int, int]) -> dict[str, Any]:
    """A JobSet with Jobs of (replicas, parallelism)."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    listed = [
        {"name": f"j{number}", "replicas": replicas, "template": {"spec": {"parallelism": pods, "template": template}}}
        for number, (replicas, pods) in enumerate(jobs)
    ]
    return {
        "metadata": {"name": "a", "namespace": "default", "annotations": {keys.GROUP_MIN_MEMBER: str(minimum)}},
        "spec": {"replicatedJobs": listed},
    }


@pytest.mark.parametrize(
    ("gang", "cpus", "expected"),
    [
        pytest.param(RAY[1].gang(ray(1, (3, 1), (4, 1)), priority=0), 6, (1, 2, 3), id="worker groups of Ray"),
        pytest.param(RAY[1].gang(ray(1, (3, 1), (4, 1)), priority=0), 3, (1, 1, 1), id="few of both groups"),
        pytest.param(RAY[1].gang(ray(1, (3, 4)), priority=0), 7, (1, 4), id="hosts of a worker all or not"),
        pytest.param(RAY[1].gang(ray(2, (3, 4)), priority=0), 9, (1, 8), id="a minimum within a worker"),
        pytest.param(JOB_SET.gang(job_set(2, (3, 1), (4, 1)), priority=0), 5, (2, 3), id="Jobs of a JobSet"),
        pytest.param(JOB_SET.gang(job_set(2, (2, 3), (4, 1)), priority=0), 5, (3, 2), id="Jobs with all of their pods"),
    ],
)
def test_other_kinds_grow_by_what_their_controllers_make_at_once(
    gang: Gang, cpus: int, expected: tuple[int, ...]
) -> None:
    s = Scene(make_queue(gang.queue, cpu=cpus * 1000), make_cluster("m"), make_capacity("m", [0] * 9))
    capacity = make_capacity("m", [0] * 9, generation=2)
    for each in capacity.capacity.classes:
        each.free["cpu"] = 64_000
    s.tell(capacity)
    gang = msgspec.structs.replace(gang, features=[])
    s.submit(dataclasses.replace(make_binding("a").build(), gang=gang))
    s.run()
    assert counts(s) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 30),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
def test_no_pod_waits_that_has_quota_and_a_node(
    of_tasks: list[tuple[int, int, int]], minimum: int, quota: int, nodes: list[int]
) -> None:
    s = Scene(make_queue("q", gpu=quota), make_cluster("m"), make_capacity("m", nodes))
    work = make_binding("a")
    for replicas, least, gpu in of_tasks:
        work.tasks(replicas, minimum=min(least, replicas), gpu=gpu)
    s.submit(work.minimum(min(minimum, sum(each[0] for each in of_tasks))))
    for _ in range(4):
        s.run()
        if s.view("a").parts:
            runs(s, "a")
    if not s.view("a").parts:
        return
    left = quota - s.used("q")
    member = s.core.members.by_name["m"]
    row = member.nodes.resources.index("nvidia.com/gpu") if "nvidia.com/gpu" in member.nodes.resources else None
    most = int(member.nodes.free[row].max()) if row is not None else 0
    for (replicas, _, gpu), has in zip(of_tasks, counts(s), strict=True):
        assert has == replicas or gpu > left or gpu > most


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(3, 12),
    st.lists(st.integers(3, 9), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_a_gang_that_runs_comes_to_its_end(
    of_tasks: list[tuple[int, int, int]], minimum: int, quota: int, nodes: list[int], order: Random
) -> None:
    """Its pods end one by one, in any order; each that ends leaves its quota and its node to the next."""
    s = Scene(make_queue("q", gpu=quota), make_cluster("m"), make_capacity("m", nodes))
    work = make_binding("a")
    for pods, least, gpu in of_tasks:
        work.tasks(pods, minimum=min(least, pods), gpu=gpu)
    replicas = [each[0] for each in of_tasks]
    s.submit(work.minimum(min(minimum, sum(replicas))))
    s.run()
    if not s.view("a").parts:
        return
    ended, generation = [0] * len(replicas), 1
    while ended != replicas:
        running = [min(has, most - gone) for has, most, gone in zip(counts(s), replicas, ended, strict=True)]
        s.change("a", placed={"m": (generation, sum(running))})
        assert any(running), f"{ended} of {replicas} have ended, and nothing runs"
        ended[order.choice([n for n, pods in enumerate(running) if pods])] += 1
        generation += 1
        s.tell(make_capacity("m", _free(nodes, of_tasks, counts(s), ended), generation=generation))
        gone = {f"t{n}": many for n, many in enumerate(ended)}
        left = sum(max(min(has, most - gone), 0) for has, most, gone in zip(counts(s), replicas, ended, strict=True))
        s.change("a", ended={"m": gone}, placed={"m": (generation, left)})
        s.run()


def _free(nodes: list[int], of_tasks: list[tuple[int, int, int]], has: tuple[int, ...], ended: list[int]) -> list[int]:
    """What nodes have beside the pods that run, the largest pods first."""
    free = list(nodes)
    for (replicas, _, gpu), most, gone in sorted(zip(of_tasks, has, ended, strict=True), key=lambda e: -e[0][2]):
        for _ in range(min(most, replicas - gone)):
            node = next((n for n, left in enumerate(free) if left >= gpu), None)
            if node is not None:
                free[node] -= gpu
    return free
