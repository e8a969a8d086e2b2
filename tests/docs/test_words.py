"""Texts that people see use the words of the glossary in docs/concepts.md, and none of those that it replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS

ROOT = DOCS.parent
FOLDERS = ("agent", "cli", "crds", "deploy", "dispatcher", "global", "lib", "sim", "topology", "webhook")

INSTEAD = {
    r"no(body|-one| one)|somebody|anybody|whom": "name the workload, queue, member, user or program",
    r"tak(e|es|en|ing) back": "evict; reclaim, of what a queue borrowed",
    r"told to go|lets? go|let go of": "evict",
    r"mend(s|ed|ing)?": "fix",
    r"promis(e|es|ed)|room (that )?is kept|kept for others": "reserve",
    r"ma(ke|kes|de|king) room|room made": "its victims are evicted",
}
"""What is not said, and what is said instead."""

PROMISES = {"security.md", "reliability.md"}
"""Pages of what the project promises, which is the word for it."""
_KEY = "promises"
"""Of `atollctl simulate --json`: programs read it."""


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what a module may print, write or serve; `tests.words` counts in docstrings and comments."""
    tree = ast.parse(file.read_text("utf-8"))
    docstrings = {
        id(first.value)
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for first in body
        if isinstance(first, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, "" if node.value == _KEY else node.value


def served(file: Path) -> Iterator[tuple[int, str]]:
    """The same of docstrings that are descriptions: of the API, of settings, of commands."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        if node is tree.body[0]:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def worse(text: str, *, but: str = "") -> list[str]:
    """Words that are not used any more, with those that are."""
    return [
        f"{found[0]!r}: {better}"
        for pattern, better in INSTEAD.items()
        if pattern != but
        for found in re.finditer(rf"\b({pattern})\b", text, re.I)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_texts_of_the_programs_use_the_words_of_the_glossary(folder: str) -> None:
    bad = [
        f"{file.relative_to(ROOT)}:{line}: {each}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line, text in texts(file)
        for each in worse(text)
    ]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("folder", ["crds", "lib/atoll/model/query.py", "cli"])
def test_descriptions_use_the_words_of_the_glossary(folder: str) -> None:
    path = ROOT / folder
    bad = [
        f"{file.relative_to(ROOT)}:{line}: {each}"
        for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
        for line, text in served(file)
        for each in worse(text)
    ]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    but = next(pattern for pattern in INSTEAD if "promis" in pattern) if page.name in PROMISES else ""
    # Names of tests are names.
    lines = [re.sub(r"`[^`]*`|\*[^*]*\*", "", line) for line in page.read_text("utf-8").splitlines()]
    bad = [f"{page.name}:{number}: {each}" for number, line in enumerate(lines, 1) for each in worse(line, but=but)]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("while no webhook runs, nobody can create jobs", 1),
        ("Those for whom room is kept were let go.", 3),
        ("it is evicted; the capacity is reserved for its claimant", 0),
    ],
)
def test_a_word_that_is_not_used_any_more_is_found(text: str, bad: int) -> None:
    assert len(worse(text)) == bad
