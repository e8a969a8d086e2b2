"""When a played kubelet is late: what it owes to a pod, and since when."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import keys, timestamps
from tests.chaos.kubelets import due

AT = 1_796_000_000.0
THEN = timestamps.rfc3339_seconds(AT)
BOUND = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": THEN}]
RUNNING = {"phase": "Running", "startTime": THEN, "conditions": BOUND, "containerStatuses": [{}]}


@pytest.mark.parametrize(
    ("status", "annotations", "deleted", "wanted"),
    [
        ({"phase": "Pending", "conditions": BOUND}, {}, False, AT),
        ({"phase": "Pending", "conditions": BOUND, "containerStatuses": [{}]}, {keys.FAIL: "image"}, False, None),
        (RUNNING, {keys.RUN_TIME: "90s"}, False, AT + 90),
        (RUNNING, {}, False, None),
        (RUNNING, {}, True, AT),
        ({**RUNNING, "phase": "Succeeded"}, {keys.RUN_TIME: "90s"}, False, None),
    ],
    ids=["start", "no image", "end", "no end", "removal", "ended"],
)
def test_the_next_step_of_a_kubelet(
    status: dict[str, Any], annotations: dict[str, str], deleted: bool, wanted: float | None
) -> None:
    metadata = {"annotations": annotations, **({"deletionTimestamp": THEN} if deleted else {})}
    assert due({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}) == wanted
    assert due({"metadata": metadata, "spec": {}, "status": status}) is None
