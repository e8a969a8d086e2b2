"""Observed bindings compared with later decisions: an echo, or another state that is filed anew."""

from __future__ import annotations

from atoll.dispatcher.core.backfill.allocation import Allocation
from atoll.dispatcher.core.backlog.binding import (
    Binding,
    alike,
    all_bound,
    behind,
    charged_alike,
    echoes,
    gang_of,
    newly_bound,
    overtakes,
    parts_of,
    phase_of,
    variant_of,
)
from atoll.dispatcher.core.backlog.order import order_key
from atoll.dispatcher.core.backlog.wake_index import KEPT
from atoll.dispatcher.core.elastic.growth import keep_size
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.quota.queue import Queue
from atoll.model import vector
from atoll.model.decision import Phase
from atoll.model.gang import Gang
from atoll.model.vector import Vector
from atoll.model.verdict import Reason, Verdict


class Sightings:
    """Takes in what the watch says of bindings."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.tree, self.waiting, self.members, self.bindings = state.tree, state.waiting, state.members, state.bindings
        self.reservations, self.wakes = state.reservations, state.wakes
        self.refusals, self.breakers = state.refusals, state.breakers

    def set_binding(self, view: BindingView) -> None:
        """A binding is seen so."""
        old = self.bindings.get(view.uid)
        if old is not None and behind(view, old) and not overtakes(view, old):
            # The watch is behind our own decision; keep the newest object for the case that the write is refused.
            old.view = view
            return
        self._observe(view, old)

    def _observe(self, view: BindingView, old: Binding | None) -> None:
        """Follow the observation over any earlier decision."""
        phase = phase_of(view)
        if old is not None and view.gang and old.view.gang and view.gang.tried_as != old.view.gang.tried_as:
            self.refusals.try_again(namespace=view.namespace)
            self._state.wake_namespace(view.namespace)
        for seen in self._state.on_seen:
            seen(view, old)
        told = None
        if phase in (Phase.SUSPENDED, Phase.DISPATCHED) and phase is view.decision.phase:
            told = None if view.decision.reason in _MOVES else Verdict(view.decision.reason, view.decision.blocker)
        goes_on = phase is Phase.SUSPENDED and self.refusals.deactivated(view) is None
        if goes_on and old is not None and old.shape is not None and alike(view, old.view):
            # It waits as before; most often this is the echo of its reason.
            old.view, old.epoch, old.told = view, view.epoch, told
            self.waiting.tell_again(old.leaf, old.shape, old.key, told)
            return
        if old is not None and echoes(view, old):
            self._confirm(view, old)
            return
        binding = Binding(
            view,
            view.epoch,
            phase,
            parts_of(view) if phase.charged else {},
            view.gang if phase is Phase.SUSPENDED else gang_of(view),
            None,
            order_key(view),
            self._leaf_of(view, phase, old),
            {},
            told=told,
            variants=() if phase is Phase.SUSPENDED else variant_of(view),
        )
        if old is not None and phase is old.phase is Phase.DISPATCHED and view.epoch == old.epoch:
            keep_size(binding, old)
            binding.grows_until = old.grows_until
            if old.resized_at is not None and view.decision.reason is Reason.GROWN:
                # Its member hears of it now.
                binding.grows_until = self._state.now + self._state.settings.progress.grow
            if old.resized_at is not None and binding.pods > old.pods and view.sharing is None:
                self._state.unshrunk[view.uid] = None
        binding.charge(binding.parts)
        binding.bound = all_bound(binding) or (old is not None and old.bound and old.epoch == view.epoch)
        if old is not None and old.phase.going and not phase.going:
            for name in old.parts:
                self.breakers.removed(name)
        if phase.going and old is not None:
            # What the member has still to remove.
            binding.parts, binding.charged, binding.amount = old.parts, old.charged, old.amount
        elif phase.charged and not binding.parts and binding.wish is not None:
            binding.amount = _leaving(view, binding.wish)
        stay = self.reservations.timeline.get(view.uid)
        if stay is not None and old is not None and newly_bound(binding, old):
            self._hear(old, stay)
        if old is not None and charged_alike(binding, old):
            # Most often the echo of a dispatch, or a report of where its pods are.
            self._state.put(view.uid, binding)
            self._state.enter(binding, stay, charged=True)
            return
        if old is not None:
            waits = old.shape
            self._state.leave(old, view.placed)
            if waits is not None and self.reservations.asks_otherwise(view.uid):
                self.wakes.fire(KEPT)
        self._state.put(view.uid, binding)
        self._state.enter(binding, stay)

    def _leaf_of(self, view: BindingView, phase: Phase, old: Binding | None) -> Queue:
        """The queue in which a binding waits; or that it is charged to, which is the same until it was released."""
        stays = phase.going or (old is not None and view.epoch == old.epoch)
        if old is not None and old.wish is not None and old.phase.charged and phase.charged and stays:
            return old.leaf
        return self.tree.queue(view.gang.queue) if view.gang else self.tree.root

    def _hear(self, binding: Binding, stay: Allocation) -> None:
        """Its members have bound it, or it has ended there."""
        for name in binding.parts:
            member = self.members.member(name)
            member.heard_at, member.heard_of = self._state.now, max(member.heard_of, stay.start)
            self.breakers.bound(name, binding.view.kind, self._state.now)
            if self.refusals.accepted(binding.view.namespace, name):
                self._state.wake_namespace(binding.view.namespace)

    def _confirm(self, view: BindingView, old: Binding) -> None:
        """The decision is written: its consequences are filed already."""
        old.view, old.wish, old.told, old.deadline = view, gang_of(view), None, None
        old.resized_at, old.before, old.grows_until = None, {}, 0.0
        self._state.times.watch_deadline(old, self._state.now)
        self._state.settle_soon(old)

    def drop_binding(self, uid: str) -> None:
        """It was deleted."""
        binding = self.bindings.get(uid)
        if binding is not None:
            self._state.put(uid, None)
            self._state.leave(binding)
            self._state.untold.pop(uid, None)
            for dropped in self._state.on_dropped:
                dropped(uid)
            if self.reservations.drop(uid):
                self.wakes.fire(KEPT)
            for member in list(self.members.holders.get(uid, ())):
                self.members.forget(member, uid)

    def refused(self, uid: str, epoch: int, generation: int | None) -> None:
        """A decision on it was not written."""
        binding = self.bindings.get(uid)
        if binding is None or binding.epoch != epoch:
            return
        if binding.resized_at is not None and generation is not None and generation != binding.resized_at:
            # Another size was decided on since.
            return
        # Back to the last observation; if another leader decided, the watch is about to show it.
        self._observe(binding.view, binding)


_MOVES = (Reason.SUBMITTED, Reason.DISPATCHED, Reason.GROWN, Reason.SHRUNK)
"""Reasons that say what happened, not what keeps something from happening."""


def _leaving(view: BindingView, wish: Gang) -> Vector:
    """Charge of a leaving workload whose dispatched number of pods is not known any more:
    its request, and more where members report more pods than that.
    """
    amount, more = wish.total(), sum(pods for _, pods in view.placed.values()) - wish.replicas
    if more > 0:
        largest: Vector = {}
        for task in wish.tasks:
            largest = vector.larger(largest, wish.charge(task))
        vector.add(amount, largest, more)
    return amount
