"""Neighbours of pods, for one look at the nodes: pods of the member, and pods put there in a trial.

Each rule between pods is one file of `constraints`, and asks here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from atoll.fit import scores
from atoll.fit.constraints import pod_affinity, topology_spread
from atoll.fit.constraints.profile import Profile
from atoll.fit.peers import Peers
from atoll.fit.placement import UNBOUNDED, Ints
from atoll.model.gang import Gang, Task
from atoll.model.pod_rules import PodRules, Selection
from atoll.model.scoring import Scoring

Bools = NDArray[np.bool_]


class Company:
    """The pods beside the ones to place."""

    def __init__(
        self,
        peers: Peers,
        names: Sequence[str],
        put: Iterable[tuple[PodRules, int, int]] = (),
        where: Ints | None = None,
    ) -> None:
        """Begin with the pods of the member.

        Args:
            peers: read when asked; it must not change while this is used.
            names: of the nodes that may be placed on, in the order of their arrays.
            put: pods put there already; see `put`.
            where: int64[N], the number of each of these nodes among all, where that is known.
        """
        self.peers = peers
        self._names = names
        self._where: Ints = where if where is not None else np.array([peers.index(name) for name in names], np.int64)
        #: (rules, number of the node among all, how many) of pods that are put there
        self._put = list(put)

    def copy(self) -> Company:
        """An independent one."""
        # The numbers of nodes cost the most by far, and every copy of the nodes makes one of this.
        return Company(self.peers, self._names, self._put, self._where)

    def take(self, task: Task, node: int, count: int) -> None:
        """So many pods of the task are put on the node with this index."""
        if task.rules is not None and count:
            self._put.append((task.rules, int(self._where[node]), count))

    # -- what placing asks -------------------------------------------------------------------------------------------

    @staticmethod
    def matters_to(gang: Gang) -> bool:
        """Whether the gang's pods go one by one, as where one is decides where the next may be or prefers to be."""
        return any(task.rules is not None or task.preferences for task in gang.tasks)

    def room(self, task: Task) -> Ints | None:
        """int64[N]: how many pods of the task these rules allow on each node, now; None where there are no rules."""
        if (rules := task.rules) is None:
            return None
        allowed = pod_affinity.allowed(rules, self) & topology_spread.allowed(task, self)
        room = np.where(allowed, UNBOUNDED, 0)
        for key in pod_affinity.alone_by(rules, self):
            ids, _ = self.peers.domains(key)
            np.minimum(room, 1, out=room, where=ids >= 0)
        return room.take(self._where)

    def bound(self, task: Task, gang: Gang) -> Ints | None:
        """As `room`, whichever other pods of the gang are put there before."""
        if (rules := task.rules) is None:
            return None
        others = [each.rules for each in gang.tasks if each.rules is not None]
        found = np.ones(len(self.peers), np.bool_)
        found &= pod_affinity.kept_away(rules, self)
        if not any(self.is_meant(term.pods, other) for term in rules.affinity for other in others):
            found &= pod_affinity.near_enough(rules, self)
        if not any(self.is_meant(each.pods, other) for each in rules.spread for other in others):
            found &= topology_spread.allowed(task, self)
        return np.where(found, UNBOUNDED, 0).take(self._where)

    def groups(self, task: Task) -> list[Ints]:
        """int64[N] each: in which domain a node is where all pods of the task must be in one; -1 for none."""
        if task.rules is None:
            return []
        return [self.peers.domains(key)[0].take(self._where) for key in pod_affinity.together_by(task.rules, self)]

    def level(self, task: Task) -> Ints | None:
        """int64[N]: pods that spreading counts in the node's domains: the lowest is filled first."""
        found = topology_spread.level(task, self) if task.rules is not None else None
        return found.take(self._where) if found is not None else None

    def score(self, task: Task, among: Bools, scoring: Scoring | None = None) -> Ints | None:
        """int64[N]: how much a pod of the task prefers each node, of bool[N] `among`; None where all are alike.

        Args:
            task: whose pod it is.
            among: the nodes in question.
            scoring: has the weights; None for the usual ones.
        """
        of_all = np.zeros(len(self.peers), np.bool_)
        of_all[self._where] = among
        found = scores.sum_up(task, self, of_all, scoring)
        return found.take(self._where) if found is not None else None

    def stocked(self, task: Task) -> Ints | None:
        """int64[N]: how many of its images, by their size, each node has; None where that makes no difference."""
        found = scores.images.score(task, self)
        return found.take(self._where) if found is not None else None

    def refusals(self, task: Task) -> list[tuple[str, Bools]]:
        """(words of kube-scheduler, bool[N] nodes with that refusal) of each rule."""
        if (rules := task.rules) is None:
            return []
        found = [*pod_affinity.refusals(rules, self), (topology_spread.REFUSAL, ~topology_spread.allowed(task, self))]
        return [(text, where.take(self._where)) for text, where in found]

    # -- what rules ask ----------------------------------------------------------------------------------------------

    def is_meant(self, selection: Selection, rules: PodRules) -> bool:
        """Whether a selection means pods with these rules."""
        return self.peers.selects(selection, rules)

    def count(self, *selections: Selection) -> Ints:
        """int64[M]: pods on each node of the member that all of these mean."""
        found = self.peers.count(*selections)
        for rules, node, count in self._put:
            if all(self.is_meant(each, rules) for each in selections):
                found[node] += count
        return found

    def put(self) -> Sequence[tuple[PodRules, int, int]]:
        """(rules, number of the node among all, how many) of pods that are put there in this trial."""
        return self._put

    def in_domains(self, key: str, counts: Ints) -> Ints:
        """int64[M]: the sum of these over the domain of each node; 0 where it is in none."""
        ids, number = self.peers.domains(key)
        sums = np.zeros(number + 1, np.int64)
        np.add.at(sums, ids, counts)
        sums[-1] = 0
        return sums.take(ids)

    def eligible(self, task: Task, *, by_affinity: bool, by_taints: bool) -> Bools:
        """bool[M]: nodes that the task's selectors, and its tolerations, allow."""
        terms = task.node_terms if task.own_terms is None else task.own_terms
        selecting = repr((task.node_selector, terms)) if by_affinity else ""
        key = (selecting, repr(task.tolerations) if by_taints else "")
        known = self.peers.eligible
        found = known.get(key)
        if found is None:
            asked = Task(
                "",
                1,
                1,
                {},
                task.node_selector if by_affinity else {},
                terms if by_affinity else [],
                task.tolerations,
            )
            verdicts = [
                Profile(site.labels, tuple(site.taints) if by_taints else ()).accepts(asked, name)
                for name, site in self.peers.sites()
            ]
            found = known[key] = np.array(verdicts, np.bool_)
        return found
