"""Workloads that would leave their queue, or take what is the system's, are refused at admission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from atoll.kube import errors
from atoll.model import keys
from atoll.model.apiresource import JOBS, PRIORITY_CLASSES, QUEUES
from tests.integration.federation import Json, Site, batch_job, job

pytestmark = pytest.mark.integration


def in_template(obj: Json, **spec: Any) -> Json:
    templates = [task["template"] for task in obj["spec"].get("tasks", ())] or [obj["spec"]["template"]]
    for template in templates:
        template["spec"].update(spec)
    return obj


OWNER = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "none", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("obj", "says"),
    [
        pytest.param(job("x", priorityClassName="system-node-critical"), "priorityClassName", id="a class of the system"),
        pytest.param(
            in_template(job("x"), priorityClassName="system-cluster-critical"), "priorityClassName", id="the same in a template"
        ),
        pytest.param(
            in_template(batch_job("x"), priorityClassName="system-node-critical"), "priorityClassName", id="the same of a batch Job"
        ),
        pytest.param(in_template(job("x"), nodeName="alpha-n-0"), "nodeName", id="a node of its choice"),
        pytest.param(in_template(batch_job("x"), nodeName="alpha-n-0"), "nodeName", id="the same of a batch Job"),
        pytest.param(in_template(job("x"), schedulerName="mine"), "schedulerName", id="a scheduler of its choice"),
        pytest.param(in_template(batch_job("x"), schedulerName="mine"), "schedulerName", id="the same of a batch Job"),
        pytest.param(batch_job("x", managedBy="kubernetes.io/job-controller"), "managedBy", id="Kubernetes' controller"),
        pytest.param(batch_job("x", managedBy="example.com/mine"), "managedBy", id="a controller of its own"),
    ],
)  # fmt: skip
async def test_refused(site: Site, obj: Json, says: str) -> None:
    with pytest.raises(errors.ApiError) as refused:
        await site.submit(obj)
    assert says in refused.value.message


LONG = {f"example.com/{'x' * 50}-{number}": "y" * 60 for number in range(1500)}


@pytest.mark.parametrize("make", [job, batch_job], ids=["a Volcano Job", "a batch Job"])
async def test_what_no_binding_can_say_is_refused(site: Site, make: Callable[..., Json]) -> None:
    """Once it was taken in, no binding was made of it, and nobody said why."""
    with pytest.raises(errors.ApiError) as refused:
        await site.submit(in_template(make("large"), nodeSelector=LONG))
    assert "in its binding, which holds" in refused.value.message


async def test_a_forged_owner_does_not_take_a_job_out_of_its_queue(site: Site) -> None:
    made = await site.submit(batch_job("child", metadata={"ownerReferences": [OWNER]}))
    assert (made["spec"]["managedBy"], made["spec"]["suspend"]) == (keys.CONTROLLER, True)


async def test_a_queue_says_which_classes_its_workloads_may_name(site: Site) -> None:
    queue = await site.queue()
    note = {"metadata": {"annotations": {keys.PRIORITY_CLASSES: "low, normal"}}}
    await site.host.merge_patch(QUEUES, queue, note)
    for name in (f"high-{site.namespace}", "normal"):
        obj = {
            "apiVersion": PRIORITY_CLASSES.api_version,
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 5,
        }
        try:
            await site.host.create(PRIORITY_CLASSES, obj)
        except errors.AlreadyExists:
            continue
    with pytest.raises(errors.ApiError) as refused:
        await site.submit(job("x", queue=queue, priorityClassName=f"high-{site.namespace}"))
    assert "use low, normal" in refused.value.message
    await site.submit(job("x", queue=queue, priorityClassName="normal", seconds=None))
    with pytest.raises(errors.ApiError):
        await site.host.merge_patch(
            JOBS, "x", {"spec": {"priorityClassName": f"high-{site.namespace}"}}, site.namespace
        )
    await site.host.delete(PRIORITY_CLASSES, f"high-{site.namespace}")
