"""Who places pods in a member: a property of the member, written on its Cluster.

`atoll`: our own scheduler binds. `kube-scheduler`: ours plans whole gangs and Kubernetes' own binds, each pod on the
node of the plan. `volcano` and `kueue`: the member's own system decides, and Atoll watches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec
import orjson

from atoll.model import keys

AUTO: Final = "auto"
"""Value of the annotation by which the agent finds out."""
TAINT: Final[Mapping[str, str]] = {"key": keys.NODES, "value": "atoll", "effect": "NoSchedule"}
"""Of nodes that are Atoll's: others' pods stay away."""
TOLERATION: Final[Mapping[str, str]] = {"key": keys.NODES, "operator": "Exists", "effect": "NoSchedule"}
"""Of pods that Atoll sends."""

_SET = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_SPLIT = re.compile(r",(?![^(]*\))")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


class Unplaceable(ValueError):
    """The member's placer does not take such a workload; the message says why and what to do."""


class Placer(StrEnum):
    """Who places."""

    ATOLL = "atoll"
    VOLCANO = "volcano"
    KUBE_SCHEDULER = "kube-scheduler"
    KUEUE = "kueue"

    @property
    def honours_needs(self) -> bool:
        """Whether it looks at all that pods may insist on; our own scheduler knows no more than it says of itself."""
        return self is not Placer.ATOLL


SCHEDULERS: Final = ("", keys.SCHEDULER_NAME, "volcano", "default-scheduler")
"""schedulerName of pods that leave it to the federation who places them."""
SCHEDULER_OF: Final[Mapping[Placer, str]] = {
    Placer.ATOLL: keys.SCHEDULER_NAME,
    Placer.VOLCANO: "volcano",
    Placer.KUBE_SCHEDULER: "default-scheduler",
    Placer.KUEUE: "default-scheduler",
}
REASONS: Final[Mapping[str, str]] = {
    Placer.ATOLL: "Atoll",
    Placer.VOLCANO: "Volcano",
    Placer.KUBE_SCHEDULER: "KubeScheduler",
    Placer.KUEUE: "Kueue",
}
"""Placer -> reason of condition Placer of its Cluster."""


def of_reason(reason: str) -> Placer | None:
    """The inverse of `REASONS`; None for another."""
    return next((Placer(placer) for placer, each in REASONS.items() if each == reason), None)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a Cluster says of placing in its member."""

    placer: Placer | None = None
    """None where the agent is to find out."""
    queue: str = ""
    """Of Volcano or Kueue in the member; empty for none."""
    nodes: str = ""
    """Label selector of the nodes that are Atoll's; empty: all."""


@dataclass(frozen=True, slots=True)
class MadeFor:
    """How a workload is made for its member; written on it, so that it stays the same when the member changes."""

    placer: Placer = Placer.ATOLL
    queue: str = ""
    """Of the member, that it goes through; empty leaves its own."""
    tolerates: bool = False
    """Whether its pods tolerate the taint of nodes that are Atoll's."""

    def text(self) -> str:
        """For an annotation."""
        return orjson.dumps({"placer": self.placer, "queue": self.queue, "tolerates": self.tolerates}).decode()


def made_for(text: str | None) -> MadeFor | None:
    """The inverse of `MadeFor.text`; None for what was delivered before there were placers, or can't be read."""
    try:
        return msgspec.json.decode(text or "null", type=MadeFor | None)
    except msgspec.MsgspecError:
        return None


def parse(text: str | None) -> Placer | None:
    """The placer of that name; None for `auto`.

    Raises:
        ValueError: there is none of that name.
    """
    if not text or text == AUTO:
        return None
    try:
        return Placer(text)
    except ValueError:
        raise ValueError(f"{text!r} is none of {', '.join(Placer)}, {AUTO}") from None


def wish(annotations: Mapping[str, str]) -> Wish:
    """What the annotations of a Cluster say.

    Raises:
        ValueError: the placer or the selector can't be read; the message names the annotation.
    """
    try:
        placer = parse(annotations.get(keys.PLACER))
    except ValueError as error:
        raise ValueError(f"annotation {keys.PLACER}: {error}") from None
    nodes = annotations.get(keys.NODES, "").strip()
    try:
        parse_selector(nodes)
    except ValueError as error:
        raise ValueError(f"annotation {keys.NODES}: {error}") from None
    return Wish(placer, annotations.get(keys.MEMBER_QUEUE, "").strip(), nodes)


def parse_selector(text: str) -> dict[str, Any]:
    """A label selector as kubectl takes it (`pool=gpu,zone in (a,b),!spot`), as a LabelSelector.

    Raises:
        ValueError: it is not of that form.
    """
    expressions = [_requirement(part.strip()) for part in _SPLIT.split(text) if text.strip()]
    return {"matchExpressions": expressions}


def _requirement(text: str) -> dict[str, Any]:
    if found := _SET.fullmatch(text):
        values = [value.strip() for value in found["values"].split(",")]
        return _checked(text, found["key"], {"in": "In", "notin": "NotIn"}[found["operator"]], values)
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In")):
        key, found_sign, value = text.partition(sign)
        if found_sign:
            return _checked(text, key.strip(), operator, [value.strip()])
    if text.startswith("!"):
        return _checked(text, text[1:].strip(), "DoesNotExist", [])
    return _checked(text, text, "Exists", [])


def _checked(text: str, key: str, operator: str, values: list[str]) -> dict[str, Any]:
    if not _KEY.fullmatch(key) or not all(_VALUE.fullmatch(value) for value in values):
        raise ValueError(f"{text!r} is no label selector: write key=value, key!=value, key in (a,b), key or !key")
    return {"key": key, "operator": operator, **({"values": values} if values else {})}


__all__ = [
    "AUTO",
    "TAINT",
    "TOLERATION",
    "MadeFor",
    "Placer",
    "Unplaceable",
    "Wish",
    "made_for",
    "parse",
    "parse_selector",
    "wish",
]
