"""Pods that are resized in place hold what they are allocated, what they have, or what they ask for: the most of it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.agent.objects import decode_pod


@pytest.mark.parametrize(
    ("asks", "status", "conditions", "holds"),
    [
        pytest.param("1", {}, [], 1000, id="one that was never resized"),
        pytest.param("1", {"allocatedResources": {"cpu": "4"}}, [], 4000, id="it shrinks, and still has more"),
        pytest.param("4", {"allocatedResources": {"cpu": "1"}}, [], 4000, id="it is to grow"),
        pytest.param(
            "1", {"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "3"}}}, [], 3000,
            id="its container has more than it is allocated by now",
        ),
        pytest.param(
            "64", {"allocatedResources": {"cpu": "2"}},
            [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}], 2000,
            id="what its node never has is not held",
        ),
    ],
)  # fmt: skip
def test_a_pod_holds(asks: str, status: dict[str, Any], conditions: list[dict[str, Any]], holds: int) -> None:
    pod = decode_pod(
        orjson.dumps(
            {
                "metadata": {"name": "p", "namespace": "default"},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": asks}}}]},
                "status": {
                    "phase": "Running",
                    "conditions": conditions,
                    "containerStatuses": [{"name": "c", **status}],
                },
            }
        )
    )
    assert pod.requests["cpu"] == holds


@pytest.mark.parametrize(
    ("status", "holds"),
    [
        pytest.param({}, 2000, id="one that was never resized"),
        pytest.param({"allocatedResources": {"cpu": "4"}}, 4000, id="it shrinks, and is still allocated more"),
        pytest.param({"resources": {"requests": {"cpu": "3"}}}, 3000, id="it shrinks, and still has more"),
        pytest.param(
            {"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}, 2000, id="it is to grow"
        ),
    ],
)
def test_a_pod_with_resources_as_a_whole_holds(status: dict[str, Any], holds: int) -> None:
    spec = {"nodeName": "n", "resources": {"requests": {"cpu": "2"}}, "containers": [{"name": "c"}]}
    body = {"metadata": {"name": "p", "namespace": "default"}, "spec": spec, "status": {"phase": "Running", **status}}
    assert decode_pod(orjson.dumps(body)).requests["cpu"] == holds
