"""GPU partitions of NVSwitch boxes: sets of GPUs that Koordinator gives together, by size, from a table of the node.

The table is an annotation of the `Device` of a node; nodes whose label names a Hopper model have a built-in one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from atoll.model import quantity
from atoll.model.cards import MOST_CARDS
from atoll.model.gang import GpuPartitionSpec

TABLE: Final = "scheduling.koordinator.sh/gpu-partitions"
"""Annotation of a `Device`: size -> its partitions."""
POLICY: Final = "node.koordinator.sh/gpu-partition-policy"
"""Label of a node, and of its `Device`."""
MODEL: Final = "node.koordinator.sh/gpu-model"
VENDOR: Final = "node.koordinator.sh/gpu-vendor"
_HONOR: Final = "Honor"
_HOPPER: Final = ("H100", "H800", "H20")
_MOST: Final = 256
"""Partitions of a node, as many as eight GPUs have; more are not used."""


class GpuPartition(NamedTuple):
    """GPUs that are given together."""

    minors: tuple[int, ...]
    """Sorted."""
    bits: int
    """The same: bit 0 for GPU 0."""
    score: int = 1
    """Of a size the higher one is preferred."""
    bandwidth: int = 0
    """Bytes per second of its ring; 0 where the table does not tell."""


class GpuPartitions(NamedTuple):
    """The table of a node."""

    by_size: Mapping[int, tuple[GpuPartition, ...]] = {}
    """GPUs of a pod -> partitions; the highest score first, else in the order of the table."""
    honoured: bool = False
    """Whether whole GPUs are given by partition alone, else first."""

    def ordered(self, number: int, idle: Collection[int], spec: GpuPartitionSpec | None) -> list[GpuPartition]:
        """Partitions with so many GPUs of which all are idle, the preferred one first.

        A higher score comes first; of one score the partition that leaves larger ones free, as in Koordinator, which
        sorts scores from the lowest, though; then the one with more bandwidth.

        Args:
            number: GPUs.
            idle: GPUs of the node that are wholly free.
            spec: of the pod.
        """
        some, free = self.by_size.get(number, ()), _bits(idle)
        if spec is not None and spec.restricted:
            some = tuple(each for each in some if each.score == some[0].score)
        larger = [
            [each for each in self.by_size[size] if each.bits & free == each.bits]
            for size in sorted(self.by_size, reverse=True)
            if size >= number
        ]

        def rank(partition: GpuPartition) -> tuple[int, list[int], int]:
            left = [sum(each.score for each in some if not each.bits & partition.bits) for some in larger]
            return partition.score, left, partition.bandwidth

        least = spec.bandwidth if spec is not None else 0
        usable = [each for each in some if each.bits & free == each.bits and each.bandwidth >= least]
        return sorted(usable, key=rank, reverse=True)


NONE: Final = GpuPartitions()


def _bits(minors: Iterable[int]) -> int:
    return sum(1 << minor for minor in set(minors))


def _of(minors: Iterable[int], score: int = 1, bandwidth: int = 0) -> GpuPartition:
    found = tuple(sorted(set(minors)))
    return GpuPartition(found, _bits(found), score, bandwidth)


def _built_in() -> dict[int, tuple[GpuPartition, ...]]:
    """Eight GPUs in halves, in halves again."""
    return {size: tuple(_of(range(at, at + size)) for at in range(0, 8, size)) for size in (1, 2, 4, 8)}


_TABLE: Final = _built_in()


def of_node(labels: Mapping[str, str]) -> GpuPartitions:
    """Of a node whose `Device` has no table."""
    known = labels.get(MODEL) in _HOPPER and labels.get(VENDOR, "") in ("", "nvidia")
    return GpuPartitions(_TABLE if known else {}, labels.get(POLICY) == _HONOR)


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    minors: list[int]
    ring_bus_bandwidth: Any = 0
    allocation_score: int = 0


_table = msgspec.json.Decoder(dict[int, list[_Entry]])


def of_device(annotations: Mapping[str, str], labels: Mapping[str, str]) -> GpuPartitions | None:
    """Of the metadata of a `Device`; None where it has no table that can be read."""
    try:
        read = _table.decode(annotations.get(TABLE, ""))
    except msgspec.MsgspecError:
        return None
    left, found = _MOST, dict[int, tuple[GpuPartition, ...]]()
    for size, entries in sorted(read.items()):
        some = [
            _of(each.minors, max(each.allocation_score, 1), _bandwidth(each.ring_bus_bandwidth))
            for each in entries[:left]
            if len(set(each.minors)) == size and all(0 <= minor < MOST_CARDS for minor in each.minors)
        ]
        if some:
            found[size], left = tuple(sorted(some, key=lambda each: -each.score)), left - len(some)
    return GpuPartitions(found, labels.get(POLICY) == _HONOR)


def _bandwidth(text: Any) -> int:
    try:
        return int(quantity.parse(text))
    except (quantity.QuantityError, TypeError):
        return 0
