"""Random histories in virtual time with what the state machine of `machine` lacks, one extension at a time.

What is true is kept by `virtual.Town`. Once nothing happens any more: what waits has a reason, a fresh core that is told the
same decides nothing else; what was promised with exact estimates started by then; once all work is gone, nothing is
remembered of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from random import Random
from typing import Any

import msgspec
import numpy as np

from atoll.dispatcher.core import Dispatch, Evict, Pass, Refused, Resize
from atoll.dispatcher.core.backlog.binding import Binding
from atoll.model.decision import Phase
from atoll.model.together import Together
from atoll.model.vector import Vector
from tests.dispatcher.builders import BACKFILL, GPU, BindingBuilder, make_binding, make_queue
from tests.dispatcher.virtual import Town

CPU = "cpu"
EXTENSIONS = (
    "plain",
    "joint",
    "slow",
    "refused",
    "siblings",
    "borrowed",
    "leaders",
    "resources",
    "divided",
    "moved",
    "together",
    "all",
)
QUEUES = ("q1", "q2", "q3")
LIMIT = 16
"""GPUs of all of them together."""


def nodes(*gpus: int) -> list[Vector]:
    return [{GPU: n, CPU: 2 * n, "pods": 100} for n in gpus]


class History:
    def __init__(self, extension: str, seed: int) -> None:
        self.extension, self.random = extension, Random(f"{extension} {seed}")
        self.serial = 0
        #: GPUs that each queue is guaranteed, and may use
        self.guarantees, self.limits = dict.fromkeys(QUEUES, 0), dict.fromkeys(QUEUES, LIMIT)
        self.town = Town(
            *self.queues(),
            refuses=lambda _: self.has("refused") and self.random.random() < 0.1,
            check=True,
            m=nodes(4, 4),
            n=nodes(8),
            o=nodes(2, 2, 2),
        )
        self.judged = 0
        #: gang group of which a part runs -> since when
        self.broken: dict[str, float] = {}
        self.over_since = math.inf
        #: UID -> the queue for which it was dispatched last: that pays for it until its pods have gone
        self.pays: dict[str, str] = {}

    def has(self, extension: str) -> bool:
        if self.extension == "moved":
            # What waits goes to other queues while others are evicted.
            return extension in ("moved", "slow", "siblings", "borrowed")
        if self.extension == "together":
            return extension in ("together", "refused", "leaders", "joint")
        if extension == "together":
            return False
        return self.extension in (extension, "all")

    def queues(self) -> list[Any]:
        """Below one that has 16 of 22 GPUs; with guarantees and limits, what each deserves, and heads that are kept room
        for.
        """
        found = [make_queue("p", gpu=LIMIT, view={"guarantee": {GPU: 12}})]
        for name in QUEUES:
            view: dict[str, Any] = {"parent": "p"}
            if self.has("siblings"):
                self.guarantees[name] = self.random.choice([0, 2, 4])
                self.limits[name] = self.random.choice([6, 10, LIMIT])
                view["guarantee"] = {GPU: self.guarantees[name]}
            if self.has("borrowed") or self.has("resources"):
                view["deserved"] = {GPU: 5, CPU: 10} if self.has("resources") else {GPU: 5}
            if self.has("borrowed"):
                view |= self.random.choice([dict(BACKFILL), {"patience": 30.0}, {}])
            found.append(make_queue(name, gpu=self.limits[name], view=view))
        return found

    def work(self) -> BindingBuilder:
        random = self.random
        self.serial += 1
        # What is guaranteed to one is there for it although two have more work than all may use.
        queues = QUEUES if not self.has("siblings") or random.random() < 0.1 else QUEUES[:2]
        builder = make_binding(f"b{self.serial}").queue(random.choice(queues)).priority(random.choice([0, 0, 1, 2]))
        pods = random.randint(1, 4)
        if self.has("divided") and random.random() < 0.4:
            return builder.tasks(random.choice([4, 6, 10]), gpu=1).divided(most=3)
        if self.has("joint") and random.random() < 0.6:
            return builder.tasks(pods, gpu=random.choice([1, 2])).tasks(random.randint(1, 2), gpu=random.choice([2, 4]))
        requests = {CPU: random.choice([1, 2, 6])} if self.has("resources") else {}
        gpu = random.choice([0, 1, 2]) if requests else random.choice([1, 1, 2, 4])
        return builder.tasks(pods, gpu=gpu, minimum=random.randint(1, pods), requests=requests)

    def step(self) -> None:
        random, town = self.random, self.town
        there = [uid for uid, view in town.views.items() if not view.finished]
        act = random.choice(["submit", "submit", "delete", "scale", "ready", "lead", "rest"])
        if act == "submit" and self.has("together") and len(there) < 12 and random.random() < 0.7:
            self.submit_group()
        elif act == "submit" and len(there) < 14:
            grace = random.choice([2.0, 30.0, 600.0]) if self.has("slow") else None
            town.submit(self.work(), random.choice([20.0, 200.0, 2000.0]), grace=grace, estimate=random.random() < 0.8)
        elif act == "delete" and there:
            town.delete(random.choice(there))
        elif act == "scale" and there:
            self.scale(random.choice(there))
        elif act == "ready" and random.random() < 0.2:
            name = random.choice(sorted(town.sites))
            town.ready(name, ready=not town.sites[name].ready)
        elif act == "lead" and self.has("leaders"):
            town.lead_anew()
        if self.extension == "moved" and random.random() < 0.3:
            self.move()
        town.run(random.choice([0.1, 1.0, 10.0, 60.0]))
        self.judge()

    def submit_group(self) -> None:
        """Some that start together, of which not all may have to."""
        random, builders = self.random, [self.work() for _ in range(self.random.randint(2, 3))]
        wish = Together(f"group-{self.serial}", random.randint(2, len(builders)), domains=random.choice([0, 1, 2]))
        for builder in builders:
            self.town.submit(builder.gang(together=wish), random.choice([20.0, 200.0]))

    def move(self) -> None:
        """What waits goes to another queue; else it is as it was."""
        waiting = [uid for uid, view in self.town.views.items() if not view.parts and not view.finished]
        if waiting:
            view = self.town.views[self.random.choice(waiting)]
            assert view.gang is not None
            gang = msgspec.structs.replace(view.gang, queue=self.random.choice(QUEUES))
            self.town.see(dataclasses.replace(view, gang=gang, generation=view.generation + 1))

    def scale(self, uid: str) -> None:
        """A user wants another number of pods; of one with two tasks that must start together he wants none other."""
        view = self.town.views[uid]
        assert view.gang is not None
        if len(view.gang.tasks) > 1 or (view.divided and not self.has("divided")):
            return
        task, pods = view.gang.tasks[0], self.random.randint(1, 4)
        builder = make_binding(view.name).queue(view.gang.queue).priority(view.gang.priority)
        requests = {CPU: task.requests[CPU]} if CPU in task.requests else {}
        self.town.edit(
            uid,
            builder.tasks(pods, gpu=task.requests.get(GPU, 0), minimum=self.random.randint(1, pods), requests=requests),
        )

    # -- what must hold ------------------------------------------------------------------------------------------------

    def judge_groups(self) -> None:
        """None of a gang group has pods while too few of it run and others of it wait; and all in so many members."""
        groups: dict[Together, list[Binding]] = {}
        for binding in self.town.core.bindings.values():
            if binding.wish is not None and binding.wish.together is not None:
                groups.setdefault(binding.wish.together, []).append(binding)
        broken = set()
        for wish, bindings in groups.items():
            runs = [each for each in bindings if each.phase in (Phase.RESERVING, Phase.DISPATCHED, Phase.FINISHED)]
            used = {name for each in bindings if each.phase.charged for name in each.parts}
            assert not wish.domains or len(used) <= wish.domains, f"{wish.group} uses {used}"
            started = [each for each in bindings if each.phase is Phase.DISPATCHED]
            if started and len(runs) < len(bindings) and len(runs) < wish.least:
                broken.add(wish.group)
        self.broken = {name: self.broken.get(name, self.town.time) for name in broken}
        assert all(self.town.time <= since + 5.0 for since in self.broken.values()), f"{self.broken} run in part"

    def judge(self) -> None:
        town = self.town
        self.judge_groups()
        for name, site in town.sites.items():
            assert (site.free().free >= 0).all(), f"{name} runs more than it has"
        held = self.held()
        # What is guaranteed to one and not used is lent to none beside it.
        over = [name for name in QUEUES if held[name] > self.limits[name]]
        over += ["p"] if sum(max(held[name], self.guarantees[name]) for name in QUEUES) > LIMIT else []
        # A shrink of which the write is refused is decided again at once.
        self.over_since = min(self.over_since, town.time) if over else math.inf
        assert town.time <= self.over_since + 5.0 * self.has("refused"), f"{over}: beyond their limits"
        for time, command in town.commands[self.judged :]:
            if isinstance(command, Evict):
                evictions = Counter(t for t, _, room_for in town.jobs[command.uid].evictions if room_for)
                assert evictions.total() <= 3, f"{command.name} went {evictions.total()} times for others at {time}"
        self.judged = len(town.commands)

    def held(self) -> Counter[str]:
        """Queue -> GPUs on which its pods are, but for those that have not gone in time: their quota is returned."""
        held = Counter[str]()
        for site in self.town.sites.values():
            for uid, (gang, pods) in site.pods.items():
                phase, wish = self.town.core.bindings[uid].phase, self.town.views[uid].gang
                if phase is Phase.LEAVING:
                    continue
                assert wish is not None
                if not phase.going:
                    self.pays[uid] = wish.queue
                queue = self.pays.get(uid, wish.queue)
                held[queue] += sum(gang.tasks[task].requests.get(GPU, 0) * count for task, _, count in pods)
        return held

    def rest(self) -> None:
        """All members are back and nobody acts: what is decided comes to rest, and a fresh core decides no more."""
        town = self.town
        for name, site in town.sites.items():
            if not site.ready:
                town.ready(name)
        for job in town.jobs.values():
            job.runs = math.inf
        for _ in range(40):
            before = len(town.commands)
            town.run(300)
            if not any(isinstance(c, Dispatch | Evict | Resize) for _, c in town.commands[before:]):
                break
        else:
            raise AssertionError("decisions do not come to rest")
        old = town.core
        town.lead_anew()
        fresh = town.core.handle(Pass(town.now))
        told = [(type(c).__name__, c.name) for c in fresh if isinstance(c, Dispatch)]
        assert not told, f"a fresh core decides otherwise: {told}; {[old.verdict(c.uid) for c in fresh]}"
        for command in fresh:
            town.handle(Refused(command.uid, command.decision.epoch, command.generation))

    def end(self) -> None:
        """All work goes: nothing is remembered of it."""
        town = self.town
        for uid in list(town.views):
            town.delete(uid)
        town.run(4000)
        core = town.core
        assert core.next_deadline is None, "it waits for something"
        assert not core.state.failures.known, "members are avoided for shapes that nobody has"
        assert core.reservations.empty
        assert not core.claims
        assert not core.state.leaving
        assert not core.claims.any_cleared
        assert not any(member.inflight or member.expected for member in core.members.by_name.values())
        for node in core.tree.queues.values():
            assert not any(node.used.values()), f"{node.name} is charged for nothing"
        for name, site in town.sites.items():
            member = core.members.by_name[name]
            assert np.array_equal(member.nodes.free, site.free().free[: len(member.nodes.free)]), f"{name}: free"


def play(extension: str, seed: int, steps: int = 60) -> int:
    """How many workloads started, some of them again."""
    history = History(extension, seed)
    for _ in range(steps):
        history.step()
    started = sum(len(job.starts) for job in history.town.jobs.values())
    history.rest()
    history.end()
    return started
