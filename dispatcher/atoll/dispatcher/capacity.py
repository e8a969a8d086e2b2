"""Which of the members' ClusterCapacity objects the core is told of: those that make sense and keep within bounds.

A member may publish anything in its namespace. What it says counts for itself alone, and an object that can't be so is
left out as if it were not there, so that nothing is dispatched on its account: a member that reports rubbish loses
its own room and nobody else's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import structlog

from atoll.dispatcher.core import CapacityGone, CapacitySet, CapacityView, Event
from atoll.dispatcher.core.events import NodeClass
from atoll.dispatcher.objects import CapacityClass, CapacityObject
from atoll.kube import metrics
from atoll.model import keys
from atoll.model.reports import BadReport, readable
from atoll.model.vector import MOST_ON_NODE

MAX_NODES = 2**16
"""Nodes of one member, over all of its objects."""
MAX_OBJECTS = 256
MAX_RESOURCES = 128
"""Different resources of one member."""
MAX_TIERS = 32

_RESOURCE = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)

log = structlog.get_logger(__name__)


class Capacities:
    """The objects that the core knows of."""

    def __init__(self) -> None:
        #: cluster -> name of the object -> what the core was told of it
        self._told: dict[str, dict[str, CapacityView]] = {}

    def changed(self, old: CapacityObject | None, new: CapacityObject | None) -> Iterator[Event]:
        """What to tell the core when an object was made, changed or deleted. Never raises."""
        obj = new or old
        if obj is None or not obj.metadata.namespace.startswith(keys.EXECUTION_PREFIX):
            return
        cluster, name = keys.cluster_of(obj.metadata.namespace), obj.metadata.name
        view = None
        try:
            if new is not None:
                view = capacity_view(new)
                self._check_together(cluster, name, view)
        except BadReport as error:
            view = None
            metrics.refused["ClusterCapacity", obj.metadata.namespace] += 1
            log.warning("a report was refused", cluster=cluster, capacity=name, error=readable(str(error)))
        told = self._told.setdefault(cluster, {})
        before = told.pop(name, None)
        if before is not None and (view is None or view.root != before.root):
            yield CapacityGone(cluster, before.root)
        if view is not None:
            told[name] = view
            yield CapacitySet(view)
        if not told:
            del self._told[cluster]

    def _check_together(self, cluster: str, name: str, view: CapacityView) -> None:
        """What one object alone can't break."""
        others = [each for other, each in self._told.get(cluster, {}).items() if other != name]
        if len(others) >= MAX_OBJECTS:
            raise BadReport(f"the member has more than {MAX_OBJECTS} such objects")
        if any(each.root == view.root for each in others):
            raise BadReport(f"spec.root: another object of the member speaks of {readable(view.root)!r}")
        names = {domain[0] for each in others for domain in each.domains}
        for domain in view.domains:
            if domain[0] in names:
                raise BadReport(f"spec.domains: {readable(domain[0])} is in another object of the member as well")
        views = [*others, view]
        nodes = sum(each.nodes for one in views for each in one.classes)
        resources = {resource for one in views for each in one.classes for resource in each.free}
        tiers = {domain[1] for one in views for domain in one.domains}
        for amount, most, what in (
            (nodes, MAX_NODES, "nodes"),
            (len(resources), MAX_RESOURCES, "different resources"),
            (len(tiers), MAX_TIERS, "tiers"),
        ):
            if amount > most:
                raise BadReport(f"the member has {amount} {what} with this object; the most is {most}")


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
    profiles = [(profile.labels, tuple(profile.taints)) for profile in spec.profiles]
    classes = []
    for index, each in enumerate(spec.classes):
        try:
            classes.append(_node_class(each, domains, profiles))
        except BadReport as error:
            raise BadReport(f"spec.classes[{index}].{error}") from None
    _check_resources("spec.total", spec.total)
    return CapacityView(
        keys.cluster_of(obj.metadata.namespace),
        spec.root,
        spec.generation,
        tuple((domain.name, domain.tier, domain.tier_name, domain.parent) for domain in spec.domains),
        tuple(classes),
        _bounded(spec.total, MOST_ON_NODE * MAX_NODES),
    )


def _node_class(
    published: CapacityClass, domains: Set[str], profiles: Sequence[tuple[dict[str, str], tuple[dict[str, Any], ...]]]
) -> NodeClass:
    if published.domain not in domains:
        raise BadReport(f"domain: {readable(published.domain)} is none of spec.domains")
    if not 0 <= published.profile < len(profiles):
        raise BadReport(f"profile: {published.profile} is no index of spec.profiles")
    if not 0 <= published.nodes <= MAX_NODES:
        raise BadReport(f"nodes: {published.nodes} is not between 0 and {MAX_NODES}")
    _check_resources("free", published.free)
    labels, taints = profiles[published.profile]
    # Names that are not one for each node say nothing about any of them.
    names = tuple(published.names) if len(published.names) == published.nodes else ()
    return NodeClass(published.domain, labels, taints, published.nodes, _bounded(published.free, MOST_ON_NODE), names)


def _bounded(amounts: dict[str, int], most: int) -> dict[str, int]:
    """Between 0 and `most`; most often all of them are."""
    if not amounts or (min(amounts.values()) >= 0 and max(amounts.values()) <= most):
        return amounts
    return {resource: min(max(amount, 0), most) for resource, amount in amounts.items()}


def _check_resources(field: str, amounts: Mapping[str, int]) -> None:
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
