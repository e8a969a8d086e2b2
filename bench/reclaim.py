"""Plans of which running work must go, in one process: a full federation and claimants that need a large part of it."""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shapes
from atoll.dispatcher.core.events import BindingView, CapacityView, ClusterView, NodeClass, QueueView
from atoll.dispatcher.core.preemption.candidates import Victim
from atoll.dispatcher.core.preemption.search import Plan, plan
from atoll.dispatcher.core.preemption.trial import Claimant
from atoll.dispatcher.core.quota.tree import Tree
from atoll.fit import Placement, place
from atoll.model.decision import Decision
from atoll.model.gang import Gang, Task
from atoll.model.vector import Vector, scaled
from bench.report import Progress, Report, progress, run, sizes

NAME = "reclaim"
DESCRIPTION = "Which running workloads must go so that one that waits fits: in process, one core, processor time."
BOUND = "none: a decision that is made rarely; the targets are 1 s for a plan and 10 ms for a refusal"
FULL: dict[str, Any] = {"nodes": 500, "members": 4, "claims": [512, 2000], "repeats": 21}
QUICK: dict[str, Any] = {"nodes": 40, "members": 4, "claims": [32], "repeats": 3}
GPU = "nvidia.com/gpu"
_GPUS = 8
_POD = {"cpu": 4_000, "memory": 32 << 30, GPU: 1, "pods": 1}
_RACK = 16
_SEED = 20_260_101
_NOW = 1_800_000_000.0


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--nodes", type=int, help="nodes of 8 GPUs, over all members")
    parser.add_argument("--members", type=int, help="member clusters")
    parser.add_argument("--claims", type=int, nargs="+", help="GPUs that claimants need")
    parser.add_argument("--repeats", type=int, help="refusals and plans that are timed")


