"""Pods that ask for the extended resource of a DeviceClass get devices by a claim of their own (KEP-5004)."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core import Bind, Deallocate, MemberCore
from atoll.agent.scheduler.core.events import Again, NodeSet, NotBound, PodSet, Whose
from tests.agent.builders import make_node, make_pod
from tests.agent.claiming import allocation, claim, publish, reserved, two_nodes, with_classes
from tests.agent.telling import core_of, of, settle

NAME = "example.com/gpu"
PLUGGED: dict[str, Any] = {NAME: "1"}
SPECIAL = "p-extended-resources-uid-p"


def asking(name: str, count: int, **more: Any) -> Pod:
    containers = [{"name": "c", "resources": {"limits": {"cpu": "1", NAME: str(count)}}}]
    return make_pod(name, spec={"containers": containers, **more})


def member() -> MemberCore:
    """Two nodes of two GPUs each."""
    return with_classes(two_nodes(), gpu=NAME)


def come(core: MemberCore, *pods: Pod) -> list[Bind]:
    for each in pods:
        core.handle(PodSet(each, Whose.OURS))
    return of(Bind, settle(core))


def test_a_claim_is_made_as_kube_scheduler_makes_it() -> None:
    core = member()
    assert core.room.amounts.free("a")[NAME] == 2
    [bind] = come(core, asking("p", 2))
    [reserve] = bind.reserves
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    assert reserve.spec == {"devices": {"requests": [{"name": "container-0-request-1", "exactly": exactly}]}}
    assert reserve.mappings == ({"containerName": "c", "resourceName": NAME, "requestName": "container-0-request-1"},)
    assert reserve.allocation is not None
    assert {each["request"] for each in reserve.allocation["devices"]["results"]} == {"container-0-request-1"}
    assert (reserve.claim, reserve.uid) == (f"default/{SPECIAL}", "")
    node = bind.pods[0][2]
    assert core.room.amounts.free(node)[NAME] == 0
    assert core.room.amounts.free(node)["gpu.deviceclass.resource.k8s.io/devices"] == 0


def test_a_pod_without_devices_waits() -> None:
    core = member()
    assert len(come(core, asking("a", 1), asking("b", 2), asking("c", 1))) == 3
    assert come(core, asking("d", 1)) == []
    assert NAME in core.waits["pod/default/d"].message


def test_devices_of_claims_count_for_the_resource_once() -> None:
    core = member()
    claim(core, "other", {}, allocation=allocation("a", "gpu-0"), reservedFor=reserved("x"))
    assert core.room.amounts.free("a")[NAME] == 1
    [bind] = come(core, asking("p", 2))
    assert bind.pods[0][2] == "b"


def test_a_device_plug_in_goes_before_classes() -> None:
    core = member()
    core.handle(NodeSet(make_node("plugged", **PLUGGED)))
    [bind] = come(core, asking("p", 1))
    assert (bind.pods[0][2], bind.reserves) == ("plugged", ())
    assert NAME not in core.room.amounts.free("a")


def test_a_claim_of_an_earlier_try_is_given_back_and_used_again() -> None:
    core = member()
    [bind] = come(core, asking("p", 1))
    devices = (bind.reserves[0].spec or {})["devices"]
    core.handle(NotBound((("default/p", "uid-p"),)))
    claim(core, SPECIAL, devices, pod="p", allocation=allocation("a", "gpu-0"), reservedFor=reserved("p"))
    core.handle(Again(bind.gang))
    assert [each.claim for each in of(Deallocate, settle(core))] == [f"default/{SPECIAL}"]
    claim(core, SPECIAL, devices, pod="p")
    [again] = of(Bind, settle(core))
    [reserve] = again.reserves
    assert reserve.spec is None
    assert reserve.uid == f"uid-{SPECIAL}"
    assert reserve.mappings


@pytest.mark.parametrize("classes", [{}, {"nic": "example.com/nic"}])
def test_without_such_a_class_the_resource_is_not_there(classes: dict[str, str]) -> None:
    core = with_classes(core_of(make_node("a")), **classes)
    publish(core, "a", ("gpu", "0"))
    assert come(core, asking("p", 1)) == []


def test_an_init_container_is_told_to_use_a_claim() -> None:
    core = member()
    first = [{"name": "i", "resources": {"limits": {NAME: "1"}}}]
    assert come(core, asking("p", 1, initContainers=first)) == []
    assert "init container i" in core.waits["pod/default/p"].message
