"""A node attaches so many volumes of a driver: kube-scheduler's NodeVolumeLimits."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.objects import Pod, PodClaim
from atoll.agent.scheduler.core import Bind, Explain, MemberCore
from atoll.agent.scheduler.core.events import (
    ClaimSet,
    CsiNodeGone,
    CsiNodeSet,
    PodGone,
    PodGroupSet,
    PodSet,
    StorageClassSet,
    VolumeSet,
    Whose,
)
from atoll.agent.scheduler.notices import refusals
from atoll.agent.volumes import decode_claim, decode_class, decode_csi_node, decode_volume
from atoll.fit.constraints import Attachments
from atoll.fit.placement import UNBOUNDED
from atoll.model.gang import Task
from tests.agent.builders import make_group, make_node, make_pod
from tests.agent.telling import core_of, of, settle

DISK = "disk.example.com"


def limit(core: MemberCore, node: str, most: int, driver: str = DISK) -> None:
    spec = {"drivers": [{"name": driver, "nodeID": node, "allocatable": {"count": most}}]}
    core.handle(CsiNodeSet(decode_csi_node(orjson.dumps({"metadata": {"name": node}, "spec": spec}))))


def claim(core: MemberCore, name: str, handle: str = "", driver: str = DISK) -> None:
    """One with a volume; without a handle, one of a class that makes it for the first pod."""
    meta: dict[str, Any] = {"name": name, "namespace": "default"}
    if handle:
        meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        csi = {"driver": driver, "volumeHandle": handle}
        volume = {"metadata": {"name": f"v-{name}"}, "spec": {"csi": csi}}
        core.handle(VolumeSet(decode_volume(orjson.dumps(volume))))
        spec = {"volumeName": f"v-{name}"}
    else:
        made_of = {"metadata": {"name": "c"}, "provisioner": driver, "volumeBindingMode": "WaitForFirstConsumer"}
        core.handle(StorageClassSet(decode_class(orjson.dumps(made_of))))
        spec = {"storageClassName": "c"}
    core.handle(ClaimSet(decode_claim(orjson.dumps({"metadata": meta, "spec": spec}))))


def mounting(core: MemberCore, name: str, *claims: str, **more: Any) -> Pod:
    pod = msgspec.structs.replace(make_pod(name, **more), claims=tuple(PodClaim(each) for each in claims))
    core.handle(PodSet(pod, Whose.OURS))
    return pod


def bound(commands: list[Any]) -> dict[str, str]:
    return {key.removeprefix("default/"): node for each in of(Bind, commands) for key, _, node in each.pods}


def test_a_pod_waits_until_a_node_can_attach_its_volume() -> None:
    """1. The node attaches one, and has it: a second pod waits with that reason. 2. The first goes: it is bound."""
    core = core_of()
    limit(core, "n", 1)
    claim(core, "a", "h1")
    claim(core, "b", "h2")
    mounting(core, "first", "a", node="n")
    mounting(core, "second", "b")
    commands = settle(core)
    assert of(Bind, commands) == []
    [pod] = core.waits["pod/default/second"].gang.waiting
    assert refusals(core.room, pod) == "0/1 nodes are available: 1 node(s) exceed max volume count."
    assert [each.gang for each in of(Explain, commands)] == ["pod/default/second"]
    core.handle(PodGone("default/first"))
    assert bound(settle(core)) == {"second": "n"}


def test_a_gang_is_spread_as_nodes_can_attach_its_volumes() -> None:
    """Four pods of one volume each, nodes of two, also of volumes that are still to be made."""
    core = core_of(make_node("n0"), make_node("n1"))
    core.handle(PodGroupSet(make_group("g", 4)))
    for node in ("n0", "n1"):
        limit(core, node, 2)
    for number in range(4):
        claim(core, f"c{number}", f"h{number}" if number % 2 else "")
        mounting(core, f"p{number}", f"c{number}", group="g", index=number)
    found = bound(settle(core))
    assert sorted(found.values()) == ["n0", "n0", "n1", "n1"]


def test_gangs_of_one_pass_count_each_other() -> None:
    core = core_of()
    limit(core, "n", 1)
    for name in ("a", "b"):
        claim(core, name, f"h-{name}")
        mounting(core, name, name)
    assert len(bound(settle(core))) == 1


def test_a_volume_that_two_pods_of_a_node_have_is_attached_once() -> None:
    core = core_of()
    limit(core, "n", 2)
    claim(core, "shared", "h")
    claim(core, "own", "h2")
    for number in range(3):
        mounting(core, f"there{number}", "shared", node="n")
    mounting(core, "p", "own")
    assert bound(settle(core)) == {"p": "n"}


def test_a_volume_that_the_node_has_for_another_pod_needs_no_room() -> None:
    """1. The node has attached all that it can: a pod of one of these volumes is bound there. 2. One that needs another
    volume as well waits.
    """
    core = core_of()
    limit(core, "n", 2)
    for name in ("a", "b", "c"):
        claim(core, name, f"h-{name}")
    mounting(core, "there", "a", "b", node="n")
    mounting(core, "same", "a", "b")
    mounting(core, "more", "a", "c")
    assert bound(settle(core)) == {"same": "n"}
    core.handle(PodGone("default/there"))
    core.handle(PodGone("default/same"))
    assert bound(settle(core)) == {"more": "n"}


def test_pods_of_a_gang_that_share_a_volume_attach_it_once_to_each_node() -> None:
    core = core_of()
    limit(core, "n", 1)
    claim(core, "data", "h")
    core.handle(PodGroupSet(make_group("g", 3)))
    for number in range(3):
        mounting(core, f"p{number}", "data", group="g", index=number)
    assert len(bound(settle(core))) == 3


def test_other_drivers_have_no_limit_and_one_that_goes_binds_what_waits() -> None:
    core = core_of()
    limit(core, "n", 0)
    claim(core, "other", "h", "other.example.com")
    claim(core, "limited", "h")
    mounting(core, "free", "other")
    mounting(core, "waits", "limited")
    assert bound(settle(core)) == {"free": "n"}
    core.handle(CsiNodeGone("n"))
    assert bound(settle(core)) == {"waits": "n"}


@given(
    st.dictionaries(st.integers(0, 3), st.integers(-1, 6)), st.integers(1, 3), st.lists(st.integers(0, 3), max_size=6)
)
def test_a_node_holds_a_pod_as_long_as_all_of_its_volumes_can_be_attached(
    left: dict[int, int], each: int, taken: list[int]
) -> None:
    """Against counting one by one; a copy stays as it was."""
    made = Attachments(lambda: ({node: {DISK: count} for node, count in left.items()}, {}))
    task = Task("t", 1, 1, {}, attach={DISK: each})
    before = made.copy()
    for node in taken:
        made.take(task, node, 1)
    for which, gone in ((made, taken), (before, [])):
        room = which.room(task, 4)
        assert room is not None
        for node in range(4):
            if node not in left:
                assert room[node] == UNBOUNDED
                continue
            free, pods = left[node] - each * gone.count(node), 0
            while free >= each:
                free, pods = free - each, pods + 1
            assert room[node] == pods
    assert made.room(Task("t", 1, 1, {}), 4) is None
