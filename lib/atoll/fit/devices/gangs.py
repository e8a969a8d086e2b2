"""Pods with equal claims on many nodes: nodes whose devices differ in names alone are searched once.

A cluster has few shapes of nodes and few sets of devices in use, so that most answers are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from atoll.fit.devices.problem import Ask, Problem
from atoll.fit.devices.search import STEPS, Pick, Refused, Undecided, free_counters, solve
from atoll.model.devices import DeviceId, Taken
from atoll.model.quantity import parse

_KEPT = 65_536
"""Answers; once there are more, all are found anew."""
_Numbers = tuple[tuple[int, int], ...]
"""Per pick, its ask and its option, counted."""


class OnNode(NamedTuple):
    """Devices for one pod."""

    node: str
    picks: tuple[Pick, ...]


class Fleet:
    """Nodes, in the order in which they are filled, with the claims of one pod."""

    def __init__(self, problems: Mapping[str, Problem], steps: int = STEPS) -> None:
        """`problems` are of equal claims."""
        shapes: dict[object, int] = {}
        self._nodes = [
            (name, problem, _asks(problem), shapes.setdefault(problem.shape, len(shapes)))
            for name, problem in problems.items()
        ]
        self._steps = steps
        self._answers: dict[object, _Numbers | Refused | Undecided] = {}

    def place(self, pods: int, taken: Taken) -> list[OnNode] | Refused | Undecided:
        """Devices for all pods, or for none.

        Raises:
            ClaimError: as `solve`.
        """
        devices = set(taken.devices)
        consumed = {device: dict(amounts) for device, amounts in taken.consumed.items()}
        placed: list[OnNode] = []
        reasons: Counter[str] = Counter()
        undecided = False
        for name, problem, asks, shape in self._nodes:
            while len(placed) < pods:
                answer = self._answer(problem, asks, shape, Taken(devices, consumed))
                if isinstance(answer, (Refused, Undecided)):
                    undecided |= isinstance(answer, Undecided)
                    reasons[answer.reason if isinstance(answer, Refused) else "undecided"] += 1
                    break
                picks = tuple(Pick(asks[ask], asks[ask].options[option]) for ask, option in answer)
                placed.append(OnNode(name, picks))
                _take(picks, devices, consumed)
        if len(placed) == pods:
            return placed
        if undecided:
            return Undecided(self._steps)
        [(reason, nodes)] = reasons.most_common(1) or [("there is no node", 0)]
        return Refused(f"{len(placed)} of {pods} pods get devices; on {nodes} of {len(self._nodes)} nodes: {reason}")

    def _answer(
        self, problem: Problem, asks: list[Ask], shape: int, taken: Taken
    ) -> _Numbers | Refused | Undecided:  # fmt: skip
        key = (shape, *_in_use(problem, taken))
        if (known := self._answers.get(key)) is not None:
            return known
        found = solve(problem, taken, self._steps)
        answer: _Numbers | Refused | Undecided
        if isinstance(found, (Refused, Undecided)):
            answer = found
        else:
            numbers = {ask: number for number, ask in enumerate(asks)}
            answer = tuple((numbers[pick.ask], pick.ask.options.index(pick.option)) for pick in found)
        if len(self._answers) >= _KEPT:
            self._answers.clear()
        self._answers[key] = answer
        return answer


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


def _take(picks: tuple[Pick, ...], devices: set[DeviceId], consumed: dict[DeviceId, dict[str, Fraction]]) -> None:
    for ask, option in picks:
        if option.amounts is not None:
            mine = consumed.setdefault(option.device.id, {})
            for name, text in option.amounts.items():
                mine[name] = mine.get(name, Fraction()) + parse(text)
        elif not ask.wish.admin:
            devices.add(option.device.id)
