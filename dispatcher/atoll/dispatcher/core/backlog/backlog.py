"""What waits, in which order, and on what: finding the next workload without looking at what can't start.

Pending workloads of one queue that ask for the same are one *class*. A class waits in exactly one *lot*: the fresh
lot of its queue until it is looked at, then the lot of what blocked it: a limit of some queue on its path (with the
resource and the amount), or its shape (no member can take it). A lot is *awake* while what blocks it might admit its
classes; a class in a lot that sleeps costs nothing, whatever happens elsewhere.

Each lot hangs at a queue of the quota tree and keeps, for every queue below, which children lead to its classes. So
`first` walks down once from the root, at every level to the best child by rank among the children that an awake lot
leads to: O(depth x lots that lead there), however many wait and however many queues there are.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from atoll.dispatcher.core.backlog.wake_index import KEPT, SETTINGS, Cause, Trigger, WakeIndex, rows_of
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.dispatcher.core.quota.tree import Shortage, Tree
from atoll.model.queues import Strategy
from atoll.model.verdict import Reason, Verdict, blocker

Key = tuple[int, str, str]
"""(-priority, created, uid): the order inside a queue, total because of the UID."""


_Entry = tuple[int, str, str, bytes]
"""The parts of a `Key`, and the shape's: flat, for comparing them is most of the work."""


class Limit(NamedTuple):
    """What a queue must have left."""

    queue: Queue
    resource: str
    amount: int
    way: Queue | None
    """The queue for which that must be left, where what others are guaranteed stops it; None for any."""

    @property
    def of_any_amount(self) -> Limit:
        """The limit itself, for any amount."""
        return self._replace(amount=0)


class _Amounts:
    """Lots that wait for one limit, by the amount that each needs: a change costs the lots between old and new rest."""

    __slots__ = ("amounts", "left", "lots")

    def __init__(self) -> None:
        #: rising
        self.amounts: list[int] = []
        self.lots: dict[int, Lot] = {}
        #: lots of up to this amount are awake; None for all
        self.left: int | None = -1

    def add(self, amount: int, lot: Lot) -> None:
        bisect.insort(self.amounts, amount)
        self.lots[amount] = lot

    def remove(self, amount: int) -> None:
        del self.amounts[bisect.bisect_left(self.amounts, amount)], self.lots[amount]

    def change(self, left: int | None) -> tuple[list[Lot], list[Lot]]:
        """So much is left now. Returns the lots that can now start with it, and the lots that no longer can."""
        before, now = map(self._reach, (self.left, left))
        self.left = left
        lots = [self.lots[amount] for amount in self.amounts[min(before, now) : max(before, now)]]
        return (lots, []) if now > before else ([], lots)

    def _reach(self, left: int | None) -> int:
        return len(self.amounts) if left is None else bisect.bisect_right(self.amounts, left)


class Lot:
    """Classes that wait for the same thing; see the module."""

    __slots__ = ("anchor", "awake", "below", "heads", "key", "verdict")

    def __init__(self, anchor: Queue, key: Limit | bytes | None) -> None:
        self.anchor = anchor
        #: reason of the wait: a limit of the anchor, or capacity for their shape; None: not looked at yet
        self.key = key
        self.awake = key is None
        #: why no member can take it, from the last time its classes were parked; None for other lots
        self.verdict: Verdict | None = None
        #: queue -> children that lead to a class of this lot
        self.below: dict[Queue, dict[Queue, None]] = {}
        #: leaf -> its classes in this lot, each by the key that its first member had when it was filed
        self.heads: dict[Queue, _Heads] = {}


