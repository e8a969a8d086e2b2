"""ResourceSlices (resource.k8s.io/v1) as pools of devices, for one node after another.

A pool's slices of the highest generation count. Fewer than their `resourceSliceCount` make an incomplete pool; a name
given twice or an unknown counter makes an invalid one. DeviceTaintRules taint devices as their drivers do. Rules and
order follow Kubernetes' allocator; the suite `dra` holds this module to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from atoll.model import quantity
from atoll.model.devices import NOWHERE, Attribute, Capacity, Counter, Device, DeviceId, Nodes, Pool, Taint

Json = Mapping[str, Any]
PoolId = tuple[str, str]
"""Driver and name: two drivers may name their pools alike."""
_TYPES = ("bool", "int", "string", "version")


@dataclass(frozen=True, slots=True, eq=False)
class _Slice:
    name: str
    pool: PoolId
    generation: int
    count: int
    nodes: Nodes | None
    """None where each device has its own, and where neither is given."""
    devices: tuple[Device, ...]
    counters: tuple[tuple[str, Mapping[str, Fraction]], ...]

    @property
    def node(self) -> str:
        """The only node that it concerns; empty for any number."""
        return self.nodes.name or "" if self.nodes is not None and not self.counters else ""

    def concerns(self, node: str, labels: Mapping[str, str]) -> bool:
        """Whether devices of it are within the node's reach; the counters of a pool concern every node."""
        if self.counters:
            return True
        if self.nodes is not None:
            return self.nodes.include(node, labels)
        return any(device.own_nodes and device.nodes.include(node, labels) for device in self.devices)


class ResourceSlices:
    """Slices of a cluster, each read once."""

    def __init__(self, objects: Iterable[Json] = ()) -> None:
        """Raises: QuantityError: an amount is not a quantity."""
        self._slices: dict[str, _Slice] = {}
        self._by_node: dict[str, list[_Slice]] = defaultdict(list)
        self._anywhere: list[_Slice] = []
        self._by_pool: dict[PoolId, list[_Slice]] = defaultdict(list)
        #: name of a DeviceTaintRule -> its selector and taint
        self._rules: dict[str, tuple[Json, Taint]] = {}
        for each in objects:
            self.change(each["metadata"]["name"], each)

    def __bool__(self) -> bool:
        return bool(self._slices)

    def change(self, name: str, raw: Json | None) -> set[str] | None:
        """A slice is there, or gone.

        Returns:
            The nodes whose pools may be different now; None for all.

        Raises:
            QuantityError: an amount is not a quantity; the slice counts as gone.
        """
        pools: set[PoolId] = set()
        if (old := self._slices.pop(name, None)) is not None:
            pools.add(old.pool)
            for group in (self._home(old), self._by_pool[old.pool]):
                group.remove(old)
        if raw is not None:
            new = self._slices[name] = _slice(raw)
            pools.add(new.pool)
            for group in (self._home(new), self._by_pool[new.pool]):
                group.append(new)
        concerned = [*(each for pool in pools for each in self._by_pool[pool]), *([old] if old is not None else [])]
        return {each.node for each in concerned} if all(each.node for each in concerned) else None

    def change_rule(self, name: str, raw: Json | None) -> None:
        """A DeviceTaintRule is there, or gone; pools of any node may be different."""
        self._rules.pop(name, None)
        # A rule without a selector is for no device; one with an empty selector for all.
        if raw is not None and (selector := raw["spec"].get("deviceSelector")) is not None:
            self._rules[name] = selector, _taint(raw["spec"]["taint"])

    def _tainted(self, device: Device) -> Device:
        found = self._by_rules(device.id)
        return replace(device, taints=(*device.taints, *found)) if found else device

    def _by_rules(self, device: DeviceId) -> tuple[Taint, ...]:
        mine = {"driver": device.driver, "pool": device.pool, "device": device.name}
        return tuple(
            taint
            for _, (selector, taint) in sorted(self._rules.items())
            if all(mine[field] == selector[field] for field in mine if selector.get(field) is not None)
        )

    def taints(self, device: DeviceId) -> tuple[Taint, ...]:
        """Taints of a device, by its driver and by rules; a device that its driver no longer publishes has none.

        The newest generation of a pool counts, complete or not: pods don't wait for its other slices.
        """
        slices = self._by_pool.get((device.driver, device.pool), ())
        newest = max((each.generation for each in slices), default=0)
        published = (each for some in slices if some.generation == newest for each in some.devices if each.id == device)
        found = next(published, None)
        return (*found.taints, *self._by_rules(device)) if found is not None else ()

    def _home(self, of: _Slice) -> list[_Slice]:
        return self._by_node[of.node] if of.node else self._anywhere

    def pools(self, node: str, labels: Mapping[str, str]) -> list[Pool]:
        """The pools that a node reaches: by driver and name, pools with binding conditions last.

        Raises:
            SelectorError: a node selector is not readable.
        """
        reached: dict[PoolId, list[_Slice]] = {}
        for each in (*self._by_node.get(node, ()), *self._anywhere):
            if not each.concerns(node, labels):
                continue
            newest = reached.setdefault(each.pool, [])
            if newest and newest[0].generation < each.generation:
                newest.clear()
            if not newest or newest[0].generation == each.generation:
                newest.append(each)
        found = [pool for slices in reached.values() if (pool := self._pool(slices)) is not None]
        return sorted(found, key=lambda pool: (pool.waits_for_binding, pool.driver, pool.name))

    def _pool(self, slices: Sequence[_Slice]) -> Pool | None:
        """None where the pool has a newer generation, which the node does not reach."""
        pool, generation, count = slices[0].pool, slices[0].generation, slices[0].count
        others: list[_Slice] = []
        if len(slices) != count:
            all_slices = self._by_pool[pool]
            if any(each.generation > generation for each in all_slices):
                return None
            current = [each for each in all_slices if each.generation == generation]
            if len(current) != count:
                return Pool(*pool, incomplete=True)
            names = {each.name for each in slices}
            others = [each for each in current if each.name not in names]
        ordered = sorted(slices, key=lambda each: each.name)
        devices = tuple(device for each in ordered if not each.counters for device in each.devices)
        elsewhere = tuple(device for each in others for device in each.devices)
        if twice := _twice(device.id.name for device in devices):
            return Pool(*pool, problem=f"device {twice} is published twice")
        sets = [each for slice_ in ordered for each in slice_.counters]
        if twice := _twice(name for name, _ in sets):
            return Pool(*pool, problem=f"counter set {twice} is published twice")
        counters = {(name, counter): value for name, amounts in sets for counter, value in amounts.items()}
        for device in (*devices, *elsewhere):
            if unknown := next((each for each in device.counters if each not in counters), None):
                return Pool(*pool, problem=f"device {device.id.name} consumes unknown counter {'/'.join(unknown)}")
        if self._rules:
            devices = tuple(map(self._tainted, devices))
        return Pool(*pool, devices, elsewhere, counters)


