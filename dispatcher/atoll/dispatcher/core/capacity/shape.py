"""Shapes: what makes pending workloads interchangeable, each kept once however many ask for the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.quota.namespaces import Charges, by_scopes
from atoll.model import hami, selectors
from atoll.model.cards import SHARE
from atoll.model.gang import Gang, TopologyWish
from atoll.model.vector import Vector

_encoder = msgspec.json.Encoder(order="sorted")


@dataclass(slots=True, eq=False)
class Shape:
    """Everything about a workload that decides where it fits, and the answers that are worth keeping."""

    key: bytes
    """Equal keys, equal verdicts."""
    gang: Gang
    """Of the first workload seen; names, queue and priority of it mean nothing here."""
    affinities: tuple[Mapping[str, Any], ...]
    tolerations: tuple[Mapping[str, Any], ...]
    divided: bool
    least_clusters: int
    most_clusters: int | None
    sharing: Mapping[str, Any] | None
    """As `BindingView.sharing`."""
    others: tuple[Shape, ...]
    """With the other flavors that it may get, the first to be tried first; it waits with this one."""
    floor: list[int] = field(init=False)
    """Pods per task that must start together."""
    full: list[int] = field(init=False)
    """Pods per task."""
    least: Gang = field(init=False)
    """The gang with as many pods as it must start with."""
    request: Vector = field(init=False)
    """Amount to admit it with."""
    charges: Charges = field(init=False)
    """Quota that its namespace needs for that."""
    near: bool = field(init=False)
    """Whether some members are better than others because its pods are nearer each other there."""
    selects: frozenset[str] = field(init=False)
    """Keys of labels, and fields, by which its pods choose nodes."""
    special: bool = field(init=False)
    """Whether there may be members of which the figures leave out something else that it asks for."""
    whole_gpus: bool = field(init=False)
    """Whether it asks for GPUs under the name that HAMi's vGPUs have as well."""
    enrolled: int = 0
    """Number of its enrolments in the table."""
    rows: tuple[int, ...] = ()
    """Row of each task in the fit table while it is enrolled."""
    wakers: tuple[Any, ...] = ()
    """Triggers of these rows and of the rows of `others`, once requested."""
    allowed: list[NDArray[np.bool_]] = field(default_factory=list)
    """Per affinity, bool[members]: which may take it, whether ready or not; of version `seen` of the members."""
    seen: int = -1

    def __post_init__(self) -> None:
        gang = self.gang
        self.floor, self.full, self.near = gang.floor(), gang.full(), gang.replicas > 1
        self.least = gang.sized(self.floor) if self.elastic else gang
        self.request = self.least.total()
        self.charges = by_scopes([self.least], self.request)
        keys = [selectors.selected_keys(task.node_selector, task.node_terms) for task in gang.tasks]
        self.selects = frozenset[str]().union(*keys)
        exact = any(task.numa or task.devices_in or task.aligned for task in gang.tasks)
        self.whole_gpus = any(hami.WHOLE in task.requests for task in gang.tasks)
        self.special = bool(_wishes(gang)) or _counts_cards(gang) or exact or self.whole_gpus

    def asks(self, member: Member) -> bool:
        """Whether it asks for what the member's figures leave out, so that only the member can say if it fits."""
        if self.special:
            cards = _counts_cards(self.gang) or (self.whole_gpus and member.splits_gpus)
            if cards and member.view is not None and not member.view.honours_needs:
                return True
            if any(member.asks_for_tier(wish) for wish in _wishes(self.gang)):
                return True
            if any(task.numa or task.devices_in or (task.aligned and member.aligns) for task in self.gang.tasks):
                return True
        return bool(self.selects) and not self.selects.isdisjoint(member.unknown)

    @property
    def elastic(self) -> bool:
        """Whether it may run with fewer pods than all; a gang that may be divided over members runs with all."""
        return not self.divided and self.floor != self.full

    @property
    def limited(self) -> bool:
        """Whether it must fit one domain, at least in members that have any."""
        wish = self.gang.network_topology
        return wish is not None and wish.limited


def shape_key(binding: BindingView, restricted: str) -> bytes:
    """What makes two workloads interchangeable for fitting: equal bytes, equal verdicts.

    Args:
        binding: its namespace, name, queue, priority and age don't matter.
        restricted: anything else that limits where it may go or its permitted use, such as its queue's name.
    """
    gang = binding.gang
    # Which quotas its pods count against matters where the namespace has some; that is part of `restricted`.
    unsaid: dict[str, Any] = {"name": ""} if restricted else {"name": "", "scopes": []}
    tasks = [msgspec.structs.replace(task, **unsaid) for task in gang.tasks] if gang else None
    wish: tuple[Any, ...] = ()
    if gang is not None:
        wish = (gang.min_available, gang.network_topology, gang.needs, gang.features, gang.balanced, gang.apart)
    spread = (binding.divided, binding.least_clusters, binding.most_clusters)
    # Of a gang that leaves its flavor open, with which it would start where the first is short.
    others: list[list[Any]] = [[each.assigned for each in binding.variants]] if binding.variants else []
    if binding.sharing is not None:
        others.append([binding.sharing])
    if gang is not None and not gang.preempts:
        # It fits where others do, and is helped by less.
        others.append(["evicts none"])
    return _encoder.encode((tasks, wish, binding.affinities, binding.tolerations, spread, restricted, *others))


def shape_of(binding: BindingView, key: bytes) -> Shape:
    """The shape, of this key, of a binding that has a gang."""
    gang = binding.gang
    assert gang is not None, "only a binding with a gang has a shape"
    alike = (replace(binding, gang=each.gang, variants=()) for each in binding.variants[1:])
    return Shape(
        key, gang, binding.affinities, binding.tolerations, binding.divided, binding.least_clusters,
        binding.most_clusters, binding.sharing, tuple(shape_of(each, shape_key(each, "")) for each in alike),
    )  # fmt: skip


def _wishes(gang: Gang) -> list[TopologyWish]:
    """Of the gang and of groups of its pods."""
    found = [wish for wish in (gang.network_topology, gang.apart) if wish is not None]
    return found + [wish for task in gang.tasks if task.partition is not None for wish in task.partition.wishes]


def _counts_cards(gang: Gang) -> bool:
    """Whether a node's cards matter one by one, since figures have only their sum."""
    return bool(gang.needs) or any(SHARE in task.requests or task.joint is not None for task in gang.tasks)


class Shapes:
    """The shapes of all bindings."""

    def __init__(self) -> None:
        self._known: dict[bytes, Shape] = {}

    def take(self, binding: BindingView, restricted: str = "") -> Shape:
        """The shape of a binding that has a gang; give it back with `drop`."""
        key = shape_key(binding, restricted)
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = shape_of(binding, key)
        return shape

    def drop(self, shape: Shape) -> None:
        """One binding less has it, and it was released."""
        if not shape.enrolled:
            del self._known[shape.key]