class _Lots:
    """All lots but the fresh ones. A lot of a limit wakes while enough is left of it."""

    def __init__(self, index: WakeIndex, wake: Callable[[Lot], None], sleep: Callable[[Lot], None]) -> None:
        """`wake` and `sleep` are called with lots of limits."""
        self._index, self._wake, self._sleep = index, wake, sleep
        self._by_key: dict[Limit | bytes, Lot] = {}
        #: limit of any amount -> lots that wait for it; these limits sleep in the index
        self._limits: dict[Limit, _Amounts] = {}

    def get(self, shape: bytes) -> Lot | None:
        """The lot of a shape."""
        return self._by_key.get(shape)

    def of_shape(self, shape: bytes, root: Queue) -> Lot:
        """The lot of a shape, new where there is none."""
        lot = self._by_key.get(shape)
        if lot is None:
            lot = self._by_key[shape] = Lot(root, shape)
        return lot

    def of_limit(self, limit: Limit) -> Lot:
        """The lot of a limit, new where there is none, perhaps for a slightly smaller amount."""
        # Users may ask for any number of amounts: few lots wake and sleep with each change. An amount short by
        # less than the rounding waits for itself, lest it is looked at again and again.
        left, rounded = _left(limit), _rounded(limit.amount)
        if left is not None and left < rounded:
            limit = limit._replace(amount=rounded)
        lot = self._by_key.get(limit)
        if lot is None:
            lot = self._by_key[limit] = Lot(limit.queue, limit)
            known = self._limits.get(limit.of_any_amount)
            if known is None:
                known = self._limits[limit.of_any_amount] = _Amounts()
                known.left = _left(limit)
                self._index.park(limit.of_any_amount, self._left_changed, (Trigger(Cause.LEFT, limit.queue),))
            known.add(limit.amount, lot)
        return lot

    def drop(self, lot: Lot) -> None:
        """The last class has left a lot."""
        if lot.key is not None:
            del self._by_key[lot.key]
        if isinstance(lot.key, Limit):
            amounts = self._limits[limit := lot.key.of_any_amount]
            amounts.remove(lot.key.amount)
            if not amounts.lots:
                del self._limits[limit]
                self._index.drop(limit)

    def _left_changed(self, limits: list[Limit], _: Trigger) -> None:
        """Lots of one queue wake, or go to sleep."""
        for limit in limits:
            enough, short = self._limits[limit].change(_left(limit))
            for lot in enough:
                if not lot.awake:
                    self._wake(lot)
            for lot in short:
                if lot.awake:
                    self._sleep(lot)


class _Heads:
    """Classes by the key of their first member; outdated entries are dropped when they come up."""

    __slots__ = ("_counts", "_heap", "classes")

    def __init__(self, classes: dict[bytes, ShapeClass], counts: Callable[[ShapeClass], bool] | None = None) -> None:
        """`counts`: which of these classes are among them; None for all."""
        self.classes, self._counts = classes, counts
        self._heap: list[_Entry] = []

    def push(self, group: ShapeClass) -> None:
        """Another one is first in it, or it is among them by now."""
        heapq.heappush(self._heap, _entry(group))
        if len(self._heap) > 2 * len(self.classes) + 64:
            counts = self._counts
            self._heap = [_entry(each) for each in self.classes.values() if counts is None or counts(each)]
            heapq.heapify(self._heap)

    def first(self) -> ShapeClass | None:
        """The first of these classes, if there is one."""
        while self._heap:
            entry = self._heap[0]
            group = self.classes.get(entry[3])
            if group is not None and first_key(group) == entry[:3] and (self._counts is None or self._counts(group)):
                return group
            heapq.heappop(self._heap)
        return None


class Line:
    """Classes of one queue that wait for capacity in members, in order."""

    __slots__ = ("at", "entries")

    def __init__(self) -> None:
        #: rising
        self.entries: list[_Entry] = []
        #: up to here `next` was there; None at the beginning
        self.at: _Entry | None = None

    def put(self, entry: _Entry) -> None:
        """A class waits, or has another first member."""
        bisect.insort(self.entries, entry)
        if self.at is not None and entry < self.at:
            self.at = None

    def take(self, entry: _Entry) -> None:
        """It waits there no longer."""
        del self.entries[bisect.bisect_left(self.entries, entry)]

    def next(self, shapes: Container[bytes]) -> bytes | None:
        """The next class of one of these shapes; None once there is no more."""
        start = 0 if self.at is None else bisect.bisect_right(self.entries, self.at)
        for entry in itertools.islice(self.entries, start, None) if shapes else ():
            if entry[3] in shapes:
                self.at = entry
                return entry[3]
        return None


