"""A volume that one node at a time may attach is used where it is attached already, if there is room."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from atoll.agent.objects import Pod, PodClaim
from atoll.agent.scheduler.core import Bind, MemberCore
from atoll.agent.scheduler.core.events import ClaimSet, PodGone, PodSet, VolumeSet, Whose
from atoll.agent.volumes import decode_claim, decode_volume
from tests.agent.builders import make_node, make_pod
from tests.agent.telling import core_of, of, settle


def member(mode: str) -> MemberCore:
    """Two nodes, of which `b` runs a pod that mounts the claim; `a` has less room, so that it would be taken first."""
    core = core_of(make_node("a", cpu="2"), make_node("b"))
    meta = {"name": "data", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    core.handle(VolumeSet(decode_volume(orjson.dumps({"metadata": {"name": "v"}}))))
    spec = {"volumeName": "v", "accessModes": [mode]}
    core.handle(ClaimSet(decode_claim(orjson.dumps({"metadata": meta, "spec": spec}))))
    core.handle(PodSet(mounting("first", node="b", cpu="1"), Whose.OURS))
    return core


def mounting(name: str, **more: str) -> Pod:
    return msgspec.structs.replace(make_pod(name, **more), claims=(PodClaim("data"),))  # type: ignore[arg-type]


def chosen(core: MemberCore, pod: Pod) -> str:
    core.handle(PodSet(pod, Whose.OURS))
    [bind] = of(Bind, settle(core))
    return bind.pods[0][2]


@pytest.mark.parametrize(
    ("mode", "node"),
    [
        pytest.param("ReadWriteOnce", "b", id="of one node: where it is"),
        pytest.param("ReadWriteMany", "a", id="of many nodes: wherever"),
    ],
)
def test_a_pod_goes_where_its_volume_is(mode: str, node: str) -> None:
    assert chosen(member(mode), mounting("second")) == node


def test_it_goes_elsewhere_where_there_is_no_room() -> None:
    assert chosen(member("ReadWriteOnce"), mounting("second", cpu="2")) == "b"
    core = member("ReadWriteOnce")
    core.handle(PodSet(make_pod("full", node="b", cpu="7"), Whose.OURS))
    assert chosen(core, mounting("second", cpu="2")) == "a"


def test_it_goes_anywhere_once_nobody_uses_the_volume() -> None:
    core = member("ReadWriteOnce")
    core.handle(PodGone("default/first"))
    assert chosen(core, mounting("second")) == "a"
