"""`make fuzz`, or `python -m pytest tests/fuzz --timeout=0 --fuzz-examples=50000`."""

from __future__ import annotations

import pytest

from tests import fuzz


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-examples",
        type=int,
        default=None,
        help="examples per test of reviews, a share of that for the slower ones (default: each its own)",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Where the folder is not named on the command line, the option is not known to the parser.
    fuzz.wanted = config.getoption("--fuzz-examples", default=None)
