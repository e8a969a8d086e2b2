"""The page of Volcano's tables names tests, and cases of them, that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGE = Path(__file__).parent / "TABLES.md"
_ROW = re.compile(r"\| `(tests/[\w/]+\.py)(?:::(test_\w+))?` \| (?:`([^`]+)`)?")


def rows(page: str) -> list[tuple[str, str, str]]:
    """(file, test, case) of every row that names a test."""
    return _ROW.findall(page)


def missing(found: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """The rows whose test or case is not there."""
    texts = {file: path.read_text() if (path := _ROOT / file).exists() else "" for file, _, _ in found}
    return [
        row
        for row in found
        if not texts[row[0]]
        or (row[1] and f"def {row[1]}(" not in texts[row[0]])
        or (row[2] and f'"{row[2]}"' not in texts[row[0]])
    ]


def test_every_test_and_case_that_the_page_names_exists() -> None:
    found = rows(_PAGE.read_text())
    assert len(found) > 80
    assert missing(found) == []


@pytest.mark.parametrize(
    "row",
    [
        "| `tests/agent/test_nothing.py` | |",
        "| `tests/agent/test_state.py::test_nothing` | |",
        "| `tests/agent/test_state.py::test_phase` | `no such case` |",
    ],
    ids=["file", "test", "case"],
)
def test_what_is_not_there_is_noticed(row: str) -> None:
    assert len(missing(rows(row))) == 1
