"""docs/architecture.md: every place that it names is there."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT

PAGE = (DOCS / "architecture.md").read_text("utf-8")
CORE = ROOT / "dispatcher" / "atoll" / "dispatcher" / "core"


def rows(heading: str) -> list[str]:
    """The rows of the table that begins with this line."""
    table = PAGE.split(f"\n{heading}\n")[1].split("\n\n")[0]
    return table.splitlines()[1:]


def test_every_place_of_a_change_exists() -> None:
    found = rows("| what changes | where |")
    assert len(found) > 14
    for row in found:
        paths = re.findall(r"`([\w.]+/[\w./]*)`", row)
        assert paths, row
        assert not [path for path in paths if not (ROOT / path).exists()]


def test_every_name_in_a_place_is_defined_there() -> None:
    named = re.findall(r"`([\w/]+\.py)` \(`(\w+)`\)", "\n".join(rows("| what changes | where |")))
    assert named
    for path, name in named:
        assert re.search(rf"^ *(def |class )?{name}\b", (ROOT / path).read_text("utf-8"), re.M), (path, name)


def test_every_file_and_folder_of_the_core_that_is_named_exists() -> None:
    names = re.findall(
        r"`([a-z_]+(?:\.py|/))`", "\n".join(rows("| in `dispatcher/.../core/` | what is decided there |"))
    )
    assert len(names) > 10
    assert not [name for name in names if not any(CORE.rglob(name.rstrip("/")))]