@dataclass(slots=True, eq=False)
class ShapeClass:
    """Pending workloads of one queue with one shape."""

    leaf: Queue
    shape: Shape
    #: in order; never empty while the class is known
    members: list[Key] = field(default_factory=list)
    #: in a queue ordered by fair share, the share before its age, by which it is filed; see `fair`
    share: str = ""
    #: why its first member does not go; None = not looked at since something changed
    parked: Verdict | None = None
    #: where it is filed; None while it waits for an event or behind the head of a strict queue
    lot: Lot | None = None
    #: its place in `Waiting.short` while it is filed by its shape
    place: _Entry | None = None
    #: its last published verdict
    said: Verdict | None = None
    #: how many of `members`, from the first, are known to know `said`, or one that equals it
    told: int = 0
    #: the first of them knows exactly that
    first_told: bool = True
    #: verdict of all but the first, for any verdict of that one; None where they share one
    behind: Verdict | None = None
    #: seconds; none but perhaps its first member is known to be shorter
    shortest: float = 0.0

    def before(self, key: Key) -> Key:
        """The member before this one, which is not the first."""
        return self.members[bisect.bisect_left(self.members, key) - 1]

    def verdict(self, key: Key) -> Verdict | None:
        """Why this member of it does not go; None as long as the class was not looked at."""
        if self.parked is None or self.behind is None or key == self.members[0]:
            return self.parked
        return self.behind


