"""Workloads that must leave a member: it is lost, has a NoExecute taint that is not tolerated (any more), or is
drained.

Whole workloads go, with all of their parts, back to their queues with their age; an elastic one that can do without its
part in a lost member goes on without it. Nothing of that is remembered: each
time follows from what the Cluster says and from when the workload was dispatched, so a new leader goes on from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.backlog.deadlines import AGAIN, Deadlines
from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.elastic.resizing import Resizing
from atoll.dispatcher.core.events import ClusterView
from atoll.dispatcher.core.lifecycle.decisions import Decisions, Leave
from atoll.dispatcher.core.lifecycle.state import State
from atoll.model import keys, selectors
from atoll.model.decision import Phase
from atoll.model.drains import drain_of
from atoll.model.lost import lost_at
from atoll.model.timestamps import seconds_or
from atoll.model.verdict import Blocker, Reason


class Departure(NamedTuple):
    """When a workload must leave a member, and why."""

    when: float
    """Seconds since the epoch; infinite for never."""
    reason: Reason
    member: str
    why: str


class Lost:
    """Evicts workloads that must leave their members."""

    def __init__(self, state: State, decisions: Decisions, resizing: Resizing) -> None:
        self._state, self._decisions, self._resizing = state, decisions, resizing
        #: members out of which something may have to go
        self._members: dict[str, ClusterView] = {}
        #: members may be other ones than these
        self._changed = True
        #: when bindings that run in one of these members must leave it
        self._due = Deadlines()
        state.on_members.append(self._members_changed)
        state.on_entered.append(self._file)
        state.on_dropped.append(self._due.drop)

    @property
    def next(self) -> float | None:
        """When the first workload must leave."""
        return self._due.first

    def leave_members(self) -> Iterator[Command]:
        """Evict each workload that must leave its member by now."""
        if self._changed:
            self._look_at_members()
        for uid in [*self._due.due(self._state.now)]:
            binding = self._state.bindings[uid]
            if not _runs(binding):
                continue
            if not binding.written:
                self._due.set(uid, self._state.now + AGAIN)
                continue
            departure = self._departure(binding)
            if departure.when > self._state.now:
                self._file(binding)
            else:
                yield self._go_on(binding, departure) or self._evict(binding, departure)
        for name, view in self._members.items():
            if (drain := drain_of(view.taints)) is not None and drain.one_by_one and drain.begin <= self._state.now:
                yield from self._next_of(name)

    def _members_changed(self) -> None:
        self._changed = True

    def _look_at_members(self) -> None:
        self._changed = False
        views = {member.name: member.view for member in self._state.members.by_name.values() if member.view is not None}
        before, self._members = self._members, {name: view for name, view in views.items() if _troubled(view)}
        for name in dict.fromkeys((*before, *self._members)):
            if before.get(name) != self._members.get(name):
                for uid in self._running_in(name):
                    self._file(self._state.bindings[uid])

    def _running_in(self, name: str) -> list[str]:
        return self._state.reservations.timeline.running_in(self._state.members.member(name))

    def _file(self, binding: Binding) -> None:
        """Know when a binding must leave."""
        when = self._departure(binding).when if self._members and _runs(binding) else None
        self._due.set(binding.view.uid, when)

    def _departure(self, binding: Binding) -> Departure:
        found = [
            departure
            for name in binding.parts
            if (view := self._members.get(name)) is not None
            for departure in _departures(binding, view)
        ]
        return min(found, default=Departure(math.inf, Reason.MEMBER_LOST, "", ""))

    def _next_of(self, name: str) -> Iterator[Command]:
        """The next one of a member that is drained one by one, once the one before is gone."""
        there = [self._state.bindings[uid] for uid in self._running_in(name)]
        if any(binding.phase.going for binding in there):
            return
        rest = sorted((binding for binding in there if _runs(binding)), key=lambda binding: binding.key)
        if rest and rest[0].written:
            departure = Departure(self._state.now, Reason.MEMBER_DRAINED, name, _DRAINED)
            parts = self._resizing.without(rest[0], {name}) if rest[0].scattered else None
            if parts is not None:
                yield self._resizing.drop_parts(rest[0], parts, f"{name} {_DRAINED}")
            else:
                yield self._evict(rest[0], departure)

    def _go_on(self, binding: Binding, departure: Departure) -> Command | None:
        """Let it go on with its surviving parts; None where it has to go whole."""
        scattered = binding.scattered
        if len(binding.parts) < 2 or not (scattered or departure.reason is Reason.MEMBER_LOST):
            return None
        lost = {name for name in binding.parts if self._must_leave(binding, name, any_reason=scattered)}
        parts = self._resizing.without(binding, lost)
        if parts is None:
            return None
        self._due.drop(binding.view.uid)
        return self._resizing.drop_parts(binding, parts, f"{', '.join(sorted(lost))} {departure.why}")

    def _must_leave(self, binding: Binding, name: str, *, any_reason: bool) -> bool:
        """Whether it must by now; else because the member is lost."""
        view = self._members.get(name)
        found = _departures(binding, view) if view is not None else ()
        return any(each.when <= self._state.now and (any_reason or each.reason is Reason.MEMBER_LOST) for each in found)

    def _evict(self, binding: Binding, departure: Departure) -> Command:
        self._due.drop(binding.view.uid)
        text = f"{departure.member} {departure.why}"
        wish, runs = binding.gang.leaving, binding.phase is Phase.DISPATCHED and binding.bound
        return self._decisions.evict(
            binding,
            departure.reason,
            text,
            Blocker("Cluster", departure.member),
            leave=Leave([departure.member], wish) if wish is not None and runs else None,
        )


_DRAINED = "is drained"


def _troubled(view: ClusterView) -> bool:
    return view.lost_since is not None or any(taint.get("effect") == "NoExecute" for taint in view.taints)


def _runs(binding: Binding) -> bool:
    return binding.phase in (Phase.RESERVING, Phase.DISPATCHED)


def _departures(binding: Binding, view: ClusterView) -> Iterator[Departure]:
    """Why and when a binding must leave one of its members."""
    gang, name = binding.gang, view.name
    if view.lost_since is not None:
        when = lost_at(gang.on_lost, gang.lost_toleration, view.lost_since, view.fenced_after, gang.grace)
        yield Departure(when, Reason.MEMBER_LOST, name, "was away for longer than it tolerates")
    if (drain := drain_of(view.taints)) is not None:
        yield Departure(drain.end, Reason.MEMBER_DRAINED, name, _DRAINED)
    for taint in view.taints:
        if taint.get("effect") == "NoExecute" and taint.get("key") != keys.DRAINED:
            since = seconds_or(binding.view.decision.dispatched, 0.0)
            when = max(selectors.added(taint), since) + selectors.tolerated_for(taint, binding.view.tolerations)
            yield Departure(when, Reason.MEMBER_TAINTED, name, f"has NoExecute taint {taint.get('key')}")
