"""Member clusters as the core sees them: published capacity minus decisions not yet part of it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from atoll.dispatcher.core.events import CapacityView, ClusterView, NodeClass
from atoll.dispatcher.split.distance import Place, place_of
from atoll.fit import Miss, Nodes, Placement, Profile, fill, place, weights
from atoll.fit.placement import MANY, Ints
from atoll.model import affinity as cluster_affinity
from atoll.model import claim_shapes, keys, selectors, vector
from atoll.model.features import said_of
from atoll.model.gang import Gang, TopologyWish
from atoll.model.member import UNSAID
from atoll.model.needs import HAMI, HONOURED
from atoll.model.selectors import NODE_NAME
from atoll.model.topology import NO_DOMAIN, Domain, Tree
from atoll.model.vector import Vector
from atoll.model.verdict import Blocker, Reason, Verdict

_NOTHING = np.zeros(0, np.int64)
_UNSAID = MANY
"""Pods of a shape of claims on nodes of which the member does not say how many fit."""
PublishedDomain = tuple[str, int, str, str]
"""See `CapacityView.domains`."""
_Others = Mapping[str, tuple[Tree, Mapping[str, int]]]
"""Name of each further tree -> it, and the index of each of its domains by name."""


def _no_nodes() -> Nodes:
    return Nodes.of_arrays(Tree(), _NOTHING, [], _NOTHING, (), np.zeros((0, 0), np.int64))


class _Published(NamedTuple):
    """What arrays of a root follow from."""

    view: CapacityView
    unknown: frozenset[str]
    #: in this order
    resources: tuple[str, ...]
    #: the index of each domain of the first tree, and the further trees
    domains: Mapping[str, int]
    others: _Others


@dataclass(slots=True, eq=False)
class _Laid:
    """Published figures of one root, as arrays; made anew when they or their meaning change."""

    made_of: _Published
    #: int64[resources + further trees + 2, classes]: free amounts on each node of a class, its domain in each further
    #: tree, its domain, its profile in `profiles`
    states: Ints
    profiles: list[Profile]
    #: int64[classes]
    nodes: Ints
    #: a name of each node, empty where it has none
    names: list[str]
    #: int64[nodes]: the index of each in `known`, its member's index of names
    places: Ints
    known: Mapping[str, int]

    @classmethod
    def of(cls, made_of: _Published) -> Self:
        view, unknown, resources, index, others = made_of
        profiles: dict[tuple[int, int], int] = {}
        distinct: list[Profile] = []
        profile: list[int] = []
        for each in view.classes:
            key = (id(each.labels), id(each.taints))
            if key not in profiles:
                profiles[key] = len(distinct)
                distinct.append(Profile(each.labels, each.taints, unknown, each.numa))
            profile.append(profiles[key])
        amounts = [
            [each.free.get(name, _UNSAID if claim_shapes.is_shape(name) else 0) for each in view.classes]
            for name in resources
        ]
        amounts += [
            [known.get(each.in_trees.get(name, ""), NO_DOMAIN) for each in view.classes]
            for name, (_, known) in others.items()
        ]
        lowest = [index.get(each.domain, NO_DOMAIN) for each in view.classes]
        names = [name for each in view.classes for name in _names(each)]
        states = np.array([*amounts, lowest, profile], np.int64)
        nodes = np.array([each.nodes for each in view.classes], np.int64)
        return cls(made_of, states, distinct, nodes, names, _NOTHING, {})

    def find(self, known: Mapping[str, int]) -> bool:
        """Look up where its nodes are by this index of names; False where one is not in it."""
        if self.known is not known:
            places = [known.get(name, -1) for name in self.names]
            self.places, self.known = np.array(places, np.int64), known
        return not len(self.places) or bool((self.places >= 0).all())


@dataclass(slots=True, eq=False)
class Member:
    """One cluster."""

    name: str
    #: None until the Cluster object is seen; a member without it takes nothing
    view: ClusterView | None = None
    #: root domain -> its published figures
    roots: dict[str, CapacityView] = field(default_factory=dict)
    #: sum of their totals, how often each resource is in one of them, and the same as arrays
    allocatable: Vector = field(default_factory=dict)
    _named: Counter[str] = field(default_factory=Counter)
    _laid: dict[str, _Laid] = field(default_factory=dict)
    #: published free amounts minus `inflight`; the fit table owns the array of free amounts
    nodes: Nodes = field(default_factory=_no_nodes)
    #: node name -> index, where names are published
    index: dict[str, int] = field(default_factory=dict)
    #: index of a node when it was last asked for -> its index now, None where it is no more; only if some are others
    moved: dict[int, int | None] = field(default_factory=dict)
    #: binding UID -> (gang, where it is assumed) of decisions that `roots` may not contain yet, subtracted in `nodes`
    inflight: dict[str, tuple[Gang, Placement]] = field(default_factory=dict)
    #: UIDs of bindings with a part here that the published figures may not contain yet; `inflight` has no others
    expected: set[str] = field(default_factory=set)
    #: number of changes in it: results computed at another count may be outdated
    changes: int = 0
    #: some entry of `inflight` fits only in part on its nodes, and has the rest anywhere
    short: bool = False
    #: when it was last seen that a workload is bound here, and when the latest of those had been sent
    heard_at: float = -math.inf
    heard_of: float = -math.inf
    #: the domains as they were published last, the tree of them, and the index of each by its name
    _topology: tuple[Sequence[PublishedDomain], Tree, dict[str, int]] = field(default_factory=lambda: ((), Tree(), {}))
    #: published figures of further trees, and the trees
    _further: tuple[object, _Others] = field(default_factory=lambda: ((), {}))
    #: the view of which `place` was found, and that
    _place: tuple[ClusterView | None, Place] = None, place_of("", {})

    @property
    def place(self) -> Place:
        """Where it is, as its Cluster object says: found once for each of these."""
        view = self.view
        if view is not None and self._place[0] is not view:
            self._place = view, place_of(view.labels.get(keys.SITE, ""), view.fields)
        return self._place[1]

    @property
    def generation(self) -> int:
        """The oldest generation among its capacity objects: what all of them contain."""
        return min((root.generation for root in self.roots.values()), default=-1)

    @property
    def ready(self) -> bool:
        return self.view is not None and self.view.ready

    def set_root(self, root: str, view: CapacityView | None) -> None:
        """Replace the published figures of one root; None for nothing."""
        for times, each in ((-1, self.roots.pop(root, None)), (1, view)):
            if each is not None:
                vector.add(self.allocatable, each.total, times)
                for name in {name for node_class in each.classes for name in node_class.free}:
                    self._named[name] += times
                    if not self._named[name]:
                        del self._named[name]
        if view is not None:
            self.roots[root] = view
        else:
            self._laid.pop(root, None)

    def total(self) -> Vector:
        """Allocatable of all its nodes, as far as it is known, and no more than its administrator believes."""
        ceiling = self.view.ceiling if self.view is not None else {}
        return {name: min(amount, ceiling.get(name, amount)) for name, amount in self.allocatable.items()}

    @property
    def unknown(self) -> frozenset[str]:
        """Unpublished facts of nodes: label keys, and names, which not all nodes have."""
        return frozenset({NODE_NAME}.union(*[root.left_out for root in self.roots.values()]))

    @property
    def problems(self) -> list[tuple[str, str]]:
        """(HyperNode, its problem), from all of its objects, or from one."""
        return sorted({each for root in self.roots.values() for each in root.problems})

    def has_domain(self, wish: TopologyWish | None) -> bool:
        """Whether there is any domain that a gang of this wish may be in, or it needs none here."""
        return self.nodes.seen_by(wish).tree.levels(wish) != []

    @property
    def aligns(self) -> bool:
        """Whether its kubelets reject pods that they can't align to NUMA nodes."""
        return any(root.aligns for root in self.roots.values())

    def asks_for_tier(self, wish: TopologyWish | None) -> bool:
        """Whether a wish is about a tree that its figures don't tell of."""
        return self.nodes.tree.is_elsewhere(wish) and self.nodes.seen_by(wish) is self.nodes

    def resources(self) -> set[str]:
        """The names of all that its nodes have."""
        return set(self._named)

    @property
    def splits_gpus(self) -> bool:
        """Whether some node has GPUs of HAMi: its vGPUs say not how many whole ones are free."""
        return HAMI[0] in self._named

    def unfit(self, gang: Gang) -> tuple[Verdict, str] | None:
        """Why the gang can't be sent there with any amount free, and the same in words; None where it can."""
        view = self.view
        if view is None:
            return None
        if view.skew:
            return Verdict(Reason.AGENT_VERSION, Blocker("Cluster", self.name, message=view.skew)), view.skew
        has = UNSAID if view.features is None else view.features
        if missing := [each for each in gang.features if each not in has]:
            return Verdict(Reason.FEATURE_MISSING, Blocker("Feature", ", ".join(missing))), said_of(missing)
        if unmet := [each for each in gang.needs if not view.honours_needs and each not in HONOURED]:
            needs = ", ".join(unmet)
            text = f"who places there does not look at {needs}"
            return Verdict(Reason.NO_PLACER, Blocker("Need", needs)), text
        return None

    def accepts(self, affinity: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a cluster affinity, one of its overflow tiers at least, and tolerations allow this member."""
        view = self.view
        if view is None or (view.taints and selectors.untolerated(view.taints, tolerations) is not None):
            return False
        # Most affinities are empty, and take any member.
        return not affinity or any(
            cluster_affinity.matches(tier, self.name, view.labels, view.fields)
            for tier in cluster_affinity.tiers(affinity)
        )

    def published(self, resources: tuple[str, ...]) -> Nodes:
        """Published figures, as arrays with these resources in this order, nothing subtracted.

        Classes are spread out into single nodes, so that partly filled ones need no bookkeeping of their own. Nodes
        with names come first, in order of their names: an index means the same node as long as none comes or goes.
        Most often all of them are unchanged but for free amounts.
        """
        roots = sorted(self.roots.values(), key=lambda root: root.root)
        asked = frozenset[str]().union(*[root.asked_tiers for root in roots])
        tree, index = self._tree_of([domain for root in roots for domain in root.domains], asked)
        others = self._further_trees([root.trees for root in roots])
        unknown, laid = self.unknown, []
        for root in roots:
            each, made_of = self._laid.get(root.root), _Published(root, unknown, resources, index, others)
            if each is None or each.made_of != made_of:
                self._laid[root.root] = each = _Laid.of(made_of)
            laid.append(each)
        distinct = [profile for each in laid for profile in each.profiles]
        states: Ints = np.concatenate(
            [np.zeros((len(resources) + len(others) + 2, 0), np.int64), *[each.states for each in laid]], axis=1
        )
        first = np.cumsum([0, *[len(each.profiles) for each in laid]])[:-1]
        states[-1] += np.repeat(first, [each.states.shape[1] for each in laid]) if laid else 0
        of_class = np.repeat(np.arange(states.shape[1]), np.concatenate([_NOTHING, *[each.nodes for each in laid]]))
        known = self.nodes
        if len(of_class) == len(known.names) == len(self.index) and all([each.find(self.index) for each in laid]):
            places = np.concatenate([_NOTHING, *[each.places for each in laid]])
            ordered = np.empty_like(of_class)
            ordered[places] = of_class
            if np.bincount(places, minlength=len(places)).max(initial=1) == 1:
                states, names = states.take(ordered, axis=1), known.names
                same = resources == known.resources and distinct == known.profiles
                if same and (states[-1] == known.profile).all() and _lie_as(known, tree, states, others):
                    return known.with_free(states[: len(resources)])
                return _made(tree, others, distinct, resources, states, names)
        names = [name for each in laid for name in each.names]
        if any(names):
            order = sorted((node for node, name in enumerate(names) if name), key=names.__getitem__)
            order += [node for node, name in enumerate(names) if not name]
            names, of_class = [names[node] for node in order], of_class[order]
        return _made(tree, others, distinct, resources, states.take(of_class, axis=1), names)

    def _tree_of(self, published: Sequence[PublishedDomain], asked: frozenset[str]) -> tuple[Tree, dict[str, int]]:
        """The tree of these domains, the same while they stay the same, and the index of each by its name."""
        if published != self._topology[0] or asked != self._topology[1].elsewhere:
            self._topology = (published, *_grown(published, asked))
        return self._topology[1:]

    def _further_trees(self, published: Sequence[tuple[tuple[str, tuple[PublishedDomain, ...]], ...]]) -> _Others:
        """The further trees, the same while they stay so; of domains that are published twice the first counts."""
        if published != self._further[0]:
            found: dict[str, dict[str, PublishedDomain]] = {}
            for name, domains in itertools.chain.from_iterable(published):
                known = found.setdefault(name, {})
                for each in domains:
                    known.setdefault(each[0], each)
            self._further = published, {name: _grown(list(found[name].values())) for name in sorted(found)}
        return self._further[1]

    def renew(self, nodes: Nodes) -> None:
        """Take figures that were just published, and subtract the decisions in flight: on the nodes where they were, if
        these exist and can take them, else where they would go now.
        """
        same = nodes.names == self.nodes.names and bool(self.index)
        #: index of each node before -> its index now, None where it is no more; of no use if they are the same
        now: dict[int, int | None] = {}
        self.short = False
        self.changes += 1
        if not same:
            index = {name: node for node, name in enumerate(nodes.names) if name}
            now = {node: index.get(name) for name, node in self.index.items()}
            again = now
            if self.moved:
                again = {node: None if last is None else now.get(last) for node, last in self.moved.items()}
            self.index, self.moved = index, again
            for uid, (gang, before) in self.inflight.items():
                pods = [
                    (task, there, count) for task, node, count in before.pods if (there := now.get(node)) is not None
                ]
                self.inflight[uid] = (gang, replace(before, pods=pods))
        self.nodes = nodes
        known = self.inflight.values()
        if all(_is_whole(*each) for each in known) and nodes.take_all(
            [([claim_shapes.limited(task) for task in gang.tasks], at) for gang, at in known]
        ):
            return
        for uid in self._largest_first(nodes):
            gang, before = self.inflight[uid]
            requests = [claim_shapes.limited(task) for task in gang.tasks]
            if _is_whole(gang, before) and nodes.take_all([(requests, before)]):
                continue
            placement = place(nodes, gang)
            if isinstance(placement, Miss):
                # Some of its pods are in the new figures already; the capacity for the others is taken.
                placement = fill(nodes, gang)
            nodes.take(requests, placement)
            self.inflight[uid] = (gang, placement)
        for gang, placement in self.inflight.values():
            for task, count in zip(gang.tasks, placement.counts, strict=True):
                if count < task.replicas:
                    self.short = True
                    nodes.take_anywhere(task, task.replicas - count)

    def _largest_first(self, nodes: Nodes) -> list[str]:
        """UIDs of decisions in flight by the size of their pods: small ones fit where large ones leave gaps."""
        tasks = [(uid, task) for uid, (gang, _) in self.inflight.items() for task in gang.tasks]
        sizes = dict.fromkeys(self.inflight, 0.0)
        for (uid, _), size in zip(tasks, weights(nodes, [task for _, task in tasks]), strict=True):
            sizes[uid] = max(sizes[uid], size)
        return sorted(sizes, key=lambda uid: -sizes[uid])


def _grown(published: Sequence[PublishedDomain], asked: frozenset[str] = frozenset()) -> tuple[Tree, dict[str, int]]:
    """The tree of these domains, and the index of each by its name."""
    index = {name: number for number, (name, *_) in enumerate(published)}
    domains = [
        Domain(name, tier, index.get(parent, NO_DOMAIN), tier_name) for name, tier, tier_name, parent in published
    ]
    return Tree(domains, asked), index


def _lie_as(known: Nodes, tree: Tree, states: Ints, others: _Others) -> bool:
    """Whether nodes of these states, see `_Laid`, are where they were, in the first tree and the further ones."""
    first = states.shape[0] - 2 - len(others)
    further = {name: (each, states[first + number]) for number, (name, (each, _)) in enumerate(others.items())}
    return known.trees.are({"": (tree, states[-2]), **further})


def _made(
    tree: Tree,
    others: _Others,
    profiles: Sequence[Profile],
    resources: tuple[str, ...],
    states: Ints,
    names: Sequence[str],
) -> Nodes:
    first = len(resources)
    nodes = Nodes.of_arrays(tree, states[-2], profiles, states[-1], resources, states[:first], names)
    for number, (name, (each, _)) in enumerate(others.items(), start=first):
        nodes.trees.add(name, each, states[number])
    return nodes


def _is_whole(gang: Gang, placement: Placement) -> bool:
    """Whether all of its pods are placed."""
    return sum([count for _, _, count in placement.pods]) == gang.replicas


def _names(node_class: NodeClass) -> Sequence[str]:
    """One for each of its nodes; empty ones where they are not known."""
    return node_class.names if len(node_class.names) == node_class.nodes else [""] * node_class.nodes
