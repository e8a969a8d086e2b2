"""A short run of the chaos suite: no invariant is violated. `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import pace, report
from tests.chaos.run import judge, run

pytestmark = pytest.mark.integration

SEED, SECONDS = 7, 8.0


@pytest.mark.timeout(900)
async def test_nothing_is_lost_or_doubled_whatever_fails(tmp_path: Path) -> None:
    outcome = judge(await run(SEED, SECONDS, tmp_path, every=0.7, pace=pace.measured()), tmp_path / "logs")
    print(report.line(outcome))
    assert not outcome.facts.broken
    assert outcome.facts.spans, "faults were played"
    assert outcome.record.pods, "pods were made"
    assert not outcome.violations, "\n".join(report.explain(outcome, each) for each in outcome.violations)
