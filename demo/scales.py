"""How large the demo is: members, queues, and how much of the trace, in how much time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from atoll.local.layout import FederationConfig, Member, NodeGroup, Tier, Topology
from demo.philly import ROWS

GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Scale:
    """One size of the demo."""

    config: FederationConfig
    queues: Mapping[str, int]
    """Queue -> its capability in GPUs."""
    factor: float
    """Seconds of the trace per second of the demo."""
    every: int
    """Takes each n-th row of the trace's slice."""
    moved: int
    """16-GPU jobs of the trace, moved into the slice."""
    synthetic: int
    """Gangs of 32 to 64 GPUs, made up."""


QUEUE_OF = {"6214e9": "research", "b436b2": "research", "11cb48": "nightly", "6c71a0": "shared", "103959": "shared"}
"""Virtual cluster of the trace -> queue of the demo."""


def _member(name: str, nodes: int, rack: int, block: int) -> Member:
    tiers = [Tier(name="rack", size=rack), Tier(name="block", size=block), Tier(name="fabric", size=1)]
    allocatable = {"cpu": "64", "memory": "512Gi", GPU: str(GPUS_PER_NODE), "pods": "110"}
    return Member(name=name, nodes=[NodeGroup(count=nodes, allocatable=allocatable)], topology=Topology(tiers=tiers))


#: Capabilities add up to more than the members hold, so that some wait for quota and others for room.
FULL = Scale(
    FederationConfig(members=[_member("east", 16, 4, 2), _member("north", 12, 4, 2), _member("west", 8, 2, 2)]),
    {"research": 144, "nightly": 96, "shared": 96},
    factor=360,
    every=1,
    moved=4,
    synthetic=12,
)
SMALL = Scale(
    FederationConfig(members=[_member("east", 8, 4, 2), _member("west", 4, 2, 2)]),
    {"research": 64, "nightly": 64, "shared": 64},
    factor=3600,
    every=len(ROWS) // 14 + 1,
    moved=2,
    synthetic=5,
)
SCALES = {"full": FULL, "small": SMALL}
