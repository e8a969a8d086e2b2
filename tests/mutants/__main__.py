"""`python -m tests.mutants --count 300 --seed 7`: how many faults in the dispatcher's core and split the tests notice.

Ends with one line, "killed K of N (P %)"; the exit code is 1 below 85 %.
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutations import Mutation, mutations
from tests.mutants.trials import BUDGET, SECONDS, Bench, Fork, HarnessError, Trace, with_bench

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    ROOT / name
    for name in (
        "dispatcher/atoll/dispatcher/core", "dispatcher/atoll/dispatcher/explain", "dispatcher/atoll/dispatcher/split",
        "dispatcher/atoll/dispatcher/strategies/budget.py", "lib/atoll/fit/layout.py", "lib/atoll/fit/pods.py",
        "lib/atoll/fit/sizes.py", "lib/atoll/model/weighted_shares.py",
    )
]  # fmt: skip
"""The core, what tells of it, and what both calculate with: folders and files."""
CHECKS = ("invariants.py",)
"""What only tests call."""
TESTS = [
    *(
        f"tests/dispatcher/{name}"
        for name in (
            "backfill", "backlog", "capacity", "elastic", "explain", "placement", "preemption", "quota", "split", "whole",
            "shell/test_capacity.py", "shell/test_queue_reports.py",
        )
    ),
    "tests/fit",
    "tests/model",
    "tests/sim/test_replay.py",
]  # fmt: skip
"""Of which each mutant meets those that reach it."""
LEAST = 85.0
"""Per cent."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many mutants (default: 300)")
    parser.add_argument("--seed", type=int, default=7, help="which ones (default: 7)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (default: 1)")
    parser.add_argument("--only", default="", metavar="FILE:LINE", help="of these, those whose place contains this")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    paths = [path for each in SOURCES for path in modules(each)]
    sources = {str(path): path.read_text() for path in paths}
    every = [each for path, source in sources.items() for each in mutations(path, source)]
    chosen = random.Random(options.seed).sample(every, min(options.count, len(every)))
    chosen = [each for each in sorted(chosen, key=lambda m: (m.path, m.start)) if options.only in place(each)]
    say(f"{len(every)} mutants are possible, {len(chosen)} are tried")
    began = time.monotonic()
    survived = with_bench(
        TESTS, [str(each) for each in SOURCES], lambda bench: try_all(bench, chosen, sources, options.jobs)
    )
    killed = len(chosen) - survived
    score = 100 * killed / max(len(chosen), 1)
    say(f"{time.monotonic() - began:.0f} s in all")
    print(f"killed {killed} of {len(chosen)} ({score:.1f} %)")
    return 0 if score >= LEAST else 1


def modules(source: Path) -> list[Path]:
    """The file, or what is in the folder, but for what only tests call."""
    return [path for path in sorted(source.rglob("*.py")) if path.name not in CHECKS] if source.is_dir() else [source]


def try_all(bench: Bench, chosen: Sequence[Mutation], sources: dict[str, str], jobs: int) -> int:
    """Print the mutants that no test notices; returns how many they are."""
    traces = bench.survey()
    say(f"{len(traces)} tests pass without a mutant")
    waiting = list(reversed(chosen))
    running: dict[int, tuple[Mutation, Fork]] = {}
    late = survived = 0

    def survives(mutation: Mutation) -> None:
        nonlocal survived
        survived += 1
        # What pytest prints is not wanted, and it has taken sys.stdout.
        text = f"survived: {place(mutation)} ({mutation.kind})\n{difference(mutation, sources[mutation.path])}"
        print(text, file=sys.__stdout__, flush=True)

    while waiting or running:
        while waiting and len(running) < jobs:
            mutation = waiting.pop()
            if tests := subset(mutation, traces):
                fork = bench.attempt(mutation.path, mutation.apply(sources[mutation.path]), tests)
                running[fork.pid] = mutation, fork
            else:
                survives(mutation)
        if not running:
            break
        pid, status = os.wait()
        mutation, fork = running.pop(pid)
        answer = fork.result()
        if os.WIFSIGNALED(status):
            if os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM):
                late += 1
                say(f"stopped: {place(mutation)} ({mutation.kind})")
        elif answer is None:
            raise HarnessError(f"the tests of {place(mutation)} did not come to an end")
        elif not answer["failed"]:
            survives(mutation)
        say(f"{len(chosen) - len(waiting) - len(running)} of {len(chosen)}, {survived} survived", passing=True)
    say(f"{late} of them were stopped after {SECONDS:g} s of CPU time")
    return survived


def subset(mutation: Mutation, traces: Sequence[Trace]) -> list[str]:
    """The tests that reach a mutant, the quickest first, as many as fit the time."""
    first, last = mutation.statement
    able = [each for each in traces if any(first <= line <= last for line in each.lines.get(mutation.path, ()))]
    tests: list[str] = []
    seconds = 0.0
    for each in sorted(able, key=lambda trace: trace.seconds):
        seconds += each.seconds
        if seconds > BUDGET:
            break
        tests.append(each.test)
    return tests


def place(mutation: Mutation) -> str:
    """File and line."""
    return f"{Path(mutation.path).relative_to(ROOT)}:{mutation.line}"


def difference(mutation: Mutation, source: str) -> str:
    """The lines that are other ones."""
    pair = (source.splitlines(), mutation.apply(source).splitlines())
    return "\n".join(line for line in difflib.unified_diff(*pair, n=0, lineterm="") if line[:3] not in ("---", "+++"))


def say(text: str, *, passing: bool = False) -> None:
    """For whoever watches; what is `passing` only on a terminal."""
    if not passing:
        print(text, file=sys.stderr)
    elif sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
