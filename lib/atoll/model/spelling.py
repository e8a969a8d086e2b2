"""The known name that a word may be meant for: most unknown names are misspelt."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from typing import Final

_COMPARED: Final = 1_000
"""Names: a comparison takes a few microseconds, and whoever creates many must not slow others down."""
_LONGER: Final = 4
"""Characters by which a name may be longer or shorter than the word."""


def near(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names that are spelt like the word, the nearest first."""
    similar = (each for each in known if abs(len(each) - len(word)) <= _LONGER)
    return difflib.get_close_matches(word, list(itertools.islice(similar, _COMPARED)), most)


def meant(word: str, known: Iterable[str]) -> str:
    """`; did you mean NAME?`, or nothing where no known name is near."""
    found = near(word, known)
    return f"; did you mean {found[0]}?" if found else ""
