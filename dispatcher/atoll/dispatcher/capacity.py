"""Which of the members' ClusterCapacity objects the core is told of: those that make sense and keep within bounds.

A member may publish anything in its namespace. What it says counts for itself alone, and an object that can't be so is
left out as if it were not there, so that nothing is dispatched on its account: a member that reports rubbish loses
its own room and nobody else's.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from atoll.dispatcher.core import CapacityGone, CapacitySet, CapacityView, Event
from atoll.dispatcher.core.events import NodeClass
from atoll.dispatcher.objects import CapacityClass, CapacityObject, CapacityProfile
from atoll.kube import metrics
from atoll.model import keys, quantity
from atoll.model.reports import BadReport, readable
from atoll.model.vector import MOST_ON_NODE, Vector

MAX_NODES = 2**16
"""Nodes of one member, over all of its objects."""
MAX_OBJECTS = 256
MAX_RESOURCES = 128
"""Different resources of one member."""
MAX_TIERS = 32
MAX_LEFT_OUT = 1024
"""Label keys that the figures of a member leave out."""
MAX_PROBLEMS = 20
"""HyperNodes that are named as wrong."""
_LONGEST = 400

_RESOURCE = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Published:
    """One object as it is on the host."""

    generation: int
    objects: int
    """How many make up its generation, by its own account."""
    view: CapacityView | None
    """None where it was refused."""


class Capacities:
    """The objects that the core knows of.

    A member writes the objects of one generation one after the other, and deletes those of an earlier layout last.
    Where the layout is another one (domains came, went or moved), the core goes on with the earlier objects until all
    of the newer generation are there, so that no node is missing or there twice meanwhile.
    """

    def __init__(self) -> None:
        #: cluster -> name -> the object
        self._published: dict[str, dict[str, _Published]] = {}
        #: cluster -> name of the object -> what the core was told of it
        self._told: dict[str, dict[str, CapacityView]] = {}

    def changed(self, old: CapacityObject | None, new: CapacityObject | None) -> Iterator[Event]:
        """What to tell the core when an object was made, changed or deleted. Never raises."""
        obj = new or old
        if obj is None or not obj.metadata.namespace.startswith(keys.EXECUTION_PREFIX):
            return
        cluster, name = keys.cluster_of(obj.metadata.namespace), obj.metadata.name
        published = self._published.setdefault(cluster, {})
        published.pop(name, None)
        if new is not None:
            view = None
            try:
                view = capacity_view(new)
            except BadReport as error:
                _refused(cluster, name, error)
            published[name] = _Published(new.spec.generation, new.spec.objects, view)
        told = self._told.pop(cluster, {})
        chosen = _updated(name, published, told) or _chosen(published, told)
        if name in published and name not in chosen:
            _say_why(cluster, name, published, chosen)
        for each, before in told.items():
            if each not in chosen or chosen[each].root != before.root:
                yield CapacityGone(cluster, before.root)
        for each, view in chosen.items():
            if told.get(each) is not view:
                yield CapacitySet(view)
        if chosen:
            self._told[cluster] = chosen
        if not published:
            del self._published[cluster]

    def all(self) -> Iterator[CapacityView]:
        """What the core was told, of all members."""
        for told in self._told.values():
            yield from told.values()

    def views(self, cluster: str) -> list[CapacityView]:
        """What the core was told of a member, each root once."""
        return list(self._told.get(cluster, {}).values())


def believed(reports: Iterable[CapacityObject]) -> dict[str, list[CapacityView]]:
    """Cluster -> what a core that begins now would be told; what it would refuse is left out without a word."""
    published: dict[str, dict[str, _Published]] = {}
    for obj in reports:
        with suppress(BadReport):
            view, cluster = capacity_view(obj), keys.cluster_of(obj.metadata.namespace)
            found = _Published(obj.spec.generation, obj.spec.objects, view)
            published.setdefault(cluster, {})[obj.metadata.name] = found
    return {cluster: list(_chosen(each, {}).values()) for cluster, each in published.items()}


def _updated(
    name: str, published: Mapping[str, _Published], told: Mapping[str, CapacityView]
) -> dict[str, CapacityView] | None:
    """As `_chosen` where nothing but figures of one known object changed, which is so most often; else None."""
    view, known = published[name].view if name in published else None, told.get(name)
    if view is None or known is None or not _alike(view, known):
        return None
    if _whole(current := _current(published)) and current.keys() != told.keys():
        return None
    return {**told, name: view}


def _chosen(published: Mapping[str, _Published], told: Mapping[str, CapacityView]) -> dict[str, CapacityView]:
    """Of what is published by name, that which makes sense together."""
    current, chosen = _current(published), {}
    # Objects that are known go before others that contradict them; what is still in doubt is decided by name.
    order = sorted(current, key=lambda name: (name not in told, name))
    if not _whole(current):
        newest = max((each.generation for each in published.values()), default=-1)
        for name, known in told.items():
            view = published[name].view if name in published else None
            if view is not None and (view is known or _alike(view, known)):
                chosen[name] = view
            elif known.generation < newest and (view is not None or name not in published):
                chosen[name] = known
        order = sorted(published, key=lambda name: (-published[name].generation, name))
    for name in order:
        view = published[name].view
        if name not in chosen and view is not None and not _contradiction(view, chosen.values()):
            chosen[name] = view
    return chosen


def _current(published: Mapping[str, _Published]) -> dict[str, _Published]:
    """The objects of the newest generation."""
    newest = max((each.generation for each in published.values()), default=-1)
    return {name: each for name, each in published.items() if each.generation == newest}


def _whole(current: Mapping[str, _Published]) -> bool:
    return all(each.objects <= len(current) for each in current.values())


def _alike(one: CapacityView, other: CapacityView) -> bool:
    """Whether both speak of the same domains, nodes and resources."""
    return _layout(one) == _layout(other)


def _layout(view: CapacityView) -> object:
    resources = {resource for each in view.classes for resource in each.free}
    return view.root, view.domains, _nodes(view), _names(view), resources


def _nodes(view: CapacityView) -> int:
    return sum([each.nodes for each in view.classes])


def _names(view: CapacityView) -> set[str]:
    return set(itertools.chain.from_iterable([each.names for each in view.classes]))


def _share_nodes(one: CapacityView, other: CapacityView) -> bool:
    """Whether a node may be in both; never in objects of one generation."""
    if one.generation == other.generation or not (_nodes(one) and _nodes(other)):
        return False
    names, others = _names(one), _names(other)
    return len(names) < _nodes(one) or len(others) < _nodes(other) or not names.isdisjoint(others)


def _contradiction(view: CapacityView, others: Collection[CapacityView]) -> str:
    """What one object alone can't break; empty where it goes together with the others."""
    if len(others) >= MAX_OBJECTS:
        return f"the member has more than {MAX_OBJECTS} such objects"
    if any(each.root == view.root for each in others):
        return f"spec.root: another object of the member speaks of {readable(view.root)!r}"
    names = {domain[0] for each in others for domain in each.domains}
    for domain in view.domains:
        if domain[0] in names:
            return f"spec.domains: {readable(domain[0])} is in another object of the member as well"
    if any(_share_nodes(view, each) for each in others):
        return "spec.classes: some of its nodes are in another object of the member as well"
    views = [*others, view]
    nodes = sum(_nodes(one) for one in views)
    resources = {resource for one in views for each in one.classes for resource in each.free}
    tiers = {domain[1] for one in views for domain in one.domains}
    for amount, most, what in (
        (nodes, MAX_NODES, "nodes"),
        (len(resources), MAX_RESOURCES, "different resources"),
        (len(tiers), MAX_TIERS, "tiers"),
    ):
        if amount > most:
            return f"the member has {amount} {what} with this object; the most is {most}"
    return ""


