"""The pages of the repository, and what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.M)


def blocks(page: Path, language: str) -> Iterator[str]:
    """The fenced blocks of a page that are marked with this language."""
    return (body for marked, body in _FENCE.findall(page.read_text("utf-8")) if marked == language)


def links(page: Path) -> list[str]:
    """Targets of all links and images outside fenced blocks."""
    return _LINK.findall(_FENCE.sub("", page.read_text("utf-8")))


def anchors(page: Path) -> set[str]:
    """What `#...` may name in a page, by the rule of the common renderers."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> Iterator[str]:
    """What a page tells its reader to type: the lines after a prompt in console blocks."""
    for body in blocks(page, "console"):
        for line in body.replace("\\\n", " ").splitlines():
            if line.lstrip().startswith("$ "):
                yield line.lstrip()[2:]


def rows(page: Path, section: str) -> list[list[str]]:
    """The cells of the rows of a section that begin with code."""
    text = page.read_text("utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
