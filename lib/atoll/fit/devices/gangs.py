"""Pods with equal claims on many nodes: nodes whose devices differ in names alone are searched once.

A cluster has few shapes of nodes and few sets of devices in use, so that most answers are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import count
from typing import NamedTuple, TypeVar

from atoll.fit.devices.problem import Ask, Problem
from atoll.fit.devices.search import STEPS, Pick, Refused, Undecided, free_counters, solve
from atoll.model.devices import Held, Taken
from atoll.model.quantity import parse

_T = TypeVar("_T")
_KEPT = 65_536
"""Answers; once there are more, all are found anew."""
_SHAPES = 4096
"""Shapes; likewise."""
_SEARCH = 50
"""Steps that the rest of a search costs."""
_Numbers = tuple[tuple[int, int], ...]
"""Per pick, its ask and its option, counted."""


class OnNode(NamedTuple):
    """Devices for one pod."""

    node: str
    picks: tuple[Pick, ...]


class Prepared(NamedTuple):
    """A problem that `Answers` knows."""

    problem: Problem
    asks: list[Ask]
    shape: int
    """Equal where all but names is."""


class Answers:
    """What `solve` found, by shape and devices in use."""

    def __init__(self, steps: int = STEPS) -> None:
        """`steps` bound each search."""
        self.steps = steps
        #: steps of all searches, and a few for each
        self.spent = 0
        self._shapes: dict[object, int] = {}
        self._numbers = count()
        self._answers: dict[object, _Numbers | Refused | Undecided] = {}
        self._counts: dict[object, int] = {}

    def prepared(self, problem: Problem) -> Prepared:
        """To be kept as long as the problem is: it hashes all that is known of it."""
        number = self._shapes.get(problem.shape)
        if number is None:
            # Numbers are never given again: answers of a forgotten shape are no other one's.
            number = next(self._numbers)
            _keep(self._shapes, problem.shape, number, _SHAPES)
        return Prepared(problem, _asks(problem), number)

    def picks(self, prepared: Prepared, taken: Taken) -> tuple[Pick, ...] | Refused | Undecided:
        """Devices for one pod; as `solve`.

        Raises:
            ClaimError: as `solve`.
        """
        problem, asks, shape = prepared
        key = (shape, *_in_use(problem, taken))
        answer = self._answers.get(key)
        if answer is None:
            found, steps = solve(problem, taken, self.steps)
            self.spent += _SEARCH + steps
            if isinstance(found, (Refused, Undecided)):
                answer = found
            else:
                numbers = {ask: number for number, ask in enumerate(asks)}
                answer = tuple((numbers[pick.ask], pick.ask.options.index(pick.option)) for pick in found)
            _keep(self._answers, key, answer)
        if isinstance(answer, (Refused, Undecided)):
            return answer
        return tuple(Pick(asks[ask], asks[ask].options[option]) for ask, option in answer)

    def count(self, prepared: Prepared, taken: Taken, most: int) -> int:
        """Pods that get devices one after the other, up to `most`.

        Raises:
            ClaimError: as `solve`.
        """
        key = (prepared.shape, most, *_in_use(prepared.problem, taken))
        if (known := self._counts.get(key)) is not None:
            return known
        then, found = _around(prepared.problem, taken), 0
        while found < most:
            picks = self.picks(prepared, then)
            if isinstance(picks, (Refused, Undecided)):
                break
            found += 1
            then.hold_all(held_of(picks))
        _keep(self._counts, key, found)
        return found


class Fleet:
    """Nodes, in the order in which they are filled, with the claims of one pod."""

    def __init__(self, problems: Mapping[str, Problem], steps: int = STEPS) -> None:
        """`problems` are of equal claims."""
        self._answers = Answers(steps)
        self._nodes = [(name, self._answers.prepared(problem)) for name, problem in problems.items()]

    def place(self, pods: int, taken: Taken) -> list[OnNode] | Refused | Undecided:
        """Devices for all pods, or for none.

        Raises:
            ClaimError: as `solve`.
        """
        then = taken.copy()
        placed: list[OnNode] = []
        reasons: Counter[str] = Counter()
        undecided = False
        for name, prepared in self._nodes:
            while len(placed) < pods:
                answer = self._answers.picks(prepared, then)
                if isinstance(answer, (Refused, Undecided)):
                    undecided |= isinstance(answer, Undecided)
                    reasons[answer.reason if isinstance(answer, Refused) else "undecided"] += 1
                    break
                placed.append(OnNode(name, answer))
                then.hold_all(held_of(answer))
        if len(placed) == pods:
            return placed
        if undecided:
            return Undecided(self._answers.steps)
        [(reason, nodes)] = reasons.most_common(1) or [("there is no node", 0)]
        return Refused(f"{len(placed)} of {pods} pods get devices; on {nodes} of {len(self._nodes)} nodes: {reason}")


def _around(problem: Problem, taken: Taken) -> Taken:
    """A copy, as far as the problem is concerned."""
    devices = [*problem.devices, *(each for pool in problem.pools if pool.counters for each in pool.elsewhere)]
    return Taken(
        (each.id for each in devices if each.id in taken.devices),
        {each.id: taken.consumed[each.id] for each in devices if each.id in taken.consumed},
    )


def held_of(picks: Sequence[Pick]) -> list[Held]:
    """What a pod holds with these; access for administration holds nothing."""
    return [Held(each.option.device.id, _amounts(each)) for each in picks if not each.ask.wish.admin]


def _amounts(pick: Pick) -> Mapping[str, Fraction] | None:
    amounts = pick.option.amounts
    return None if amounts is None else {name: parse(text) for name, text in amounts.items()}


def _keep(known: dict[object, _T], key: object, value: _T, most: int = _KEPT) -> None:
    if len(known) >= most:
        known.clear()
    known[key] = value


def _asks(problem: Problem) -> list[Ask]:
    return [ask for request in problem.requests for ask in request]


def _in_use(problem: Problem, taken: Taken) -> Iterator[object]:
    """All that `solve` reads of `taken`."""
    yield tuple(number for number, device in enumerate(problem.devices) if device.id in taken.devices)
    if taken.consumed:
        yield tuple(
            (number, tuple(sorted(taken.consumed[device.id].items())))
            for number, device in enumerate(problem.devices)
            if device.id in taken.consumed
        )
    for pool in problem.pools:
        if pool.elsewhere and pool.counters:
            yield tuple(sorted(free_counters(pool, taken).items()))
