"""Parts of cards in a member: memory in bytes counts by the cards of each node."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import orjson
import pytest

from atoll.agent.devices import KoordinatorDevice, decode_koordinator
from atoll.agent.objects import Pod, decode_pod
from atoll.agent.scheduler.binder import Binder
from atoll.agent.scheduler.core.events import KoordinatorSet, NodeSet, NumaSet, PodGone, PodSet, Whose
from atoll.agent.scheduler.core.gangs import task_of
from atoll.fit.constraints import Cards
from atoll.kube.transport import ApiServer
from atoll.model import gpu_partitions, joint, keys, koordinator
from tests.agent.builders import make_node, make_pod, make_room, make_zones
from tests.agent.telling import Placing
from tests.fit.koordinator_devices import GENERAL, SAME, TOTAL, fixture


def pod(name: str, **limits: str) -> Pod:
    return make_pod(name, spec={"containers": [{"name": "c", "resources": {"limits": limits}}]})


class Core(Placing):
    """Pods come by name and limits."""

    def come(self, name: str, **limits: str) -> None:
        self.handle(PodSet(pod(name, **limits), Whose.OURS))

    def cards_of(self, name: str) -> tuple[int, tuple[int, ...]]:
        return self.core.room.gpus.cards.of(f"default/{name}")


CARD: dict[str, Any] = {"atoll.sh/gpu-milli": "1000"}


def test_memory_is_a_larger_part_of_a_smaller_card() -> None:
    member = Core()
    member.handle(NodeSet(make_node("small", labels={"nvidia.com/gpu.memory": "16384"}, **CARD)))
    member.handle(NodeSet(make_node("large", labels={"nvidia.com/gpu.memory": "81920"}, **CARD)))
    member.handle(NodeSet(make_node("unknown", **CARD)))
    for at in range(4):
        member.come(f"p{at}", **{"atoll.sh/gpu-memory": "40Gi"})
    assert member.bound == {"default/p0": "large", "default/p1": "large"}, "40Gi are half of 80Gi, and more than 16Gi"
    assert member.cards_of("p0") == (500, (0,))
    member.handle(PodGone("default/p0"))
    assert member.bound["default/p2"] == "large", "it waited for that"


def test_two_sizes_share_a_card_until_it_is_full() -> None:
    member = Core()
    member.handle(NodeSet(make_node("n", labels={"nvidia.com/gpu.memory": "16384"}, **CARD)))
    member.come("memory", **{"atoll.sh/gpu-memory": "8Gi"})
    member.come("milli", **{"atoll.sh/gpu-milli": "500"})
    member.come("more", **{"atoll.sh/gpu-milli": "1"})
    assert [member.cards_of(name)[1] for name in ("memory", "milli", "more")] == [(0,), (0,), ()]


KOORD: dict[str, Any] = {"koordinator.sh/gpu-core": "200", "koordinator.sh/gpu-memory-ratio": "200"}
HALF = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}


def device(name: str, *minors: int, ill: tuple[int, ...] = ()) -> KoordinatorDevice:
    """GPUs of 80Gi."""
    there = [
        {"type": "gpu", "minor": at, "health": at not in ill, "resources": {"koordinator.sh/gpu-memory": "80Gi"}}
        for at in minors
    ]
    return decode_koordinator(orjson.dumps({"metadata": {"name": name}, "spec": {"devices": there}}))


def test_pods_get_gpus_that_koordinator_reports() -> None:
    member = Core()
    member.handle(NodeSet(make_node("n", **KOORD)))
    member.come("early", **HALF)
    assert not member.bound, "nothing tells the GPUs of the node one by one"
    member.handle(KoordinatorSet(device("n", 0, 1)))
    member.come("more", **HALF)
    member.come("whole", **{"koordinator.sh/gpu": "100"})
    assert [member.cards_of(name) for name in ("early", "more")] == [(500, (0,)), (500, (0,))]
    assert "default/whole" not in member.bound, "no node offers koordinator.sh/gpu"
    member.come("ours", **CARD)
    assert member.cards_of("ours") == (1000, (1,))
    notes = member.core.room.gpus.notes_of(pod("early", **HALF), "n")
    entry = orjson.loads(notes["scheduling.koordinator.sh/device-allocated"])["gpu"][0]
    assert entry["minor"] == 0
    assert entry["resources"]["koordinator.sh/gpu-memory"] == str(40 * 2**30)
    assert notes["atoll.sh/gpu-cards"] == "0"


def test_a_gpu_that_is_ill_is_not_given() -> None:
    member = Core()
    member.handle(NodeSet(make_node("n", **KOORD)), KoordinatorSet(device("n", 0, 1, ill=(0,))))
    member.come("a", **CARD)
    member.come("b", **CARD)
    assert member.cards_of("a") == (1000, (1,))
    assert member.cards_of("b") == (0, ())
    member.handle(KoordinatorSet(device("n", 0, 1)))
    assert member.cards_of("b") == (1000, (0,))


@pytest.mark.parametrize("limits", [HALF, {"nvidia.com/gpu": "1"}], ids=["a part", "whole, by the vendor's name"])
def test_gpus_that_koordinators_scheduler_gave_are_taken(limits: dict[str, str]) -> None:
    member = Core()
    given = decode_pod(
        orjson.dumps(
            {
                "metadata": {
                    "name": "theirs",
                    "namespace": "default",
                    "uid": "u",
                    "annotations": {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":1}]}'},
                },
                "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": limits}}]},
            }
        )
    )
    member.handle(NodeSet(make_node("n", **KOORD)), KoordinatorSet(device("n", 0, 1)), PodSet(given, Whose.OTHERS))
    member.come("a", **CARD)
    member.come("b", **CARD)
    assert member.cards_of("a") == (1000, (0,))
    assert member.cards_of("b") == (0, ())


class Written:
    """An API server that keeps the patches and bindings that it gets."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    async def merge_patch(self, _resource: object, _name: str, patch: dict[str, Any], _namespace: str) -> None:
        self.bodies.append(patch)

    async def create_in(self, _resource: object, _name: str, _namespace: str, _sub: str, body: dict[str, Any]) -> None:
        self.bodies.append(body)


