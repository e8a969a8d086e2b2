"""Members that are lost: what becomes of the work there, and when. One rule for dispatcher, control and simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from atoll.model import duration, keys
from atoll.model.queues import nearest
from atoll.model.timestamps import is_time, to_seconds

TOLERATION: Final = 60.0
"""Seconds that a member may be away before what runs there goes back to its queue, where nobody says otherwise."""
TAINTS: Final = ("cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable")
"""Keys of the taints by which Karmada says that a member is away: policies that tolerate them mean this."""


FENCE_MARGIN: Final = 10.0
"""Seconds after the last pod should have ended that pass before what is exclusive runs elsewhere: the agent looks for
it every few seconds, and its clock may go slower than the host's."""
STALE_GONE: Final = "StaleWorkGone"
"""Condition of a Cluster: whether all is gone that ran there without its binding; until then it gets nothing new."""


class OnLost(StrEnum):
    """What becomes of a workload whose member is lost; annotation `atoll.sh/on-lost`."""

    REQUEUE = "requeue"
    """It runs elsewhere after the toleration; what still runs in the member goes when that is back."""
    EXCLUSIVE = "exclusive"
    """It runs elsewhere once the member's agent has surely ended its pods."""
    WAIT = "wait"
    """It waits for the member."""


def read(text: str) -> OnLost:
    """The annotation.

    Raises:
        ValueError: it is none of the words.
    """
    try:
        return OnLost(text)
    except ValueError:
        raise ValueError(f"{text!r} is none of {', '.join(OnLost)}") from None


def lost_at(
    on_lost: str, toleration: float | None, since: float, fenced_after: float | None, grace: float = 0.0
) -> float:
    """When a workload may run elsewhere, in seconds since the epoch; infinite for never.

    Args:
        on_lost: as its annotation says; empty for the default.
        toleration: seconds; None for the default.
        since: when its member was last heard of as ready.
        fenced_after: seconds after which the member's agent ends exclusive work; None where that is not known.
        grace: seconds that its pods may take to end.
    """
    tolerated = since + (TOLERATION if toleration is None else toleration)
    if on_lost == OnLost.WAIT:
        return math.inf
    if on_lost == OnLost.EXCLUSIVE:
        return math.inf if fenced_after is None else max(tolerated, since + fenced_after + grace + FENCE_MARGIN)
    return tolerated


def absence(said: Mapping[str, Any] | None) -> tuple[float, float | None] | None:
    """`status.lost` of a Cluster: since when it is away, in seconds since the epoch, and after how many seconds its
    agent ends exclusive work; None where it is there.
    """
    since, fenced = (str((said or {}).get(each) or "") for each in ("since", "fencedAt"))
    if not is_time(since):
        return None
    return to_seconds(since), max(to_seconds(fenced) - to_seconds(since), 0.0) if is_time(fenced) else None


def wish(
    workload: Mapping[str, str],
    policy: Mapping[str, str],
    tolerations: Iterable[Mapping[str, Any]],
    queue: str,
    find: Callable[[str], tuple[Mapping[str, str], str] | None],
) -> tuple[str, float | None]:
    """(on-lost, seconds of toleration) of a workload: its own, else its policy's, else its queue's; empty and
    None for the defaults. What can't be read says nothing.

    Args:
        workload: its annotations.
        policy: those of its policy.
        tolerations: clusterTolerations of its policy.
        queue: its name.
        find: (annotations, parent) of a queue, None where there is none.
    """
    said = (each.get(keys.ON_LOST, "") for each in (workload, policy))
    on_lost = next((text for text in said if text in list(OnLost)), "")
    seconds = [duration.parse_or_none(each.get(keys.LOST_TOLERATION)) for each in (workload, policy)]
    tolerated = _tolerated([*tolerations])
    known = next((each for each in (*seconds, tolerated) if each is not None), None)
    if known is None:
        known = nearest(queue, find, keys.LOST_TOLERATION)
    if known == math.inf:
        return OnLost.WAIT, None
    return on_lost, known


def _tolerated(tolerations: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds that a policy tolerates an absence, in Karmada's words; None where it says nothing of that."""
    named = [
        each for each in tolerations if each.get("key") in TAINTS and each.get("effect") in (None, "", "NoExecute")
    ]
    if not named:
        return None
    return min(float(each["tolerationSeconds"]) if "tolerationSeconds" in each else math.inf for each in named)
