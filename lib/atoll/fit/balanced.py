"""Share pods out evenly over the domains of one tier: over as few as hold them, each with as many as the others.

Where one domain holds all there is nothing to share out. Of equally even choices the one with the least capacity wins,
so that large empty domains stay whole.
"""

from __future__ import annotations

import numpy as np

from atoll.fit.nodes import Nodes
from atoll.fit.placement import Ints
from atoll.model.gang import TopologyWish
from atoll.model.topology import NO_DOMAIN


def shares(held: Ints, count: int) -> Ints | None:
    """int64[D]: how much of a count each of the domains gets that hold int64[D]; None where one of them is enough, or
    all do not hold it.
    """
    rising = np.argsort(held, kind="stable")
    ranked = held.take(rising)
    from_largest = ranked[::-1].cumsum()
    fewest = int(from_largest.searchsorted(count)) + 1
    if fewest < 2 or fewest > len(held):
        return None
    # The most that each of so many can have.
    least = min(count // fewest, int(ranked[-fewest]))
    first = int(ranked.searchsorted(least))
    sums = np.concatenate(([0], ranked.cumsum()))
    enough = sums[first + fewest :] - sums[first : len(ranked) - fewest + 1] >= count
    first += int(enough.argmax())
    found = np.zeros(len(held), np.int64)
    for number in range(fewest):
        domain = rising[first + number]
        found[domain] = min(int(held[domain]), count // (fewest - number))
        count -= int(found[domain])
    return found


def parts(nodes: Nodes, wish: TopologyWish, room: Ints, count: int) -> list[tuple[Ints, int]]:
    """(capacity inside of one domain, pods that go there) for each domain of the tier that gets some of `count` pods;
    empty where they can't be shared out.

    Args:
        nodes: their trees.
        wish: names the tier.
        room: int64[N], pods that each node holds.
        count: pods.
    """
    inside = nodes.at(wish)
    if inside is None:
        return []
    found = shares(sums(inside, room), count)
    if found is None:
        return []
    return [(np.where(inside == domain, room, 0), int(found[domain])) for domain in np.flatnonzero(found).tolist()]


def sums(inside: Ints, room: Ints) -> Ints:
    """int64[D]: the capacity of each domain that int64[N] nodes are in."""
    there = inside != NO_DOMAIN
    found: Ints = np.bincount(inside[there], room[there]).astype(np.int64)
    return found
