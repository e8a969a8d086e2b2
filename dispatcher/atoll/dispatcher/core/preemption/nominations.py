"""Nominations: what a binding says of the capacity that is its own though it waits.

Others were evicted for it, or it has a reservation. It is written, so that a new leader knows it, and the new leader
takes it up from there.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.dispatcher.core.backlog.backlog import ShapeClass
from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.commands import Nominate
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.lifecycle.decisions import Decisions
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.preemption.claims import Claims
from atoll.model.decision import Phase
from atoll.model.verdict import Blocker, Reason, Verdict


class Nominations:
    """Writes nominations, and adopts nominations of an earlier leader."""

    def __init__(self, state: State, claims: Claims, decisions: Decisions) -> None:
        self._state, self._claims, self._decisions = state, claims, decisions
        self.bindings, self.members, self.reservations = state.bindings, state.members, state.reservations
        #: UIDs of waiting bindings that say that others leave for them, and that is not taken up yet
        self._found: dict[str, None] = {}
        #: UIDs of claimants of whose victims something else is known to keep them
        self._stuck: dict[str, None] = {}
        state.on_seen.append(self._seen)
        state.on_waits.append(self._waits)
        state.on_dropped.append(lambda uid: self._found.pop(uid, None))

    @property
    def next(self) -> float | None:
        """When more of them may be written; None where all are."""
        return self._state.now + self._state.settings.reasons.pace if self._decisions.unwritten else None

    def take_up(self) -> None:
        """Another leader had victims evicted for these: the capacity stays theirs."""
        if not self._found:
            return
        found, self._found = self._found, {}
        leaving: dict[str, list[str]] = {}
        for uid, binding in self.bindings.items():
            if binding.phase is Phase.EVICTING:
                leaving.setdefault(binding.view.decision.room_for, []).append(uid)
        went = {binding.view.decision.room_for for binding in self.bindings.values()}
        for uid in found:
            claimant = self.bindings.get(uid)
            if claimant is None or claimant.shape is None or self._claims.awaits(uid):
                continue
            if claimant.view.decision.question is not None and uid not in went:
                # No victim was evicted: a dry run begins anew, if it must.
                continue
            members = [self.members.by_name[n] for n in claimant.view.decision.nominated if n in self.members.by_name]
            if members:
                self._claims.begin(claimant, members, {}, leaving.get(uid, ()))

    def name_stuck_victims(self) -> Iterator[Nominate]:
        """Write the reason why victims' pods stay on the bindings of claimants."""
        stuck, self._stuck = self._stuck, {}
        for uid in stuck:
            binding = self.bindings.get(uid)
            if binding is None or binding.told is None or binding.told.reason is not Reason.AWAITING_VICTIMS:
                continue
            if binding.epoch != binding.view.epoch:
                # Its dry run is not written yet.
                continue
            victims = (self.bindings.get(each) for each in self._claims.losses(uid))
            kept = [(each.view.name, each.view.stuck) for each in victims if each is not None and each.view.stuck]
            text = "; ".join(f"{name} does not end: {why}" for name, why in sorted(kept))
            members = binding.view.decision.nominated
            told = Verdict(Reason.AWAITING_VICTIMS, Blocker("Cluster", ", ".join(members), message=text))
            if told != binding.told:
                yield self._decisions.nominate(binding, told, members)

    def write_reservations(self) -> Iterator[Nominate]:
        """Reservations that their bindings lack yet, within the budget for reasons."""
        unwritten = self._decisions.unwritten
        while unwritten and self._decisions.tokens >= 1:
            uid = next(iter(unwritten))
            del unwritten[uid]
            binding = self.bindings.get(uid)
            if binding is None or binding.shape is None or binding.told is None or self._claims.awaits(uid):
                continue
            if binding.epoch == binding.view.epoch and binding.view.decision.kept != self._decisions.kept(uid):
                yield self._decisions.nominate(binding, binding.told)

    def _seen(self, view: BindingView, old: Binding | None) -> None:
        if old is not None and old.view.stuck != view.stuck and view.decision.room_for:
            self._stuck[view.decision.room_for] = None

    def _waits(self, binding: Binding, _: ShapeClass) -> None:
        if binding.view.decision.nominated and not self._claims.awaits(binding.view.uid):
            self._found[binding.view.uid] = None
