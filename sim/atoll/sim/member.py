"""A member in virtual time: the agent's own room, planner, holds and capacity summary on nodes that exist only here.

What the agent's loops do with an API server in between happens here after fixed delays; the order of the steps of a
pass is that of `atoll.agent.scheduler.loop`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from atoll.agent.capacity import MemberCapacity
from atoll.agent.objects import Pod, PodGroup, PodGroupSpec
from atoll.agent.scheduler.expected import Expected
from atoll.agent.scheduler.gangs import by_name, standing
from atoll.agent.scheduler.holds import Holds
from atoll.agent.scheduler.planner import Parked, Plan, plan
from atoll.agent.scheduler.room import Room
from atoll.dispatcher.capacity import capacity_view
from atoll.dispatcher.core import CapacityView, Reservation
from atoll.dispatcher.objects import CapacityObject, CapacitySpec
from atoll.model import keys, vector
from atoll.model.decision import Gone, Spots
from atoll.model.gang import Gang
from atoll.model.objects import Meta
from atoll.model.topology import NO_DOMAIN
from atoll.model.vector import Vector
from atoll.sim.clusters import MemberSpec
from atoll.sim.timeline import Action, Timeline

_OURS = by_name(keys.SCHEDULER_NAME)


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
        """What is free, all roots under one generation."""

    def answered(self, member: str, uid: str, epoch: int, answer: Reservation) -> None:
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

    def __init__(self, spec: MemberSpec, timeline: Timeline, delays: Delays, observer: Observer) -> None:
        """Make its nodes; nothing is published before `wake`."""
        self.name = spec.name
        self.room = Room()
        nodes, domains = spec.objects()
        for domain in domains:
            self.room.hyper_node_changed(None, domain)
        for node in nodes:
            self.room.node_changed(None, node)
        self._summary = MemberCapacity(spec.name, self.room)
        self._timeline, self._delays, self._observer = timeline, delays, observer
        self._holds = Holds(self.room)
        self._expected = Expected()
        self._lost = False
        self._parked = Parked()
        #: binding UID -> its part
        self._parts: dict[str, _Part] = {}
        #: binding UID -> newest epoch seen; what is older is ignored
        self._newest: dict[str, int] = {}
        #: UIDs that a pass must look at, in order
        self._dirty: dict[str, None] = {}
        #: UIDs with pods that wait
        self._waiting: dict[str, None] = {}
        self._pass_due = False
        #: generation of the last summary taken
        self._taken = 0
        self._promised = False
        self._publish_due = False
        self._next_publication = 0.0
        self._published: dict[str, dict[str, Any]] = {}
        self._totals = self._total_by_root()

    # -- asked by the host -------------------------------------------------------------------------------------------

    def start(
        self, uid: str, epoch: int, gang: Gang, namespace: str, name: str, created: str, expected: Spots = ()
    ) -> None:
        """Make the pods of a part and place them, where they are expected if that is possible."""
        if epoch < self._newest.get(uid, 0) or uid in self._parts:
            return
        self._expected.expect(uid, epoch, expected)
        self._newest[uid] = epoch
        self._parts[uid] = _part(uid, epoch, gang, namespace, name, created)
        self._dirty[uid] = None
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
        self._expected.expect(uid, epoch, expected)
        wanted = _part(uid, epoch, gang, namespace, name, created)
        gone = [part.pods.pop(key) for key in list(part.pods) if key not in wanted.pods]
        part.pods = {**wanted.pods, **part.pods}
        part.group = wanted.group
        amount: Vector = {}
        for pod in gone:
            self.room.pod_changed(pod, None)
            if pod.node:
                vector.add(amount, pod.requests)
                part.bound -= 1
        if amount:
            vector.add(part.occupies, amount, -1)
            self._observer.occupied(self.name, uid, amount, -1)
            self._observer.bound(self.name, uid, epoch, self._promise(), dict(self.room.placed.get(uid, {})))
        self._dirty[uid] = None
        self.wake()

    def hold(self, uid: str, epoch: int, gang: Gang, namespace: str, name: str, *, gone: Gone | None = None) -> None:
        """Reserve nodes for a part, or refuse; or say whether it would fit without these pods."""
        if epoch < self._newest.get(uid, 0):
            return
        self._newest[uid] = epoch
        self._holds.hold(uid, epoch, gang, name, namespace, self._timeline.now, gone=gone)
        self._tell_holds()

    def withdraw(self, uid: str, epoch: int) -> None:
        """Nobody waits for the answer to a question any more."""
        hold = self._holds.get(uid)
        if hold is not None and hold.epoch == epoch:
            self._holds.release(uid)
            self._tell_holds()

    def stop(self, uid: str, epoch: int) -> None:
        """Take a binding's pods and holds away; says so once they are gone."""
        if epoch < self._newest.get(uid, 0):
            return
        self._newest[uid] = epoch
        self._expected.forget(uid)
        self._holds.release(uid)
        self._tell_holds()
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
        self._expected.forget(uid)
        return self._promise()

    def lose_all(self) -> None:
        """All pods and holds are gone at once, as when the nodes lose power; nobody is told."""
        for uid in list(self._parts):
            self._empty(self._parts.pop(uid))
        for uid in list(self._newest):
            self._holds.release(uid)
        self._holds.changed.clear()

    def wake(self) -> None:
        """Something changed: plan, and publish what is free."""
        if not self._pass_due:
            self._pass_due = True
            self._timeline.after(self._delays.plan, self._pass)

    # -- placing -----------------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        self._pass_due = False
        # 1. Reservations first, as in the agent.
        self._holds.expire(self._timeline.now)
        if self.room.grew or self._lost:
            self._holds.retry()
        self._lost = self._holds.check()
        self._tell_holds()
        # 2. Everything that waits gets a try when room grew; else only what changed.
        dirty, self._dirty = self._dirty, {}
        for uid in dirty:
            if uid in self._parts:
                self._waiting[uid] = None
        candidates = list(dirty)
        if self.room.grew:
            self.room.grew = False
            self._parked = Parked()
            candidates = list(self._waiting)
        views = []
        for uid in candidates:
            part = self._parts.get(uid)
            if part is None:
                self._waiting.pop(uid, None)
                continue
            view = standing(part.group.metadata.key, part.group, part.pods.values(), self.room, _OURS)
            if view.waiting:
                views.append(view)
            else:
                self._waiting.pop(uid, None)
        # 3. Decide, and bind after a while.
        for outcome in plan(self.room, views, self._parked, self._holds, self._expected):
            if isinstance(outcome, Plan):
                self._bind_later(outcome)
            elif outcome.error is not None:
                raise outcome.error
        # 4. Tell who wants to know.
        self._tell_holds()
        self.room.touched.clear()
        if self.room.grew or self._lost:
            self.wake()
        self._publish_soon()

    def _bind_later(self, outcome: Plan) -> None:
        uid = outcome.gang.binding_uid
        part, generation = self._parts[uid], self._promise()
        if len(outcome.nodes) < len(outcome.gang.waiting):
            self._dirty[uid] = None
        else:
            self._waiting.pop(uid, None)
        self._timeline.after(self._delays.bind, lambda: self._bind(part, outcome, generation))

    def _bind(self, part: _Part, outcome: Plan, generation: int) -> None:
        if self._parts.get(part.uid) is not part:
            return
        amount: Vector = {}
        # Some may have been removed since they were planned.
        nodes = [(pod, node) for pod, node in outcome.nodes if pod.metadata.key in part.pods]
        for pod, node in nodes:
            bound = msgspec.structs.replace(pod, node=node, phase="Running")
            part.pods[pod.metadata.key] = bound
            self.room.pod_changed(pod, bound)
            vector.add(amount, pod.requests)
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
        for pod in part.pods.values():
            self.room.pod_changed(pod, None)
        self._waiting.pop(part.uid, None)
        if part.occupies:
            self._observer.occupied(self.name, part.uid, part.occupies, -1)
        self.wake()

    def _tell_holds(self) -> None:
        changed, self._holds.changed = self._holds.changed, set()
        for uid in sorted(changed):
            hold = self._holds.get(uid)
            if hold is None:
                continue
            if hold.slots and not hold.generation:
                hold.generation = self._promise()
            answer = Reservation(bool(hold.slots) or hold.fits, hold.generation, hold.requested, hold.available)
            self._observer.answered(self.name, uid, hold.epoch, answer)
        if changed:
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
        tree, lowest = self.room.topology()
        totals: dict[str, Vector] = {"": {}}
        for node in self.room.ready_nodes():
            above = list(tree.ancestors(lowest.get(node.metadata.name, NO_DOMAIN)))
            root = tree.domains[above[-1]].name if above else ""
            vector.add(totals.setdefault(root, {}), self.room.allocatable(node.metadata.name))
        return totals

    # -- looking in --------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """No node holds more than it has.

        Raises:
            AssertionError: naming the node.
        """
        for node in self.room.ready_nodes():
            free = self.room.free(node.metadata.name)
            short = {name: -amount for name, amount in free.items() if amount < 0}
            assert not short, f"node {node.metadata.name} holds too much: {vector.describe(short)} over its capacity"


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
    """The way to a member and back; while it is cut, what is sent waits, in order."""

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
