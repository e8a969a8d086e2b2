"""Small members to place gangs on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from atoll.fit import Miss, Nodes, Placement, Profile
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.topology import NO_DOMAIN, Domain, Tree


def make_gang(replicas: int, *, minimum: int | None = None, hard: int | None = None, gpu: int = 1, **task: Any) -> Gang:
    """One task of equal pods that ask for GPUs."""
    floor = replicas if minimum is None else minimum
    wish = TopologyWish("hard", hard) if hard is not None else None
    return Gang("q", [Task("t", replicas, floor, {"gpu": gpu, "pods": 1}, **task)], floor, network_topology=wish)


def make_nodes(
    racks: Sequence[Sequence[int]], *, loose: Sequence[int] = (), profiles: Mapping[int, Profile] | None = None
) -> Nodes:
    """Nodes by their free GPUs: racks of tier 1 below one spine of tier 2, and loose ones in no domain."""
    domains = [Domain("spine", 2, tier_name="spine"), *(Domain(f"rack{r}", 1, 0, "rack") for r in range(len(racks)))]
    free = [gpu for rack in racks for gpu in rack] + list(loose)
    lowest = [r + 1 for r, rack in enumerate(racks) for _ in rack] + [NO_DOMAIN] * len(loose)
    kinds = [(profiles or {}).get(n, Profile()) for n in range(len(free))]
    return Nodes(
        Tree(domains),
        lowest,
        [f"n{n}" for n in range(len(free))],
        kinds,
        list(range(len(free))),
        [{"gpu": g, "pods": 9} for g in free],
    )


def pods_on(placement: Placement | Miss) -> dict[int, int]:
    assert isinstance(placement, Placement), placement
    count = Counter[int]()
    for _, node, pods in placement.pods:
        count[node] += pods
    return dict(count)