@pytest.mark.parametrize("held", [False, True], ids=["bound by us", "bound by kube-scheduler"])
async def test_cards_are_written_with_the_binding_or_with_the_gate(held: bool) -> None:
    gate = {"schedulingGates": [{"name": keys.GANG_GATE}]} if held else {}
    waiting = make_pod("p", spec={"containers": [{"name": "c", "resources": {"limits": CARD}}], **gate})
    room = make_room(make_node("n", **KOORD))
    room.koordinator_changed("n", koordinator.devices(device("n", 0, 1, ill=(0,)).spec))
    room.assume(waiting, "n")
    api = Written()
    assert waiting.held == held
    assert await Binder(cast(ApiServer, api), room, lambda _: None).bind([(waiting, "n")])
    [body] = api.bodies
    assert body["metadata"]["annotations"]["atoll.sh/gpu-cards"] == "1"
    assert koordinator.minors(body["metadata"]["annotations"][keys.KOORDINATOR_DEVICES]) == (1,)


VENDOR: dict[str, Any] = {"nvidia.com/gpu": "2"}
BOTH: dict[str, Any] = {"nvidia.com/gpu": "8", "koordinator.sh/rdma": "400"}
NICS: dict[str, Any] = {"koordinator.sh/rdma": "100"}


def wishing(name: str, notes: dict[str, str], **limits: str) -> Pod:
    made = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": notes},
        "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    return decode_pod(orjson.dumps(made))


