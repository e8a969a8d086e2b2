"""Reasons: what each binding says about why it waits, written within a budget, the first of every class first."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.dispatcher.core.backlog.backlog import differs, lacks_room
from atoll.dispatcher.core.backlog.binding import paused
from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.elastic.resizing import Resizing
from atoll.dispatcher.core.lifecycle.decisions import Decisions
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.preemption.claims import Claims
from atoll.model.decision import Phase
from atoll.model.verdict import Reason, Verdict


class Explanations:
    """Says on bindings what the core knows of them."""

    def __init__(self, state: State, claims: Claims, decisions: Decisions, resizing: Resizing) -> None:
        self._state, self._claims, self._decisions, self._resizing = state, claims, decisions, resizing
        self.waiting, self.bindings = state.waiting, state.bindings

    @property
    def next(self) -> float | None:
        """When more of them may be written; None where all are current."""
        decisions = self._decisions
        unsaid = self._state.untold or decisions.stopped or self.waiting.unsaid
        return self._state.now + self._state.settings.reasons.pace if unsaid else None

    def verdict(self, uid: str) -> Verdict | None:
        """Why this binding waits; None when it does not wait or was not looked at yet."""
        binding = self.bindings.get(uid)
        if binding is None or binding.phase is not Phase.SUSPENDED:
            return None
        if binding.wish is None:
            return Verdict(Reason.INVALID_GANG)
        if (kept := self._state.withheld(binding)) is not None:
            return kept
        if uid in self._state.wakes:
            return paused(binding.view)
        assert binding.shape is not None, f"{uid} waits without a shape"
        if self._claims.awaits(uid):
            return binding.told
        return self.waiting.classes(binding.leaf)[binding.shape.key].verdict(binding.key)

    def write(self) -> Iterator[Command]:
        """Reasons for the bindings that do not carry theirs yet, within the budget for such writes."""
        looks = self._state.settings.reasons.looks
        while self._state.untold and self._decisions.tokens >= 1:
            uid = next(iter(self._state.untold))
            del self._state.untold[uid]
            binding = self.bindings.get(uid)
            verdict = self.verdict(uid)
            if binding is not None and verdict is not None and differs(binding.told, verdict):
                yield self._decisions.explain(binding, verdict)
        while self._decisions.stopped and self._decisions.tokens >= 1:
            uid = next(iter(self._decisions.stopped))
            verdict, binding = self._decisions.stopped.pop(uid), self.bindings.get(uid)
            if binding is not None and self._resizing.may_resize(binding) and differs(binding.told, verdict):
                yield self._decisions.explain(binding, verdict)
        unsaid = self.waiting.unsaid
        while unsaid and self._decisions.tokens >= 1 and looks:
            group = next(iter(unsaid))
            del unsaid[group]
            verdict = group.parked
            if verdict is None:
                # The next pass looks at it, and its next verdict is written.
                continue
            if not group.first_told:
                group.first_told = True
                binding = self.bindings[group.members[0][2]]
                if differs(binding.told, verdict) and not self._claims.awaits(binding.view.uid):
                    yield self._decisions.explain(binding, verdict)
            while group.told < len(group.members) and looks and self._decisions.tokens >= 1:
                looks -= 1
                binding = self.bindings[group.members[group.told][2]]
                first, group.told = group.told == 0, group.told + 1
                mine = verdict if first else group.behind or verdict
                if not first and lacks_room(binding.told) and lacks_room(mine):
                    # Which of these it is changes with every start and every end.
                    continue
                if differs(binding.told, mine) and not self._claims.awaits(binding.view.uid):
                    yield self._decisions.explain(binding, mine)
                    break
            if group.told < len(group.members):
                # The first of every class hears before the second of any.
                unsaid[group] = None
