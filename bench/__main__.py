"""`python -m bench`: every benchmark, a table of each, and JSON in bench/results/."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from bench import (
    arrays,
    core,
    devices,
    dispatch,
    endtoend,
    interception,
    kueue_shapes,
    member,
    neighbours,
    openb,
    place,
    preempt,
    quality,
    reclaim,
    reflector,
    restart,
    split,
    subtrees,
    webhook,
)
from bench.report import RESULTS, Report, console, parser_of, progress

BENCHMARKS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], Report]]] = {
    place.NAME: (place.DESCRIPTION, place.options, place.measure),
    split.NAME: (split.DESCRIPTION, split.options, split.measure),
    core.NAME: (core.DESCRIPTION, core.options, core.measure),
    reclaim.NAME: (reclaim.DESCRIPTION, reclaim.options, reclaim.measure),
    preempt.NAME: (preempt.DESCRIPTION, preempt.options, preempt.measure),
    devices.NAME: (devices.DESCRIPTION, devices.options, devices.measure),
    quality.NAME: (quality.DESCRIPTION, quality.options, quality.measure),
    openb.NAME: (openb.DESCRIPTION, openb.options, openb.measure),
    dispatch.NAME: (dispatch.DESCRIPTION, dispatch.options, dispatch.measure),
    kueue_shapes.NAME: (kueue_shapes.DESCRIPTION, kueue_shapes.options, kueue_shapes.measure),
    endtoend.NAME: (endtoend.DESCRIPTION, endtoend.options, endtoend.measure),
    arrays.NAME: (arrays.DESCRIPTION, arrays.options, arrays.measure),
    member.NAME: (member.DESCRIPTION, member.options, member.measure),
    subtrees.NAME: (subtrees.DESCRIPTION, subtrees.options, subtrees.measure),
    webhook.NAME: (webhook.DESCRIPTION, webhook.options, webhook.measure),
    interception.NAME: (interception.DESCRIPTION, interception.options, interception.measure),
    reflector.NAME: (reflector.DESCRIPTION, reflector.options, reflector.measure),
    restart.NAME: (restart.DESCRIPTION, restart.options, restart.measure),
    neighbours.NAME: (neighbours.DESCRIPTION, neighbours.options, neighbours.measure),
}


def causes(error: BaseException) -> list[str]:
    """What went wrong: of tasks that ran together each of its own."""
    if isinstance(error, BaseExceptionGroup):
        return [text for each in error.exceptions for text in causes(each)]
    return [f"{type(error).__name__}: {error}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run those that are named, or all; 1 when one could not be run, the others are run all the same."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of tables")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for <name>.json (default: bench/results)")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    bodies: list[Any] = []
    failed = False
    for name in chosen.names or BENCHMARKS:
        description, options, measure = BENCHMARKS[name]
        progress(f"== {name}: {description}")
        try:
            report = measure(parser_of(name, description, options).parse_args(["--quick"] if chosen.quick else []))
        except Exception as error:  # the other benchmarks still mean something
            print(f"{name} could not be run: {'; '.join(causes(error))}", file=sys.stderr)
            failed = True
            continue
        report.write(chosen.results)
        bodies.append(orjson.loads(report.json()))
        if not chosen.json:
            report.show(console())
            console().print()
    if chosen.json:
        sys.stdout.buffer.write(orjson.dumps(bodies, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
