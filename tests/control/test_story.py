"""Which changes of a binding's conditions are told as Events."""

from __future__ import annotations

import pytest

from atoll.control.story import arrows


def condition(type_: str, status: str, reason: str = "Because", message: str = "m") -> dict:
    return {"type": type_, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(
            [], [condition("Scheduled", "True", "Success")], [("Dispatched", "m", False)], id="a dispatch is told"
        ),
        pytest.param(
            [],
            [condition("Scheduled", "False", "QuotaExceeded")],
            [("QuotaExceeded", "m", True)],
            id="waiting is a warning",
        ),
        pytest.param(
            [], [condition("Scheduled", "False", "Held")], [("Held", "m", False)], id="the user's own hold is none"
        ),
        pytest.param(
            [condition("Scheduled", "False", "QuotaExceeded")],
            [condition("Scheduled", "False", "QuotaExceeded", "other numbers")],
            [],
            id="other numbers alone are not told",
        ),
        pytest.param(
            [condition("Bound", "True")],
            [condition("Bound", "True"), condition("Running", "True")],
            [("Running", "its minimum runs", False)],
            id="only what is new is told",
        ),
        pytest.param(
            [],
            [condition("Finished", "True", "Failed")],
            [("Finished", "ended: Failed", True)],
            id="failure is a warning",
        ),
        pytest.param([], [condition("FullyApplied", "True")], [], id="an application that went well is no news"),
        pytest.param(
            [condition("Resized", "True", "Shrunk", "3 pods, not 6")],
            [condition("Resized", "True", "Shrunk", "2 pods, not 3")],
            [("Shrunk", "2 pods, not 3", False)],
            id="it shrank twice",
        ),
        pytest.param(
            [condition("Resized", "True", "Grown")], [condition("Resized", "True", "Grown")], [], id="nor did it grow"
        ),
        pytest.param(
            [], [condition("FullyApplied", "False")], [("NotApplied", "m", True)], id="one that did not is a warning"
        ),
    ],
)
def test_arrows(before: list, after: list, told: list) -> None:
    assert list(arrows(before, after)) == told
