"""The member's nodes and the domains that they are in, as their objects report them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from atoll.agent.objects import HyperNode, Node
from atoll.model import hami, topology
from atoll.model.topology import Built, Grown, Tree

log = structlog.get_logger(__name__)


class MemberNodes:
    """Begins empty. A node that is not selected is known and not used."""

    def __init__(self) -> None:
        #: in use
        self._nodes: dict[str, Node] = {}
        self._left_out: dict[str, Node] = {}
        self._selected: Callable[[Node], bool] = lambda _: True
        self._hyper_nodes: dict[str, HyperNode] = {}
        #: of all HyperNodes together; None: to be computed anew
        self._topology: Built | None = None
        #: valid while `_topology` is there
        self._lost: frozenset[str] = frozenset()
        #: HyperNode -> the part of it that is left out, and why
        self.problems: dict[str, str] = {}

    def __len__(self) -> int:
        """Number of nodes in use, ready or not."""
        return len(self._nodes)

    def node_changed(self, name: str, new: Node | None) -> tuple[Node | None, Node | None]:
        """A node is different, or gone (None).

        Returns: (before, now) while in use; (None, None) where nothing differs that placing reads.
        """
        old = self._nodes.get(name)
        if new is not None and not self._selected(new):
            self._left_out[name] = new
            new = None
        else:
            self._left_out.pop(name, None)
        if new is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = new
        if (old is None and new is None) or (old is not None and new is not None and _same(old, new)):
            return None, None
        self._topology = None
        return old, new

    def hyper_node_changed(self, name: str, new: HyperNode | None) -> bool:
        """A domain is different, or gone (None). True where placing reads a difference."""
        old = self._hyper_nodes.get(name)
        if new is None:
            self._hyper_nodes.pop(name, None)
        elif old is not None and _same_domain(old, new):
            return False
        else:
            self._hyper_nodes[name] = new
        self._topology = None
        return True

    def select(self, selected: Callable[[Node], bool]) -> list[Node]:
        """Use these nodes and no others, once each of the returned ones was reported again."""
        self._selected = selected
        return [*self._nodes.values(), *self._left_out.values()]

    def names(self) -> list[str]:
        """Names of the nodes in use, ready or not."""
        return list(self._nodes)

    def node(self, name: str) -> Node | None:
        """The node of that name, while in use."""
        return self._nodes.get(name)

    def known(self, name: str) -> Node | None:
        """The node of that name, used or not."""
        return self._nodes.get(name) or self._left_out.get(name)

    def labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a node; None for one that is not in use."""
        found = self._nodes.get(name)
        return found.metadata.labels if found is not None else None

    def ready(self) -> list[Node]:
        """Usable nodes, in order of their names."""
        return [self._nodes[name] for name in sorted(self._nodes) if self.usable(name)]

    def unusable(self) -> list[str]:
        """Names of the other nodes in use, in order."""
        return [name for name in sorted(self._nodes) if not self.usable(name)]

    def usable(self, name: str) -> bool:
        """True for a node that is ready and in no lost domain."""
        node = self._nodes.get(name)
        return node is not None and node.ready and name not in self.lost

    @property
    def lost(self) -> frozenset[str]:
        """Nodes in domains that `atoll-topology` reports as lost, ready or not."""
        self._built()
        return self._lost

    def topology(self) -> tuple[Tree, Mapping[str, int]]:
        """The domains of the tree without a name, and each node's lowest one; contradictions are left out."""
        built = self._built()
        return built.tree, built.lowest

    def other_trees(self) -> Mapping[str, Grown]:
        """The trees that have a name."""
        return self._built().others()

    def _built(self) -> Built:
        if self._topology is None:
            self._topology = self._build()
        return self._topology

    def _build(self) -> Built:
        labels = {name: node.metadata.labels for name, node in self._nodes.items()}
        found = topology.build([domain.body() for domain in self._hyper_nodes.values()], labels)
        for name, problem in found.problems.items():
            if self.problems.get(name) != problem:
                log.warning("part of a HyperNode is left out", hyper_node=name, problem=problem)
        self.problems = found.problems
        lost: set[str] = set()
        for grown in found.trees.values():
            tree = grown.tree
            gone = {number for number, each in enumerate(tree.domains) if self._hyper_nodes[each.name].lost}
            if gone:
                lost |= {node for node, low in grown.lowest.items() if not gone.isdisjoint(tree.ancestors(low))}
        self._lost = frozenset(lost)
        return found


def _same_domain(old: HyperNode, new: HyperNode) -> bool:
    """True if nothing differs that placing reads: counts in the status change all the time."""
    return (old.spec, old.metadata.labels, old.lost) == (new.spec, new.metadata.labels, new.lost)


def _same(old: Node, new: Node) -> bool:
    """True if nothing differs that placing reads: heartbeats change nodes all the time."""
    return (
        old.ready == new.ready
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and old.metadata.labels == new.metadata.labels
        and all(
            old.metadata.annotations.get(name) == new.metadata.annotations.get(name)
            for name in (hami.REGISTER, hami.CORDONED)
        )
        and old.metadata.uid == new.metadata.uid
    )
