"""A member in virtual time: the agent's own core and capacity summary on nodes that exist only here.

What the agent's loops do with an API server in between happens here after fixed delays.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from atoll.agent.capacity import MemberCapacity
from atoll.agent.objects import Pod, PodGroup, PodGroupSpec
from atoll.agent.scheduler.core import Answer, Bind, Event, Explain, MemberCore, Pass
from atoll.agent.scheduler.core.events import (
    Configured,
    HoldAsked,
    HyperNodeSet,
    NodeSet,
    PodGone,
    PodGroupGone,
    PodGroupSet,
    PodSet,
    Released,
    SpotsExpected,
    Whose,
)
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.dispatcher.capacity import capacity_view
from atoll.dispatcher.core import CapacityView, MemberAnswer
from atoll.dispatcher.objects import CapacityObject, CapacitySpec
from atoll.model import keys, vector
from atoll.model.cards import CARD
from atoll.model.decision import Gone, Spots
from atoll.model.gang import Gang
from atoll.model.objects import Meta
from atoll.model.scoring import Scoring
from atoll.model.topology import NO_DOMAIN
from atoll.model.vector import Vector
from atoll.sim.clusters import MemberSpec
from atoll.sim.jobs import GPU_SHARE
from atoll.sim.timeline import Action, Timeline


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds that things take."""

    coalesce: float = 0.002
    """Changes are collected before the core decides."""
    write: float = 0.010
    """A decision is written and seen."""
    delivery: float = 0.020
    """A binding reaches its member."""
    plan: float = 0.005
    """Changes are collected before a member plans."""
    bind: float = 0.050
    """Planned pods are bound."""
    report: float = 0.020
    """What happened in a member is seen on its binding."""
    publish: float = 0.020
    """Capacity is seen by the core."""
    interval: float = 0.5
    """Between two publications of a member."""
    grace: float = 2.0
    """Evicted pods are gone."""


class Observer(Protocol):
    """Who is told what happens in a member; times are the timeline's."""

    def published(self, member: str, views: list[CapacityView]) -> None:
        """Free amounts, all roots under one generation."""

    def answered(self, member: str, uid: str, epoch: int, answer: MemberAnswer) -> None:
        """A hold was granted or refused."""

    def bound(self, member: str, uid: str, epoch: int, generation: int, nodes: Mapping[str, int]) -> None:
        """The pods of the part that are on nodes by now, per node."""

    def released(self, member: str, uid: str, epoch: int) -> None:
        """Nothing of the binding is left here; the epoch is that of the request."""

    def occupied(self, member: str, uid: str, amount: Vector, times: int) -> None:
        """Pods took (1) or gave back (-1) this much."""


@dataclass(slots=True)
class _Part:
    """What one member has of a binding."""

    uid: str
    epoch: int
    group: PodGroup
    #: by pod key, as last seen
    pods: dict[str, Pod]
    #: as told to the observer
    occupies: Vector = field(default_factory=dict)
    bound: int = 0


