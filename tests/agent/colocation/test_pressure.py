"""Pressure: when it begins and ends, and which offline pods leave."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from atoll.agent.colocation.pressure import Choice, choose, left
from atoll.agent.colocation.reclaim import Memory, lowered
from atoll.agent.colocation.rules import Colocation
from atoll.agent.descheduler.world import Figures, Subject, World
from atoll.agent.objects import Budget, Node, PodGroup, PodGroupSpec, decode_budget, decode_node
from atoll.model.colocation import BATCH_CPU, BATCH_MEMORY, VOLCANO_QOS
from atoll.model.objects import Meta
from atoll.model.timestamps import rfc3339_seconds
from tests.agent.colocation.builders import GI, RULES, UNKNOWN, figures, look, node, offline, published
from tests.agent.descheduler.builders import make_subject

WALL = 1_800_000_000.0
BUSY = {"n1": (6500, 4)}
"""Online use above 75 %."""


def ours(name: str = "n1", **more: Any) -> Node:
    return published(node(name, **more), {BATCH_CPU: 5000, BATCH_MEMORY: 8 * GI})


def aged(name: str, age: float, *, on: str = "n1", cpu: int = 1000, gang: str = "", **more: Any) -> Subject:
    notes = {"atoll.sh/binding-uid": f"b-{gang}", "scheduling.k8s.io/group-name": gang} if gang else {}
    return offline(name, on, cpu=cpu, created=rfc3339_seconds(WALL - age), notes=notes, kind="Job", **more)


def groups(*names: str, minimum: int = 2) -> dict[str, PodGroup]:
    made = (PodGroup(Meta(name=name, namespace="default"), PodGroupSpec(minimum)) for name in names)
    return {each.metadata.key: each for each in made}


def chosen(
    pods: list[Subject],
    of: Figures | None = None,
    *,
    nodes: tuple[Node, ...] = (ours(),),
    memory: Memory | None = None,
    rules: Colocation = RULES,
    gangs: dict[str, PodGroup] | None = None,
    budgets: tuple[Budget, ...] = (),
    classes: dict[str, int] | None = None,
    now: float = 1000.0,
) -> Choice:
    memory = Memory() if memory is None else memory
    use = figures(BUSY, {each.metadata.name: (0, 1) for each in pods}) if of is None else of
    found = look(nodes, pods, use, memory=memory, rules=rules, now=now)
    world = World(nodes, pods, budgets, gangs or {}, classes or {})
    return choose(world, found, use, memory, rules, now=now, wall=WALL)


def names(choice: Choice) -> list[str]:
    return [each.unit.name for each in choice.leaves]


def test_the_youngest_leave_until_the_rest_fits_beside_online_use() -> None:
    # 7200 less 6500 in use: 700 of 3000 fit.
    pods = [aged("old", 900), aged("young", 100), aged("middle", 500)]
    found = chosen(pods)
    assert names(found) == ["default/young", "default/middle", "default/old"]
    assert found.leaves[0].reason == "cpu is above its bound"
    # 1200 are free.
    assert names(chosen(pods, figures({"n1": (6000.5, 4)}, {}))) == ["default/young", "default/middle"]


def test_a_gang_leaves_whole_by_its_host_and_relieves_each_of_its_nodes() -> None:
    pods = [aged("g-0", 100, gang="g"), aged("g-1", 100, gang="g", on="n2"), aged("old", 900, on="n2")]
    both = figures({"n1": (7000, 4), "n2": (6000.5, 4)})
    found = chosen(pods, both, nodes=(ours(), ours("n2")), gangs=groups("g"))
    [leave] = found.leaves
    assert (leave.unit.name, leave.unit.binding, len(leave.unit.pods)) == ("default/g", "b-g", 2)


def test_a_gang_of_the_members_own_leaves_whole_and_not_beyond_a_budget() -> None:
    pods = [
        offline(f"g-{index}", "n1", kind="Job", notes={"scheduling.k8s.io/group-name": "g"}, labels={"app": "g"})
        for index in range(2)
    ]
    [leave] = chosen(pods, gangs=groups("g")).leaves
    assert (leave.unit.name, leave.unit.binding, len(leave.unit.pods)) == ("default/g", "", 2)
    spec = {"selector": {"matchLabels": {"app": "g"}}}
    raw = {"metadata": {"name": "b", "namespace": "default"}, "spec": spec, "status": {"disruptionsAllowed": 1}}
    found = chosen(pods, gangs=groups("g"), budgets=(decode_budget(orjson.dumps(raw)),))
    assert (found.leaves, found.skips[0][1]) == ([], "PodDisruptionBudget default/b allows 1 disruptions now, not 2")


@pytest.mark.parametrize(
    ("pods", "gangs", "reason"),
    [
        ([aged("g", 30, gang="g")], groups("g"), "the host moves no gang in its first 60 s"),
        ([aged("g", 300, gang="g")], {}, "it is not one PodGroup"),
        ([offline("bare", "n1", kind="")], {}, "nothing would make it again: it has no controller"),
    ],
    ids=["a gang that was just dispatched", "a gang of several PodGroups", "a pod without a controller"],
)
def test_what_can_not_go_stays_with_the_reason(pods: list[Subject], gangs: dict[str, PodGroup], reason: str) -> None:
    found = chosen(pods, gangs=gangs)
    assert (found.leaves, [why for _, why in found.skips]) == ([], [reason])


def test_pressure_begins_after_looks_in_a_row_and_ends_below_its_bound_by_the_margin() -> None:
    rules, memory, pods = replace(RULES, looks=2, settle=1.0), Memory(), [aged("a", 100, cpu=5000)]
    acts = []
    for step, cpu in enumerate((6500, 1000, 6500, 6500, 5900, 5300, 5100, 5900)):
        use = figures({"n1": (cpu, 4)}, {"a": (0, 1)})
        acts.append(bool(chosen(pods, use, memory=memory, rules=rules, now=60.0 * step).leaves))
    # 5900 is below the bound of 6000, and 5100 below 5200, where it ends.
    assert acts == [False, False, False, True, True, True, False, False]


def test_nothing_takes_the_place_of_pods_that_leave_while_the_pressure_lasts() -> None:
    """The node offers what the pods that stay request, from the look that has one leave on."""
    pods, memory = [aged("stays", 900, cpu=1000), aged("goes", 100, cpu=2000)], Memory()
    world, use = World([ours()], pods), figures({"n1": (6100, 4)}, {"stays": (0, 1), "goes": (0, 1)})
    held = look([ours()], pods, use, memory=memory)
    [leave] = choose(world, held, use, memory, RULES, now=1000.0, wall=WALL).leaves
    assert leave.unit.name == "default/goes"
    assert held[0].wanted == {BATCH_CPU: 3000, BATCH_MEMORY: 2 * GI}
    left(leave, memory, RULES, 1000.0)
    [after] = lowered(held, world, memory.leaving)
    assert after.wanted == {BATCH_CPU: 1000, BATCH_MEMORY: GI}
    assert lowered(held, World([ours()], pods[:1]), memory.leaving) == held, "it has gone"


def test_all_nodes_of_a_gang_rest_after_it_was_asked_for() -> None:
    memory, pods = Memory(), [aged("g-0", 100, gang="g"), aged("g-1", 100, gang="g", on="n2")]
    nodes = (ours(), ours("n2"))
    [leave] = chosen(pods, nodes=nodes, memory=memory, gangs=groups("g")).leaves
    left(leave, memory, RULES, 1000.0)
    both = figures({"n1": (7000, 4), "n2": (7000, 4)})
    assert chosen(pods, both, nodes=nodes, memory=memory, gangs=groups("g"), now=1100.0) == Choice()
    assert names(chosen(pods, both, nodes=nodes, memory=memory, gangs=groups("g"), now=1400.0)) == ["default/g"]


def test_no_look_evicts_more_than_its_bounds() -> None:
    pods = [aged(f"p{index}", index, on=f"n{1 + index % 2}", cpu=100) for index in range(40)]
    nodes, both = (ours(), ours("n2")), figures({"n1": (7000, 4), "n2": (7000, 4)})
    rules = replace(RULES, per_node=3, total=4)
    found = chosen(pods, both, nodes=nodes, rules=rules)
    assert [each.node for each in found.leaves] == ["n1", "n1", "n1", "n2"]


def test_memory_leaves_by_use_and_a_kubelet_that_evicts_acts_at_once() -> None:
    pods = [aged("large", 900, gib=4), aged("small", 100, gib=4)]
    use = figures({"n1": (1000, 14)}, {"large": (0, 4), "small": (0, 0.1)})
    assert names(chosen(pods, use)) == ["default/small", "default/large"]
    # Who uses more than it requested goes before younger ones.
    use = figures({"n1": (1000, 14)}, {"greedy": (0, 4), "young": (0, 1)})
    assert names(chosen([aged("greedy", 900), aged("young", 100)], use)) == ["default/greedy"]
    pressed = replace(ours(), status=replace(ours().status, conditions=[_condition("MemoryPressure")]))
    # Also without figures; one goes.
    found = chosen(pods, UNKNOWN, nodes=(pressed,))
    assert [(each.unit.name, each.reason) for each in found.leaves] == [
        ("default/small", "its kubelet has condition MemoryPressure")
    ]


def _condition(kind: str) -> Any:
    body = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
    return decode_node(orjson.dumps(body)).status.conditions[0]


@pytest.mark.parametrize(
    ("pod", "leaves"),
    [
        (make_subject("p", "n1", notes={VOLCANO_QOS: "BE"}), True),
        (make_subject("p", "n1", labels={"koordinator.sh/qosClass": "BE"}), True),
        (make_subject("p", "n1", priority=5500), True),
        (make_subject("p", "n1", priority=7500), False),
        (make_subject("p", "n1", priority=5500, notes={VOLCANO_QOS: "LS"}), False),
        (make_subject("p", "n1"), False),
    ],
    ids=["BE of Volcano", "BE of Koordinator", "koord-batch", "koord-mid", "LS in the band", "no class"],
)
def test_offline_pods_alone_leave(pod: Subject, leaves: bool) -> None:
    busy = figures({"n1": (7500, 4)}, {"p": (1000, 1)})
    assert bool(chosen([pod], busy, classes={"koord-batch": 5000}).leaves) is leaves


def test_another_agents_node_is_left_to_it() -> None:
    theirs = node(labels={"volcano.sh/oversubscription": "true"}, **{BATCH_CPU: "3000"})
    assert chosen([aged("a", 100)], nodes=(theirs,)) == Choice()
