"""A member that others use too, and nothing fails: gangs from the host beside bare pods and DaemonSets.

`python -m tests.chaos.beside --minutes 10`. kube-scheduler places everybody's pods. From the member's audit log: no node
above its allocatable, no gang below its minimum for longer than its deadline, every workload done.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.chaos import nodes
from tests.chaos.nodes import Outcome


async def run(seed: int, seconds: float, directory: Path) -> Outcome:
    """One run, its steps on stderr."""
    return await nodes.run(
        seed, seconds, directory, lambda line: print(line, file=sys.stderr), names=[nodes.SHARED], faults=False
    )


def figures(outcome: Outcome) -> Iterator[str]:
    """What was seen, a line each."""
    pods = outcome.record.pods.values()
    played = ", ".join(f"{count} x {what}" for what, count in outcome.counts.items() if count)
    yield f"{len(outcome.planned)} workloads, {len(pods)} pods in all; {played}"
    fullest = max((amount for _, amount, _ in nodes.fillings(pods, outcome.takes)), default=0)
    yield f"fullest node: {fullest}m of {nodes.CPUS * 1000}m CPU"
    below = sorted((each.seconds for each in nodes.incomplete(outcome.record, outcome.by_name)), reverse=True)
    longest = f", the longest for {below[0]:.1f} s" if below else ""
    yield f"below its minimum: {len(below)} times{longest}; allowed are {nodes.DEADLINE_S:g} s"
    again = {pod.workload for pod in pods if pod.epoch > 1}
    yield f"dispatched more than once: {len(again)} workloads"


def main() -> int:
    """Run from the command line; 1 where a check is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.beside", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long pods and workloads come (default: 10)")
    parser.add_argument("--seed", type=int, default=7, help="of everything that is drawn (default: 7)")
    parser.add_argument("--keep", type=Path, help="keep data and logs in this folder")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atoll-beside-")))
        directory.mkdir(parents=True, exist_ok=True)
        outcome = asyncio.run(run(given.seed, given.minutes * 60, directory))
    for line in figures(outcome):
        print(line)
    for text in outcome.violations:
        print(f"VIOLATED  {text}")
    print(f"{len(outcome.violations)} violations")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
