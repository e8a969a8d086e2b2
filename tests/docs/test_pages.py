"""What the pages say exists: links, commands, make targets, the generated reference."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from atoll.api import reference
from atoll.api.models import KINDS
from tests.cli.command_line import parse
from tests.docs.pages import DOCS, PAGES, ROOT, anchors, blocks, commands, links


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_test_file_that_is_named_with_its_path_exists(page: Path) -> None:
    named = set(re.findall(r"\btests/[\w/]+\.py\b", page.read_text("utf-8")))
    assert not [each for each in named if not (ROOT / each).exists()]


def test_every_page_of_docs_is_in_the_index() -> None:
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= set(links(DOCS / "README.md"))


TYPED = [(_name(page), line) for page in PAGES for line in commands(page) if line.startswith("atollctl ")]


@pytest.mark.parametrize(("page", "line"), TYPED, ids=[f"{page}: {line}" for page, line in TYPED])
def test_every_atollctl_command_is_one_that_the_program_takes(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line.split("|")[0], comments=True)[1:]
    for word in words:
        if word.endswith((".yaml", ".kubeconfig")):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).touch()
    parse(words)


@pytest.mark.parametrize(
    "words", [["job", "lost"], ["explain"], ["queue", "create", "a", "--size", "3"], ["local", "up", "--nodes", "x"]]
)
def test_a_command_that_the_program_does_not_take_is_noticed(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing|valid integer"):
        parse(words)


TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
MADE = sorted(
    {
        (_name(page), target)
        for page in PAGES
        for language in ("", "console", "sh", "bash", "shell")
        for body in blocks(page, language)
        for target in re.findall(r"^ *(?:\$ )?make ([a-z-]+)", body, re.M)
    }
)


def test_the_readme_shows_make_targets() -> None:
    assert any(page == "README.md" for page, _ in MADE)


@pytest.mark.parametrize(("page", "target"), MADE, ids=[f"{page}: make {target}" for page, target in MADE])
def test_every_make_target_in_a_block_is_in_the_makefile(page: str, target: str) -> None:
    assert target in TARGETS


def test_the_reference_is_what_the_models_say() -> None:
    assert (DOCS / "api.md").read_text("utf-8") == reference.render(), "run python -m atoll.api.reference"


@pytest.mark.parametrize("model", KINDS.values(), ids=lambda model: model.resource.crd_name)
def test_the_reference_has_every_kind_with_a_type_for_every_field(model: Any) -> None:
    section = reference.render().split(f"\n## {model.resource.kind}\n")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert rows
    assert all(len(row) == 5 and row[1] not in ("", "any") for row in rows)
