"""Nodes that are kept for parts of gangs whose other parts are still being asked for; pure.

A hold has *slots*: so many pods of a task on a node. Slots are charged in the `Room`. A slot leaves in two
ways only: to the pod that it was kept for, in the moment in which that pod is assumed, or back to the free amounts.

A hold that names pods to leave out is a *question*: it has an answer and never a slot, for the nodes are still used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.commands import Answer
from atoll.agent.scheduler.core.gangs import Standing, heeding, labels_selected, too_hot
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.core.settings import HoldSettings
from atoll.fit import Miss, Profile, place
from atoll.fit.place import covering
from atoll.model import keys, selectors
from atoll.model.decision import Gone
from atoll.model.gang import Gang, Task
from atoll.model.objects import MALFORMED

Slot = tuple[int, str]
"""(task index, node)."""


@dataclass
class Hold:
    """One part, its answer, and its slots."""

    uid: str
    epoch: int
    gang: Gang
    name: str
    """Of the workload."""
    namespace: str
    deadline: float
    """When it ends unless it is renewed, on the caller's clock."""
    told: float
    """The published deadline; never later than `deadline`, at most half of its life earlier."""
    gone: Gone | None = None
    """Pods to leave out; None where it is no question."""
    #: its charge in the `Room`; empty exactly while it is refused, and of a question
    slots: Counter[Slot] = field(default_factory=Counter)
    fits: bool = False
    """Of a question: the answer."""
    domain: str = ""
    tier: int = 0
    message: str = ""
    requested: int = 0
    available: int = 0
    kept: int = 0
    """Another number stands for another choice of nodes."""

    @property
    def state(self) -> str:
        """Reserved, Fits or Refused."""
        return "Reserved" if self.slots else "Fits" if self.fits else "Refused"

    @property
    def nodes(self) -> dict[str, int]:
        """Pods per node."""
        found: Counter[str] = Counter()
        for (_, node), count in sorted(self.slots.items()):
            found[node] += count
        return dict(found)

    def answer(self) -> Answer:
        """Published answer."""
        nodes = tuple(self.nodes.items())
        return Answer(self.uid, self.epoch, self.state, nodes, self.message, self.requested, self.available, self.kept)


class Plan(msgspec.Struct, frozen=True, rename="camel"):
    """A hold as its PodGroup keeps it."""

    uid: str
    epoch: int
    nodes: dict[str, int]
    expires: str
    name: str
    gang: Gang
    slots: list[tuple[int, str, int]]
    """(task index, node, pods)."""
    domain: str = ""
    tier: int = 0