def _say_why(cluster: str, name: str, published: Mapping[str, _Published], chosen: Mapping[str, CapacityView]) -> None:
    """Refuse an object that contradicts others, unless one of them is older: then either goes soon."""
    view = published[name].view
    if view is None or {each.generation for each in published.values()} != {view.generation}:
        return
    if why := _contradiction(view, chosen.values()):
        _refused(cluster, name, BadReport(why))


def _refused(cluster: str, name: str, error: BadReport) -> None:
    metrics.refused["ClusterCapacity", keys.execution_namespace(cluster)] += 1
    log.warning("a report was refused", cluster=cluster, capacity=name, error=readable(str(error)))


def capacity_view(obj: CapacityObject) -> CapacityView:
    """The core's view. Which member it speaks for follows from the namespace, the one thing that its writer can't
    choose.

    Raises:
        BadReport: a field has a value that can't be; the message names it.
    """
    spec = obj.spec
    if spec.generation < 0:
        raise BadReport(f"spec.generation: {spec.generation} is below 0")
    _check_tree(obj)
    domains = {domain.name for domain in spec.domains} | {""}
    profiles = [
        (profile.labels, tuple(profile.taints), _devices(index, profile)) for index, profile in enumerate(spec.profiles)
    ]
    classes = []
    for index, each in enumerate(spec.classes):
        try:
            classes.append(_node_class(each, domains, profiles))
        except BadReport as error:
            raise BadReport(f"spec.classes[{index}].{error}") from None
    _check_resources("spec.total", spec.total)
    if len(spec.left_out) > MAX_LEFT_OUT:
        raise BadReport(f"spec.leftOut: {len(spec.left_out)} label keys; the most is {MAX_LEFT_OUT}")
    return CapacityView(
        keys.cluster_of(obj.metadata.namespace),
        spec.root,
        spec.generation,
        tuple((domain.name, domain.tier, domain.tier_name, domain.parent) for domain in spec.domains),
        tuple(classes),
        _bounded(spec.total, MOST_ON_NODE * MAX_NODES),
        tuple(sorted(spec.left_out)),
        tuple((each.hyper_node[:_LONGEST], each.message[:_LONGEST]) for each in spec.problems[:MAX_PROBLEMS]),
    )


