"""Preemption inside a member, in one process: which pods of a lower priority leave for a gang with a hard topology."""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import orjson

from atoll.agent.objects import HyperNode, PodGroup, PodGroupSpec, decode_node, decode_pod
from atoll.agent.scheduler.core import Evict, MemberCore, Nominate, Pass
from atoll.agent.scheduler.core.events import HyperNodeSet, NodeSet, PodGroupSet, PodSet, Whose
from atoll.local import layout
from atoll.model import keys
from atoll.model.objects import Meta
from bench.place import member
from bench.report import Progress, Report, progress, run, sizes

NAME = "preempt"
DESCRIPTION = "Which pods leave for a gang of a higher priority with a hard topology: in process, processor time."
BOUND = "none: a decision that is made rarely; the target is 200 ms for a pass with 2,000 nodes and 700 victims"
FULL: dict[str, Any] = {"nodes": 2000, "victims": 700, "repeats": 5}
QUICK: dict[str, Any] = {"nodes": 512, "victims": 300, "repeats": 1}
_GPU = "nvidia.com/gpu"
_RACK, _BLOCK = 16, 256
_SEED = 20_260_101


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--nodes", type=int, help="of 8 GPUs, all in use; racks of 16, blocks of 256")
    parser.add_argument("--victims", type=int, help="pods of a lower priority: a block, racks, and single nodes")
    parser.add_argument("--repeats", type=int, help="passes that are timed")


def lower(params: dict[str, Any]) -> set[int]:
    """Numbers of the nodes whose pod may go: the first block; then, of what is left, half as whole racks."""
    rng = random.Random(_SEED)
    found = set(range(_BLOCK))
    racks = list(range(_BLOCK // _RACK, params["nodes"] // _RACK))
    rng.shuffle(racks)
    for rack in racks[: (params["victims"] - _BLOCK) // 2 // _RACK]:
        found |= set(range(rack * _RACK, (rack + 1) * _RACK))
    others = [node for node in range(params["nodes"]) if node not in found]
    return found | set(rng.sample(others, params["victims"] - len(found)))


class Scenery:
    """Every node runs one pod that takes all of its GPUs; some of these have a lower priority than the gang."""

    def __init__(self, params: dict[str, Any]) -> None:
        shape = member(params["nodes"])
        names, low = shape.node_names(), lower(params)
        offer = {"cpu": "64", "memory": "512Gi", _GPU: "8", "pods": "110"}
        status = {"allocatable": offer, "conditions": [{"type": "Ready", "status": "True"}]}
        self._events: list[Any] = []
        for number, name in enumerate(names):
            body = {"metadata": {"name": name, "uid": name}, "status": status}
            self._events.append(NodeSet(decode_node(orjson.dumps(body))))
            running = _pod(f"on-{name}", 0 if number in low else 20, node=name)
            self._events.append(PodSet(decode_pod(orjson.dumps(running)), Whose.OURS))
        for domain in layout.hypernode_objects(shape):
            made = HyperNode(metadata=Meta(name=domain["metadata"]["name"]), spec=domain["spec"])
            self._events.append(HyperNodeSet(made))

    def once(self, pods: int, tier: int) -> tuple[float, int, int]:
        """(processor seconds of the pass, pods that are evicted, pods whose node is nominated) for such a gang."""
        core = MemberCore()
        for event in self._events:
            core.handle(event)
        # What the member looks like is known before the gang comes.
        core.handle(Pass(0.0))
        meta = Meta(name="gang", namespace="default", uid="gang", creation_timestamp="2026-01-01T00:00:00Z")
        wish = {"mode": "hard", "highestTierAllowed": tier}
        core.handle(PodGroupSet(PodGroup(metadata=meta, spec=PodGroupSpec(pods, {}, wish))))
        for number in range(pods):
            core.handle(PodSet(decode_pod(orjson.dumps(_pod(f"gang-{number}", 10, group="gang"))), Whose.OURS))
        core.room.arrays.nodes()
        began = time.process_time()
        commands = core.handle(Pass(1.0))
        spent = time.process_time() - began
        victims = sum(len(each.pods) for each in commands if isinstance(each, Evict))
        return spent, victims, sum(len(each.pods) for each in commands if isinstance(each, Nominate))


def _pod(name: str, priority: int, *, node: str = "", group: str = "") -> dict[str, Any]:
    requests = {"cpu": "32", "memory": "256Gi", _GPU: "8"}
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": {keys.GROUP_NAME: group, keys.TASK_SPEC: "worker"} if group else {},
        },
        "spec": {
            "nodeName": node, "schedulerName": "atoll", "priority": priority,
            "containers": [{"resources": {"requests": requests}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }  # fmt: skip


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    report = Report(NAME, {**params, "bound": BOUND})
    scene = Scenery(params)
    cases = {
        "a rack": (_RACK, 1, _RACK),
        "half of a block": (_BLOCK // 2, 2, _BLOCK // 2),
        "every victim, anywhere": (params["victims"], 3, params["victims"]),
        "refusal: more than a rack has": (_RACK + 1, 1, 0),
        "refusal: more than all victims": (params["victims"] + 1, 3, 0),
    }
    for case, (pods, tier, expected) in cases.items():
        told(case)
        found = [scene.once(pods, tier) for _ in range(params["repeats"])]
        if any((evicted, kept) != (expected, expected) for _, evicted, kept in found):
            raise RuntimeError(f"{case}: {found[0][1]} pods are evicted and {found[0][2]} nominated, not {expected}")
        report.add_latency(case, [spent for spent, _, _ in found])
        report.add(case, "victims", expected, "1")
    return report


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