class Holds:
    """All holds of a member, always equal to the reservations in the `Room`."""

    def __init__(self, room: Room, settings: HoldSettings = HoldSettings()) -> None:
        """Begin without any."""
        self._room, self._ttl = room, settings.ttl
        self._holds: dict[str, Hold] = {}
        #: binding UID -> epoch whose pods have come: nothing is kept for it any more
        self._over: dict[str, int] = {}
        #: binding UIDs whose hold changed since it was cleared
        self.changed: set[str] = set()
        #: choices of nodes so far
        self._kept = 0

    def get(self, uid: str) -> Hold | None:
        """The binding's hold; do not change it."""
        return self._holds.get(uid)

    @property
    def deadline(self) -> float | None:
        """When the next hold ends; None without holds."""
        return min((hold.deadline for hold in self._holds.values()), default=None)

    # -- what delivery asks ------------------------------------------------------------------------------------------

    def hold(
        self, uid: str, epoch: int, gang: Gang, name: str, namespace: str, now: float, *, gone: Gone | None = None
    ) -> None:
        """Keep nodes for a part, answer a question, or renew; see `atoll.delivery.reservations`."""
        if epoch <= self._over.get(uid, -1):
            return
        old = self._holds.get(uid)
        if old is not None and epoch < old.epoch:
            return
        if old is not None and (old.epoch, old.gang, old.gone) == (epoch, gang, gone):
            old.deadline = now + self._ttl
            if old.deadline - old.told >= self._ttl / 2:
                old.told = old.deadline
                self.changed.add(uid)
            return
        if old is not None:
            self._drop(old)
        hold = self._holds[uid] = Hold(uid, epoch, gang, name, namespace, now + self._ttl, now + self._ttl, gone)
        self._plan(hold)

    def release(self, uid: str) -> None:
        """Give everything back and forget the binding."""
        self._over.pop(uid, None)
        if (hold := self._holds.get(uid)) is not None:
            self._drop(hold)

    # -- what the scheduler asks -------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """End the holds that were not renewed."""
        for hold in [hold for hold in self._holds.values() if hold.deadline <= now]:
            self._drop(hold)

    def retry(self) -> None:
        """Plan the refused ones again, by priority and age, and answer questions anew; for grown capacity."""
        refused = [hold for hold in self._holds.values() if not hold.slots]
        # UIDs make the order total.
        for hold in sorted(refused, key=lambda each: (-each.gang.priority, each.gang.submitted, each.uid)):
            self._plan(hold)

    def check(self) -> bool:
        """Refuse holds whose nodes are no longer theirs: gone, not ready, not acceptable, or taken by others. Answer
        questions anew.

        Returns:
            Whether any was refused that had nodes.
        """
        disturbed, self._room.disturbed = self._room.disturbed, set()
        if not disturbed:
            return False
        lost = False
        # Where several meet on an overbooked node, the youngest gives way, which may be enough for the rest.
        for hold in reversed(list(self._holds.values())):
            if hold.slots and any(node in disturbed for _, node in hold.slots):
                self._check(hold)
                lost = lost or not hold.slots
            elif hold.gone is not None:
                self._plan(hold)
        return lost

    def claim(self, view: Standing) -> list[tuple[Pod, str]]:
        """Hand reserved nodes over to the pods that they were kept for; the caller assumes all of them at once.

        Returns:
            At least as many pods as the gang still needs, or none. With none nothing is kept for these pods any more.
        """
        uid, epoch = view.binding_uid, view.epoch
        hold = self._holds.get(uid) if uid else None
        if hold is None or epoch < hold.epoch:
            return []
        chosen = _match(hold, view.waiting) if epoch == hold.epoch else None
        if not chosen or len(chosen) < view.missing:
            # One that was whole has its pods settled already: what waits beyond it may come later.
            if chosen is None or view.missing:
                self._over[uid] = epoch
                self._drop(hold)
            return []
        for _, slot in chosen:
            self._take(hold, slot, 1, handed_over=True)
        self.changed.add(uid)
        if not hold.slots:
            self._over[uid] = epoch
            del self._holds[uid]
        return [(pod, node) for pod, (_, node) in chosen]

    def bound_by_others(self, pod: Pod) -> None:
        """Another scheduler has bound a pod of a delegated gang: its slot is not needed any more.

        Args:
            pod: already charged in the `Room`, on any node.
        """
        hold = self._holds.get(pod.binding_uid)
        if hold is None or str(hold.epoch) != pod.metadata.annotations.get(keys.EPOCH):
            return
        slots = sorted(slot for slot in hold.slots if hold.gang.tasks[slot[0]].name == pod.gang_task)
        # Batch Jobs have one task, and their pods don't name it.
        slots = slots or (sorted(hold.slots) if len(hold.gang.tasks) == 1 else [])
        if not slots:
            return
        self._take(hold, next((slot for slot in slots if slot[1] == pod.node), slots[0]), 1)
        self.changed.add(hold.uid)
        if not hold.slots:
            self._over[hold.uid] = hold.epoch
            del self._holds[hold.uid]

    # -- restart -----------------------------------------------------------------------------------------------------

    def adopt(self, plan: Plan, namespace: str, settled: Iterable[tuple[str, str]], now: float) -> None:
        """Take a plan over from an earlier process, with its whole time to live.

        Args:
            plan: as it was written.
            namespace: of the workload.
            settled: (task, node) of the pods of its epoch that have a node already: their slots are theirs.
            now: on the caller's clock.
        """
        old = self._holds.get(plan.uid)
        self.changed.add(plan.uid)
        if old is not None and old.epoch >= plan.epoch:
            return
        if old is not None:
            self._drop(old)
        slots: Counter[Slot] = Counter()
        for task, node, count in plan.slots:
            if task < len(plan.gang.tasks):
                slots[task, node] += count
        numbers = {task.name: number for number, task in enumerate(plan.gang.tasks)}
        pods = list(settled)
        for task_name, node in pods:
            slot = (numbers.get(task_name, -1), node)
            if slots[slot] > 0:
                slots[slot] -= 1
        slots = +slots
        if not slots:
            self._over[plan.uid] = plan.epoch
            return
        hold = Hold(plan.uid, plan.epoch, plan.gang, plan.name, namespace, now + self._ttl, now + self._ttl)
        self._holds[plan.uid] = hold
        self._keep(hold, slots)
        hold.domain, hold.tier = plan.domain, plan.tier
        self._check(hold)

    # -- one hold ----------------------------------------------------------------------------------------------------

    def _plan(self, hold: Hold) -> None:
        room, gang = self._room, hold.gang
        try:
            for asked in gang.tasks:
                selectors.check_node_terms(asked.node_terms)
            room.arrays.select_by(labels_selected(gang.tasks))
            nodes = room.arrays.nodes() if hold.gone is None else room.nodes_without(hold.gone)
            gang = heeding(gang, nodes, [gang.priority] * len(gang.tasks))
            outcome = place(nodes, gang)
        except MALFORMED as error:
            self._refuse(hold, f"what its pods ask for can't be read: {error}", 1, 0)
            return
        if isinstance(outcome, Miss):
            self._refuse(hold, outcome.sentence() + too_hot(gang, nodes), outcome.requested, outcome.available)
            return
        slots: Counter[Slot] = Counter()
        for task, node, count in outcome.pods:
            slots[task, nodes.names[node]] += count
        if not slots:
            # A part may have no minimum of its own; one of which nothing can start is no use.
            self._refuse(hold, "there is room for none of its pods", 1, 0)
            return
        if hold.gone is not None:
            self._answer(hold, True, "", sum(gang.floor()), slots.total())
            return
        hold.domain = nodes.tree.domains[outcome.domain].name if outcome.domain is not None else ""
        hold.tier = outcome.tier or 0
        self._keep(hold, slots)

    def _keep(self, hold: Hold, slots: Counter[Slot]) -> None:
        for (task, node), count in slots.items():
            self._room.reserve(node, hold.gang.tasks[task], count)
        self._kept += 1
        hold.slots, hold.kept, hold.message = slots, self._kept, ""
        hold.requested, hold.available = sum(hold.gang.floor()), slots.total()
        self.changed.add(hold.uid)

    def _refuse(self, hold: Hold, message: str, requested: int, available: int) -> None:
        for slot, count in list(hold.slots.items()):
            self._take(hold, slot, count)
        self._answer(hold, False, message, requested, available)
        hold.domain, hold.tier = "", 0

    def _answer(self, hold: Hold, fits: bool, message: str, requested: int, available: int) -> None:
        answer = (fits, message, requested, available)
        if (hold.fits, hold.message, hold.requested, hold.available) != answer:
            self.changed.add(hold.uid)
        hold.fits, hold.message, hold.requested, hold.available = answer

    def _drop(self, hold: Hold) -> None:
        for slot, count in list(hold.slots.items()):
            self._take(hold, slot, count)
        del self._holds[hold.uid]
        self.changed.add(hold.uid)

    def _take(self, hold: Hold, slot: Slot, count: int, *, handed_over: bool = False) -> None:
        task, node = slot
        hold.slots[slot] -= count
        if not hold.slots[slot]:
            del hold.slots[slot]
        self._room.unreserve(node, hold.gang.tasks[task], count, handed_over=handed_over)

    def _check(self, hold: Hold) -> None:
        lost: dict[str, str] = {}
        for task, node in hold.slots:
            try:
                why = self._trouble(hold.gang.tasks[task], node)
            except MALFORMED as error:
                why = f"what the pods on reserved node {node} ask for can't be read: {error}"
            if why and node not in lost:
                lost[node] = why
        why = "; ".join(lost[node] for node in sorted(lost)[:3])
        if not lost and not self._near_enough(hold):
            why = "the reserved nodes are no longer in one domain of an allowed tier"
        if why:
            kept = sum(count for (_, node), count in hold.slots.items() if node not in lost)
            self._refuse(hold, why, sum(hold.gang.floor()), kept if lost else 0)

    def _trouble(self, task: Task, name: str) -> str:
        node = self._room.fleet.node(name)
        if node is None:
            return f"reserved node {name} is gone"
        if not node.ready:
            return f"reserved node {name} is not ready"
        if name in self._room.fleet.lost:
            return f"reserved node {name} is in a HyperNode that is lost"
        if not Profile(node.metadata.labels, tuple(node.taints)).accepts(task, name):
            return f"reserved node {name} no longer accepts pods of task {task.name}"
        if self._room.amounts.overbooked(name, task):
            return f"others took the room on reserved node {name}"
        return ""

    def _near_enough(self, hold: Hold) -> bool:
        nodes = self._room.arrays.nodes().seen_by(hold.gang.network_topology)
        allowed = nodes.tree.ceiling(hold.gang.network_topology)
        if allowed is None:
            return True
        wanted = {node for _, node in hold.slots}
        _, tier = covering(nodes, [column for column, name in enumerate(nodes.names) if name in wanted])
        return tier is not None and tier <= allowed


