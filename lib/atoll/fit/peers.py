"""Which pods are on which node, as the rules between pods ask for it: kept up to date pod by pod.

Only pods that some rule asks for are counted: a pod that comes or goes costs as much as there are such questions, and
nothing without any. All nodes count, also ones that nothing is placed on: their pods are there all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from atoll.fit.placement import Ints
from atoll.model.pod_rules import PodRules, Selection, Term

_MOST_QUESTIONS = 1000
"""That are kept; beyond, all are forgotten and asked anew."""


class Site(NamedTuple):
    """A node as rules between pods see it."""

    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]


class _Peer(NamedTuple):
    node: str
    namespace: str
    labels: Mapping[str, str]
    rules: PodRules | None
    leaving: bool
    times: int


class Peers:
    """The pods of a member, and the nodes that they are on."""

    def __init__(self) -> None:
        """Begin without any."""
        self._sites: dict[str, Site] = {}
        #: labels of namespaces
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._there: dict[object, _Peer] = {}
        #: pods that all of these selections mean -> node -> how many; of every question so far
        self._counted: dict[tuple[Selection, ...], dict[str, int]] = {}
        #: term -> node -> how many pods that are there have it
        self._anti: dict[Term, dict[str, int]] = {}
        self._liked: dict[Term, dict[str, int]] = {}
        #: whether a pod that some rule asks for changed since the last reset
        self.stirred = False
        #: cached answers about nodes by their labels and taints; empty again when these change
        self.eligible: dict[object, NDArray[np.bool_]] = {}
        #: node -> image -> bytes; of nodes that have some
        self._images: dict[str, Mapping[str, int]] = {}
        #: cached answers about images; empty again when nodes or these change
        self._shares: dict[str, Ints] = {}
        #: see `stocked`
        self._stocked: dict[tuple[str, ...], Ints | None] = {}
        self._names: list[str] | None = None
        self._index: dict[str, int] = {}
        self._domains: dict[str, tuple[Ints, int]] = {}

    # -- events ------------------------------------------------------------------------------------------------------

    def set_node(self, name: str, site: Site | None) -> bool:
        """The node has these labels and taints, or is gone; whether that is new."""
        if self._sites.get(name) == site:
            return False
        if site is None:
            del self._sites[name]
        else:
            self._sites[name] = site
        self.eligible.clear()
        self._names = None
        self._domains.clear()
        self._forget_shares()
        return True

    def set_images(self, name: str, images: Mapping[str, int]) -> None:
        """The node has these images: name -> bytes."""
        if self._images.get(name, {}) == images:
            return
        self._images.pop(name, None)
        if images:
            self._images[name] = images
        self._forget_shares()

    def _forget_shares(self) -> None:
        self._shares.clear()
        self._stocked.clear()

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """The namespace has these labels, or is gone."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        asked = [key for key in self._counted if any(each.of_namespaces is not None for each in key)]
        for key in asked:
            del self._counted[key]
        self.stirred = self.stirred or bool(asked) or any(term.pods.of_namespaces is not None for term in self._anti)

    def put(
        self,
        key: object,
        node: str,
        namespace: str,
        labels: Mapping[str, str],
        rules: PodRules | None,
        *,
        leaving: bool = False,
        count: int = 1,
    ) -> None:
        """So many pods with this key are on a node; replaces earlier pods of the key."""
        if key in self._there:
            self.drop(key)
        peer = self._there[key] = _Peer(node, namespace, labels, rules, leaving, count)
        if self._counted or rules is not None:
            self._count(peer, count)

    def drop(self, key: object) -> None:
        """No pod with this key is there any more."""
        peer = self._there.pop(key, None)
        if peer is not None and (self._counted or peer.rules is not None):
            self._count(peer, -peer.times)

    def add(self, key: object, node: str, rules: PodRules, count: int) -> None:
        """So many more pods of this key, or fewer; of reservations."""
        before = self._there.get(key)
        if total := count + (before.times if before is not None else 0):
            self.put(key, node, rules.namespace, dict(rules.labels), rules, count=total)
        else:
            self.drop(key)

    def without(self, keys: Collection[object]) -> Peers:
        """A copy without the pods of these keys."""
        twin = Peers()
        for name, site in self._sites.items():
            twin.set_node(name, site)
            twin.set_images(name, self._images.get(name, {}))
        for name, labels in self._namespaces.items():
            twin.set_namespace(name, labels)
        for key, each in self._there.items():
            if key not in keys:
                twin.put(
                    key, each.node, each.namespace, each.labels, each.rules, leaving=each.leaving, count=each.times
                )
        return twin

    def _count(self, peer: _Peer, times: int) -> None:
        for key, counts in self._counted.items():
            if self._is_meant(key, peer):
                _add(counts, peer.node, times)
                self.stirred = True
        if peer.rules is None:
            return
        for terms, owned in ((peer.rules.anti_affinity, self._anti), (_liking(peer.rules), self._liked)):
            for term in terms:
                counts = owned.setdefault(term, {})
                _add(counts, peer.node, times)
                if not counts:
                    del owned[term]

    def _is_meant(self, key: tuple[Selection, ...], peer: _Peer) -> bool:
        return all(
            not (each.staying and peer.leaving) and each.selects(peer.namespace, peer.labels, self._namespaces)
            for each in key
        )

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Of all nodes, in the order of every array."""
        if self._names is None:
            self._names = sorted(self._sites)
            self._index = {name: number for number, name in enumerate(self._names)}
        return self._names

    def __len__(self) -> int:
        return len(self._sites)

    def index(self, name: str) -> int:
        """Of a node in every array."""
        return self._index[name] if self.names else -1

    def sites(self) -> Iterator[tuple[str, Site]]:
        """All nodes, in order."""
        return ((name, self._sites[name]) for name in self.names)

    def domains(self, key: str) -> tuple[Ints, int]:
        """(int64[M] number of the value that each node has of this label, -1 where it has none; how many there are)."""
        found = self._domains.get(key)
        if found is None:
            numbers: dict[str, int] = {}
            values = (self._sites[name].labels.get(key) for name in self.names)
            ids = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
            found = self._domains[key] = np.array(ids, np.int64), len(numbers)
        return found

    def image(self, name: str) -> Ints:
        """int64[M]: bytes of this image on each node, times the share of all nodes that have it: as in kube-scheduler,
        an image on few nodes counts little, or all would go there.
        """
        found = self._shares.get(name)
        if found is None:
            if len(self._shares) >= _MOST_QUESTIONS:
                self._shares.clear()
            sizes = np.array([self._images.get(node, {}).get(name, 0) for node in self.names], np.int64)
            share = np.count_nonzero(sizes) / max(len(sizes), 1)
            found = self._shares[name] = (sizes * share).astype(np.int64)
        return found

    @property
    def stocked(self) -> dict[tuple[str, ...], Ints | None]:
        """Cached answers about the images of a pod together: add to it. Empty again when nodes or their images
        change.
        """
        if len(self._stocked) >= _MOST_QUESTIONS:
            self._stocked.clear()
        return self._stocked

    def selects(self, selection: Selection, rules: PodRules) -> bool:
        """Whether a pod with these rules is meant."""
        return selection.selects(rules.namespace, dict(rules.labels), self._namespaces)

    def count(self, *selections: Selection) -> Ints:
        """int64[M]: pods on each node that all of these mean."""
        counts = self._counted.get(selections)
        if counts is None:
            if len(self._counted) >= _MOST_QUESTIONS:
                self._counted.clear()
                self.stirred = True
            counts = self._counted[selections] = {}
            for peer in self._there.values():
                if self._is_meant(selections, peer):
                    _add(counts, peer.node, peer.times)
        return self._array(counts)

    def anti_affinity_to(self, rules: PodRules) -> Iterator[tuple[str, Ints]]:
        """(label, int64[M] pods on each node) of each anti-affinity of pods that are there and mean such a pod."""
        return ((term.key, self._array(counts)) for term, counts in self._meaning(self._anti, rules))

    def liking(self, rules: PodRules) -> Iterator[tuple[str, int, Ints]]:
        """(label, weight, int64[M] pods on each node) likewise, of each preference."""
        return ((term.key, term.weight, self._array(counts)) for term, counts in self._meaning(self._liked, rules))

    def _meaning(self, owned: dict[Term, dict[str, int]], rules: PodRules) -> Iterator[tuple[Term, dict[str, int]]]:
        return ((term, counts) for term, counts in owned.items() if self.selects(term.pods, rules))

    def read_keys(self, *, also_preferred: bool = False) -> set[str]:
        """Labels of pods that rules of pods that are there read; empty where no such rule is."""
        terms = [*self._anti, *(self._liked if also_preferred else ())]
        return set().union(*[term.pods.keys() for term in terms])

    @property
    def keep_others_away(self) -> bool:
        """Whether some pod that is there has an anti-affinity."""
        return bool(self._anti)

    def _array(self, counts: Mapping[str, int]) -> Ints:
        found = np.zeros(len(self.names), np.int64)
        for name, count in counts.items():
            # Pods may be reported before their node, and stay longer.
            if (number := self._index.get(name)) is not None:
                found[number] += count
        return found


def _liking(rules: PodRules) -> tuple[Term, ...]:
    """Preferences of a present pod count for others as well, and so do, a little, its requirements."""
    return rules.preferred + tuple(Term(each.key, each.pods, 1) for each in rules.affinity)


def _add(counts: dict[str, int], node: str, times: int) -> None:
    total = counts.get(node, 0) + times
    if total:
        counts[node] = total
    else:
        counts.pop(node, None)
