"""Random histories of queues, members and workloads against the core, judged by a model that knows the truth.

The model is the API server and the members: it applies or refuses patches, binds pods on real nodes, and tells the core with
delay. What the core may know is what it was told; what must hold is judged on what is true.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from atoll.dispatcher.core import (
    BindingGone,
    BindingSet,
    BindingView,
    Command,
    Dispatch,
    Dispatcher,
    Event,
    Evict,
    MemberAnswer,
    Pass,
    Refused,
    Resize,
    Strategy,
)
from atoll.dispatcher.core.settings import CoreSettings
from atoll.dispatcher.explain import verdicts
from atoll.fit import Placement, place
from atoll.model.gang import Gang
from atoll.model.timestamps import to_seconds
from atoll.model.verdict import Reason
from tests.dispatcher.builders import GPU, START, make_binding, make_capacity, make_cluster, make_queue, written

GROW_TIMEOUT = CoreSettings().progress.grow
NODES = {"m1": (4, 4), "m2": (2, 6), "m3": (8,)}
_KEPT = (Reason.WOULD_DELAY, Reason.ASKING_MEMBERS, Reason.AWAITING_VICTIMS)
QUEUES = ("q1", "q2", "q3")
PODS = st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4]))
pick = st.integers(0, 10**6)


class Federation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = Dispatcher()
        self.log: list[Event] = []
        self.answers: list[list[Command]] = []
        self.now = START
        self.serial = 0
        #: as the API server has them
        self.views: dict[str, BindingView] = {}
        self.pending: list[Command] = []
        self.limits: dict[str, tuple[int | None, bool]] = {}
        self.ready: dict[str, bool] = {}
        #: member -> binding UID -> pods per node: what really runs
        self.pods: dict[str, dict[str, Counter[int]]] = {name: {} for name in NODES}
        #: member -> newest generation whose figures were computed
        self.generation = dict.fromkeys(NODES, 0)
        #: binding UID -> generation that contains its placement
        self.contained: dict[str, int] = {}
        #: pairs that were taken back: the core may avoid them
        self.avoided: set[tuple[str, str]] = set()
        #: UID of what is being evicted -> pods that it had
        self.taken_back: dict[str, int] = {}
        #: UID -> pods that it may have: those of the last decision, or fewer if its user asked for fewer since
        self.size: dict[str, int] = {}
        #: UID -> when it was last written that it grows
        self.grown_at: dict[str, float] = {}
        #: UIDs of those whose users asked for fewer pods than the member has by now: that room is free at once
        self.lowered: set[str] = set()

    # -- telling -----------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> list[Command]:
        self.log.append(event)
        commands = self.core.handle(event)
        self.answers.append(commands)
        self.core.check()
        return commands

    def see(self, view: BindingView) -> None:
        self.views[view.uid] = view
        self.tell(BindingSet(view))

    def live(self) -> list[BindingView]:
        """Decided, written, and not over."""
        return [v for v in self.views.values() if not v.suspended and not v.finished]

    def evicting(self) -> list[BindingView]:
        return [
            v
            for v in self.views.values()
            if v.suspended and not v.finished and v.decision.phase == "Evicting" and v.released < v.generation
        ]

    def under_way(self, kind: type[Command]) -> dict[str, Command]:
        return {c.uid: c for c in self.pending if isinstance(c, kind) and c.uid in self.views and not self.stale(c)}

    def stale(self, command: Command) -> bool:
        view = self.views[command.uid]
        guard = command.only_tells or command.generation == view.generation
        return not (command.epoch == view.epoch and guard)

    def sizes(self) -> dict[str, tuple[str, int]]:
        """(member, pods) of everything that decisions let run, the written ones and those that will be."""
        found = {v.uid: (v.parts[0][0], self.size[v.uid]) for v in self.live()}
        for kind in (Dispatch, Resize):
            for uid, command in self.under_way(kind).items():
                assert isinstance(command, Dispatch | Resize)
                if not self.views[uid].finished:
                    found[uid] = (command.parts[0].cluster, command.parts[0].pods)
        return found

    def gave_up(self, uid: str) -> bool:
        """Whether a member had its time to bind the pods by which something grew: what is not there has no claim."""
        decision = self.views[uid].decision
        if decision.phase != "Dispatched" or not decision.deadline:
            return False
        return max(to_seconds(decision.deadline), self.grown_at.get(uid, 0.0) + GROW_TIMEOUT) <= self.now

    def charged(self, queue: str) -> int:
        """What the queue pays for in truth: written decisions and those that will be."""
        sizes = {uid: pods for uid, (_, pods) in self.sizes().items()}
        sizes |= {v.uid: self.taken_back[v.uid] for v in self.evicting()}
        return sum(_gpus(self.views[uid]) * n for uid, n in sizes.items() if _gang(self.views[uid]).queue == queue)

    def spoken_for(self, member: str) -> int:
        """GPUs of the member that decisions have promised or pods hold."""
        promised = {uid: pods * _gpus(self.views[uid]) for uid, (name, pods) in self.sizes().items() if name == member}
        held = {uid: nodes.total() for uid, nodes in self.pods[member].items() if uid in self.views}
        held = {uid: gpus for uid, gpus in held.items() if uid not in self.lowered or uid not in promised}
        promised = {uid: gpus for uid, gpus in promised.items() if uid not in held or not self.gave_up(uid)}
        return sum(max(promised.get(uid, 0), held.get(uid, 0)) for uid in promised.keys() | held.keys())

    def free(self, member: str) -> list[int]:
        free = list(NODES[member])
        for uid, nodes in self.pods[member].items():
            for node, gpus in nodes.items():
                assert uid
                free[node] -= gpus
        return free

    @initialize(limits=st.tuples(*[st.sampled_from([None, 4, 8, 12])] * len(QUEUES)))
    def begin(self, limits: tuple[int | None, ...]) -> None:
        for name, limit in zip(QUEUES, limits, strict=True):
            self.set_queue(name, limit, 0, 1, False)
        for name in NODES:
            self.set_cluster(name, 1)
            self.publish(name)

    # -- what people and members do ----------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(QUEUES),
        limit=st.sampled_from([None, 2, 4, 8, 12]),
        priority=st.integers(0, 1),
        is_open=st.integers(0, 4),
        strict=st.booleans(),
    )
    def set_queue(self, name: str, limit: int | None, priority: int, is_open: int, strict: bool) -> None:
        self.limits[name] = (limit, is_open > 0)
        view = {"strategy": Strategy.FIFO if strict else Strategy.TRAVERSE}
        limits = {} if limit is None else {"gpu": limit}
        self.tell(make_queue(name, priority=priority, is_open=is_open > 0, view=view, **limits))

    @rule(name=st.sampled_from(sorted(NODES)), ready=st.integers(0, 3))
    def set_cluster(self, name: str, ready: int) -> None:
        self.ready[name] = ready > 0
        self.tell(make_cluster(name, ready=ready > 0))

    @rule(name=st.sampled_from(sorted(NODES)))
    def publish(self, name: str) -> None:
        self.generation[name] += 1
        self.tell(make_capacity(name, self.free(name), generation=self.generation[name]))

    @rule(queue=st.sampled_from(QUEUES), pods=PODS, least=st.integers(1, 4), priority=st.integers(0, 2))
    def submit(self, queue: str, pods: tuple[int, int], least: int, priority: int) -> None:
        self.serial += 1
        builder = make_binding(f"b{self.serial}").queue(queue).priority(priority)
        builder = builder.tasks(pods[0], gpu=pods[1], minimum=min(least, pods[0]))
        self.see(builder.submitted(f"2026-01-01T00:{self.serial // 60:02d}:{self.serial % 60:02d}Z").build())

    @precondition(lambda self: self.views)
    @rule(which=pick, pods=PODS)
    def edit(self, which: int, pods: tuple[int, int]) -> None:
        """A user scales a workload that waits, perhaps while its dispatch is under way."""
        waiting = [v for v in self.views.values() if v.suspended and not v.finished and v not in self.evicting()]
        if waiting:
            view = waiting[which % len(waiting)]
            gang = make_binding(view.name).queue(_gang(view).queue).tasks(pods[0], gpu=pods[1]).build().gang
            assert gang is not None
            gang = type(gang)(gang.queue, gang.tasks, gang.min_available, _gang(view).priority, _gang(view).submitted)
            self.see(
                dataclasses.replace(
                    view, gang=gang, generation=view.generation + 1, released=view.released and view.generation + 1
                )
            )

    @precondition(lambda self: self.pending)
    @rule()
    def write_all(self) -> None:
        while self.pending:
            self.write(1)

    @precondition(lambda self: self.pending)
    @rule(refused=st.integers(0, 5))
    def write(self, refused: int) -> None:
        """The oldest patch arrives at the API server."""
        command = self.pending.pop(0)
        view = self.views.get(command.uid)
        if view is None or self.stale(command) or refused == 0:
            self.tell(Refused(command.uid, command.decision.epoch, command.generation))
        else:
            if isinstance(command, Evict):
                self.taken_back[view.uid] = self.size[view.uid]
            if isinstance(command, Dispatch | Resize):
                self.size[view.uid] = min(command.parts[0].pods, _gang(view).replicas)
            if command.decision.reason is Reason.GROWN:
                self.grown_at[view.uid] = self.now
            self.see(written(view, command))

    @precondition(lambda self: self.live())
    @rule(which=pick, most=st.integers(1, 4), least=st.integers(1, 4))
    def scale(self, which: int, most: int, least: int) -> None:
        """A user scales what runs, perhaps while a decision on it is under way."""
        view = self.live()[which % len(self.live())]
        gang = _gang(view)
        task = msgspec.structs.replace(gang.tasks[0], replicas=most, min_available=min(least, most))
        gang = msgspec.structs.replace(gang, tasks=[task], min_available=min(least, most))
        if most < self.size[view.uid]:
            self.size[view.uid] = most
            self.lowered.add(view.uid)
        self.see(dataclasses.replace(view, gang=gang, generation=view.generation + 1))

    @precondition(lambda self: self.live())
    @rule(which=pick)
    def bind(self, which: int) -> None:
        """A member puts as many pods on its nodes as the part has, at least the minimum; what is too much goes."""
        view = self.live()[which % len(self.live())]
        member = view.parts[0][0]
        wanted, each = self.size[view.uid], _gpus(view)
        nodes = Counter(self.pods[member].get(view.uid, Counter()))
        present = nodes.total() // each
        while present > wanted:
            nodes[max(node for node in nodes if nodes[node])] -= each
            present -= 1
        self.lowered.discard(view.uid)
        free = self.free(member)
        while present < wanted:
            node = max(range(len(free)), key=lambda n: (free[n] >= each, -free[n]))
            if free[node] < each:
                break
            free[node] -= each
            nodes[node] += each
            present += 1
        if present >= min(_gang(view).min_available, wanted):
            self.pods[member][view.uid] = nodes
            self.contained[view.uid] = self.generation[member] + 1

    @precondition(lambda self: self.live())
    @rule(which=pick)
    def report(self, which: int) -> None:
        view = self.live()[which % len(self.live())]
        member = view.parts[0][0]
        if view.uid in self.pods[member]:
            pods = self.pods[member][view.uid].total() // _gpus(view)
            self.see(dataclasses.replace(view, placed={member: (self.contained[view.uid], pods)}))

    @rule()
    def catch_up(self) -> None:
        """Everything is written, answered, bound, reported and published."""
        while self.pending:
            self.write(1)
        for which in range(len(self.asked())):
            self.answer(which, 1)
        for which in range(len(self.live())):
            self.bind(which)
            self.report(which)
        for name in NODES:
            self.publish(name)

    @precondition(lambda self: self.live())
    @rule(which=pick)
    def finish(self, which: int) -> None:
        view = self.live()[which % len(self.live())]
        self.pods[view.parts[0][0]].pop(view.uid, None)
        self.see(dataclasses.replace(view, finished=True))

    @precondition(lambda self: self.evicting())
    @rule(which=pick)
    def let_go(self, which: int) -> None:
        view = self.evicting()[which % len(self.evicting())]
        for pods in self.pods.values():
            pods.pop(view.uid, None)
        self.see(dataclasses.replace(view, released=view.generation, placed={}))

    def asked(self) -> list[BindingView]:
        """Members are asked about these."""
        return [v for v in self.views.values() if v.suspended and not v.finished and v.decision.question is not None]

    @precondition(lambda self: self.asked())
    @rule(which=pick, granted=st.integers(0, 3))
    def answer(self, which: int, granted: int) -> None:
        """A member says whether there would be room; it knows more than its figures say."""
        view = self.asked()[which % len(self.asked())]
        assert view.decision.question is not None
        said = {name: MemberAnswer(granted > 0, requested=4, available=3) for name in view.decision.question.parts}
        self.see(dataclasses.replace(view, reserved=said))

    @precondition(lambda self: self.views)
    @rule(which=pick)
    def delete(self, which: int) -> None:
        view = list(self.views.values())[which % len(self.views)]
        for pods in self.pods.values():
            pods.pop(view.uid, None)
        del self.views[view.uid]
        self.tell(BindingGone(view.uid))

    @precondition(lambda self: self.views)
    @rule(which=pick)
    def repeat_what_is_known(self, which: int) -> None:
        """A watch event that carries nothing new, perhaps behind a decision."""
        self.see(list(self.views.values())[which % len(self.views)])

    @precondition(lambda self: self.views)
    @rule(which=pick, pods=PODS, queue=st.sampled_from([*QUEUES, "nowhere"]))
    def ask(self, which: int, pods: tuple[int, int], queue: str) -> None:
        """Questions leave nothing behind: the replay at the end, without them, gives the same commands."""
        view = list(self.views.values())[which % len(self.views)]
        assert verdicts.account(self.core, view.uid) is not None
        builder = make_binding("asked").queue(queue).tasks(pods[0], gpu=pods[1]).priority(which % 3)
        verdicts.what_if(self.core, builder.build(), self.now)
        self.core.check()

    # -- deciding ----------------------------------------------------------------------------------------------------

    @rule(after=st.sampled_from([0.01, 0.01, 1.0, 31.0]))
    def decide(self, after: float) -> None:
        self.now += after
        commands = self.tell(Pass(self.now))
        self.pending.extend(commands)
        for command in commands:
            if isinstance(command, Evict):
                # From now on, not once that is written.
                self.avoided.add((command.uid, self.views[command.uid].parts[0][0]))
            if isinstance(command, Dispatch | Resize):
                self.judge(command)
            elif isinstance(command, Evict) and command.decision.room_for:
                self.judge_victim(command)
            elif command.decision.reason is Reason.PART_REFUSED and command.decision.blocker is not None:
                self.avoided |= {(command.uid, name) for name in command.decision.blocker.name.split(", ")}
        self.work_is_conserved()
        self.nobody_is_counted_below_nothing()

    def judge(self, command: Dispatch | Resize) -> None:
        """A decision breaks no limit, whatever is still under way."""
        [part] = command.parts
        member, pods = part.cluster, part.pods
        gang = _gang(self.views[command.uid])
        limit, is_open = self.limits[gang.queue]
        assert pods <= gang.replicas, "more than its user asks for"
        if isinstance(command, Resize) and pods <= (before := self.size[command.uid]):
            assert pods == before or pods >= gang.min_available, "shrunk below its minimum"
            return
        assert pods >= gang.min_available, "less than must start together"
        assert is_open, f"{gang.queue} is closed"
        assert limit is None or self.charged(gang.queue) <= limit, f"{gang.queue} is above its capability"
        assert self.ready[member], f"{member} is not ready"
        assert self.spoken_for(member) <= sum(NODES[member]), f"{member} is above its capacity"

    def judge_victim(self, command: Evict) -> None:
        """Nobody goes for others unless all members that were asked about just that have said yes."""
        claimant = self.views[command.decision.room_for]
        question = claimant.decision.question
        assert question is not None, "nobody was asked"
        assert command.uid in question.victims, "nobody was asked about it"
        answers = [claimant.reserved.get(name) for name in question.parts]
        assert all(answer is not None and answer.granted for answer in answers), "a member did not say yes"

    def work_is_conserved(self) -> None:
        """Nothing waits that its queue admits and some member has room for, by the core's own figures."""
        if (due := self.core.next_deadline) is not None and due <= self.now:
            # It has more to decide.
            return
        for uid, binding in self.core.bindings.items():
            gang = binding.view.gang
            if binding.phase != "Suspended" or gang is None:
                continue
            leaf = self.core.tree.queue(gang.queue)
            if leaf.view is not None and leaf.view.strategy is Strategy.FIFO:
                head = self.core.waiting.head(leaf)
                if head is None or head.members[0][2] != uid:
                    continue
            least = gang.sized(gang.floor())
            verdict = self.core.verdict(uid)
            if verdict is not None and verdict.reason in _KEPT:
                # Others make room for somebody, who is to have it.
                continue
            if self.core.tree.standing(leaf) != "open" or self.core.tree.shortage(leaf, least.total()) is not None:
                continue
            for name, member in self.core.members.by_name.items():
                if member.ready and not any(avoided == name for _, avoided in self.avoided):
                    assert not isinstance(place(member.nodes, gang), Placement), f"{uid} waits though {name} has room"

    def nobody_is_counted_below_nothing(self) -> None:
        """Between passes figures may be of several moments."""
        for member in self.core.members.by_name.values():
            assert (member.nodes.free >= 0).all(), f"{member.name}: more is subtracted than there is"

    def teardown(self) -> None:
        again = Dispatcher()
        assert [again.handle(event) for event in self.log] == self.answers


