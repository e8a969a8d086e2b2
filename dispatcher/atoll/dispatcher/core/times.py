"""When bindings must have got on: reserved or bound, running, gone."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from atoll.dispatcher.core.backlog.binding import Binding, evict_timeout, evicted_at, ready_by
from atoll.dispatcher.core.backlog.deadlines import Deadlines
from atoll.dispatcher.core.elastic.growth import grows_until, still_grows
from atoll.model.decision import Phase
from atoll.model.timestamps import to_seconds


class Times:
    """Deadlines of what is dispatched or leaves."""

    def __init__(self, bindings: dict[str, Binding], regain: float) -> None:
        self._bindings, self._regain = bindings, regain
        #: (`Binding.deadline`, UID); stale entries are skipped when popped
        self._deadlines: list[tuple[float, str]] = []
        #: when the minimum of bindings that are bound must run
        self.ready_by = Deadlines()
        #: when the pods of bindings in phase Evicting must have gone
        self.gone_by = Deadlines()

    @property
    def next(self) -> float | None:
        """The earliest of all."""
        while self._deadlines and self._is_stale(*self._deadlines[0]):
            heapq.heappop(self._deadlines)
        due = (self._deadlines[0][0] if self._deadlines else None, self.ready_by.first, self.gone_by.first)
        return min((when for when in due if when is not None), default=None)

    def overdue(self, now: float) -> Iterator[Binding]:
        """Those whose parts are not reserved, or pods not bound, in time; each is told once."""
        while self._deadlines and self._deadlines[0][0] <= now:
            when, uid = heapq.heappop(self._deadlines)
            if not self._is_stale(when, uid):
                self._bindings[uid].deadline = None
                yield self._bindings[uid]

    def set_deadline(self, binding: Binding, when: float) -> None:
        """Its parts must be reserved, or its pods bound, by then."""
        binding.deadline = when
        heapq.heappush(self._deadlines, (when, binding.view.uid))

    def watch_deadline(self, binding: Binding, now: float) -> None:
        """The same as its decision says."""
        if not binding.view.decision.deadline:
            return
        waiting = binding.phase is Phase.RESERVING or (binding.phase is Phase.DISPATCHED and not binding.bound)
        if waiting or still_grows(binding, now):
            decided = to_seconds(binding.view.decision.deadline)
            self.set_deadline(binding, decided if waiting else grows_until(binding))

    def watch(self, binding: Binding, now: float) -> None:
        """When it must run, or be gone."""
        if (when := ready_by(binding, self._regain)) is not None:
            self.ready_by.set(binding.view.uid, when)
        else:
            self.ready_by.drop(binding.view.uid)
        if binding.phase is Phase.EVICTING:
            self.gone_by.set(binding.view.uid, evicted_at(binding, now) + evict_timeout(binding.leaf))
        else:
            self.gone_by.drop(binding.view.uid)

    def forget(self, uid: str) -> None:
        """It has neither to run nor to go any more."""
        self.ready_by.drop(uid)
        self.gone_by.drop(uid)

    def _is_stale(self, when: float, uid: str) -> bool:
        binding = self._bindings.get(uid)
        return binding is None or binding.deadline != when
