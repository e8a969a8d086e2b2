"""GPUs of nodes, and NICs and FPGAs that come with them: who offers them, and which of them each pod has.

Three sources publish them: device plug-ins with cards that pods share, Koordinator (`KoordinatorBook`), and HAMi.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from atoll.agent.objects import Node, Pod
from atoll.agent.scheduler.core.card_book import CardBook, Choose
from atoll.agent.scheduler.core.koordinator_book import KoordinatorBook
from atoll.agent.scheduler.core.numa_book import NumaBook
from atoll.fit import koordinator as fitting
from atoll.fit.constraints import Cards
from atoll.fit.scores import Typical
from atoll.model import gpu_shares, hami, keys, koordinator
from atoll.model.cards import CARD, MEMORY, SHARE, asked, chosen
from atoll.model.gang import DeviceWish, Task
from atoll.model.hami import Gpus
from atoll.model.koordinator import Part
from atoll.model.numa import Asks, asks_of
from atoll.model.vector import MOST_ON_NODE, Vector

_ANY = DeviceWish()


class GpuBook:
    """Begins without nodes."""

    def __init__(self, numa: NumaBook, fragments: Callable[[str], tuple[int, int] | None], *, hami: bool) -> None:
        """Args:
        numa: NUMA nodes beside the GPUs.
        fragments: node -> (free milli-CPU, index of its profile) where fragmentation chooses the cards, else None.
        hami: whether pods get GPUs of nodes that HAMi manages.
        """
        self._numa, self._fragments, self._reads_hami = numa, fragments, hami
        self.cards = CardBook()
        self.koordinator = KoordinatorBook()
        #: typical requests, learnt from placed pods
        self.typical = Typical()
        #: node -> key -> pod there that asks for GPUs or for devices that Koordinator gives
        self._using: dict[str, dict[str, Pod]] = {}
        #: (node, requests, wish) -> how many reservations have devices for such a pod
        self._reserved: Counter[tuple[str, str, str]] = Counter()

    # -- nodes -------------------------------------------------------------------------------------------------------

    def offered(self, node: Node, offers: Vector) -> Vector:
        """Take in a node with these amounts, in integer units; the amounts that pods may ask for there."""
        name = node.metadata.name
        offers |= gpu_shares.memory_offered(offers, node.metadata.labels)
        gpus = self.koordinator.gpus(name)
        if gpus:
            offers |= koordinator.offered(self.koordinator.reported[name].devices)
        of_hami = None if gpus or SHARE in offers else self._registered(node)
        if of_hami is not None:
            offers = hami.offered(of_hami) | offers
            self._register(name, of_hami)
        offers = {resource: min(each, MOST_ON_NODE) for resource, each in offers.items()}
        if of_hami is None:
            self.cards.hami.pop(name, None)
            self.cards.offers(name, offers, gpus)
        return offers

    def gone(self, node: str) -> None:
        """A node is gone."""
        self.cards.hami.pop(node, None)
        self.cards.offers(node, None)
        self.koordinator.labelled(node, {})

    def _registered(self, node: Node) -> Gpus | None:
        """GPUs of a node that HAMi registers and pods may have; None where it registers none."""
        notes = node.metadata.annotations
        found = hami.registered(notes.get(hami.REGISTER, "")) if self._reads_hami else {}
        return hami.usable(found, notes.get(hami.CORDONED, "")) if found else None

    def _register(self, node: str, gpus: Gpus) -> None:
        """HAMi registers these GPUs of a node, in any order; pods keep theirs by UUID."""
        before = self.cards.hami.get(node)
        if before == gpus:
            return
        numbers = {each.uuid: at for at, each in gpus.items()}
        had = {key: self.cards.of(key)[1] for key in self._using.get(node, {})}
        self.cards.hami[node] = gpus
        self.cards.offers(node, {SHARE: (max(gpus, default=-1) + 1) * CARD}, gpus)
        for key, pod in self._using.get(node, {}).items():
            uuids = [before[card].uuid for card in had[key] if card in before] if before else []
            told = tuple(numbers[each] for each in uuids if each in numbers)
            self._take_back(key)
            self._hand_out(key, node, pod.requests, pod.joint, asks_of(pod.aligned), told, (), pod.handed)

    def hand_out_again(self, node: str) -> None:
        """Pods on a node whose devices are different get some, where they have none yet."""
        for key, pod in self._using.get(node, {}).items():
            if self._has_none(key):
                self._take_back(key)
                self._hand_out(key, node, pod.requests, pod.joint, asks_of(pod.aligned), pod.cards, pod.parts)

    # -- pods --------------------------------------------------------------------------------------------------------

    def put(self, pod: Pod, node: str, numa: Asks) -> None:
        """A pod is on a node: it has the devices that it reports, or chosen ones."""
        if _wants_devices(pod.requests, pod.joint):
            self._using.setdefault(node, {})[pod.metadata.key] = pod
            self._hand_out(pod.metadata.key, node, pod.requests, pod.joint, numa, pod.cards, pod.parts, pod.handed)

    def drop(self, key: str, node: str) -> None:
        """The pod of this key has left the node."""
        self._take_back(key)
        if (using := self._using.get(node)) is not None and using.pop(key, None) is not None and not using:
            del self._using[node]

    def reserve(self, node: str, task: Task, count: int) -> None:
        """Keep devices for so many pods that do not exist yet; a negative number gives them back."""
        if not _wants_devices(task.requests, task.joint):
            return
        asks = asks_of(task.aligned)
        alike = node, repr(sorted(task.requests.items())), repr((task.joint, asks))
        for number in range(self._reserved[alike], self._reserved[alike] + count):
            self._hand_out(f"{alike} {number}", node, task.requests, task.joint, asks)
        for number in range(self._reserved[alike] + count, self._reserved[alike]):
            self._take_back(f"{alike} {number}")
        self._reserved[alike] += count
        if not self._reserved[alike]:
            del self._reserved[alike]

    def lacks(self, pod: Pod) -> bool:
        """True if it is on a node that has not the devices that it wishes for."""
        return pod.joint is not None and self._has_none(pod.metadata.key)

    def notes_of(self, pod: Pod, node: str) -> dict[str, str]:
        """Annotations of a pod on a node by which that node learns its devices."""
        part, which = self.cards.of(pod.metadata.key)
        parts = self.koordinator.of(pod.metadata.key)
        notes = {keys.GPU_CARDS: ",".join(map(str, which))} if which else {}
        if (there := self.koordinator.reported.get(node)) and (which or parts):
            notes[keys.KOORDINATOR_DEVICES] = koordinator.allocated(there.devices, which, part, pod.requests, parts)
        # Who binds a pod that waits at our gate chooses its GPUs as well.
        elif which and not pod.held and (gpus := self.cards.hami.get(node)):
            notes |= hami.allocated(gpus, which, pod.gpus, node)
        return notes

    def _has_none(self, key: str) -> bool:
        return not self.cards.of(key)[1] and not self.koordinator.of(key)

    def _hand_out(
        self,
        key: str,
        node: str,
        requests: Vector,
        wish: DeviceWish | None,
        numa: Asks,
        told: tuple[int, ...] = (),
        parts: Sequence[Part] = (),
        handed: str = "",
    ) -> None:
        """Devices for a pod: the reported ones, or chosen ones."""
        if (gpus := self.cards.hami.get(node)) is not None:
            amount, which = hami.given(handed, gpus)
            each = (amount, len(which)) if which else hami.asked(requests, gpus)
            self.cards.put(key, node, each, which or told, lambda _, free: chosen(free, *each))
            return
        memory = self.cards.memory(node)
        there = self._devices_on(node, self.cards.free(node))
        asks = koordinator.counted(requests) if there is not None else requests
        if wish is None:
            self.cards.put(key, node, asked(asks, memory), told, self._chooser(dict(asks), numa))
            return
        if there is not None and not told and not parts:
            found = fitting.find(there, requests, wish, numa)
            told, parts = ((), ()) if isinstance(found, str) else found
        self.cards.put(key, node, asked(asks, memory), told, lambda *_: ())
        self.koordinator.put(key, node, parts)

    def _take_back(self, key: str) -> None:
        self.cards.drop(key)
        self.koordinator.drop(key)

    def _devices_on(self, node: str, free: Sequence[int]) -> fitting.Node | None:
        there = self.koordinator.node(node, free, self.cards.memory(node))
        return there._replace(cells=self._numa.cells(node)) if there is not None else None

    def _chooser(self, requests: Vector, numa: Asks) -> Choose:
        """How the cards of a pod are chosen: whole ones that Koordinator reports by partition and topology; others by
        fragmentation where that is the member's scoring, else the fullest.
        """

        def choose(node: str, free: Sequence[int]) -> tuple[int, ...]:
            share = {**requests, SHARE: asked(requests, self.cards.memory(node))[0]} if MEMORY in requests else requests
            there = self._devices_on(node, free)
            if there is not None and asked(share)[0] == CARD:
                found = fitting.find(there, share, _ANY, numa)
                if not isinstance(found, str):
                    return found.gpus
            if (there_free := self._fragments(node)) is not None:
                cpu, profile = there_free
                return self.typical.chosen(share, cpu, np.array(free, np.int64), profile)
            return chosen(free, *asked(share))

        return choose

    # -- views -------------------------------------------------------------------------------------------------------

    def manages(self, node: str) -> bool:
        """True if free amounts of a node follow from its free cards (`limit`)."""
        return bool(self.koordinator.gpus(node)) or node in self.cards.hami

    def limit(self, free: Vector, node: str, cards: Sequence[int] | None = None) -> None:
        """Lower free amounts of a node, in place, to the ones that its free cards give.

        Args:
            free: of the node, in integer units.
            node: its name.
            cards: free thousandths of each of its GPUs, where these are not the present ones.
        """
        if self.koordinator.gpus(node):
            koordinator.left(free, self.cards.free(node) if cards is None else cards)
        elif (gpus := self.cards.hami.get(node)) is not None:
            most = hami.left(gpus, self.cards.free(node) if cards is None else cards)
            # Pods on a card that is ill take nothing of the others.
            free |= most | {hami.WHOLE: min(free.get(hami.WHOLE, 0), most[hami.WHOLE])}

    def exact(self, columns: Mapping[str, int]) -> Cards:
        """The constraint of arrays with these columns, in their order."""
        names = list(columns)
        reported = {columns[name]: each for name, each in self.koordinator.reported.items() if name in columns}
        return Cards(
            self.cards.matrix(names),
            np.array([*map(self.cards.memory, names)], np.int64),
            reported,
            {column: self.koordinator.taken(names[column]).copy() for column in reported},
            self.koordinator.counts,
            lambda column: self._numa.cells(names[column]),
            {columns[name]: gpus for name, gpus in self.cards.hami.items() if name in columns},
        )

    def refresh(self, exact: Cards, node: str, column: int) -> None:
        """Bring one column of `exact` up to date."""
        if self.cards:
            free = self.cards.free(node)
            exact.free[column, : len(free)] = free
        if node in self.koordinator.reported:
            exact.taken[column] = self.koordinator.taken(node).copy()

    def without(self, exact: Cards, away: Iterable[tuple[str, int]]) -> Cards:
        """A copy of `exact`, which is up to date, as if the pods of these (key, column) were gone."""
        found = exact.copy()
        for key, column in away:
            amount, which = self.cards.of(key)
            found.free[column, list(which)] += amount
            if parts := self.koordinator.of(key):
                fitting.hold(found.taken[column], parts, -1)
        return found


def _wants_devices(requests: Vector, wish: DeviceWish | None) -> bool:
    return wish is not None or SHARE in koordinator.counted(requests)
