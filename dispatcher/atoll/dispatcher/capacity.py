"""Members' ClusterCapacity objects for the core: consistent ones within bounds.

A member may publish anything in its namespace. What it says counts for itself alone, and an object that can't be so is
left out as if it were not there, so that nothing is dispatched on its account: a member that reports rubbish loses
its own capacity and no other member's.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from atoll.dispatcher.core import CapacityGone, CapacitySet, CapacityView, Event
from atoll.dispatcher.core.events import NodeClass
from atoll.dispatcher.objects import CapacityClass, CapacityDomain, CapacityObject, CapacityProfile, CapacityTree
from atoll.kube import client_metrics
from atoll.model import keys, quantity
from atoll.model.claim_shapes import is_shape
from atoll.model.numa import MOST_CELLS, Cells, Policy
from atoll.model.reports import BadReport, readable
from atoll.model.vector import MOST_ON_NODE, Vector

MAX_NODES = 2**16
"""Nodes of one member, over all of its objects."""
MAX_OBJECTS = 256
MAX_CLASSES = 2**15
"""Groups of equal nodes of one member."""
MAX_DOMAINS = 2**13
MAX_PROFILES = 2**12
"""Different labels and taints of nodes of one member."""
MAX_LABELS = 128
"""Of one of these profiles; of its taints the same."""
MAX_RESOURCES = 128
"""Different resources of one member."""
MAX_TIERS = 32
MAX_LEFT_OUT = 1024
"""Label keys that the figures of a member leave out."""
MAX_PROBLEMS = 20
MAX_TREES = 16
"""Further trees that the nodes of a member are in."""
"""HyperNodes that are named as wrong."""
_LONGEST = 400

_RESOURCE = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Content:
    """Contents of one object, apart from free amounts."""

    root: str
    generation: int
    domains: frozenset[str]
    nodes: int
    names: frozenset[str]
    resources: frozenset[str]
    tiers: frozenset[int]
    classes: int
    profiles: int
    layout: object
    """Its domains and further trees, as the view has them."""

    @property
    def speaks_of(self) -> object:
        """Equal for objects of the same domains, nodes and resources."""
        return self.root, self.layout, self.nodes, self.names, self.resources


@dataclass(frozen=True, slots=True)
class _Published:
    """One object as it is on the host."""

    generation: int
    objects: int
    """How many make up its generation, by its own account."""
    view: CapacityView | None = None
    """None where it was refused."""
    content: _Content | None = None
    """Of the view."""


class Capacities:
    """The objects that the core knows of.

    A member writes the objects of one generation one after the other, and deletes objects of an earlier layout last.
    Where the layout is another one (domains came, went or moved), the core goes on with the earlier objects until all
    of the newer generation are there, so that no node is missing or there twice meanwhile.
    """

    def __init__(self) -> None:
        #: cluster -> name -> the object
        self._published: dict[str, dict[str, _Published]] = {}
        #: cluster -> name of the object -> its view in the core
        self._told: dict[str, dict[str, _Told]] = {}
        #: cluster -> name of an object that is refused -> why
        self._refused: dict[str, dict[str, str]] = {}
        #: how often more than the figures of one known object changed
        self.rearranged = 0

    def changed(self, old: CapacityObject | None, new: CapacityObject | None) -> Iterator[Event]:
        """What to tell the core when an object was made, changed or deleted. Never raises."""
        obj = new or old
        if obj is None or not obj.metadata.namespace.startswith(keys.EXECUTION_PREFIX):
            return
        cluster, name = keys.cluster_of(obj.metadata.namespace), obj.metadata.name
        published = self._published.setdefault(cluster, {})
        published.pop(name, None)
        why = ""
        if new is not None:
            published[name] = _Published(new.spec.generation, new.spec.objects)
            try:
                view = capacity_view(new)
            except BadReport as error:
                why = str(error)
            else:
                published[name] = _Published(view.generation, new.spec.objects, view, _content(view))
        told = self._told.pop(cluster, {})
        chosen = _updated(name, published, told)
        if chosen is None:
            chosen = _chosen(published, told)
            self.rearranged += 1
        if name in published and name not in chosen:
            why = why or _why_not(name, published, chosen)
        self._note(cluster, name, why)
        for each, before in told.items():
            if each not in chosen or chosen[each].view.root != before.view.root:
                yield CapacityGone(cluster, before.view.root)
        for each, found in chosen.items():
            if each not in told or told[each].view is not found.view:
                yield CapacitySet(found.view)
        if chosen:
            self._told[cluster] = chosen
        if not published:
            del self._published[cluster]

    def all(self) -> Iterator[CapacityView]:
        """Views in the core, of all members."""
        for told in self._told.values():
            yield from (each.view for each in told.values())

    def unreadable(self, obj: CapacityObject, why: str) -> Iterator[Event]:
        """What to tell the core when the content of an object can't be read: as if it were not there."""
        yield from self.changed(obj, None)
        self._note(keys.cluster_of(obj.metadata.namespace), obj.metadata.name, why)

    def refused(self, cluster: str) -> dict[str, str]:
        """Name of each object of a member that is not used because it can't be so -> why."""
        return self._refused.get(cluster, {})

    def _note(self, cluster: str, name: str, why: str) -> None:
        """Why an object is refused; nothing where it is not, or is gone."""
        known = self._refused.setdefault(cluster, {})
        before = known.pop(name, "")
        if why:
            known[name] = readable(why)
            client_metrics.refused["ClusterCapacity", keys.execution_namespace(cluster)] += 1
            if known[name] != before:
                log.warning("a report was refused", cluster=cluster, capacity=name, error=known[name])
        if not known:
            del self._refused[cluster]

    def views(self, cluster: str) -> list[CapacityView]:
        """Views of a member in the core, each root once."""
        return [told.view for told in self._told.get(cluster, {}).values()]


