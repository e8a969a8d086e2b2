"""What of a node the filters look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atoll.fit.constraints import node_affinity, node_selector, taints
from atoll.model.gang import Task
from atoll.model.numa import Cells, asks_of


@dataclass(frozen=True, slots=True)
class Profile:
    """What makes nodes acceptable to pods; nodes that are alike share one."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    unknown: frozenset[str] = frozenset()
    """Label keys, or the field, by which these nodes may differ: what a task asks of them counts as met."""

    numa: Cells | None = None
    """Amounts in each of their NUMA nodes, free or not; None where computed node by node, or unknown."""

    def accepts(self, task: Task, name: str) -> bool:
        """Whether every filter allows the task a node of this profile."""
        return (
            node_selector.accepts(task.node_selector, self.labels, self.unknown)
            and node_affinity.accepts(task.node_terms, self.labels, name, self.unknown)
            and taints.accepts(task.tolerations, self.taints, task.priority)
            and (self.numa is None or not task.aligned or self._aligns(self.numa, task))
        )

    @staticmethod
    def _aligns(cells: Cells, task: Task) -> bool:
        return cells.ever(asks_of(task.aligned), task.numa, task.devices_in)

    def refusal(self, task: Task) -> str:
        """Why a filter does not, in kube-scheduler's words."""
        return taints.refusal(task.tolerations, self.taints, task.priority) or node_affinity.REFUSAL