def _gang(view: BindingView) -> Gang:
    assert view.gang is not None
    return view.gang


def _gpus(view: BindingView) -> int:
    """Of one pod."""
    return _gang(view).tasks[0].requests[GPU]


class History(Federation):
    """The same rules in long histories in which things get done; hypothesis rarely comes so far."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.decided: Counter[str] = Counter()

    def judge_victim(self, command: Evict) -> None:
        self.decided["evicted"] += 1
        super().judge_victim(command)

    def judge(self, command: Dispatch | Resize) -> None:
        if isinstance(command, Resize):
            change = command.parts[0].pods - self.size[command.uid]
            self.decided["grown" if change > 0 else "shrunk" if change else "noted"] += 1
        super().judge(command)

    def more(self) -> list[tuple[int, Callable[[], object]]]:
        """(weight, action) of a history in which more happens."""
        return []

    def play(self, steps: int) -> None:
        choose, number = self.random.choice, self.random.randint

        def which() -> int:
            return self.random.randrange(10**6)

        def queue() -> str:
            return choose(QUEUES)

        def member() -> str:
            return choose(sorted(NODES))

        self.begin(tuple(choose([None, 4, 8, 12]) for _ in QUEUES))
        actions: list[tuple[int, Callable[[], object]]] = [
            (1, lambda: self.set_queue(queue(), choose([None, 4, 8, 12]), number(0, 1), number(0, 9), False)),
            (1, lambda: self.set_cluster(member(), number(0, 5))),
            (3, lambda: self.publish(member())),
            (6, lambda: self.submit(queue(), (number(1, 4), choose([1, 1, 2, 4])), number(1, 4), number(0, 2))),
            (1, lambda: self.views and self.edit(which(), (number(1, 4), choose([1, 2, 4])))),
            (3, self.write_all),
            (3, lambda: self.pending and self.write(number(0, 5))),
            (3, lambda: self.live() and self.scale(which(), number(1, 4), number(1, 4))),
            (4, lambda: self.live() and self.bind(which())),
            (4, lambda: self.live() and self.report(which())),
            (4, self.catch_up),
            (3, lambda: self.live() and self.finish(which())),
            (6, lambda: self.asked() and self.answer(which(), number(0, 3))),
            (3, lambda: self.evicting() and self.let_go(which())),
            (1, lambda: self.views and self.delete(which())),
            (2, lambda: self.views and self.repeat_what_is_known(which())),
            (8, lambda: self.decide(choose([0.01, 0.01, 1.0, 31.0]))),
            *self.more(),
        ]
        for action in self.random.choices([each for _, each in actions], [weight for weight, _ in actions], k=steps):
            action()
        self.teardown()
