"""Claims: evictions and shrinking on behalf of a waiting workload."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.backlog.binding import Binding, evict_timeout, evicted_at
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.elastic.growth import size_of
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.preemption.moves import Moving
from atoll.fit import Placement
from atoll.fit.pods import Counts
from atoll.model.decision import Phase
from atoll.model.verdict import Reason


@dataclass(frozen=True, slots=True)
class Loss:
    """What a victim gives up for a workload that waits."""

    epoch: int
    """In which it ran until then."""
    stays: Counts | None = None
    """Pods per task that it keeps; None when all of it goes."""
    reason: Reason = Reason.PREEMPTED
    """Preempted, Reclaimed or Moved, where it is decided on."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenQuestion:
    """What members were asked on behalf of one waiting workload."""

    binding: Binding
    """The workload as it was; another object asks for something else."""
    shape: bytes
    epoch: int
    """Under which it is asked."""
    choice: Choice
    losses: Mapping[str, Loss]
    """UID of each victim -> its loss if the answer is yes."""
    awaited: tuple[str, ...]
    """UIDs of workloads that leave already, whose capacity it needs as well."""
    deadline: float
    """Seconds since the epoch."""
    moving: Moving | None = None
    """The moves that these losses are, where the victims only give way."""


@dataclass(slots=True, eq=False)
class Claim:
    """All that is evicted, may be, or was, on behalf of one workload."""

    #: UID of each victim -> its loss, until all victims are gone; None without a claim
    losses: dict[str, Loss] | None = None
    #: what members are asked; until they have answered no victim is evicted
    dry_run: OpenQuestion | None = None
    #: UIDs of the victims with which the claimant started last, perhaps none; None where it never did
    cleared: tuple[str, ...] | None = None

    @property
    def open(self) -> bool:
        """Whether it keeps anything for the claimant, or members are asked."""
        return self.losses is not None or self.dry_run is not None


_NONE = Claim()
"""Of workloads without one; never changed."""


class Claims:
    """Which victims are evicted for which claimant."""

    def __init__(self, state: State) -> None:
        self._state, self.bindings, self.members = state, state.bindings, state.members
        #: UID of a claimant -> its claim
        self._claims: dict[str, Claim] = {}
        state.on_dropped.append(self._dropped)

    def __bool__(self) -> bool:
        return any(claim.open for claim in self._claims.values())

    @property
    def any_cleared(self) -> bool:
        """Whether any workload started with victims."""
        return any(claim.cleared is not None for claim in self._claims.values())

    def cleared_for(self, uid: str) -> tuple[str, ...]:
        """UIDs of the victims with which a workload started."""
        return self._claim(uid).cleared or ()

    def awaits(self, uid: str) -> bool:
        """Whether capacity is kept for this workload that others leave, or are to leave."""
        return self._claim(uid).losses is not None

    def losses(self, uid: str) -> Mapping[str, Loss]:
        """UID of each victim of a claimant -> its loss."""
        return self._claim(uid).losses or {}

    def victims(self) -> set[str]:
        """UIDs of the victims of all claimants."""
        return {uid for claim in self._claims.values() for uid in claim.losses or ()}

    def begin(
        self,
        binding: Binding,
        members: Sequence[Member],
        losses: Mapping[str, Loss],
        leaving: Iterable[str],
        *,
        expected: Placement | None = None,
        until: float = math.inf,
    ) -> None:
        """Keep for a claimant its part of the capacity that victims and leaving workloads give up.

        Args:
            binding: of the claimant.
            members: where it goes.
            losses: UID of each victim -> its loss.
            leaving: UIDs of workloads that leave already.
            expected: where it goes once they have gone, if that is one member.
            until: the end of the claim.
        """
        every = {**losses} | {uid: Loss(self.bindings[uid].epoch - 1) for uid in leaving}
        self._claims.setdefault(binding.view.uid, Claim()).losses = every
        whole = [uid for uid, loss in every.items() if loss.stays is None]
        self._state.reservations.claim(binding, members, whole, expected, until)

    def end(self, uid: str) -> bool:
        """The workload awaits no victims any more, and capacity that its claim kept is free for all; a dry run for it
        ends by itself. Whether anything was kept.
        """
        claim = self._claims.get(uid)
        if claim is not None:
            claim.losses = None
            self._forget(uid, claim)
        return self._state.reservations.withdraw(uid)

    def started(self, uid: str) -> None:
        """It waits no more. If a dry run is open it started without an eviction."""
        claim = self._claims.get(uid)
        if claim is not None:
            if claim.dry_run is None and claim.losses is not None:
                claim.cleared = tuple(claim.losses)
            claim.losses = claim.dry_run = None
            self._forget(uid, claim)

    def ask(self, dry_run: OpenQuestion) -> None:
        """Members are asked on behalf of a workload."""
        self._claims.setdefault(dry_run.binding.view.uid, Claim()).dry_run = dry_run

    def answered(self, uid: str) -> None:
        """The dry run is over."""
        claim = self._claims[uid]
        claim.dry_run = None
        self._forget(uid, claim)

    def dry_run(self, uid: str) -> OpenQuestion | None:
        """What members are asked on behalf of a workload."""
        return self._claim(uid).dry_run

    def dry_runs(self) -> list[OpenQuestion]:
        """Open dry runs."""
        return [claim.dry_run for claim in self._claims.values() if claim.dry_run is not None]

    def _claim(self, uid: str) -> Claim:
        return self._claims.get(uid, _NONE)

    def _forget(self, uid: str, claim: Claim) -> None:
        if not claim.open and claim.cleared is None:
            del self._claims[uid]

    def _dropped(self, uid: str) -> None:
        self._claims.pop(uid, None)

    def all_gone(self, uid: str) -> bool:
        """Whether all victims of this claimant are gone."""
        # Victims are not evicted while the dry run is open, so an empty list does not mean that they are gone.
        return self.dry_run(uid) is None and all(self.let_go(each, loss) for each, loss in self.losses(uid).items())

    def holds(self, claim: Reservation) -> bool:
        """Whether all that were to go for a claimant have gone, or are on their way."""
        losses = self.losses(claim.uid).items()
        return all(self.let_go(uid, loss) or self.goes(uid, loss, claim.computed) for uid, loss in losses)

    def let_go(self, uid: str, loss: Loss) -> bool:
        """Whether a victim has given up its whole loss."""
        binding = self.bindings.get(uid)
        if binding is not None and binding.phase is Phase.LEAVING:
            # Its queue has its quota back, and its member still has its pods.
            return False
        if binding is None or not binding.phase.charged or binding.epoch > loss.epoch + 1:
            # It has gone, and perhaps it runs anew.
            return True
        if loss.stays is None or binding.phase is not Phase.DISPATCHED or binding.resized_at is not None:
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
        if loss.stays is None or not self.members.are_ready(binding.parts):
            return False
        return binding.resized_at is not None or self.has_shrunk(binding, loss.stays)

    def leaves(self, binding: Binding) -> bool:
        """Whether a victim is expected to end: its members can say so, and it had not too long."""
        return self.members.are_ready(binding.parts) and self._state.now < self.gone_until(binding, self._state.now)

    def gone_until(self, binding: Binding, since: float) -> float:
        """Time until which others count on the capacity of a victim evicted or shrunk at `since`: as long as
        its queue pays for it.
        """
        told = evicted_at(binding, self._state.now) if binding.phase is Phase.EVICTING else since
        return told + evict_timeout(binding.leaf)

    def has_shrunk(self, binding: Binding, stays: Counts) -> bool:
        return all(have <= count for have, count in zip(size_of(binding), stays, strict=True))
