"""Labels that a member's figures leave out: whatever selects by them is asked of the member, not refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from atoll.dispatcher.core import CapacitySet, ClusterSet, Dispatch, MemberAnswer
from atoll.model.cards import SHARE
from atoll.model.decision import Phase
from atoll.model.verdict import Reason
from tests.dispatcher.builders import Scene, dispatched, make_binding, make_capacity, make_cluster, make_queue, scene

HOST = "kubernetes.io/hostname"


def leaving_out(cluster: str, *keys: str, labels: dict[str, str] | None = None, generation: int = 1) -> CapacitySet:
    capacity = make_capacity(cluster, [4, 4], labels=labels, generation=generation).capacity
    return CapacitySet(dataclasses.replace(capacity, left_out=keys))


def affinity(key: str, operator: str, *values: str, field: bool = False) -> dict[str, Any]:
    item = {"key": key, "operator": operator, "values": list(values)}
    return {"node_terms": [{"matchFields" if field else "matchExpressions": [item]}]}


@pytest.mark.parametrize(
    "wish",
    [
        pytest.param({"node_selector": {HOST: "n7"}}, id="a node selector"),
        pytest.param(affinity(HOST, "In", "n7"), id="an affinity"),
        pytest.param(affinity(HOST, "NotIn", "n7"), id="an affinity away from it"),
        pytest.param(affinity("metadata.name", "In", "n7", field=True), id="the name of the node"),
    ],
)
def test_the_member_is_asked_before_the_workload_goes_there(wish: dict[str, Any]) -> None:
    s = scene(room=(make_cluster("m"), leaving_out("m", HOST)))
    [command] = s.submit(make_binding("a").tasks(1, **wish)).run()
    assert isinstance(command, Dispatch)
    assert (command.decision.phase, command.decision.reason) == (Phase.RESERVING, Reason.RESERVING)
    s.change("a", reserved={"m": MemberAnswer(True, generation=1)})
    [commit] = s.run()
    assert commit.decision.phase is Phase.DISPATCHED


def test_what_is_told_is_still_gone_by() -> None:
    s = scene(room=(make_cluster("m"), leaving_out("m", HOST, labels={"zone": "a"})))
    s.submit(make_binding("a").tasks(1, node_selector={HOST: "n7", "zone": "b"}))
    s.run()
    s.decide()
    assert s.verdict("a") is Reason.NO_NODE_MATCHES


def test_a_key_that_no_node_has_is_refused_at_once() -> None:
    s = scene(room=(make_cluster("m"), leaving_out("m", HOST)))
    s.submit(make_binding("a").tasks(1, node_selector={"rack": "7"}))
    s.run()
    s.decide()
    assert s.verdict("a") is Reason.NO_NODE_MATCHES


def test_what_selects_by_other_labels_is_not_asked_about() -> None:
    s = scene(room=(make_cluster("m"), leaving_out("m", HOST, labels={"zone": "a"})))
    [command] = s.submit(make_binding("a").tasks(1, node_selector={"zone": "a"})).run()
    assert command.decision.phase is Phase.DISPATCHED


def test_a_refusal_sends_it_to_the_next_member() -> None:
    s = Scene(make_queue("q"), make_cluster("m1"), make_cluster("m2"), leaving_out("m1", HOST), leaving_out("m2", HOST))
    assert dispatched(s.submit(make_binding("a").tasks(1, node_selector={HOST: "n7"})).run()) == [("a", "m1")]
    s.change("a", reserved={"m1": MemberAnswer(False, requested=1, available=0)})
    s.run()
    s.change("a", released=s.view("a").generation)
    assert dispatched(s.run()) == [("a", "m2")]


def test_where_every_member_tells_the_label_no_member_is_asked() -> None:
    s = scene(room=(make_cluster("m"), leaving_out("m", labels={HOST: "n7"})))
    [command] = s.submit(make_binding("a").tasks(1, node_selector={HOST: "n7"})).run()
    assert command.decision.phase is Phase.DISPATCHED


@pytest.mark.parametrize(
    ("aligns", "wish", "phase"),
    [
        pytest.param(True, {"aligned": [{"cpu": 2}]}, Phase.RESERVING, id="own CPUs"),
        pytest.param(False, {"aligned": [{"cpu": 2}]}, Phase.DISPATCHED, id="where nothing is aligned"),
        pytest.param(False, {"numa": "restricted"}, Phase.RESERVING, id="a policy"),
        pytest.param(True, {}, Phase.DISPATCHED, id="shares of CPUs"),
        pytest.param(False, {"devices_in": "nvlink-island"}, Phase.RESERVING, id="an island of devices"),
    ],
)
def test_a_member_is_asked_whether_it_can_align_pods_to_numa_nodes(
    aligns: bool, wish: dict[str, Any], phase: Phase
) -> None:
    capacity = CapacitySet(dataclasses.replace(make_capacity("m", [4, 4]).capacity, aligns=aligns))
    s = scene(room=(make_cluster("m"), capacity))
    [command] = s.submit(make_binding("a").tasks(1, **wish)).run()
    assert command.decision.phase is phase


@pytest.mark.parametrize("other_placer", [False, True])
def test_where_atoll_counts_cards_a_member_is_asked_about_shares_of_gpus(other_placer: bool) -> None:
    cluster = make_cluster("m").cluster
    capacity = make_capacity("m", [4, 4]).capacity
    classes = tuple(dataclasses.replace(each, free={**each.free, SHARE: 2000}) for each in capacity.classes)
    s = scene(
        room=(
            ClusterSet(dataclasses.replace(cluster, honours_needs=other_placer)),
            CapacitySet(dataclasses.replace(capacity, classes=classes)),
        )
    )
    [command] = s.submit(make_binding("a").tasks(1, requests={SHARE: 600})).run()
    assert command.decision.phase is (Phase.DISPATCHED if other_placer else Phase.RESERVING)


def test_one_task_that_is_aligned_is_enough_to_ask_a_member() -> None:
    capacity = CapacitySet(dataclasses.replace(make_capacity("m", [4, 4]).capacity, aligns=True))
    s = scene(room=(make_cluster("m"), capacity))
    [command] = s.submit(make_binding("a").tasks(1).tasks(1, aligned=[{"cpu": 2}])).run()
    assert command.decision.phase is Phase.RESERVING
