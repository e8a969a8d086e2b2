"""Where nodes are in the topology of their member."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.local.layout import FederationConfig, hypernode_objects
from atoll.model import topology
from demo.record import Stay


class Places:
    """The trees of all members."""

    def __init__(self, config: FederationConfig) -> None:
        #: cluster -> (tree, node -> index of its lowest domain)
        self._trees = {
            member.name: (built.tree, built.lowest)
            for member in config.members
            for built in [topology.build(hypernode_objects(member), {name: {} for name in member.node_names()})]
        }
        #: tier -> its name
        self.tiers = dict(
            sorted({(domain.tier, domain.tier_name) for tree, _ in self._trees.values() for domain in tree.domains})
        )

    def tier(self, stays: Sequence[Stay]) -> int | None:
        """Tier of the smallest domain around these pods; None when they have none in common."""
        clusters = {stay.cluster for stay in stays}
        if len(clusters) != 1:
            return None
        tree, lowest = self._trees[clusters.pop()]
        shared: list[int] | None = None
        for node in {stay.node for stay in stays}:
            above = list(tree.ancestors(lowest.get(node, topology.NO_DOMAIN)))
            shared = above if shared is None else [domain for domain in shared if domain in above]
        return tree.domains[shared[0]].tier if shared else None
