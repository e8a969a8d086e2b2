"""When pods leave devices with a `NoExecute` taint, as Kubernetes' device-taint-eviction controller decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from atoll.model.devices import DeviceId, Taint, Toleration
from atoll.model.timestamps import seconds_or

EVICTING: Final = "NoExecute"


class Eviction(NamedTuple):
    """Of the pods that a claim is reserved for."""

    at: float
    """Seconds since the epoch; minus infinity for a taint without a time."""
    why: str
    """The device and its taint."""


def end_of_toleration(taint: Taint, tolerations: Iterable[Toleration]) -> float:
    """Seconds since the epoch at which pods must leave a device with a `NoExecute` taint; infinite for never.

    The shortest `tolerationSeconds` of the tolerations that match counts, from the time of the taint.
    """
    since = seconds_or(taint.since, -math.inf)
    matching = [each for each in tolerations if each.tolerates(taint)]
    if not matching:
        return since
    return min(since + max(each.seconds, 0) if each.seconds is not None else math.inf for each in matching)


def eviction(allocation: Mapping[str, Any], taints: Callable[[DeviceId], Sequence[Taint]]) -> Eviction | None:
    """The first eviction due by a claim's allocation; None where no taint of its devices evicts.

    Args:
        allocation: of a ResourceClaim's status; its results carry the tolerations of their requests.
        taints: of a device.
    """
    found = []
    for result in (allocation.get("devices") or {}).get("results") or ():
        device = DeviceId(result["driver"], result["pool"], result["device"])
        tolerations = [Toleration.of(each) for each in result.get("tolerations") or ()]
        for taint in taints(device):
            if taint.effect == EVICTING and (at := end_of_toleration(taint, tolerations)) < math.inf:
                value = f"={taint.value}" if taint.value else ""
                found.append(Eviction(at, f"device {device} has taint {taint.key}{value}:{EVICTING}"))
    return min(found, default=None)
