"""Fields of a batch Job by which its pods' ends count: the member's own controller acts on them, the host tells."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, PODS
from tests.integration.federation import Json, Site, batch_job, until

pytestmark = pytest.mark.integration

INDEXED: Json = {"completionMode": "Indexed"}


async def ended(site: Site, name: str) -> tuple[str, str, Json]:
    """(Complete or Failed, its reason, the status) on the host."""

    async def look() -> tuple[str, str, Json] | None:
        found = await site.find(BATCH_JOBS, name) or {}
        for each in (found.get("status") or {}).get("conditions") or ():
            if each["type"] in ("Complete", "Failed") and each["status"] == "True":
                return each["type"], each.get("reason", ""), found["status"]
        return None

    return await until(look, what=f"job {name} has ended")


def failing(name: str, **fields: Any) -> Json:
    obj = batch_job(name, seconds=0.2, **fields)
    obj["spec"]["template"]["metadata"]["annotations"][keys.FAIL] = "true"
    return obj


async def test_pod_failure_policy_fails_the_job_at_the_first_such_exit(site: Site) -> None:
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]
    await site.submit(failing("policy", podFailurePolicy={"rules": rules}, backoffLimit=6))
    kind, reason, status = await ended(site, "policy")
    assert (kind, reason, status["failed"]) == ("Failed", "PodFailurePolicy", 1)


async def test_an_active_deadline_fails_the_job(site: Site) -> None:
    await site.submit(batch_job("late", seconds=None, activeDeadlineSeconds=2))
    assert (await ended(site, "late"))[:2] == ("Failed", "DeadlineExceeded")


async def test_a_backoff_limit_per_index_lets_the_other_indices_end(site: Site) -> None:
    await site.submit(failing("each", parallelism=2, backoffLimitPerIndex=0, **INDEXED))
    kind, reason, status = await ended(site, "each")
    assert (kind, reason, status["failedIndexes"]) == ("Failed", "FailedIndexes", "0,1")


async def test_more_failed_indices_than_may_be_end_the_job(site: Site) -> None:
    await site.submit(failing("few", parallelism=3, backoffLimitPerIndex=0, maxFailedIndexes=0, **INDEXED))
    assert (await ended(site, "few"))[:2] == ("Failed", "MaxFailedIndexesExceeded")


async def test_a_success_policy_completes_the_job_before_all_indices_have_succeeded(site: Site) -> None:
    policy = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}
    await site.submit(batch_job("enough", parallelism=2, seconds=None, successPolicy=policy, **INDEXED))

    async def both() -> list[Json] | None:
        pods = await site.pods(await site.where("enough"))
        return pods if len(pods) == 2 and all(pod["status"].get("phase") == "Running" for pod in pods) else None

    [first] = [pod for pod in await until(both, what="both run") if "enough-0-" in pod["metadata"]["name"]]
    member = await site.where("enough")
    containers = first["status"]["containerStatuses"]
    done = {"state": {"terminated": {"exitCode": 0}}, "ready": False}
    status = {"status": {"phase": "Succeeded", "containerStatuses": [{**each, **done} for each in containers]}}
    name = first["metadata"]["name"]
    await site.members[member].merge_patch(PODS, name, status, site.namespace, subresource="status")
    kind, reason, told = await ended(site, "enough")
    assert (kind, told["completedIndexes"]) == ("Complete", "0")
    assert reason == "SuccessPolicy"


async def test_pods_are_replaced_once_they_have_failed_where_that_is_asked_for(site: Site) -> None:
    await site.submit(batch_job("after", seconds=None, podReplacementPolicy="Failed"))
    member = await site.where("after")

    async def sent() -> Json | None:
        return await site.find(BATCH_JOBS, "after", member)

    assert (await until(sent, what="it is in its member"))["spec"]["podReplacementPolicy"] == "Failed"
