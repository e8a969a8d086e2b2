"""Random histories of holds, pods and failing nodes: no node is ever over-filled, nothing stays taken."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.holds import Holds
from atoll.agent.scheduler.core.planner import Plan, plan
from atoll.model import keys
from atoll.model.gang import Gang
from tests.agent.builders import make_node
from tests.agent.holding import GPU, free, part, pods, racks, view

# -- random histories ------------------------------------------------------------------------------------------------


class Histories(RuleBasedStateMachine):
    """Holds, pods, releases, expiry and failing nodes in any order."""

    bindings = Bundle("bindings")

    def __init__(self) -> None:
        super().__init__()
        self.room = racks()
        self.holds = Holds(self.room)
        self.whole = {
            node.metadata.name: self.room.amounts.free(node.metadata.name) for node in self.room.fleet.ready()
        }
        self.now = 0.0
        self.gangs: dict[str, Gang] = {}
        self.epochs: dict[str, int] = {}
        #: pods that are assumed or bound
        self.pods: dict[str, list[Pod]] = {}

    @rule(target=bindings, replicas=st.integers(1, 6), floor=st.integers(0, 6), gpu=st.integers(1, 5))
    def ask(self, replicas: int, floor: int, gpu: int) -> str:
        uid = f"b{len(self.epochs)}"
        self.epochs[uid] = 1
        self.gangs[uid] = part(replicas, minimum=min(floor, replicas), gpu=gpu)
        self._ask(uid, 1)
        return uid

    @rule(uid=bindings, newer=st.integers(-1, 1))
    def ask_again(self, uid: str, newer: int) -> None:
        epoch = self.epochs[uid] + newer
        if newer < 1 or not self.pods.get(uid):
            self.epochs[uid] = max(epoch, self.epochs[uid])
            self._ask(uid, epoch)

    def _ask(self, uid: str, epoch: int) -> None:
        self.holds.hold(uid, epoch, self.gangs[uid], uid, "default", self.now)

    @rule(uid=bindings, count=st.integers(1, 6), stale=st.booleans())
    def pods_come(self, uid: str, count: int, stale: bool) -> None:
        gang, present = self.gangs[uid], self.pods.setdefault(uid, [])
        gpu = gang.tasks[0].requests[GPU]
        epoch = self.epochs[uid] - stale
        fresh = pods(min(count, gang.replicas - len(present)), epoch=epoch, uid=uid, gpu=gpu, start=len(present))
        standing = view(self.room, gang.min_available, [*present, *fresh], uid)
        for outcome in plan(self.room, [standing] if fresh else [], holds=self.holds):
            if isinstance(outcome, Plan):
                present += [pod for pod, _ in outcome.nodes]
                assert len(present) >= gang.min_available
        present.sort(key=lambda pod: int(pod.metadata.labels[keys.TASK_INDEX]))

    @rule(uid=bindings)
    def pods_end(self, uid: str) -> None:
        for pod in self.pods.pop(uid, []):
            self.room.pod_changed(pod, None)

    @rule(uid=consumes(bindings))
    def release(self, uid: str) -> None:
        self.pods_end(uid)
        self.holds.release(uid)

    @rule(seconds=st.sampled_from([1.0, 40.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.holds.expire(self.now)

    @rule(name=st.sampled_from(["r0n0", "r1n1"]))
    def a_node_fails_and_comes_back(self, name: str) -> None:
        self.room.node_changed(name, make_node(name, ready=False))
        self.holds.check()
        self.room.node_changed(name, make_node(name))
        self.holds.retry()

    @invariant()
    def no_node_is_over_filled(self) -> None:
        assert all(min(self.room.amounts.free(name).values()) >= 0 for name in self.whole)

    @invariant()
    def the_room_has_the_holds_and_the_pods_and_nothing_else(self) -> None:
        taken = Counter({name: 0 for name in self.whole})
        for uid, gang in self.gangs.items():
            gpu = gang.tasks[0].requests[GPU]
            for pod in self.pods.get(uid, []):
                taken[self.room.node_of(pod)] += gpu
            hold = self.holds.get(uid)
            for node, count in (hold.nodes if hold is not None else {}).items():
                taken[node] += count * gpu
        assert {name: self.whole[name][GPU] - amount for name, amount in taken.items()} == free(self.room)

    def teardown(self) -> None:
        for uid in self.epochs:
            self.pods_end(uid)
            self.holds.release(uid)
        assert {name: self.room.amounts.free(name) for name in self.whole} == self.whole


TestHistories = Histories.TestCase
