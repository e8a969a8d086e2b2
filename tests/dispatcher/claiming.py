"""Workloads with claims, and figures of members about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from atoll.dispatcher.core import CapacitySet
from atoll.model.claim_shapes import name_of, shape_of
from tests.dispatcher.builders import BindingBuilder, make_binding


def claims(*constraints: str) -> list[dict[str, Any]]:
    devices: dict[str, Any] = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}
    devices["constraints"] = [{"matchAttribute": each} for each in constraints]
    return [{"name": "c", "spec": {"devices": devices}}]


PAIR, OTHER = claims("root"), claims("numa")
PAIRS, OTHERS = (name_of(shape_of(each)) for each in (PAIR, OTHER))


def pairs(name: str, pods: int, **more: Any) -> BindingBuilder:
    return make_binding(name).tasks(pods, claims=PAIR, **more)


def saying(event: CapacitySet, fits: Iterable[int], shape: str = PAIRS) -> CapacitySet:
    """The same nodes, of which the member says how many pods of a shape fit on each."""
    classes = [
        dataclasses.replace(each, free={**each.free, shape: count})
        for each, count in zip(event.capacity.classes, fits, strict=True)
    ]
    return CapacitySet(dataclasses.replace(event.capacity, classes=tuple(classes)))
