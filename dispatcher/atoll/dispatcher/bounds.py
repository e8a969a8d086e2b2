"""What nobody can mean, or what is beyond all measure, in what a workload asks for and in what is said of it.

The templates of most kinds are not checked before a member sees them, so their users may have written anything. The
core takes what it is told for granted: what is refused here would end the dispatcher, or stop it, for everybody. The
same goes for annotations that somebody changed by hand.
"""

from __future__ import annotations

from atoll.model import selectors
from atoll.model.decision import Decision
from atoll.model.gang import Gang
from atoll.model.timestamps import to_seconds

MOST_PODS = 1_000_000
MOST_UNITS = 2**60
"""Of a resource, for one pod."""


class BadWish(ValueError):
    """No workload can ask for that; the message names the field."""


class BadDecision(ValueError):
    """No dispatcher wrote that; the message names the field."""


def check(wish: Gang) -> None:
    """Refuse what can't be decided on.

    Raises:
        BadWish: it is such.
    """
    pods = 0
    if wish.submitted and not _is_time(wish.submitted):
        raise BadWish(f"submitted: {wish.submitted!r} is no time")
    if not 0 <= wish.min_available <= MOST_PODS:
        raise BadWish(f"minAvailable: {wish.min_available} is not between 0 and {MOST_PODS}")
    if not wish.tasks:
        raise BadWish("tasks: there are none")
    for task in wish.tasks:
        pods += task.replicas
        if task.replicas < 0 or not 0 <= task.min_available <= MOST_PODS or pods > MOST_PODS:
            raise BadWish(f"task {task.name}: numbers of pods must be between 0 and {MOST_PODS}")
        amounts = task.requests.values()
        if amounts and not (min(amounts) >= 0 and max(amounts) <= MOST_UNITS):
            raise BadWish(f"task {task.name}: requests must be between 0 and an exa")
        try:
            selectors.check_node_terms(task.node_terms)
        except ValueError as error:
            raise BadWish(f"task {task.name}: its required node affinity: {error}") from error


def check_decision(told: Decision) -> None:
    """Refuse what can't be gone by.

    Raises:
        BadDecision: it is such.
    """
    if told.deadline and not _is_time(told.deadline):
        raise BadDecision(f"deadline: {told.deadline!r} is no time")
    for line in told.story:
        if not _is_time(line.at):
            raise BadDecision(f"story: {line.at!r} is no time")


def _is_time(text: str) -> bool:
    """Whether it is one that can be computed with."""
    try:
        return to_seconds(text) > 0
    except (ValueError, OverflowError):
        return False
