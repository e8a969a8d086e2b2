"""Completion and the reference page: what they know comes from the commands themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.cli import reference
from atoll.cli.completion import candidates


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["jo"], {"join", "job"}, id="the beginning of a command"),
        pytest.param(["job", "re"], {"release", "resume", "restart", "retry"}, id="a command below another"),
        pytest.param(["queue", "list", "--wa"], {"--watch"}, id="an option"),
        pytest.param(["queue", "describe", "q", "-o", ""], {"json", "yaml"}, id="the values of an option"),
    ],
)
def test_candidates_are_what_may_stand_there(words: list[str], expected: set[str]) -> None:
    before = dict(os.environ)
    assert {line.split("\t")[0] for line in candidates(words)} == expected
    assert dict(os.environ) == before


def test_the_page_is_up_to_date() -> None:
    assert reference.main(["--check"]) == 0, "run: python -m atoll.cli.reference"


def test_a_page_that_differs_is_reported_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "cli.md"
    monkeypatch.setattr(reference, "PAGE", page)
    assert reference.main(["--check"]) == 1
    assert "python -m atoll.cli.reference" in capsys.readouterr().err
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0


def test_every_command_is_on_the_page_with_an_example() -> None:
    sections = reference.page().split("\n## ")[2:]
    assert {section.partition("\n")[0] for section in sections} >= {"atollctl unjoin", "atollctl job abort"}
    assert all("\nExample: `atollctl " in section for section in sections)
