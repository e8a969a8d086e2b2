"""What a person reads after a run, and what `docs/reliability.md` is made of."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.checks import Violation, moves
from tests.chaos.player import recoveries
from tests.chaos.run import Outcome

_LINES = 60
"""Lines of audit logs that are printed for one violation."""


def rows(outcome: Outcome) -> dict[str, tuple[int, list[float]]]:
    """Fault -> (times, seconds until what it harmed wrote again)."""
    times = Counter(span.fault for span in outcome.record.faults)
    took: defaultdict[str, list[float]] = defaultdict(list)
    for span, seconds in recoveries(outcome.record.faults, outcome.record.writes):
        took[span.fault].append(seconds)
    return {fault: (times[fault], sorted(took[fault])) for fault in sorted(times)}


def table(outcome: Outcome) -> str:
    """Fault, times, recovered in (median and longest)."""
    lines = [f"{'fault':<44}{'times':>6}  recovered in, s: median, longest"]
    for fault, (times, took) in rows(outcome).items():
        text = f"{statistics.median(took):.2f}  {took[-1]:.2f}" if took else "-"
        lines.append(f"{fault:<44}{times:>6}  {text}")
    return "\n".join(lines)


def explanations(outcome: Outcome) -> str:
    """Every violation, the logs' lines once for each workload."""
    told: set[str] = set()
    text = ""
    for violation in outcome.violations:
        whole = explain(outcome, violation)
        text += (whole if violation.workload not in told else whole.partition("\n")[0]) + "\n"
        told.add(violation.workload)
    return text + "".join(f"{line}\n" for line in outcome.facts.pods_left)


def explain(outcome: Outcome, violation: Violation) -> str:
    """All that is needed to find the cause: seed, time, object, the log's lines about it, the faults around it."""
    record = outcome.record
    start = min((span.began for span in record.faults), default=0.0)
    at = f"{violation.at:.6f}, {violation.at - start:.3f} s after the first fault" if violation.at else "at the end"
    lines = record.lines.get(violation.workload, [])
    if violation.at:
        near = sorted(lines, key=lambda each: abs(each.at - violation.at))[:_LINES]
        lines = sorted(near, key=lambda each: each.at)
    else:
        lines = sorted(lines, key=lambda each: each.at)[-_LINES:]
    first, last = (lines[0].at, lines[-1].at) if lines else (violation.at, violation.at)
    around = [span for span in record.faults if span.began <= last and span.ended >= first - 5]
    wish = record.plan.get(violation.workload)
    told = [
        f"VIOLATION seed {outcome.facts.seed}, {violation.check}, {violation.workload}, {at}: {violation.text}",
        f"  {wish}",
        *(f"  fault {span.began:.3f} .. {span.ended:.3f} {span.fault} {span.detail}" for span in around),
        *(f"  {line}" for line in lines),
    ]
    return "\n".join(told)


def line(outcome: Outcome) -> str:
    """One line of counts."""
    record, facts = outcome.record, outcome.facts
    kills = ", ".join(f"{name} {times}" for name, times in facts.kills.items())
    moved = sum(1 for states in record.bindings.values() for _ in moves(states))
    again = sum(states[-1].epoch > 1 for states in record.bindings.values())
    return (
        f"seed {facts.seed}: {len(record.plan)} workloads, {len(record.pods)} pods, {len(record.written)} decisions, "
        f"{again} workloads dispatched or taken back more than once"
        f"{f', {moved} moved' if facts.moves else ''}; {len(record.faults)} faults, kills: {kills}, "
        f"at {len(facts.killed_at)} kinds of writes; pace {facts.pace:.1f}; {len(outcome.violations)} violations"
        + (f"; broken off: {facts.broken}" if facts.broken else "")
    )


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The same for programs."""
    record, facts = outcome.record, outcome.facts
    return {
        "seed": facts.seed,
        "seconds": facts.seconds,
        "workloads": len(record.plan),
        "pods": len(record.pods),
        "decisions": len(record.written),
        "repeated": facts.repeated,
        "kills": facts.kills,
        "killed_at": dict(facts.killed_at),
        "faults": [
            {"fault": fault, "times": times, "recovered_s": [round(each, 3) for each in took]}
            for fault, (times, took) in rows(outcome).items()
        ],
        "violations": [
            {"check": each.check, "workload": each.workload, "at": each.at, "text": each.text}
            for each in outcome.violations
        ],
    }


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """The table of several runs, from what `as_json` gave for each."""
    times: Counter[str] = Counter()
    took: defaultdict[str, list[float]] = defaultdict(list)
    for result in results:
        for fault in result["faults"]:
            times[fault["fault"]] += fault["times"]
            took[fault["fault"]] += fault["recovered_s"]
    lines = [
        "| fault | times | recovered in: median | 95 % | longest |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(times):
        measured = sorted(took[name])
        if not measured:
            lines.append(f"| {name} | {times[name]} | | | |")
            continue
        late = measured[min(int(len(measured) * 0.95), len(measured) - 1)]
        lines.append(
            f"| {name} | {times[name]} | {statistics.median(measured):.2f} s | {late:.2f} s | {measured[-1]:.2f} s |"
        )
    kills: Counter[str] = Counter()
    for result in results:
        kills.update(result["kills"])
    counts = ", ".join(f"{name} {number}" for name, number in kills.items())
    violations = sum(len(result["violations"]) for result in results)
    seeds = ", ".join(str(result["seed"]) for result in results)
    lines.append("")
    lines.append(
        f"{len(results)} runs (seeds {seeds}), {sum(result['workloads'] for result in results)} workloads, "
        f"{sum(result['pods'] for result in results)} pods, {sum(times.values())} faults; kills: {counts}; "
        f"{len({at for result in results for at in result['killed_at']})} kinds of writes; {violations} violations"
    )
    return "\n".join(lines)