class _Spot:
    """What hangs at one queue of the tree."""

    __slots__ = ("all", "awake", "classes", "filed", "fresh", "heads", "lots", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        #: children below which a lot is awake that hangs there
        self.awake: dict[Queue, None] = {}
        #: awake lots that hang here
        self.lots: dict[Lot, None] = {}
        #: shape -> class, where the queue is a leaf
        self.classes: dict[bytes, ShapeClass] = {}
        self.all = _Heads(self.classes)
        self.fresh = Lot(queue, None)
        #: the classes that may be looked at for no lot further up, for many lots may be awake here, one for each amount
        self.heads = _Heads(self.classes, self._is_awake)
        #: in a strict queue the one class that may be looked at
        self.filed: ShapeClass | None = None

    def _is_awake(self, group: ShapeClass) -> bool:
        return group.lot is not None and group.lot.awake and group.lot.anchor is self.queue


class Waiting:
    """All pending classes; see the module."""

    def __init__(self, tree: Tree, index: WakeIndex) -> None:
        self._tree, self._index = tree, index
        self._spots: dict[Queue, _Spot] = {}
        self._lots = _Lots(index, self._wake, self._sleep)
        #: leaf -> its classes that wait for capacity in members, awake or not
        self.short: dict[Queue, Line] = {}
        #: classes whose members may not know `parked` yet, in the order in which they got it
        self.unsaid: dict[ShapeClass, None] = {}
        #: where `first` ended, and the lots above that lead there; None once anything woke since
        self._reached: tuple[_Spot, list[Lot]] | None = None
        #: queues of which classes or their verdicts changed since `take_changed`
        self._changed: dict[Queue, None] = {}

    # -- members of classes ------------------------------------------------------------------------------------------

    def add(self, leaf: Queue, shape: Shape, key: Key) -> ShapeClass:
        """A workload starts to wait."""
        self._changed[leaf] = None
        spot = self._spot(leaf)
        group = spot.classes.get(shape.key)
        if group is None:
            behind = _behind(leaf) if leaf.said.strategy is Strategy.FIFO else None
            group = spot.classes[shape.key] = ShapeClass(leaf, shape, [key], behind=behind)
            spot.all.push(group)
            self._refile(group)
            return group
        place = bisect.bisect_left(group.members, key)
        group.members.insert(place, key)
        group.shortest = 0.0
        group.told = min(group.told, place)
        if place == 0:
            self._new_head(group)
        return group

    def remove(self, leaf: Queue, shape: Shape, key: Key) -> None:
        """A workload waits no longer."""
        self._changed[leaf] = None
        spot = self._spots[leaf]
        group = spot.classes[shape.key]
        place = bisect.bisect_left(group.members, key)
        del group.members[place]
        if place < group.told:
            group.told -= 1
        if not group.members:
            self._unfile(group)
            self._index.drop(group)
            del spot.classes[shape.key]
            self.unsaid.pop(group, None)
            if leaf.said.strategy is Strategy.FIFO:
                self._choose_head(leaf)
        elif place == 0:
            self._new_head(group)

    def share(self, groups: Iterable[ShapeClass], share: str) -> None:
        """Classes of one queue, with this fair share from now on."""
        moved = [group for group in groups if group.share != share]
        for group in moved:
            group.share = share
            self._spot(group.leaf).all.push(group)
            if group.lot is not None:
                self._push(group, group.lot)
        if moved and moved[0].leaf.said.strategy is Strategy.FIFO:
            self._choose_head(moved[0].leaf)

    def tell_again(self, leaf: Queue, shape: Shape, key: Key, told: Verdict | None) -> None:
        """A waiting workload knows this verdict; if that is not its class's, it is queued for an update."""
        group = self._spots[leaf].classes[shape.key]
        # Not before the next look: most often the verdict stays the same.
        verdict = group.verdict(key) or group.said
        if verdict is not None and differs(told, verdict):
            if lacks_room(told) and lacks_room(verdict) and key != group.members[0]:
                return
            group.told = min(group.told, bisect.bisect_left(group.members, key))
            self.unsaid[group] = None

    def classes(self, leaf: Queue) -> dict[bytes, ShapeClass]:
        """Shape key -> class of a queue."""
        spot = self._spots.get(leaf)
        return spot.classes if spot is not None else {}

    def all(self) -> Iterator[ShapeClass]:
        """Every class, queue by queue."""
        for spot in self._spots.values():
            yield from spot.classes.values()

    def reasons(self, leaf: Queue) -> Counter[Reason]:
        """How many wait in a queue for which reason, as far as they were looked at."""
        found: Counter[Reason] = Counter()
        for group in self.classes(leaf).values():
            if group.parked is not None:
                found[group.parked.reason] += 1
                found[(group.behind or group.parked).reason] += len(group.members) - 1
        return found

    def take_changed(self) -> list[Queue]:
        """The queues of which classes or their verdicts changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def forget(self, leaf: Queue) -> None:
        """The queue is about to be dropped; no workload waits in it or below."""
        spot = self._spots.pop(leaf, None)
        assert spot is None or not (spot.classes or spot.awake), f"queue {leaf.name}: workloads wait in it"
        if self._reached is not None and self._reached[0] is spot:
            self._reached = None

    def head(self, leaf: Queue) -> ShapeClass | None:
        """The class of the first workload in the queue's order."""
        spot = self._spots.get(leaf)
        return spot.all.first() if spot is not None else None

    def is_behind(self, group: ShapeClass) -> bool:
        """Whether its queue is strict, and another class is the one that may be looked at there."""
        return group.leaf.said.strategy is Strategy.FIFO and self._spot(group.leaf).filed is not group

    # -- what blocks them --------------------------------------------------------------------------------------------

    def park_on_limit(self, group: ShapeClass, verdict: Verdict, short: Shortage) -> None:
        """Wait until the queue has the requested amount of the resource left."""
        self.say(group, verdict)
        limit = Limit(short.queue, short.resource, short.requested, group.leaf if short.below is not None else None)
        self._move(group, self._lots.of_limit(limit))

    def park_on_shape(self, group: ShapeClass, verdict: Verdict) -> None:
        """Wait until the shape is woken; whatever else waits for it there sleeps again as well."""
        self.say(group, verdict)
        lot = self._lots.of_shape(group.shape.key, self._tree.root)
        lot.verdict = verdict
        self._sleep(lot)
        self._move(group, lot)

    def asleep(self, shape: bytes) -> Verdict | None:
        """Why no member can take this shape, where others wait for that and did not wake since."""
        lot = self._lots.get(shape)
        return lot.verdict if lot is not None and not lot.awake else None

    def park_until_told(self, group: ShapeClass, verdict: Verdict, *triggers: Trigger) -> None:
        """Wait for one of these changes, or for other settings of queues or members."""
        self.say(group, verdict)
        self._unfile(group)
        self._index.park(group, self._refresh_all, (*triggers, SETTINGS))

    def park_on_delay(self, group: ShapeClass, verdict: Verdict) -> None:
        """Wait until others, that the class or its gang group would delay, no longer are."""
        # What would delay others elsewhere may not delay them in a member that has more.
        self.park_until_told(group, verdict, KEPT, *rows_of(group.shape))

    def _refresh_all(self, groups: list[ShapeClass], _: Trigger) -> None:
        for group in groups:
            self.refresh(group)

    def refresh(self, group: ShapeClass) -> None:
        """Look at the class again."""
        self._index.drop(group)
        self._refile(group)

    def wake_shape(self, shape: bytes) -> None:
        """Some member has more capacity for this shape."""
        lot = self._lots.get(shape)
        if lot is not None:
            self._wake(lot)

    def may_go(self, leaf: Queue, shape: bytes) -> bool:
        """Whether a class of the queue waits for capacity for this shape and is awake."""
        lot = self._lots.get(shape)
        return lot is not None and lot.awake and leaf in lot.heads

    def reconsider(self, leaf: Queue, shape: Shape) -> None:
        """The blocker of a class may be gone, of any kind."""
        self.wake_shape(shape.key)
        group = self.classes(leaf).get(shape.key)
        if group is not None and group.lot is None:
            self.refresh(group)

    def sleep_shape(self, shape: bytes) -> None:
        """No member can take this shape any more; its classes keep their verdicts."""
        lot = self._lots.get(shape)
        if lot is not None:
            self._sleep(lot)

    # -- the next one ------------------------------------------------------------------------------------------------

    def first(self, *, parked: bool = False) -> ShapeClass | None:
        """The class whose first member is next in order among all that might go; None when nothing might.

        parked: all that happened since the last call is that its class was parked; then mostly another one of the same
            queue is next.
        """
        if parked and self._reached is not None:
            group = _first_in(*self._reached)
            if group is not None:
                return group
        queue = self._tree.root
        spot = self._spots.get(queue)
        if spot is None or not (spot.lots or spot.awake):
            return None
        #: awake lots that hang above; some may lead elsewhere
        lots: list[Lot] = []
        while True:
            if spot.classes:
                group = _first_in(spot, lots)
                if group is not None:
                    self._reached = spot, lots
                    return group
            lots += spot.lots
            ways = [below for lot in lots if (below := lot.below.get(queue))]
            if spot.awake:
                ways.append(spot.awake)
            queue = self._tree.first(ways)
            lots = [lot for lot in lots if queue in lot.below or queue in lot.heads]
            spot = self._spot(queue)

    def check(self) -> None:
        """Verify that lots and their ways lead to exactly the classes that are filed in them.

        Raises:
            AssertionError: naming the queue.
        """
        for queue, spot in self._spots.items():
            for child in queue.children.values():
                below = self._spots.get(child)
                awake = below is not None and bool(below.lots or below.awake)
                assert (child in spot.awake) == awake, f"{child.name}: is it awake?"
            for group in spot.classes.values():
                lot = group.lot
                if lot is None:
                    continue
                assert lot.heads[queue].classes[group.shape.key] is group, f"{queue.name}: a class is not in its lot"
                place = _entry(group) if isinstance(lot.key, bytes) else None
                assert group.place == place, f"{queue.name}: a class is elsewhere in line"
                child = queue
                while child is not lot.anchor:
                    assert child.parent is not None, f"{queue.name} is not below {lot.anchor.name}"
                    assert child in lot.below[child.parent], f"{queue.name}: no way leads to its classes"
                    child = child.parent
            line = sorted(group.place for group in spot.classes.values() if group.place is not None)
            assert line == (self.short[queue].entries if queue in self.short else []), f"{queue.name}: its line differs"
            for lot in spot.lots:
                assert lot.awake, f"{queue.name}: a sleeping lot is looked at"
                assert lot.heads, f"{queue.name}: an empty lot is looked at"

    # -- filing ------------------------------------------------------------------------------------------------------

    def _spot(self, queue: Queue) -> _Spot:
        spot = self._spots.get(queue)
        if spot is None:
            spot = self._spots[queue] = _Spot(queue)
        return spot

    def _refile(self, group: ShapeClass) -> None:
        """File a class as one that was not looked at yet, if it may be."""
        if group.leaf.said.strategy is Strategy.FIFO:
            spot = self._spot(group.leaf)
            self._unfile(group)
            if spot.filed is group:
                spot.filed = None
            self._choose_head(group.leaf)
            if group is not spot.filed:
                self.say(group, _behind(group.leaf))
        else:
            self._move(group, self._spot(group.leaf).fresh)

    def _new_head(self, group: ShapeClass) -> None:
        """The first member of the class is another one."""
        self._spot(group.leaf).all.push(group)
        if group.behind is not None:
            group.first_told = False
            self.unsaid[group] = None
        if group.lot is not None:
            self._push(group, group.lot)
        if group.leaf.said.strategy is Strategy.FIFO:
            self._choose_head(group.leaf)

    def _choose_head(self, leaf: Queue) -> None:
        """In a strict queue only the class of its very first workload is filed."""
        spot = self._spot(leaf)
        head = self.head(leaf)
        if head is spot.filed and (head is None or head.lot is not None or head.parked is not None):
            return
        if spot.filed is not None and spot.filed is not head and spot.filed.members:
            self._unfile(spot.filed)
            self.say(spot.filed, _behind(leaf))
        spot.filed = head
        if head is not None:
            head.parked = None
            self._move(head, spot.fresh)

    def say(self, group: ShapeClass, verdict: Verdict) -> None:
        """The class keeps this verdict until its next look; the reason of its wait stays the same."""
        if differs(group.said, verdict):
            if group.behind is not None or (lacks_room(group.said) and lacks_room(verdict)):
                group.first_told = False
            else:
                group.told = 0
        group.parked = group.said = verdict
        self.unsaid[group] = None
        self._changed[group.leaf] = None

    def _move(self, group: ShapeClass, lot: Lot) -> None:
        if group.lot is lot:
            return
        if group.lot is None:
            self._index.drop(group)
        self._unfile(group)
        group.lot = lot
        if group.leaf not in lot.heads:
            lot.heads[group.leaf] = _Heads({})
            child = group.leaf
            while child is not lot.anchor:
                assert child.parent is not None, f"{group.leaf.name} is not below {lot.anchor.name}"
                known = lot.below.setdefault(child.parent, {})
                known[child] = None
                if len(known) > 1:
                    break
                child = child.parent
        self._push(group, lot)
        if lot.awake:
            self._wake(lot)

    def _push(self, group: ShapeClass, lot: Lot) -> None:
        """File a class of the lot by its first member."""
        heads = lot.heads[group.leaf]
        heads.classes[group.shape.key] = group
        heads.push(group)
        if isinstance(lot.key, bytes):
            self._put_in_line(group, _entry(group))
        # Another class of the lot may be first by now, which was not when the lot woke.
        self._push_first(lot, group.leaf)

    def _unfile(self, group: ShapeClass) -> None:
        lot, group.lot = group.lot, None
        if lot is None:
            return
        self._put_in_line(group, None)
        heads = lot.heads[group.leaf]
        del heads.classes[group.shape.key]
        if heads.classes:
            self._push_first(lot, group.leaf)
            return
        del lot.heads[group.leaf]
        child = group.leaf
        # What waits in a queue that has others below it by now is filed beside what waits in these.
        while child is not lot.anchor and child not in lot.heads and child not in lot.below:
            assert child.parent is not None, f"{group.leaf.name} is not below {lot.anchor.name}"
            known = lot.below[child.parent]
            del known[child]
            if known:
                break
            child = child.parent
            del lot.below[child]
        if not lot.heads:
            self._sleep(lot)
            lot.awake = lot.key is None
            self._lots.drop(lot)

    def _put_in_line(self, group: ShapeClass, entry: _Entry | None) -> None:
        if group.place == entry:
            return
        line = self.short.setdefault(group.leaf, Line())
        if group.place is not None:
            line.take(group.place)
        if entry is not None:
            line.put(entry)
        group.place = entry
        if not line.entries:
            del self.short[group.leaf]

    def _push_first(self, lot: Lot, leaf: Queue) -> None:
        """Of an awake lot that hangs at a leaf, only the first class may be looked at there."""
        if lot.awake and lot.anchor is leaf and (group := lot.heads[leaf].first()) is not None:
            self._spots[leaf].heads.push(group)

    def _wake(self, lot: Lot) -> None:
        self._reached = None
        queue, spot = lot.anchor, self._spot(lot.anchor)
        woken, lot.awake = not lot.awake, True
        if woken and queue in lot.heads:
            self._push_first(lot, queue)
        spot.lots[lot] = None
        while queue.parent is not None:
            spot = self._spot(queue.parent)
            if queue in spot.awake:
                return
            spot.awake[queue] = None
            queue = queue.parent

    def _sleep(self, lot: Lot) -> None:
        lot.awake = False
        queue = lot.anchor
        spot = self._spot(queue)
        if lot not in spot.lots:
            return
        del spot.lots[lot]
        while not (spot.lots or spot.awake) and queue.parent is not None:
            spot = self._spot(queue.parent)
            del spot.awake[queue]
            queue = queue.parent


ROOM = (Reason.INSUFFICIENT_RESOURCES, Reason.NO_DOMAIN_FITS, Reason.PART_REFUSED)
"""Verdicts that the departure of others can change."""


def lacks_room(verdict: Verdict | None) -> bool:
    """Whether this is one of the reasons that follow each other with every start and every end."""
    return verdict is not None and (verdict.reason in ROOM or verdict.reason is Reason.WOULD_DELAY)


def differs(told: Verdict | None, verdict: Verdict) -> bool:
    """Whether a workload needs an update: another reason or another blocker, not merely another free amount."""
    if told is None or told.reason != verdict.reason:
        return True
    a, b = told.blocker, verdict.blocker
    if told.reason in (Reason.NO_CLUSTER, Reason.SIZE_KEPT):
        # The text alone has the reason of each member, and the size.
        return a != b
    return (a and (a.kind, a.name, a.resource, a.cluster)) != (b and (b.kind, b.name, b.resource, b.cluster))


def _rounded(amount: int) -> int:
    """The amount, or the next smaller one of four binary digits."""
    digits = max(amount.bit_length() - 4, 0)
    return amount >> digits << digits


def _left(limit: Limit) -> int | None:
    """Amount left of it; None without a limit."""
    queue, resource, _, way = limit
    return queue.left(resource, way if way is not None and queue in path(way) else None)


def _behind(leaf: Queue) -> Verdict:
    return Verdict(Reason.BEHIND_HEAD, blocker("Queue", leaf.name, "", 0, 0))


def _first_in(spot: _Spot, lots: list[Lot]) -> ShapeClass | None:
    """The first class of a queue in its own awake lots and in these, as far as they are awake."""
    own = spot.heads.first()
    if not lots:
        return own
    heads = [each for lot in lots if lot.awake and (each := lot.heads.get(spot.queue)) is not None]
    firsts = [own, *[each.first() for each in heads]]
    return min((first for first in firsts if first is not None), key=first_key, default=None)


def _entry(group: ShapeClass) -> _Entry:
    return (*first_key(group), group.shape.key)


def first_key(group: ShapeClass) -> Key:
    """Sort key of a class in its queue."""
    return shared(group.members[0], group.share) if group.share else group.members[0]


def shared(key: Key, share: str) -> Key:
    """The place of a workload of a class with this share in its queue."""
    return key[0], share + key[1], key[2]
