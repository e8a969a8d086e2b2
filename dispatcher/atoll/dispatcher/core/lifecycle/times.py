"""When bindings must have got on: reserved or bound, running, gone."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.dispatcher.core.backlog.binding import Binding, evict_timeout, evicted_at, ready_by
from atoll.dispatcher.core.backlog.deadlines import Deadlines, earliest
from atoll.dispatcher.core.elastic.growth import grows_until, still_grows
from atoll.model.decision import Phase
from atoll.model.timestamps import to_seconds


class Times:
    """Deadlines of dispatched and leaving workloads."""

    def __init__(self, bindings: dict[str, Binding], regain: float) -> None:
        self._bindings, self._regain = bindings, regain
        #: when parts must be reserved, or pods bound: `Binding.deadline`
        self._deadlines = Deadlines()
        #: when the minimum of bindings that are bound must run
        self.ready_by = Deadlines()
        #: when the pods of bindings in phase Evicting must have gone
        self.gone_by = Deadlines()

    @property
    def next(self) -> float | None:
        """The earliest of all."""
        return earliest(self._deadlines.first, self.ready_by.first, self.gone_by.first)

    def overdue(self, now: float) -> Iterator[Binding]:
        """Bindings whose parts are not reserved, or pods not bound, in time; each appears once."""
        for uid in self._deadlines.due(now):
            self._bindings[uid].deadline = None
            yield self._bindings[uid]

    def set_deadline(self, binding: Binding, when: float) -> None:
        """Its parts must be reserved, or its pods bound, by then."""
        binding.deadline = when
        self._deadlines.set(binding.view.uid, when)

    def watch_deadline(self, binding: Binding, now: float) -> None:
        """The same as its decision says."""
        waiting = binding.phase is Phase.RESERVING or (binding.phase is Phase.DISPATCHED and not binding.bound)
        if binding.view.decision.deadline and (waiting or still_grows(binding, now)):
            decided = to_seconds(binding.view.decision.deadline)
            self.set_deadline(binding, decided if waiting else grows_until(binding))
        else:
            self._deadlines.drop(binding.view.uid)

    def watch(self, binding: Binding, now: float) -> None:
        """When it must run, or be gone."""
        if binding.deadline is None:
            self._deadlines.drop(binding.view.uid)
        leaves = binding.phase is Phase.EVICTING
        self.ready_by.set(binding.view.uid, ready_by(binding, self._regain))
        self.gone_by.set(binding.view.uid, evicted_at(binding, now) + evict_timeout(binding.leaf) if leaves else None)

    def forget(self, uid: str) -> None:
        """It has neither to run nor to go any more."""
        self._deadlines.drop(uid)
        self.ready_by.drop(uid)
        self.gone_by.drop(uid)
