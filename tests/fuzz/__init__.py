"""Random and hostile input for everything that reads what others wrote; a few examples in `make test`, many in
`make fuzz`.
"""

from __future__ import annotations

#: examples per test when the run says how many; set by conftest before tests are collected
wanted: int | None = None


def examples(default: int, share: float = 1.0) -> int:
    """How many examples a test tries.

    Args:
        default: where the run does not say how many: what takes a second or two.
        share: of `--fuzz-examples`, less than 1 where one example takes many times as long as that of a review.
    """
    return default if wanted is None else max(1, round(wanted * share))
