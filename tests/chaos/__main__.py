"""`python -m tests.chaos --seconds 300 --seed 7`: chaos on this machine; exit code 1 when an invariant was violated."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos import pace, report
from tests.chaos.run import EVERY_S, judge, judge_kept, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the last line counts everything."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=90, help="how long workloads and faults come, at pace 1 (default: 90)"
    )
    parser.add_argument("--seed", type=int, default=7, help="of workloads and faults (default: 7)")
    parser.add_argument("--every", type=float, default=EVERY_S, metavar="S", help="mean seconds between two faults")
    parser.add_argument(
        "--pace", type=float, metavar="X", help="every wait is X times as long (default: as slow as this machine is)"
    )
    parser.add_argument(
        "--moves", action="store_true", help="gangs are in racks, and move for others that wait for one"
    )
    parser.add_argument("--shards", type=int, default=1, help="shards of control, each with a leader")
    parser.add_argument("--warm", action="store_true", help="standby dispatchers follow everything before they lead")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and audit logs in this folder")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="run nothing: judge what --keep kept there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write counts, table and violations there")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE", help="run nothing: one table of these results")
    options = parser.parse_args(arguments)
    if options.table:
        print(report.markdown([json.loads(path.read_text()) for path in options.table]))
        return 0
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", file=sys.stderr, flush=True)

    if options.judge is not None:
        outcome = judge_kept(options.judge)
    else:
        with _folder(options.keep) as folder:
            slow = options.pace or pace.measured()
            say(f"seed {options.seed}, pace {slow:.1f}")
            running = run(
                options.seed, options.seconds, folder,
                every=options.every, pace=slow, moves=options.moves, warm=options.warm, shards=options.shards, say=say,
            )  # fmt: skip
            facts = asyncio.run(running)
            outcome = judge(facts, folder / "logs")
    print(report.table(outcome))
    print(report.explanations(outcome), end="")
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(outcome), indent=1) + "\n")
    print(report.line(outcome))
    return 0 if outcome.good else 1


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="atoll-chaos-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
