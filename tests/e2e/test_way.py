"""A Volcano Job applied on the host runs containers in a member."""

from __future__ import annotations

from tests.e2e.jobs import PATIENCE, job, shell, task
from tests.integration.federation import Site, until


async def test_a_job_from_the_host_runs_containers_that_find_each_other_and_is_completed_on_the_host(
    site: Site,
) -> None:
    peer = f"pair-worker-1.pair.{site.namespace}.svc.cluster.local"
    met = f"until nslookup {peer} >/dev/null; do sleep 0.2; done; echo index $VC_TASK_INDEX"
    # Each runs until the test has been in it.
    script = f"{met}; until [ -e /tmp/left ]; do sleep 0.2; done"
    await site.only("east")
    await site.submit(job("pair", task("worker", shell(script), replicas=2), plugins={"svc": [], "env": []}))
    await site.phase("pair", "Running", deadline=PATIENCE)

    async def said() -> bool:
        text = site.kubectl("logs", "pair-worker-1", "-n", site.namespace, cluster="east")
        return "index 1" in text

    await until(said, what="its container's output through the member's API server")
    for name in ("pair-worker-0", "pair-worker-1"):
        inside = ("--", "sh", "-c", "hostname; touch /tmp/left")
        answer = site.kubectl("exec", name, "-n", site.namespace, *inside, cluster="east")
        assert answer.strip() == name
    done = await site.phase("pair", "Completed", deadline=PATIENCE)
    assert done["status"]["succeeded"] == 2
