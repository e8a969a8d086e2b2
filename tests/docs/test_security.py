"""docs/security.md: every promise names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import DOCS

PAGE = (DOCS / "security.md").read_text("utf-8")
TESTS = Path(__file__).parents[1]
_PROMISES = re.search(r"^## What is promised\n(.*?)^## ", PAGE, re.M | re.S)


def test_every_promise_is_shown_by_a_test() -> None:
    assert _PROMISES is not None
    rows = [line for line in _PROMISES[1].splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 20
    unshown = [row for row in rows if not re.search(r"`[a-z_/]+/test_\w+\.py::test_\w+`", row)]
    assert not unshown


def test_every_test_that_is_named_exists() -> None:
    missing = []
    for file, name in re.findall(r"`(?:tests/)?([a-z_/]+/test_\w+\.py)(?:::(test_\w+))?`", PAGE):
        path = TESTS / file
        if not path.exists() or (name and not re.search(rf"def {name}\(", path.read_text("utf-8"))):
            missing.append(f"{file}::{name}")
    assert not missing
