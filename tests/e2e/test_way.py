"""A Volcano Job applied on the host runs containers in a member, and nothing stays behind."""

from __future__ import annotations

from tests.e2e.jobs import containers, job, shell, task
from tests.integration.federation import Site, until


async def test_a_job_from_the_host_runs_containers_that_find_each_other_and_is_completed_on_the_host(
    site: Site,
) -> None:
    peer = f"pair-worker-1.pair.{site.namespace}.svc.cluster.local"
    script = f"until nslookup {peer} >/dev/null; do sleep 0.2; done; echo index $VC_TASK_INDEX; sleep 2"
    await site.submit(job("pair", task("worker", shell(script), replicas=2), plugins={"svc": [], "env": []}))
    await site.only("east")
    await site.phase("pair", "Running")

    async def said() -> bool:
        text = site.kubectl("logs", "pair-worker-1", "-n", site.namespace, cluster="east")
        return "index 1" in text

    await until(said, what="its container's output through the member's API server")
    answer = site.kubectl("exec", "pair-worker-1", "-n", site.namespace, "--", "hostname", cluster="east")
    assert answer.strip() == "pair-worker-1"
    done = await site.phase("pair", "Completed")
    assert done["status"]["succeeded"] == 2


async def test_what_a_job_ran_is_gone_from_containerd_with_it(site: Site) -> None:
    await site.only("west")
    await site.submit(job("brief", task("worker", shell("sleep 600"), replicas=3)))
    await site.phase("brief", "Running")
    # A sandbox each besides.
    assert len(await containers(site.federation, "west-real0")) == 6
    await site.no_jobs()

    async def none() -> bool:
        return not await containers(site.federation, "west-real0")

    await until(none, what="no container is left")
