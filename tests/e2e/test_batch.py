"""Batch Jobs whose containers really end: the fields by which their ends count, told on the host."""

from __future__ import annotations

from typing import Any

from atoll.model.apiresource import BATCH_JOBS, PODS
from tests.e2e.jobs import PATIENCE, shell
from tests.integration.federation import Json, Site, until


def batch(name: str, script: str, pods: int = 1, *, grace: int = 2, **spec: Any) -> Json:
    """A batch Job of so many pods that run a script."""
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, "containers": [shell(script)]}
    return {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod}, **spec},
    }


async def ended(site: Site, name: str) -> tuple[str, str, Json]:
    """(Complete or Failed, its reason, the status) on the host."""

    async def look() -> tuple[str, str, Json] | None:
        found = await site.find(BATCH_JOBS, name) or {}
        for each in (found.get("status") or {}).get("conditions") or ():
            if each["type"] in ("Complete", "Failed") and each["status"] == "True":
                return each["type"], each.get("reason", ""), found["status"]
        return None

    return await until(look, deadline=PATIENCE, what=f"job {name} has ended")


INDEXED: Json = {"completionMode": "Indexed"}
OWN = '[ "$JOB_COMPLETION_INDEX" = 0 ]'


def on_exit(action: str, code: int) -> Json:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [code]}}]}


async def test_exit_codes_indices_and_deadlines_end_batch_jobs_as_their_fields_say(site: Site) -> None:
    first = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}
    jobs = [
        batch("fatal", "exit 42", backoffLimit=6, podFailurePolicy=on_exit("FailJob", 42)),
        batch("late", "sleep 600", activeDeadlineSeconds=3),
        batch("enough", f"{OWN} || sleep 600", 2, successPolicy=first, **INDEXED),
        # Index 1 ends at once by its code, index 2 after it was tried again.
        batch(
            "each",
            "case $JOB_COMPLETION_INDEX in 0) exit 0;; 1) exit 42;; *) exit 1;; esac",
            3,
            backoffLimitPerIndex=1,
            podFailurePolicy=on_exit("FailIndex", 42),
            **INDEXED,
        ),
        batch("few", f"{OWN} || exit 1; sleep 600", 3, backoffLimitPerIndex=0, maxFailedIndexes=0, **INDEXED),
    ]
    for each in jobs:
        await site.submit(each)
    kind, reason, status = await ended(site, "fatal")
    assert (kind, reason, status["failed"]) == ("Failed", "PodFailurePolicy", 1)
    assert (await ended(site, "late"))[:2] == ("Failed", "DeadlineExceeded")
    kind, reason, status = await ended(site, "enough")
    assert (kind, reason, status["completedIndexes"]) == ("Complete", "SuccessPolicy", "0")
    assert (await ended(site, "few"))[:2] == ("Failed", "MaxFailedIndexesExceeded")
    kind, reason, status = await ended(site, "each")
    assert (kind, reason) == ("Failed", "FailedIndexes")
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("0", "1,2", 3)


async def test_a_pod_on_its_way_out_is_replaced_once_it_has_failed_where_that_is_asked_for(site: Site) -> None:
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    await site.submit(batch("after", stubborn, grace=5, podReplacementPolicy="Failed"))
    member = await site.where("after")

    async def runs() -> Json | None:
        pods = await site.pods(member)
        return pods[0] if len(pods) == 1 and pods[0]["status"].get("phase") == "Running" else None

    first = await until(runs, deadline=PATIENCE, what="its pod runs")
    await site.members[member].delete(PODS, first["metadata"]["name"], site.namespace)
    seen: set[tuple[bool, bool]] = set()

    async def replaced() -> bool:
        pods = await site.pods(member)
        active = [each for each in pods if each["status"].get("phase") in ("Pending", "Running")]
        going = any("deletionTimestamp" in each["metadata"] for each in active)
        fresh = any(each["metadata"]["uid"] != first["metadata"]["uid"] for each in active)
        seen.add((going, fresh))
        return fresh

    await until(replaced, deadline=PATIENCE, what="another pod is there")
    assert seen >= {(True, False), (False, True)}
    assert (True, True) not in seen
