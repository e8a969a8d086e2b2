"""What the member's core decides; values, with objects by key and UID."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Reserve(Struct, frozen=True, gc=False):
    """Have a ResourceClaim reserved for a pod."""

    claim: str
    uid: str
    allocation: dict[str, Any] | None
    """To be written with it; None where the claim has one."""
    pod: str
    """Key."""
    spec: dict[str, Any] | None = None
    """Of a claim that does not exist yet and is made first, for this pod."""
    mappings: tuple[dict[str, str], ...] = ()
    """Containers of the pod to requests of the claim, where it stands for extended resources."""


class Bind(Struct, frozen=True, gc=False):
    """Bind these pods, all of them; the gate of a pod that waits at ours is lifted, for its node."""

    gang: str
    pods: tuple[tuple[str, str, str], ...]
    """(key, UID, node)."""
    reserves: tuple[Reserve, ...] = ()
    """Before that."""


class Deallocate(Struct, frozen=True, gc=False):
    """Take the allocation and the reservation of a ResourceClaim back, unless its pod has a node by now."""

    claim: str
    uid: str
    version: str
    """resourceVersion at which that was decided."""
    pod: str
    """Key of the pod that it is reserved for."""


class Explain(Struct, frozen=True, gc=False):
    """Why pods of a gang have no node, where that or the pods changed."""

    gang: str
    reason: str
    """As `Wait.reason`; empty where none waits any more."""
    message: str
    reworded: bool = True
    """Whether the reason or the message is another one."""


class Remake(Struct, frozen=True, gc=False):
    """Have a pod made again that another scheduler did not bind in time."""

    pod: str
    uid: str


class Answer(Struct, frozen=True, gc=False):
    """What became of a hold; `MemberCore.holds` has the rest."""

    uid: str
    epoch: int
    state: str
    """Reserved, Fits, Refused; or Over, when nothing is left of it."""
    nodes: tuple[tuple[str, int], ...] = ()
    """(node, pods), by name."""
    message: str = ""
    requested: int = 0
    available: int = 0
    kept: int = 0
    """Another number stands for another choice of nodes."""


class Evict(Struct, frozen=True, gc=False):
    """Evict these pods, so that a gang fits."""

    gang: str
    pods: tuple[tuple[str, str], ...]
    """(key, UID)."""
    message: str
    """Reason of their eviction."""


class Nominate(Struct, frozen=True, gc=False):
    """Which node is kept for each of these pods while others leave it."""

    gang: str
    pods: tuple[tuple[str, str, str], ...]
    """(key, UID, node); no node where none is kept any more."""


class Changed(Struct, frozen=True, gc=False):
    """Bindings whose placement, or whose reason to wait, is another one."""

    bindings: tuple[str, ...]


Command = Bind | Deallocate | Explain | Remake | Answer | Evict | Nominate | Changed
