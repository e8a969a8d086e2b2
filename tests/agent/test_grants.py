"""Of a binding no more pods get nodes than the host granted."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from atoll.agent.jobs import pods
from atoll.agent.objects import decode_pod
from atoll.agent.scheduler.core import Bind, Evict, Explain, MemberCore
from atoll.agent.scheduler.core.events import Granted, PodGone, PodSet, Released, Whose
from atoll.kinds import Part, assembled, pod_group
from atoll.model import keys, quantity
from atoll.model.gang import Gang, Task
from tests.agent.builders import make_node, make_pod
from tests.agent.telling import core_of, gang, of, settle
from tests.kinds.grouped import pod


def granted(core: MemberCore, epoch: int = 1, *, cpu: str = "1", preempts: bool = True, **pods: int) -> None:
    requests = {**quantity.requests({"cpu": cpu}), "pods": 1}
    tasks = [Task(name, count, 0, requests) for name, count in pods.items()]
    core.handle(Granted("b", epoch, Gang("", tasks, 0, preempts=preempts)))


def make(core: MemberCore, name: str, task: str = "executor", **more: Any) -> None:
    pod = make_pod(name, group="g", task=task, binding="b", **more)
    core.handle(PodSet(pod, Whose.OURS))


def bound(commands: list[Any]) -> list[str]:
    return [key.removeprefix("default/") for each in of(Bind, commands) for key, _, _ in each.pods]


def reason(core: MemberCore) -> str:
    wait = core.waits.get("default/g")
    return wait.message if wait is not None else ""


@pytest.fixture
def core() -> MemberCore:
    found = core_of(make_node("n0", cpu="64", pods="100"), make_node("n1", cpu="64", pods="100"))
    gang(found, "g", minimum=1)
    return found


def ended(core: MemberCore, name: str, phase: str = "Succeeded") -> None:
    make(core, name, node="n0", phase=phase)


def test_the_next_pod_waits_and_says_so_until_one_has_ended(core: MemberCore) -> None:
    granted(core, driver=1, executor=2)
    make(core, "d", "driver")
    for number in range(4):
        make(core, f"e{number}", index=number)
    assert sorted(bound(settle(core))) == ["d", "e0", "e1"]
    for number in range(2):
        make(core, f"e{number}", index=number, node="n0", phase="Running")
    assert bound(settle(core)) == []
    assert "the host granted 2 pods of task executor, and as many have nodes" in reason(core)
    ended(core, "e0")
    assert bound(settle(core)) == ["e2"]
    core.handle(PodGone("default/e1"))
    assert bound(settle(core)) == ["e3"]
    assert reason(core) == ""


def test_a_pod_that_was_deleted_makes_way_for_the_one_that_takes_its_place(core: MemberCore) -> None:
    granted(core, executor=1)
    make(core, "old", node="n0", phase="Running")
    make(core, "new")
    assert bound(settle(core)) == []
    make(core, "old", node="n0", phase="Running", deleted=True)
    assert bound(settle(core)) == ["new"]


def test_a_larger_grant_lets_the_next_ones_go_on_and_an_older_one_means_nothing(core: MemberCore) -> None:
    granted(core, epoch=3, executor=1)
    for number in range(3):
        make(core, f"e{number}", index=number)
    assert bound(settle(core)) == ["e0"]
    granted(core, epoch=2, executor=3)
    assert bound(settle(core)) == []
    granted(core, epoch=3, executor=2)
    assert bound(settle(core)) == ["e1"]


def test_pods_of_a_gang_of_one_task_may_have_any_name_and_others_none_that_is_not_granted(core: MemberCore) -> None:
    granted(core, main=1)
    make(core, "e0", task="")
    make(core, "e1", task="other", index=1)
    assert bound(settle(core)) == ["e0"]
    granted(core, main=1, side=1)
    assert bound(settle(core)) == []
    assert "the host knows no pods of task other" in reason(core)


def test_pods_of_all_groups_of_a_binding_count(core: MemberCore) -> None:
    granted(core, executor=1)
    core.handle(PodSet(make_pod("bare", task="executor", binding="b", node="n1"), Whose.OURS))
    make(core, "e0")
    assert bound(settle(core)) == []


def test_pods_that_a_member_made_larger_get_nodes(core: MemberCore) -> None:
    """Overhead, a LimitRange's defaults, a sidecar: the host charges the difference."""
    granted(core, executor=2)
    make(core, "large", cpu="2", index=0)
    make(core, "small", cpu="1", index=1)
    assert sorted(bound(settle(core))) == ["large", "small"]


def test_nothing_is_limited_that_was_granted_nothing_or_is_the_hosts_no_more(core: MemberCore) -> None:
    make(core, "e0")
    assert bound(settle(core)) == ["e0"]
    granted(core, executor=1)
    make(core, "e0", node="n0", phase="Running")
    make(core, "e1", index=1)
    assert bound(settle(core)) == []
    core.handle(Released("b"))
    make(core, "e2", index=2)
    assert bound(settle(core)) == ["e1", "e2"]


@pytest.mark.parametrize("cpus", [("1", "3", "3"), ("1", "1", "1")], ids=["pods that differ", "pods that are alike"])
def test_pods_of_a_pod_group_count_for_the_tasks_that_the_host_granted(core: MemberCore, cpus: tuple[str, ...]) -> None:
    """Each of them is a task of the Volcano Job here; those of one shape are a task of the host's gang."""
    names = ("leader", "w0", "w1")
    [group] = assembled(pod_group.KIND, [pod(name, total=3, cpu=cpu) for name, cpu in zip(names, cpus, strict=True)])
    host = pod_group.KIND.gang(group, priority=0)
    core.handle(Granted("b", 1, host))
    counts = {task.name: task.replicas for task in host.tasks}
    sent = pod_group.KIND.rewrite(group, Part("m", counts, 3, identity={keys.BINDING_UID: "b"}))
    job = {**sent, "metadata": {**sent["metadata"], "namespace": "default", "uid": "j"}}
    there = [decode_pod(orjson.dumps(pods.pod(job, position, 0))) for position in range(3)]
    gang(core, pods.group_name(job), *(msgspec.structs.replace(each, gated=False) for each in there))
    assert len(bound(settle(core))) == 3


@pytest.mark.parametrize("preempts", [True, False])
def test_the_host_says_whether_others_are_evicted_for_its_gangs(preempts: bool) -> None:
    core = core_of(make_node("n0", cpu="1"))
    core.handle(PodSet(make_pod("low", cpu="1", node="n0"), Whose.OURS))
    gang(core, "g", minimum=1)
    granted(core, executor=1, preempts=preempts)
    make(core, "high", priority=10)
    commands = settle(core)
    assert bool(of(Evict, commands)) == preempts
    assert ("preemptionPolicy=Never" in of(Explain, commands)[-1].message) != preempts


def test_a_grant_survives_the_log() -> None:
    event = Granted("b", 1, Gang("", [Task("w", 1, 1, {"cpu": 1})], 1))
    assert msgspec.json.decode(msgspec.json.encode(event), type=Granted) == event