class SimMember:
    """One member; everything it is asked for is carried out in virtual time and told to the observer."""

    def __init__(
        self,
        spec: MemberSpec,
        timeline: Timeline,
        delays: Delays,
        observer: Observer,
        settings: MemberCoreSettings = MemberCoreSettings(),
        *,
        scoring: Scoring | None = None,
    ) -> None:
        """Make its nodes, preferred by `scoring`; nothing is published before `wake`."""
        self.name = spec.name
        self._core = MemberCore(settings)
        self._timeline, self._delays, self._observer = timeline, delays, observer
        if scoring is not None:
            self._core.handle(Configured(scoring))
        nodes, domains = spec.objects()
        for domain in domains:
            self._core.handle(HyperNodeSet(domain))
        for node in nodes:
            self._core.handle(NodeSet(node))
        self._summary = MemberCapacity(spec.name, self.room)
        #: binding UID -> its part
        self._parts: dict[str, _Part] = {}
        #: PodGroup -> UID of the binding of its part
        self._gangs: dict[str, str] = {}
        #: binding UID -> newest epoch seen; older ones are ignored
        self._newest: dict[str, int] = {}
        #: binding UID -> (choice of nodes of its hold, generation that contains it)
        self._kept: dict[str, tuple[int, int]] = {}
        self._pass_due = False
        #: generation of the last summary taken
        self._taken = 0
        self._promised = False
        self._publish_due = False
        self._next_publication = 0.0
        self._published: dict[str, dict[str, Any]] = {}
        self._totals = self._total_by_root()

    @property
    def room(self) -> Room:
        """Free amounts."""
        return self._core.room

    # -- asked by the host -------------------------------------------------------------------------------------------

    def start(
        self, uid: str, epoch: int, gang: Gang, namespace: str, name: str, created: str, expected: Spots = ()
    ) -> None:
        """Make the pods of a part and place them, where they are expected if that is possible."""
        if epoch < self._newest.get(uid, 0) or uid in self._parts:
            return
        self._tell(SpotsExpected(uid, epoch, expected))
        self._newest[uid] = epoch
        part = self._parts[uid] = _part(uid, epoch, gang, namespace, name, created)
        self._gangs[part.group.metadata.key] = uid
        self._tell(PodGroupSet(part.group), *(PodSet(pod, Whose.OURS) for pod in part.pods.values()))
        self.wake()

    def resize(
        self, uid: str, epoch: int, gang: Gang, namespace: str, name: str, created: str, expected: Spots = ()
    ) -> None:
        """Make the pods that a part has beyond those of before, where they are expected if that is possible, and remove
        those that it has no more.
        """
        part = self._parts.get(uid)
        if part is None or part.epoch != epoch:
            return
        self._tell(SpotsExpected(uid, epoch, expected))
        wanted = _part(uid, epoch, gang, namespace, name, created)
        gone = [part.pods.pop(key) for key in list(part.pods) if key not in wanted.pods]
        more = [pod for key, pod in wanted.pods.items() if key not in part.pods]
        part.pods = {**wanted.pods, **part.pods}
        part.group = wanted.group
        amount: Vector = {}
        for pod in gone:
            self._tell(PodGone(pod.metadata.key))
            if pod.node:
                vector.add(amount, pod.requests)
                part.bound -= 1
        if amount:
            vector.add(part.occupies, amount, -1)
            self._observer.occupied(self.name, uid, amount, -1)
            self._observer.bound(self.name, uid, epoch, self._promise(), dict(self.room.placed.get(uid, {})))
        self._tell(PodGroupSet(part.group), *(PodSet(pod, Whose.OURS) for pod in more))
        self.wake()

    def hold(self, uid: str, epoch: int, gang: Gang, namespace: str, name: str, *, gone: Gone | None = None) -> None:
        """Reserve nodes for a part, or refuse; or say whether it would fit without these pods."""
        if epoch < self._newest.get(uid, 0):
            return
        self._newest[uid] = epoch
        self._tell(HoldAsked(uid, epoch, gang, name, namespace, self._timeline.now, gone))

    def withdraw(self, uid: str, epoch: int) -> None:
        """Nobody waits for the answer to a question any more."""
        hold = self._core.holds.get(uid)
        if hold is not None and hold.epoch == epoch:
            self._tell(Released(uid))

    def stop(self, uid: str, epoch: int) -> None:
        """Take a binding's pods and holds away; says so once they are gone."""
        if epoch < self._newest.get(uid, 0):
            return
        self._newest[uid] = epoch
        self._tell(Released(uid))
        part = self._parts.get(uid)
        if part is None:
            self._observer.released(self.name, uid, epoch)
        elif not part.bound:
            self._remove(part, epoch)
        else:
            self._timeline.after(self._delays.grace, lambda: self._remove(part, epoch))

    def finish(self, uid: str) -> int:
        """The pods of a binding end by themselves; the generation of the figures that are without them."""
        if (part := self._parts.pop(uid, None)) is not None:
            self._empty(part)
        self._newest.pop(uid, None)
        self._tell(Released(uid))
        return self._promise()

    @property
    def known(self) -> list[str]:
        """Bindings that it has pods or holds of."""
        return list(self._newest)

    def lose(self, uid: str) -> None:
        """Pods and holds of a binding are gone at once, as when nodes lose power; the host is not told."""
        if (part := self._parts.pop(uid, None)) is not None:
            self._empty(part)
        self._core.handle(Released(uid))

    def wake(self) -> None:
        """Something changed: plan, and publish free amounts."""
        if not self._pass_due:
            self._pass_due = True
            self._timeline.after(self._delays.plan, self._pass)

    # -- the core ----------------------------------------------------------------------------------------------------

    def _tell(self, *events: Event) -> None:
        """Tell the core, and carry out its commands."""
        for event in events:
            for command in self._core.handle(event):
                match command:
                    case Bind(gang, pods):
                        self._bind_later(self._gangs[gang], pods)
                    case Answer():
                        self._answered(command)
                    case Explain(gang) if (wait := self._core.waits.get(gang)) is not None and wait.error is not None:
                        raise wait.error

    def _pass(self) -> None:
        self._pass_due = False
        self._tell(Pass(self._timeline.now))
        while self._core.under_way:
            self._tell(Pass(self._timeline.now))
        if self._core.due:
            self.wake()
        self._publish_soon()

    def _bind_later(self, uid: str, pods: tuple[tuple[str, str, str], ...]) -> None:
        part, generation = self._parts[uid], self._promise()
        self._timeline.after(self._delays.bind, lambda: self._bind(part, pods, generation))

    def _answered(self, answer: Answer) -> None:
        self.wake()
        if answer.state == "Over":
            self._kept.pop(answer.uid, None)
            return
        if answer.nodes and self._kept.get(answer.uid, (0, 0))[0] != answer.kept:
            self._kept[answer.uid] = (answer.kept, self._promise())
        generation = self._kept.get(answer.uid, (0, 0))[1] if answer.nodes else 0
        said = MemberAnswer(answer.state != "Refused", generation, answer.requested, answer.available)
        self._observer.answered(self.name, answer.uid, answer.epoch, said)

    def _bind(self, part: _Part, pods: tuple[tuple[str, str, str], ...], generation: int) -> None:
        if self._parts.get(part.uid) is not part:
            return
        amount: Vector = {}
        # Some may have been removed since they were planned.
        nodes = [(key, node) for key, _, node in pods if key in part.pods]
        for key, node in nodes:
            pod = part.pods[key]
            # As the binder writes them: the cards that were chosen stay the pod's.
            notes = {**pod.metadata.annotations, **self.room.gpus.notes_of(pod, node)}
            meta = msgspec.structs.replace(pod.metadata, annotations=notes)
            bound = part.pods[key] = msgspec.structs.replace(pod, metadata=meta, node=node, phase="Running")
            self._tell(PodSet(bound, Whose.OURS))
            vector.add(amount, bound.requests)
        vector.add(part.occupies, amount)
        part.bound += len(nodes)
        self._observer.occupied(self.name, part.uid, amount, 1)
        self._observer.bound(self.name, part.uid, part.epoch, generation, dict(self.room.placed[part.uid]))

    def _remove(self, part: _Part, epoch: int) -> None:
        if self._parts.get(part.uid) is part:
            del self._parts[part.uid]
            self._empty(part)
        self._observer.released(self.name, part.uid, epoch)

    def _empty(self, part: _Part) -> None:
        self._tell(*map(PodGone, part.pods), PodGroupGone(part.group.metadata.key))
        self._gangs.pop(part.group.metadata.key, None)
        if part.occupies:
            self._observer.occupied(self.name, part.uid, part.occupies, -1)
        self.wake()

    # -- capacity ----------------------------------------------------------------------------------------------------

    def _promise(self) -> int:
        """The generation that will contain everything that is so now."""
        self._promised = True
        self._publish_soon()
        return self._taken + 1

    def _publish_soon(self) -> None:
        if not self._publish_due:
            self._publish_due = True
            self._timeline.at(self._next_publication, self._publish)

    def _publish(self) -> None:
        self._publish_due = False
        specs = self._summary.specs()
        if not self._promised and specs == self._published:
            return
        self._taken += 1
        self._promised, self._published = False, specs
        self._next_publication = self._timeline.now + self._delays.interval
        views = [self._view(spec) for spec in specs.values()]
        self._timeline.after(self._delays.publish, lambda: self._observer.published(self.name, views))

    def _view(self, spec: dict[str, Any]) -> CapacityView:
        body = msgspec.convert({**spec, "generation": self._taken}, CapacitySpec)
        meta = Meta(namespace=keys.execution_namespace(self.name))
        view = capacity_view(CapacityObject(metadata=meta, spec=body))
        return view if view.total else dataclasses.replace(view, total=self._totals[view.root])

    def _total_by_root(self) -> dict[str, Vector]:
        tree, lowest = self.room.fleet.topology()
        totals: dict[str, Vector] = {"": {}}
        for node in self.room.fleet.ready():
            above = list(tree.ancestors(lowest.get(node.metadata.name, NO_DOMAIN)))
            root = tree.domains[above[-1]].name if above else ""
            vector.add(totals.setdefault(root, {}), self.room.amounts.offered(node.metadata.name))
        return totals

    # -- looking in --------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """No node holds more than it has, and no card more than a card.

        Raises:
            AssertionError: naming the node.
        """
        for node in self.room.fleet.ready():
            free = self.room.amounts.free(node.metadata.name)
            short = {name: -amount for name, amount in free.items() if amount < 0}
            assert not short, f"node {node.metadata.name} holds too much: {vector.describe(short)} over its capacity"
        cards: Counter[tuple[str, int]] = Counter()
        for part in self._parts.values():
            for pod in part.pods.values() if GPU_SHARE in part.occupies else ():
                amount, which = self.room.gpus.cards.of(pod.metadata.key)
                cards.update({(pod.node, card): amount for card in which if pod.node})
        full = [f"{node}, card {card}" for (node, card), amount in sorted(cards.items()) if amount > CARD]
        assert not full, f"more than a whole card is taken of {', '.join(full)}"


def _part(uid: str, epoch: int, gang: Gang, namespace: str, name: str, created: str) -> _Part:
    stamps = {keys.BINDING_UID: uid, keys.EPOCH: str(epoch)}
    wish = gang.network_topology
    spec = PodGroupSpec(
        gang.min_available,
        {task.name: task.min_available for task in gang.tasks if task.min_available},
        msgspec.to_builtins(wish) if wish is not None else None,
    )
    group = PodGroup(Meta(name, namespace, f"{uid}.{epoch}", annotations=stamps, creation_timestamp=created), spec)
    pods = {}
    for task in gang.tasks:
        marks = {**stamps, keys.TASK_SPEC: task.name, keys.GROUP_NAME: name}
        for index in range(task.replicas):
            meta = Meta(
                f"{name}-{task.name}-{index}",
                namespace,
                f"{uid}.{epoch}.{task.name}.{index}",
                labels={keys.TASK_INDEX: str(index)},
                annotations=marks,
                creation_timestamp=created,
            )
            pods[meta.key] = Pod(
                meta,
                scheduler=keys.SCHEDULER_NAME,
                priority=gang.priority,
                requests=task.requests,
                node_selector=task.node_selector,
                node_terms=task.node_terms,
                tolerations=task.tolerations,
            )
    return _Part(uid, epoch, group, pods)


class Line:
    """The way to a member and back; while it is cut, messages wait, in order."""

    def __init__(self, timeline: Timeline) -> None:
        """Begin connected."""
        self._timeline = timeline
        self.cut = False
        self._waiting: list[Action] = []

    def send(self, delay: float, action: Callable[[], None]) -> None:
        """Let something arrive after a delay, or as soon as the line is mended."""
        self._timeline.after(delay, lambda: self._arrive(action))

    def mend(self) -> None:
        """Let everything through that waited."""
        self.cut = False
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def _arrive(self, action: Action) -> None:
        if self.cut:
            self._waiting.append(action)
        else:
            action()
