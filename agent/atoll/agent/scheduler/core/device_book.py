"""Devices of the member's nodes: published ones, the ones that claims hold, and the ones of pods on their way.

A claim holds devices as its status says, whoever wrote it. A pod that this scheduler is about to bind is promised
devices at once; a promise ends with the claim's own allocation, or where the pod is not bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec
import structlog

from atoll.agent.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from atoll.agent.objects import Node, Pod
from atoll.fit.devices import (
    Answers,
    Pick,
    Prepared,
    Refused,
    Undecided,
    allocation_results,
    held_of,
    prepare,
)
from atoll.fit.devices.problem import DevicesError, SelectionError
from atoll.fit.devices.selection import Selection
from atoll.model import device_claims, quantity
from atoll.model.device_claims import Claim
from atoll.model.devices import Device, DeviceId, Held, Taint, Taken, held_by
from atoll.model.labels import SelectorError
from atoll.model.objects import MALFORMED
from atoll.model.resource_slices import ResourceSlices

log = structlog.get_logger(__name__)

Json = dict[str, Any]
MOST_PODS = 128
"""Pods of one task that a node is asked for at most; kubelets take 110 by default."""
_DEAREST = 10_000
"""Cost of one evaluation of a selector, in Kubernetes' units; the usual ones cost less than 100."""
_STEPS = 20_000
"""Of one search, a tenth of a second."""
_EFFORT = 100_000
"""Steps of searches and costs of selectors, about two microseconds each, that one pass may take; the next one goes on.
The claims of one tenant delay others by no more.
"""
_EFFORT_ASIDE = 4_000
"""The same for one publication of figures, twice a second: a tenth of a second, for most of it prepares nodes."""
_PASSES = 500
"""That go on in a row: two minutes."""
_PREPARED = 20_000
"""Nodes of claims that are kept, about 10 kB each; more are prepared anew."""
_PREPARED_ASIDE = 5_000
_LATER = "it is still being looked at"
_SHARES = UUID("5d1e8a3a-6b57-4f0c-9d55-0a1c2f7f1c1e")
"""Namespace of the IDs of shares: a replayed log gives the same ones."""


class _Promise(NamedTuple):
    pods: list[str]
    """It ends with the last of them."""
    allocation: Json
    held: list[Held]


