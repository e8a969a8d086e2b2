"""Flavors in events for the core: nodes offer, and workloads request, one more resource for each."""

from __future__ import annotations

from dataclasses import replace

from atoll.dispatcher.core.events import BindingSet, BindingView, CapacitySet, CapacityView, Event, NodeClass
from atoll.model import flavors as flavor
from atoll.model.flavors import Flavors


def event(told: Event, flavors: Flavors) -> Event:
    """The event with these flavors."""
    match told:
        case CapacitySet(view):
            return CapacitySet(capacity(view, flavors))
        case BindingSet(view):
            return BindingSet(binding(view, flavors))
    return told


def capacity(view: CapacityView, flavors: Flavors) -> CapacityView:
    """What a member published: nodes offer their flavor beside the resource, and of any other none."""
    if not flavors:
        return view
    total = dict(view.total)
    if total:
        total |= dict.fromkeys(flavor.names(flavors), 0)
    classes = []
    for each in view.classes:
        free = dict(each.free)
        for resource, name in flavor.offered(flavors, each.labels, view.left_out):
            if resource in each.free:
                free[name] = each.free[resource]
            if total:
                total[name] += each.nodes * _whole(each, resource)
        classes.append(replace(each, free=free))
    return replace(view, classes=tuple(classes), total=total)


def binding(view: BindingView, flavors: Flavors) -> BindingView:
    """A binding that requests its flavors, or says which it may get."""
    if not flavors or view.gang is None:
        return view
    found = flavor.variants(view.gang, flavors)
    if found[0].assigned:
        return replace(view, variants=tuple(found))
    return replace(view, gang=found[0].gang)


def _whole(each: NodeClass, resource: str) -> int:
    return max(each.devices.get(resource, 0), each.free.get(resource, 0))
