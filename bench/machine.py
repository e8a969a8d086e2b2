"""What the machine did during a measurement: CPU time of each process, and how much of it went to somebody else.

Two cores that are shared with other work give figures that mean little; saying so needs a number too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = 100
"""USER_HZ, the same on every Linux that Python runs on."""
QUIET = 0.1
"""Above this share of the machine, others disturb a measurement."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    at: float
    busy: float
    """CPU seconds of the whole machine since its start, idle and waiting time left out."""
    used: Mapping[str, float]
    """Process -> its CPU seconds so far."""


def sample(pids: Mapping[str, int | None], proc: Path = Path("/proc")) -> Sample:
    """Read the clocks; a process that is gone, or was never there, is left out."""
    used = {}
    for name, pid in {**pids, "bench": os.getpid()}.items():
        try:
            if pid is not None:
                used[name] = cpu_seconds(pid, proc)
        except OSError:
            continue
    return Sample(time.monotonic(), busy_seconds((proc / "stat").read_text()), used)


def cpu_seconds(pid: int, proc: Path = Path("/proc")) -> float:
    """User and system time of a process, all its threads.

    Raises:
        OSError: there is no such process.
    """
    # The name in the second field may hold blanks and brackets; what follows the last bracket does not.
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident(pid: int | None, proc: Path = Path("/proc")) -> int:
    """Bytes of memory that a process holds; 0 for one that is gone."""
    try:
        return int((proc / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def busy_seconds(text: str) -> float:
    """CPU seconds of all processors since the start, by the first line of /proc/stat."""
    user, nice, system, _idle, _waiting, irq, softirq, stolen = (int(field) for field in text.split()[1:9])
    return (user + nice + system + irq + softirq + stolen) / _TICKS


def used(before: Sample, after: Sample) -> dict[str, float]:
    """Process -> CPU seconds in between; one that started in between counts from its start."""
    return {name: value - before.used.get(name, 0.0) for name, value in after.used.items()}


def others(before: Sample, after: Sample, processors: int | None = None) -> float:
    """Share of the machine (0..1) that processes other than ours used in between."""
    elapsed = (after.at - before.at) * (processors or os.cpu_count() or 1)
    foreign = after.busy - before.busy - sum(used(before, after).values())
    return min(max(foreign / elapsed, 0.0), 1.0) if elapsed > 0 else 0.0