def believed(reports: Iterable[CapacityObject]) -> dict[str, list[CapacityView]]:
    """Cluster -> views for a core that begins now, without refused objects and without messages."""
    published: dict[str, dict[str, _Published]] = {}
    for obj in reports:
        with suppress(BadReport):
            view, cluster = capacity_view(obj), keys.cluster_of(obj.metadata.namespace)
            found = _Published(obj.spec.generation, obj.spec.objects, view, _content(view))
            published.setdefault(cluster, {})[obj.metadata.name] = found
    return {cluster: [told.view for told in _chosen(each, {}).values()] for cluster, each in published.items()}


class _Told(NamedTuple):
    """View of one object for the core."""

    view: CapacityView
    content: _Content


def _content(view: CapacityView) -> _Content:
    classes = view.classes
    return _Content(
        view.root,
        view.generation,
        frozenset([domain[0] for domain in view.domains]),
        sum([each.nodes for each in classes]),
        frozenset(itertools.chain.from_iterable([each.names for each in classes])),
        # Shapes of claims come and go with workloads, of any tenant.
        frozenset(name for name in set().union(*[each.free for each in classes]) if not is_shape(name)),
        frozenset([domain[1] for domain in view.domains]),
        len(classes),
        len({(id(each.labels), id(each.taints)) for each in classes}),
        (view.domains, view.trees, view.asked_tiers),
    )


def _updated(name: str, published: Mapping[str, _Published], told: Mapping[str, _Told]) -> dict[str, _Told] | None:
    """As `_chosen` where nothing but figures of one known object changed, which is so most often; else None."""
    found, known = _as_told(published.get(name)), told.get(name)
    if found is None or known is None or found.content.speaks_of != known.content.speaks_of:
        return None
    chosen = {**told, name: found}
    current = _current(published)
    if _whole(current) and _views(chosen) != _views(current):
        # The last of a generation lets the earlier ones of another layout count.
        return None
    return chosen


def _views(objects: Mapping[str, _Told] | Mapping[str, _Published]) -> dict[str, CapacityView | None]:
    return {name: each.view for name, each in objects.items()}


def _as_told(published: _Published | None) -> _Told | None:
    if published is None or published.view is None or published.content is None:
        return None
    return _Told(published.view, published.content)


