"""Queues and nodes full of work, to try out who would go for whom."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shapes
from atoll.dispatcher.core.events import QueueView
from atoll.dispatcher.core.preemption.candidates import Victim
from atoll.dispatcher.core.preemption.search import Plan, plan
from atoll.dispatcher.core.preemption.trial import Claimant
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.core.settings import PreemptionSettings
from atoll.fit import Placement
from atoll.fit.sizes import Spare
from atoll.model.gang import Gang, Task
from tests.dispatcher.builders import GPU, make_binding, make_capacity, make_cluster

NOW = 10_000.0
Where = dict[str, dict[int, int]]


class Stage:
    """A tree and members in which things run; every plan is checked to leave no trace."""

    settings = PreemptionSettings()

    def __init__(self, *queues: QueueView, **members: Any) -> None:
        """Members as free amounts per node that are left beside what runs."""
        self.tree, self.members, self.shapes = Tree(), Members(), Shapes()
        self.tree.set_queues(queues)
        self.size = members
        self.victims: dict[str, Victim] = {}
        for name, free in members.items():
            self.members.set_view(name, make_cluster(name).cluster)
            self.members.set_root(name, "", make_capacity(name, free).capacity)
        self.members.refresh()

    def run(self, uid: str, queue: str, where: Where, *, gpu: int = 1, **more: Any) -> Stage:
        """`where`: member -> node -> pods, each of so many GPUs; taken from what is free."""
        leaf = self.tree.queue(queue)
        pod = {GPU: gpu, "pods": 1}
        parts = {m: [(node, pod, count) for node, count in nodes.items()] for m, nodes in where.items()}
        count = sum(n for nodes in where.values() for n in nodes.values())
        amount = {GPU: gpu * count, "pods": count}
        surplus = [
            Spare({name: each * n for name, each in pod.items()}, {m: [(node, pod, n)]})
            for m, nodes in more.pop("surplus", {}).items()
            for node, n in nodes.items()
        ]
        victim = Victim(uid, leaf, more.pop("priority", 0), more.pop("started", 0.0), amount, parts, surplus, **more)
        self.victims[uid] = victim
        self.move(victim, 1)
        return self

    def move(self, victim: Victim, times: int) -> None:
        self.tree.charge(victim.leaf, victim.amount, {}, times)
        if times < 0:
            self.tree.wait(victim.leaf, victim.amount)
        for name, pods in victim.parts.items():
            member = self.members.by_name[name]
            for node, request, count in pods:
                gang = Gang("", [Task("worker", count, count, request)], count)
                self.members.table.take(member, gang, Placement([(0, node, count)], [count]), times)

    def stop(self, uid: str) -> Victim:
        victim = self.victims.pop(uid)
        self.move(victim, -1)
        return victim

    def claimant(
        self, queue: str, pods: int = 1, *, gpu: int = 1, priority: int = 0, uid: str = "c", **more: Any
    ) -> Claimant:
        builder = make_binding(uid).queue(queue).priority(priority).tasks(pods, gpu=gpu, minimum=more.get("minimum"))
        if "hard" in more:
            builder = builder.hard(more["hard"])
        if more.get("divided"):
            builder = builder.divided()
        for count, size in more.get("tasks", ()):
            builder = builder.tasks(count, gpu=size)
        view = builder.build()
        assert view.gang is not None
        shape = self.shapes.take(view, queue)
        self.members.enroll(shape)
        leaf = self.tree.queue(queue)
        self.tree.wait(leaf, shape.request)
        return Claimant(uid, leaf, priority, shape)

    def plan(self, claimant: Claimant, **more: Any) -> Plan | None:
        before = self.trace()
        outcome = plan(
            claimant, self.victims.values(), self.tree, self.members, now=NOW, settings=self.settings, **more
        )
        assert self.trace() == before, "something is not as it was"
        self.tree.check()
        self.members.table.check()
        backwards = plan(
            claimant,
            list(self.victims.values())[::-1],
            self.tree,
            self.members,
            now=NOW,
            settings=self.settings,
            **more,
        )
        assert losses(backwards) == losses(outcome), "the order of the input decided"
        return outcome

    def trace(self) -> Any:
        queues = {name: copy.deepcopy((n.used, n.used_in, n.wanted)) for name, n in self.tree.queues.items()}
        nodes = {name: (id(m.nodes), m.nodes.free.tobytes()) for name, m in self.members.by_name.items()}
        return queues, nodes, self.members.table.counts.tobytes()

    def claim(self, queue: str, pods: int = 1, **more: Any) -> Any:
        """What goes; None where no eviction would help."""
        return losses(self.plan(self.claimant(queue, pods, **more)))


def losses(outcome: Plan | None) -> Any:
    if outcome is None:
        return None
    return {
        each.uid: "all" if each.surplus is None else sum(step.amount["pods"] for step in each.surplus)
        for each in outcome.losses
    }


def queue(
    name: str, deserved: int | None = None, *, guarantee: int = 0, limit: int | None = None, **more: Any
) -> QueueView:
    return QueueView(
        name,
        {} if limit is None else {GPU: limit},
        deserved={} if deserved is None else {GPU: deserved},
        guarantee={GPU: guarantee} if guarantee else {},
        **more,
    )


either_way = pytest.mark.usefixtures("tries")
