"""Workloads unhealthy in their members for longer than their policies tolerate return to their queues, and go
elsewhere.

Whether it is unhealthy, and since when, stands on its binding, so a new leader goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.backlog.deadlines import AGAIN, Deadlines
from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.lifecycle.decisions import Decisions, Leave
from atoll.dispatcher.core.lifecycle.state import State
from atoll.model.decision import Phase
from atoll.model.timestamps import is_time, to_seconds
from atoll.model.verdict import Blocker, Reason


class Failing:
    """Evicts what stays unhealthy."""

    def __init__(self, state: State, decisions: Decisions) -> None:
        self._state, self._decisions = state, decisions
        #: when bindings have been unhealthy for too long
        self._due = Deadlines()
        state.on_entered.append(self._file)
        state.on_dropped.append(self._due.drop)

    @property
    def next(self) -> float | None:
        """When the first has been unhealthy for too long."""
        return self._due.first

    def leave_members(self) -> Iterator[Command]:
        """Evict workloads unhealthy for too long; they avoid their former members for a while."""
        for uid in [*self._due.due(self._state.now)]:
            binding = self._state.bindings[uid]
            view, wish = binding.view, binding.gang.unhealthy
            names = [name for name in binding.parts if name in view.unhealthy]
            if not binding.written or not self._state.members.are_ready(names):
                # What a member says that is away is old; what becomes of work there is decided elsewhere.
                self._due.set(uid, self._state.now + AGAIN)
                continue
            if wish is None or not names:
                continue
            why = "; ".join(dict.fromkeys(view.unhealthy[name] for name in names))
            text = f"unhealthy for {wish.after:g} s: {why}"
            block = Blocker("Clusters" if len(names) > 1 else "Cluster", ", ".join(names), message=why)
            refused = self._state.refusals.after(view, {name: view.unhealthy[name] for name in names})
            yield self._decisions.evict(
                binding, Reason.UNHEALTHY, text, block, refused=refused, leave=Leave(names, wish)
            )

    def _file(self, binding: Binding) -> None:
        self._due.set(binding.view.uid, _too_long(binding))


def _too_long(binding: Binding) -> float | None:
    """When a binding has been unhealthy for too long, in seconds since the epoch; None for never."""
    view = binding.view
    if binding.phase is not Phase.DISPATCHED or not is_time(view.unhealthy_at):
        return None
    wish, since = binding.gang.unhealthy, to_seconds(view.unhealthy_at)
    if wish is None or wish.after is None:
        return None
    if view.decision.dispatched and since + 1.0 < to_seconds(view.decision.dispatched):
        # That was an earlier dispatch. Conditions have whole seconds.
        return None
    return since + wish.after
