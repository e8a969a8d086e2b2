"""`python -m pytest tests/fuzz --fuzz-examples=50000`."""

from __future__ import annotations

import pytest

from tests import fuzz


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-examples", type=int, default=None, help="examples per fuzz test (default: each its own)")


def pytest_configure(config: pytest.Config) -> None:
    # Where the folder is not named on the command line, the option is not known to the parser.
    fuzz.wanted = config.getoption("--fuzz-examples", default=None)