class Scenery:
    """Every GPU runs a job of two queues that borrow; a third is entitled to half of all."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.tree, self.members, self.shapes = Tree(), Members(), Shapes()
        rng = random.Random(_SEED)
        total = params["nodes"] * _GPUS
        self.tree.set_queues([
            QueueView("owner", {}, deserved={GPU: total // 2}),
            QueueView("one", {}, deserved={GPU: total // 8}),
            QueueView("two", {}, deserved={GPU: total // 8}),
        ])  # fmt: skip
        for number in range(params["members"]):
            nodes = params["nodes"] * (number + 1) // params["members"] - params["nodes"] * number // params["members"]
            name = f"m{number}"
            self.members.set_view(name, ClusterView(name))
            self.members.set_root(name, f"{name}-root", _full(name, nodes))
        self.members.refresh()
        slots = [
            (member.name, node)
            for member in self.members.table.order
            for node in range(len(member.nodes))
            for _ in range(_GPUS)
        ]
        order = list(range(len(slots)))
        rng.shuffle(order)
        self.victims = []
        for number, (name, node) in enumerate(slots):
            leaf = self.tree.queue("one" if order[number] % 2 else "two")
            started = _NOW - 100 - order[number]
            victim = Victim(f"u{order[number]:05}", leaf, order[number] % 3, started, _POD, {name: [(node, _POD, 1)]})
            self.victims.append(victim)
            self.tree.charge(leaf, _POD, {name: _POD})

    def claimant(
        self, pods: int, gpus: int, *, queue: str = "owner", divided: bool = False, priority: int = 1
    ) -> Claimant:
        """A gang of equal pods; its room is kept from now on."""
        requests: Vector = {**scaled(_POD, gpus), "pods": 1}
        gang = Gang(queue, [Task("worker", pods, pods, requests)], pods, priority=priority)
        view = BindingView("claimant", "default", "claimant", 1, 0, gang, Decision(), "", divided=divided)
        shape = self.shapes.take(view, queue)
        self.members.enroll(shape)
        leaf = self.tree.queue(queue)
        self.tree.wait(leaf, shape.request)
        return Claimant("claimant", leaf, priority, shape)

    def forget(self, claimant: Claimant) -> None:
        """It waits no more."""
        self.tree.wait(claimant.leaf, claimant.shape.request, -1)
        self.members.release(claimant.shape)
        self.shapes.drop(claimant.shape)

    def plan(self, claimant: Claimant) -> tuple[float, Any]:
        """(processor seconds, outcome)."""
        began = time.process_time()
        outcome = plan(claimant, self.victims, self.tree, self.members, now=_NOW)
        return time.process_time() - began, outcome

    def reducible(self, claimant: Claimant, gone: tuple[str, ...]) -> list[str]:
        """Victims without which the claimant would fit all the same, found by placing it."""
        by_uid = {victim.uid: victim for victim in self.victims}
        nodes = {member.name: member.nodes.copy() for member in self.members.table.order}
        for uid in gone:
            _count(nodes, by_uid[uid], 1)
        gang, found = claimant.shape.least, []
        (task,) = gang.tasks
        for uid in gone:
            _count(nodes, by_uid[uid], -1)
            if claimant.shape.divided:
                fits = sum(int(each.room(task.requests).sum()) for each in nodes.values()) >= task.replicas
            else:
                fits = any(isinstance(place(each, gang), Placement) for each in nodes.values())
            if fits:
                found.append(uid)
            _count(nodes, by_uid[uid], 1)
        return found


def _count(nodes: dict[str, Any], victim: Victim, times: int) -> None:
    for name, pods in victim.parts.items():
        for node, requests, count in pods:
            nodes[name].free[:, node] += nodes[name].column(requests) * (count * times)


def _full(name: str, nodes: int) -> CapacityView:
    racks = -(-nodes // _RACK)
    domains = [(f"{name}-root", 2, "", ""), *((f"{name}-r{rack}", 1, "", f"{name}-root") for rack in range(racks))]
    left = {"cpu": 32_000, "memory": 256 << 30, GPU: 0, "pods": 100}
    classes = tuple(
        NodeClass(f"{name}-r{rack}", {}, (), min(_RACK, nodes - rack * _RACK), left) for rack in range(racks)
    )
    return CapacityView(name, f"{name}-root", 1, tuple(domains), classes)


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    report = Report(NAME, {**params, "bound": BOUND})
    scene = Scenery(params)
    per_member = params["nodes"] * _GPUS // params["members"]
    for gpus in params["claims"]:
        for each in (1, _GPUS):
            case = f"{gpus} GPUs in pods of {each}"
            told(case)
            claimant = scene.claimant(gpus // each, each, divided=gpus > per_member)
            seconds = []
            for _ in range(min(params["repeats"], 3)):
                spent, outcome = scene.plan(claimant)
                seconds.append(spent)
            if not isinstance(outcome, Plan):
                raise RuntimeError(f"{case}: no plan")  # noqa: TRY004
            report.add_latency(f"plan for {case}", seconds)
            report.add(f"plan for {case}", "victims", len(outcome.victims), "1")
            report.add(f"plan for {case}", "reducible", len(scene.reducible(claimant, outcome.victims)), "1")
            scene.forget(claimant)
    hopeless = {
        "more than any member has": scene.claimant(per_member + 1, 1),
        "pods larger than a node": scene.claimant(2, _GPUS + 1),
        "beyond its entitlement": scene.claimant(params["nodes"] * _GPUS // 2 + 1, 1, divided=True),
        "a queue that is over its own": scene.claimant(1, 1, queue="one", priority=0),
    }
    for case, claimant in hopeless.items():
        told(case)
        scene.plan(claimant)
        outcomes = [scene.plan(claimant) for _ in range(params["repeats"])]
        if any(isinstance(outcome, Plan) for _, outcome in outcomes):
            raise RuntimeError(f"{case}: a plan where there can be none")
        report.add_latency(f"refusal: {case}", [spent for spent, _ in outcomes])
    return report


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
