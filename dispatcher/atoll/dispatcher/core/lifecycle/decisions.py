"""Decisions as commands: each decision written on a binding is made here.

What an earlier decision says of evictions, rounds, refusals and flavors goes on to the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from atoll.dispatcher.core.backlog.binding import Binding
from atoll.dispatcher.core.commands import Ask, Commit, Dispatch, Evict, Explain, Nominate, Part, Resize
from atoll.dispatcher.core.lifecycle.state import State
from atoll.model.decision import Decision, Kept, Line, Phase, Question, Refused, Spots
from atoll.model.failover import PRODUCER, EvictionTask, Failover
from atoll.model.gang import Gang
from atoll.model.pauses import pause_after
from atoll.model.timestamps import rfc3339
from atoll.model.verdict import Blocker, Reason, Verdict

_ABOUT_DRY_RUNS = ((Phase.SUSPENDED, Reason.ASKING_MEMBERS), (Phase.SUSPENDED, Reason.PART_REFUSED))


class Leave(NamedTuple):
    """That a workload leaves members and is not to return there for a while."""

    members: Sequence[str]
    how: Failover


class Decisions:
    """Makes commands, and counts their changes of a binding itself."""

    def __init__(self, state: State) -> None:
        self._state, self._settings = state, state.settings.reasons
        #: reasons that may be written now
        self.tokens = float(self._settings.burst)
        #: UID of what runs with fewer pods than it asks for -> why, where its binding may not say so yet
        self.stopped: dict[str, Verdict] = {}
        #: UIDs of workloads with a reservation that their bindings don't say yet
        self.unwritten: dict[str, None] = {}

    def pass_begins(self, elapsed: float) -> None:
        """So many seconds have passed."""
        self.tokens = min(self._settings.burst, self.tokens + max(elapsed, 0.0) * self._settings.rate)

    def dispatch(
        self, binding: Binding, phase: Phase, reason: Reason, text: str, deadline: float, parts: Mapping[str, Gang],
        expected: Mapping[str, Spots],
    ) -> Dispatch:  # fmt: skip
        """Send it to members: a part to each."""
        self.tokens = min(self._settings.burst, self.tokens + self._settings.per_dispatch)
        line = self._line(phase, reason, text)
        decision = _decision(
            binding, line, binding.epoch + 1, deadline=rfc3339(deadline), expected=expected, dispatched=line.at
        )
        return Dispatch(*_guard(binding), decision, parts=as_written(parts))

    def commit(self, binding: Binding, deadline: float) -> Commit:
        """Let its parts start, which are all reserved."""
        line = self._line(Phase.DISPATCHED, Reason.DISPATCHED, "all parts are reserved")
        at = binding.view.decision.dispatched
        return Commit(
            *_guard(binding), _decision(binding, line, binding.epoch, deadline=rfc3339(deadline), dispatched=at)
        )

    def resize(
        self,
        binding: Binding,
        reason: Reason,
        text: str,
        deadline: float | None = None,
        expected: Mapping[str, Spots] | None = None,
    ) -> Resize:
        """Make its binding say its present size. `expected`: planned nodes of new pods."""
        before = binding.view.decision
        line = self._line(Phase.DISPATCHED, reason, text)
        story = before.told(line)
        if len(story) > 1 and story[-2].reason is reason:
            # Many small changes must not push out what happened before.
            story = [*story[:-2], line]
        until = before.deadline if deadline is None else rfc3339(deadline)
        decision = _decision(
            binding,
            line,
            binding.epoch,
            story=story,
            deadline=until,
            expected=dict(expected or {}),
            dispatched=before.dispatched,
        )
        binding.resized_at, binding.told = binding.view.generation, None
        self.stopped.pop(binding.view.uid, None)
        return Resize(*_guard(binding), decision, parts=as_written(binding.parts))

    def evict(
        self,
        binding: Binding,
        reason: Reason,
        text: str,
        why: Blocker | None = None,
        *,
        room_for: str = "",
        refused: Refused | None = None,
        leave: Leave | None = None,
    ) -> Evict:
        """Take it back.

        Args:
            binding: the workload to evict.
            reason: why.
            text: the same with all that is known, for its story.
            why: the obstacle.
            room_for: UID of the workload that it is evicted for.
            refused: refusals by members so far; None for the refusals in its binding.
            leave: how it leaves members to which it is not to return for a while.
        """
        view = binding.view
        if refused is None and not binding.bound:
            refused = view.decision.refused
        self._state.unsettled.pop(view.uid, None)
        line = self._line(Phase.EVICTING, reason, text)
        rounds = 0 if view.started else view.decision.rounds
        not_before = ""
        if reason is Reason.NOT_READY_IN_TIME:
            rounds += 1
            given_up = self._state.refusals.too_often(refused.counts if refused is not None else {})
            if given_up.isdisjoint(binding.parts):
                not_before = rfc3339(self._state.now + pause_after(rounds, self._state.settings.progress))
        decision = _decision(
            binding,
            line,
            binding.epoch + 1,
            blocker=why,
            room_for=room_for,
            rounds=rounds,
            not_before=not_before,
            evicted=view.decision.evicted_by(line),
            moved=line.at if reason is Reason.MOVED else view.decision.moved,
            refused=refused,
            preserved=_left_behind(binding, leave),
        )
        command = Evict(*_guard(binding), decision, tasks=self._tasks(binding, reason, text, leave))
        binding.epoch, binding.deadline = decision.epoch, None
        self._state.change_phase(binding, Phase.EVICTING)
        self._state.times.watch(binding, self._state.now)
        return command

    def _tasks(self, binding: Binding, reason: Reason, text: str, leave: Leave | None) -> tuple[EvictionTask, ...]:
        """Its eviction tasks: one for each member that it leaves and is kept from, and the present ones."""
        if leave is None or reason is Reason.MEMBER_LOST:
            # A member that is lost gets nothing anyway until its stale Works are gone.
            return binding.view.tasks
        how, state = leave.how, _left_behind(binding, leave)
        most = self._state.settings.progress.leaving
        grace = most if how.grace is None else min(how.grace, most)
        new = tuple(
            EvictionTask(
                name,
                str(reason),
                PRODUCER,
                how.purge,
                text,
                binding.parts[name].replicas,
                grace_period_seconds=int(grace),
                preserved_label_state=state or None,
                creation_timestamp=rfc3339(self._state.now),
                clusters_before_failover=[*binding.parts],
            )
            for name in leave.members
        )
        return (*(task for task in binding.view.tasks if task.from_cluster not in leave.members), *new)

    def explain(self, binding: Binding, verdict: Verdict, *, text: str = "") -> Explain:
        """Say why it waits, or why not more of it runs."""
        return Explain(*_guard(binding), self._said(binding, verdict, text=text))

    def nominate(self, binding: Binding, verdict: Verdict, members: Sequence[str] = ()) -> Nominate:
        """Write its reserved capacity. `members`: where others leave for it; its reservation is always included."""
        return Nominate(*_guard(binding), self._said(binding, verdict, members))

    def _said(self, binding: Binding, verdict: Verdict, nominated: Sequence[str] = (), text: str = "") -> Decision:
        self.tokens -= 1
        binding.told = verdict
        view, waits = binding.view, binding.phase is Phase.SUSPENDED
        self.unwritten.pop(view.uid, None)
        paused = view.uid in self._state.wakes or binding.phase is Phase.LEAVING
        changes: dict[str, Any] = {"flavors": []} if waits else {}
        return _decision(
            binding,
            self._line(binding.phase, verdict.reason, text or verdict.sentence()),
            binding.epoch,
            blocker=verdict.blocker,
            deadline="" if waits else view.decision.deadline,
            nominated=[*nominated],
            kept=self.kept(view.uid),
            not_before=view.decision.not_before if paused else "",
            dispatched=view.decision.dispatched if binding.phase.charged else "",
            **changes,
        )

    def ask(self, binding: Binding, verdict: Verdict, members: list[str], deadline: float, question: Question) -> Ask:
        """Ask members whether it would fit once others have gone."""
        view = binding.view
        line = self._line(Phase.SUSPENDED, verdict.reason, verdict.sentence())
        # Dry runs that came to nothing must not push out what happened before.
        story = [each for each in view.decision.story if (each.phase, each.reason) not in _ABOUT_DRY_RUNS]
        decision = _decision(
            binding,
            line,
            binding.epoch + 1,
            story=msgspec.structs.replace(view.decision, story=story).told(line),
            blocker=verdict.blocker,
            deadline=rfc3339(deadline),
            nominated=members,
            kept=self.kept(view.uid),
            question=question,
        )
        command = Ask(*_guard(binding), decision)
        binding.epoch, binding.told = decision.epoch, verdict
        return command

    def kept(self, uid: str) -> Kept | None:
        """The reservation of a workload, as it is written."""
        reservation = self._state.reservations.made.get(uid)
        if reservation is None:
            return None
        return Kept(rfc3339(reservation.since), rfc3339(reservation.first) if reservation.first < math.inf else "")

    def _line(self, phase: Phase, reason: Reason, text: str) -> Line:
        return Line(rfc3339(self._state.now), phase, reason, text)


def as_written(parts: Mapping[str, Gang]) -> tuple[Part, ...]:
    """What each member has of it."""
    return tuple(
        [Part(name, tuple([(task.name, task.replicas) for task in part.tasks])) for name, part in parts.items()]
    )


def _guard(binding: Binding) -> tuple[str, str, str, int, int]:
    """What the decision is about, and the generation and epoch that it was made on."""
    view = binding.view
    return view.uid, view.namespace, view.name, view.generation, binding.epoch


def _left_behind(binding: Binding, leave: Leave | None) -> dict[str, str]:
    """Labels of its next copies. Of several parts none speaks for all, as in Karmada."""
    before = binding.view.decision.preserved
    if leave is None or len(binding.parts) != 1:
        return before
    return dict(binding.view.state.get(leave.members[0], {})) or before


def _decision(
    binding: Binding,
    line: Line,
    epoch: int,
    *,
    story: list[Line] | None = None,
    blocker: Blocker | None = None,
    deadline: str = "",
    **changes: Any,
) -> Decision:
    """The decision that a line is about, with what goes on of the one before but for `changes`."""
    before = binding.view.decision
    known = {
        "rounds": before.rounds, "evicted": before.evictions, "refused": before.refused, "flavors": binding.flavors,
        "preserved": before.preserved, "moved": before.moved, **changes,
    }  # fmt: skip
    told = before.told(line) if story is None else story
    return Decision(epoch, line.phase, line.reason, blocker, deadline, told, **known)