def _twice(names: Iterable[str]) -> str:
    """The first name that comes again, or nothing."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _slice(raw: Json) -> _Slice:
    spec = raw["spec"]
    driver, pool = spec["driver"], spec["pool"]
    own = bool(spec.get("perDeviceNodeSelection"))
    nodes = None if own else _nodes(spec)
    return _Slice(
        raw["metadata"]["name"],
        (driver, pool["name"]),
        pool.get("generation", 0),
        pool["resourceSliceCount"],
        nodes,
        tuple(_device(driver, pool["name"], each, nodes) for each in spec.get("devices") or ()),
        tuple(
            (each["name"], {name: quantity.parse(counter["value"]) for name, counter in each["counters"].items()})
            for each in spec.get("sharedCounters") or ()
        ),
    )


def _nodes(raw: Json) -> Nodes | None:
    selector = raw.get("nodeSelector")
    if not raw.get("nodeName") and not raw.get("allNodes") and selector is None:
        return None
    terms = None if selector is None else tuple(selector.get("nodeSelectorTerms") or ())
    return Nodes(raw.get("nodeName") or None, bool(raw.get("allNodes")), terms)


def _device(driver: str, pool: str, raw: Json, nodes: Nodes | None) -> Device:
    attributes = {name: _attribute(value) for name, value in (raw.get("attributes") or {}).items()}
    counters: dict[Counter, Fraction] = {}
    for each in raw.get("consumesCounters") or ():
        for name, counter in each["counters"].items():
            key = (each["counterSet"], name)
            counters[key] = counters.get(key, Fraction()) + quantity.parse(counter["value"])
    return Device(
        DeviceId(driver, pool, raw["name"]),
        # A qualified name wins over the same name without its domain.
        {f"{driver}/{name}": value for name, value in attributes.items() if "/" not in name}
        | {name: value for name, value in attributes.items() if "/" in name},
        {name: _capacity(value) for name, value in (raw.get("capacity") or {}).items()},
        counters,
        tuple(map(_taint, raw.get("taints") or ())),
        bool(raw.get("allowMultipleAllocations")),
        (nodes if nodes is not None else _nodes(raw)) or NOWHERE,
        nodes is None,
        bool(raw.get("bindsToNode")),
        tuple(raw.get("bindingConditions") or ()),
        tuple(raw.get("bindingFailureConditions") or ()),
    )


def _taint(raw: Json) -> Taint:
    return Taint(raw["key"], raw.get("value", ""), raw["effect"], raw.get("timeAdded") or "")


def _attribute(raw: Json) -> Attribute:
    for kind in _TYPES:
        if raw.get(kind) is not None:
            return Attribute(kind, (raw[kind],))
        if raw.get(f"{kind}s"):
            return Attribute(kind, tuple(raw[f"{kind}s"]), is_list=True)
    return Attribute("", ())


def _capacity(raw: Json) -> Capacity:
    policy = raw.get("requestPolicy") or {}
    bounds = policy.get("validRange") or {}
    found = Capacity(
        raw["value"],
        policy.get("default"),
        tuple(policy.get("validValues") or ()),
        bounds.get("min"),
        bounds.get("max"),
        bounds.get("step"),
        policy.get("validRange") is not None,
    )
    for each in (found.value, found.default, found.minimum, found.maximum, found.step, *found.valid_values):
        if each is not None:
            quantity.parse(each)
    return found
