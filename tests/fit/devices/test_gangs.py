"""A gang's pods on nodes: each gets devices of its own, and equal nodes are searched once."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from atoll.fit.devices import Answers, Fleet, Problem, Refused, Undecided, gangs, prepare
from atoll.fit.devices.search import solve
from atoll.model.device_claims import Claim, Constraint, Request, Wish
from atoll.model.devices import Attribute, Capacity, Device, DeviceId, Nodes, Pool, Taken
from tests.fit.devices import nodes

PAIR = Claim("c", (Request("g", (Wish("g", "gpu"),)), Request("n", (Wish("n", "nic"),))), (Constraint((), nodes.ROOT),))


def node_of(name: str, roots: str) -> Pool:
    """GPUs and NICs under each root; roots of every node are named after it."""
    devices = tuple(
        Device(
            DeviceId("d", name, f"{kind}-{number}"),
            {nodes.KIND: Attribute("string", (kind,)), nodes.ROOT: Attribute("string", (f"{name}-{root}",))},
            nodes=Nodes(name),
        )
        for kind in nodes.KINDS
        for number, root in enumerate(roots)
    )
    return Pool("d", name, devices)


def fleet(pools: list[Pool], claim: Claim = PAIR, steps: int = 1000) -> Fleet:
    return Fleet(
        {pool.name: prepare([claim], [pool], nodes.CLASSES, nodes.selects, pool.name, {}) for pool in pools}, steps
    )


def test_every_pod_gets_a_pair_of_its_own_on_the_first_nodes(monkeypatch: pytest.MonkeyPatch):
    searches: list[Taken] = []

    def counted(problem: Problem, taken: Taken, steps: int) -> object:
        searches.append(taken)
        return solve(problem, taken, steps)

    monkeypatch.setattr(gangs, "solve", counted)
    placed = fleet([node_of(name, "abcd") for name in "wxyz"]).place(10, Taken())
    assert isinstance(placed, list)
    assert [each.node for each in placed] == [*"wwww", *"xxxx", *"yy"]
    devices = [pick.option.device for each in placed for pick in each.picks]
    assert len({device.id for device in devices}) == 20
    for each in placed:
        gpu, nic = (pick.option.device for pick in each.picks)
        assert gpu.attributes[nodes.ROOT] == nic.attributes[nodes.ROOT]
        assert gpu.id.pool == each.node
    assert len(searches) == 5


def test_refusal_counts_pods_and_nodes():
    refused = fleet([node_of("w", "ab"), node_of("x", "a")]).place(4, Taken(frozenset({DeviceId("d", "w", "nic-0")})))
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("2 of 4 pods get devices; on 1 of 2 nodes: claim c, request")


def test_without_enough_steps_a_gang_is_undecided():
    assert fleet([node_of("w", "ab")], steps=1).place(1, Taken()) == Undecided(1)


def test_shares_of_a_device_on_the_network_are_counted_over_nodes():
    shared = Device(
        DeviceId("d", "net", "s"),
        {nodes.KIND: Attribute("string", ("gpu",))},
        {"memory": Capacity("3")},
        shared=True,
        nodes=Nodes(everywhere=True),
    )
    pool = Pool("d", "net", (shared,))
    one = Claim("c", (Request("g", (Wish("g", "gpu", capacity=(("memory", "1"),)),)),))
    both = Fleet({name: prepare([one], [pool], nodes.CLASSES, nodes.selects, name, {}) for name in "wx"})
    placed = both.place(3, Taken())
    assert isinstance(placed, list)
    assert [each.node for each in placed] == ["w", "w", "w"]
    assert isinstance(both.place(4, Taken()), Refused)
    assert isinstance(both.place(3, Taken(consumed={shared.id: {"memory": Fraction(1)}})), Refused)


def test_shapes_that_are_forgotten_leave_no_answers_to_others(monkeypatch: pytest.MonkeyPatch):
    """Claims of tenants come and go: what is kept of them is bounded, and a number stands for one shape for ever."""
    monkeypatch.setattr(gangs, "_SHAPES", 2)
    answers = Answers()
    problems = [
        prepare([PAIR], [node_of("w", roots)], nodes.CLASSES, nodes.selects, "w", {})
        for roots in ("a", "ab", "abc", "a")
    ]
    prepared = [answers.prepared(each) for each in problems]
    assert [answers.count(each, Taken(), 10) for each in prepared] == [1, 2, 3, 1]
    assert len({each.shape for each in prepared[:3]}) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Claim("c", (Request("r", (Wish("r", "gpu"),)),)), Claim("c", (Request("r", (Wish("r", "gpu", count=2),)),))),
        (PAIR, Claim("c", PAIR.requests, tuple(replace(each, distinct=True) for each in PAIR.constraints))),
    ],
    ids=["number", "constraint"],
)
def test_claims_for_the_same_devices_have_answers_of_their_own(one: Claim, other: Claim) -> None:
    """One agent asks for all claims that it ever sees."""
    answers, pool = Answers(), node_of("a", "001")

    def picks(claim: Claim) -> object:
        problem = prepare([claim], [pool], nodes.CLASSES, nodes.selects, "a", {})
        found = answers.picks(answers.prepared(problem), Taken())
        assert not isinstance(found, (Refused, Undecided))
        return [each.option.device.id.name for each in found]

    first = picks(one)
    alone = Answers()
    problem = prepare([other], [pool], nodes.CLASSES, nodes.selects, "a", {})
    expected = alone.picks(alone.prepared(problem), Taken())
    assert not isinstance(expected, (Refused, Undecided))
    assert picks(other) == [each.option.device.id.name for each in expected] != first
