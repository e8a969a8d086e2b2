"""What becomes of containers, as the Job on the host tells it."""

from __future__ import annotations

import asyncio

from tests.e2e.jobs import PATIENCE, job, shell, task
from tests.integration.federation import Json, Site, until


def counts(done: Json, name: str) -> Json:
    phases: Json = done["status"]["taskStatusCount"][name]["phase"]
    return phases


async def test_a_container_that_exits_with_a_code_fails_the_job_and_policies_see_the_code(site: Site) -> None:
    policies = [{"exitCode": 137, "action": "AbortJob"}, {"event": "PodFailed", "action": "TerminateJob"}]
    await site.submit(job("coded", task("t", shell("exit 137")), policies=policies))
    # The other policy would have terminated it.
    await site.phase("coded", "Aborted", deadline=PATIENCE)
    await site.submit(job("plain", task("t", shell("echo out of paper; exit 3"), maxRetry=1), maxRetry=1))
    done = await site.phase("plain", "Failed", deadline=PATIENCE)
    assert done["status"]["failed"] == 1
    message = done["status"]["state"]["message"]
    assert "pod plain-t-0, container main: Error, exit code 3, last output: out of paper" in message


async def test_a_container_over_its_memory_is_killed_by_the_kernel_and_fails_the_job(site: Site) -> None:
    # Its output is what grows: a shell's variable of 64 MiB in a container of 32.
    script = 'x=a; while :; do x="$x$x"; done'
    await site.submit(job("greedy", task("t", shell(script, memory="32Mi")), policies=[], maxRetry=1))
    done = await site.phase("greedy", "Failed", deadline=PATIENCE)
    assert "container main: OOMKilled, exit code 137" in done["status"]["state"]["message"]


async def test_a_container_that_ignores_sigterm_is_killed_after_its_grace_period(site: Site) -> None:
    stubborn = shell("trap '' TERM; while :; do sleep 1; done")
    await site.submit(job("stubborn", task("t", stubborn, pod={"terminationGracePeriodSeconds": 3})))
    await site.phase("stubborn", "Running", deadline=PATIENCE)
    member = await site.where("stubborn")
    told = asyncio.get_running_loop().time()
    site.kubectl("delete", "vcjob", "stubborn", "-n", site.namespace, "--wait=false")

    async def gone() -> bool:
        return not await site.pods(member)

    await until(gone, deadline=PATIENCE, what="the pod is gone")
    assert asyncio.get_running_loop().time() - told >= 3


async def test_a_pod_that_is_not_ready_runs_and_the_job_says_so(site: Site) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await site.submit(
        job("unready", task("t", shell("sleep 4"), shell("sleep 4", readinessProbe=probe) | {"name": "b"}))
    )
    running = await site.phase("unready", "Running", deadline=PATIENCE)
    assert running["status"]["running"] == 1
    done = await site.phase("unready", "Completed", deadline=PATIENCE)
    assert done["status"]["succeeded"] == 1


async def test_an_init_container_that_fails_twice_keeps_the_pod_pending_until_it_succeeds(site: Site) -> None:
    # An emptyDir lives as long as the pod and counts the attempts.
    mounts = [{"name": "n", "mountPath": "/n"}]
    first = shell("echo x >> /n/tries; [ $(wc -l < /n/tries) -gt 2 ]", volumeMounts=mounts) | {"name": "first"}
    pod = {"initContainers": [first], "volumes": [{"name": "n", "emptyDir": {}}], "restartPolicy": "OnFailure"}
    main = shell("[ $(wc -l < /n/tries) = 3 ]", volumeMounts=mounts)
    await site.submit(job("patient", task("t", main, pod=pod)))
    done = await site.phase("patient", "Completed", deadline=PATIENCE)
    assert counts(done, "t") == {"Succeeded": 1}
    assert done["status"].get("retryCount", 0) == 0


async def test_an_init_container_that_fails_fails_a_pod_that_never_restarts(site: Site) -> None:
    pod = {"initContainers": [shell("exit 9") | {"name": "first"}]}
    await site.submit(job("broken", task("t", shell("true"), pod=pod), maxRetry=1))
    done = await site.phase("broken", "Failed", deadline=PATIENCE)
    assert done["status"]["failed"] == 1


async def test_a_sidecar_ends_with_the_main_container_and_does_not_hold_up_the_job(site: Site) -> None:
    sidecar = shell("trap 'exit 0' TERM; while :; do sleep 0.1; done", restartPolicy="Always") | {"name": "side"}
    await site.submit(job("aided", task("t", shell("sleep 1"), pod={"initContainers": [sidecar]})))
    done = await site.phase("aided", "Completed", deadline=PATIENCE)
    assert counts(done, "t") == {"Succeeded": 1}
