"""Free amounts of the member's nodes, kept up to date event by event.

Every pod that takes something from a node is one charge, whoever bound it; a pod that this scheduler is about to bind
is charged at once and stays so until the watch shows it bound or the bind is given up. So is a pod that another
scheduler should bind to a node: by our plan, or because that scheduler evicts others for it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from atoll.agent.numa import NumaTopology
from atoll.agent.objects import HyperNode, Node, Pod
from atoll.agent.scheduler.core.amounts import Charge, NodeAmounts
from atoll.agent.scheduler.core.arrays import Arrays
from atoll.agent.scheduler.core.device_book import DeviceBook
from atoll.agent.scheduler.core.fleet import MemberNodes
from atoll.agent.scheduler.core.gpu_book import GpuBook
from atoll.agent.scheduler.core.numa_book import NumaBook
from atoll.agent.scheduler.core.volume_limits import VolumeLimits
from atoll.fit import Nodes
from atoll.fit.peers import Peers, Site
from atoll.model import keys, numbers, quantity
from atoll.model.decision import Gone
from atoll.model.device_claims import CLASS_SUFFIX
from atoll.model.gang import Task
from atoll.model.gpu_partitions import GpuPartitions
from atoll.model.koordinator import Devices as ReportedDevices
from atoll.model.numa import asks_of
from atoll.model.vector import Vector


class Room:
    """Events in; pods and reservations as charges, of which each part keeps its own sums."""

    def __init__(self, *, hami: bool = False) -> None:
        """Begin empty; feed every event of nodes, HyperNodes and pods.

        Args:
            hami: whether GPUs of nodes that HAMi manages are given to pods.
        """
        #: pod key -> its charge
        self._charges: dict[str, Charge] = {}
        #: pod keys of `_charges` that no watch event has confirmed
        self.assumed: set[str] = set()
        #: UIDs of pods that their planned node is not kept for any more, though they may still be bound there
        self._released: set[str] = set()
        #: binding UID -> node -> pods charged there that count; without zeros
        self.placed: dict[str, Counter[str]] = {}
        #: nodes and their domains
        self.fleet = MemberNodes()
        #: the pods on nodes as rules between pods see them: one for each charge, and one for each reserved pod
        self.peers = Peers()
        #: limits of attached volumes
        self.volumes = VolumeLimits()
        #: NUMA nodes
        self.numa = NumaBook()
        #: GPUs, and devices that Koordinator reports
        self.gpus = GpuBook(self.numa, lambda node: self.arrays.fragments(node), hami=hami)
        #: devices that drivers publish
        self.devices = DeviceBook(self.fleet.labels, self._devices_changed, self._devices_published)
        #: offered, taken and free amounts
        self.amounts = NodeAmounts(self.devices, self.gpus)
        #: the same as placing reads them
        self.arrays = Arrays(
            fleet=self.fleet,
            amounts=self.amounts,
            peers=self.peers,
            gpus=self.gpus,
            devices=self.devices,
            numa=self.numa,
            volumes=self.volumes,
        )
        #: whether capacity was freed or added since the last reset
        self.grew = True
        #: raised by every change of free amounts
        self.version = 0
        #: raised by every change of nodes and domains themselves
        self.layout = 0
        #: nodes of which something was taken, or given back, since it was cleared
        self.refilled: set[str] = set()
        #: binding UIDs whose `placed` changed since it was cleared
        self.touched: set[str] = set()
        #: nodes that events changed since it was cleared; takes of this scheduler itself do not count
        self.disturbed: set[str] = set()

    # -- events ------------------------------------------------------------------------------------------------------

    def node_changed(self, name: str, now: Node | None) -> None:
        """A node came, is different, or went (None)."""
        if self.peers.set_node(name, Site(now.metadata.labels, now.taints) if now is not None else None):
            self.arrays.drop()
        self.peers.set_images(name, now.images if now is not None else {})
        old, new = self.fleet.node_changed(name, now)
        if old is None and new is None:
            return
        stands_in = self.devices.plugged(old, new)
        if new is None:
            self.amounts.offer(name, None)
            self.gpus.gone(name)
        else:
            self.gpus.koordinator.labelled(name, new.metadata.labels)
            self.devices.node_changed(name)
            self._offer(new)
        self.disturbed.add(name)
        self._rebuild()
        if stands_in:
            self._devices_published(None)

    def use_nodes(self, selected: Callable[[Node], bool]) -> None:
        """Use these nodes and no others from now on."""
        for node in self.fleet.select(selected):
            self.node_changed(node.metadata.name, node)

    def _offer(self, node: Node) -> None:
        name = node.metadata.name
        offers = quantity.capacity(node.status.allocatable) | self.devices.offered(name)
        self.amounts.offer(name, self.gpus.offered(node, offers))

    def hyper_node_changed(self, name: str, new: HyperNode | None) -> None:
        """A domain came, is different, or went (None)."""
        if self.fleet.hyper_node_changed(name, new):
            self.disturbed.update(self.fleet.names())
            self._rebuild()

    def namespace_changed(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace has these labels, or is gone."""
        self.peers.set_namespace(name, labels)
        if self.peers.stirred:
            self.peers.stirred = False
            self._changed(grew=True)

    def limits_changed(self, node: str, limits: dict[str, int]) -> None:
        """A node can attach so many volumes of these drivers, and any number of others."""
        if self.volumes.change(node, limits):
            self._rebuild()

    def numa_changed(self, node: str, told: NumaTopology | None, *, zones: bool) -> None:
        """One of the two objects about the NUMA nodes of a node is so, or gone (`NumaBook.report`)."""
        if not self.numa.report(node, told, zones=zones):
            return
        if not self.numa:
            self.arrays.drop()
        self.disturbed.add(node)
        self._changed(grew=True, node=node)

    @property
    def aligns(self) -> bool:
        """True if some node rejects pods that it can't align to its NUMA nodes."""
        return self.numa.aligns(self.fleet.usable)

    def koordinator_changed(self, node: str, devices: ReportedDevices, table: GpuPartitions | None = None) -> None:
        """Koordinator reports these devices of a node; see `KoordinatorBook.change`."""
        found = self.fleet.node(node)
        if not self.gpus.koordinator.change(node, devices, table) or found is None:
            return
        self._offer(found)
        self.gpus.hand_out_again(node)
        self._devices_published({node})

    def _devices_changed(self, nodes: Collection[str], grew: bool) -> None:
        """Free devices of these nodes changed."""
        self.version += 1
        self.grew = self.grew or grew
        for node in nodes:
            self._changed(grew=grew, node=node)

    def _devices_published(self, nodes: Collection[str] | None) -> None:
        """The devices of these nodes are others, or of all nodes."""
        names = self.fleet.names() if nodes is None else nodes
        for name in names:
            if (node := self.fleet.node(name)) is not None:
                self._offer(node)
        self.disturbed.update(names)
        self._rebuild()

    def _rebuild(self) -> None:
        self.arrays.drop()
        self._changed(grew=True)

    def _changed(self, *, grew: bool, node: str = "") -> None:
        """Free amounts changed on one node; without a name, nodes or domains themselves did."""
        self.version += 1
        self.grew = self.grew or grew
        if node:
            self.numa.outdate(node)
            self.arrays.outdate(node)
            self.refilled.add(node)
        else:
            self.layout += 1

    # -- pods --------------------------------------------------------------------------------------------------------

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, went, was bound, or ended."""
        pod = new or old
        assert pod is not None
        key = pod.metadata.key
        if new is not None and new.node and not new.finished:
            self.assumed.discard(key)
            self.disturbed.add(new.node)
            self._charge(new, new.node)
            return
        if new is None or new.finished:
            self._released.discard(pod.metadata.uid)
        elif (node := self._expected_on(new)) and key not in self.assumed:
            self.disturbed.add(node)
            self._charge(new, node, counts=False)
            return
        charge = self._charges.get(key)
        if charge is None:
            return
        if new is not None and key not in self.assumed and charge.uid == new.metadata.uid:
            # Its scheduler evicts others elsewhere, or has given up.
            self._release(key)
            return
        # An unbound pod may still be on its way to the node that was assumed.
        if new is None or new.finished or charge.uid != new.metadata.uid:
            self._release(key)

    def _expected_on(self, pod: Pod) -> str:
        """Where another scheduler is to bind it; empty for nowhere."""
        if pod.terminating or pod.metadata.uid in self._released:
            return ""
        return pod.planned_node or pod.nominated

    def assume(self, pod: Pod, node: str) -> None:
        """Charge a pod that is about to be bound, by us or, where it waits at our gate, by another scheduler."""
        self.assumed.add(pod.metadata.key)
        self._charge(pod, node, counts=not pod.held)

    def give_up(self, pod: Pod) -> None:
        """Keep the planned node of a pod no longer: another scheduler did not bind it in time."""
        key = pod.metadata.key
        if key in self._charges and self._charges[key].uid == pod.metadata.uid and not self._charges[key].counts:
            self._released.add(pod.metadata.uid)
            self._release(key)

    def forget(self, pod: Pod) -> bool:
        """Give an assumption up, unless the pod has been seen bound or replaced meanwhile."""
        key = pod.metadata.key
        if key not in self.assumed or self._charges[key].uid != pod.metadata.uid:
            return False
        self._release(key)
        return True

    def reserve(self, node: str, task: Task, count: int) -> None:
        """Reserve a node for pods that do not exist yet."""
        for _ in range(count):
            # One after the other, for each moves the NUMA nodes of the next one.
            self.gpus.reserve(node, task, 1)
            self.numa.pin(node, asks_of(task.aligned), 1)
            self.numa.outdate(node)
        self._reserve(node, task, count)
        self._changed(grew=False, node=node)

    def unreserve(self, node: str, task: Task, count: int, *, handed_over: bool = False) -> None:
        """The inverse of `reserve`.

        Args:
            node: the same.
            task: the same.
            count: at most the rest of the reservation.
            handed_over: whether a pod is assumed there in the same breath, so that nothing becomes free.
        """
        self._reserve(node, task, -count)
        self.gpus.reserve(node, task, -count)
        self.numa.pin(node, asks_of(task.aligned), -count)
        self._changed(grew=not handed_over, node=node)

    def _reserve(self, node: str, task: Task, times: int) -> None:
        self.amounts.take(node, _amounts(task), task.ports, times)
        if task.claims:
            self.devices.reserve(node, task.claims, times)
        if task.rules is not None:
            self.peers.add((node, task.rules), node, task.rules, times)

    def nominate(self, node: str, task: Task, count: int) -> None:
        """As `reserve`, though others are still there."""
        self.amounts.keep(node, task.requests, count)
        self.reserve(node, task, count)

    def unnominate(self, node: str, task: Task, count: int, *, handed_over: bool = False) -> None:
        """The inverse of `nominate`, with arguments as of `unreserve`."""
        self.amounts.keep(node, task.requests, -count)
        self.unreserve(node, task, count, handed_over=handed_over)

    def _charge(self, pod: Pod, node: str, *, counts: bool = True) -> None:
        key = pod.metadata.key
        old = self._charges.get(key)
        if old is not None:
            known = (old.uid, old.node, old.requests, old.binding_uid, old.ports, old.counts)
            if known == (pod.metadata.uid, node, pod.requests, pod.binding_uid, pod.ports, counts):
                if (old.labels, old.leaving) != (pod.metadata.labels, pod.terminating):
                    self._charges[key] = msgspec.structs.replace(
                        old, labels=pod.metadata.labels, leaving=pod.terminating
                    )
                    self._put_peer(pod, node)
                    self._changed(grew=False, node=node)
                return
            self._release(key, keep_assumed=True)
        charge = self._charges[key] = Charge(
            pod.metadata.uid,
            node,
            pod.requests,
            pod.binding_uid,
            pod.task,
            numbers.whole(pod.metadata.labels.get(keys.TASK_INDEX)),
            pod.ports,
            counts,
            pod.metadata.labels,
            pod.terminating,
            asks_of(pod.aligned),
        )
        self.gpus.put(pod, node, charge.asks)
        # GPUs come first: the kubelet has not given this pod its CPUs yet.
        self.numa.pin(node, charge.asks, 1)
        self._put_peer(pod, node)
        self.amounts.take(node, pod.requests, pod.ports, 1)
        if charge.binding_uid and counts:
            if charge.binding_uid not in self.placed:
                self.placed[charge.binding_uid] = Counter()
            self.placed[charge.binding_uid][node] += 1
            self.touched.add(charge.binding_uid)
        self._changed(grew=False, node=node)

    def _release(self, key: str, *, keep_assumed: bool = False) -> None:
        charge = self._charges.pop(key)
        if not keep_assumed:
            self.assumed.discard(key)
            self.devices.withdraw(key)
        self.amounts.take(charge.node, charge.requests, charge.ports, -1)
        self.numa.pin(charge.node, charge.asks, -1)
        self.peers.drop(key)
        self.gpus.drop(key, charge.node)
        if charge.binding_uid and charge.counts:
            places = self.placed[charge.binding_uid]
            places[charge.node] -= 1
            if not places[charge.node]:
                del places[charge.node]
            if not places:
                del self.placed[charge.binding_uid]
            self.touched.add(charge.binding_uid)
        self._changed(grew=True, node=charge.node)

    def _put_peer(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        self.peers.put(meta.key, node, meta.namespace, meta.labels, pod.rules, leaving=pod.terminating)
        if self.peers.stirred:
            # A pod that another one wants beside it helps as well as one that goes.
            self.peers.stirred, self.grew = False, True

    # -- views -------------------------------------------------------------------------------------------------------

    def node_of(self, pod: Pod) -> str:
        """Present or planned node of the pod; empty for none, or if the pod has ended."""
        charge = self._charges.get(pod.metadata.key)
        return charge.node if charge is not None and charge.uid == pod.metadata.uid else ""

    def is_bound(self, pod: Pod) -> bool:
        """True if the pod is on a node or bound by us at this moment, and has not ended."""
        charge = self._charges.get(pod.metadata.key)
        return charge is not None and charge.uid == pod.metadata.uid and charge.counts

    def leaving(self) -> list[str]:
        """Keys of the pods on nodes that were deleted."""
        return [key for key, charge in self._charges.items() if charge.leaving]

    def uid_on(self, key: str) -> str | None:
        """UID of the pod of this key that takes something; None where none does."""
        charge = self._charges.get(key)
        return charge.uid if charge is not None else None

    def requests_of(self, key: str) -> tuple[str, Vector]:
        """(node, requests) of the pod of this key, which takes something."""
        charge = self._charges[key]
        return charge.node, charge.requests

    def nodes_but(self, away: Iterable[str]) -> Nodes:
        """As `Arrays.nodes`, with the capacity of the pods of these keys free; a copy."""
        return self.arrays.nodes_but({key: self._charges.get(key) for key in away})

    def nodes_without(self, gone: Gone) -> Nodes:
        """As `Arrays.nodes`, with the capacity of these pods free as well; a copy.

        Of a task that keeps some, the highest indices go, as where a workload shrinks; of pods without an
        index, the last by name.
        """
        unnumbered: Counter[tuple[str, str]] = Counter()
        away: list[str] = []
        for key in sorted(self._charges):
            charge = self._charges[key]
            if charge.binding_uid not in gone or not self.fleet.usable(charge.node):
                continue
            if (stays := gone[charge.binding_uid]) is not None:
                index = charge.index
                if index is None:
                    index = unnumbered[charge.binding_uid, charge.task]
                    unnumbered[charge.binding_uid, charge.task] += 1
                if index < stays.get(charge.task, 0):
                    continue
            away.append(key)
        return self.nodes_but(away)


def _amounts(task: Task) -> Vector:
    """Requests without devices by class, where claims are known: `DeviceBook` counts these."""
    if not task.claims:
        return task.requests
    return {name: each for name, each in task.requests.items() if not name.endswith(CLASS_SUFFIX)}
