"""docs/reliability.md names tests that there are."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "reliability.md"
DEFAULT = "tests/integration/test_lost.py"
_ROW = re.compile(r"^\| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, list[str]]]:
    """(failure, file, tests) of the table of what is lost, drained and cut off."""
    table = PAGE.read_text("utf-8").partition("| failure | what must hold | test |")[2].partition("\n\n")[0]
    found = []
    for failure, _, said in _ROW.findall(table):
        named = re.findall(r"`([^`]+)`", said)
        files = [each for each in named if each.startswith("tests/")]
        found.append((failure, files[0] if files else DEFAULT, [each for each in named if each.startswith("test_")]))
    return found


def test_the_table_has_what_must_be_shown() -> None:
    text = "\n".join(failure for failure, _, _ in rows())
    for words in (
        "refuses",
        "between reserve and commit",
        "host",
        "dies while work runs",
        "returns",
        "cut off",
        "drained",
    ):
        assert words in text


@pytest.mark.parametrize(("failure", "file", "tests"), [pytest.param(*row, id=row[0]) for row in rows()])
def test_each_row_is_a_test(failure: str, file: str, tests: list[str]) -> None:
    assert tests, failure
    have = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / file).read_text("utf-8"), re.MULTILINE)
    for name in tests:
        begin, dots, _ = name.partition("...")
        assert [each for each in have if (each.startswith(begin) if dots else each == begin)], f"{file} has no {name}"