def test_whole_gpus_by_the_vendors_name_and_parts_are_of_different_gpus() -> None:
    member = Core()
    member.handle(NodeSet(make_node("n", **KOORD, **VENDOR)), KoordinatorSet(device("n", 0, 1)))
    member.come("part", **HALF)
    member.come("whole", **{"nvidia.com/gpu": "1"})
    assert [member.cards_of(name) for name in ("part", "whole")] == [(500, (0,)), (1000, (1,))]
    member.come("late", **{"nvidia.com/gpu": "1"})
    assert "default/late" not in member.bound, "one half of GPU 0 is taken"
    assert member.core.room.amounts.free("n")["nvidia.com/gpu"] == 0
    assert member.core.room.amounts.free("n")["atoll.sh/gpu-milli"] == 500
    notes = member.core.room.gpus.notes_of(pod("whole", **{"nvidia.com/gpu": "1"}), "n")
    assert koordinator.minors(notes["scheduling.koordinator.sh/device-allocated"]) == (1,)
    member.handle(PodGone("default/part"))
    assert member.cards_of("late") == (1000, (0,))


def test_whole_gpus_of_pods_that_were_there_count_once_koordinator_reports() -> None:
    member = Core()
    member.handle(NodeSet(make_node("n", **KOORD, **VENDOR)))
    member.come("whole", **{"nvidia.com/gpu": "1"})
    assert member.bound == {"default/whole": "n"}
    member.handle(KoordinatorSet(device("n", 0, 1)))
    member.come("a", **HALF)
    member.come("b", **HALF)
    member.come("c", **HALF)
    assert [member.cards_of(name)[1] for name in ("whole", "a", "b", "c")] == [(0,), (1,), (1,), ()]


def test_the_worked_example_of_koordinator() -> None:
    """Two GPUs and a virtual function under their root, written as koordlet reads it."""
    member = Core()
    there = decode_koordinator(orjson.dumps({"metadata": {"name": "n"}, "spec": {"devices": fixture()}}))
    member.handle(NodeSet(make_node("n", **BOTH)), NodeSet(make_node("other", **BOTH)), KoordinatorSet(there))
    notes = {joint.JOINT: orjson.dumps(SAME).decode(), joint.HINT: orjson.dumps(GENERAL).decode()}
    asked = {"nvidia.com/gpu": "2", "koordinator.sh/rdma": "1"}
    for at in range(5):
        member.handle(PodSet(wishing(f"p{at}", notes, **asked), Whose.OURS))
    assert sorted(member.bound) == [f"default/p{at}" for at in range(4)], "each root has two GPUs"
    given = orjson.loads(member.core.room.gpus.notes_of(wishing("p0", notes, **asked), "n")[keys.KOORDINATOR_DEVICES])
    whole = {f"koordinator.sh/gpu-{name}": each for name, each in (("core", "100"), ("memory-ratio", "100"))}
    whole["koordinator.sh/gpu-memory"] = str(TOTAL)
    assert given == {
        "gpu": [{"minor": 0, "resources": whole}, {"minor": 1, "resources": whole}],
        "rdma": [
            {"minor": 1, "id": "0000:1f:00.0", "resources": {"koordinator.sh/rdma": "1"},
             "extension": {"vfs": [{"busID": "0000:1f:00.2"}]}}
        ],
    }  # fmt: skip
    member.handle(PodGone("default/p2"))
    assert member.cards_of("p4") == (1000, (4, 5))


def hopper(name: str, **metadata: Any) -> KoordinatorDevice:
    about = {"metadata": {"name": name, **metadata}, "spec": {"devices": fixture()}}
    return decode_koordinator(orjson.dumps(about))


HONOR = {gpu_partitions.MODEL: "H800", gpu_partitions.POLICY: "Honor"}


def test_a_node_that_honours_partitions_gives_whole_gpus_by_them() -> None:
    """Three GPUs are in no partition of its table; once the label is gone any three do."""
    member = Core()
    member.handle(NodeSet(make_node("n", labels=HONOR)), KoordinatorSet(hopper("n")))
    for name, number in (("one", "1"), ("two", "2"), ("three", "3"), ("four", "4")):
        member.come(name, **{"nvidia.com/gpu": number})
    assert [member.cards_of(name)[1] for name in ("one", "two", "three", "four")] == [(0,), (2, 3), (), (4, 5, 6, 7)]
    member.handle(PodGone("default/four"))
    assert "default/three" not in member.bound
    member.handle(NodeSet(make_node("n")))
    assert member.cards_of("three") == (1000, (4, 5, 6))


