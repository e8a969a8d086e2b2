"""A short run of the chaos suite, among the long tests: no invariant is violated. CI runs `make chaos` for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.agent.settings import AgentSettings
from atoll.control.settings import ControlSettings
from atoll.dispatcher.settings import DispatcherSettings
from atoll.kube.settings import ProcessSettings, load
from tests.chaos import pace, report
from tests.chaos.run import MOVES, deadlines, judge, run

SEED, SECONDS = 7, 8.0


@pytest.mark.parametrize("slow", [1.0, 1.0152, 1.5, 3.97])
@pytest.mark.parametrize(
    ("process", "model"), [("control", ControlSettings), ("dispatcher", DispatcherSettings), ("agent", AgentSettings)]
)
def test_processes_take_the_deadlines_of_a_slow_machine(
    slow: float, process: str, model: type[ProcessSettings]
) -> None:
    needed = ("--cluster=m",) if process == "agent" else ()
    moves = MOVES if process == "dispatcher" else ()
    load(model, process, "", (*needed, *deadlines(slow)[process], *moves))


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(900)
async def test_nothing_is_lost_or_doubled_whatever_fails(tmp_path: Path) -> None:
    outcome = judge(await run(SEED, SECONDS, tmp_path, every=0.7, pace=pace.measured()), tmp_path / "logs")
    print(report.line(outcome))
    assert not outcome.facts.broken
    assert outcome.facts.spans, "faults were played"
    assert outcome.record.pods, "pods were made"
    assert not outcome.violations, "\n".join(report.explain(outcome, each) for each in outcome.violations)
