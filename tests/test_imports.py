"""What `python -m tests.imports` finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.imports import findings


@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param("from tests.kube.test_election import LeaseServer", True, id="a name of a test module"),
        pytest.param("from tests.kube import test_election", True, id="a test module"),
        pytest.param("import tests.kube.test_election as election", True, id="a test module by another name"),
        pytest.param("def late():\n    from tests.kube.test_election import LeaseServer", True, id="in a function"),
        pytest.param("from tests.kube.servers import serving", False, id="a module of its own"),
        pytest.param("from aiohttp.test_utils import TestServer", False, id="a library's"),
    ],
)
def test_imports_of_test_modules_are_found(line: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(line)
    assert bool(findings([tmp_path])) == found