def test_the_table_of_a_device_comes_before_the_labels_of_its_node() -> None:
    table = {gpu_partitions.TABLE: '{"3": [{"minors": [0, 2, 4]}]}'}
    member = Core()
    member.handle(NodeSet(make_node("n", labels=HONOR)), KoordinatorSet(hopper("n", annotations=table)))
    member.come("three", **{"nvidia.com/gpu": "3"})
    assert member.cards_of("three") == (1000, (0, 2, 4))
    member.come("any", **{"nvidia.com/gpu": "2"})
    assert member.cards_of("any") == (1000, (6, 7)), "the Device has no policy: what is in no table goes by topology"
    honoured = hopper("n", annotations=table, labels={gpu_partitions.POLICY: "Honor"})
    member.handle(KoordinatorSet(honoured))
    member.come("more", **{"nvidia.com/gpu": "2"})
    assert "default/more" not in member.bound
    member.handle(KoordinatorSet(hopper("n")))
    assert "default/more" not in member.bound, "the built-in table: its free GPUs 1, 3 and 5 are no pair"
    member.handle(PodGone("default/three"))
    assert member.cards_of("more") == (1000, (4, 5))


def test_gpus_of_a_pod_that_honours_no_partition_are_guessed() -> None:
    """Another scheduler bound it and wrote nothing: its three GPUs are taken all the same."""
    member = Core()
    theirs = msgspec.structs.replace(pod("theirs", **{"nvidia.com/gpu": "3"}), node="n")
    member.handle(NodeSet(make_node("n", labels=HONOR)), KoordinatorSet(hopper("n")), PodSet(theirs, Whose.OTHERS))
    assert member.cards_of("theirs") == (1000, (0, 1, 2))


