"""Taints that keep pods away, and tolerations.

Taint `atoll.sh/hot` of a node with too much use prefers that pods go elsewhere. With value `below-N` it keeps pods of
a priority below N away, where the caller knows the priority of its pods, and while `timeAdded` is younger than `LASTS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from atoll.model import keys, selectors

Json = Mapping[str, Any]
LASTS: Final = 600.0
"""Seconds for which the number of a taint counts after a look renewed it: several looks may fail in between."""
_BELOW: Final = re.compile(r"below-(-?\d{1,10})")


def accepts(tolerations: Sequence[Json], taints: Sequence[Json], priority: int | None = None) -> bool:
    """Whether every taint that keeps pods away is tolerated; `priority` None: no node is too hot for them."""
    return not taints or (
        selectors.untolerated(taints, tolerations) is None
        and (priority is None or not _too_hot(tolerations, taints, priority))
    )


def refusal(tolerations: Sequence[Json], taints: Sequence[Json], priority: int | None = None) -> str:
    """The first taint that is not, in kube-scheduler's words; empty where there is none."""
    taint = selectors.untolerated(taints, tolerations)
    if taint is None:
        hot = priority is not None and _too_hot(tolerations, taints, priority)
        return f"node(s) were hot ({keys.HOT}) for pods of priority {priority}" if hot else ""
    if taint.get("key") == "node.kubernetes.io/unschedulable":
        return "node(s) were unschedulable"
    return f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"


def hot(below: int | None) -> str:
    """Value of taint `atoll.sh/hot` that keeps pods of a priority below this one away; None keeps none away."""
    return "" if below is None else f"below-{below}"


def least_priority(taints: Iterable[Json]) -> int | None:
    """Priority from which on pods may start on a hot node; None where all may, as on other nodes."""
    values = (str(taint.get("value") or "") for taint in taints if taint.get("key") == keys.HOT)
    found = [int(match[1]) for value in values if (match := _BELOW.fullmatch(value))]
    return max(found, default=None)


def _too_hot(tolerations: Sequence[Json], taints: Sequence[Json], priority: int) -> bool:
    least = least_priority(taint for taint in taints if not selectors.tolerated(taint, tolerations))
    return least is not None and priority < least
