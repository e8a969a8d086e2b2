"""Claims: what is evicted, or shrinks, on behalf of a workload that waits."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.dispatcher.core.backfill.reservation import Promise
from atoll.dispatcher.core.backlog.backlog import ShapeClass
from atoll.dispatcher.core.backlog.binding import Binding, evict_timeout, evicted_at
from atoll.dispatcher.core.capacity.pods import Counts
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.state import State
from atoll.model.decision import Phase
from atoll.model.verdict import Reason

BUDGET = 3
"""Times that one workload may be evicted for others."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a victim gives up for a workload that waits."""

    epoch: int
    """In which it ran until then."""
    stays: Counts | None = None
    """Pods per task that it keeps; None when all of it goes."""


@dataclass(frozen=True, slots=True)
class Departure:
    """What one workload loses if the answer is yes."""

    uid: str
    epoch: int
    """In which it was asked about."""
    reason: Reason
    """Preempted or Reclaimed."""
    stays: Counts | None
    """Pods per task that it keeps; None when all of it goes."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenQuestion:
    """What members were asked on behalf of one waiting workload."""

    binding: Binding
    """The workload as it was; another object asks for something else."""
    shape: bytes
    epoch: int
    """Under which it is asked."""
    choice: Choice
    departures: tuple[Departure, ...]
    awaited: tuple[str, ...]
    """UIDs of those that leave already, and whose room it needs as well."""
    deadline: float
    """Seconds since the epoch."""


class Claims:
    """Who is evicted for whom."""

    def __init__(self, state: State) -> None:
        self._state, self.bindings, self.world = state, state.bindings, state.world
        #: UID of a waiting binding -> UID of each victim -> what it loses, while not all of them are gone
        self.awaiting: dict[str, dict[str, Loss]] = {}
        #: UID of a waiting binding -> the dry run for it; in `awaiting` as well, unless that took too long
        self.asking: dict[str, OpenQuestion] = {}
        #: UIDs of waiting bindings that say that others make room for them, and that is not taken up yet
        self.nominated: dict[str, None] = {}
        #: UID -> those that were evicted so that it could start
        self.cleared: dict[str, tuple[str, ...]] = {}
        #: UIDs of claimants of whose victims something else is known to keep them
        self.stuck_victims: dict[str, None] = {}
        state.on_seen.append(self._seen)
        state.on_waits.append(self._waits)
        state.on_dropped.append(self._dropped)

    def _seen(self, view: BindingView, old: Binding | None) -> None:
        if old is not None and old.view.stuck != view.stuck and view.decision.room_for:
            self.stuck_victims[view.decision.room_for] = None

    def _waits(self, binding: Binding, _: ShapeClass) -> None:
        if binding.view.decision.nominated and binding.view.uid not in self.awaiting:
            self.nominated[binding.view.uid] = None

    def _dropped(self, uid: str) -> None:
        for known in (self.awaiting, self.asking, self.cleared):
            known.pop(uid, None)

    def all_gone(self, uid: str) -> bool:
        """Whether nobody has anything left of what was to go for this claimant."""
        # Victims are not evicted while the dry run is open, so an empty list does not mean that they are gone.
        return uid not in self.asking and all(
            self.let_go(each, loss) for each, loss in self.awaiting.get(uid, {}).items()
        )

    def holds(self, claim: Promise) -> bool:
        """Whether all that were to go for a claimant have gone, or are on their way."""
        losses = self.awaiting.get(claim.uid, {}).items()
        return all(self.let_go(uid, loss) or self.goes(uid, loss, claim.looked) for uid, loss in losses)

    def let_go(self, uid: str, loss: Loss) -> bool:
        """Whether a victim has nothing left of what it was to give up."""
        binding = self.bindings.get(uid)
        if binding is not None and binding.phase is Phase.LEAVING:
            # Its queue has its quota back, and its member still has its pods.
            return False
        if binding is None or not binding.phase.charged or binding.epoch > loss.epoch + 1:
            # It has gone, and perhaps it runs anew.
            return True
        if loss.stays is None or binding.phase is not Phase.BOUND or binding.resized_at is not None:
            return False
        placed = binding.view.placed
        return self.has_shrunk(binding, loss.stays) and all(
            placed.get(name, (0, 0))[1] <= part.replicas for name, part in binding.parts.items()
        )

    def goes(self, uid: str, loss: Loss, since: float) -> bool:
        """Whether a victim that has not gone is on its way: where it was decided, at that time if it shrinks, and its
        member can tell of it.
        """
        binding = self.bindings[uid]
        if self._state.now >= self.gone_until(binding, since):
            return False
        if binding.phase is Phase.EVICTING:
            return self.leaves(binding)
        if loss.stays is None or not all(self.is_ready(name) for name in binding.parts):
            return False
        return binding.resized_at is not None or self.has_shrunk(binding, loss.stays)

    def leaves(self, binding: Binding) -> bool:
        """Whether what was told to go is expected to: its members can say so, and it had not too long."""
        if not all(self.is_ready(name) for name in binding.parts):
            return False
        return self._state.now < self.gone_until(binding, self._state.now)

    def gone_until(self, binding: Binding, since: float) -> float:
        """Until when others count on the room of what was told to go, or to shrink at that time: as long as its queue
        pays for it.
        """
        told = evicted_at(binding, self._state.now) if binding.phase is Phase.EVICTING else since
        return told + evict_timeout(binding.leaf)

    def has_shrunk(self, binding: Binding, stays: Counts) -> bool:
        [part] = binding.parts.values()
        return all(task.replicas <= count for task, count in zip(part.tasks, stays, strict=True))

    def is_ready(self, name: str) -> bool:
        member = self.world.members.get(name)
        return member is not None and member.ready