def _chosen(published: Mapping[str, _Published], told: Mapping[str, _Told]) -> dict[str, _Told]:
    """The published objects, by name, that are consistent with each other."""
    current, chosen, sums = _current(published), dict[str, _Told](), _Sums()
    # Objects that are known go before others that contradict them; names decide the rest.
    order = sorted(current, key=lambda name: (name not in told, name))
    if not _whole(current):
        newest = max((each.generation for each in published.values()), default=-1)
        for name, known in told.items():
            found = _as_told(published.get(name))
            if found is not None and found.content.speaks_of == known.content.speaks_of:
                chosen[name] = found
                sums.add(found.content)
            elif known.view.generation < newest and (found is not None or name not in published):
                chosen[name] = known
                sums.add(known.content)
        order = sorted(published, key=lambda name: (-published[name].generation, name))
    for name in order:
        found = _as_told(published[name])
        if name not in chosen and found is not None and not sums.contradiction(found.content):
            chosen[name] = found
            sums.add(found.content)
    return chosen


def _current(published: Mapping[str, _Published]) -> dict[str, _Published]:
    """The objects of the newest generation."""
    newest = max((each.generation for each in published.values()), default=-1)
    return {name: each for name, each in published.items() if each.generation == newest}


def _whole(current: Mapping[str, _Published]) -> bool:
    return all(each.objects <= len(current) for each in current.values())


class _Sums:
    """What several objects of a member speak of together; each is added once, so that many cost no more than that."""

    def __init__(self) -> None:
        self._objects = self._nodes = self._classes = self._profiles = 0
        self._roots: set[str] = set()
        self._domains: set[str] = set()
        self._resources: set[str] = set()
        self._tiers: set[int] = set()
        #: generation -> the names of its nodes, and whether each node has one
        self._named: dict[int, tuple[set[str], bool]] = {}

    def add(self, content: _Content) -> None:
        self._objects += 1
        self._nodes += content.nodes
        self._classes += content.classes
        self._profiles += content.profiles
        self._roots.add(content.root)
        self._domains |= content.domains
        self._resources |= content.resources
        self._tiers |= content.tiers
        if content.nodes:
            names, all_named = self._named.get(content.generation, (set(), True))
            names |= content.names
            self._named[content.generation] = (names, all_named and len(content.names) == content.nodes)

    def contradiction(self, content: _Content) -> str:
        """What one more can't break; empty where it goes together with these."""
        if self._objects >= MAX_OBJECTS:
            return f"the member has more than {MAX_OBJECTS} such objects"
        if content.root in self._roots:
            return f"spec.root: another object of the member speaks of {readable(content.root)!r}"
        if both := content.domains & self._domains:
            return f"spec.domains: {readable(min(both))} is in another object of the member as well"
        if any(self._share_nodes(content, generation) for generation in self._named):
            return "spec.classes: some of its nodes are in another object of the member as well"
        for amount, most, what in (
            (self._nodes + content.nodes, MAX_NODES, "nodes"),
            (self._classes + content.classes, MAX_CLASSES, "classes of nodes"),
            (self._profiles + content.profiles, MAX_PROFILES, "profiles of nodes"),
            (len(self._domains) + len(content.domains), MAX_DOMAINS, "domains"),
            (len(self._resources | content.resources), MAX_RESOURCES, "different resources"),
            (len(self._tiers | content.tiers), MAX_TIERS, "tiers"),
        ):
            if amount > most:
                return f"the member has {amount} {what} with this object; the most is {most}"
        return ""

    def _share_nodes(self, content: _Content, generation: int) -> bool:
        """Whether a node may be in both; never in objects of one generation."""
        if content.generation == generation or not content.nodes:
            return False
        names, all_named = self._named[generation]
        return not all_named or len(content.names) < content.nodes or not names.isdisjoint(content.names)


def _why_not(name: str, published: Mapping[str, _Published], chosen: Mapping[str, _Told]) -> str:
    """How an object contradicts others, unless one of them is older: then either goes soon."""
    content = published[name].content
    if content is None or {each.generation for each in published.values()} != {content.generation}:
        return ""
    sums = _Sums()
    for told in chosen.values():
        sums.add(told.content)
    return sums.contradiction(content)


