"""The PodGroups of pods whose owners know nothing of gangs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.agent.objects import Pod, PodGroup, PodGroupSpec
from atoll.agent.podgroups import Owner, change, group_named, group_of, serves
from atoll.agent.scheduler.core import gangs
from atoll.agent.scheduler.core.planner import Plan, Wait, plan
from atoll.model.objects import OwnerReference
from tests.agent.builders import make_group, make_node, make_pod, make_room

DEPLOYMENT = Owner("apps/v1", "Deployment", "web", "d1")
OURS = gangs.by_name("atoll")


def owned(name: str, kind: str = "ReplicaSet", *, notes: dict[str, str] | None = None, **more: Any) -> Pod:
    pod = make_pod(name, **more)
    reference = OwnerReference(kind=kind, name="web-1", uid="rs1", controller=True)
    owners = [reference] if kind else []
    annotations = {**pod.metadata.annotations, **(notes or {})}
    meta = msgspec.structs.replace(pod.metadata, owner_references=owners, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=meta)


SERVES = [
    ("a pod of a ReplicaSet", owned("a"), True),
    ("a pod of a batch Job", owned("a", "Job"), True),
    ("a pod of a StatefulSet", owned("a", "StatefulSet"), True),
    ("a pod on its own", owned("a", ""), True),
    ("a pod that names its PodGroup", owned("a", group="g"), False),
    ("a pod for another scheduler", owned("a", scheduler="default-scheduler"), False),
    ("a pod that has a node", owned("a", node="n1"), False),
    ("a pod of a delivered kind whose operator made no gang", owned("a", "PyTorchJob"), True),
    ("a pod of a delivered kind whose operator made its gang", owned("a", "PyTorchJob", group="g"), False),
    ("a pod of an operator whose kind is not delivered", owned("a", "Notebook"), False),
]


@pytest.mark.parametrize(("pod", "expected"), [c[1:] for c in SERVES], ids=[c[0] for c in SERVES])
def test_gets_a_pod_group(pod: Pod, expected: bool) -> None:
    assert serves(pod, OURS) is expected


def test_the_template_says_how_the_gang_is() -> None:
    pod = owned(
        "a",
        notes={
            "scheduling.volcano.sh/group-min-member": "3",
            "scheduling.volcano.sh/queue-name": "team",
            "volcano.sh/network-topology-mode": "hard",
            "volcano.sh/network-topology-highest-tier": "2",
            "atoll.sh/binding-uid": "b1",
        },
        cpu="2",
    )
    group = group_of(DEPLOYMENT, pod)
    assert group["metadata"]["name"] == "podgroup-d1"
    assert group["metadata"]["annotations"] == {"atoll.sh/binding-uid": "b1"}
    assert [each["kind"] for each in group["metadata"]["ownerReferences"]] == ["Deployment"]
    assert group["spec"] == {
        "minMember": 3,
        "minResources": {"cpu": "6"},
        "queue": "team",
        "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
    }


def test_the_resources_that_are_given_win_and_nonsense_counts_for_nothing() -> None:
    given = {
        "scheduling.volcano.sh/group-min-resources": '{"cpu": "9"}',
        "scheduling.volcano.sh/group-min-member": "x",
    }
    spec = group_of(DEPLOYMENT, owned("a", notes=given))["spec"]
    assert (spec["minResources"], spec["minMember"]) == ({"cpu": "9"}, 1)


def test_pods_that_start_one_by_one_do_not_wait_for_each_other() -> None:
    owner = Owner("apps/v1", "StatefulSet", "db", "s1", one_by_one=True)
    assert group_of(owner, owned("a", notes={"scheduling.volcano.sh/group-min-member": "3"}))["spec"]["minMember"] == 1


def test_a_group_that_pods_name_goes_with_the_last_of_them() -> None:
    notes = {"scheduling.volcano.sh/group-min-member": "2"}
    group = group_named("mine", [owned("a", "", notes=notes), owned("b", "", notes=notes)])
    assert [each["name"] for each in group["metadata"]["ownerReferences"]] == ["a", "b"]
    assert (group["metadata"]["name"], group["spec"]["minMember"]) == ("mine", 2)


def test_a_newer_template_changes_the_group_once() -> None:
    wanted = group_of(DEPLOYMENT, owned("a", notes={"scheduling.volcano.sh/group-min-member": "3"}))
    group = make_group("podgroup-d1", 2)
    assert change(group, wanted)["spec"]["minMember"] == 3
    assert change(PodGroup(metadata=group.metadata, spec=PodGroupSpec(3)), wanted) == {}


def decided(*pods: Pod, minimum: int) -> Plan | Wait:
    room = make_room(make_node("n1"), make_node("n2"), pods=list(pods))
    view = gangs.standing("default/web", make_group("web", minimum), pods, room, OURS)
    return next(iter(plan(room, [view])))


def test_a_rolling_update_of_a_deployment_goes_on_while_old_pods_run() -> None:
    """Volcano issue 4739: the new ReplicaSet starts with one pod, and its gang of four would never be complete."""
    old = [make_pod(f"old-{i}", group="web", node="n1", phase="Running") for i in range(3)]
    outcome = decided(*old, make_pod("new-0", group="web"), minimum=4)
    assert isinstance(outcome, Plan)


def test_pods_on_their_way_out_are_no_company_for_those_that_replace_them() -> None:
    old = [make_pod(f"old-{i}", group="web", node="n1", phase="Running", deleted=True) for i in range(3)]
    outcome = decided(*old, make_pod("new-0", group="web"), minimum=4)
    assert isinstance(outcome, Wait)
    assert outcome.message == "1 of at least 4 pods exist"
