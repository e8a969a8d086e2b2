"""A complete search for devices, depth first in Kubernetes' order: its first solution is the one Kubernetes takes.

It leaves out what can't lead to another end than a branch already searched: devices of a kind that failed at the same
place, and requests reached again with the same kinds in use. Steps are counted, so that it ends `Undecided` where that
is not enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from atoll.fit.devices.problem import Ask, ClaimError, Members, Option, Problem
from atoll.fit.devices.prune import Options, needed, prune
from atoll.model.device_claims import MOST_RESULTS
from atoll.model.devices import Counter, Pool, Taken
from atoll.model.quantity import parse

_NONE = "no combination of free devices meets all constraints"
STEPS = 50_000
"""Devices that one search tries at most, about a fifth of a second."""


class Pick(NamedTuple):
    """A device for a wish."""

    ask: Ask
    option: Option


class Refused(NamedTuple):
    """There is no allocation while those devices are in use."""

    reason: str


class Undecided(NamedTuple):
    """The steps were used up; there may be an allocation."""

    steps: int


class _Place(NamedTuple):
    """How far the search is: the next device of a wish, or, without one, the next request."""

    request: int
    ask: Ask | None = None
    taken: int = 0
    start: int = 0


class _OutOfSteps(Exception):
    pass


def solve(problem: Problem, taken: Taken, steps: int = STEPS) -> tuple[tuple[Pick, ...] | Refused | Undecided, int]:
    """Devices for all claims, none of them already taken; with the number of steps of the search.

    Raises:
        ClaimError: a claim asks for too many devices, a selector fails on a device that is tried, or a constraint
            refuses one of all devices.
    """
    if unequal := next((request[0].unequal for request in problem.requests if all(a.unequal for a in request)), ""):
        return Refused(unequal), 0
    options = _available(problem, taken)
    _check_size(problem, options)
    if problem.certain and (reason := prune(problem, options)):
        return Refused(reason), 0
    search = _Search(problem, taken, options, steps)
    try:
        found = tuple(search.picks) if search.found() else Refused(_NONE)
    except _OutOfSteps:
        return Undecided(steps), steps
    return found, steps - search.left


def _available(problem: Problem, taken: Taken) -> Options:
    """Per ask its options without devices in use; all of them where it asks for all."""
    found: Options = {}
    for request in problem.requests:
        for ask in request:
            found[ask] = tuple(
                option
                for option in ask.options
                if (ask.wish.count is None or ask.wish.admin or option.device.id not in taken.devices)
                and _shareable(option, taken.consumed.get(option.device.id, {}))
            )
    return found


def _check_size(problem: Problem, options: Options) -> None:
    fewest = [0] * len(problem.claims)
    for claim, request in zip(problem.claim_of, problem.requests, strict=True):
        fewest[claim] += min(needed(ask, options) for ask in request)
    for claim, count in enumerate(fewest):
        if count > MOST_RESULTS:
            raise ClaimError(f"claim {problem.claims[claim].name}: {count} devices are more than {MOST_RESULTS}")


def _shareable(option: Option, consumed: Mapping[str, Fraction]) -> bool:
    return option.amounts is None or all(
        parse(text) + consumed.get(name, 0) <= parse(option.device.capacity[name].value)
        for name, text in option.amounts.items()
    )


class _Search:
    def __init__(self, problem: Problem, taken: Taken, options: Options, steps: int) -> None:
        self.picks: list[Pick] = []
        self._problem, self._options, self.left = problem, options, steps
        self._in_use = [device.id in taken.devices for device in problem.devices]
        self._kinds = [
            -1 - number if device.id in taken.consumed else 2 * problem.kinds[number] + self._in_use[number]
            for number, device in enumerate(problem.devices)
        ]
        self._holders = [0] * len(problem.devices)
        """Per device, the claims that have it as a whole, as bits."""
        self._shares: dict[int, dict[str, Fraction]] = {
            number: dict(taken.consumed[device.id])
            for number, device in enumerate(problem.devices)
            if device.id in taken.consumed
        }
        """Per device that is shared, what of it is consumed."""
        self._counters = [free_counters(pool, taken) for pool in problem.pools]
        self._overdrawn = [any(amount < 0 for amount in free.values()) for free in self._counters]
        self._bound: list[Members | None] = [None] * len(problem.constraints)
        """Per constraint: values that are still common to all, or all values so far."""
        self._results = [0] * len(problem.claims)
        self._failed: set[object] = set()
        self._live = [
            sorted({number for asks in problem.requests[first:] for ask in asks for number in ask.constraints})
            for first in range(len(problem.requests))
        ]

    def found(self) -> bool:
        """Whether `picks` is a solution now."""
        open_choices: list[tuple[object, Iterator[_Place]]] = []
        place: _Place | None = _Place(0)
        while place is None or place.request < len(self._problem.requests):
            if place is not None:
                state = self._state(place) if place.ask is None else None
                if state is None or state not in self._failed:
                    open_choices.append((state, self._choices(place)))
            if not open_choices:
                return False
            state, choices = open_choices[-1]
            place = next(choices, None)
            if place is None:
                self._failed.add(state)
                open_choices.pop()
        return True

    def _state(self, place: _Place) -> object:
        """All that decides whether the requests from here on can be satisfied."""
        used = sorted(
            (self._kinds[pick.option.number], self._holders[pick.option.number])
            for pick in self.picks
            if pick.option.amounts is None
        )
        shares = sorted(
            (self._kinds[number], sorted(self._shares[number].items()))
            for number in {pick.option.number for pick in self.picks if pick.option.amounts is not None}
        )
        bound = tuple(self._bound[number] for number in self._live[place.request])
        results = self._results[self._problem.claim_of[place.request]]
        return place.request, results, tuple(used), str(shares), bound

    def _choices(self, place: _Place) -> Iterator[_Place]:
        """The places that follow, each with its choice made; it is undone when the next one is asked for."""
        if place.ask is None:
            for ask in self._problem.requests[place.request]:
                left = self._options.get(ask, ())
                if left and self._results[ask.claim] + needed(ask, self._options) <= MOST_RESULTS:
                    yield _Place(place.request, ask)
            return
        ask, options = place.ask, self._options[place.ask]
        all_devices = ask.wish.count is None
        missing = needed(ask, self._options) - place.taken - 1
        tried: set[object] = set()
        for index in range(place.start, place.start + 1 if all_devices else len(options)):
            if self._problem.certain and len(options) - index <= missing:
                return
            option = options[index]
            same = (
                self._kinds[option.number],
                self._holders[option.number],
                str(self._shares.get(option.number)) if option.amounts is not None else "",
            )
            if same in tried:
                continue
            tried.add(same)
            undo = self._take(ask, option, must=all_devices)
            if undo is None:
                continue
            if missing:
                yield _Place(place.request, ask, place.taken + 1, index + 1)
            else:
                yield _Place(place.request + 1)
            self._give_back(undo)

    def _take(self, ask: Ask, option: Option, *, must: bool) -> _Undo | None:
        """Counters before constraints: they are the cheaper test."""
        self.left -= 1
        if self.left < 0:
            raise _OutOfSteps
        number, device = option.number, option.device
        if ask.wish.admin:
            if self._holders[number] >> ask.claim & 1:
                return None
        elif self._holders[number] or self._in_use[number]:
            return None
        if option.fault:
            raise ClaimError(f"{self._named(ask)}: {option.fault}")
        # The first share of a device consumes its counters, the others come with it.
        counted = bool(device.counters) and not (device.shared and number in self._shares)
        pool = self._problem.pool_of[number]
        free = self._counters[pool]
        if counted and (self._overdrawn[pool] or any(free[name] < each for name, each in device.counters.items())):
            return None
        if option.tainted:
            return None
        bound: list[tuple[int, Members | None]] = []
        for constraint in ask.constraints:
            before, values = self._bound[constraint], self._problem.values[constraint][number]
            if not (after := self._after(constraint, before, values)):
                self._unbind(bound)
                if must:
                    raise ClaimError(f"{self._named(ask)}: a constraint refuses device {device.id}")
                return None
            bound.append((constraint, before))
            self._bound[constraint] = after
        if not _shareable(option, self._shares.get(number, {})):
            self._unbind(bound)
            return None
        if counted:
            for counter, each in device.counters.items():
                free[counter] -= each
        shares = self._shares.get(number)
        if option.amounts is None:
            self._holders[number] |= 1 << ask.claim
        else:
            self._shares[number] = {
                name: parse(text) + (shares or {}).get(name, 0) for name, text in option.amounts.items()
            }
        self._results[ask.claim] += 1
        self.picks.append(Pick(ask, option))
        return _Undo(bound, counted, shares)

    def _named(self, ask: Ask) -> str:
        return f"claim {self._problem.claims[ask.claim].name}, request {ask.wish.name}"

    def _after(self, constraint: int, before: Members | None, values: Members | None) -> Members | None:
        """The values that a constraint remembers once a device has its; nothing where it refuses."""
        if values is None or before is None:
            return values
        if self._problem.constraints[constraint].distinct:
            return before | values if before.isdisjoint(values) else None
        return before & values

    def _unbind(self, bound: list[tuple[int, Members | None]]) -> None:
        for constraint, before in bound:
            self._bound[constraint] = before

    def _give_back(self, undo: _Undo) -> None:
        ask, option = self.picks.pop()
        number = option.number
        self._results[ask.claim] -= 1
        if option.amounts is None:
            self._holders[number] &= ~(1 << ask.claim)
        elif undo.shares is None:
            del self._shares[number]
        else:
            self._shares[number] = undo.shares
        if undo.counted:
            free = self._counters[self._problem.pool_of[number]]
            for name, each in option.device.counters.items():
                free[name] += each
        self._unbind(undo.bound)


class _Undo(NamedTuple):
    """What taking a device changed beside itself."""

    bound: list[tuple[int, Members | None]]
    counted: bool
    shares: dict[str, Fraction] | None


def free_counters(pool: Pool, taken: Taken) -> dict[Counter, Fraction]:
    free = dict(pool.counters)
    if free:
        for device in (*pool.devices, *pool.elsewhere):
            if device.counters and taken.holds(device.id):
                for name, amount in device.counters.items():
                    free[name] -= amount
    return free
