"""What `python -m tests.imports` finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.imports import findings, modules, unused


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


def test_a_module_that_no_other_one_uses_is_found(tmp_path: Path) -> None:
    """Imported, named in a table, a program, and in the project's file: used. Importing itself is no use."""
    package = tmp_path / "atoll" / "cli"
    package.mkdir(parents=True)
    for name, text in {
        "app": "from atoll.cli.shared import x\nTABLE = ['named']",
        "shared": "",
        "named": "",
        "program": "if __name__ == '__main__': pass",
        "lonely": "import atoll.cli.lonely",
        "entry": "",
    }.items():
        (package / f"{name}.py").write_text(text, "utf-8")
    assert unused(modules([tmp_path]), {}, "atoll.cli.app atoll.cli.entry:main") == ["atoll.cli.lonely"]
