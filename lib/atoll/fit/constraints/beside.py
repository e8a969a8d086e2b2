"""What rules between pods ask of those beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from atoll.fit.peers import Peers
from atoll.fit.placement import Ints
from atoll.model.gang import Task
from atoll.model.pod_rules import PodRules, Selection


class Beside(Protocol):
    """The face of `atoll.fit.company.Company`; arrays are of all nodes of the member."""

    @property
    def peers(self) -> Peers:
        """The pods that are there."""

    def is_meant(self, selection: Selection, rules: PodRules) -> bool:
        """Whether a selection means pods with these rules."""

    def count(self, *selections: Selection) -> Ints:
        """int64[M]: pods on each node that all of these mean."""

    def put(self) -> Sequence[tuple[PodRules, int, int]]:
        """(rules, number of the node, how many) of pods that are put there in this trial."""

    def in_domains(self, key: str, counts: Ints) -> Ints:
        """int64[M]: the sum of these over the domain of each node; 0 where it is in none."""

    def eligible(self, task: Task, *, by_affinity: bool, by_taints: bool) -> NDArray[np.bool_]:
        """bool[M]: nodes that the task's own selectors, and its tolerations, allow, wherever its volumes are."""
