"""When a finished workload is removed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import orjson
import pytest
from aiohttp import web

from atoll.control.caches import Caches
from atoll.control.settings import FinishedSettings
from atoll.control.ttl import Ended, Ttl, due_at
from atoll.kinds import BY_RESOURCE, batch_job, volcano_job
from atoll.kube.reflector import Reflector
from atoll.model.apiresource import JOBS
from atoll.model.objects import Full, decode_full, decode_meta
from tests.kube.servers import serving

AT = 1767225600.0


def ended(*conditions: dict[str, str], ttl: int | None = 30, **status: Any) -> dict[str, Any]:
    spec = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    return {"spec": spec, "status": {**status, "conditions": list(conditions)}}


def entered(phase: str, second: int) -> dict[str, str]:
    return {"status": phase, "lastTransitionTime": f"2026-01-01T00:00:{second:02}Z"}


def true(kind: str, second: int, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": f"2026-01-01T00:00:{second:02}Z"}


CASES: list[tuple[str, dict[str, Any], float | None]] = [
    (
        "a Volcano Job counts from the condition of its last phase",
        ended(entered("Running", 1), entered("Completed", 5), state={"phase": "Completed"}),
        AT + 35,
    ),
    (
        "without that condition, from the transition of its state",
        ended(state={"phase": "Failed", "lastTransitionTime": "2026-01-01T00:00:07Z"}),
        AT + 37,
    ),
    ("a batch Job counts from its completionTime", ended(completionTime="2026-01-01T00:00:09Z"), AT + 39),
    ("a batch Job that failed has none: from its condition", ended(true("Failed", 4), true("Ready", 8)), AT + 34),
    ("a final condition that is false is none", ended(true("Failed", 4, "False")), None),
    ("a TTL of 0 is at once", ended(ttl=0, completionTime="2026-01-01T00:00:09Z"), AT + 9),
    ("without a TTL it stays", ended(entered("Completed", 5), ttl=None, state={"phase": "Completed"}), None),
    (
        "a time that is no number is none",
        {"spec": {"ttlSecondsAfterFinished": "soon", "runPolicy": 3}, "status": {}},
        None,
    ),
    ("without a time it stays", ended(state={"phase": "Completed"}), None),
]


@pytest.mark.parametrize(("obj", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_due(obj: dict[str, Any], expected: float | None) -> None:
    kind = volcano_job.KIND if "state" in obj["status"] else batch_job.KIND
    assert due_at(kind, obj) == expected


def test_a_training_job_has_its_time_to_live_in_its_run_policy() -> None:
    kind = next(kind for kind in BY_RESOURCE.values() if kind.resource.kind == "PyTorchJob")
    policy = {"runPolicy": {"ttlSecondsAfterFinished": 30}}
    assert due_at(kind, {"spec": policy, "status": {"conditions": [true("Succeeded", 4)]}}) == AT + 34


def test_the_first_to_have_ended_is_the_first_beyond_the_number() -> None:
    kept = Ended()
    for name, at in (("b", 2.0), ("a", 1.0), ("c", 3.0), ("d", 4.0)):
        kept.put((JOBS, name), at)
    kept.put((JOBS, "a"), 5.0)
    kept.put((JOBS, "b"), None)
    assert kept.beyond(3) is None
    assert [kept.beyond(1), kept.beyond(1), kept.beyond(1)] == [(JOBS, "c"), (JOBS, "d"), None]
    assert len(kept) == 1


async def test_more_ended_workloads_than_may_stay_are_removed_the_first_to_have_ended_first() -> None:
    """Two stay. One that runs, one with an owner and one of a namespace that left Atoll do not count."""
    removed: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.method == "DELETE"
        removed.append(request.path.rpartition("/")[2])
        return web.json_response({})

    async with serving(answer) as host:
        caches = Caches(host)
        for name, labels in (("ns", {"atoll.sh/enabled": "true"}), ("left", {})):
            caches.namespaces.put(name, decode_meta(orjson.dumps({"metadata": {"name": name, "labels": labels}})))
        ttl = Ttl(host, caches, settings=FinishedSettings(most=2))
        jobs = cast(Reflector[Full], caches.workloads[JOBS])

        def put(name: str, second: int, namespace: str = "ns", phase: str = "Completed", **meta: Any) -> None:
            about = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **meta}
            status = {"state": {"phase": phase}, "conditions": [entered(phase, second)]}
            found = decode_full(orjson.dumps({"metadata": about, "spec": {}, "status": status}))
            jobs.put(found.metadata.key, found)

        put("runs", 0, phase="Running")
        put("owned", 1, ownerReferences=[{"uid": "u", "name": "f", "kind": "JobFlow", "apiVersion": "v1"}])
        put("elsewhere", 2, namespace="left")
        for number in (5, 3, 6, 4):
            put(f"j{number}", number)
        running = asyncio.create_task(ttl.run())
        async with asyncio.timeout(30):
            while len(removed) < 2:
                await asyncio.sleep(0.01)
        running.cancel()
    assert sorted(removed) == ["j3", "j4"]