class DeviceBook:
    """Of one member."""

    def __init__(
        self,
        labels: Callable[[str], Mapping[str, str] | None],
        changed: Callable[[Collection[str], bool], None],
        published: Callable[[Collection[str] | None], None],
    ) -> None:
        """Begin without devices.

        Args:
            labels: of a node; None where it is gone.
            changed: called with nodes whose free devices changed, and whether there may be more.
            published: called with nodes whose devices are others (None for all).
        """
        self._labels, self._changed, self._published = labels, changed, published
        self._slices = ResourceSlices()
        self._classes: dict[str, device_claims.DeviceClass] = {}
        #: claim -> held devices and the pods that it is reserved for; without claims that hold nothing
        self._held: dict[str, tuple[list[Held], tuple[str, ...]]] = {}
        #: claim -> its pods on the way, and the allocation for them
        self._promises: dict[str, _Promise] = {}
        #: resource by which pods ask for a class without a claim -> the class
        self._by_resource: dict[str, str] = {}
        #: resource -> how many nodes have some by a device plug-in, which goes before classes
        self._plugged: Counter[str] = Counter()
        self.taken = Taken()
        self._selects = Selection(limit=_DEAREST)
        self._answers = Answers(_STEPS)
        #: effort at which this pass ends, and devices that were compared with claims so far
        self._end, self._compared = _EFFORT, 0
        #: whether something was left for the next pass, and how many passes in a row did so
        self._left, self._passes = False, 0
        #: (node, claims) -> devices of each reservation for such a pod, the last one last
        self._reserved: dict[tuple[str, bytes], list[list[Held]]] = {}
        #: node -> resource that stands for a class -> its devices there that no taint keeps from claims
        self._offers: dict[str, dict[str, tuple[DeviceId, ...]]] = {}
        #: device -> nodes in `_offers` that reach it
        self._reach: dict[DeviceId, set[str]] = {}
        self._most, self._kept = _EFFORT, _PREPARED
        #: nodes of which devices in use changed since `Aside` counted there
        self.stale: set[str] = set()
        #: claims of a pod -> node -> the problem there, or why there is none
        self._problems: dict[bytes, dict[str, Prepared | str]] = {}
        #: called with nodes whose problems are others by now (None for all)
        self.on_forget = [self.forget]

    # -- events ------------------------------------------------------------------------------------------------------

    def slice_changed(self, name: str, new: ResourceSlice | None) -> None:
        """Devices came, went, or are different."""
        try:
            nodes = self._slices.change(name, new.body() if new is not None else None)
        except MALFORMED as error:
            # No API server lets one pass; its devices count as gone.
            log.warning("a ResourceSlice can't be read", slice=name, error=str(error))
            nodes = None
        self._forget(nodes)
        self._published(nodes)

    def class_changed(self, name: str, new: DeviceClass | None) -> None:
        """A class came, went, or is different."""
        self._classes.pop(name, None)
        if new is not None:
            try:
                self._classes[name] = device_claims.DeviceClass.of(new.body())
            except device_claims.UnsupportedClaim as error:
                log.warning("a DeviceClass can't be read", name=name, error=str(error))
        self._by_resource = device_claims.by_resource(self._classes)
        self._forget(None)
        self._published(None)

    def rule_changed(self, name: str, new: DeviceTaintRule | None) -> None:
        """An administrator taints devices, or does no more."""
        self._slices.change_rule(name, new.body() if new is not None else None)
        self._forget(None)
        self._published(None)

    def node_changed(self, name: str) -> None:
        """Labels of a node, by which slices choose nodes, may be others."""
        self._forget({name})

    def plugged(self, old: Node | None, new: Node | None) -> bool:
        """Device plug-ins of a node offer others. True if a class begins or ends to stand for a resource."""
        before, now = _plugged(old), _plugged(new)
        self._plugged.update(now - before)
        self._plugged.subtract(before - now)
        return any(self._plugged[name] == int(name in now) and name in self._by_resource for name in before ^ now)

    def claim_changed(self, key: str, new: ResourceClaim | None) -> None:
        """A claim got an allocation, lost it, or went."""
        held = held_by(new.status.allocation) if new is not None and new.status.allocation else []
        pods = tuple(new.pods) if new is not None and held else ()
        before, _ = self._held.pop(key, ([], ()))
        promise = self._promises.pop(key, None) if new is None or new.status.allocation else None
        gone = [*before, *(promise.held if promise is not None else ())]
        self._use(held, gone)
        if held:
            self._held[key] = held, pods
        if gone != held:
            self._changed(self._reached([*gone, *held]), any(each not in held for each in gone))

    def _forget(self, nodes: Collection[str] | None) -> None:
        for name in list(self._offers) if nodes is None else nodes:
            for devices in self._offers.pop(name, {}).values():
                for each in devices:
                    self._reach.get(each, set()).discard(name)
        for forget in self.on_forget:
            forget(nodes)

    def forget(self, nodes: Collection[str] | None) -> None:
        """The problems of these nodes are others (None for all)."""
        if nodes is None:
            self._problems.clear()
        for key, known in list(self._problems.items()):
            for name in nodes or ():
                known.pop(name, None)
            if not known:
                del self._problems[key]

    def begin_pass(self) -> None:
        """There is time again."""
        self._passes = self._passes + 1 if self._left else 0
        self._end, self._left = self.spent + self._most, False

    @property
    def unfinished(self) -> bool:
        """Whether the next pass is to go on. Claims that are never done wait for other events after a while."""
        return self._left and self._passes < _PASSES

    @property
    def spent(self) -> int:
        """Effort so far."""
        return self._selects.spent + self._answers.spent + self._compared

    def _is_late(self) -> bool:
        """Whether the effort of this pass is used up."""
        self._left = self._left or self.spent > self._end
        return self._left

    # -- promises ----------------------------------------------------------------------------------------------------

    def promise(self, pod: Pod, node: str) -> str:
        """Keep devices for the claims of a pod on a node; why there are none, or nothing."""
        picks = self._picks(pod.devices, node, self.taken)
        if isinstance(picks, str):
            return picks
        problem = self._problems[_key(pod.devices)][node]
        assert isinstance(problem, Prepared)
        shares = (str(uuid5(_SHARES, f"{pod.metadata.uid} {number}")) for number in range(len(picks)))
        results = allocation_results(problem.problem, picks, node, lambda: next(shares))
        for number, (claim, allocation) in enumerate(zip(pod.device_claims, results, strict=True)):
            held = held_of([each for each in picks if each.ask.claim == number])
            self._use(held)
            self._promises[claim] = _Promise([pod.metadata.key], allocation, held)
        self._changed({node}, False)
        return ""

    def join(self, pod: Pod) -> str:
        """The pod uses claims that others were promised devices for; why it can't, or nothing."""
        for claim in pod.joins:
            if claim not in self._promises:
                return f"no pod beside it gets the devices of claim {claim}"
        for claim in pod.joins:
            self._promises[claim].pods.append(pod.metadata.key)
        return ""

    def withdraw(self, pod: str, *, grew: bool = True) -> None:
        """The pod of this key is not on its way any more; `grew`: that may help others."""
        for claim in [claim for claim, each in self._promises.items() if pod in each.pods]:
            self._promises[claim].pods.remove(pod)
            if self._promises[claim].pods:
                continue
            held = self._promises.pop(claim).held
            self._use((), held)
            self._changed(self._reached(held), grew)

    def reserve(self, node: str, claims: Sequence[Json], count: int) -> None:
        """Keep devices for so many pods that do not exist yet; a negative number gives them back."""
        kept = self._reserved.setdefault((node, _key(claims)), [])
        for _ in range(count):
            picks = self._picks(claims, node, self.taken)
            kept.append(held_of(picks) if not isinstance(picks, str) else [])
            self._use(kept[-1])
        for _ in range(-count):
            self._use((), kept.pop())
        if not kept:
            del self._reserved[node, _key(claims)]

    def taints(self, device: DeviceId) -> Sequence[Taint]:
        """Taints of a device, by its driver and by DeviceTaintRules."""
        return self._slices.taints(device)

    def promised(self, claim: str) -> Json | None:
        """The allocation that a claim is about to get."""
        found = self._promises.get(claim)
        return found.allocation if found is not None else None

    def _use(self, held: Sequence[Held], gone: Sequence[Held] = ()) -> None:
        self.taken.release_all(gone)
        self.taken.hold_all(held)
        self.stale |= self._reached(held) | self._reached(gone)

    def _reached(self, held: Sequence[Held]) -> set[str]:
        return {node for each in held for node in self._reach.get(each.device, ())}

    # -- views -------------------------------------------------------------------------------------------------------

    def offered(self, node: str) -> dict[str, int]:
        """Devices by the resource of their class: all that no taint keeps from claims."""
        return self._with_resources({name: len(devices) for name, devices in self._offered(node).items()})

    def used(self, node: str) -> dict[str, int]:
        """The ones of these that claims hold or are promised."""
        offers = self._offered(node)
        return self._with_resources({name: sum(map(self.taken.holds, devices)) for name, devices in offers.items()})

    def class_of(self, resource: str) -> str:
        """The class whose devices a pod gets for a resource; empty for none."""
        found = self._by_resource.get(resource, "")
        return found if found and not self._plugged[resource] else ""

    def _with_resources(self, found: dict[str, int]) -> dict[str, int]:
        """The same with the other names of classes that pods may ask for."""
        for resource in self._by_resource if found else ():
            if (name := device_claims.class_resource(self.class_of(resource))) in found:
                found[resource] = found[name]
        return found

    def _offered(self, node: str) -> dict[str, tuple[DeviceId, ...]]:
        if not self._slices or not self._classes:
            return {}
        if node not in self._offers:
            found = self._offers[node] = self._by_class(node)
            for devices in found.values():
                for each in devices:
                    self._reach.setdefault(each, set()).add(node)
        return self._offers[node]

    def _by_class(self, node: str) -> dict[str, tuple[DeviceId, ...]]:
        labels = self._labels(node)
        if labels is None:
            return {}
        try:
            pools = self._slices.pools(node, labels)
        except SelectorError:
            return {}
        devices = [each for pool in pools if pool.usable for each in pool.devices if each.healthy]
        found = {
            device_claims.class_resource(name): tuple(each.id for each in devices if self._is_of(each, made))
            for name, made in self._classes.items()
        }
        return {name: some for name, some in found.items() if some}

    def _is_of(self, device: Device, made: device_claims.DeviceClass) -> bool:
        try:
            return all(self._selects(each, device) for each in made.selectors)
        except SelectionError:
            return False

    def count(self, claims: Sequence[Json], node: str, taken: Taken) -> int:
        """Pods with these claims that get devices on a node, at most `MOST_PODS`."""
        problem = self._problem(claims, node)
        try:
            return 0 if isinstance(problem, str) or self._is_late() else self._answers.count(problem, taken, MOST_PODS)
        except DevicesError:
            return 0

    def take(self, claims: Sequence[Json], node: str, taken: Taken, count: int) -> None:
        """Add the devices of so many pods to `taken`, as far as there are any."""
        for _ in range(count):
            picks = self._picks(claims, node, taken)
            if not isinstance(picks, str):
                taken.hold_all(held_of(picks))

    def without(self, pods: Collection[str]) -> Taken:
        """Held devices, as if the pods of these keys were gone."""
        found = self.taken.copy()
        for held, users in self._held.values():
            if users and all(each in pods for each in users):
                found.release_all(held)
        for promise in self._promises.values():
            if all(each in pods for each in promise.pods):
                found.release_all(promise.held)
        return found

    def reasons(self, claims: Sequence[Json], nodes: Sequence[str]) -> str:
        """Why nodes have no devices for a pod with these claims, the most frequent reason first; empty where one has
        some.
        """
        counts: Counter[str] = Counter()
        for node in nodes:
            picks = self._picks(claims, node, self.taken)
            if not isinstance(picks, str):
                return ""
            counts[picks] += 1
        return "; ".join(f"on {count} of {len(nodes)} nodes: {why}" for why, count in counts.most_common(3))

    def _picks(self, claims: Sequence[Json], node: str, taken: Taken) -> tuple[Pick, ...] | str:
        problem = self._problem(claims, node)
        if isinstance(problem, str):
            return problem
        try:
            found = self._answers.picks(problem, taken)
        except DevicesError as error:
            return str(error)
        if isinstance(found, Undecided):
            return f"undecided: the search ended after {found.steps} devices"
        return found.reason if isinstance(found, Refused) else found

    def _problem(self, claims: Sequence[Json], node: str) -> Prepared | str:
        key = _key(claims)
        # The last one used is the last one to go.
        known = self._problems[key] = self._problems.pop(key, {})
        if node not in known:
            if self._is_late():
                return _LATER
            known[node] = self._prepared(claims, node)
            while len(self._problems) > 1 and sum(map(len, self._problems.values())) > self._kept:
                del self._problems[next(iter(self._problems))]
        return known[node]

    def _prepared(self, claims: Sequence[Json], node: str) -> Prepared | str:
        labels = self._labels(node)
        if labels is None:
            return "the node is gone"
        try:
            read = [Claim.of({"metadata": {"name": each["name"]}, "spec": each["spec"]}) for each in claims]
            pools = self._slices.pools(node, labels)
            devices = sum(len(each.devices) for each in pools)
            self._compared += devices * sum(len(request.wishes) for claim in read for request in claim.requests)
            return self._answers.prepared(prepare(read, pools, self._classes, self._selects, node, labels))
        except (DevicesError, SelectorError, device_claims.UnsupportedClaim) as error:
            return str(error)


