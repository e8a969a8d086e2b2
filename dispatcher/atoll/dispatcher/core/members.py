"""Member clusters as the core sees them: published capacity minus what was decided and is not yet part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atoll.dispatcher.core.events import CapacityView, ClusterView
from atoll.fit import Miss, Nodes, Placement, Profile, fill, place
from atoll.model import selectors
from atoll.model.gang import Gang
from atoll.model.topology import NO_DOMAIN, Domain, Tree


@dataclass(slots=True)
class Member:
    """One cluster."""

    name: str
    #: None until the Cluster object is seen; a member without it takes nothing
    view: ClusterView | None = None
    #: root domain -> what was published about it
    roots: dict[str, CapacityView] = field(default_factory=dict)
    #: published free amounts minus `inflight`; rebuilt when a root changes
    nodes: Nodes = field(default_factory=lambda: Nodes(Tree(), [], [], [], [], []))
    #: binding UID -> (gang, where it is assumed) of decisions that `roots` may not contain yet, subtracted in `nodes`
    inflight: dict[str, tuple[Gang, Placement]] = field(default_factory=dict)
    #: UIDs of bindings with a part here that the published figures may not contain yet; `inflight` has no others
    expected: set[str] = field(default_factory=set)

    @property
    def generation(self) -> int:
        """The oldest generation among its capacity objects: what all of them contain."""
        return min((root.generation for root in self.roots.values()), default=-1)

    @property
    def ready(self) -> bool:
        return self.view is not None and self.view.ready

    def accepts(self, affinity: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a cluster affinity and tolerations allow this member."""
        if self.view is None:
            return False
        names = affinity.get("clusterNames")
        if (names and self.name not in names) or self.name in (affinity.get("exclude") or ()):
            return False
        selector = affinity.get("labelSelector")
        if selector and not selectors.label_selector_matches(selector, self.view.labels):
            return False
        for each in (affinity.get("fieldSelector") or {}).get("matchExpressions") or ():
            inside = not set(self.view.fields.get(each.get("key", ""), ())).isdisjoint(each.get("values") or ())
            if inside is (each.get("operator") == "NotIn"):
                return False
        return selectors.untolerated(self.view.taints, tolerations) is None

    def set_root(self, capacity: CapacityView) -> bool:
        """Take in what was published; True when there may be more room than before."""
        before = self._room()
        self.roots[capacity.root] = capacity
        self.rebuild()
        return self._room() != before

    def drop_root(self, root: str) -> None:
        """Nothing is published about this root any more."""
        self.roots.pop(root, None)
        self.rebuild()

    def assume(self, uid: str, gang: Gang, placement: Placement) -> None:
        """Count a decision until the member's own figures contain it."""
        self.nodes.take([task.requests for task in gang.tasks], placement)
        self.inflight[uid] = (gang, placement)
        self.expected.add(uid)

    def forget(self, uid: str) -> bool:
        """Stop counting a decision; True when it was counted."""
        self.expected.discard(uid)
        entry = self.inflight.pop(uid, None)
        if entry is None:
            return False
        gang, placement = entry
        self.nodes.give([task.requests for task in gang.tasks], placement)
        return True

    def rebuild(self) -> None:
        """Arrays from the published classes, with the decisions in flight placed anew."""
        self.nodes = _nodes(sorted(self.roots.values(), key=lambda root: root.root))
        for uid, (gang, _) in list(self.inflight.items()):
            placement = place(self.nodes, gang)
            if isinstance(placement, Miss):
                # Some of its pods are in the new figures already; the room for the others is spoken for.
                placement = fill(self.nodes, gang)
            self.nodes.take([task.requests for task in gang.tasks], placement)
            self.inflight[uid] = (gang, placement)

    def _room(self) -> tuple[object, ...]:
        return (self.nodes.resources, self.nodes.free.tobytes(), self.nodes.tree)


def _nodes(roots: list[CapacityView]) -> Nodes:
    """Classes spread out into single nodes, so that partly filled ones need no bookkeeping of their own."""
    names = [name for root in roots for name, *_ in root.domains]
    index = {name: number for number, name in enumerate(names)}
    domains = [
        Domain(name, tier, index.get(parent, NO_DOMAIN), tier_name)
        for root in roots
        for name, tier, tier_name, parent in root.domains
    ]
    profiles: list[Profile] = []
    lowest: list[int] = []
    profile: list[int] = []
    free: list[dict[str, int]] = []
    for root in roots:
        for node_class in root.classes:
            profiles.append(Profile(node_class.labels, node_class.taints))
            for _ in range(node_class.nodes):
                lowest.append(index.get(node_class.domain, NO_DOMAIN))
                profile.append(len(profiles) - 1)
                free.append(node_class.free)
    return Nodes(Tree(domains), lowest, [""] * len(free), profiles, profile, free)