def capacity_view(obj: CapacityObject) -> CapacityView:
    """The core's view. Which member it speaks for follows from the namespace, the one thing that its writer can't
    choose.

    Raises:
        BadReport: a field has a value that can't be; the message names it.
    """
    spec = obj.spec
    if spec.generation < 0:
        raise BadReport(f"spec.generation: {spec.generation} is below 0")
    _check_tree(spec.domains, spec.root)
    known = _check_trees(spec.trees)
    for field, amount, most in (
        ("domains", len(spec.domains), MAX_DOMAINS),
        ("classes", len(spec.classes), MAX_CLASSES),
        ("profiles", len(spec.profiles), MAX_PROFILES),
        ("trees", len(spec.trees), MAX_TREES),
        ("askedTiers", len(spec.asked_tiers), MAX_LEFT_OUT),
        *(("trees[].domains", len(each.domains), MAX_DOMAINS) for each in spec.trees),
        *(
            (f"profiles[{index}]", max(len(each.labels), len(each.taints)), MAX_LABELS)
            for index, each in enumerate(spec.profiles)
        ),
    ):
        if amount > most:
            raise BadReport(f"spec.{field}: {amount} of them; the most is {most}")
    domains = {domain.name for domain in spec.domains} | {""}
    profiles = [
        (profile.labels, tuple(profile.taints), _devices(index, profile), _numa(index, profile))
        for index, profile in enumerate(spec.profiles)
    ]
    classes = []
    for index, each in enumerate(spec.classes):
        try:
            classes.append(_node_class(each, domains, profiles, known))
        except BadReport as error:
            raise BadReport(f"spec.classes[{index}].{error}") from None
    _check_resources("spec.total", spec.total)
    if len(spec.left_out) > MAX_LEFT_OUT:
        raise BadReport(f"spec.leftOut: {len(spec.left_out)} label keys; the most is {MAX_LEFT_OUT}")
    return CapacityView(
        keys.cluster_of(obj.metadata.namespace),
        spec.root,
        spec.generation,
        _as_view(spec.domains),
        tuple(classes),
        _bounded(spec.total, MOST_ON_NODE * MAX_NODES),
        tuple(sorted(spec.left_out)),
        tuple((each.hyper_node[:_LONGEST], each.message[:_LONGEST]) for each in spec.problems[:MAX_PROBLEMS]),
        tuple((each.name, _as_view(each.domains)) for each in sorted(spec.trees, key=lambda each: each.name)),
        tuple(sorted(spec.asked_tiers)),
        spec.aligns,
    )


def _as_view(domains: Iterable[CapacityDomain]) -> tuple[tuple[str, int, str, str], ...]:
    return tuple((domain.name, domain.tier, domain.tier_name, domain.parent) for domain in domains)


def _node_class(
    published: CapacityClass,
    domains: Set[str],
    profiles: Sequence[tuple[dict[str, str], tuple[dict[str, Any], ...], Vector, Cells | None]],
    trees: Mapping[str, Set[str]],
) -> NodeClass:
    if published.domain not in domains:
        raise BadReport(f"domain: {readable(published.domain)} is none of spec.domains")
    if not 0 <= published.profile < len(profiles):
        raise BadReport(f"profile: {published.profile} is no index of spec.profiles")
    if not 1 <= published.nodes <= MAX_NODES:
        raise BadReport(f"nodes: {published.nodes} is not between 1 and {MAX_NODES}")
    _check_resources("free", published.free)
    labels, taints, devices, numa = profiles[published.profile]
    # Names that are not one for each node say nothing about any of them.
    names = tuple(published.names) if len(published.names) == published.nodes else ()
    free = _bounded(published.free, MOST_ON_NODE)
    for tree, domain in published.in_trees.items():
        if domain not in trees.get(tree, ()):
            raise BadReport(f"inTrees: {readable(domain)} is no domain of a tree {readable(tree)} in spec.trees")
    return NodeClass(published.domain, labels, taints, published.nodes, free, names, devices, published.in_trees, numa)


