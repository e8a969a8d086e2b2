"""The whole way of a Volcano Job, on real API servers: in by kubectl, queued, placed in a member, reported back, gone."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime

import pytest

from atoll.model import keys
from atoll.model.apiresource import BINDINGS, JOBS, POD_GROUPS, WORKS
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

TWO_TASKS = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: two-tasks}
spec:
  tasks:
  - name: master
    replicas: 1
    template: &template
      metadata: {annotations: {atoll.sh/run-time: 1s}}
      spec:
        restartPolicy: Never
        containers: [{name: c, image: busybox, resources: {requests: {cpu: 100m, memory: 16Mi}}}]
  - name: worker
    replicas: 3
    template: *template
"""


def seconds(event: dict) -> float:
    return datetime.fromisoformat(event["stageTimestamp"]).timestamp()


async def test_a_job_of_two_tasks_applied_with_kubectl_ends_completed_with_the_right_counts(site: Site) -> None:
    site.kubectl("apply", "-n", site.namespace, "-f", "-", stdin=TWO_TASKS)
    done = await site.phase("two-tasks", "Completed")
    status = done["status"]
    assert status["succeeded"] == 4
    assert status.get("running", 0) == status.get("failed", 0) == status.get("pending", 0) == 0
    assert {task: counts["phase"] for task, counts in status["taskStatusCount"].items()} == {
        "master": {"Succeeded": 1},
        "worker": {"Succeeded": 3},
    }
    assert [each["status"] for each in status["conditions"]][-1] == "Completed"
    assert "Completed" in site.kubectl("get", "vcjob", "-n", site.namespace)


async def test_a_job_deleted_on_the_host_is_gone_in_the_member(site: Site) -> None:
    await site.submit(job("endless", replicas=3, seconds=None))
    await site.phase("endless", "Running")
    member = await site.where("endless")
    assert len(await site.pods(member)) == 3
    site.kubectl("delete", "vcjob", "endless", "-n", site.namespace)

    async def gone() -> bool:
        left = [*await site.pods(member), await site.find(JOBS, "endless", member)]
        left += await site.members[member].list(POD_GROUPS, site.namespace)
        left += [work for work in await site.host.list(WORKS) if site.namespace in json.dumps(work)]
        left += await site.host.list(BINDINGS, site.namespace)
        return not any(left)

    await until(gone, what="job, pods, PodGroup, Work and binding are gone")


async def test_a_name_can_be_used_again_while_its_predecessor_is_still_being_removed(site: Site) -> None:
    await site.submit(job("again", replicas=2, seconds=None))
    await site.phase("again", "Running")
    site.kubectl("delete", "vcjob", "again", "-n", site.namespace)
    second = await site.submit(job("again", replicas=1))
    done = await site.phase("again", "Completed")
    assert done["metadata"]["uid"] == second["metadata"]["uid"]
    assert done["status"]["succeeded"] == 1


async def test_a_failing_job_ends_failed_on_the_host(site: Site) -> None:
    failing = job("failing", replicas=2)
    failing["spec"]["tasks"][0]["template"]["metadata"]["annotations"]["atoll.sh/fail"] = "true"
    await site.submit(failing)
    done = await site.phase("failing", "Failed")
    assert done["status"]["failed"] == 2


async def test_a_job_deleted_by_hand_in_the_member_is_made_again(site: Site) -> None:
    await site.submit(job("kept", replicas=1, seconds=None))
    await site.phase("kept", "Running")
    member = await site.where("kept")
    first = await site.find(JOBS, "kept", member)
    site.kubectl("delete", "vcjob", "kept", "-n", site.namespace, cluster=member)

    async def anew() -> bool:
        found = await site.find(JOBS, "kept", member)
        return bool(first and found and found["metadata"]["uid"] != first["metadata"]["uid"])

    await until(anew, what="the job is made again in the member")
    await site.phase("kept", "Running")


