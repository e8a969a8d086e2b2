"""The one error of an installation that is not the API server's."""

from __future__ import annotations

from collections.abc import Collection

_NAMED = 5


class Refused(Exception):
    """The cluster can't be prepared as it is; the message names the obstacle and the remedy."""


def some(names: Collection[str]) -> str:
    """The first of them in order, and whether there are more."""
    return ", ".join(sorted(names)[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
