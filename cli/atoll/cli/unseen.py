"""Objects that a user may not see: commands show the rest, and name the missing ones."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Unseen:
    """Collects refusals while a command looks around."""

    def __init__(self) -> None:
        #: what, and the right that is missing; in the order of the first refusal
        self._lines: dict[str, None] = {}

    @property
    def lines(self) -> tuple[str, ...]:
        """A line each."""
        return tuple(self._lines)

    async def allowed(self, what: str, look: Awaitable[T]) -> T | None:
        """What there is to see; None where this user may not see it.

        Args:
            what: is looked for, in words.
            look: at it.
        """
        from atoll.kube.errors import Forbidden

        try:
            return await look
        except Forbidden as error:
            self._lines[f"{what} ({missing_right(error.message)})"] = None
            return None


def missing_right(message: str) -> str:
    """The right that is missing, in the words of the authorizer without its user's name and the rest."""
    _, _, rest = message.partition(" cannot ")
    verb, says, rest = rest.partition(' resource "')
    resource, _, rest = rest.partition('"')
    if not says:
        return message
    _, named, where = rest.partition(' in the namespace "')
    return f"no right to {verb} {resource}" + (f" in namespace {where.partition(chr(34))[0]}" if named else "")
