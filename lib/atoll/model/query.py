"""What `query.atoll.sh` answers: why a workload waits, with numbers, and what would let it start.

Quantities are texts as Kubernetes writes them, times are RFC 3339. Field names are those of the JSON.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from atoll.model.verdict import Blocker


class Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Of any struct below."""


class Limit(Value, frozen=True):
    """A limit that the workload would exceed."""

    kind: str
    """`Queue` or `Namespace`."""
    name: str
    resource: str
    requested: str
    available: str
    shortage: str
    """By how much the limit is too low now."""
    declared: bool = True
    """It is set on the queue; if not, it follows from what the members have and what other queues are guaranteed."""
    guaranteed: bool = False
    """The missing amount is guaranteed to the queues beside it."""
    cluster: str = ""
    """The member for which it is set; empty for all together."""


class Named(Value, frozen=True):
    """Another workload, by its binding."""

    namespace: str
    name: str
    workload: str = ""
    """Its own name; empty where it is not known."""


class Share(Value, frozen=True):
    """What a workload is ordered by in a queue with fair shares."""

    order: str
    """`fair-namespaces` or `fair-jobs`."""
    resource: str = ""
    """The dominant one; empty where nothing is used."""
    part: float = 0.0
    """Of what the queue may use: used by the workload's namespace, or by the workload once it runs."""
    weight: float = 1.0
    """Of the namespace; the part divided by it is what counts."""


class Position(Value, frozen=True):
    """The place of a workload in the order of its queue."""

    queue: str
    position: int
    """1 for the next one."""
    waiting: int
    """Workloads that wait in the queue, this one included."""
    ahead: list[Named] = []
    """Those right before it, the nearest last."""
    more: int = 0
    """How many others are ahead."""
    share: Share | None = None
    """Only where the queue is ordered by fair share."""


class Figure(Value, frozen=True):
    """Use of a resource by a queue and the ones below it, and their bounds."""

    resource: str
    used: str
    limit: str = ""
    """Most that it may use now, by its own limit, those above it and what its members have; empty: unlimited."""
    deserved: str = ""
    guarantee: str = ""
    capability: str = ""
    """As its own spec says."""
    share: float | None = None
    """Used part of the limit."""
    borrowed: str = ""
    lenders: list[str] = []
    """Queues from whose unused amounts it borrows, the largest first."""


class Room(Value, frozen=True):
    """What one member could take of the workload."""

    cluster: str
    pods: int
    """Pods that must start together."""
    fits: int
    """How many of them have room now."""
    reason: str = ""
    """Why it can't start there; empty where it could."""
    message: str = ""
    domain: str = ""
    """The best topology domain, where it must fit one."""
    resource: str = ""
    """The resource that is short; empty where it is not one resource, or where others are nearer."""
    shortage: str = ""


class Reserved(Value, frozen=True):
    """Capacity that is reserved for the workload."""

    cluster: str
    at: str = ""
    """When it can start as far as is known; empty where some of what must end has no estimate."""


class Place(Value, frozen=True):
    """A part of the workload."""

    cluster: str
    pods: int
    domain: str = ""


class ChangeKind(StrEnum):
    """What would have to change."""

    LIMITS = "RaiseLimits"
    EVICT = "Evict"
    """The dispatcher takes these back by itself."""
    FINISH = "Finish"
    ROOM = "AddRoom"
    QUEUE = "Queue"
    """The state of its queue, or those before it."""
    POLICY = "Policy"
    """Where it may run."""
    WISH = "Wish"
    """Its user's own wish."""
    WAIT = "Wait"
    """It happens by itself."""


class Change(Value, frozen=True):
    """One thing that would help."""

    kind: ChangeKind
    message: str
    enough: bool = False
    """It would start with this change alone."""
    limits: list[Limit] = []
    workloads: list[Named] = []
    more: int = 0
    """How many further workloads."""
    at: str = ""
    """When it happens by itself, as far as run times are known."""


class Account(Value, frozen=True):
    """All about a workload that waits, or would."""

    starts: bool = False
    """Only of a what-if: it would start now."""
    places: list[Place] = []
    """Where, if it would."""
    flavors: list[str] = []
    """That it would get there, as resources with the flavor; empty where it leaves none open."""
    phase: str = ""
    reason: str = ""
    message: str = ""
    blocker: Blocker | None = None
    since: str = ""
    """When the reason was first written."""
    queue: Position | None = None
    limits: list[Limit] = []
    clusters: list[Room] = []
    reserved: Reserved | None = None
    changes: list[Change] = []
    """Changes that are enough by themselves first."""
    never: str = ""
    """Why it can't start as things are, whatever ends; empty where it may."""
    moves: str = ""
    """Why no gangs move out of a topology domain for it, by the last search; empty where none was made."""
    figures: list[Figure] = []
    """Of its queue."""


class GangSize(Value, frozen=True):
    """The largest gang of equal pods that fits now, by this resource alone."""

    each: str
    """What one pod requests."""
    pods: int
    """In the member."""
    near: int
    """In one of its lowest topology domains; 0 where nodes are in none."""


class Stock(Value, frozen=True):
    """A resource of a member."""

    resource: str
    free: str
    total: str
    node: str
    """The most that is free on one node."""
    gangs: list[GangSize] = []
    """Pods of 1, 2, 4 and so on, up to what one node has free."""


class QueueLeft(Value, frozen=True):
    """What a queue may still use in a member."""

    queue: str
    resources: dict[str, str] = {}
    """Resource -> amount left by its limits, the limits above it, its ceilings in the member and the quotas of the
    namespace; a resource without an entry is unlimited.
    """


class Available(Value, frozen=True):
    """What a namespace may use of a member."""

    message: str = ""
    """Why the member takes nothing now, or not everything; empty where it does."""
    stocks: list[Stock] = []
    queues: list[QueueLeft] = []
    """Open to the namespace and served by the member: the ones that name their namespaces first."""
    more: int = 0
    """How many further queues."""
