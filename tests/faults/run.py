"""Runs scenarios in one federation, one after the other, and judges each by its part of the audit logs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from atoll.kube import errors
from atoll.model.apiresource import DEPLOYMENTS
from tests.chaos import drive, plan, report
from tests.chaos.connections import Connections
from tests.chaos.record import Facts
from tests.chaos.run import Outcome, clients, judge_of, play, stage
from tests.faults import verdict
from tests.faults.ground import Ground, Scenario
from tests.faults.verdict import Verdict

log = structlog.get_logger(__name__)


async def run(
    scenarios: Mapping[str, Scenario],
    directory: Path,
    *,
    quick: bool,
    pace: float,
    say: Callable[[str], None] = lambda _: None,
) -> list[Verdict]:
    """A verdict for each, also where the federation does not come up; nothing is left running."""
    connections = Connections(directory / "proxies", 1, lambda name: federation.process(name).kill())
    federation = stage(directory, connections, pace=pace, say=say)
    verdicts: list[Verdict] = []
    try:
        async with federation, clients(federation) as (host, members):
            await drive.prepare(host, pace=pace)
            for name, scenario in scenarios.items():
                say(f"== {name}")
                ground = Ground(federation, connections, host, members, pace, quick, say)
                verdicts.append(await _one(name, scenario, ground, directory / "logs"))
                say(str(verdicts[-1]))
    except Exception as error:
        log.exception("the run broke")
        verdicts += [Verdict(name, 0, 0, 0, 0, repr(error)) for name in list(scenarios)[len(verdicts) :]]
    finally:
        await connections.stop()
    return verdicts


async def _one(name: str, scenario: Scenario, ground: Ground, logs: Path) -> Verdict:
    wishes = scenario.wishes(ground.quick)
    facts = Facts(0, 0.0, ground.pace)
    users, began = drive.Drive(ground.host, wishes, pace=ground.pace), time.time()
    for service in plan.services():
        # The scenario before this one has deleted everything.
        with contextlib.suppress(errors.AlreadyExists):
            await ground.host.create(DEPLOYMENTS, service)
    try:
        await play(users, scenario.play(ground), facts, wishes, ground.members, drive.PATIENCE_S, ground.say)
    except Exception as error:
        log.exception("the scenario broke", scenario=name)
        facts.broken = repr(error)
    facts.spans, facts.checkpoints = ground.spans, ground.checkpoints
    outcome = judge_of(facts, wishes, logs, began, ground.undone)
    found = [each for each in outcome.violations if each.check not in scenario.EXEMPT]
    found += getattr(scenario, "own_checks", lambda _: [])(outcome.record)
    print(report.explanations(Outcome(outcome.facts, outcome.record, found)), end="")
    for problem in ground.problems:
        print(f"PROBLEM {name}: {problem}")
    return verdict.of(name, len(ground.spans), found, ground.problems, facts.broken)
