"""resourceVersions are compared as numbers, and only where both are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from atoll.model import versions

ROOT = Path(__file__).parents[2]
_TEXT = r"[\w.\[\]\"']*resource_?version[\"'\]]*"
_ORDERED = re.compile(rf"{_TEXT} [<>]=? |[^-][<>]=? {_TEXT}", re.IGNORECASE)


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("999", "1001", True),
        ("1001", "999", False),
        ("7", "7", False),
        ("", "7", False),
        ("7", "", False),
        ("a", "b", False),
        ("07", "8", False),
        ("²", "8", False),
        ("1" * 5000, "8", False),
    ],
)
def test_a_version_is_older_only_as_a_smaller_number(version: str, than: str, *, older: bool) -> None:
    assert versions.older(version, than) is older


def test_no_source_compares_versions_as_texts() -> None:
    assert _ORDERED.search('assert kept["metadata"]["resourceVersion"] >= made["metadata"]["resourceVersion"]')
    sources = (path for path in ROOT.glob("[!.]*/**/*.py") if path != Path(__file__))
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sources
        for line in path.read_text("utf-8").splitlines()
        if _ORDERED.search(line)
    ]
    assert found == []
