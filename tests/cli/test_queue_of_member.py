"""`atollctl queue` with the kubeconfig of a cluster that is no host says so, and where the queues are."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from tests.atollctl import atollctl
from tests.cli.kubeconfigs import kubeconfig
from tests.kube.servers import serving

CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
SYSTEM = "/api/v1/namespaces/atoll-system"
OWN = {"metadata": {"name": "own"}, "spec": {}}
MEMBER = "this is a member, and the federation's queues are on its host"


@pytest.mark.parametrize(
    ("words", "served", "code", "says"),
    [
        pytest.param(["list"], {QUEUES: [], SYSTEM: []}, 1, MEMBER, id="a member"),
        pytest.param(["get", "research"], {SYSTEM: []}, 1, MEMBER, id="a queue of the host"),
        pytest.param(["list"], {QUEUES: [OWN], SYSTEM: []}, 0, f"note: {MEMBER}", id="a member with queues"),
        pytest.param(["list"], {QUEUES: []}, 1, "this is no host of Atoll", id="another cluster"),
        pytest.param(["list"], {QUEUES: [], CLUSTERS: []}, 0, "No queues found", id="the host"),
    ],
)
async def test_a_cluster_that_is_no_host_says_so(
    words: list[str], served: dict[str, list[object]], code: int, says: str, tmp_path: Path
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path not in served:
            return web.json_response({"reason": "NotFound", "message": "there is none"}, status=404)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": served[request.path]})

    async with serving(answer) as api:
        ran = await atollctl("queue", *words, f"--kubeconfig={kubeconfig(api.url, tmp_path / 'config')}")
    assert ran.code == code
    assert says in ran.said