def _node_class(
    published: CapacityClass,
    domains: Set[str],
    profiles: Sequence[tuple[dict[str, str], tuple[dict[str, Any], ...], Vector]],
) -> NodeClass:
    if published.domain not in domains:
        raise BadReport(f"domain: {readable(published.domain)} is none of spec.domains")
    if not 0 <= published.profile < len(profiles):
        raise BadReport(f"profile: {published.profile} is no index of spec.profiles")
    if not 0 <= published.nodes <= MAX_NODES:
        raise BadReport(f"nodes: {published.nodes} is not between 0 and {MAX_NODES}")
    _check_resources("free", published.free)
    labels, taints, devices = profiles[published.profile]
    # Names that are not one for each node say nothing about any of them.
    names = tuple(published.names) if len(published.names) == published.nodes else ()
    free = _bounded(published.free, MOST_ON_NODE)
    return NodeClass(published.domain, labels, taints, published.nodes, free, names, devices)


def _devices(index: int, profile: CapacityProfile) -> Vector:
    try:
        amounts = {name: text for name, text in profile.allocatable.items() if quantity.is_device(name)}
        _check_resources("allocatable", amounts)
        return _bounded(quantity.capacity(amounts), MOST_ON_NODE)
    except ValueError as error:
        raise BadReport(f"spec.profiles[{index}].allocatable: {error}") from None


def _bounded(amounts: dict[str, int], most: int) -> dict[str, int]:
    """Between 0 and `most`; most often all of them are."""
    if not amounts or (min(amounts.values()) >= 0 and max(amounts.values()) <= most):
        return amounts
    return {resource: min(max(amount, 0), most) for resource, amount in amounts.items()}


def _check_resources(field: str, amounts: Mapping[str, object]) -> None:
    if len(amounts) > MAX_RESOURCES:
        raise BadReport(f"{field}: {len(amounts)} resources; the most is {MAX_RESOURCES}")
    if not all(map(is_resource, amounts)):
        resource = next(resource for resource in amounts if not is_resource(resource))
        raise BadReport(f"{field}: {readable(resource, 60)!r} is no name of a resource")


@functools.lru_cache(maxsize=1024)
def is_resource(name: str) -> bool:
    """Whether it can be the name of a resource. Kept, for every class of every report names the same few."""
    return _RESOURCE.fullmatch(name) is not None


def _check_tree(obj: CapacityObject) -> None:
    """One tree below the root: tiers grow towards it, which leaves no room for a cycle."""
    spec = obj.spec
    tiers: dict[str, int] = {}
    for index, domain in enumerate(spec.domains):
        if not domain.name or domain.name in tiers:
            raise BadReport(f"spec.domains[{index}].name: {readable(domain.name)!r} is empty or there twice")
        tiers[domain.name] = domain.tier
    if spec.domains and spec.root not in tiers:
        raise BadReport(f"spec.root: {readable(spec.root)!r} is none of spec.domains")
    for index, domain in enumerate(spec.domains):
        field = f"spec.domains[{index}]"
        if not 0 <= domain.tier <= 10**6:
            raise BadReport(f"{field}.tier: {domain.tier} is not between 0 and 1000000")
        if (domain.name == spec.root) != (not domain.parent):
            raise BadReport(f"{field}.parent: only the root, {readable(spec.root)}, has none")
        if domain.parent and tiers.get(domain.parent, -1) <= domain.tier:
            raise BadReport(f"{field}.parent: {readable(domain.parent)} is no domain of a higher tier")
