"""`python -m tests.faults NAME...`: one fault after the other while jobs run; exit code 1 if anything is lost, doubled
or stuck. Without names: all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos import pace
from tests.faults.run import run

NAMES = (
    "killed", "full_store", "compaction", "clock", "webhook_away", "storms", "certificates", "cut_off", "restored",
    "host_restored",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; a line for each at the end."""
    modules = {name: importlib.import_module(f"tests.faults.scenarios.{name}") for name in NAMES}
    about = "; ".join(f"{name}: {(module.__doc__ or '').splitlines()[0]}" for name, module in modules.items())
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__, epilog=about)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a fifth of the jobs, and shorter faults")
    parser.add_argument("--pace", type=float, metavar="X", help="every wait is X times as long (default: as measured)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and audit logs in this folder")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(NAMES)}")
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", file=sys.stderr, flush=True)

    chosen = {name: modules[name] for name in options.names or NAMES}
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="atoll-faults-", ignore_cleanup_errors=True)
        folder = options.keep or Path(stack.enter_context(temporary))
        slow = options.pace or pace.measured()
        say(f"pace {slow:.1f}")
        verdicts = asyncio.run(run(chosen, folder, quick=options.quick, pace=slow, say=say))
    for verdict in verdicts:
        print(verdict)
    return int(not all(verdict.good for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
