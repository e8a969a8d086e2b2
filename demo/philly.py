"""The part of the Philly trace that the demo replays, and how it was cut out.

`python -m demo.philly TRACE.csv > examples/philly/jobs.csv` cuts it again; examples/philly/README.md names the source.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

SLICE = Path(__file__).parent.parent / "examples" / "philly" / "jobs.csv"
ROWS = range(8380, 8480)
"""Rows of the slice; the first one after the header is 0."""
MOVED = (
    ("2017-09-28 10:02:31", "6c71a0"),
    ("2017-10-06 01:49:35", "11cb48"),
    ("2017-10-09 10:33:53", "b436b2"),
    ("2017-10-10 03:36:35", "b436b2"),
)
"""Submission and virtual cluster of the 16-GPU jobs that are taken along: the slice itself has none."""
MOVED_GPUS = 16
COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One row."""

    row: int
    """Where it is in the trace; the first job is 0."""
    submitted: datetime
    seconds: float
    gpus: int
    cluster: str
    """Virtual cluster id."""


def read(path: Path = SLICE) -> list[TraceJob]:
    """The jobs of a slice, in its order.

    Raises:
        ValueError: a line is not what `cut` writes; the message has the line.
    """
    with path.open(newline="") as file:
        jobs = []
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                jobs.append(
                    TraceJob(
                        int(row["row"]),
                        datetime.fromisoformat(row["timestamp"]),
                        float(row["duration"]),
                        int(row["num_gpus"]),
                        row["cluster"],
                    )
                )
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}, line {number}: {error!r}; cut the slice again with python -m demo.philly"
                ) from error
    return jobs


def cut(lines: Iterable[str]) -> list[dict[str, str]]:
    """The rows of the slice and then the 16-GPU jobs that are moved into it, each with its number.

    Args:
        lines: of the whole trace, header first.
    """
    window: list[dict[str, str]] = []
    moved: list[dict[str, str]] = []
    for number, row in enumerate(csv.DictReader(lines)):
        numbered = {"row": str(number), **row}
        if number in ROWS:
            window.append(numbered)
        elif row["num_gpus"] == str(MOVED_GPUS) and (row["timestamp"], row["cluster"]) in MOVED:
            moved.append(numbered)
    return window + moved


def main(arguments: Sequence[str]) -> None:
    """Write the slice of the named trace to standard output."""
    with Path(arguments[0]).open(newline="") as file:
        writer = csv.DictWriter(sys.stdout, ("row", *COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(cut(file))


if __name__ == "__main__":
    main(sys.argv[1:])
