"""What every benchmark hands back, and how it is shown: one JSON schema, one table, one set of arithmetic."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Result:
    """One figure."""

    case: str
    metric: str
    value: float
    unit: str
    bound: float | None = None
    """What the machine could do at best, in the same unit, measured in the same run; None where that has no meaning."""
    ratio: float | None = None
    """value / bound."""


@dataclass(slots=True)
class Report:
    """The outcome of one benchmark."""

    bench: str
    params: dict[str, Any]
    """Sizes, and in `bound` what the bound is, in words."""
    results: list[Result] = field(default_factory=list)
    #: For people, below the table: misses of targets, what to compare with. Not part of the JSON.
    remarks: list[str] = field(default_factory=list)

    def add(self, case: str, metric: str, value: float, unit: str, bound: float | None = None) -> None:
        """Add a figure; its ratio follows from the bound."""
        self.results.append(Result(case, metric, value, unit, bound, ratio(value, bound)))

    def add_latency(self, case: str, seconds: Sequence[float], bound: Sequence[float] = ()) -> None:
        """Add P50 and P99 in milliseconds, beside those of the bound's samples; nothing where there is no sample."""
        for percent in (50, 99) if seconds else ():
            least = percentile(bound, percent) * 1000 if bound else None
            self.add(case, f"latency_p{percent}", percentile(seconds, percent) * 1000, "ms", least or None)

    def value(self, case: str, metric: str) -> float:
        """A figure that was added.

        Raises:
            KeyError: there is none of that name.
        """
        for result in self.results:
            if (result.case, result.metric) == (case, metric):
                return result.value
        raise KeyError(f"{self.bench} has no {metric} of {case!r}")

    def json(self) -> bytes:
        """The schema that design and tests know; non-finite numbers never appear."""
        body = {"bench": self.bench, "params": self.params, "results": [asdict(result) for result in self.results]}
        return orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def write(self, directory: Path = RESULTS) -> Path:
        """Write `<bench>.json`."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.bench}.json"
        path.write_bytes(self.json())
        return path

    def show(self, console: Console) -> None:
        """Print the table and the remarks."""
        sizes = ", ".join(
            f"{name} {value}" for name, value in self.params.items() if name not in ("bound", "reference")
        )
        table = Table(title=f"{self.bench}: {sizes}", title_justify="left", box=None, pad_edge=False)
        for column in ("case", "metric"):
            table.add_column(column, overflow="fold")
        for column in ("value", "unit", "bound", "ratio"):
            table.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
        case = ""
        for result in self.results:
            shown = "" if result.case == case else result.case
            case = result.case
            table.add_row(
                shown, result.metric, number(result.value), result.unit,
                "" if result.bound is None else number(result.bound),
                "" if result.ratio is None else f"{result.ratio:.3f}",
            )  # fmt: skip
        console.print(table)
        if "bound" in self.params:
            console.print(f"bound: {self.params['bound']}", highlight=False)
        for remark in self.remarks:
            console.print(remark, highlight=False)


Progress = Callable[[str], None]
_WIDTH = 150
"""Columns where the output is no terminal: tables in files are read wide."""


def console() -> Console:
    """Where tables go."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH)


def progress(line: str) -> None:
    """Show what is going on, on stderr, where a person is looking."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile: a value that was seen, never one in between.

    Raises:
        ValueError: there are no values, or the percentage is outside 0..100.
    """
    ordered = sorted(values)
    if not ordered or not 0 <= percent <= 100:
        raise ValueError(f"percentile {percent} of {len(ordered)} values")
    return ordered[max(math.ceil(percent / 100 * len(ordered)), 1) - 1]


def median(values: Iterable[float]) -> float:
    """The middle of the repeats.

    Raises:
        ValueError: there are none.
    """
    found = list(values)
    if not found:
        raise ValueError("median of no values")
    return statistics.median(found)


def ratio(value: float, bound: float | None) -> float | None:
    """value / bound; None without a bound."""
    return None if not bound else value / bound


def rate(count: int, seconds: float) -> float:
    """Per second; 0 where nothing was done or no time passed, so that no JSON holds an infinity."""
    return count / seconds if count and seconds > 0 else 0.0


def number(value: float) -> str:
    """Three or four digits that matter."""
    if value and abs(value) < 10:
        return f"{value:.3g}"
    return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def run(
    name: str,
    description: str,
    options: Callable[[argparse.ArgumentParser], None],
    measure: Callable[[argparse.Namespace], Report],
    arguments: Sequence[str] | None = None,
) -> None:
    """The command line of one benchmark: `--json` prints JSON, otherwise a table; both write the result file.

    Args:
        name: of the module below `bench`.
        description: one sentence.
        options: adds its own sizes; `--quick` and `--json` are there already.
        measure: does it.
        arguments: of the command line; those of the process if not given.
    """
    parser = parser_of(name, description, options)
    parser.add_argument("--json", action="store_true", help="print JSON on standard output instead of a table")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for <name>.json (default: bench/results)")
    chosen = parser.parse_args(arguments)
    report = measure(chosen)
    report.write(chosen.results)
    if chosen.json:
        sys.stdout.buffer.write(report.json())
        sys.stdout.flush()
    else:
        report.show(console())


def parser_of(
    name: str, description: str, options: Callable[[argparse.ArgumentParser], None]
) -> argparse.ArgumentParser:
    """The options of one benchmark."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{name.replace('-', '_')}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to see that it works; the figures mean little"
    )
    options(parser)
    return parser


def sizes(chosen: argparse.Namespace, quick: dict[str, Any], full: dict[str, Any]) -> dict[str, Any]:
    """Every size: as asked for, else that of the mode. An option that was not given is None."""
    defaults = quick if chosen.quick else full
    return {
        name: default if getattr(chosen, name, None) is None else getattr(chosen, name)
        for name, default in defaults.items()
    }
