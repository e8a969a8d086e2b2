"""Failover: how a workload leaves a member in which it is unhealthy, or which is tainted, drained or lost.

As Karmada's policies say it (`spec.failover`). A copy that is to stay for a while is a task of the binding, in
`spec.gracefulEvictionTasks`: whatever may end it, and when, is in the task, so that no timer is lost with a process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from atoll.model import labels
from atoll.model.timestamps import is_time, to_seconds

Json = Mapping[str, Any]

UNHEALTHY: Final = 300
"""Seconds that a workload may be unhealthy, where its policy does not say."""
PRODUCER: Final = "atoll-dispatcher"
"""Who asks for evictions."""
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,4})\]|\['([^'\]]+)'\]")


class Purge(StrEnum):
    """What becomes of the copy in the member that is left."""

    DIRECTLY = "Directly"
    """It goes before the workload runs elsewhere."""
    GRACEFULLY = "Gracefully"
    """It stays until the new one runs, or its time is over."""
    NEVER = "Never"
    """It is not to go; Atoll moves no such workload, for its queue would be charged for one of two copies alone."""


_OLDER = {"Immediately": Purge.DIRECTLY, "Graciously": Purge.GRACEFULLY}
"""What earlier versions of Karmada called them."""


class Failover(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """How a workload leaves a member."""

    purge: Purge = Purge.DIRECTLY
    grace: float | None = None
    """Seconds that the copy may stay, within the dispatcher's setting; None for that."""
    after: float | None = None
    """Seconds for which it must have been unhealthy; None where that is not why it leaves."""
    state: dict[str, str] = {}
    """Label of the next copy -> where its value is in the status of this one."""


class EvictionTask(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One of `spec.gracefulEvictionTasks`: the workload left that member, and is not to return there yet."""

    from_cluster: str
    reason: str = ""
    producer: str = ""
    purge_mode: str | None = None
    message: str | None = None
    replicas: int | None = None
    grace_period_seconds: int | None = None
    suppress_deletion: bool | None = None
    preserved_label_state: dict[str, str] | None = None
    creation_timestamp: str | None = None
    clusters_before_failover: list[str] | None = None

    @property
    def stays(self) -> bool:
        """Whether its copy stays until the task is over."""
        return _purge(self.purge_mode, Purge.GRACEFULLY) is not Purge.DIRECTLY

    def over_at(self) -> float | None:
        """When it is over whatever happens, in seconds since the epoch; None for never."""
        if self.suppress_deletion:
            return None
        if self.suppress_deletion is False:
            return 0.0
        if not is_time(self.creation_timestamp or "") or self.grace_period_seconds is None:
            return 0.0
        return to_seconds(self.creation_timestamp or "") + self.grace_period_seconds

    def over(self, now: float, *, runs: bool) -> bool:
        """Whether it is.

        Args:
            now: seconds since the epoch.
            runs: whether the workload runs elsewhere, and is healthy there.
        """
        until = self.over_at()
        return until is not None and (runs or until <= now)


def of_application(said: Json | None, *, service: bool) -> Failover | None:
    """What becomes of a workload that stays unhealthy; None where its policy has it stay.

    Args:
        said: `spec.failover` of its policy.
        service: it runs until it is deleted. Of everything else no two copies run: what is to stay gracefully goes
            directly.
    """
    wish = (said or {}).get("application")
    if not isinstance(wish, Mapping):
        return None
    after = (wish.get("decisionConditions") or {}).get("tolerationSeconds")
    purge = _purge(wish.get("purgeMode"), Purge.GRACEFULLY)
    if purge is Purge.NEVER:
        return None
    return Failover(
        purge if service else Purge.DIRECTLY,
        _grace(wish) if service else None,
        float(UNHEALTHY if after is None else after),
        _state(wish),
    )


def of_cluster(said: Json | None, *, service: bool) -> Failover | None:
    """How a workload leaves a member that is tainted, drained or lost; None where it does so directly and carries
    nothing along.
    """
    wish = (said or {}).get("cluster")
    wish = wish if isinstance(wish, Mapping) else {}
    direct = not service or _purge(wish.get("purgeMode"), Purge.GRACEFULLY) is Purge.DIRECTLY
    found = Failover(Purge.DIRECTLY if direct else Purge.GRACEFULLY, None, None, _state(wish))
    return None if found == Failover() else found


def path_of(text: str) -> tuple[str | int, ...]:
    """The fields and indexes of a JSONPath such as `{.jobStatus.items[0].id}`.

    Raises:
        ValueError: it is another kind of path.
    """
    inner = text.strip()
    inner = inner[1:-1].strip() if inner.startswith("{") and inner.endswith("}") else inner
    inner = inner.removeprefix("$")
    steps, end = [], 0
    for found in _STEP.finditer(inner):
        if found.start() != end:
            break
        end = found.end()
        steps.append(int(found[2]) if found[2] is not None else found[1] or found[3])
    if not steps or end != len(inner):
        raise ValueError(f"{text!r} is no path of fields and indexes, such as {{.status.items[0].id}}")
    return tuple(steps)


def preserved(rules: Mapping[str, str], status: object) -> dict[str, str]:
    """Label -> its value in a member's status, of those that are there and can be values of labels."""
    found = {}
    for label, text in rules.items():
        try:
            value = status
            for step in path_of(text):
                value = value[step]  # type: ignore[index]
            labels.check_value(label, str(value))
        except (ValueError, LookupError, TypeError):
            continue
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            found[label] = str(value)
    return found


def _purge(text: object, default: Purge) -> Purge:
    word = _OLDER.get(str(text), str(text))
    return Purge(word) if word in list(Purge) else default


def _grace(wish: Json) -> float | None:
    seconds = wish.get("gracePeriodSeconds")
    return None if seconds is None else float(seconds)


def _state(wish: Json) -> dict[str, str]:
    rules = (wish.get("statePreservation") or {}).get("rules") or ()
    return {str(rule.get("aliasLabelName")): str(rule.get("jsonPath")) for rule in rules}
