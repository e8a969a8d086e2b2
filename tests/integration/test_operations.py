"""What operators and users do to jobs, queues and members, on real API servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from atoll.kube import errors
from atoll.local.binaries import ensure
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CLUSTERS, COMMANDS, EVENTS, JOBS, QUEUES, WORKS
from tests.integration.command_line import argv, atollctl
from tests.integration.federation import Site, batch_job, job, until

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
    # Under load a status that is not final may be passed over.
    assert phases(aborted)[-1] == "Aborted"
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


async def test_a_job_that_its_own_policy_aborts_returns_its_quota_and_can_be_resumed(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "1"})
    wish = job("policy", cpu="1", seconds=None, queue=queue, policies=[{"event": "PodEvicted", "action": "AbortJob"}])
    made = await site.submit(wish)
    await site.phase("policy", "Running")
    await site.submit(job("next", cpu="1", queue=queue))
    await site.reason("next", "QuotaExceeded")
    member = await site.where("policy")
    [pod] = await site.pods(member)
    site.kubectl("delete", "pod", pod["metadata"]["name"], "-n", site.namespace, "--wait=false", cluster=member)
    await site.phase("policy", "Aborted")
    await site.phase("next", "Completed")
    await site.phase("policy", "Aborted")
    await command(site, "ResumeJob", made)
    await site.phase("policy", "Running")


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
    assert phases(found)[-1] == "Running"
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


# -- the command line ------------------------------------------------------------------------------------------------


async def test_a_running_job_is_held_and_released_from_the_command_line(site: Site) -> None:
    made = await site.submit(job("work", seconds=None))
    await site.phase("work", "Running")
    assert await atollctl(site, "job", "hold", "work") == "job.batch.volcano.sh/work held\n"
    await site.reason("work", "Held")
    await site.phase("work", "Pending")
    assert "held already" in await atollctl(site, "job", "hold", "vcjob/work")
    assert "is held, not aborted" in await atollctl(site, "job", "resume", "work", ok=False)
    assert await atollctl(site, "job", "release", "work") == "job.batch.volcano.sh/work released\n"
    running = await site.phase("work", "Running")
    assert running["metadata"]["uid"] == made["metadata"]["uid"]
    assert await atollctl(site, "job", "delete", "work") == "job.batch.volcano.sh/work deleted\n"
    assert "no Volcano Job, batch Job, Pod group" in await atollctl(site, "job", "delete", "work", ok=False)


async def test_a_job_is_aborted_resumed_and_restarted_from_the_command_line(site: Site) -> None:
    await site.submit(job("work", seconds=None))
    await site.phase("work", "Running")
    assert await atollctl(site, "job", "abort", "work") == "job.batch.volcano.sh/work aborted\n"
    assert "is aborted: `atollctl job resume work`" in await atollctl(site, "job", "release", "work", ok=False)
    assert "aborted already" in await atollctl(site, "job", "abort", "work")
    assert await atollctl(site, "job", "resume", "work") == "job.batch.volcano.sh/work resumed\n"
    await site.phase("work", "Running")
    assert await atollctl(site, "job", "restart", "work") == "job.batch.volcano.sh/work restarted\n"
    assert (await site.phase("work", "Running"))["metadata"]["annotations"][keys.RETRIES] == "2"


async def test_a_batch_job_is_held_and_can_not_be_aborted(site: Site) -> None:
    await site.submit(batch_job("nightly", seconds=None))
    assert "job.batch/nightly held" in await atollctl(site, "job", "hold", "nightly")
    assert "AbortJob is for Volcano Jobs" in await atollctl(site, "job", "abort", "nightly", ok=False)
    await site.submit(job("nightly"))
    assert "write vcjob/nightly or job.batch/nightly" in await atollctl(site, "job", "hold", "nightly", ok=False)
    assert "job.batch/nightly released" in await atollctl(site, "job", "release", "job.batch/nightly")


async def test_a_queue_is_changed_by_the_rules_and_described_with_numbers(site: Site) -> None:
    name = await site.queue(capability={"cpu": "4", "memory": "1Ti"}, deserved={"cpu": "2"})
    await site.submit(job("runs", cpu="3", seconds=None, queue=name))
    await site.phase("runs", "Running")
    await site.submit(job("waits", cpu="2", queue=name))
    await site.reason("waits", "QuotaExceeded")

    said = await atollctl(site, "queue", "update", name, "--capability", "cpu=1", ok=False)
    assert "spec.deserved.cpu" in said
    said = await atollctl(site, "queue", "update", name, "--capability", "cpu=3", "--priority", "7")
    assert "updated (capability cpu=3,memory=1Ti)" in said
    said = await atollctl(site, "queue", "update", name, "--capability", "cpu=4,memory-")
    assert "updated (capability cpu=4)" in said
    assert "unchanged" in await atollctl(site, "queue", "update", name, "--priority", "7")
    assert "nothing to change" in await atollctl(site, "queue", "update", name, ok=False)
    found = await site.find(QUEUES, name)
    assert found is not None
    assert found["spec"]["capability"] == {"cpu": "4"}
    assert found["spec"]["priority"] == 7

    text = await atollctl(site, "queue", "describe", name)
    assert "3 of 4 (75%)  (deserves 2, borrows 1" in text
    assert "[##################......]" in text
    assert "has 1 cpu free for it, 2 needed" in text
    data = json.loads(await atollctl(site, "queue", "describe", name, "-o", "json"))
    assert [(each["binding"], each["pods"]) for each in data["running"]] == [("runs-job", 1)]
    assert [(each["position"], each["reason"]) for each in data["pending"]] == [(1, "QuotaExceeded")]

    assert "updated" in await atollctl(site, "queue", "update", name, "--deserved", "", "--capability", "cpu=8")
    await site.phase("waits", "Completed")


async def test_a_queue_for_some_namespaces_refuses_the_others(site: Site) -> None:
    name = f"team-{site.namespace}"
    await site.queue("team", capability={"cpu": "4"})
    await atollctl(site, "queue", "update", name, "--namespaces", "team=a")
    assert "team=a" in await atollctl(site, "queue", "describe", name)

    async def refused() -> str | None:
        try:
            await site.submit(job("x", queue=name))
        except errors.ApiError as error:
            return error.message
        await site.host.delete(JOBS, "x", site.namespace)
        return None

    said = await until(refused, what="the webhook knows the queue")
    assert f"queue '{name}' is not open to namespace '{site.namespace}'" in said
    site.kubectl("label", "namespace", site.namespace, "team=a")

    async def admitted() -> bool:
        return await refused() is None

    await until(admitted, what="the webhook knows the label")
    site.kubectl("label", "namespace", site.namespace, "team=b", "--overwrite")
    await until(refused, what="the webhook knows the other label")
    await atollctl(site, "queue", "update", name, "--namespaces", "team in (a,b)")
    await until(admitted, what="the webhook knows the wider selector")
    await atollctl(site, "queue", "update", name, "--namespaces", "")
    site.kubectl("label", "namespace", site.namespace, "team-")
    await until(admitted, what="the webhook knows that the queue is open to all")


async def test_a_watched_list_prints_a_line_for_each_change_until_it_is_interrupted(site: Site) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv("job", "list", "-w", f"--kubeconfig={site.federation.host.kubeconfig}", "-n", site.namespace),
        stdout=asyncio.subprocess.PIPE,
        # A shell that runs tests in the background has had them ignore interrupts, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    lines = [await asyncio.wait_for(process.stdout.readline(), 30)]
    await site.submit(job("seen", seconds=1))
    while b"Completed" not in lines[-1]:
        lines.append(await asyncio.wait_for(process.stdout.readline(), 30))
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 30) == 130
    shown = [line.decode().split()[:4] for line in lines]
    assert shown[0][:3] == ["NAME", "QUEUE", "STATUS"]
    assert {line[2] for line in shown[1:]} >= {"Running", "Completed"}
    assert len({tuple(line) for line in map(bytes.split, lines)}) == len(lines)


async def test_kubectl_finds_atoll_and_completes_its_commands(site: Site, tmp_path: Path) -> None:
    for name, module in (("kubectl-atoll", "atoll.cli.app"), ("kubectl_complete-atoll", "atoll.cli.completion")):
        program = tmp_path / name
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path[:] = {sys.path!r}\nfrom {module} import main\nmain()\n"
        )
        program.chmod(0o755)
    kubectl = str(ensure(report=lambda _: None).kubectl)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "KUBECONFIG": str(site.federation.host.kubeconfig),
    }

    async def run(*args: str) -> str:
        process = await asyncio.create_subprocess_exec(kubectl, *args, env=environment, stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0].decode()

    assert "default" in await run("atoll", "queue", "list")
    assert "Usage: kubectl atoll" in await run("atoll", "queue", "--help")
    offered = await run("__complete", "atoll", "queue", "l")
    assert "list\tList all queues" in offered
    assert ":4" in offered


async def test_what_has_ended_can_not_be_held(site: Site) -> None:
    await site.submit({**job("over"), "metadata": {"name": "over", "labels": {"sweep": "7"}}})
    await site.phase("over", "Completed")
    said = await atollctl(site, "job", "hold", "over", ok=False)
    assert "job.batch.volcano.sh/over has ended (Succeeded): there is nothing to hold" in said
    said = await atollctl(site, "job", "hold", "-l", "sweep=7")
    assert "job.batch.volcano.sh/over has ended (Succeeded) and stays as it is" in said


async def test_a_federation_that_does_not_exist_is_not_stopped(site: Site) -> None:
    said = await atollctl(site, "local", "status", "--name", "no-such", ok=False)
    assert "federation no-such does not run" in said
    assert "atollctl local up --name no-such" in said


async def test_kubectl_shows_where_work_is_and_why_it_waits(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "1"})
    await site.submit(job("runs", cpu="1", seconds=None, queue=queue))
    await site.phase("runs", "Running")
    await site.submit(job("waits", cpu="1", queue=queue))
    await site.reason("waits", "QuotaExceeded")
    cluster = await site.where("runs")

    async def bindings() -> str | None:
        text = site.kubectl("get", "rb", "-n", site.namespace, "-o", "wide", "--no-headers")
        found = {line.split()[0]: line for line in text.splitlines()}
        return text if "QuotaExceeded" in found["waits-job"] and cluster in found["runs-job"] else None

    await until(bindings, what="bindings show cluster and reason")
    works = site.kubectl("get", "works", "-n", f"karmada-es-{cluster}", "--no-headers")
    [mine] = [line.split() for line in works.splitlines() if " runs " in line]
    assert (mine[1], mine[2]) == ("Job", "runs")

    async def used() -> bool:
        return '"cpu":"1"' in site.kubectl("get", "queue", queue, "-o", "wide", "--no-headers")

    await until(used, what="the queue shows what is used")
    assert queue in site.kubectl("get", "vcjob", "waits", "-n", site.namespace)


async def test_members_are_shown_and_cordoned_from_the_command_line(site: Site) -> None:
    async def listed() -> str | None:
        text = await atollctl(site, "cluster", "list", "-o", "wide")
        found = {line.split()[0]: line for line in text.splitlines()}
        return text if {"alpha", "beta", "topo"} <= found.keys() and "/64 " in found["alpha"] else None

    await until(listed, what="all members have reported")
    assert "Resources of 8 nodes" in await atollctl(site, "cluster", "describe", "alpha")
    assert "alpha" in await atollctl(site, "top", "members")
    assert "default" in await atollctl(site, "top", "queues")
    members = ("alpha", "beta", "topo")
    try:
        for name in members:
            assert f"{name} cordoned\n" in await atollctl(site, "cluster", "cordon", name)
        assert "cordoned already" in await atollctl(site, "cordon", "alpha")
        assert "True,Cordoned" in await atollctl(site, "cluster", "list")
        await site.submit(job("waits"))
        await site.reason("waits", "NoClusterMatches")
    finally:
        for name in members:
            await atollctl(site, "uncordon", name)
    await site.phase("waits", "Completed")
    await atollctl(site, "cluster", "label", "alpha", "color=red")
    assert (await site.host.get(CLUSTERS, "alpha"))["metadata"]["labels"]["color"] == "red"
    await atollctl(site, "cluster", "label", "alpha", "color-")
    assert "color" not in (await site.host.get(CLUSTERS, "alpha"))["metadata"]["labels"]


async def test_several_jobs_are_named_at_once_and_one_that_is_missing_stops_no_other(site: Site) -> None:
    for name in ("a", "b"):
        await site.submit(job(name, seconds=None))
    assert await atollctl(site, "job", "hold", "a", "b") == (
        "job.batch.volcano.sh/a held\njob.batch.volcano.sh/b held\n"
    )
    said = await atollctl(site, "job", "delete", "a", "nothing", "b", ok=False)
    assert "there is no Volcano Job, batch Job, Pod group" in said
    assert await site.find(JOBS, "a") is None
    assert await site.find(JOBS, "b") is None
