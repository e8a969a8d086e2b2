"""What nobody can mean, or what is beyond all measure, in what a workload asks for.

The templates of most kinds are not checked before a member sees them, so their users may have written anything. The
core takes what it is told for granted: what is refused here would end the dispatcher, or stop it, for everybody.
"""

from __future__ import annotations

import msgspec

from atoll.model.gang import Gang

MOST_PODS = 1_000_000
MOST_UNITS = 2**60
"""Of a resource, for one pod."""


class BadWish(ValueError):
    """No workload can ask for that; the message names the field."""


class _Expression(msgspec.Struct, rename="camel"):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel"):
    match_expressions: list[_Expression] | None = None
    match_fields: list[_Expression] | None = None


def check(wish: Gang) -> None:
    """Refuse what can't be decided on.

    Raises:
        BadWish: it is such.
    """
    pods = 0
    if not 0 <= wish.min_available <= MOST_PODS:
        raise BadWish(f"minAvailable: {wish.min_available} is not between 0 and {MOST_PODS}")
    for task in wish.tasks:
        pods += task.replicas
        if task.replicas < 0 or not 0 <= task.min_available <= MOST_PODS or pods > MOST_PODS:
            raise BadWish(f"task {task.name}: numbers of pods must be between 0 and {MOST_PODS}")
        amounts = task.requests.values()
        if amounts and not (min(amounts) >= 0 and max(amounts) <= MOST_UNITS):
            raise BadWish(f"task {task.name}: requests must be between 0 and an exa")
        if task.node_terms:
            try:
                msgspec.convert(task.node_terms, list[_Term])
            except msgspec.ValidationError as error:
                raise BadWish(f"task {task.name}: its required node affinity: {error}") from error
