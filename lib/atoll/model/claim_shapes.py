"""Claim shapes: everything about the ResourceClaims of a pod that decides which devices it gets.

The host tells members which shapes are waited for; their figures say how many such pods fit on each node, as a resource
of the shape's own name. No pod requests it: free devices by class are necessary, these figures are exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from atoll.model.gang import Task
from atoll.model.vector import Vector

Json = dict[str, Any]
Shape = list[Json]
"""Claims of one pod, as `Task.claims`."""
SUFFIX: Final = ".claims.atoll.sh/pods"
"""Of the names of shapes."""
MOST: Final = 16
"""Shapes that members are asked about."""
_LONGEST: Final = 4096
"""Bytes of one; the member is asked about larger ones when a workload goes there."""

_WORDS: Final = 200
"""Characters of an answer about one."""

_encoder = msgspec.json.Encoder(order="deterministic")
_decode = msgspec.json.Decoder(list[Shape]).decode


def is_shape(resource: str) -> bool:
    """Whether a resource stands for a shape."""
    return resource.endswith(SUFFIX)


def shape_of(claims: Sequence[Mapping[str, Any]]) -> Shape:
    """Without names of claims and parameters of drivers: equal shapes fit equally."""
    devices = [(each.get("spec") or {}).get("devices") or {} for each in claims]
    return [
        {"name": str(number), "spec": {"devices": {key: each[key] for key in _DECIDE if each.get(key)}}}
        for number, each in enumerate(devices)
    ]


_DECIDE = ("requests", "constraints")


def name_of(shape: Shape) -> str:
    """The resource that stands for a shape."""
    return hashlib.sha256(_encoder.encode(shape)).hexdigest()[:16] + SUFFIX


def words(claims: Sequence[Mapping[str, Any]]) -> str:
    """Devices that one pod gets: `1 gpu.example.com and 1 nic.example.com with one pcieRoot`."""
    wishes: list[str] = []
    joins: dict[str, None] = {}
    for each in shape_of(claims):
        devices = each["spec"]["devices"]
        for request in devices.get("requests") or ():
            ways = [request.get("exactly") or {}] if "exactly" in request else request.get("firstAvailable") or ()
            wishes.append(" or ".join(map(_counted, ways)))
        for constraint in devices.get("constraints") or ():
            for key, text in (("matchAttribute", "one"), ("distinctAttribute", "different values of")):
                if constraint.get(key):
                    joins[f"{text} {constraint[key].rpartition('/')[2]}"] = None
    found = " and ".join(wishes) + (f" with {', '.join(joins)}" if joins else "")
    return found if len(found) <= _WORDS else found[:_WORDS] + " ..."


def _counted(way: Mapping[str, Any]) -> str:
    if way.get("allocationMode") == "All":
        return f"all {way.get('deviceClassName')} of a node with exactly {way.get('count')}"
    return f"{way.get('count') or 1} {way.get('deviceClassName')}"


def limited(task: Task) -> Vector:
    """Requests of a pod, and one of its shape."""
    return {**task.requests, name_of(shape_of(task.claims)): 1} if task.claims else task.requests


def shapes_of(tasks: Sequence[Task]) -> dict[str, Shape]:
    """Shapes that are short enough to ask members about, by name."""
    found = [shape_of(task.claims) for task in tasks if task.claims]
    return {name_of(each): each for each in found if len(_encoder.encode(each)) <= _LONGEST}


def encode(shapes: Mapping[str, Shape]) -> str:
    """The text that members get."""
    return _encoder.encode(list(shapes.values())).decode()


def decode(text: str) -> dict[str, Shape]:
    """Inverse of `encode`; nothing where it can't be read."""
    try:
        found = _decode(text) if text else []
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return {name_of(each): each for each in found[:MOST]}
