"""Tasks with `dependsOn`: pods come in order, the gang is bound without those that wait, the queue pays for all."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import keys
from atoll.model.apiresource import BINDINGS, POD_GROUPS, QUEUES
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration


def staged(name: str, **spec: Any) -> Json:
    """Three tasks, each after the one before; the first of two pods."""
    obj = job(name, seconds=1.0, **spec)
    [task] = obj["spec"]["tasks"]
    tasks = [task | {"name": "load", "replicas": 2}, task | {"name": "train"}, task | {"name": "report"}]
    tasks[1] |= {"dependsOn": {"name": ["load"]}}
    tasks[2] |= {"dependsOn": {"name": ["load", "train"], "iteration": "all"}}
    obj["spec"]["tasks"] = tasks
    return obj


async def test_three_stages_in_one_gang_run_one_after_the_other(site: Site) -> None:
    await site.submit(staged("pipe"))
    done = await site.phase("pipe", "Completed")
    assert done["status"]["succeeded"] == 4
    member = await site.where("pipe")
    pods = {pod["metadata"]["name"].removeprefix("pipe-"): pod for pod in await site.pods(member)}
    ready = {
        name: next(c["lastTransitionTime"] for c in pod["status"]["conditions"] if c["type"] == "Initialized")
        for name, pod in pods.items()
    }
    made = {name: pod["metadata"]["creationTimestamp"] for name, pod in pods.items()}
    assert max(ready["load-0"], ready["load-1"]) <= made["train-0"]
    assert ready["train-0"] <= made["report-0"]
    # Those that came first were bound before the others were there.
    created = [e for e in site.audit(member) if e["verb"] == "create" and e["objectRef"]["resource"] == "pods"]
    order = [e["objectRef"].get("name") for e in created if not e["objectRef"].get("subresource")]
    assert [name for name in order if name][-2:] == ["pipe-train-0", "pipe-report-0"]


async def test_what_waits_for_another_task_is_charged_and_does_not_keep_the_gang_from_being_bound(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "400m"})
    obj = staged("stuck", queue=queue)
    obj["spec"]["tasks"][0]["template"] = {
        **obj["spec"]["tasks"][0]["template"],
        "metadata": {"annotations": {keys.FAIL: "image"}},
    }
    await site.submit(obj)

    async def bound() -> Json | None:
        found = await site.find(BINDINGS, "stuck-job") or {}
        conditions = found.get("status", {}).get("conditions") or ()
        return next((each for each in conditions if each["type"] == "Bound" and each["status"] == "True"), None)

    assert (await until(bound, what="the first stage is bound"))["message"] == "2 pods"
    member = await site.where("stuck")
    assert sorted(pod["metadata"]["name"] for pod in await site.pods(member)) == ["stuck-load-0", "stuck-load-1"]
    [group] = await site.members[member].list(POD_GROUPS, site.namespace)
    assert (group["spec"]["minMember"], group["spec"]["minTaskMember"]) == (2, {"load": 2})

    async def charged() -> bool:
        found = await site.host.get(QUEUES, queue)
        return bool((found.get("status") or {}).get("allocated", {}).get("cpu") == "400m")

    await until(charged, what="the queue is charged for all four pods")
