"""That several workloads of a namespace start together or not at all: annotation `atoll.sh/together`."""

from __future__ import annotations

import msgspec

MOST_NAME = 253


class BadTogether(ValueError):
    """It says nothing that could be kept; the message says why."""


class Together(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The gang group that a workload belongs to."""

    group: str
    """Its name in the namespace; of a HyperJob its UID."""
    least: int
    """What those must weigh together that start first; fewer never run."""
    weight: int = 1
    """What this one counts for."""
    domains: int = 0
    """Most members that all of the group may use; 0 for any number."""


def parse(text: str) -> Together:
    """What the annotation says.

    Raises:
        BadTogether: it can't be read.
    """
    try:
        found = msgspec.json.decode(text, type=Together)
    except msgspec.MsgspecError as error:
        raise BadTogether(f'can\'t be read ({error}); write it as {{"group": "a-name", "least": 2}}') from error
    if not 0 < len(found.group) <= MOST_NAME:
        raise BadTogether(f"its group has a name of {len(found.group)} characters; use 1 to {MOST_NAME}")
    if found.least < 1 or found.weight < 1:
        raise BadTogether(f"least {found.least} and weight {found.weight} must be 1 or more")
    if found.domains < 0:
        raise BadTogether(f"domains {found.domains} must be 1 or more, or left out for any number")
    return found


def read(text: str | None) -> Together | None:
    """The same; None where there is no annotation, or one that can't be read."""
    try:
        return parse(text) if text else None
    except BadTogether:
        return None


def write(wish: Together) -> str:
    """The annotation."""
    return msgspec.json.encode(wish).decode()
