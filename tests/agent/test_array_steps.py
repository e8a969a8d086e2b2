"""Indices of a JobArray, with the controller stopped at any write."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from atoll.agent.jobs.array_steps import KEPT, Child, following, missing, surplus
from atoll.kinds import Outcome
from atoll.model.array_states import FAILED, PENDING, RUNNING, SUCCEEDED, byte, counts, failures

INDICES, RETRIES = 6, 2


class Arrays(RuleBasedStateMachine):
    """The server has states and Jobs; a controller reads both, writes states, then makes and removes Jobs."""

    def __init__(self) -> None:
        super().__init__()
        #: on the server
        self.states, self.jobs = bytes(INDICES), dict[int, Child]()
        self.at_once = 3
        #: writes of the controller that follow from the last states, in their order; a kill drops the rest
        self.left: list[tuple[str, int, int]] = []
        self.successes, self.failures, self.removed = Counter[int](), Counter[int](), Counter[int]()

    @rule()
    def look(self) -> None:
        """A look: at first its one write of the states."""
        self.states = following(self.states, self.jobs, at_once=self.at_once, retries=RETRIES)
        self.left = [("make", at, tried) for at, tried in missing(self.states, self.jobs)]
        self.left += [("remove", at, 0) for at in surplus(self.states, self.jobs)]

    @precondition(lambda self: self.left)
    @rule(number=st.integers(0, 20))
    def write(self, number: int) -> None:
        """One of its other writes, in any order; the ones that are never drawn are lost with it."""
        act, at, tried = self.left.pop(number % len(self.left))
        if act == "make" and at not in self.jobs:
            assert self.states[at] == byte(RUNNING, tried)
            self.jobs[at] = Child(tried)
        elif act == "remove" and at in self.jobs:
            if self.jobs[at].outcome is None:
                self.removed[at] += 1
            self.jobs[at] = self.jobs[at]._replace(leaving=True)

    @precondition(lambda self: any(each.leaving for each in self.jobs.values()))
    @rule(number=st.integers(0, 20))
    def goes(self, number: int) -> None:
        leaving = sorted(at for at, each in self.jobs.items() if each.leaving)
        del self.jobs[leaving[number % len(leaving)]]

    @precondition(lambda self: any(each.outcome is None and not each.leaving for each in self.jobs.values()))
    @rule(number=st.integers(0, 20), success=st.booleans())
    def ends(self, number: int, success: bool) -> None:
        running = sorted(at for at, each in self.jobs.items() if each.outcome is None and not each.leaving)
        at = running[number % len(running)]
        outcome = Outcome.SUCCEEDED if success else Outcome.FAILED
        (self.successes if success else self.failures)[at] += 1
        self.jobs[at] = self.jobs[at]._replace(outcome=outcome)

    @rule(at_once=st.integers(1, 4))
    def resized(self, at_once: int) -> None:
        self.at_once = at_once

    @invariant()
    def nothing_runs_again_that_succeeded(self) -> None:
        assert all(count == 1 for count in self.successes.values())
        assert all(count <= RETRIES + 1 for count in self.failures.values())

    @invariant()
    def states_are_true(self) -> None:
        for at, value in enumerate(self.states):
            state = value & 3
            assert failures(value) <= self.failures[at]
            assert (state == SUCCEEDED) <= (self.successes[at] == 1)
            assert (state == FAILED) <= (self.failures[at] == RETRIES + 1)

    def teardown(self) -> None:
        """Left alone, the controller comes to the end of all indices."""
        for _ in range(200):
            self.look()
            while self.left:
                self.write(0)
            for at in [at for at, each in self.jobs.items() if each.leaving]:
                del self.jobs[at]
            for at in [at for at, each in self.jobs.items() if each.outcome is None]:
                self.successes[at] += 1
                self.jobs[at] = self.jobs[at]._replace(outcome=Outcome.SUCCEEDED)
            self.nothing_runs_again_that_succeeded()
        found = counts(self.states)
        assert (found.pending, found.running) == (0, 0)
        assert all(self.states[at] & 3 == FAILED for at in self.jobs)
        assert len(self.jobs) <= KEPT


TestArrays = Arrays.TestCase


def test_no_more_run_than_may_and_the_last_started_are_stopped() -> None:
    states = following(bytes(5), {}, at_once=3, retries=0)
    assert list(states) == [byte(RUNNING)] * 3 + [byte(PENDING)] * 2
    children = {at: Child(0) for at in range(3)}
    states = following(states, children, at_once=1, retries=0)
    assert list(states) == [byte(RUNNING)] + [byte(PENDING)] * 4
    assert sorted(surplus(states, children)) == [1, 2]


def test_an_index_whose_job_still_goes_waits_for_that() -> None:
    states = bytes([byte(PENDING, 1), byte(PENDING)])
    children = {0: Child(0, Outcome.FAILED, leaving=True)}
    assert list(following(states, children, at_once=1, retries=1)) == [byte(PENDING, 1), byte(RUNNING)]
