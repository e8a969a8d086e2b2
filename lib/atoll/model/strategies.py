"""What users' strategies are given and answer: functions that order members for a workload, or share it out over them.

A package offers them as entry points of the groups below; a queue names the one that its workloads get. They must be
pure: equal input, equal answer, nothing read or kept beside it. The dispatcher calls them as it decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SPLIT: Final = "atoll.split"
"""Group of entry points that are `Split` functions."""
SCORE: Final = "atoll.score"
"""Group of entry points that are `Score` functions."""


@dataclass(frozen=True, slots=True)
class Pods:
    """Equal pods of a workload."""

    name: str
    replicas: int
    minimum: int
    """So many must start together."""
    requests: Mapping[str, int]
    """Of one pod: cpu in milli-CPU, memory in bytes, devices as they are."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload to place. Workloads that ask for the same are asked about once, so it has no name."""

    queue: str
    tasks: tuple[Pods, ...]
    sets: int = 1
    """Into how many equal bundles of its pods it can be taken apart; one where it can't."""
    least_members: int = 1
    most_members: int | None = 1
    """None for any number."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member that is ready and may be used."""

    name: str
    labels: Mapping[str, str]
    provider: tuple[str, ...]
    region: tuple[str, ...]
    zones: tuple[str, ...]
    pods: tuple[int, ...]
    """Of each task, how many pods there is room for, each task by itself."""
    sets: int = 0
    """Most sets that it may take, for `Split`; topology and tasks that share nodes may allow fewer."""


Score = Callable[[Workload, Sequence[Member]], Mapping[str, float]]
"""Member -> score; the highest is tried first, those that are not named have 0, equal ones are ordered as usual."""
Split = Callable[[Workload, Sequence[Member]], Mapping[str, int]]
"""Member -> sets, all of the workload's in sum; asked where no single member takes the whole. An empty answer leaves it
to the native division.
"""


def wrong_scores(answer: Mapping[str, Any], _: Workload, members: Mapping[str, Member]) -> str:
    """The problem of the answer of a `Score`; empty for none. `members`: those given to it, by name."""
    for name, score in answer.items():
        if name not in members:
            return f"it scored {name!r}, which is none of the members that it was given"
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            return f"it scored member {name} with {score!r}, which is no finite number"
    return ""


def wrong_shares(answer: Mapping[str, Any], workload: Workload, members: Mapping[str, Member]) -> str:
    """As `wrong_scores`, of a `Split`."""
    for name, sets in answer.items():
        if name not in members:
            return f"it gave a part to {name!r}, which is none of the members that it was given"
        if isinstance(sets, bool) or not isinstance(sets, int) or sets < 0:
            return f"it gave member {name} {sets!r} sets"
        if sets > members[name].sets:
            return f"it gave member {name} {sets} sets, and that takes {members[name].sets} at most"
    if not answer:
        return ""
    if sum(answer.values()) != workload.sets:
        return f"it gave away {sum(answer.values())} sets of {workload.sets}"
    used = sum(1 for sets in answer.values() if sets)
    if used < workload.least_members or used > (workload.most_members or used):
        return f"it used {used} members, and the policy allows {workload.least_members} to {workload.most_members}"
    return ""
