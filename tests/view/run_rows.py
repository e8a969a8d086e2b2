"""Rows of runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from atoll.model.runs import Part, Record, Run, columns
from atoll.model.timestamps import rfc3339

NOON = datetime(2026, 10, 15, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def at(hours: float) -> str:
    return rfc3339((NOON + timedelta(hours=hours)).timestamp())


def row(name: str, hours: float, *, begin: float = 0.0, outcome: str = "Succeeded",
    held: dict[str, float] | None = None, busy: dict[str, float] | None = None, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """A run of two members; `held` in one alone, `busy` in each."""
    parts = [
        Part("alpha", 1, granted={GPU: 2.0}, seconds={GPU: 2 * hours * 3600, "memory": hours * 3600 * 2**30}),
        Part("beta", 1, granted={GPU: 6.0}, seconds={GPU: 6 * hours * 3600}),
    ]
    if held is not None:
        parts = [Part("alpha", 1, seconds={name: amount * hours * 3600 for name, amount in held.items()})]
    parts = [msgspec.structs.replace(part, busy=busy or {}) for part in parts]
    end = at(begin + hours)
    run = Run(
        1, at(begin), at(begin - 1), **{"queue": "q", "user": "ann", "queued": at(begin - 1), **more}, bound=at(begin),
        running=at(begin), ended=end, released=end, outcome=outcome, parts=parts,
    )  # fmt: skip
    return columns(Record(f"uid-{name}", "team", name, "Job.batch", run))
