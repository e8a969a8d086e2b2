"""Two strategies: members by a label that says their price, and gangs divided as evenly as members have room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atoll.model.strategies import Member, Workload

PRICE = "example.com/price"
"""Label of a Cluster: what an hour of one of its GPUs costs."""


def cheapest(workload: Workload, members: Sequence[Member]) -> Mapping[str, float]:
    """The cheapest first; a member without a price, or with one that is no number, last."""
    return {member.name: -_price(member) for member in members}


def _price(member: Member) -> float:
    try:
        return float(member.labels.get(PRICE, ""))
    except ValueError:
        return 1e9


def evenly(workload: Workload, members: Sequence[Member]) -> Mapping[str, int]:
    """As many members as the policy allows, each with as equal a part as it has room for."""
    able = sorted((member for member in members if member.sets), key=lambda member: (-member.sets, member.name))
    able = able[: workload.most_members or len(able)]
    shares = {}
    left = workload.sets
    for place, member in reversed(list(enumerate(able))):
        # Those with the least room come first; what they can't take the larger ones do.
        shares[member.name] = min(member.sets, -(-left // (place + 1)))
        left -= shares[member.name]
    return {} if left else {name: sets for name, sets in shares.items() if sets}