def _numa(index: int, profile: CapacityProfile) -> Cells | None:
    said = profile.numa
    if said is None:
        return None
    where = f"spec.profiles[{index}].numa"
    if said.policy not in list(Policy):
        raise BadReport(f"{where}.policy: {readable(said.policy)} is not known")
    names = sorted(set().union(*said.nodes))
    if len(said.nodes) > MOST_CELLS or len(names) > MAX_LABELS:
        raise BadReport(f"{where}.nodes: they are too many, or name too many resources")
    total = tuple(tuple(min(max(each.get(name, 0), 0), MOST_ON_NODE) for name in names) for each in said.nodes)
    return Cells(Policy(said.policy), tuple(names), total, total, said.by_pod)


def _devices(index: int, profile: CapacityProfile) -> Vector:
    try:
        amounts = {name: text for name, text in profile.allocatable.items() if quantity.is_device(name)}
        _check_resources("allocatable", amounts)
        return _bounded(quantity.capacity(amounts), MOST_ON_NODE)
    except ValueError as error:
        raise BadReport(f"spec.profiles[{index}].allocatable: {error}") from None


def _bounded(amounts: dict[str, int], most: int) -> dict[str, int]:
    """Between 0 and `most`; most often all of them are."""
    if not amounts or (min(amounts.values()) >= 0 and max(amounts.values()) <= most):
        return amounts
    return {resource: min(max(amount, 0), most) for resource, amount in amounts.items()}


def _check_resources(field: str, amounts: Mapping[str, object]) -> None:
    if len(amounts) > MAX_RESOURCES:
        raise BadReport(f"{field}: {len(amounts)} resources; the most is {MAX_RESOURCES}")
    if not all(map(is_resource, amounts)):
        resource = next(resource for resource in amounts if not is_resource(resource))
        raise BadReport(f"{field}: {readable(resource, 60)!r} is no name of a resource")


@functools.lru_cache(maxsize=1024)
def is_resource(name: str) -> bool:
    """Whether it can be the name of a resource. Kept, for every class of every report names the same few."""
    return _RESOURCE.fullmatch(name) is not None


def _check_tree(domains: Sequence[CapacityDomain], root: str) -> None:
    """One tree below the root."""
    _check_domains(domains, "spec.domains")
    if domains and all(each.name != root for each in domains):
        raise BadReport(f"spec.root: {readable(root)!r} is none of spec.domains")
    for index, domain in enumerate(domains):
        if (domain.name == root) != (not domain.parent):
            raise BadReport(f"spec.domains[{index}].parent: only the root, {readable(root)}, has none")


def _check_trees(trees: Sequence[CapacityTree]) -> dict[str, Set[str]]:
    """The domains of further trees, which may have any number of roots; by name of the tree."""
    found: dict[str, Set[str]] = {}
    for index, tree in enumerate(trees):
        if not tree.name or tree.name in found:
            raise BadReport(f"spec.trees[{index}].name: {readable(tree.name)!r} is empty or there twice")
        _check_domains(tree.domains, f"spec.trees[{index}].domains")
        found[tree.name] = {domain.name for domain in tree.domains}
    return found


def _check_domains(domains: Sequence[CapacityDomain], field: str) -> None:
    """Each is there once, and tiers grow upwards, which excludes a cycle."""
    tiers: dict[str, int] = {}
    for index, domain in enumerate(domains):
        if not domain.name or domain.name in tiers:
            raise BadReport(f"{field}[{index}].name: {readable(domain.name)!r} is empty or there twice")
        tiers[domain.name] = domain.tier
    for index, domain in enumerate(domains):
        if not 0 <= domain.tier <= 10**6:
            raise BadReport(f"{field}[{index}].tier: {domain.tier} is not between 0 and 1000000")
        if domain.parent and tiers.get(domain.parent, -1) <= domain.tier:
            raise BadReport(f"{field}[{index}].parent: {readable(domain.parent)} is no domain of a higher tier")
