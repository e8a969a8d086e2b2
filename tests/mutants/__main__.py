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
from tests.mutants.trials import SECONDS, Fork, HarnessError, Trace, attempt, prepare, survey

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "dispatcher"
PACKAGE = "atoll.dispatcher"
FOLDERS = [SOURCES / "atoll/dispatcher/core", SOURCES / "atoll/dispatcher/split"]
CHECKS = ("invariants.py",)
"""What only tests call."""
TESTS = [
    f"tests/dispatcher/test_{name}.py"
    for name in (
        "tree_shares",
        "tree",
        "core",
        "core_races",
        "backfill",
        "eviction",
        "division",
        "golden",
        "defects",
        "split_oracle",
        "reclaim",
        "tree_machine",
        "machine",
    )
]
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
    sources = {
        str(path): path.read_text() for folder in FOLDERS for path in sorted(folder.glob("*.py")) if path.name not in CHECKS
    }
    every = [each for path, source in sources.items() for each in mutations(path, source)]
    chosen = random.Random(options.seed).sample(every, min(options.count, len(every)))
    chosen = [each for each in sorted(chosen, key=lambda m: (m.path, m.start)) if options.only in place(each)]
    prepare(PACKAGE)
    began = time.monotonic()
    traces = survey(TESTS, FOLDERS)
    say(f"{len(traces)} tests pass without a mutant; {len(every)} mutants are possible, {len(chosen)} are tried")
    survivors, late = try_all(chosen, sources, traces, options.jobs)
    for mutation in survivors:
        print(f"survived: {place(mutation)} ({mutation.kind})")
        print(difference(mutation, sources[mutation.path]))
    killed = len(chosen) - len(survivors)
    score = 100 * killed / max(len(chosen), 1)
    say(f"{late} of them were stopped after {SECONDS:g} s of CPU time; {time.monotonic() - began:.0f} s in all")
    print(f"killed {killed} of {len(chosen)} ({score:.1f} %)")
    return 0 if score >= LEAST else 1


def try_all(
    chosen: Sequence[Mutation], sources: dict[str, str], traces: Sequence[Trace], jobs: int
) -> tuple[list[Mutation], int]:
    """(mutants that no test noticed, how many were stopped for taking too long)."""
    waiting = list(reversed(chosen))
    running: dict[int, tuple[Mutation, Fork]] = {}
    survivors: list[Mutation] = []
    late = 0
    while waiting or running:
        while waiting and len(running) < jobs:
            mutation = waiting.pop()
            tests = subset(mutation, traces)
            if not tests:
                survivors.append(mutation)
                continue
            path = Path(mutation.path)
            fork = attempt(module_of(path), path, mutation.apply(sources[mutation.path]), tests)
            running[fork.pid] = mutation, fork
        if not running:
            break
        pid, status = os.wait()
        mutation, fork = running.pop(pid)
        answer = fork.result()
        if os.WIFSIGNALED(status):
            late += os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
        elif answer is None or (answer[0] and not answer[1]):
            raise HarnessError(f"the tests of {place(mutation)} could not be run: {answer}")
        elif not answer[0]:
            survivors.append(mutation)
        say(f"{len(chosen) - len(waiting) - len(running)} of {len(chosen)}, {len(survivors)} survived", passing=True)
    return sorted(survivors, key=lambda m: (m.path, m.start)), late


def subset(mutation: Mutation, traces: Sequence[Trace]) -> list[str]:
    """The tests that reach a mutant, the quickest first, as many as fit the time; all where it runs on import."""
    span = mutation.statement
    able = [
        trace
        for trace in traces
        if span is None or any(span[0] <= line <= span[1] for line in trace.lines.get(mutation.path, ()))
    ]
    tests: list[str] = []
    seconds = 0.0
    for trace in sorted(able, key=lambda each: each.seconds):
        seconds += trace.seconds
        if seconds > SECONDS:
            break
        tests.append(trace.test)
    return tests


def module_of(path: Path) -> str:
    """`atoll.dispatcher.core.tree` of its file."""
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts)


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
