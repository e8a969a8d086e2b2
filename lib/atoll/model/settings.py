"""What a setting is: a field of a frozen section, with a unit, bounds, and a text that says what it does and why its
default is what it is. Values only, so that what decides takes its settings as it takes events; where they are read from
is `atoll.kube.settings`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

Json = dict[str, Any]

_LONGEST: Final = 1e9
"""Of all times, in seconds: another setting stands for never."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of one subject."""


def seconds(
    text: str, *, least: float = 0.0, above: float | None = None, below: float = _LONGEST, flag: str = ""
) -> msgspec.Meta:
    """A time.

    Args:
        text: its purpose, and the reason for its default.
        least: it may be.
        above: it must be greater; then `least` does not count.
        below: it may be no more.
        flag: that sets it.
    """
    bound: Json = {"ge": least} if above is None else {"gt": above}
    return msgspec.Meta(title="s", description=text, le=below, extra={"flag": flag}, **bound)


def number(text: str, unit: str = "", *, least: int = 1, most: int | None = None, flag: str = "") -> msgspec.Meta:
    """How many, how large; `unit` is empty where the text says of what."""
    return msgspec.Meta(title=unit, description=text, ge=least, le=most, extra={"flag": flag})


def ratio(text: str, unit: str = "", *, flag: str = "") -> msgspec.Meta:
    """A number above 0."""
    return msgspec.Meta(title=unit, description=text, gt=0, le=_LONGEST, extra={"flag": flag})


def words(text: str, *, flag: str = "", needed: bool = False) -> msgspec.Meta:
    """A name, a path, an address, or one of several words; `needed`: the process does not start without it."""
    return msgspec.Meta(title="", description=text, extra={"flag": flag, "needed": needed})
