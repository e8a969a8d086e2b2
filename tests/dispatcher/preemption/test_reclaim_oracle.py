"""Plans of who must go, against brute force: small, irreducible, within every right, and never without an end."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.dispatcher.core.preemption.candidates import Victim
from atoll.dispatcher.core.preemption.search import Plan
from atoll.dispatcher.core.preemption.trial import Claimant
from atoll.dispatcher.core.quota.lending import lends, may_reclaim
from atoll.dispatcher.core.quota.queue import path
from atoll.dispatcher.core.settings import CoreSettings, PreemptionSettings
from atoll.fit import Placement, place
from tests.dispatcher.builders import GPU
from tests.dispatcher.preemption.stage import Stage, Where, queue

BUDGET = CoreSettings().preemption.evictions


@st.composite
def stages(draw, most: int = 8, *, elastic: bool = False) -> tuple[Stage, Claimant]:
    queues = [
        queue("a", draw(st.integers(0, 8))),
        queue("b", draw(st.integers(0, 4)), guarantee=draw(st.integers(0, 2))),
        queue("top", draw(st.integers(0, 6))),
        queue("c", draw(st.integers(0, 3)), parent="top"),
        queue("d", draw(st.integers(0, 3)), parent="top", reclaimable=draw(st.booleans())),
    ]
    racks = {"r1": [4, 4], "r2": [4]}
    stage = Stage(*queues, m=racks, n=[4, 4])
    free = {("m", 0): 4, ("m", 1): 4, ("m", 2): 4, ("n", 0): 4, ("n", 1): 4}
    for number in range(draw(st.integers(1, most))):
        where: Where = {}
        for spot in draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=2, unique=True)):
            pods = min(draw(st.integers(1, 4)), free[spot])
            if pods:
                free[spot] -= pods
                where.setdefault(spot[0], {})[spot[1]] = pods
        if where:
            spare = {m: {n: draw(st.integers(1, k)) for n, k in nodes.items()} for m, nodes in where.items()}
            fields = {
                "surplus": spare if elastic and draw(st.booleans()) else {},
                "priority": draw(st.integers(0, 2)),
                "started": float(draw(st.integers(0, 3))),
                "preemptable": draw(st.integers(0, 9)) > 0,
                "evictions": draw(st.sampled_from([0, 0, 0, 1, BUDGET])),
            }
            stage.run(f"v{number}", draw(st.sampled_from("aabbcdd")), where, **fields)
    more = draw(st.sampled_from([{}, {}, {"hard": 1}, {"divided": True}, {"tasks": [(1, 2)]}]))
    claimant = stage.claimant(
        draw(st.sampled_from("abc")), draw(st.integers(1, 8)), gpu=draw(st.integers(1, 3)),
        priority=draw(st.integers(0, 3)), **more,
    )  # fmt: skip
    return stage, claimant


def fits(stage: Stage, claimant: Claimant, gone: tuple[Victim, ...]) -> bool:
    """The whole rule anew: charges taken off the tree itself, nodes placed on from scratch."""
    tree = stage.tree
    asked = {
        name: amount
        for name, amount in claimant.shape.request.items()
        if may_reclaim(claimant.leaf, claimant.shape.request) and may_reclaim(claimant.leaf, {name: amount})
    }
    foreign = [victim for victim in gone if victim.leaf is not claimant.leaf]
    nodes = {name: member.nodes.copy() for name, member in stage.members.by_name.items()}
    for victim in gone:
        for name, pods in victim.parts.items():
            for node, request, count in pods:
                nodes[name].free[:, node] += nodes[name].column(request) * count
    for victim in gone:
        tree.start(victim.leaf, victim.amount, {}, -1)
    try:
        for victim in foreign:
            tree.start(victim.leaf, victim.amount, {})
            lent = lends(victim.leaf, claimant.leaf, victim.amount, asked, whole=claimant.shape.request)
            tree.start(victim.leaf, victim.amount, {}, -1)
            if not lent:
                return False
        if tree.shortage(claimant.leaf, claimant.shape.request) is not None:
            return False
    finally:
        for victim in gone:
            tree.start(victim.leaf, victim.amount, {})
    if any(isinstance(place(each, claimant.shape.least), Placement) for each in nodes.values()):
        return True
    (task, *_) = claimant.shape.least.tasks
    return (
        claimant.shape.divided and sum(int(each.room(task.requests).sum()) for each in nodes.values()) >= task.replicas
    )


def may_go(claimant: Claimant, victim: Victim) -> bool:
    if victim.leaf is claimant.leaf and victim.priority >= claimant.priority:
        return False
    return _wish_allows(claimant, victim) and victim.evictions < BUDGET


def may_shrink(claimant: Claimant, victim: Victim) -> bool:
    return _wish_allows(claimant, victim) and (victim.leaf is not claimant.leaf or victim.priority <= claimant.priority)


def _wish_allows(claimant: Claimant, victim: Victim) -> bool:
    """What is not preemptable may still be reclaimed."""
    return victim.preemptable or victim.leaf is not claimant.leaf


def _pods(bundle: Any) -> list[tuple[str, int, dict[str, int], int]]:
    parts = bundle.parts if isinstance(bundle, Victim) else bundle.pods
    return [(name, *pods) for name, entries in parts.items() for pods in entries]


@settings(max_examples=120, deadline=None)
@given(stages())
def test_a_plan_is_the_smallest_there_is_and_none_is_found_only_where_there_is_none(case):
    stage, claimant = case
    outcome = stage.plan(claimant)
    able = [victim for victim in stage.victims.values() if may_go(claimant, victim)]
    least = next(
        (
            size
            for size in range(len(able) + 1)
            if any(fits(stage, claimant, gone) for gone in itertools.combinations(able, size))
        ),
        None,
    )
    if least is None:
        assert outcome is None
        return
    assert isinstance(outcome, Plan)
    assert len(outcome.victims) == least
    gone = tuple(stage.victims[uid] for uid in outcome.victims)
    assert all(may_go(claimant, victim) for victim in gone)
    assert fits(stage, claimant, gone)


@settings(max_examples=60, deadline=None)
@given(stages(most=14))
def test_without_trying_all_sets_a_plan_is_irreducible_and_keeps_every_right(case):
    stage, claimant = case
    stage.settings = PreemptionSettings(exhaustive=0)
    outcome = stage.plan(claimant)
    if isinstance(outcome, Plan):
        gone = tuple(stage.victims[uid] for uid in outcome.victims)
        assert all(may_go(claimant, victim) for victim in gone)
        assert fits(stage, claimant, gone)
        for spared in gone:
            assert not fits(stage, claimant, tuple(victim for victim in gone if victim is not spared))


@settings(max_examples=60, deadline=None)
@given(stages(elastic=True))
def test_what_elastic_workloads_lose_is_room_and_no_guarantee_is_touched(case):
    stage, claimant = case
    outcome = stage.plan(claimant)
    if not isinstance(outcome, Plan):
        return
    nodes = {name: member.nodes.copy() for name, member in stage.members.by_name.items()}
    used = {name: node.used.get(GPU, 0) for name, node in stage.tree.queues.items()}
    for loss in outcome.losses:
        victim = stage.victims[loss.uid]
        assert may_go(claimant, victim) or (loss.surplus and may_shrink(claimant, victim))
        for number, step in enumerate(loss.surplus or ()):
            assert step.pods == victim.surplus[number].pods, "not in its order"
        for bundle in (victim,) if loss.surplus is None else loss.surplus:
            for name, node, request, count in _pods(bundle):
                nodes[name].free[:, node] += nodes[name].column(request) * count
                for each in path(victim.leaf):
                    used[each.name] -= request[GPU] * count
    for member, gang, placement in zip(
        *(getattr(outcome.choice, n) for n in ("members", "gangs", "placements")), strict=True
    ):
        nodes[member.name].take([task.requests for task in gang.tasks], placement)
        assert (nodes[member.name].free[:, [node for _, node, _ in placement.pods]] >= 0).all()
    for name, node in stage.tree.queues.items():
        if node is not claimant.leaf and node is not stage.tree.root:
            assert used[name] >= min(node.guarantee.get(GPU, 0), node.used.get(GPU, 0))


@settings(max_examples=60, deadline=None)
@given(stages(), st.booleans())
def test_without_arrivals_plans_come_to_an_end(case, counted):
    """Of one resource they do even where evictions are not counted, by the order of entitlements alone."""
    stage, first = case
    waiting = [(first, 0)]
    rounds = 0
    idle = 0
    bound = (BUDGET + 1) * (len(stage.victims) + 1)
    for victim in stage.victims.values():
        victim.evictions = 0
    while waiting and idle < len(waiting):
        claimant, evictions = waiting.pop(0)
        outcome = stage.plan(claimant)
        if outcome is None:
            waiting.append((claimant, evictions))
            idle += 1
            continue
        idle = 0
        rounds += 1
        assert rounds <= bound
        for uid in outcome.victims:
            victim = stage.stop(uid)
            count = sum(n for p in victim.parts.values() for _, _, n in p)
            again = stage.claimant(victim.leaf.name, count, priority=victim.priority, uid=uid)
            stage.tree.wait(victim.leaf, victim.amount, -1)
            waiting.append((again, victim.evictions + counted))
        choice = outcome.choice
        where: dict[str, list[tuple[int, dict[str, int], int]]] = {}
        for member, gang, placement in zip(choice.members, choice.gangs, choice.placements, strict=True):
            where[member.name] = [(node, gang.tasks[task].requests, n) for task, node, n in placement.pods]
        stage.tree.wait(claimant.leaf, claimant.shape.request, -1)
        runs = Victim(
            claimant.uid, claimant.leaf, claimant.priority, 0.0, claimant.shape.request, where,
            evictions=evictions, cleared=outcome.victims if counted else (),
        )  # fmt: skip
        stage.victims[claimant.uid] = runs
        stage.move(runs, 1)
