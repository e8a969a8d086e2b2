"""Users' strategies as the core has them: asked within a budget, checked, and off from their first failure on.

The budget is lines of Python that the call runs, not time, so that equal events lead to equal decisions. One that
raises, runs over its budget or answers nonsense is not asked again by this leader; its decisions are made as
without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

from atoll.model.strategies import SCORE, SPLIT, Member, Score, Split, Workload, wrong_scores, wrong_shares


class Failure(NamedTuple):
    """Why a strategy is off."""

    group: str
    name: str
    why: str


class _Overrun(BaseException):
    """It ran more lines than it may; no `except Exception` of its own stops that."""


class Strategies:
    """Installed strategies."""

    def __init__(
        self, score: Mapping[str, Score] = {}, split: Mapping[str, Split] = {}, *, lines: int = 100_000
    ) -> None:
        """`lines`: of Python that one call may run."""
        self._score, self._split, self._lines = dict(score), dict(split), lines
        #: (group, name) of strategies that are off
        self._off: set[tuple[str, str]] = set()
        #: since `take_failures`
        self._failures: list[Failure] = []

    def scores(self, name: str, workload: Workload, members: Sequence[Member]) -> Mapping[str, float] | None:
        """Member -> score; None where that strategy says nothing."""
        return self._ask(SCORE, name, self._score.get(name), workload, members, wrong_scores)

    def shares(self, name: str, workload: Workload, members: Sequence[Member]) -> Mapping[str, int] | None:
        """Member -> sets, of members that get some; None where that strategy says nothing."""
        found = self._ask(SPLIT, name, self._split.get(name), workload, members, wrong_shares)
        return {member: sets for member, sets in found.items() if sets} if found else None

    def turn_off(self, group: str, name: str, why: str) -> None:
        """Ask it no more."""
        if (group, name) not in self._off:
            self._off.add((group, name))
            self._failures.append(Failure(group, name, why))

    def take_failures(self) -> list[Failure]:
        """Those since the last call."""
        failures, self._failures = self._failures, []
        return failures

    def _ask(
        self,
        group: str,
        name: str,
        strategy: Callable[[Workload, Sequence[Member]], Mapping[str, Any]] | None,
        workload: Workload,
        members: Sequence[Member],
        wrong: Callable[[Mapping[str, Any], Workload, Mapping[str, Member]], str],
    ) -> Mapping[str, Any] | None:
        if (group, name) in self._off:
            return None
        if strategy is None:
            self.turn_off(group, name, "it is not installed beside the dispatcher")
            return None
        try:
            answer: Any = self._within(lambda: strategy(workload, members))
        except _Overrun:
            self.turn_off(group, name, f"it ran more than {self._lines} lines of Python for one answer")
            return None
        except Exception as error:  # whatever a user's code raises
            self.turn_off(group, name, f"it raised {type(error).__name__}: {error}")
            return None
        if not isinstance(answer, Mapping):
            self.turn_off(group, name, f"it answered with a {type(answer).__name__}, not with a mapping")
            return None
        found: Mapping[str, Any] = answer
        if why := wrong(found, workload, {member.name: member for member in members}):
            self.turn_off(group, name, why)
            return None
        return found

    def _within(self, call: Callable[[], Any]) -> Any:
        left = self._lines

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise _Overrun
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return call()
        finally:
            sys.settrace(before)
