"""Free amounts of the member's nodes, kept up to date event by event.

Every pod that takes something from a node is one charge, whoever bound it; a pod that this scheduler is about to bind
is charged at once and stays so until the watch shows it bound or the bind is given up. So is a pod that another
scheduler should bind to a node: by our plan, or because that scheduler evicts others for it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
import structlog

from atoll.agent.numa import NumaTopology
from atoll.agent.objects import HyperNode, Node, Pod
from atoll.agent.scheduler.core.card_book import CardBook, Choose
from atoll.agent.scheduler.core.device_book import DeviceBook
from atoll.agent.scheduler.core.koordinator_book import KoordinatorBook
from atoll.agent.scheduler.core.numa_book import NumaBook
from atoll.fit import Nodes, Profile
from atoll.fit import koordinator as fitting
from atoll.fit.company import Company
from atoll.fit.constraints import Attachments, Cards, Devices, Exact, HostPorts
from atoll.fit.peers import Peers, Site
from atoll.fit.placement import Ints
from atoll.fit.scores import Typical
from atoll.fit.singles import Singles
from atoll.model import gpu_shares, hami, keys, koordinator, numbers, ports, quantity, topology, vector
from atoll.model.cards import CARD, MEMORY, SHARE, asked, chosen
from atoll.model.decision import Gone
from atoll.model.device_claims import CLASS_SUFFIX
from atoll.model.gang import DeviceWish, Task
from atoll.model.gpu_partitions import GpuPartitions
from atoll.model.hami import Gpus
from atoll.model.koordinator import Devices as ReportedDevices
from atoll.model.koordinator import Part
from atoll.model.numa import Asks, asks_of
from atoll.model.ports import HostPort
from atoll.model.scoring import Scoring
from atoll.model.topology import NO_DOMAIN, Built, Grown, Tree
from atoll.model.vector import MOST_ON_NODE, Vector

log = structlog.get_logger(__name__)
_ANY = DeviceWish()


class _Charge(msgspec.Struct, frozen=True, gc=False):
    uid: str
    node: str
    requests: Vector
    binding_uid: str
    task: str
    index: int | None
    """Of the pod in its task; None where it has none."""
    ports: list[HostPort]
    counts: bool
    """Whether the pod is there or bound by us at this moment; not while another scheduler has still to bind it."""
    labels: Mapping[str, str]
    leaving: bool
    """Whether the pod was deleted."""
    asks: Asks
    """Use of NUMA nodes by its containers."""


class Room:
    """Nodes, the domains they are in, and the pods that are on them."""

    def __init__(self, *, hami: bool = False) -> None:
        """Begin empty; feed every event of nodes, HyperNodes and pods.

        Args:
            hami: whether GPUs of nodes that HAMi manages are given to pods.
        """
        self._reads_hami = hami
        self._nodes: dict[str, Node] = {}
        #: node -> allocatable in integer units, of the nodes in `_nodes`
        self._allocatable: dict[str, Vector] = {}
        #: pod key -> its charge; the only source of `_used` and `placed`
        self._charges: dict[str, _Charge] = {}
        #: pod keys of `_charges` that no watch event has confirmed
        self.assumed: set[str] = set()
        #: UIDs of pods that their planned node is not kept for any more, though they may still be bound there
        self._released: set[str] = set()
        #: whether a node is one that may be used
        self._selected: Callable[[Node], bool] = lambda _: True
        #: nodes that may not, by name
        self._left_out: dict[str, Node] = {}
        #: node -> sum of its charges and reservations
        self._used: dict[str, Vector] = {}
        #: node -> what of `_used` is kept for pods that go there once others have left; without zeros
        self._awaited: dict[str, Vector] = {}
        #: node -> port -> how many took it, by charges and reservations; without zeros
        self._ports: dict[str, dict[HostPort, int]] = {}
        #: binding UID -> node -> pods charged there that count; without zeros
        self.placed: dict[str, Counter[str]] = {}
        #: the pods on nodes as rules between pods see them: one for each charge, and one for each reserved pod
        self.peers = Peers()
        self._hyper_nodes: dict[str, HyperNode] = {}
        #: what HyperNodes say together, or None where it must be worked out anew
        self._topology: Built | None = None
        #: what `lost` gives while `_topology` is there
        self._lost: frozenset[str] = frozenset()
        #: the arrays, or None where they must be built anew
        self._arrays: Nodes | None = None
        self._column: dict[str, int] = {}
        #: of the arrays; to be asked right after `nodes`
        self.singles = Singles()
        #: of the arrays
        self._host_ports = HostPorts()
        #: of the arrays, likewise
        self._cards = Cards(np.zeros((0, 0), np.int64), np.zeros(0, np.int64))
        #: nodes whose column is out of date; meaningless while there are no arrays
        self._stale: set[str] = set()
        #: label keys that some pod selects by, though they differ on every node
        self._wanted_labels: set[str] = set()
        #: HyperNode -> what of it is left out, and why
        self.topology_problems: dict[str, str] = {}
        #: node -> driver -> volumes that it can attach; of nodes with limits
        self._limits: dict[str, dict[str, int]] = {}
        #: shares of GPUs
        self.cards = CardBook()
        #: devices that Koordinator reports
        self.koordinator = KoordinatorBook()
        #: node -> key -> pod there that asks for GPUs or for devices that Koordinator gives
        self._using: dict[str, dict[str, Pod]] = {}
        #: (node, requests, wish) -> how many reservations have devices for such a pod
        self._kept: Counter[tuple[str, str, str]] = Counter()
        #: devices that drivers publish
        self.devices = DeviceBook(self._labels_of, self._devices_changed, self._devices_published)
        self.devices.advertised = self._advertised
        #: resource -> how many nodes have some by a device plug-in
        self._plugged: Counter[str] = Counter()
        #: typical requests, learnt from placed pods; for the scoring `fragmentation`
        self.typical = Typical()
        #: which nodes are preferred, for gangs that say nothing themselves
        self.scoring = Scoring()
        #: whether some gang that was planned prefers nodes by their use
        self.use_matters = False
        #: node -> (cpu, memory) in use when it was measured and free then, together
        self._measured: dict[str, tuple[int, int]] = {}
        #: NUMA nodes
        self.numa = NumaBook()
        #: gives (node, driver, handle) of the volumes of pods on nodes, but for pods of some keys
        self.attached: Callable[[Collection[str]], Iterable[tuple[str, str, str]]] = lambda _: ()
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
        #: nodes that events changed since it was cleared; what this scheduler takes itself does not count
        self.disturbed: set[str] = set()

    # -- events ------------------------------------------------------------------------------------------------------

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, went, or is different."""
        if (told := new or old) is not None:
            site = Site(new.metadata.labels, new.taints) if new is not None else None
            if self.peers.set_node(told.metadata.name, site):
                self._arrays = None
            self.peers.set_images(told.metadata.name, new.images if new is not None else {})
        before = old is not None and old.metadata.name in self._nodes
        if new is not None and not self._selected(new):
            self._left_out[new.metadata.name] = new
            new = None
        elif (gone := new or old) is not None:
            self._left_out.pop(gone.metadata.name, None)
        if not before:
            old = None
        if old is None and new is None:
            return
        if old is not None and new is not None and _same(old, new):
            self._nodes[new.metadata.name] = new
            return
        node = new or old
        assert node is not None
        name = node.metadata.name
        began = self._plug(old, new)
        if new is None:
            self._nodes.pop(name, None)
            self._allocatable.pop(name, None)
            self.cards.hami.pop(name, None)
            self.cards.offers(name, None)
            self.koordinator.labelled(name, {})
        else:
            self._nodes[name] = new
            self.koordinator.labelled(name, new.metadata.labels)
            self.devices.node_changed(name)
            self._offer(new)
        self.disturbed.add(name)
        self._arrays = self._topology = None
        self._changed(grew=True)
        if began:
            self._devices_published(None)

    def _plug(self, old: Node | None, new: Node | None) -> bool:
        """Count resources of device plug-ins; whether one came or went that a class stands for elsewhere."""
        before, now = _plugged(old), _plugged(new)
        self._plugged.update(now - before)
        self._plugged.subtract(before - now)
        return any(self._plugged[name] == int(name in now) and self.devices.stands_for(name) for name in before ^ now)

    def _advertised(self, resource: str) -> bool:
        return self._plugged[resource] > 0

    def hyper_node_changed(self, old: HyperNode | None, new: HyperNode | None) -> None:
        """A domain came, went, or is different."""
        domain = new or old
        assert domain is not None
        if new is None:
            self._hyper_nodes.pop(domain.metadata.name, None)
        elif old is not None and _same_domain(old, new):
            return
        else:
            self._hyper_nodes[domain.metadata.name] = new
        self.disturbed.update(self._nodes)
        self._arrays = self._topology = None
        self._changed(grew=True)

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
            self._keep_devices(node, task, 1)
            self.numa.pin(node, asks_of(task.aligned), 1)
            self.numa.outdate(node)
        vector.add(self._used.setdefault(node, {}), _amounts(task), count)
        if task.claims:
            self.devices.reserve(node, task.claims, count)
        self._count_ports(node, task.ports, count)
        if task.rules is not None:
            self.peers.add((node, task.rules), node, task.rules, count)
        self._changed(grew=False, node=node)

    def unreserve(self, node: str, task: Task, count: int, *, handed_over: bool = False) -> None:
        """The inverse of `reserve`.

        Args:
            node: the same.
            task: the same.
            count: at most the rest of the reservation.
            handed_over: whether a pod is assumed there in the same breath, so that nothing becomes free.
        """
        used = self._used.setdefault(node, {})
        vector.add(used, _amounts(task), -count)
        if not used:
            del self._used[node]
        if task.claims:
            self.devices.reserve(node, task.claims, -count)
        self._keep_devices(node, task, -count)
        self._count_ports(node, task.ports, -count)
        self.numa.pin(node, asks_of(task.aligned), -count)
        if task.rules is not None:
            self.peers.add((node, task.rules), node, task.rules, -count)
        self._changed(grew=not handed_over, node=node)

    def nominate(self, node: str, task: Task, count: int) -> None:
        """As `reserve`, though others are still there."""
        vector.add(self._awaited.setdefault(node, {}), task.requests, count)
        self.reserve(node, task, count)

    def unnominate(self, node: str, task: Task, count: int, *, handed_over: bool = False) -> None:
        """The inverse of `nominate`, with arguments as of `unreserve`."""
        awaited = self._awaited[node]
        vector.add(awaited, task.requests, -count)
        if not awaited:
            del self._awaited[node]
        self.unreserve(node, task, count, handed_over=handed_over)

    def node_of(self, pod: Pod) -> str:
        """Where the pod is or is going to be; empty when it is nowhere or has ended."""
        charge = self._charges.get(pod.metadata.key)
        return charge.node if charge is not None and charge.uid == pod.metadata.uid else ""

    def is_bound(self, pod: Pod) -> bool:
        """Whether the pod is on a node or bound by us at this moment, and has not ended."""
        charge = self._charges.get(pod.metadata.key)
        return charge is not None and charge.uid == pod.metadata.uid and charge.counts

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
        charge = self._charges[key] = _Charge(
            pod.metadata.uid,
            node,
            pod.requests,
            pod.binding_uid,
            pod.task,
            _index(pod),
            pod.ports,
            counts,
            pod.metadata.labels,
            pod.terminating,
            asks_of(pod.aligned),
        )
        if _wants_devices(pod.requests, pod.joint):
            self._using.setdefault(node, {})[key] = pod
            self._hand_out(key, node, pod.requests, pod.joint, charge.asks, pod.cards, pod.parts, pod.handed)
        # GPUs come first: the kubelet has not given this pod its CPUs yet.
        self.numa.pin(node, charge.asks, 1)
        self._put_peer(pod, node)
        vector.add(self._used.setdefault(node, {}), pod.requests)
        self._count_ports(node, pod.ports, 1)
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
        vector.add(self._used[charge.node], charge.requests, -1)
        self._count_ports(charge.node, charge.ports, -1)
        self.numa.pin(charge.node, charge.asks, -1)
        self.peers.drop(key)
        self._take_back(key)
        if (using := self._using.get(charge.node)) is not None and using.pop(key, None) is not None and not using:
            del self._using[charge.node]
        if not self._used[charge.node]:
            del self._used[charge.node]
        if charge.binding_uid and charge.counts:
            places = self.placed[charge.binding_uid]
            places[charge.node] -= 1
            if not places[charge.node]:
                del places[charge.node]
            if not places:
                del self.placed[charge.binding_uid]
            self.touched.add(charge.binding_uid)
        self._changed(grew=True, node=charge.node)

    def _hand_out(
        self,
        key: str,
        node: str,
        requests: Vector,
        wish: DeviceWish | None,
        numa: Asks,
        told: tuple[int, ...] = (),
        parts: Sequence[Part] = (),
        handed: str = "",
    ) -> None:
        """Devices for a pod: the reported ones, or chosen ones."""
        if (gpus := self.cards.hami.get(node)) is not None:
            amount, which = hami.given(handed, gpus)
            each = (amount, len(which)) if which else hami.asked(requests, gpus)
            self.cards.put(key, node, each, which or told, lambda _, free: chosen(free, *each))
            return
        memory = self.cards.memory(node)
        there = self._devices_on(node, self.cards.free(node))
        asks = koordinator.counted(requests) if there is not None else requests
        if wish is None:
            self.cards.put(key, node, asked(asks, memory), told, self._chooser(dict(asks), numa))
            return
        if there is not None and not told and not parts:
            found = fitting.find(there, requests, wish, numa)
            told, parts = ((), ()) if isinstance(found, str) else found
        self.cards.put(key, node, asked(asks, memory), told, lambda *_: ())
        self.koordinator.put(key, node, parts)

    def _devices_on(self, node: str, free: Sequence[int]) -> fitting.Node | None:
        there = self.koordinator.node(node, free, self.cards.memory(node))
        return there._replace(cells=self.numa.cells(node)) if there is not None else None

    def _take_back(self, key: str) -> None:
        self.cards.drop(key)
        self.koordinator.drop(key)

    def _keep_devices(self, node: str, task: Task, count: int) -> None:
        """Devices for so many pods that do not exist yet; a negative number gives them back."""
        if not _wants_devices(task.requests, task.joint):
            return
        asks = asks_of(task.aligned)
        alike = node, repr(sorted(task.requests.items())), repr((task.joint, asks))
        for number in range(self._kept[alike], self._kept[alike] + count):
            self._hand_out(f"{alike} {number}", node, task.requests, task.joint, asks)
        for number in range(self._kept[alike] + count, self._kept[alike]):
            self._take_back(f"{alike} {number}")
        self._kept[alike] += count
        if not self._kept[alike]:
            del self._kept[alike]

    def lacks_devices(self, pod: Pod) -> bool:
        """Whether it is assumed on a node that has not the devices that it wishes for."""
        key = pod.metadata.key
        return pod.joint is not None and not self.cards.of(key)[1] and not self.koordinator.of(key)

    def _chooser(self, requests: Vector, numa: Asks) -> Choose:
        """How the cards of a pod are chosen: whole ones that Koordinator reports by partition and topology; others by
        fragmentation where that is the member's scoring, else the fullest.
        """

        def choose(node: str, free: Sequence[int]) -> tuple[int, ...]:
            column = self._column.get(node)
            share = {**requests, SHARE: asked(requests, self.cards.memory(node))[0]} if MEMORY in requests else requests
            there = self._devices_on(node, free)
            if there is not None and asked(share)[0] == CARD:
                found = fitting.find(there, share, _ANY, numa)
                if not isinstance(found, str):
                    return found.gpus
            if self._arrays is not None and column is not None and "fragmentation" in self.scoring.terms:
                cpu, profile = self.free(node).get("cpu", 0), int(self._arrays.profile[column])
                return self.typical.chosen(share, cpu, np.array(free, np.int64), profile)
            return chosen(free, *asked(share))

        return choose

    def _put_peer(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        self.peers.put(meta.key, node, meta.namespace, meta.labels, pod.rules, leaving=pod.terminating)
        if self.peers.stirred:
            # A pod that another one wants beside it helps as well as one that goes.
            self.peers.stirred, self.grew = False, True

    def namespace_changed(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace has these labels, or is gone."""
        self.peers.set_namespace(name, labels)
        if self.peers.stirred:
            self.peers.stirred = False
            self._changed(grew=True, node="")

    def limits_changed(self, node: str, limits: dict[str, int]) -> None:
        """A node can attach so many volumes of these drivers, and any number of others."""
        if self._limits.get(node, {}) == limits:
            return
        self._limits.pop(node, None)
        if limits:
            self._limits[node] = limits
        self._arrays = None
        self._changed(grew=True)

    def scoring_changed(self, scoring: Scoring) -> None:
        """Other nodes are preferred from now on; what waits is not looked at again for that."""
        self.scoring = scoring
        if self._arrays is not None:
            self._arrays.scoring = scoring

    def measured(self, uses: Mapping[str, tuple[int, int]]) -> None:
        """So much cpu and memory of each of these nodes is in use now; of others that is not known any more."""
        self._measured = {
            name: (cpu + max(0, free.get("cpu", 0)), memory + max(0, free.get("memory", 0)))
            for name, (cpu, memory) in uses.items()
            if name in self._nodes
            for free in (self.free(name),)
        }
        if self._arrays is not None:
            self._arrays.measured = self._measured_at(self._arrays.names)

    def _measured_at(self, names: Sequence[str]) -> Ints | None:
        if not self._measured:
            return None
        return np.array([self._measured.get(name, (-1, -1)) for name in names], np.int64).reshape(-1, 2).T

    def numa_changed(self, node: str, told: NumaTopology | None, *, zones: bool) -> None:
        """One of the two objects about the NUMA nodes of a node says this, or is gone (`NumaBook.report`)."""
        if not self.numa.report(node, told, zones=zones):
            return
        if not self.numa:
            self._arrays = None
        self.disturbed.add(node)
        self._changed(grew=True, node=node)

    @property
    def aligns(self) -> bool:
        """Whether some node rejects pods that it can't align to its NUMA nodes."""
        return self.numa.aligns(self.usable)

    def _numa_nodes(self, away: Collection[str] = ()) -> tuple[Exact, ...]:
        return self.numa.exact(lambda node: self._column.get(node), self._giving_back(away))

    def _giving_back(self, away: Collection[str]) -> dict[str, list[tuple[str, Asks]]]:
        """Node -> (UID, use of NUMA nodes) of each of these pods there."""
        leaving: dict[str, list[tuple[str, Asks]]] = {}
        for key in away if self.numa else ():
            charge = self._charges.get(key)
            if charge is not None and charge.asks and charge.node in self.numa:
                leaving.setdefault(charge.node, []).append((charge.uid, charge.asks))
        return leaving

    def limited(self, driver: str) -> bool:
        """Whether some node has a limit of its volumes."""
        return any(driver in each for each in self._limits.values())

    def _attachments(self, away: Collection[str] = ()) -> tuple[Exact, ...]:
        if not self._limits:
            return ()

        def left() -> tuple[dict[int, dict[str, int]], dict[int, set[tuple[str, str]]]]:
            there: dict[str, set[tuple[str, str]]] = {}
            for node, driver, handle in self.attached(away):
                there.setdefault(node, set()).add((driver, handle))
            found: dict[int, dict[str, int]] = {}
            for node, limits in self._limits.items():
                if node in self._column:
                    used = Counter(driver for driver, _ in there.get(node, ()))
                    found[self._column[node]] = {driver: most - used[driver] for driver, most in limits.items()}
            return found, {self._column[node]: each for node, each in there.items() if node in self._column}

        return (Attachments(left),)

    def _count_ports(self, node: str, wanted: list[HostPort], times: int) -> None:
        if wanted:
            vector.add_each(self._ports, {node: Counter(wanted)}, times)

    def _changed(self, *, grew: bool, node: str = "") -> None:
        """Room changed on one node; without a name, nodes or domains themselves did."""
        self.version += 1
        self.grew = self.grew or grew
        if node:
            self.numa.outdate(node)
            self._stale.add(node)
            self.refilled.add(node)
        else:
            self.layout += 1

    def known(self, name: str) -> Node | None:
        """The node of that name, used or not; None where there is none."""
        return self._nodes.get(name) or self._left_out.get(name)

    def hyper_node(self, name: str) -> HyperNode | None:
        """The domain of that name as its object says; None where there is none."""
        return self._hyper_nodes.get(name)

    # -- views -------------------------------------------------------------------------------------------------------

    def use_nodes(self, selected: Callable[[Node], bool]) -> None:
        """Use these nodes and no others from now on."""
        self._selected = selected
        everything = [*self._nodes.values(), *self._left_out.values()]
        for node in everything:
            self.node_changed(node, node)

    def select_by(self, labels: Iterable[str]) -> None:
        """Pods select nodes by these labels: keep them, even where every node has a value of its own."""
        if new := set(labels) - self._wanted_labels:
            self._wanted_labels |= new
            self._arrays = None

    def ready_nodes(self) -> list[Node]:
        """Nodes that count, in order of their names: ready ones, in no domain that is lost."""
        return [self._nodes[name] for name in sorted(self._nodes) if self.usable(name)]

    def lost_nodes(self) -> list[str]:
        """Names of the nodes that do not count, in order."""
        return [name for name in sorted(self._nodes) if not self.usable(name)]

    def usable(self, name: str) -> bool:
        """Whether the node counts."""
        node = self._nodes.get(name)
        return node is not None and node.ready and name not in self.lost

    @property
    def lost(self) -> frozenset[str]:
        """Nodes in domains that `atoll-topology` says are lost, ready or not."""
        self.topology()
        return self._lost

    @property
    def size(self) -> int:
        """Nodes that there are, ready or not."""
        return len(self._nodes)

    def total(self) -> Vector:
        """What all nodes together offer."""
        return vector.total(self._allocatable.values())

    def allocatable(self, node: str) -> Vector:
        """What the node offers; do not change it."""
        return self._allocatable[node]

    def free(self, node: str, back: Mapping[str, int] | None = None, cards: Sequence[int] | None = None) -> Vector:
        """Amounts left on a node, in integer units; negative where others overbooked it.

        Args:
            node: its name.
            back: of pods that count as gone.
            cards: free thousandths of each of its GPUs without them.
        """
        used = self._used.get(node, {})
        if back:
            used = dict(used)
            vector.add(used, back, -1)
        if devices := self.devices.used(node):
            used = {
                # Pods that ask without a claim hold devices by one all the same.
                name: max(used.get(name, 0), devices.get(name, 0))
                if self.devices.class_of(name)
                else used.get(name, 0) + devices.get(name, 0)
                for name in used.keys() | devices.keys()
            }
        found = {
            name: max(amount - used.get(name, 0), -MOST_ON_NODE) for name, amount in self._allocatable[node].items()
        }
        if self.koordinator.gpus(node):
            koordinator.left(found, self.cards.free(node) if cards is None else cards)
        elif (gpus := self.cards.hami.get(node)) is not None:
            most = hami.left(gpus, self.cards.free(node) if cards is None else cards)
            # Pods on a card that is ill take nothing of the others.
            found |= most | {hami.WHOLE: min(found.get(hami.WHOLE, 0), most[hami.WHOLE])}
        return found

    def node(self, name: str) -> Node | None:
        """The node of that name; None where there is none."""
        return self._nodes.get(name)

    def overbooked(self, node: str, task: Task) -> bool:
        """Whether more is taken than the node has of something that pods of the task, which are there, ask for; what
        waits for others to leave does not count.
        """
        have, used, awaited = (each.get(node, {}) for each in (self._allocatable, self._used, self._awaited))
        if any(used.get(name, 0) - awaited.get(name, 0) > have.get(name, 0) for name in task.requests):
            return True
        others = Counter(self._ports.get(node, {}))
        others.subtract(task.ports)
        return ports.conflict(task.ports, +others)

    def topology(self) -> tuple[Tree, Mapping[str, int]]:
        """The domains of the tree without a name, and each node's lowest one; what contradicts the rest is left out."""
        built = self._built()
        return built.tree, built.lowest

    def other_trees(self) -> Mapping[str, Grown]:
        """The trees that have a name."""
        return self._built().others()

    def _built(self) -> Built:
        if self._topology is None:
            self._topology = self._work_out_topology()
        return self._topology

    def _work_out_topology(self) -> Built:
        labels = {name: node.metadata.labels for name, node in self._nodes.items()}
        found = topology.build([domain.body() for domain in self._hyper_nodes.values()], labels)
        for name, problem in found.problems.items():
            if self.topology_problems.get(name) != problem:
                log.warning("part of a HyperNode is left out", hyper_node=name, problem=problem)
        self.topology_problems = found.problems
        lost: set[str] = set()
        for grown in found.trees.values():
            tree = grown.tree
            gone = {number for number, each in enumerate(tree.domains) if self._hyper_nodes[each.name].lost}
            if gone:
                lost |= {node for node, low in grown.lowest.items() if not gone.isdisjoint(tree.ancestors(low))}
        self._lost = frozenset(lost)
        return found

    def nodes(self) -> Nodes:
        """The arrays that placing works on; valid until the next event, do not change them."""
        if self._arrays is not None:
            for name in self._stale:
                column = self._column.get(name)
                if column is None:
                    continue
                self._host_ports.set(column, self._ports.get(name, ()))
                if self.cards:
                    free = self.cards.free(name)
                    self._cards.free[column, : len(free)] = free
                if name in self.koordinator.reported:
                    self._cards.taken[column] = self.koordinator.taken(name).copy()
                self.singles.changed(column)
                if not self._arrays.set_free(column, self.free(name)):
                    self._arrays = None
                    break
            self._stale.clear()
        if self._arrays is None:
            self._arrays = self._build()
            self.singles.begin(self._arrays)
            self._stale.clear()
        if self._limits or self.numa:
            # Attachments of pods change with their claims; their NUMA nodes with other pods.
            self._arrays.exact = (
                self._host_ports,
                self._cards,
                self._of_devices(self._arrays.names),
                *self._attachments(),
                *self._numa_nodes(),
            )
        return self._arrays

    def nodes_without(self, gone: Gone) -> Nodes:
        """As `nodes`, with the capacity of these pods free as well; a copy.

        Of a task that keeps some, the highest indices go, as where a workload shrinks; of pods without an
        index, the last by name.
        """
        self.nodes()
        unnumbered: Counter[tuple[str, str]] = Counter()
        away: list[str] = []
        for key in sorted(self._charges):
            charge = self._charges[key]
            if charge.binding_uid not in gone or charge.node not in self._column:
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

    def nodes_but(self, away: Collection[str]) -> Nodes:
        """As `nodes`, with the capacity of the pods of these keys free; a copy."""
        nodes = self.nodes().copy()
        left = {name: Counter(taken) for name, taken in self._ports.items()}
        back: dict[str, Vector] = {}
        for key in away:
            charge = self._charges.get(key)
            if charge is None or charge.node not in self._column:
                continue
            nodes.free[:, self._column[charge.node]] += nodes.column(charge.requests)
            if self.koordinator.gpus(charge.node) or charge.node in self.cards.hami:
                vector.add(back.setdefault(charge.node, {}), charge.requests)
            if charge.ports:
                left[charge.node].subtract(charge.ports)
        taken = {self._column[name]: +each for name, each in left.items() if name in self._column}
        cards = self._cards_without(away)
        for name, amounts in back.items():
            column = self._column[name]
            nodes.free[:, column] = nodes.column(self.free(name, amounts, cards.free[column].tolist()))
        nodes.exact = (
            HostPorts(taken),
            cards,
            self._of_devices(nodes.names, away),
            *self._attachments(away),
            *self._numa_nodes(away),
        )
        nodes.company = Company(self.peers.without(set(away)), nodes.names)
        return nodes

    def _cards_without(self, away: Collection[str]) -> Cards:
        """The cards of all nodes, as if the pods of these keys were gone."""
        found, leaving = self._cards.copy(), self._giving_back(away)
        if leaving:
            names = {column: name for name, column in self._column.items()}
            found.cells = lambda column: self.numa.cells(names[column], leaving.get(names[column], ()))
        for key in away:
            charge = self._charges.get(key)
            if charge is not None and charge.node in self._column:
                column = self._column[charge.node]
                amount, which = self.cards.of(key)
                found.free[column, list(which)] += amount
                if parts := self.koordinator.of(key):
                    fitting.hold(found.taken[column], parts, -1)
        return found

    def _of_devices(self, names: Sequence[str], away: Collection[str] = ()) -> Devices:
        """The devices of these nodes, as if the pods of these keys were gone."""
        gone = frozenset(away)
        return Devices(self.devices, names, lambda: self.devices.without(gone) if gone else self.devices.taken)

    def koordinator_changed(self, node: str, devices: ReportedDevices, table: GpuPartitions | None = None) -> None:
        """Koordinator reports these devices of a node; see `KoordinatorBook.change`."""
        if not self.koordinator.change(node, devices, table) or node not in self._nodes:
            return
        self._offer(self._nodes[node])
        for key, pod in self._using.get(node, {}).items():
            if not self.cards.of(key)[1] and not self.koordinator.of(key):
                self._take_back(key)
                self._hand_out(key, node, pod.requests, pod.joint, asks_of(pod.aligned), pod.cards, pod.parts)
        self._devices_published({node})

    def notes_of(self, pod: Pod) -> dict[str, str]:
        """Annotations that tell its node which devices a pod gets, once it is assumed there."""
        part, which = self.cards.of(pod.metadata.key)
        parts = self.koordinator.of(pod.metadata.key)
        notes = {keys.GPU_CARDS: ",".join(map(str, which))} if which else {}
        if (there := self.koordinator.reported.get(self.node_of(pod))) and (which or parts):
            notes[keys.KOORDINATOR_DEVICES] = koordinator.allocated(there.devices, which, part, pod.requests, parts)
        # Who binds a pod that waits at our gate chooses its GPUs as well.
        elif which and not pod.held and (gpus := self.cards.hami.get(self.node_of(pod))):
            notes |= hami.allocated(gpus, which, pod.gpus, self.node_of(pod))
        return notes

    def _labels_of(self, node: str) -> Mapping[str, str] | None:
        found = self._nodes.get(node)
        return found.metadata.labels if found is not None else None

    def _devices_changed(self, nodes: Collection[str], grew: bool) -> None:
        """Free devices of these nodes changed."""
        self.version += 1
        self.grew = self.grew or grew
        for node in nodes:
            self._changed(grew=grew, node=node)

    def _devices_published(self, nodes: Collection[str] | None) -> None:
        """The devices of these nodes are others, or of all nodes."""
        for name in self._nodes if nodes is None else nodes & self._nodes.keys():
            self._offer(self._nodes[name])
        self.disturbed.update(self._nodes if nodes is None else nodes)
        self._arrays = None
        self._changed(grew=True)

    def _offer(self, node: Node) -> None:
        offers = quantity.capacity(node.status.allocatable) | self.devices.offered(node.metadata.name)
        offers |= gpu_shares.memory_offered(offers, node.metadata.labels)
        gpus = self.koordinator.gpus(node.metadata.name)
        if gpus:
            offers |= koordinator.offered(self.koordinator.reported[node.metadata.name].devices)
        of_hami = None if gpus or SHARE in offers else self._registered(node)
        if of_hami is not None:
            offers = hami.offered(of_hami) | offers
            self._register(node.metadata.name, of_hami)
        else:
            self.cards.hami.pop(node.metadata.name, None)
        self._allocatable[node.metadata.name] = {name: min(each, MOST_ON_NODE) for name, each in offers.items()}
        if of_hami is None:
            self.cards.offers(node.metadata.name, self._allocatable[node.metadata.name], gpus)

    def _registered(self, node: Node) -> Gpus | None:
        """GPUs of a node that HAMi registers and pods may have; None where it registers none."""
        notes = node.metadata.annotations
        found = hami.registered(notes.get(hami.REGISTER, "")) if self._reads_hami else {}
        return hami.usable(found, notes.get(hami.CORDONED, "")) if found else None

    def _register(self, node: str, gpus: Gpus) -> None:
        """HAMi registers these GPUs of a node, in any order; pods keep theirs by UUID."""
        before = self.cards.hami.get(node)
        if before == gpus:
            return
        numbers = {each.uuid: at for at, each in gpus.items()}
        had = {key: self.cards.of(key)[1] for key in self._using.get(node, {})}
        self.cards.hami[node] = gpus
        self.cards.offers(node, {SHARE: (max(gpus, default=-1) + 1) * CARD}, gpus)
        for key, pod in self._using.get(node, {}).items():
            uuids = [before[card].uuid for card in had[key] if card in before] if before else []
            told = tuple(numbers[each] for each in uuids if each in numbers)
            self._take_back(key)
            self._hand_out(key, node, pod.requests, pod.joint, asks_of(pod.aligned), told, (), pod.handed)

    def column_of(self, node: str) -> int | None:
        """Of a node in `nodes`; None where it does not count."""
        return self._column.get(node)

    def leaving(self) -> list[str]:
        """Keys of the pods on nodes that were deleted."""
        return [key for key, charge in self._charges.items() if charge.leaving]

    def uid_on(self, key: str) -> str | None:
        """UID of the pod of this key that takes something; None where none does."""
        charge = self._charges.get(key)
        return charge.uid if charge is not None else None

    def requests_of(self, key: str) -> tuple[str, Vector]:
        """(node, what the pod of this key takes there)."""
        charge = self._charges[key]
        return charge.node, charge.requests

    def _build(self) -> Nodes:
        nodes = self.ready_nodes()
        names = [node.metadata.name for node in nodes]
        tree, lowest = self.topology()
        unique = unique_labels(nodes) - self._wanted_labels
        numbers: dict[str, int] = {}
        profiles: list[Profile] = []
        profile = []
        for node in nodes:
            labels = {key: value for key, value in node.metadata.labels.items() if key not in unique}
            taints = tuple(node.taints)
            # The text of both is the cheapest total key; insertion order of labels is sorted out.
            text = f"{sorted(labels.items())}{taints}"
            if text not in numbers:
                numbers[text] = len(profiles)
                profiles.append(Profile(labels, taints))
            profile.append(numbers[text])
        self._column = {name: column for column, name in enumerate(names)}
        made = Nodes(
            tree,
            [lowest.get(name, NO_DOMAIN) for name in names],
            names,
            profiles,
            profile,
            [self.free(n) for n in names],
            {
                name: (grown.tree, [grown.lowest.get(node, NO_DOMAIN) for node in names])
                for name, grown in self.other_trees().items()
            },
        )
        taken = {self._column[name]: each for name, each in self._ports.items() if name in self._column}
        self._host_ports = HostPorts(taken)
        reported = {
            self._column[name]: each for name, each in self.koordinator.reported.items() if name in self._column
        }
        self._cards = Cards(
            self.cards.matrix(names),
            np.array([*map(self.cards.memory, names)], np.int64),
            reported,
            {column: self.koordinator.taken(names[column]).copy() for column in reported},
            self.koordinator.counts,
            lambda column: self.numa.cells(names[column]),
            {self._column[name]: gpus for name, gpus in self.cards.hami.items() if name in self._column},
        )
        made.exact = (self._host_ports, self._cards, self._of_devices(names))
        made.typical = self.typical if self.cards else None
        made.company = Company(self.peers, names)
        made.capacity = made.matrix([self._allocatable[name] for name in names])
        made.scoring, made.measured = self.scoring, self._measured_at(names)
        return made


_OF_HAMI = (hami.REGISTER, hami.CORDONED)


def _wants_devices(requests: Vector, wish: DeviceWish | None) -> bool:
    return wish is not None or SHARE in koordinator.counted(requests)


def _plugged(node: Node | None) -> set[str]:
    """Resources that a node has by device plug-ins."""
    offers = node.status.allocatable if node is not None else {}
    return {name for name, each in offers.items() if quantity.is_device(name) and str(each) != "0"}


def _amounts(task: Task) -> Vector:
    """Requests without devices by class, where claims are known: `DeviceBook` counts these."""
    if not task.claims:
        return task.requests
    return {name: each for name, each in task.requests.items() if not name.endswith(CLASS_SUFFIX)}


def _index(pod: Pod) -> int | None:
    return numbers.whole(pod.metadata.labels.get(keys.TASK_INDEX))


def unique_labels(nodes: Iterable[Node]) -> set[str]:
    """Label keys that have as many values as there are nodes with them, and more than one."""
    values: dict[str, set[str]] = {}
    carriers: Counter[str] = Counter()
    for node in nodes:
        for key, value in node.metadata.labels.items():
            values.setdefault(key, set()).add(value)
            carriers[key] += 1
    return {key for key, found in values.items() if len(found) == carriers[key] > 1}


def _same_domain(old: HyperNode, new: HyperNode) -> bool:
    """Whether nothing that placing reads differs: status has counts that change all the time."""
    return (old.spec, old.metadata.labels, old.lost) == (new.spec, new.metadata.labels, new.lost)


def _same(old: Node, new: Node) -> bool:
    """Whether nothing that placing reads differs: heartbeats change nodes all the time."""
    return (
        old.ready == new.ready
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and old.metadata.labels == new.metadata.labels
        and all(old.metadata.annotations.get(name) == new.metadata.annotations.get(name) for name in _OF_HAMI)
        and old.metadata.uid == new.metadata.uid
    )
