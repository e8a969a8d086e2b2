"""Cuts before the search: devices that no solution has, and requests for which there are too few devices.

No cut removes a solution, so the first one that the search finds stays the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.fit.devices.problem import Ask, Members, Option, Problem

Options = dict[Ask, tuple[Option, ...]]
"""Per ask that can still be satisfied, the devices left to it."""


def needed(ask: Ask, options: Options) -> int:
    """The number of devices that an ask takes."""
    return len(options[ask]) if ask.wish.count is None else ask.wish.count


def prune(problem: Problem, options: Options) -> str:
    """Drop from `options`; returns why nothing is left to a request, or nothing."""
    while True:
        before = sum(map(len, options.values()))
        for ask in [ask for ask, left in options.items() if not left or len(left) < needed(ask, options)]:
            del options[ask]
        for request in problem.requests:
            if not any(ask in options for ask in request):
                return _too_few(problem, request)
        for number, constraint in enumerate(problem.constraints):
            if not constraint.distinct:
                _keep_values(problem, number, options)
        if sum(map(len, options.values())) == before:
            return _unmatched(problem, options)


def _too_few(problem: Problem, request: Sequence[Ask]) -> str:
    claim, wish = problem.claims[request[0].claim], request[0].wish
    name = wish.name.split("/")[0]
    return f"claim {claim.name}, request {name}: too few devices are free that match and meet its constraints"


def _keep_values(problem: Problem, number: int, options: Options) -> None:
    """Keep values of a constraint on equal values of which each request has enough devices."""
    values = problem.values[number]
    viable: Members | None = None
    for request in problem.requests:
        asks = [ask for ask in request if ask in options]
        if not asks or not all(number in ask.constraints for ask in asks):
            continue
        enough: set[tuple[str, bool | int | str]] = set()
        for ask in asks:
            counted: dict[tuple[str, bool | int | str], int] = {}
            for option in options[ask]:
                for value in values[option.number] or ():
                    counted[value] = counted.get(value, 0) + 1
            enough.update(value for value, count in counted.items() if count >= needed(ask, options))
        viable = frozenset(enough) if viable is None else viable & enough
    for ask in options:
        if number in ask.constraints:
            options[ask] = tuple(
                option
                for option in options[ask]
                if (found := values[option.number]) and (viable is None or not viable.isdisjoint(found))
            )


def _unmatched(problem: Problem, options: Options) -> str:
    """Why not even a matching of requests to devices exists, constraints aside; nothing where one does.

    Augmenting paths (Kuhn); devices that several may have are always there.
    """
    holder: dict[int, int] = {}
    choices: list[list[int]] = []
    names = []
    for request in problem.requests:
        asks = [ask for ask in request if ask in options]
        if any(ask.wish.admin or any(option.device.shared for option in options[ask]) for ask in asks):
            continue
        numbers = list(dict.fromkeys(option.number for ask in asks for option in options[ask]))
        for _ in range(min(needed(ask, options) for ask in asks)):
            choices.append(numbers)
            names.append(asks[0])

    def placed(slot: int, seen: set[int]) -> bool:
        for number in choices[slot]:
            if number not in seen:
                seen.add(number)
                if number not in holder or placed(holder[number], seen):
                    holder[number] = slot
                    return True
        return False

    for slot, ask in enumerate(names):
        if not placed(slot, set()):
            return _too_few(problem, [ask])
    return ""
