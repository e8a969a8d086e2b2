"""Random and hostile input for everything that reads what others wrote; a few examples in `make test`, many in
`make fuzz`.
"""

from __future__ import annotations

#: examples per test when the run says how many; set by conftest before tests are collected
wanted: int | None = None


def examples(default: int) -> int:
    """How many examples a test tries: `--fuzz-examples`, else a number that takes a second or two."""
    return default if wanted is None else wanted
