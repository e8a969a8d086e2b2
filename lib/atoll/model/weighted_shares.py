"""What siblings in the quota tree are entitled to: the arithmetic alone, on integers.

Apart from the tree so that the rules can be read, and checked by hand, without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

_GIB = 2**30


class Claim(NamedTuple):
    """One sibling's claim to one resource."""

    weight: int
    wanted: int
    """Its use and the amounts that wait in it."""
    limit: int | None
    """Real capability; None for unlimited."""
    guarantee: int
    created: str
    name: str


def water_fill(pool: int, claims: Sequence[Claim]) -> list[int]:
    """Divide `pool` by weight; what one does not want or may not have goes to the others.

    The loop of Volcano's proportion plugin for one resource: in each round the hungry get what remains by weight,
    clipped by limit and by what is wanted, then raised to the guarantee. It is exact until the end, and then rounded to
    whole units so that the sum stays: left-over units go to the largest remainder, ties to the older, then by name.
    At most one round more than there are claims. The sum exceeds the pool only where guarantees do.
    """
    # Numerators over one common denominator that grows with each division: exact, and faster than fractions.
    scale = 1
    parts = [0] * len(claims)
    ceilings = [claim.wanted if claim.limit is None else max(min(claim.wanted, claim.limit), 0) for claim in claims]
    full = [max(ceiling, claim.guarantee) for ceiling, claim in zip(ceilings, claims, strict=True)]
    if sum(full) <= pool:
        return full
    hungry = list(range(len(claims)))
    remaining = max(pool, 0)
    while hungry:
        weights = sum(claims[index].weight for index in hungry) or 1
        share = remaining
        scale *= weights
        remaining *= weights
        parts = [part * weights for part in parts]
        before = remaining
        for index in hungry:
            grown = min(parts[index] + share * claims[index].weight, ceilings[index] * scale)
            grown = max(grown, claims[index].guarantee * scale)
            remaining -= grown - parts[index]
            parts[index] = grown
        hungry = [index for index in hungry if parts[index] < ceilings[index] * scale]
        if remaining <= 0 or remaining == before:
            break
    return _whole(parts, scale, claims)


def _whole(parts: Sequence[int], scale: int, claims: Sequence[Claim]) -> list[int]:
    """Whole units of numerators over `scale`, with the same sum rounded down."""
    whole = [part // scale for part in parts]
    left = sum(parts) // scale - sum(whole)
    if left:
        order = sorted(range(len(claims)), key=lambda i: (-(parts[i] % scale), claims[i].created, claims[i].name))
        for index in order[:left]:
            whole[index] += 1
    return whole


def entitlement(deserved: int, limit: int | None, guarantee: int) -> int:
    """What a declared deserved amount comes to: never over the limit, never below the guarantee."""
    return max(deserved if limit is None else min(deserved, limit), guarantee)


def real_capability(capability: int | None, parent: int | None, pledged: int, guarantee: int) -> int | None:
    """A queue's limit: what the parent's limit leaves after all guarantees, plus its own, capped by its capability.

    As Volcano's capacity plugin. Guarantees that exceed the parent's limit (capacity was lost) leave each sibling its
    own guarantee. None is unlimited.
    """
    if parent is None:
        return capability
    free = max(parent - pledged, 0) + guarantee
    return free if capability is None else min(capability, free)


def dominant_share(used: Mapping[str, int], deserved: Mapping[str, int], names: Collection[str]) -> float:
    """The largest used/deserved; 1 for a resource that is used and not deserved."""
    worst = 0.0
    for name in names:
        amount = used.get(name, 0)
        if amount > 0:
            entitled = deserved.get(name, 0)
            share = amount / entitled if entitled > 0 else 1.0
            worst = max(worst, share)
    return worst


def share_and_burden(
    used: Mapping[str, int], deserved: Mapping[str, int], shared: Collection[str], limit: Mapping[str, int], weight: int
) -> tuple[float, float]:
    """(dominant share, burden) of what a queue uses, in one loop: it is computed whenever that changes.

    The share is against deserved amounts of the resources that siblings share, against the limit of others. The burden
    is how much is used of what gives no share, per weight: the order where capacity is unknown. Cores, GiB of memory
    and storage, and devices count alike; the largest decides.
    """
    share = load = 0.0
    for name, amount in used.items():
        if amount <= 0:
            continue
        measure = deserved.get(name, 0) if name in shared else limit.get(name)
        if measure is not None:
            part = amount / measure if measure > 0 else 1.0
            if part > share:
                share = part
        if measure is None or (measure <= 0 and name in shared):
            load = max(load, amount / _per_unit(name))
    return share, load / max(weight, 1)


def _per_unit(resource: str) -> int:
    if resource == "cpu":
        return 1000
    return _GIB if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-") else 1
