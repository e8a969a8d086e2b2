"""Which nodes are lost, with recovery damped; and which domains are lost with them.

A node that is not Ready is lost at once; it counts again when it was Ready for some time without a break, so a link
that flaps does not bring gangs back each time it is up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from atoll.model.topology import NO_DOMAIN, Tree

_JOINS = 120.0
"""Seconds that a node may take from its creation until it is Ready for the first time."""


class Health:
    """Which nodes of a cluster are lost. Times are seconds since the epoch."""

    def __init__(self, recovery: float) -> None:
        """Begin without nodes.

        Args:
            recovery: seconds that a node must be Ready before it counts again.
        """
        self._recovery = recovery
        #: node that is lost -> since when it is Ready again, or None while it is not
        self._lost: dict[str, float | None] = {}
        self._known: set[str] = set()

    @property
    def lost(self) -> Mapping[str, float | None]:
        """Node -> since when it is Ready again, though it does not count yet; None while it is not Ready."""
        return self._lost

    def observe(self, node: str, *, ready: bool, since: float, created: float, now: float) -> None:
        """A node came or is different.

        Args:
            node: its name.
            ready: its condition Ready.
            since: when that began; of a process that begins, this tells of a recovery that it did not see.
            created: when the node was made.
            now: the time.
        """
        new = node not in self._known
        self._known.add(node)
        if not ready:
            self._lost[node] = None
        elif node in self._lost:
            if self._lost[node] is None:
                self._lost[node] = now
        elif new and since - created > _JOINS and now - since < self._recovery:
            self._lost[node] = since

    def gone(self, node: str) -> None:
        """A node was deleted."""
        self._known.discard(node)
        self._lost.pop(node, None)

    def recover(self, now: float) -> bool:
        """Count those again that are Ready for long enough; whether there were any."""
        over = [node for node, since in self._lost.items() if since is not None and now - since >= self._recovery]
        for node in over:
            del self._lost[node]
        return bool(over)

    @property
    def deadline(self) -> float | None:
        """When `recover` finds something to do; None for never."""
        return min((since + self._recovery for since in self._lost.values() if since is not None), default=None)


@dataclass(frozen=True, slots=True)
class Members:
    """Content of each domain, by its index."""

    nodes: list[list[str]]
    """All nodes below it, sorted."""
    own: list[list[str]]
    """Those of which it is the lowest domain."""
    children: list[list[int]]


def members(tree: Tree, lowest: Mapping[str, int]) -> Members:
    """Content of each domain of a tree."""
    found = Members([[] for _ in tree.domains], [[] for _ in tree.domains], [[] for _ in tree.domains])
    for node in sorted(lowest):
        found.own[lowest[node]].append(node)
        for above in tree.ancestors(lowest[node]):
            found.nodes[above].append(node)
    for index, domain in enumerate(tree.domains):
        if domain.parent != NO_DOMAIN:
            found.children[domain.parent].append(index)
    return found


def lost_domains(tree: Tree, inside: Members, lost: Mapping[str, object], share: float) -> set[int]:
    """The domains that are lost as a whole: their switch, not a node, is what failed.

    A domain of nodes is lost with all of them, or with at least two that are this share; a domain of domains with all
    of those that have nodes.

    Args:
        tree: the domains.
        inside: content of each.
        lost: the nodes that are.
        share: above 0, at most 1.
    """
    found: set[int] = set()
    # From the bottom up: domains are sorted by tier, the highest first.
    for index in reversed(range(len(tree.domains))):
        if not inside.nodes[index]:
            continue
        own = inside.own[index]
        gone = sum(node in lost for node in own)
        if own and not (gone == len(own) or (gone >= 2 and gone >= share * len(own))):
            continue
        if all(child in found for child in inside.children[index] if inside.nodes[child]):
            found.add(index)
    return found
