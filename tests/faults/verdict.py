"""What a suite of faults says in one line."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tests.chaos.checks import Violation

LOST = frozenset({"nothing lost", "held stays held"})
DOUBLED = frozenset(
    {"ran once", "one epoch at a time", "decided once", "decisions kept", "within nodes", "within capability"}
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many faults were played, and what of the workloads was lost, ran twice, or is stuck."""

    name: str
    faults: int
    lost: int
    doubled: int
    stuck: int
    broken: str = ""
    """What ended the run before its time."""

    @property
    def good(self) -> bool:
        """Whether faults were played and nothing came of them."""
        return self.faults > 0 and not (self.lost or self.doubled or self.stuck or self.broken)

    def __str__(self) -> str:
        text = f"{self.name}: {self.faults} faults, lost {self.lost}, doubled {self.doubled}, stuck {self.stuck}"
        return f"{text}; broken off: {self.broken}" if self.broken else text


def of(
    name: str, faults: int, violations: Iterable[Violation], problems: Collection[str] = (), broken: str = ""
) -> Verdict:
    """Sort violations by what they mean; each of `problems` counts as doubled: it is there and must not be."""
    checks = [each.check for each in violations]
    lost, doubled = sum(each in LOST for each in checks), sum(each in DOUBLED for each in checks)
    return Verdict(name, faults, lost, doubled + len(problems), len(checks) - lost - doubled, broken)
