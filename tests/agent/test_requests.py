"""What a member adds to pods is part of what is reported that they request."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.agent.objects import Pod, decode_pod
from atoll.agent.placements import requests_by_task
from atoll.model import keys

ASKED = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
PROXY = {"name": "proxy", "resources": {"requests": {"cpu": "250m"}}}


def pod(**spec: Any) -> Pod:
    annotations = {"volcano.sh/task-spec": "worker"}
    return decode_pod(
        orjson.dumps(
            {
                "metadata": {"name": "p", "namespace": "default", "annotations": annotations},
                "spec": {"nodeName": "n", "containers": [ASKED], **spec},
            }
        )
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [ASKED, PROXY]}, id="an injected container"),
        pytest.param({"initContainers": [{**PROXY, "restartPolicy": "Always"}]}, id="an injected sidecar"),
        pytest.param({"overhead": {"cpu": "250m"}}, id="the overhead of a runtime class"),
    ],
)
def test_what_is_reported_has_what_the_member_added(spec: dict[str, Any]) -> None:
    assert {task: amounts["cpu"] for task, amounts in requests_by_task([pod()]).items()} == {"worker": 1000}
    assert {task: amounts["cpu"] for task, amounts in requests_by_task([pod(**spec)]).items()} == {"worker": 1250}


def test_it_is_reported_by_task_of_the_gang() -> None:
    """Each pod of a pod group is a task of its own in the member, which the host knows nothing of."""
    found = pod()
    found.metadata.annotations[keys.GANG_TASK] = "main"
    assert list(requests_by_task([found])) == ["main"]
