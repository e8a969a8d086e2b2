"""The second look of played kubelets: a pod that is overdue is touched, so that kwok looks at it again.

kwok looks at a pod once per change of it. It drops a step whose answer was lost with its API server, and passes over pods that it lists before it knows of its
own node Leases, as after its restart. A real kubelet looks at all of its pods every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import duration, keys, timestamps
from atoll.model.apiresource import PODS
from tests.chaos.plan import NAMESPACE
from tests.chaos.record import ENDED

Json = dict[str, Any]

_LATE_S = 10.0
"""A step that is later than this is lost."""
_LOOK_S = 2.0
_LINES = 3
"""Of a log, about each pod."""
_TOUCHED = "chaos/touched"


async def look_again(members: Mapping[str, ApiServer], pace: float) -> None:
    """Touch overdue pods of all members until cancelled. `pace`: steps may be so many times as late."""
    touched: dict[str, float] = {}
    while True:
        for api in members.values():
            with contextlib.suppress(errors.ApiError):
                for pod in await api.list(PODS, NAMESPACE):
                    await _look(api, pod, touched, time.time(), _LATE_S * pace)
        await asyncio.sleep(_LOOK_S)


async def left(members: Mapping[str, ApiServer], logs: Path) -> list[str]:
    """A line for each pod that is still there, with the last lines of its played kubelet."""
    lines = []
    for member, api in members.items():
        for pod in await api.list(PODS, NAMESPACE):
            metadata, name = pod["metadata"], pod["metadata"]["name"]
            ends = metadata.get("deletionTimestamp", "never")
            lines.append(
                f"{member} pod {name}: {pod['status'].get('phase')} on {pod['spec'].get('nodeName')}, ends {ends}"
            )
            kubelet = (logs / f"{member}-kwok.log").read_text(errors="replace").splitlines()
            lines += [f"  {line}"[:300] for line in [each for each in kubelet if f"/{name}" in each][-_LINES:]]
    return lines


async def _look(api: ApiServer, pod: Json, touched: dict[str, float], now: float, late: float) -> None:
    metadata = pod["metadata"]
    at = due(pod)
    # kwok counts a run time anew from each change.
    if at is not None and now > at + late and now > touched.get(metadata["uid"], 0.0) + _runs(pod) + late:
        touched[metadata["uid"]] = now
        mark = {"metadata": {"uid": metadata["uid"], "annotations": {_TOUCHED: timestamps.rfc3339(now)}}}
        await api.merge_patch(PODS, metadata["name"], mark, NAMESPACE)


def due(pod: Json) -> float | None:
    """When its kubelet's next step was or is due, in Unix seconds; None where it has none."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if not pod["spec"].get("nodeName"):
        return None
    if "deletionTimestamp" in metadata:
        return timestamps.to_seconds(metadata["deletionTimestamp"])
    if status.get("phase") in ENDED:
        return None
    if status.get("phase") == "Running":
        runs = _runs(pod)
        return timestamps.to_seconds(status["startTime"]) + runs if runs else None
    bound = next((each for each in status.get("conditions") or () if each["type"] == "PodScheduled"), None)
    return timestamps.to_seconds(bound["lastTransitionTime"]) if bound and not status.get("containerStatuses") else None


def _runs(pod: Json) -> float:
    return duration.parse_or_none((pod["metadata"].get("annotations") or {}).get(keys.RUN_TIME)) or 0.0
