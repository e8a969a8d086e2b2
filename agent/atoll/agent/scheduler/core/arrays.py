"""Free capacity as arrays over all usable nodes, which placing works on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from atoll.agent.objects import Node
from atoll.agent.scheduler.core.amounts import Charge, NodeAmounts
from atoll.agent.scheduler.core.device_book import DeviceBook
from atoll.agent.scheduler.core.fleet import MemberNodes
from atoll.agent.scheduler.core.gpu_book import GpuBook
from atoll.agent.scheduler.core.numa_book import NumaBook
from atoll.agent.scheduler.core.volume_limits import VolumeLimits
from atoll.fit import Nodes, Profile
from atoll.fit.company import Company
from atoll.fit.constraints import Cards, Devices, HostPorts
from atoll.fit.peers import Peers
from atoll.fit.placement import Ints
from atoll.fit.singles import Singles
from atoll.model import vector
from atoll.model.numa import Asks
from atoll.model.scoring import Scoring
from atoll.model.topology import NO_DOMAIN
from atoll.model.vector import Vector


class Arrays:
    """Built at the first use and after `drop`; columns follow `outdate`."""

    def __init__(
        self,
        *,
        fleet: MemberNodes,
        amounts: NodeAmounts,
        peers: Peers,
        gpus: GpuBook,
        devices: DeviceBook,
        numa: NumaBook,
        volumes: VolumeLimits,
    ) -> None:
        self._fleet, self._amounts, self._peers = fleet, amounts, peers
        self._gpus, self._devices, self._numa, self._volumes = gpus, devices, numa, volumes
        #: None: to be built anew
        self._nodes: Nodes | None = None
        self._column: dict[str, int] = {}
        #: of the arrays; valid right after `nodes`
        self.singles = Singles()
        self._host_ports = HostPorts()
        self._cards = Cards(np.zeros((0, 0), np.int64), np.zeros(0, np.int64))
        #: nodes whose column is out of date; meaningless while there are no arrays
        self._stale: set[str] = set()
        #: label keys that some pod selects by, though they differ on every node
        self._wanted_labels: set[str] = set()
        #: which nodes are preferred, for gangs without a preference of their own
        self.scoring = Scoring()
        #: whether some gang that was planned prefers nodes by their use
        self.use_matters = False
        #: node -> (cpu, memory) in use when it was measured and free then, together
        self._measured: dict[str, tuple[int, int]] = {}

    # -- changes -----------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Nodes, domains or constraints are different: build all anew."""
        self._nodes = None

    def outdate(self, node: str) -> None:
        """Free amounts of one node are different."""
        self._stale.add(node)

    def select_by(self, labels: Iterable[str]) -> None:
        """Pods select nodes by these labels: keep them, even where every node has a value of its own."""
        if new := set(labels) - self._wanted_labels:
            self._wanted_labels |= new
            self._nodes = None

    def scoring_changed(self, scoring: Scoring) -> None:
        """Prefer other nodes from now on; waiting gangs are not looked at again for that."""
        self.scoring = scoring
        if self._nodes is not None:
            self._nodes.scoring = scoring

    def measured(self, uses: Mapping[str, tuple[int, int]]) -> None:
        """So much cpu and memory of each of these nodes is in use now; the use of others is unknown."""
        self._measured = {
            name: (cpu + max(0, free.get("cpu", 0)), memory + max(0, free.get("memory", 0)))
            for name, (cpu, memory) in uses.items()
            if self._fleet.node(name) is not None
            for free in (self._amounts.free(name),)
        }
        if self._nodes is not None:
            self._nodes.measured = self._measured_at(self._nodes.names)

    def _measured_at(self, names: Sequence[str]) -> Ints | None:
        if not self._measured:
            return None
        return np.array([self._measured.get(name, (-1, -1)) for name in names], np.int64).reshape(-1, 2).T

    # -- views -------------------------------------------------------------------------------------------------------

    def column_of(self, node: str) -> int | None:
        """Of a node in `nodes`; None for one that is not usable."""
        return self._column.get(node)

    def fragments(self, node: str) -> tuple[int, int] | None:
        """(free milli-CPU, index of its profile) of a node, where fragmentation is the member's scoring."""
        column = self._column.get(node)
        if self._nodes is None or column is None or "fragmentation" not in self.scoring.terms:
            return None
        return self._amounts.free(node).get("cpu", 0), int(self._nodes.profile[column])

    def nodes(self) -> Nodes:
        """The arrays; valid until the next event, do not change them."""
        nodes = self._refreshed() if self._nodes is not None else None
        if nodes is None:
            nodes = self._build()
            self.singles.begin(nodes)
        self._nodes = nodes
        self._stale.clear()
        if self._volumes or self._numa:
            # Attachments of pods change with their claims; their NUMA nodes with other pods.
            nodes.exact = (
                self._host_ports,
                self._cards,
                self._of_devices(nodes.names),
                *self._volumes.exact(self._column, ()),
                *self._numa.exact(self._column, {}),
            )
        return nodes

    def _refreshed(self) -> Nodes | None:
        """The arrays with all columns up to date; None where they do not do any more."""
        nodes = self._nodes
        for name in self._stale:
            column = self._column.get(name)
            if column is None or nodes is None:
                continue
            self._host_ports.set(column, self._amounts.ports(name))
            self._gpus.refresh(self._cards, name, column)
            self.singles.changed(column)
            if not nodes.set_free(column, self._amounts.free(name)):
                return None
        return nodes

    def nodes_but(self, away: Mapping[str, Charge | None]) -> Nodes:
        """As `nodes`, with the capacity of these pods free; a copy.

        Args:
            away: key of each pod -> its charge, None for one that takes nothing.
        """
        nodes = self.nodes().copy()
        there = [(key, each) for key, each in away.items() if each is not None and each.node in self._column]
        back: dict[str, Vector] = {}
        leaving: dict[str, list[tuple[str, Asks]]] = {}
        for _, charge in there:
            nodes.free[:, self._column[charge.node]] += nodes.column(charge.requests)
            if self._gpus.manages(charge.node):
                vector.add(back.setdefault(charge.node, {}), charge.requests)
            if charge.asks and charge.node in self._numa:
                leaving.setdefault(charge.node, []).append((charge.uid, charge.asks))
        cards = self._gpus.without(
            self._cards,
            [(key, self._column[each.node]) for key, each in there],
        )
        if leaving:
            cards.cells = lambda column: self._numa.cells(nodes.names[column], leaving.get(nodes.names[column], ()))
        for name, amounts in back.items():
            column = self._column[name]
            nodes.free[:, column] = nodes.column(self._amounts.free(name, amounts, cards.free[column].tolist()))
        left = self._amounts.ports_without(each for _, each in there)
        nodes.exact = (
            HostPorts({self._column[name]: each for name, each in left.items() if name in self._column}),
            cards,
            self._of_devices(nodes.names, away),
            *self._volumes.exact(self._column, away),
            *self._numa.exact(self._column, leaving),
        )
        nodes.company = Company(self._peers.without(set(away)), nodes.names)
        return nodes

    def _of_devices(self, names: Sequence[str], away: Collection[str] = ()) -> Devices:
        """The devices of these nodes, as if the pods of these keys were gone."""
        gone = frozenset(away)
        return Devices(self._devices, names, lambda: self._devices.without(gone) if gone else self._devices.taken)

    def _build(self) -> Nodes:
        nodes = self._fleet.ready()
        names = [node.metadata.name for node in nodes]
        tree, lowest = self._fleet.topology()
        profiles, profile = _profiles(nodes, unique_labels(nodes) - self._wanted_labels)
        self._column = {name: column for column, name in enumerate(names)}
        made = Nodes(
            tree,
            [lowest.get(name, NO_DOMAIN) for name in names],
            names,
            profiles,
            profile,
            [self._amounts.free(name) for name in names],
            {
                name: (grown.tree, [grown.lowest.get(node, NO_DOMAIN) for node in names])
                for name, grown in self._fleet.other_trees().items()
            },
        )
        self._host_ports = HostPorts({column: self._amounts.ports(name) for name, column in self._column.items()})
        self._cards = self._gpus.exact(self._column)
        made.exact = (self._host_ports, self._cards, self._of_devices(names))
        made.typical = self._gpus.typical if self._gpus.cards else None
        made.company = Company(self._peers, names)
        made.capacity = made.matrix([self._amounts.offered(name) for name in names])
        made.scoring, made.measured = self.scoring, self._measured_at(names)
        return made


def _profiles(nodes: Iterable[Node], without: Collection[str]) -> tuple[list[Profile], list[int]]:
    """(labels and taints that occur, the index of each node's), but for labels with these keys."""
    numbers: dict[str, int] = {}
    profiles: list[Profile] = []
    of_nodes = []
    for node in nodes:
        labels = {key: value for key, value in node.metadata.labels.items() if key not in without}
        taints = tuple(node.taints)
        # The text of both is the cheapest total key; insertion order of labels is sorted out.
        text = f"{sorted(labels.items())}{taints}"
        if text not in numbers:
            numbers[text] = len(profiles)
            profiles.append(Profile(labels, taints))
        of_nodes.append(numbers[text])
    return profiles, of_nodes


def unique_labels(nodes: Iterable[Node]) -> set[str]:
    """Label keys that have as many values as there are nodes with them, and more than one."""
    values: dict[str, set[str]] = {}
    carriers: Counter[str] = Counter()
    for node in nodes:
        for key, value in node.metadata.labels.items():
            values.setdefault(key, set()).add(value)
            carriers[key] += 1
    return {key for key, found in values.items() if len(found) == carriers[key] > 1}