def bound(name: str, cpu: int, gpus: int) -> Pod:
    """With CPUs of its own."""
    amounts = {"cpu": str(cpu), "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    return make_pod(name, spec={"containers": [{"resources": {"requests": amounts, "limits": amounts}}]})


def test_gpus_are_of_the_numa_node_of_the_cpus() -> None:
    """1. NUMA node 0 has two CPUs left: the pod's come from node 1. 2. The next one needs two. 3. A third waits for CPUs
    of one NUMA node, though as many are free. 4. Once the first has gone it gets GPUs beside them.
    """
    member = Core()
    member.handle(NodeSet(make_node("n", cpu="16")), KoordinatorSet(hopper("n")))
    member.handle(NumaSet(make_zones("single-numa-node", cpus=(2, 8)), zones=True))
    for name, cpu in (("p0", 6), ("p1", 2), ("p2", 3)):
        member.handle(PodSet(bound(name, cpu, 2), Whose.OURS))
    assert [member.cards_of(name)[1] for name in ("p0", "p1", "p2")] == [(4, 5), (0, 1), ()]
    task, room = task_of(bound("p2", 3, 2), None), member.core.room
    assert room.arrays.nodes().room_for(task).tolist() == [0]
    without = room.nodes_but(["default/p0"])
    assert without.room_for(task).tolist() == [2]
    [there] = [each for each in without.exact if isinstance(each, Cards)]
    there.take(task, 0, 1)
    assert there.free[0].tolist() == [0, 0, 1000, 1000, 0, 0, 1000, 1000]
    member.handle(PodGone("default/p0"))
    assert member.cards_of("p2") == (1000, (4, 5))


def test_a_reservation_keeps_gpus_beside_its_cpus() -> None:
    room = make_room(make_node("n", cpu="16"))
    room.koordinator_changed("n", koordinator.devices({"devices": fixture()}))
    room.numa_changed("n", make_zones("single-numa-node", cpus=(5, 8)), zones=True)
    task = task_of(bound("p", 4, 2), None)
    room.reserve("n", task, 2)
    assert room.gpus.cards.free("n") == [0, 0, 1000, 1000, 0, 0, 1000, 1000]
    room.unreserve("n", task, 2)
    assert room.gpus.cards.free("n") == [1000] * 8
    assert room.arrays.nodes().room_for(task).tolist() == [3]


def test_devices_that_were_given_before_are_taken_after_a_restart() -> None:
    member = Core()
    there = decode_koordinator(orjson.dumps({"metadata": {"name": "n"}, "spec": {"devices": fixture()}}))
    given = '{"gpu":[{"minor":0}],"rdma":[{"minor":1,"resources":{"koordinator.sh/rdma":"100"}}]}'
    asked = {"nvidia.com/gpu": "1", "koordinator.sh/rdma": "100"}
    old = wishing("old", {keys.KOORDINATOR_DEVICES: given}, **asked)
    member.handle(
        PodSet(msgspec.structs.replace(old, node="n"), Whose.OURS),
        NodeSet(make_node("n", **BOTH)),
        KoordinatorSet(there),
    )
    member.handle(PodSet(wishing("new", {joint.JOINT: orjson.dumps(SAME).decode()}, **asked), Whose.OURS))
    assert member.cards_of("new") == (1000, (2,))
    assert [each.minor for each in member.core.room.gpus.koordinator.of("default/new")] == [2]


def test_a_nic_alone_is_given_on_nodes_that_koordinator_reports() -> None:
    member = Core()
    there = decode_koordinator(orjson.dumps({"metadata": {"name": "n"}, "spec": {"devices": fixture()[:1]}}))
    member.handle(NodeSet(make_node("n", **NICS)))
    for at in range(3):
        member.handle(PodSet(wishing(f"p{at}", {}, **{"koordinator.sh/rdma": "50"}), Whose.OURS))
    assert not member.bound, "nothing tells its NICs one by one"
    member.handle(KoordinatorSet(there))
    assert len(member.bound) == 2
    [part] = member.core.room.gpus.koordinator.of("default/p0")
    assert (part.kind, part.minor, part.units) == ("rdma", 1, 50)


def test_a_reservation_keeps_joint_devices() -> None:
    room = make_room(make_node("n", **BOTH))
    there = {"devices": fixture()}
    room.koordinator_changed("n", koordinator.devices(there))
    task = task_of(
        wishing(
            "p", {joint.JOINT: orjson.dumps(SAME).decode()}, **{"nvidia.com/gpu": "2", "koordinator.sh/rdma": "100"}
        ),
        None,
    )
    room.reserve("n", task, 3)
    assert room.gpus.cards.free("n") == [0] * 6 + [1000] * 2
    assert room.arrays.nodes().room_for(task).tolist() == [1]
    room.unreserve("n", task, 2)
    assert room.arrays.nodes().room_for(task).tolist() == [3]


def test_pods_that_would_leave_give_joint_devices_back() -> None:
    member = Core()
    there = decode_koordinator(orjson.dumps({"metadata": {"name": "n"}, "spec": {"devices": fixture()}}))
    member.handle(NodeSet(make_node("n", **BOTH)), KoordinatorSet(there))
    asked = {"nvidia.com/gpu": "4", "koordinator.sh/rdma": "100"}
    pods = [wishing(f"p{at}", {joint.JOINT: orjson.dumps(SAME).decode()}, **asked) for at in range(2)]
    member.handle(*(PodSet(each, Whose.OURS) for each in pods))
    task, room = task_of(pods[0], None), member.core.room
    assert room.arrays.nodes().room_for(task).tolist() == [0]
    assert room.nodes_but(["default/p0"]).room_for(task).tolist() == [1]
    assert room.arrays.nodes().room_for(task).tolist() == [0]
