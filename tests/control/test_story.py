"""Which changes of a binding's conditions are told as Events."""

from __future__ import annotations

import pytest

from atoll.control.story import arrows, sizes
from atoll.model.decision import Decision, Line, Phase
from atoll.model.verdict import Reason


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
            [condition("Scheduled", "True", "Success")],
            [
                condition("Scheduled", "True", "Success"),
                condition("Bound", "True"),
                condition("Running", "True"),
                condition("Finished", "True", "Succeeded"),
            ],
            [],
            id="a run without trouble is no news",
        ),
        pytest.param(
            [condition("Running", "False", "NotStarting")],
            [condition("Running", "True", "MinimumRuns")],
            [("Running", "its minimum runs", False)],
            id="the end of a trouble is told",
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


def story(*reasons: Reason) -> Decision:
    lines = [Line("2026-01-01T00:00:00Z", Phase.DISPATCHED, reason, f"line {n}") for n, reason in enumerate(reasons)]
    return Decision(1, Phase.DISPATCHED, reasons[-1], story=lines)


@pytest.mark.parametrize(
    ("reasons", "resized", "limited"),
    [
        pytest.param([Reason.DISPATCHED], None, None, id="dispatched"),
        pytest.param([Reason.DISPATCHED, Reason.GROWN], "line 1", None, id="it grew"),
        pytest.param(
            [Reason.DISPATCHED, Reason.SHRUNK, Reason.QUOTA_EXCEEDED], "line 1", "line 2", id="and can't again"
        ),
        pytest.param([Reason.GROWN, Reason.EVICTED, Reason.DISPATCHED], None, None, id="what it was before"),
        pytest.param([Reason.QUOTA_EXCEEDED] * 16, None, "line 15", id="a story that does not reach so far"),
    ],
)
def test_what_a_story_says_of_sizes(reasons: list[Reason], resized: str | None, limited: str | None) -> None:
    assert tuple(line and line.text for line in sizes(story(*reasons))) == (resized, limited)
