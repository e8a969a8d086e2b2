"""The check that nobody reads what is private to the core finds who does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dispatcher.private import findings


@pytest.mark.parametrize(
    ("outside", "found"),
    [
        pytest.param("thing._kept", True, id="an attribute"),
        pytest.param("from atoll.dispatcher.core.a import _made", True, id="an import"),
        pytest.param("self._kept", False, id="one of its own"),
        pytest.param("thing._both", False, id="a name that others have too"),
        pytest.param("thing.kept", False, id="a public one"),
    ],
)
def test_what_is_private_to_the_core_is_found_where_it_is_read(tmp_path: Path, outside: str, found: bool) -> None:
    core = tmp_path / "core"
    core.mkdir()
    (core / "a.py").write_text(
        "class A:\n    def __init__(self):\n        self._kept = self._both = 1\n\ndef _made(): ...\n"
    )
    (tmp_path / "b.py").write_text("class B:\n    def __init__(self):\n        self._both = 1\n")
    (tmp_path / "c.py").write_text(outside)
    assert bool(findings([tmp_path], core)) == found
