"""Pods that would keep their nodes although they were evicted: finalizers in templates, a grace period of a year."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.kube import errors
from atoll.model.apiresource import BATCH_JOBS, JOBS, PODS
from tests.integration.federation import Json, Site, batch_job, job, until

pytestmark = pytest.mark.integration

YEAR = 31_536_000
MAKERS = pytest.mark.parametrize("make", [job, batch_job], ids=["a Volcano Job", "a batch Job"])


def templates(obj: Json) -> list[Json]:
    return [task["template"] for task in obj["spec"].get("tasks", ())] or [obj["spec"]["template"]]


@MAKERS
async def test_finalizers_of_pods_are_refused(site: Site, make: Any) -> None:
    obj = make("x")
    for template in templates(obj):
        template["metadata"]["finalizers"] = ["example.com/keep"]
    with pytest.raises(errors.Forbidden) as refused:
        await site.submit(obj)
    assert "metadata.finalizers: can't be given" in refused.value.message


@MAKERS
async def test_a_grace_period_is_cut_to_what_the_queue_allows_and_that_is_warned_of(site: Site, make: Any) -> None:
    queue = await site.queue()
    await site.only("alpha")
    site.kubectl("annotate", "queue", queue, "atoll.sh/evict-timeout=7m")
    obj = make("slow", seconds=None)
    obj["metadata"] |= {"namespace": site.namespace, "labels": {"volcano.sh/queue-name": queue}}
    for template in templates(obj):
        template["spec"]["terminationGracePeriodSeconds"] = YEAR

    async def warned() -> bool:
        text = site.warned("create", "--dry-run=server", "-f", "-", stdin=json.dumps(obj))
        return f"terminationGracePeriodSeconds: is {YEAR}; in members it is 420" in text

    await until(warned, what="it is warned of")
    await site.submit(obj)

    async def made() -> list[Json]:
        return await site.pods("alpha")

    (pod,) = await until(made, what="its pod is there")
    assert pod["spec"]["terminationGracePeriodSeconds"] == 420
    resource = JOBS if "tasks" in obj["spec"] else BATCH_JOBS
    there = await site.host.get(resource, "slow", site.namespace)
    assert templates(there)[0]["spec"]["terminationGracePeriodSeconds"] == YEAR, (
        "on the host it is as its user wrote it"
    )


async def test_a_pod_whose_grace_period_was_raised_in_the_member_goes_in_time(site: Site) -> None:
    """1. A pod that is to go got a year. 2. Its workload is evicted. 3. It has as long as its queue allows."""
    queue = await site.queue()
    await site.only("alpha")
    site.kubectl("annotate", "queue", queue, "atoll.sh/evict-timeout=2s")
    await site.submit(job("old", queue=queue, seconds=None))
    await site.phase("old", "Running")
    alpha = site.members["alpha"]
    (pod,) = await site.pods("alpha")
    name = pod["metadata"]["name"]
    # Only its own kubelet's silence keeps it now: this one has no node that would answer.
    stuck = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "stuck",
            "namespace": site.namespace,
            "annotations": pod["metadata"]["annotations"],
            "ownerReferences": pod["metadata"]["ownerReferences"],
        },
        "spec": {
            "nodeName": "no-such-node",
            "terminationGracePeriodSeconds": YEAR,
            "containers": [{"name": "c", "image": "busybox"}],
        },
    }
    await alpha.create(PODS, stuck)
    assert name != "stuck"
    await site.host.delete(JOBS, "old", site.namespace)

    async def brief() -> Json | None:
        found = [each for each in await site.pods("alpha") if each["metadata"]["name"] == "stuck"]
        return next((each for each in found if each["metadata"].get("deletionGracePeriodSeconds") == 2), None)

    await until(brief, what="it has as long as its queue allows")
    await alpha.delete(PODS, "stuck", site.namespace, grace_seconds=0)
