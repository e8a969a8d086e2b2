"""Devices that Koordinator reports, and which NICs and FPGAs of them each pod has; `CardBook` has the GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from atoll.fit.koordinator import Node, Reported, Taken, hold
from atoll.model import gpu_partitions
from atoll.model.gpu_partitions import GpuPartitions
from atoll.model.koordinator import Devices, Part


@dataclass
class KoordinatorBook:
    """Of all nodes with a `Device` object."""

    reported: dict[str, Reported] = field(default_factory=dict)
    #: how many pods fit on nodes that are alike; see `Cards`
    counts: dict[object, int] = field(default_factory=dict)
    #: node -> its devices, and its own table of partitions
    _read: dict[str, tuple[Devices, GpuPartitions | None]] = field(default_factory=dict)
    #: node -> partitions by its labels; of nodes with some
    _by_labels: dict[str, GpuPartitions] = field(default_factory=dict)
    #: node -> what of its devices that are no GPUs is taken
    _taken: dict[str, Taken] = field(default_factory=dict)
    #: pod key -> its node and its parts
    _of_pods: dict[str, tuple[str, Sequence[Part]]] = field(default_factory=dict)
    #: devices without their UUIDs, and partitions -> a number
    _kinds: dict[str, int] = field(default_factory=dict)

    def change(self, node: str, devices: Devices, table: GpuPartitions | None = None) -> bool:
        """Koordinator reports these of a node, empty for none; whether they are others.

        Args:
            node: its name.
            devices: of it.
            table: its partitions of GPUs; None for a report without them.
        """
        self._read[node] = devices, table
        if not devices:
            del self._read[node]
        return self._report(node)

    def labelled(self, node: str, labels: Mapping[str, str]) -> None:
        """A node has these labels, none where it is gone."""
        found = gpu_partitions.of_node(labels)
        self._by_labels.pop(node, None)
        if found != gpu_partitions.NONE:
            self._by_labels[node] = found
        self._report(node)

    def _report(self, node: str) -> bool:
        known = self.reported.pop(node, None)
        if node in self._read:
            devices, table = self._read[node]
            partitions = self._by_labels.get(node, gpu_partitions.NONE) if table is None else table
            alike = {kind: {at: each._replace(uuid="") for at, each in some.items()} for kind, some in devices.items()}
            number = self._kinds.setdefault(repr((alike, partitions)), len(self._kinds))
            self.reported[node] = Reported(devices, number, partitions)
        return known != self.reported.get(node)

    def gpus(self, node: str) -> Mapping[int, object]:
        """GPUs that it reports of a node, by minor."""
        found = self.reported.get(node)
        return found.devices.get("gpu", {}) if found is not None else {}

    def taken(self, node: str) -> Taken:
        """What of its devices is taken there; do not change it."""
        return self._taken.get(node, Taken())

    def put(self, key: str, node: str, parts: Sequence[Part]) -> None:
        """A pod has these there."""
        if parts:
            self._of_pods[key] = node, parts
            hold(self._taken.setdefault(node, Taken()), parts)

    def drop(self, key: str) -> None:
        """The pod has gone."""
        node, parts = self._of_pods.pop(key, ("", ()))
        if parts:
            hold(self._taken[node], parts, -1)

    def of(self, key: str) -> Sequence[Part]:
        """What a pod has."""
        return self._of_pods.get(key, ("", ()))[1]

    def node(self, name: str, free: Sequence[int], memory: int) -> Node | None:
        """A node with free thousandths of its GPUs, for a pod; None for one that it does not report of."""
        found = self.reported.get(name)
        return Node(found.devices, free, self.taken(name), memory, found.partitions) if found is not None else None