async def test_an_object_of_that_name_in_the_member_that_is_not_ours_is_left_alone_and_told(site: Site) -> None:
    await site.submit(job("first"))
    await site.phase("first", "Completed")
    for member in site.members:
        site.kubectl("create", "namespace", site.namespace, cluster=member, ok=member != await site.where("first"))
        theirs = job("clash", seconds=None)
        theirs["metadata"] = {"name": "clash", "namespace": site.namespace}
        await site.members[member].create(JOBS, theirs)
    await site.submit(job("clash"))

    async def told() -> bool:
        found = await site.find(JOBS, "clash")
        return "is not Atoll's" in json.dumps((found or {}).get("status") or {})

    await until(told, what="the clash is told on the host")
    for member in site.members:
        await site.members[member].delete(JOBS, "clash", site.namespace)


async def test_a_namespace_that_has_not_opted_in_is_left_alone(site: Site) -> None:
    site.kubectl("label", "namespace", site.namespace, f"{keys.ENABLED}-")
    await site.submit(job("ignored", queue="default", minAvailable=1))
    await site.submit(job("also-ignored", queue="default", minAvailable=1))
    site.kubectl("label", "namespace", site.namespace, f"{keys.ENABLED}=true")
    # Opting in later takes up what is there.
    await site.phase("ignored", "Completed")


async def test_a_binding_of_another_system_is_left_alone(site: Site) -> None:
    binding = {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": "foreign", "namespace": site.namespace},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": site.namespace},
            "suspension": {"dispatchingOnClusters": {"clusterNames": ["alpha"]}},
        },
    }
    made = await site.host.create(BINDINGS, binding)
    assert made["spec"]["suspension"] == {"dispatchingOnClusters": {"clusterNames": ["alpha"]}}
    await site.host.delete(BINDINGS, "foreign", site.namespace)


async def test_a_job_over_its_queues_capability_waits_with_numbers_and_goes_within_a_second(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "2"})
    await site.submit(job("holder", replicas=2, cpu="1", seconds=3, queue=queue))
    await site.phase("holder", "Running")
    await site.submit(job("waiter", replicas=2, cpu="1", queue=queue))
    decision = await site.reason("waiter", "QuotaExceeded")
    assert decision["blocker"] == {
        "kind": "Queue",
        "name": queue,
        "resource": "cpu",
        "requested": "2",
        "available": "0",
    }
    waiting = await site.phase("waiter", "Pending")
    assert waiting["status"]["state"]["reason"] == "QuotaExceeded"
    await site.phase("holder", "Completed")
    await site.phase("waiter", "Completed")
    member = await site.where("holder")
    ends = [
        event
        for event in site.audit(member)
        if event["objectRef"].get("resource") == "pods"
        and event["objectRef"].get("subresource") == "status"
        and event["objectRef"]["name"].startswith("holder-")
        and event["requestObject"].get("status", {}).get("phase") == "Succeeded"
    ]
    dispatches = [
        event
        for event in site.audit()
        if event["verb"] == "patch"
        and event["objectRef"].get("name") == "waiter-job"
        and event["user"]["username"].endswith(":atoll-dispatcher")
        and any(op["path"] == "/spec/clusters" for op in event["requestObject"])
    ]
    assert len(dispatches) == 1
    assert seconds(dispatches[0]) - max(map(seconds, ends)) < 5.0


async def test_one_write_dispatches_and_few_make_up_the_whole_way(site: Site) -> None:
    await site.submit(job("counted"))
    await site.phase("counted", "Completed")
    member = await site.where("counted")

    def written(cluster: str) -> Counter[tuple[str, str, str]]:
        return Counter(
            (who.rsplit(":", 1)[-1], event["verb"], "/".join(filter(None, (of["resource"], of.get("subresource")))))
            for event in site.audit(cluster)
            for who, of in [(event["user"]["username"], event["objectRef"])]
            if event["verb"] in ("create", "update", "patch", "delete")
            and "counted" in of.get("name", "")
            and (cluster == "host" or "atoll-agent" in who)
        )

    host, there = written("host"), written(member)
    assert host["atoll-dispatcher", "patch", "resourcebindings"] == 1
    # On a quick machine 11 and 8; where steps take seconds, what happens between them is told as well.
    assert host.total() <= 15, host
    assert there.total() <= 11, there
    binding = await site.host.get(BINDINGS, "counted-job", site.namespace)
    (group,) = await site.members[member].list(POD_GROUPS, site.namespace)
    # Who wrote which field would be read and written with each status.
    assert not any("managedFields" in each["metadata"] for each in (binding, group))
