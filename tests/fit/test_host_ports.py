"""Ports of nodes, counted exactly beside what amounts of resources say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.fit import Miss, Placement, place
from atoll.fit.constraints import HostPorts
from atoll.model import ports
from atoll.model.ports import HostPort
from tests.fit.builders import make_gang, make_nodes, pods_on

HTTP: HostPort = ("", "TCP", 80)


def asking(replicas: int, *wanted: HostPort, minimum: int | None = None) -> Any:
    gang = make_gang(replicas)
    tasks = [msgspec.structs.replace(task, ports=list(wanted)) for task in gang.tasks]
    return msgspec.structs.replace(gang, tasks=tasks, min_available=replicas if minimum is None else minimum)


def test_pods_that_want_the_same_port_go_to_a_node_each() -> None:
    nodes = make_nodes([[4, 4], [4, 4]])
    nodes.exact = (HostPorts(),)
    assert sorted(pods_on(place(nodes, asking(3, HTTP))).values()) == [1, 1, 1]
    assert isinstance(place(nodes, asking(5, HTTP)), Miss)
    assert isinstance(place(nodes, asking(5)), Placement)


def test_a_node_whose_port_is_taken_holds_none_and_one_that_grows_takes_its_own() -> None:
    nodes = make_nodes([[4, 4, 4]])
    nodes.exact = (HostPorts({0: [HTTP]}),)
    assert pods_on(place(nodes, asking(2, HTTP))) == {1: 1, 2: 1}
    assert pods_on(place(nodes, asking(9, HTTP, minimum=1))) == {1: 1, 2: 1}
    assert pods_on(place(nodes, asking(1, ("", "UDP", 80)))) == {0: 1}


def test_tasks_of_one_gang_do_not_get_the_same_port_of_a_node() -> None:
    nodes = make_nodes([[4, 4]])
    nodes.exact = (HostPorts(),)
    one = asking(1, HTTP)
    other = msgspec.structs.replace(one.tasks[0], name="other")
    both = msgspec.structs.replace(one, tasks=[one.tasks[0], other], min_available=2)
    assert pods_on(place(nodes, both)) == {0: 1, 1: 1}
    assert nodes.room_for(other).tolist() == [1, 1], "what is asked is not taken"


@pytest.mark.parametrize(
    ("wanted", "taken", "expected"),
    [
        pytest.param(("", "TCP", 80), ("", "TCP", 80), True, id="the same"),
        pytest.param(("", "TCP", 80), ("", "UDP", 80), False, id="another protocol"),
        pytest.param(("", "TCP", 80), ("", "TCP", 81), False, id="another port"),
        pytest.param(("10.0.0.1", "TCP", 80), ("", "TCP", 80), True, id="one address where all are taken"),
        pytest.param(("", "TCP", 80), ("10.0.0.1", "TCP", 80), True, id="all addresses where one is taken"),
        pytest.param(("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False, id="another address"),
    ],
)
def test_what_conflicts_as_kubernetes_says(wanted: HostPort, taken: HostPort, expected: bool) -> None:
    assert ports.conflict([wanted], [taken]) is expected


def test_the_ports_of_a_pod() -> None:
    spec = {
        "initContainers": [
            {"ports": [{"hostPort": 1}]},
            {"restartPolicy": "Always", "ports": [{"hostPort": 2}, {"containerPort": 3}]},
        ],
        "containers": [{"ports": [{"hostPort": 4, "hostIP": "0.0.0.0", "protocol": "UDP"}, {"hostPort": 2}]}, "odd"],
    }
    assert ports.of(spec) == [("", "TCP", 2), ("", "UDP", 4)]
    assert ports.of({"hostNetwork": True, "containers": [{"ports": [{"containerPort": 5}]}]}) == [("", "TCP", 5)]
