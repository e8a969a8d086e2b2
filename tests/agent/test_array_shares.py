"""Indices of an array in several members: late reports and shares, lost writes, Works that go and come."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from atoll.agent.jobs.array_steps import Child, following, missing, surplus
from atoll.kinds import Outcome
from atoll.kinds.job_array.shares import Division, Holder, handed_out, joined
from atoll.model.array_states import RUNNING, SUCCEEDED, counts, further, unstarted

INDICES, RETRIES, MEMBERS = 12, 1, 3


@dataclass
class There:
    """An array in a member: what its server has."""

    slots: int
    share: bytes = bytes(INDICES)
    begun: bytes = bytes(INDICES)
    states: bytes = bytes(INDICES)
    jobs: dict[int, Child] = field(default_factory=dict)
    left: list[tuple[str, int, int]] = field(default_factory=list)
    reported: bytes | None = None


class Arrays:
    """The host has one status; Works come and go, and each is a copy in a member with states of its own."""

    def __init__(self) -> None:
        self.division = Division(bytes(INDICES), bytes(INDICES), [])
        #: earlier statuses, which a Work may still be made of
        self.seen = [self.division]
        #: UID -> what is there; members have one Work each
        self.works: dict[str, There] = {}
        self.going: set[str] = set()
        self.number = 0
        self.successes, self.failures, self.lost = Counter[int](), Counter[int](), Counter[int]()

    def draw(self, number: int, uids: list[str]) -> There:
        return self.works[sorted(uids)[number % len(uids)]]

    # -- the host ------------------------------------------------------------------------------------------------------

    def comes(self, slots: int) -> None:
        """A Work is made before it has a UID: no index is its own."""
        self.number += 1
        self.works[f"w{self.number}"] = There(slots)

    def status(self) -> None:
        """One write, over the status that it follows from."""
        holders = [
            Holder(uid, 0 if uid in self.going else each.slots, each.reported, 10.0)
            for uid, each in sorted(self.works.items())
        ]
        before = self.division.states
        self.division = handed_out(joined(self.division, holders), holders)
        assert further(self.division.states, before) == self.division.states, "an end or a failure was forgotten"
        self.seen.append(self.division)

    def sent(self, number: int, age: int) -> None:
        """A Work is made of a status, perhaps an old one, as a late watch shows it."""
        uid = sorted(self.works)[number % len(self.works)]
        known = self.seen[max(len(self.seen) - 1 - age, 0)]
        share = known.share(uid).tobytes()
        self.works[uid].share = share
        found = unstarted(known.states)
        over = counts(found).ended == INDICES
        self.works[uid].begun = bytes(s if own or over else 0 for s, own in zip(found, share, strict=True))

    def resized(self, number: int, slots: int) -> None:
        self.draw(number, [*self.works]).slots = slots

    def to_go(self, number: int) -> None:
        self.going.add(sorted(self.works)[number % len(self.works)])

    def gone(self, number: int) -> None:
        """All of it has left the member; its last report was heard, or that is a loss which is known."""
        uid = sorted(self.going)[number % len(self.going)]
        there = self.works.pop(uid)
        self.going.discard(uid)
        known = (
            joined(self.division, [Holder(uid, 0, there.reported)]).states if there.reported else self.division.states
        )
        for at, child in there.jobs.items():
            if child.outcome is Outcome.SUCCEEDED and known[at] & 3 != SUCCEEDED:
                self.lost[at] += 1
        for at in range(INDICES):
            if there.states[at] & 3 == SUCCEEDED and known[at] & 3 != SUCCEEDED and at not in there.jobs:
                self.lost[at] += 1
            if self.division.states[at] & 3 != SUCCEEDED and known[at] & 3 == SUCCEEDED:
                self.lost[at] += 1

    def removed(self, there: There, at: int) -> None:
        """The Job of an index that is to stop may have succeeded a moment before."""
        child = there.jobs.pop(at, None)
        if child is not None and child.outcome is Outcome.SUCCEEDED and there.states[at] & 3 != SUCCEEDED:
            self.lost[at] += 1

    # -- members -------------------------------------------------------------------------------------------------------

    def look(self, number: int) -> None:
        there = self.draw(number, [*self.works])
        states = further(there.states, there.begun)
        there.states = following(states, there.jobs, at_once=there.slots, retries=RETRIES, share=there.share)
        there.left = [("make", at, tried) for at, tried in missing(there.states, there.jobs)]
        there.left += [("remove", at, 0) for at in surplus(there.states, there.jobs)]

    def write(self, number: int, which: int) -> None:
        there = self.draw(which, [uid for uid, each in self.works.items() if each.left])
        act, at, tried = there.left.pop(number % len(there.left))
        if act == "make" and at not in there.jobs:
            there.jobs[at] = Child(tried)
        elif act == "remove":
            self.removed(there, at)

    def ends(self, number: int, which: int, success: bool) -> None:
        there = self.draw(which, [uid for uid, each in self.works.items() if each.jobs])
        at = sorted(there.jobs)[number % len(there.jobs)]
        if there.jobs[at].outcome is None:
            there.jobs[at] = there.jobs[at]._replace(outcome=Outcome.SUCCEEDED if success else Outcome.FAILED)
            (self.successes if success else self.failures)[at] += 1

    def report(self, number: int) -> None:
        there = self.draw(number, [*self.works])
        there.reported = there.states

    def gets_on(self, number: int, *, ends: bool, success: bool) -> None:
        """All of that for one member, in the usual order."""
        at = sorted(self.works).index(sorted(self.works)[number % len(self.works)])
        there = self.draw(at, [*self.works])
        self.report(at)
        self.status()
        self.sent(at, 0)
        self.look(at)
        while there.left:
            act, position, tried = there.left.pop()
            if act == "make":
                there.jobs.setdefault(position, Child(tried))
            else:
                self.removed(there, position)
        if ends:
            for position, child in list(there.jobs.items()):
                if child.outcome is None:
                    outcome = Outcome.SUCCEEDED if success else Outcome.FAILED
                    there.jobs[position] = child._replace(outcome=outcome)
                    (self.successes if success else self.failures)[position] += 1
            self.look(at)

    # -- what holds ----------------------------------------------------------------------------------------------------

    def no_index_runs_twice_at_once(self) -> None:
        running = Counter(
            at for each in self.works.values() for at, child in each.jobs.items() if child.outcome is None
        )
        assert all(count == 1 for count in running.values()), running

    def none_that_succeeded_runs_again(self) -> None:
        assert all(count <= 1 + self.lost[at] for at, count in self.successes.items())

    def each_has_one_owner_who_is_there(self) -> None:
        assert set(self.division.owners) <= set(range(len(self.division.works) + 1))

    def come_to_an_end(self) -> None:
        """Left alone, with one more member, all indices come to their end, in the host's words and in each member's."""
        for uid in sorted(self.going):
            self.gone(sorted(self.going).index(uid))
        if not self.works:
            self.comes(2)
        for _ in range(60):
            for number in range(len(self.works)):
                self.report(number)
            self.status()
            for number in range(len(self.works)):
                self.sent(number, 0)
                self.look(number)
            while any(each.left for each in self.works.values()):
                self.write(0, 0)
                self.no_index_runs_twice_at_once()
            for there in self.works.values():
                for at, child in there.jobs.items():
                    if child.outcome is None:
                        there.jobs[at] = child._replace(outcome=Outcome.SUCCEEDED)
                        self.successes[at] += 1
            self.none_that_succeeded_runs_again()
        assert counts(self.division.states).ended == INDICES
        assert all(counts(each.states).ended == INDICES for each in self.works.values())


def play(seed: int, steps: int = 120) -> None:
    chance, arrays = random.Random(seed), Arrays()

    def number() -> int:
        return chance.randint(0, 20)

    def truth() -> bool:
        return chance.random() < 0.5

    for _ in range(steps):
        works = arrays.works
        ways: list[tuple[int, bool, Callable[[], object]]] = [
            (3, len(works) < MEMBERS, lambda: arrays.comes(chance.randint(1, 3))),
            (2, True, arrays.status),
            (3, bool(works), lambda: arrays.sent(number(), chance.randint(0, 3))),
            (1, bool(works), lambda: arrays.resized(number(), chance.randint(1, 3))),
            (1, bool(works), lambda: arrays.to_go(number())),
            (1, bool(arrays.going), lambda: arrays.gone(number())),
            (3, bool(works), lambda: arrays.look(number())),
            (6, any(each.left for each in works.values()), lambda: arrays.write(number(), number())),
            (2, any(each.jobs for each in works.values()), lambda: arrays.ends(number(), number(), truth())),
            (2, bool(works), lambda: arrays.report(number())),
            (3, bool(works), lambda: arrays.gets_on(number(), ends=chance.random() < 0.2, success=truth())),
        ]
        possible = [(weight, act) for weight, able, act in ways if able]
        [act] = chance.choices([each for _, each in possible], [weight for weight, _ in possible])
        act()
        arrays.no_index_runs_twice_at_once()
        arrays.none_that_succeeded_runs_again()
        arrays.each_has_one_owner_who_is_there()
    arrays.come_to_an_end()


def test_no_index_runs_twice_and_all_end_through_late_and_lost_messages() -> None:
    for seed in range(150):
        play(seed)


def test_members_get_as_much_as_they_run_at_once_and_more_where_indices_are_short() -> None:
    empty = Division(bytes(1000), bytes(1000), [])
    slow, quick = Holder("slow", 10), Holder("quick", 10, bytes([SUCCEEDED] * 300 + [0] * 700), seconds=60.0)
    division = handed_out(joined(empty, [slow, quick]), [slow, quick])
    assert (division.left("slow"), division.left("quick")) == (20, 160)


def test_a_member_with_enough_gets_no_more() -> None:
    holder = Holder("w", 10, bytes([RUNNING] * 10 + [0] * 90))
    first = handed_out(joined(Division(bytes(100), bytes(100), []), [holder]), [holder])
    assert handed_out(joined(first, [holder]), [holder]).owners == first.owners
    states = bytes([SUCCEEDED] * 8 + [RUNNING] * 10 + [0] * 82)
    again = handed_out(joined(first, [holder._replace(states=states)]), [holder._replace(states=states)])
    assert again.left("w") == 20 + 0 or again.left("w") > 12
