"""What goes wrong, in which order: a deck of every kind of fault, shuffled by the seed, dealt again and again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.faults.proxy import Fault

COMPONENTS = ("webhook", "control", "dispatcher", "agent-alpha", "agent-beta", "agent-gamma")
ELECTED = ("control", "dispatcher")
SERVERS = ("alpha", "beta", "gamma", "host", "etcd")


class Kind(StrEnum):
    """The families of faults."""

    KILL = "killed"
    """SIGKILL at any moment; of a component with a standby either of them."""
    KILL_BEFORE = "killed before a write"
    KILL_AFTER = "killed after a write"
    """The write was carried out, its answer never arrived."""
    LEADER_CUT = "leader cut off"
    """Alive, but nothing passes between it and the host for longer than its lease."""
    LEADER_STOPPED = "leader stopped"
    """SIGSTOP for longer than its lease, then SIGCONT."""
    LEASE_DELETED = "lease deleted"
    LEASE_STOLEN = "lease stolen"
    """Somebody else's name is written into it."""
    OUTAGE = "outage"
    """SIGKILL of an API server or of etcd, which returns after seconds."""
    MEMBER_CUT = "member cut off"
    """Nothing passes between the agent of a member and the host, for long enough that what is exclusive moves."""
    CORDONED = "cordoned"
    """An administrator keeps new work away from a member."""
    DRAINED = "drained"
    """An administrator empties a member."""
    WIRE = "wire"
    """One of `tests.faults.Fault` on a connection of a process."""


KILLS = frozenset({Kind.KILL, Kind.KILL_BEFORE, Kind.KILL_AFTER})
MEMBERS = frozenset({Kind.MEMBER_CUT, Kind.CORDONED, Kind.DRAINED})
LEASES = frozenset({Kind.LEADER_CUT, Kind.LEADER_STOPPED, Kind.LEASE_DELETED, Kind.LEASE_STOLEN})


@dataclass(frozen=True, slots=True)
class Card:
    """One fault to play."""

    kind: Kind
    target: str = ""
    """Component or server; empty where any connection will do."""
    wire: Fault | None = None

    @property
    def name(self) -> str:
        """What the table calls it."""
        return str(self.wire) if self.wire is not None else f"{self.kind} ({self.target})"


def deck() -> list[Card]:
    """Every fault as often as it comes in one round."""
    cards = [Card(Kind.WIRE, wire=fault) for fault in Fault for _ in range(3)]
    for component in COMPONENTS:
        # The webhook writes at its start and hardly ever again.
        writes = component != "webhook"
        cards += [Card(kind if writes else Kind.KILL, component) for kind in sorted(KILLS)]
    cards += [Card(kind, component) for kind in sorted(LEASES) for component in ELECTED for _ in range(2)]
    cards += [Card(Kind.OUTAGE, server) for server in SERVERS]
    cards += [Card(kind, member) for kind in sorted(MEMBERS) for member in ("alpha", "beta", "gamma")]
    return cards


def deal(seed: int) -> Iterator[Card]:
    """Round after round, each in an order of its own."""
    rng = random.Random(f"faults {seed}")
    while True:
        cards = deck()
        rng.shuffle(cards)
        yield from cards