def _match(hold: Hold, pods: Iterable[Pod]) -> list[tuple[Pod, Slot]] | None:
    """Pods in their order to slots in order of node names, so that neighbours share nodes.

    None when nothing can be handed over for good: there is nothing, or a pod asks for more than was kept for it.
    """
    if not hold.slots:
        return None
    numbers = {task.name: number for number, task in enumerate(hold.gang.tasks)}
    left: dict[int, list[Slot]] = {}
    # Popped from the end.
    for slot, count in sorted(hold.slots.items(), reverse=True):
        left.setdefault(slot[0], []).extend([slot] * count)
    chosen = []
    for pod in pods:
        number = numbers.get(pod.gang_task, -1)
        if not left.get(number):
            continue
        kept = hold.gang.tasks[number].requests
        if any(amount > kept.get(name, 0) for name, amount in pod.requests.items()):
            return None
        if not set(pod.ports) <= set(hold.gang.tasks[number].ports):
            return None
        chosen.append((pod, left[number].pop()))
    return chosen


_decoder = msgspec.json.Decoder(Plan)


def encode_plan(hold: Hold, expires: str) -> str:
    """The text that a PodGroup keeps; equal holds give equal text."""
    slots = [(task, node, count) for (task, node), count in sorted(hold.slots.items())]
    plan = Plan(
        hold.uid,
        hold.epoch,
        hold.nodes,
        expires,
        hold.name,
        hold.gang,
        slots,
        hold.domain,
        hold.tier,
    )
    return msgspec.json.encode(plan, order="sorted").decode()


def decode_plan(text: str) -> Plan:
    """Inverse of `encode_plan`, for text that any writer of PodGroups may have written.

    Raises:
        ValueError: not JSON, or not a plan that can be kept.
    """
    try:
        plan = _decoder.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    for task, _, count in plan.slots:
        if not 0 <= task < len(plan.gang.tasks) or count <= 0:
            raise ValueError(f"slots: {count} pods of task {task}")
    if any(amount < 0 for task in plan.gang.tasks for amount in task.requests.values()):
        raise ValueError("gang: a request is negative")
    return plan


def describe(hold: Hold, expires: str, generation: int = 0) -> dict[str, Any]:
    """The answer as delivery reports it; `generation` is of the published capacity that contains its nodes."""
    return {
        "epoch": hold.epoch,
        "state": hold.state,
        "nodes": hold.nodes,
        "domain": hold.domain,
        "tier": hold.tier,
        "message": hold.message,
        "requested": hold.requested,
        "available": hold.available,
        "generation": generation if hold.slots else 0,
        "expires": expires,
    }


__all__ = ["Hold", "Holds", "Plan", "decode_plan", "describe", "encode_plan"]
