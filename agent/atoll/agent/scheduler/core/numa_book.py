"""NUMA nodes of a member's nodes: reports on them, and their use by pods since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from atoll.agent.numa import NumaTopology
from atoll.fit.constraints import Exact
from atoll.fit.constraints.numa import Numa
from atoll.model import vector
from atoll.model.numa import Asks, Cells, Together


class NumaBook:
    """Begins empty; holds the nodes of which an object tells."""

    def __init__(self) -> None:
        #: number of changes of nodes' NUMA nodes, free amounts aside
        self.kinds = 0
        #: node -> whether by zones -> its NUMA nodes as an object says
        self._said: dict[str, dict[bool, NumaTopology]] = {}
        #: node -> its NUMA nodes as reported
        self._reported: dict[str, NumaTopology] = {}
        #: node -> how many pods have what of NUMA nodes there, by charges and reservations; without zeros
        self._pinned: dict[str, dict[Asks, int]] = {}
        #: node -> the same at the time of the report on its NUMA nodes
        self._then: dict[str, Counter[Asks]] = {}
        #: node -> free amounts in its NUMA nodes, as far as computed since the last change
        self._cells: dict[str, Cells] = {}

    def __bool__(self) -> bool:
        """Whether something tells of any node."""
        return bool(self._reported)

    def __contains__(self, node: str) -> bool:
        return node in self._reported

    def report(self, node: str, told: NumaTopology | None, *, zones: bool) -> bool:
        """One of two objects says that these are the NUMA nodes of a node, or is gone; `zones`: a NodeResourceTopology,
        which comes first where there are both, for it tells of devices. Whether that changes anything.
        """
        said = self._said.setdefault(node, {})
        said.pop(zones, None)
        if told is not None:
            said[zones] = told
        told = said.get(True) or said.get(False)
        if not said:
            del self._said[node]
        known = self._reported.get(node)
        if known == told:
            return False
        if known is None or told is None or known.emptied() != told.emptied():
            self.kinds += 1
        self._reported.pop(node, None)
        self._then.pop(node, None)
        if told is not None:
            self._reported[node] = told
            self._then[node] = Counter(self._pinned.get(node, {}))
        self._cells.pop(node, None)
        return True

    def of(self, node: str) -> Cells | None:
        """The NUMA nodes of a node, free or not; None where nothing tells of them."""
        told = self._reported.get(node)
        return told.emptied() if told is not None else None

    def begin(self) -> None:
        """All present pods were there before: the reports may contain all of them."""
        self._then = {node: Counter(self._pinned.get(node, {})) for node in self._reported}
        self._cells.clear()

    def aligns(self, usable: Callable[[str], bool]) -> bool:
        """Whether one of the usable nodes rejects pods that it can't align to its NUMA nodes."""
        return any(told.cells.policy.strict and usable(node) for node, told in self._reported.items())

    def tells(self, together: str) -> bool:
        """Whether something tells of some node which of its devices are together so."""
        if together == Together.ISLAND:
            return any(told.islands is not None for told in self._reported.values())
        return bool(self._reported)

    def pin(self, node: str, asks: Asks, times: int) -> None:
        """So many more pods use this of NUMA nodes there; fewer for a negative number."""
        if asks:
            vector.add_each(self._pinned, {node: {asks: 1}}, times)

    def outdate(self, node: str) -> None:
        """Something was taken or given back there."""
        self._cells.pop(node, None)

    def cells(self, node: str, leaving: Sequence[tuple[str, Asks]] = ()) -> Cells | None:
        """The NUMA nodes of a node; None where nothing tells of them.

        Args:
            node: its name.
            leaving: (UID, use) of each pod there that is taken for gone.
        """
        told = self._reported.get(node)
        if told is None or leaving:
            return self._now(node, told, leaving) if told is not None else None
        if node not in self._cells:
            self._cells[node] = self._now(node, told, ())
        return self._cells[node]

    def _now(self, node: str, told: NumaTopology, gone: Sequence[tuple[str, Asks]]) -> Cells:
        pinned = Counter(self._pinned.get(node, {})) - Counter(asks for _, asks in gone)
        return told.now(pinned, self._then.get(node, Counter()), gone)

    def exact(self, columns: Mapping[str, int], leaving: Mapping[str, Sequence[tuple[str, Asks]]]) -> tuple[Exact, ...]:
        """The constraint of these arrays; none where nothing tells of any node.

        Args:
            columns: node -> its column, of nodes in the arrays.
            leaving: node -> (UID, use) of each pod there that is taken for gone.
        """
        if not self._reported:
            return ()

        def known() -> dict[int, Cells]:
            places = ((columns.get(node), node) for node in self._reported)
            found = ((place, self.cells(node, leaving.get(node, ()))) for place, node in places if place is not None)
            return {place: cells for place, cells in found if cells is not None}

        def islands() -> dict[int, Cells]:
            joined = ((columns.get(node), node, told.islands) for node, told in self._reported.items())
            return {
                place: self._now(node, told, leaving.get(node, ()))
                for place, node, told in joined
                if place is not None and told is not None
            }

        return (Numa(known, islands),)
