"""Which words `python -m tests.words` counts, and that a budget only falls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import words
from tests.words import found


@pytest.mark.parametrize(
    ("source", "counted"),
    [
        pytest.param('"""What it says."""\n', ["what is"], id="a docstring of a module"),
        pytest.param("x = 1\n'''Whatever they are told.'''\n", ["what is", "told"], id="a docstring below a name"),
        pytest.param("# The queue that was said\n# to be full.\n", ["said"], id="a comment"),
        pytest.param("# Gangs are\n# to be placed.\n", ["is to be"], id="a phrase over two lines"),
        pytest.param("x = 1  # room for those of a gang\n", ["room", "those"], id="a comment behind code"),
        pytest.param("# Whom nobody asked.\n", ["nobody", "nobody"], id="persons without a name"),
        pytest.param("# A Room keeps the nodes; `room` is its name.\n", [], id="names of the code"),
        pytest.param("# Room for a gang.\n", ["room"], id="capacity at the start of a sentence"),
        pytest.param("said = 'told what it is'\n", [], id="names and texts that people see"),
    ],
)
def test_listed_words_are_counted_in_docstrings_and_comments(source: str, counted: list[str]) -> None:
    assert [word for _, word, _ in found(source)] == counted


def test_a_budget_only_falls_and_new_files_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "BUDGET", tmp_path / "budget.txt")
    (tmp_path / "lib").mkdir()
    old, new = tmp_path / "lib" / "old.py", tmp_path / "lib" / "new.py"

    old.write_text("# told, told\n")
    assert words.main(["--write"]) == 0
    old.write_text("# told, told, told\n")
    assert words.main(["--check"]) == 1
    assert words.main(["--write"]) == 1, "no number rises"
    old.write_text("# told\n")
    assert words.main(["--check"]) == 0
    assert words.main(["--write"]) == 0
    assert words.read(words.BUDGET) == {"lib/old.py": 1}
    new.write_text("# said\n")
    assert words.main(["--check"]) == 1
    assert "lib/new.py:1: said: said" in capsys.readouterr().out
