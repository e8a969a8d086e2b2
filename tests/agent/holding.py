"""Parts, pods and racks for the tests of reservations."""

from __future__ import annotations

import msgspec

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.gangs import Standing, by_name, standing
from atoll.agent.scheduler.core.holds import Hold, Holds
from atoll.agent.scheduler.core.room import Room
from atoll.model import keys
from atoll.model.gang import Gang, Task, TopologyWish
from tests.agent.builders import make_domain, make_group, make_node, make_pod, make_room

GPU = "nvidia.com/gpu"


def part(replicas: int = 4, *, minimum: int | None = None, gpu: int = 4, tier: int | None = None, **more: int) -> Gang:
    """A gang of task `w`; `more` are further tasks with as many pods of one CPU."""
    tasks = [Task("w", replicas, replicas, {"cpu": 1000, GPU: gpu, "pods": 1})]
    tasks += [Task(name, count, count, {"cpu": 1000, "pods": 1}) for name, count in more.items()]
    wish = TopologyWish(highest_tier_allowed=tier) if tier is not None else None
    return Gang("q", tasks, replicas + sum(more.values()) if minimum is None else minimum, network_topology=wish)


def pods(count: int, *, epoch: int = 1, uid: str = "b", task: str = "w", gpu: int = 4, start: int = 0) -> list[Pod]:
    """Pods of the binding's epoch, in PodGroup `uid`."""
    return [
        _stamped(make_pod(f"{uid}-{task}-{i}", group=uid, task=task, index=i, gpu=gpu, binding=uid), epoch)
        for i in range(start, start + count)
    ]


def _stamped(pod: Pod, epoch: int) -> Pod:
    annotations = {**pod.metadata.annotations, keys.EPOCH: str(epoch)}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def view(room: Room, minimum: int, waiting: list[Pod], uid: str = "b") -> Standing:
    return standing(f"default/{uid}", make_group(uid, minimum), waiting, room, by_name("atoll"))


def racks(domains: bool = True) -> Room:
    """Two racks of two nodes with 8 GPUs each."""
    names = [["r0n0", "r0n1"], ["r1n0", "r1n1"]]
    made = [make_domain(f"rack{r}", 1, each) for r, each in enumerate(names)]
    return make_room(*(make_node(name) for each in names for name in each), domains=made if domains else [])


def free(room: Room) -> dict[str, int]:
    return {node.metadata.name: room.amounts.free(node.metadata.name)[GPU] for node in room.fleet.ready()}


def held(holds: Holds, uid: str = "b") -> Hold:
    hold = holds.get(uid)
    assert hold is not None
    return hold


def assert_reserved(holds: Holds, count: int, uid: str = "b") -> dict[str, int]:
    hold = held(holds, uid)
    assert hold.slots.total() == count, hold
    return hold.nodes


def assert_refused(holds: Holds, *words: str, uid: str = "b") -> Hold:
    hold = held(holds, uid)
    assert not hold.slots, hold
    for word in words:
        assert word in hold.message
    return hold
