"""For which claimants victims are searched, and in which order: each search looks at all that runs, so they are few.

Classes whose first workload is new, or for which something changed, come by priority, then age. Classes that no
eviction would help step back: they are looked at again after a pause that grows, and that is the longer the more such
classes come before; at most every other search is theirs while others wait for their first.
"""

from __future__ import annotations

import heapq
import math

from atoll.dispatcher.core.backlog.backlog import Key, ShapeClass
from atoll.dispatcher.core.settings import PreemptionSettings


class _Turns:
    """Classes by the key that their first workload had when they were filed; it may be filed anew under another one."""

    def __init__(self) -> None:
        self._known: dict[ShapeClass, Key] = {}
        self._heap: list[tuple[Key, int, ShapeClass]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, group: ShapeClass) -> bool:
        return group in self._known

    def add(self, group: ShapeClass) -> None:
        key = group.members[0]
        if self._known.get(group) != key:
            self._known[group] = key
            # Equal keys are of one class at different times: the number decides.
            self._serial += 1
            heapq.heappush(self._heap, (key, self._serial, group))

    def drop(self, group: ShapeClass) -> None:
        self._known.pop(group, None)

    def take(self) -> ShapeClass | None:
        while self._heap:
            key, _, group = heapq.heappop(self._heap)
            if self._known.get(group) != key:
                continue
            del self._known[group]
            if group.members and group.members[0] != key:
                # Another workload comes first in it by now.
                self.add(group)
                continue
            return group
        return None


class Searches:
    def __init__(self, settings: PreemptionSettings = PreemptionSettings()) -> None:
        self._settings = settings
        #: searches that may be made now
        self.tokens = float(settings.burst)
        #: classes for which it was not looked since something changed; classes whose pause is over
        self._fresh, self._again = _Turns(), _Turns()
        #: the last search was one of the first kind
        self._was_fresh = False
        #: classes that no eviction would help -> seconds of the last pause; they are in `_again` or in `_retries`
        self._helpless: dict[ShapeClass, float] = {}
        #: (when to look again, serial, class): a heap; one that is in `_fresh` by now is left out
        self._retries: list[tuple[float, int, ShapeClass]] = []
        self._serial = 0

    def pass_begins(self, elapsed: float, now: float) -> None:
        """So many seconds have passed."""
        self.tokens = min(self._settings.burst, self.tokens + max(elapsed, 0.0) * self._settings.searches)
        while self._retries and self._retries[0][0] <= now:
            group = heapq.heappop(self._retries)[2]
            if group in self._helpless and group.members and group not in self._fresh:
                self._again.add(group)

    @property
    def waiting(self) -> bool:
        """Whether a search is due."""
        return bool(self._fresh or self._again)

    def next_due(self, now: float) -> float | None:
        """When the next search may be made."""
        while self._retries and not (self._retries[0][2].members and self._retries[0][2] in self._helpless):
            self._helpless.pop(heapq.heappop(self._retries)[2], None)
        due = self._retries[0][0] if self._retries else math.inf
        if self.waiting:
            due = min(due, now + max(1 - self.tokens, 0.0) / self._settings.searches)
        return due if due < math.inf else None

    def consider(self, group: ShapeClass) -> None:
        """Perhaps others should go for it, unless that was looked at a moment ago."""
        if group not in self._helpless:
            self._fresh.add(group)

    def look_soon(self, group: ShapeClass) -> None:
        """It may be helped now; if not, it steps back further."""
        self._again.drop(group)
        self._fresh.add(group)

    def look_anew(self, group: ShapeClass) -> None:
        """Something changed for it: look at it as if for the first time."""
        self.drop(group)
        self._fresh.add(group)

    def try_again(self, group: ShapeClass, now: float) -> None:
        """No eviction would help it, but time alone may: new workloads are protected for a while."""
        key = group.members[0]
        before = sum(1 for other in self._helpless if other.members and other.members[0] < key)
        longest = max(self._settings.longest_pause, self._settings.pause_each * before)
        self.try_after(group, min(2 * self._helpless.get(group, self._settings.pause / 2), longest), now)

    def try_after(self, group: ShapeClass, pause: float, now: float) -> None:
        """Look at it again after so many seconds."""
        self._helpless[group] = pause
        self._serial += 1
        heapq.heappush(self._retries, (now + pause, self._serial, group))

    def drop(self, group: ShapeClass) -> None:
        """End the search."""
        self._fresh.drop(group)
        self._again.drop(group)
        self._helpless.pop(group, None)

    def take(self) -> ShapeClass | None:
        """The next one to search for; None where there is none, or not yet."""
        if self.tokens < 1:
            return None
        first = self._fresh if self._fresh and not (self._was_fresh and self._again) else self._again
        self._was_fresh = first is self._fresh
        return first.take()
