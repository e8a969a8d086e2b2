"""What operators and users do to jobs, queues and members, on real API servers."""

from __future__ import annotations

import pytest

from atoll.model import keys
from atoll.model.apiresource import BINDINGS, COMMANDS, EVENTS, JOBS, WORKS
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration


async def command(site: Site, action: str, target: dict) -> None:
    """What vcctl sends."""
    reference = {
        "apiVersion": target["apiVersion"],
        "kind": target["kind"],
        "name": target["metadata"]["name"],
        "uid": target["metadata"]["uid"],
    }
    namespace = target["metadata"].get("namespace") or "default"
    metadata = {"generateName": f"{reference['name']}-", "namespace": namespace, "ownerReferences": [reference]}
    head = {"apiVersion": COMMANDS.api_version, "kind": COMMANDS.kind, "metadata": metadata}
    await site.host.create(COMMANDS, {**head, "action": action, "target": reference})


async def consumed(site: Site) -> None:
    async def look() -> bool:
        return not await site.host.list(COMMANDS, site.namespace)

    await until(look, what="the Command is consumed")


async def warned(site: Site, reason: str) -> str:
    async def look() -> str | None:
        found = [event for event in await site.host.list(EVENTS, site.namespace) if event.get("reason") == reason]
        return str(found[-1]["note"]) if found else None

    return await until(look, what=f"an Event {reason}")


def phases(found: dict) -> list[str]:
    return [each["status"] for each in found["status"]["conditions"]]


async def test_an_aborted_job_leaves_its_members_keeps_its_counts_and_runs_again_when_resumed(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "2"})
    tasks = job("x", seconds=0.2)["spec"]["tasks"] + job("x", seconds=None, cpu="1500m")["spec"]["tasks"]
    tasks[0]["name"], tasks[1]["name"] = "short", "long"
    made = await site.submit(job("stop", tasks=tasks, queue=queue))

    async def short_is_done() -> dict | None:
        found = await site.find(JOBS, "stop")
        status = (found or {}).get("status") or {}
        return found if (status.get("succeeded"), status.get("running")) == (1, 1) else None

    await until(short_is_done, what="the first task has succeeded")
    await site.submit(job("next", cpu="1", seconds=None, queue=queue))
    await site.reason("next", "QuotaExceeded")

    await command(site, "AbortJob", made)
    aborted = await site.phase("stop", "Aborted")
    await consumed(site)
    assert phases(aborted)[-2:] == ["Aborting", "Aborted"]
    status = aborted["status"]
    assert (status["succeeded"], status.get("running"), status.get("pending")) == (1, None, None)
    assert status["taskStatusCount"] == {"short": {"phase": {"Succeeded": 1}}}
    assert status["state"]["reason"] == "CommandIssued"
    assert not [w for w in await site.host.list(WORKS) if w["metadata"]["annotations"][keys.BINDING_NAME] == "stop-job"]
    await site.phase("next", "Running")  # its quota is free
    site.kubectl("delete", "vcjob", "next", "-n", site.namespace)

    await command(site, "ResumeJob", made)

    async def runs_again() -> dict | None:
        found = await site.find(JOBS, "stop")
        status = (found or {}).get("status") or {}
        return found if (status.get("succeeded"), status.get("running")) == (1, 1) else None

    resumed = await until(runs_again, what="the job runs again")
    assert resumed["status"]["retryCount"] == 1
    assert keys.HOLD not in resumed["metadata"]["annotations"]
    assert keys.ABORTED not in resumed["metadata"]["annotations"]
    assert resumed["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


async def test_a_job_that_waits_is_aborted_and_resumed_without_ever_running(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "1"})
    made = await site.submit(job("big", cpu="2", queue=queue))
    await site.reason("big", "QuotaExceeded")
    await command(site, "AbortJob", made)
    await site.phase("big", "Aborted")
    await command(site, "ResumeJob", made)
    await site.phase("big", "Pending")
    await site.reason("big", "QuotaExceeded")


async def test_a_restarted_job_gets_new_pods_and_counts_the_retry(site: Site) -> None:
    made = await site.submit(job("again", seconds=None))
    await site.phase("again", "Running")
    before = {pod["metadata"]["uid"] for pod in await site.pods(await site.where("again"))}
    await command(site, "RestartJob", made)

    async def restarted() -> dict | None:
        found = await site.find(JOBS, "again")
        status = (found or {}).get("status") or {}
        return found if status.get("retryCount") == 1 and status["state"]["phase"] == "Running" else None

    found = await until(restarted, what="the job runs again")
    after = {pod["metadata"]["uid"] for pod in await site.pods(await site.where("again"))}
    assert after
    assert not after & before
    assert "Restarting" in phases(found)
    assert keys.HOLD not in (found["metadata"].get("annotations") or {})


@pytest.mark.parametrize(
    ("action", "reason", "said"),
    [
        pytest.param("CompleteJob", "UnknownAction", "AbortJob, RestartJob", id="an action that there is not"),
        pytest.param("ResumeJob", "NotAborted", "is not aborted", id="resuming what is not aborted"),
        pytest.param("RestartJob", "NotStarted", "no member runs", id="restarting what waits"),
    ],
)
async def test_a_command_that_can_not_be_obeyed_is_consumed_with_a_warning(
    site: Site, action: str, reason: str, said: str
) -> None:
    made = await site.submit(job("calm", queue=f"none-{site.namespace}"))
    await site.reason("calm", "QueueNotFound")
    await command(site, action, made)
    assert said in await warned(site, reason)
    await consumed(site)
    found = await site.find(JOBS, "calm")
    assert found is not None
    assert keys.HOLD not in (found["metadata"].get("annotations") or {})


async def test_an_aborted_job_is_still_aborted_after_control_was_killed(site: Site) -> None:
    made = await site.submit(job("stays", seconds=None))
    await site.phase("stays", "Running")
    await command(site, "AbortJob", made)
    process = site.federation.process("control")
    await consumed(site)
    process.kill()
    await site.phase("stays", "Aborted")
    binding = await site.find(BINDINGS, "stays-job")
    assert binding is not None
    assert not binding["spec"]["clusters"]
