"""Defragmentation: when gangs move so that another one fits into a topology domain, and which gangs may.

It is off by default, and costs nothing then. A gang that waits for a domain is looked at after a pause that doubles, so
eviction by rank, and ends of others, come first. Gangs move only if the work that the moves lose is less than the time
that the claimant would wait, both in pod-hours.

No moves go on for ever: a moved gang stays for `rest` seconds, a gang that evicted or moved others stays, no gang
moves for one of a lower priority, and each plan starts one more gang and has a place for every gang that it moves. The
places are kept as claims until the moved gangs are back, and yield to no other workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from atoll.dispatcher.core.backfill.policy import Policy
from atoll.dispatcher.core.backlog.backlog import ShapeClass
from atoll.dispatcher.core.backlog.binding import Binding, estimate, evict_timeout
from atoll.dispatcher.core.backlog.deadlines import earliest
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape, shape_key, shape_of
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.placement.rules import Rules
from atoll.dispatcher.core.preemption.claims import Claims
from atoll.dispatcher.core.preemption.moves import Lifting, Movable, Moving, lost_by, waits_for
from atoll.dispatcher.core.preemption.triggers import Triggers
from atoll.dispatcher.core.quota.queue import Standing
from atoll.model.decision import Phase
from atoll.model.plurals import counted
from atoll.model.queues import Strategy
from atoll.model.timestamps import rfc3339, seconds_or
from atoll.model.verdict import Reason

_HOUR = 3600.0


class _Due(NamedTuple):
    """When moves are searched for a class, and why the last search moved nothing."""

    when: float
    pause: float
    """Seconds before that."""
    uid: str = ""
    """Of the claimant."""
    why: str = ""


class Defragmentation:
    """Searches moves for gangs that wait for a domain."""

    def __init__(self, state: State, claims: Claims, policy: Policy, triggers: Triggers) -> None:
        self._state, self._claims, self._policy, self._triggers = state, claims, policy, triggers
        self._settings = state.settings.defragmentation
        self.tree, self.waiting, self.members, self.bindings = state.tree, state.waiting, state.members, state.bindings
        self.reservations, self.namespaces = state.reservations, state.namespaces
        #: classes that wait for a domain
        self._due: dict[ShapeClass, _Due] = {}
        #: decided in this pass
        self.decided: list[Moving] = []
        #: UID -> when the gang was moved, of the last hour
        self._moved: dict[str, float] = {}
        if self._settings.hourly:
            state.on_seen.append(self._seen)
            state.on_waits.append(self._waits)
            state.on_waits_no_more.append(self._waits_no_more)

    def _seen(self, view: BindingView, _: Binding | None) -> None:
        if view.decision.moved:
            self._moved[view.uid] = seconds_or(view.decision.moved, 0.0)

    def _waits(self, binding: Binding, group: ShapeClass) -> None:
        if self.reservations.moves(binding.view.uid):
            # Its place is kept: its class may sleep until others of it have one.
            self.waiting.refresh(group)

    def _waits_no_more(self, _: Binding, group: ShapeClass) -> None:
        if not group.members:
            self._due.pop(group, None)

    def consider(self, group: ShapeClass) -> None:
        """The class is blocked; if it waits for a domain, moves may help it after a pause."""
        wish = group.shape.gang.network_topology
        if self._settings.hourly and wish is not None and wish.hard and group not in self._due:
            self._due[group] = _Due(self._state.now + self._settings.pause, self._settings.pause)

    @property
    def next(self) -> float | None:
        """When moves are searched next."""
        return earliest(*(each.when for each in self._due.values())) if self._due else None

    def declined(self, uid: str) -> str:
        """Why the last search moved nothing for this workload; empty where it did, or none was made."""
        return next((each.why for each in self._due.values() if each.uid == uid), "")

    def find(self) -> Iterator[tuple[Binding, Moving, Rules]]:
        """One claimant at most in a pass, with the moves by which it fits."""
        for group in [group for group, each in self._due.items() if each.when <= self._state.now]:
            if group.lot is None or group.parked is None or group.parked.reason is not Reason.NO_DOMAIN_FITS:
                # The next verdict about it files it again.
                del self._due[group]
                continue
            due, now = self._due[group], self._state.now
            if self._triggers.searches.tokens < 1:
                self._due[group] = due._replace(when=now + 1.0)
                continue
            pause = min(2 * due.pause, self._settings.longest_pause)
            self._due[group] = _Due(now + pause, pause)
            binding = self.bindings[group.members[0][2]]
            if not self._may_claim(binding, group.shape):
                continue
            self._triggers.searches.tokens -= 1
            rules = self._policy.rules(binding, group.shape)
            found = self._search(binding, group.shape, rules)
            if isinstance(found, Moving) and found.pays:
                yield binding, found, rules
                return
            why = found.sentence() if isinstance(found, Moving) else found
            self._due[group] = _Due(now + pause, pause, binding.view.uid, f"{why}, at {rfc3339(now)}")

    def _may_claim(self, binding: Binding, shape: Shape) -> bool:
        """Whether a domain is all that the workload lacks."""
        uid = binding.view.uid
        return (
            not self._claims.awaits(uid)
            and self._claims.dry_run(uid) is None
            and not self.reservations.moves(uid)
            and binding.gang.together is None
            and shape.least_clusters <= 1
            and shape.sharing is None
            and self._policy.may_start(binding)
            and self.tree.shortage(binding.leaf, shape.request) is None
            and self.namespaces.shortage(binding.view.namespace, shape.charges) is None
            and not self._triggers.starts_soon(binding)
        )

    def _search(self, binding: Binding, shape: Shape, rules: Rules) -> Moving | str:
        """The cheapest moves, whether they pay or not; else why there are none."""
        budget, uid = self._budget(), binding.view.uid
        members = self._members_for(binding, shape, rules, uid)
        if budget <= 0:
            return f"{counted(self._settings.hourly, 'gang')} moved in the last hour, and no more may"
        if not members:
            return "no member in which gangs could move for it"
        start = self.reservations.expected_start(binding, members)
        waiting, known = waits_for(start, self._state.now, shape.least.replicas, self._settings.unknown)
        lifting = Lifting(shape, self._movable(members, binding), partial(self._targets, uid), budget)
        freed = lifting.search(members)
        return "no gangs whose moves would free a domain for it" if freed is None else Moving(freed, waiting, known)

    def _budget(self) -> int:
        """Gangs that may be moved now."""
        self._moved = {uid: when for uid, when in self._moved.items() if when > self._state.now - _HOUR}
        asked = sum(len(each.losses) for each in self._claims.dry_runs() if each.moving is not None)
        return self._settings.hourly - len(self._moved) - asked

    def _members_for(self, binding: Binding, shape: Shape, rules: Rules, claimant: str) -> list[Member]:
        """Members where a workload may start, of the first affinity that has any; none in which capacity is reserved
        for others than the claimant, and of a running one no member whose figures do not say whether it fits.
        """
        others = (each for each in self.reservations.all() if each.uid != claimant)
        reserved = {member.name for each in others for member in (each.member, *each.also)}
        table, here = self.members.table, binding.parts
        for allowed in table.allowed(shape):
            found = [table.order[column] for column in np.flatnonzero(rules.serves(allowed & table.ready))]
            found = [
                each
                for each in found
                if each.name not in reserved | rules.avoided
                and not (here and shape.asks(each))
                and (each.name in here or self.tree.shortage_in(binding.leaf, each.name, shape.request) is None)
            ]
            if found:
                return sorted(found, key=lambda each: (each.name not in here, each.name))
        return []

    # -- movable gangs -----------------------------------------------------------------------------------------------

    def _movable(self, members: Iterable[Member], claimant: Binding) -> list[Movable]:
        others = (uid for uid in self.reservations.claims if uid != claimant.view.uid)
        named = {uid for other in others for uid in self._claims.losses(other)}
        uids = [(member, uid) for member in members for uid in self.reservations.timeline.running_in(member)]
        found = (self._movable_as(uid, member, claimant) for member, uid in uids if uid not in named)
        return [each for each in found if each is not None]

    def _movable_as(self, uid: str, member: Member, claimant: Binding) -> Movable | None:
        """The gang as one that may leave the member; None where it must stay."""
        binding, stay = self.bindings[uid], self.reservations.timeline.get(uid)
        if stay is None or not self._may_move(binding, claimant) or self._state.now - stay.start < self._rests(binding):
            return None
        gang, pods = stay.parts[member.name]
        if sum(count for _, _, count in pods) != gang.replicas or any(node >= len(member.nodes) for _, node, _ in pods):
            # Where some of its pods are is not known.
            return None
        settings = self._settings
        lost = lost_by(self._state.now - stay.start, gang.replicas, settings.restart, settings.checkpoint)
        return Movable(uid, member, gang, pods, lost)

    def _may_move(self, binding: Binding, claimant: Binding) -> bool:
        view, gang, leaf = binding.view, binding.gang, binding.leaf
        moved = seconds_or(view.decision.moved, -math.inf)
        # In a strict queue others would go before it once it is back.
        behind = leaf.said.strategy is Strategy.FIFO and leaf.waiting > (leaf is claimant.leaf)
        return (
            binding.phase is Phase.DISPATCHED
            and binding.written
            and binding.bound
            and len(binding.parts) == 1
            and not view.divided
            and view.sharing is None
            and not view.variants
            and not view.ended
            and not view.requests
            and gang.preemptable
            and not gang.hold
            and gang.together is None
            # An elastic gang grows and shrinks: how many of its pods had a place would be a guess.
            and gang.floor() == gang.full()
            and claimant.key[0] <= binding.key[0]
            and not self._claims.cleared_for(view.uid)
            and moved + self._settings.rest <= self._state.now
            and not behind
            and self.tree.standing(leaf) is Standing.OPEN
        )

    def _rests(self, binding: Binding) -> float:
        """Seconds from its start in which it is not moved: as for evictions."""
        own = binding.leaf.said.protection
        return self._state.settings.preemption.protection if own is None else own

    def _targets(self, claimant: str, uid: str) -> tuple[Shape, Sequence[Member]] | None:
        """Members where a moved gang starts again, its own first."""
        binding = self.bindings[uid]
        shape = shape_of(binding.view, shape_key(binding.view, self._state.restricted(binding)))
        end = self._state.now + estimate(binding)
        short = self.reservations.short_of(uid, binding.leaf, binding.amount, end)
        if any(each.uid != claimant for each in short):
            return None
        members = self._members_for(binding, shape, self._policy.rules(binding, shape), claimant)
        return (shape, members) if members else None

    # -- moving ------------------------------------------------------------------------------------------------------

    def holds(self, claimant: Binding, moving: Moving) -> bool:
        """Whether all gangs of a plan still may move, and have places in the planned members beside the claimant."""
        assert claimant.shape is not None, f"{claimant.view.uid} does not wait"
        uid, planned = claimant.view.uid, {move.uid: move.member for move in moving.freed.moves}

        def targets(moved: str) -> tuple[Shape, Sequence[Member]] | None:
            found = self._targets(uid, moved)
            return found if found is None else (found[0], [each for each in found[1] if each is planned[moved]])

        [member] = moving.freed.choice.members
        lifting = Lifting(claimant.shape, self._movable([member], claimant), targets)
        return self.tree.shortage(claimant.leaf, claimant.shape.request) is None and lifting.fits(member, planned)

    def keep_places(self, moving: Moving) -> None:
        """The gangs of a plan leave now: their places are theirs until they are back."""
        self.decided.append(moving)
        uids = [move.uid for move in moving.freed.moves]
        for move in moving.freed.moves:
            binding, now = self.bindings[move.uid], self._state.now
            until = now + evict_timeout(binding.leaf) + self._state.settings.progress.commit
            self.reservations.claim(binding, [move.member], uids, move.placement, until, move.shape)
            self._moved[move.uid] = now