class Aside(DeviceBook):
    """The same devices, for questions alone: their cost, and everything that is kept for them, is apart."""

    def __init__(self, book: DeviceBook) -> None:
        """`book` hears of changes."""
        self.__dict__.update(book.__dict__)
        self._selects, self._answers, self._problems = Selection(limit=_DEAREST), Answers(_STEPS), {}
        self._compared, self._left, self._passes = 0, False, 0
        self._most, self._kept = _EFFORT_ASIDE, _PREPARED_ASIDE
        #: node -> name of claims -> pods that fit
        self._fits: dict[str, dict[str, int]] = {}
        book.on_forget.append(self.forget)

    def forget(self, nodes: Collection[str] | None) -> None:
        """As of the book."""
        super().forget(nodes)
        for name in list(self._fits) if nodes is None else nodes:
            self._fits.pop(name, None)

    def fits(self, name: str, claims: Sequence[Json], node: str) -> int | None:
        """As `count`, with the devices that are free now; None where this pass has no time left for it.

        `name` stands for the claims.
        """
        if node in self.stale:
            self.stale.discard(node)
            self._fits.pop(node, None)
        known = self._fits.setdefault(node, {})
        if name not in known and not self._left:
            found = self.count(claims, node, self.taken)
            if not self._left:
                known[name] = found
        return known.get(name)


def _plugged(node: Node | None) -> set[str]:
    """Resources that a node has by device plug-ins."""
    offers = node.status.allocatable if node is not None else {}
    return {name for name, each in offers.items() if quantity.is_device(name) and str(each) != "0"}


def _key(claims: Sequence[Json]) -> bytes:
    return msgspec.json.encode(claims, order="deterministic")
