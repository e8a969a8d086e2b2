"""Runs of queues: which queues a right covers, and which names an answer has."""

from __future__ import annotations

import pytest
from aiohttp import web

from atoll.dispatcher.query import queue_runs
from tests.dispatcher.builders import make_binding, make_queue, scene
from tests.kube.servers import serving

BELOW = {"parent": "lab"}
TREE = (make_queue("lab"), make_queue("x", view=BELOW), make_queue("y", view=BELOW), make_queue("other"))


@pytest.mark.parametrize(
    ("top", "only", "expected"),
    [
        pytest.param("lab", "", {"lab", "x", "y"}, id="a queue covers the ones below it"),
        pytest.param("lab", "x", {"x"}, id="one of them alone"),
        pytest.param("x", "", {"x"}, id="a leaf covers itself"),
        pytest.param("x", "lab", set(), id="not the one above it"),
        pytest.param("lab", "other", set(), id="not a sibling"),
        pytest.param("gone", "", set(), id="no such queue"),
    ],
)
def test_the_right_to_a_queue_covers_its_subtree(top: str, only: str, expected: set[str]) -> None:
    s = scene(*TREE)
    s.run()
    assert queue_runs.below(s.core, top, only) == expected


def test_workloads_of_these_queues_that_were_dispatched_once() -> None:
    s = scene(*TREE)
    for name, queue, gpus in (("runs", "x", 1), ("far", "other", 1), ("waits", "x", 64)):
        s.submit(make_binding(name).tasks(1, gpu=gpus).queue(queue))
    s.run()
    assert queue_runs.dispatched(s.core, {"lab", "x"}) == ["default/runs"]


async def test_an_answer_names_no_workload_of_other_queues() -> None:
    def run(epoch: int, queue: str, evicted_for: str = "", for_queue: str = "") -> dict[str, object]:
        claimed = {"evictedFor": evicted_for, "forQueue": for_queue, "message": f"for {evicted_for}"}
        return {"epoch": epoch, "dispatched": "2026-10-15T12:00:00Z", "queue": queue, **claimed}

    runs = [run(1, "x", "b/mine", "y"), run(2, "x", "c/secret", "other"), run(3, "other"), run(4, "x", "some-uid")]
    binding = {
        "metadata": {"name": "a-job", "namespace": "team", "uid": "u"},
        "spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job", "name": "a"}},
        "status": {"runs": runs},
    }

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/a-job"):
            return web.json_response(binding)
        return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)

    async with serving(answer) as host:
        [found] = await queue_runs.read(host, ["team/a-job", "team/gone-job"], {"lab", "x", "y"})
    assert (found["workload"], found["workloadKind"], found["metadata"]["namespace"]) == ("a", "Job.batch", "team")
    keys = ("epoch", "evictedFor", "forQueue", "message")
    seen = [tuple(each.get(key) for key in keys) for each in found["runs"]]
    assert seen == [(1, "b/mine", "y", "for b/mine"), (2, None, "other", None), (4, "some-uid", None, None)]
