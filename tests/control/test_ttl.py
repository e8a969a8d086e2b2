"""When a finished workload is removed."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.control.ttl import due_at
from atoll.kinds import batch_job, volcano_job

AT = 1767225600.0


def ended(*conditions: dict[str, str], ttl: int | None = 30, **status: Any) -> dict[str, Any]:
    spec = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    return {"spec": spec, "status": {**status, "conditions": list(conditions)}}


def entered(phase: str, second: int) -> dict[str, str]:
    return {"status": phase, "lastTransitionTime": f"2026-01-01T00:00:{second:02}Z"}


def true(kind: str, second: int, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": f"2026-01-01T00:00:{second:02}Z"}


CASES: list[tuple[str, dict[str, Any], float | None]] = [
    (
        "a Volcano Job counts from the condition of its last phase",
        ended(entered("Running", 1), entered("Completed", 5), state={"phase": "Completed"}),
        AT + 35,
    ),
    (
        "without that condition, from the transition of its state",
        ended(state={"phase": "Failed", "lastTransitionTime": "2026-01-01T00:00:07Z"}),
        AT + 37,
    ),
    ("a batch Job counts from its completionTime", ended(completionTime="2026-01-01T00:00:09Z"), AT + 39),
    ("a batch Job that failed has none: from its condition", ended(true("Failed", 4), true("Ready", 8)), AT + 34),
    ("a final condition that is false is none", ended(true("Failed", 4, "False")), None),
    ("a TTL of 0 is at once", ended(ttl=0, completionTime="2026-01-01T00:00:09Z"), AT + 9),
    ("without a TTL it stays", ended(entered("Completed", 5), ttl=None, state={"phase": "Completed"}), None),
    ("without a time it stays", ended(state={"phase": "Completed"}), None),
]


@pytest.mark.parametrize(("obj", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_due(obj: dict[str, Any], expected: float | None) -> None:
    kind = volcano_job.KIND if "state" in obj["status"] else batch_job.KIND
    assert due_at(kind, obj) == expected
