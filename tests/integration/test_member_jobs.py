"""What a member does with Jobs and pods, on real API servers: restarts, stops, gangs of bare pods, TTL, topology."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    CAPACITIES,
    DEPLOYMENTS,
    EVENTS,
    HYPER_NODES,
    JOBS,
    NODES,
    POD_GROUPS,
    PODS,
    POLICIES,
    QUEUES,
)
from atoll.model.timestamps import to_seconds
from tests.integration.beside import bare, beside
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration

MIN_MEMBER = "scheduling.volcano.sh/group-min-member"


def failing(obj: Json) -> Json:
    obj["spec"]["tasks"][0]["template"]["metadata"]["annotations"]["atoll.sh/fail"] = "true"
    return obj


async def member_job(site: Site, name: str, wanted: Callable[[Json], bool]) -> Json:
    """Wait for the member's own Job."""
    member = await site.where(name)

    async def look() -> Json | None:
        found = await site.find(JOBS, name, member)
        return found if found and wanted(found.get("status") or {}) else None

    return await until(look, what=f"the member's job {name}")


def in_phase(phase: str) -> Callable[[Json], bool]:
    return lambda status: bool(status.get("state", {}).get("phase") == phase)


async def command(site: Site, name: str, wish: str) -> None:
    member = await site.where(name)
    patch = {"metadata": {"annotations": {keys.ACTION: wish}}}
    await site.members[member].merge_patch(JOBS, name, patch, site.namespace)


# -- policies ----------------------------------------------------------------------------------------------------------


async def test_restart_job_on_pod_failed_retries_up_to_max_retry_and_then_fails(site: Site) -> None:
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    await site.submit(failing(job("again", replicas=2, seconds=0.3, maxRetry=2, policies=policies)))
    done = await site.phase("again", "Failed")
    assert (done["status"]["retryCount"], done["status"]["version"]) == (2, 2)
    assert "maxRetry 2" in done["status"]["state"]["message"]
    own = await member_job(site, "again", in_phase("Failed"))
    phases = [each["status"] for each in own["status"]["conditions"]]
    assert phases[-2:] == ["Restarting", "Failed"]
    assert phases.count("Restarting") == 2
    # What failed last stays to be looked at, and says which attempt it was.
    left = await site.pods(await site.where("again"))
    assert {pod["metadata"]["annotations"][keys.JOB_VERSION] for pod in left} == {"1"}
    assert all(pod["status"]["phase"] == "Failed" for pod in left)


async def test_restart_job_on_job_updated_begins_anew_once_per_change(site: Site) -> None:
    policies = [{"event": "JobUpdated", "action": "RestartJob"}]
    await site.submit(job("changed", replicas=2, seconds=None, minAvailable=1, policies=policies))
    await site.phase("changed", "Running")
    await site.host.merge_patch(JOBS, "changed", {"spec": {"minAvailable": 2}}, site.namespace)

    async def restarted() -> bool:
        found = await site.find(JOBS, "changed") or {}
        status = found.get("status") or {}
        return bool(status.get("retryCount") == 1 and status["state"]["phase"] == "Running")

    await until(restarted, what="the Job runs anew")
    own = await member_job(site, "changed", in_phase("Running"))
    assert [each["status"] for each in own["status"]["conditions"]].count("Restarting") == 1


async def test_a_pod_that_runs_too_long_is_restarted(site: Site) -> None:
    policies = [{"event": "PodRunning", "action": "AbortJob", "timeout": "1s"}]
    await site.submit(job("long", seconds=None, policies=policies))
    await member_job(site, "long", in_phase("Aborted"))


async def test_complete_job_on_task_completed_stops_the_rest(site: Site) -> None:
    obj = job("led", replicas=1, seconds=0.5)
    obj["spec"]["tasks"][0] |= {"name": "master", "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]}
    obj["spec"]["tasks"] += job("x", replicas=3, seconds=None)["spec"]["tasks"]
    await site.submit(obj)
    done = await site.phase("led", "Completed")
    assert done["status"]["succeeded"] == 1
    assert not done["status"].get("running")
    pods = await site.pods(await site.where("led"))
    assert [pod["metadata"]["name"] for pod in pods] == ["led-master-0"]


async def test_an_exit_code_of_any_container_decides(site: Site) -> None:
    policies = [{"exitCode": 3, "action": "TerminateJob"}, {"event": "PodFailed", "action": "RestartJob"}]
    await site.submit(job("coded", replicas=2, seconds=None, policies=policies))
    await site.phase("coded", "Running")
    member = await site.where("coded")
    state = {"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 3}}
    statuses = [
        {"name": name, "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": each}
        for name, each in zip(("sidecar", "main"), state, strict=True)
    ]
    patch = {"status": {"phase": "Failed", "containerStatuses": statuses}}
    await site.members[member].merge_patch(PODS, "coded-worker-1", patch, site.namespace, subresource="status")
    done = await site.phase("coded", "Terminated")
    assert "exit code 3" in done["status"]["state"]["message"]
    assert not done["status"].get("retryCount")


PARTITIONS: Json = {"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}


@pytest.mark.parametrize(
    ("action", "task", "others"),
    [
        pytest.param("RestartPod", {}, set(), id="the pod alone"),
        pytest.param("RestartPartition", PARTITIONS, {"one-worker-0"}, id="its partition"),
    ],
)
async def test_a_restart_of_part_of_a_job_replaces_that_part_alone(
    site: Site, action: str, task: Json, others: set[str]
) -> None:
    one = job("one", replicas=4, seconds=None, policies=[{"event": "PodEvicted", "action": action}])
    one["spec"]["tasks"][0] |= task
    await site.submit(one)
    await site.phase("one", "Running")
    member = await site.where("one")
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await site.pods(member)}
    site.kubectl("delete", "pod", "one-worker-1", "-n", site.namespace, "--grace-period=0", "--force", cluster=member)
    own = await member_job(site, "one", lambda status: status.get("retryCount") == 1 and status.get("running") == 4)

    async def replaced() -> set[str]:
        after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await site.pods(member)}
        return {name for name, uid in after.items() if before[name] != uid}

    # Its status may still count the pods that have just gone.
    async def settled() -> bool:
        return await replaced() == {"one-worker-1", *others}

    await until(settled, what="other pods are there in the place of that part")
    assert own["status"]["version"] == 0
    assert "Restarting" in [each["status"] for each in own["status"]["conditions"]]


async def test_a_timeout_survives_a_restart_of_the_agent(site: Site) -> None:
    """1. A pod stays pending. 2. The agent is killed. 3. It comes back: the timeout counts from the pod's creation."""
    policies = [{"event": "PodPending", "action": "AbortJob", "timeout": "5s"}]
    obj = job("stuck", replicas=1, seconds=None, policies=policies)
    obj["spec"]["tasks"][0]["template"]["metadata"]["annotations"]["atoll.sh/fail"] = "image"
    await site.submit(obj)
    member = await site.where("stuck")
    pods = await until(lambda: site.pods(member), what="the pod exists")
    agent = site.federation.process(f"agent-{member}")
    await agent.stop()
    await agent.start()
    aborted = await member_job(site, "stuck", in_phase("Aborted"))
    began = to_seconds(pods[0]["metadata"]["creationTimestamp"])
    aborting = next(each for each in aborted["status"]["conditions"] if each["status"] == "Aborting")
    assert 4 <= to_seconds(aborting["lastTransitionTime"]) - began < 45
    assert not await site.pods(member)


async def test_a_gang_that_spans_clusters_asks_the_host_before_it_restarts(site: Site) -> None:
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    obj = failing(job("part", replicas=1, seconds=0.5, policies=policies))
    obj["metadata"]["annotations"] = {keys.PARTS: "2"}
    await site.submit(obj)
    own = await member_job(site, "part", lambda status: status.get("state", {}).get("reason") == "ActionRequired")
    assert own["status"]["state"]["message"].startswith("RestartJob: PodFailed of pod part-worker-0")
    assert own["status"]["state"]["phase"] == "Running"
    assert not own["status"].get("retryCount")
    # The host's word is obeyed.
    await command(site, "part", "TerminateJob/1")
    await site.phase("part", "Terminated")


# -- commands ----------------------------------------------------------------------------------------------------------


async def test_a_wish_of_the_host_is_obeyed_once(site: Site) -> None:
    await site.submit(job("again", replicas=2, seconds=None))
    await site.phase("again", "Running")

    async def restarted(times: int) -> None:
        async def look() -> bool:
            status = ((await site.find(JOBS, "again")) or {}).get("status") or {}
            return (status.get("retryCount"), status.get("running")) == (times, 2)

        await until(look, what=f"restarted {times} times and running")

    await command(site, "again", "RestartJob/1")
    await restarted(1)
    own = await member_job(site, "again", in_phase("Running"))
    assert own["status"]["lastAction"] == "RestartJob/1"
    await command(site, "again", "RestartJob/2")
    await restarted(2)


# -- pods without a PodGroup -------------------------------------------------------------------------------------------


async def test_bare_pods_that_name_a_group_start_together(site: Site) -> None:
    async with beside(site, "alpha") as api:
        notes = {keys.GROUP_NAME: "trio", MIN_MEMBER: "3"}

        async def nodes() -> list[str]:
            return [pod["spec"].get("nodeName", "") for pod in await api.list(PODS, site.namespace)]

        for name in ("a", "b"):
            await api.create(PODS, bare(name, site.namespace, notes=notes))

        async def waiting() -> bool:
            groups = await api.list(POD_GROUPS, site.namespace)
            conditions = [c for group in groups for c in (group.get("status") or {}).get("conditions") or ()]
            return any("2 of" in condition["message"] for condition in conditions)

        await until(waiting, what="two of three wait")
        assert await nodes() == ["", ""]
        await api.create(PODS, bare("c", site.namespace, notes=notes))

        async def placed() -> bool:
            return all(await nodes())

        await until(placed, what="three start")
        for name in ("a", "b", "c"):
            await api.delete(PODS, name, site.namespace)

        async def gone() -> bool:
            return not await api.list(POD_GROUPS, site.namespace)

        await until(gone, what="the PodGroup goes with its pods")


async def test_a_deployment_is_a_gang_and_its_rolling_update_does_not_stall(site: Site) -> None:
    async with beside(site, "alpha") as api:
        template = bare("", "", notes={MIN_MEMBER: "4"})
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": site.namespace},
            "spec": {
                "replicas": 4,
                "selector": {"matchLabels": {"app": "web"}},
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": {"app": "web"}, "annotations": template["metadata"]["annotations"]},
                    "spec": template["spec"],
                },
            },
        }
        made = await api.create(DEPLOYMENTS, deployment)

        def updated(generation: int) -> Callable[[], Awaitable[bool]]:
            async def look() -> bool:
                status = (await api.get(DEPLOYMENTS, "web", site.namespace)).get("status") or {}
                current = status.get("observedGeneration") == generation
                return current and status.get("updatedReplicas") == status.get("availableReplicas") == 4

            return look

        await until(updated(1), what="four pods run")
        groups = await api.list(POD_GROUPS, site.namespace)
        assert [group["metadata"]["name"] for group in groups] == [f"podgroup-{made['metadata']['uid']}"]
        assert groups[0]["spec"]["minMember"] == 4
        change = {"spec": {"template": {"metadata": {"labels": {"app": "web", "release": "2"}}}}}
        await api.merge_patch(DEPLOYMENTS, "web", change, site.namespace)
        await until(updated(2), what="four new pods run")
        assert len(await api.list(POD_GROUPS, site.namespace)) == 1
        await api.delete(DEPLOYMENTS, "web", site.namespace)

        async def gone() -> bool:
            return not [*await api.list(POD_GROUPS, site.namespace), *await api.list(PODS, site.namespace)]

        await until(gone, what="PodGroup and pods go with the Deployment")


# -- capacity ----------------------------------------------------------------------------------------------------------


async def free_cpu(site: Site, member: str) -> int:
    """Milli-CPU on all nodes of a member, as published."""
    total = 0
    for each in await site.host.list(CAPACITIES, keys.execution_namespace(member)):
        for nodes in each["spec"]["classes"]:
            total += int(nodes["free"]["cpu"]) * int(nodes["nodes"])
    return total


def publishes(site: Site, member: str, milli: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await free_cpu(site, member) == milli

    return look


async def test_a_pod_that_another_scheduler_bound_is_missing_in_the_published_capacity(
    site: Site,
) -> None:
    async with beside(site, "beta") as api:
        before = 4 * 16_000
        await until(publishes(site, "beta", before), what="all of beta is free")
        node = (await api.list(NODES))[0]["metadata"]["name"]
        await api.create(PODS, bare("theirs", site.namespace, cpu="3", schedulerName="other", nodeName=node))

        await until(publishes(site, "beta", before - 3_000), what="3 CPUs less are published")
        await api.delete(PODS, "theirs", site.namespace)

        await until(publishes(site, "beta", before), what="they are published again")


# -- time to live ------------------------------------------------------------------------------------------------------


async def test_a_finished_job_is_removed_after_its_ttl_everywhere_and_not_run_again(site: Site) -> None:
    await site.submit(job("short", replicas=2, seconds=0.2, ttlSecondsAfterFinished=2))
    done = await site.phase("short", "Completed")
    member = await site.where("short")
    ended = to_seconds(done["status"]["conditions"][-1]["lastTransitionTime"])

    async def gone() -> bool:
        left = [await site.find(JOBS, "short"), await site.find(BINDINGS, "short-job")]
        return not any([*left, await site.find(JOBS, "short", member), *await site.pods(member)])

    await until(gone, what="the job is gone on the host and in the member")
    removed = [e for e in site.audit() if e["verb"] == "delete" and e["objectRef"]["resource"] == "jobs"]
    assert len(removed) == 1
    assert removed[0]["user"]["username"].endswith("atoll-control")
    assert to_seconds(removed[0]["stageTimestamp"]) >= ended + 2
    for name in site.members:
        created = [e for e in site.audit(name) if e["verb"] == "create" and e["objectRef"]["resource"] == "pods"]
        made = [e for e in created if not e["objectRef"].get("subresource")]
        assert len(made) == (2 if name == member else 0)


# -- topology ----------------------------------------------------------------------------------------------------------


async def racks_of(site: Site, member: str) -> list[set[str]]:
    """Nodes of every rack."""
    found = await site.members[member].list(HYPER_NODES)
    racks = [each for each in found if each["spec"].get("tierName") == "rack"]
    return [{m["selector"]["exactMatch"]["name"] for m in rack["spec"]["members"]} for rack in racks]


@pytest.mark.parametrize(
    "wish",
    [{"mode": "soft"}, {"mode": "hard", "highestTierName": "block"}],
    ids=["a soft gang takes the fewest racks", "a gang limited by the name of a tier takes the fewest racks in it"],
)
async def test_racks(site: Site, wish: Json) -> None:
    """One node in each of two racks is taken; a node holds one pod, a rack two."""
    async with beside(site, "alpha") as api:
        racks = await racks_of(site, "alpha")
        await until(publishes(site, "alpha", 8 * 16_000), what="all of alpha is free")
        taken = [min(rack) for rack in racks[:2]]
        for number, node in enumerate(taken):
            await api.create(PODS, bare(f"t-{number}", site.namespace, cpu="16", schedulerName="o", nodeName=node))
        policy = {
            "apiVersion": POLICIES.api_version,
            "kind": POLICIES.kind,
            "metadata": {"name": "alpha-only", "namespace": site.namespace},
            "spec": {
                "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": JOBS.kind}],
                "placement": {"clusterAffinity": {"clusterNames": ["alpha"]}},
            },
        }
        await site.host.create(POLICIES, policy)
        gang = job("near", replicas=4, cpu="9", seconds=None, networkTopology=wish)

        await until(publishes(site, "alpha", 6 * 16_000), what="the taken nodes are published")
        await site.submit(gang)
        await site.phase("near", "Running")
        assert await site.where("near") == "alpha"
        nodes = {pod["spec"]["nodeName"] for pod in await site.pods("alpha") if "near" in pod["metadata"]["name"]}
        assert len(nodes) == 4
        assert sum(bool(rack & nodes) for rack in racks) == 2


# -- pods that wait ----------------------------------------------------------------------------------------------------


def scheduled(pod: Json) -> Json:
    """Its condition PodScheduled."""
    found = (pod.get("status") or {}).get("conditions") or ()
    return next((each for each in found if each["type"] == "PodScheduled"), {})


async def test_a_pod_that_waits_says_why_as_kube_scheduler_does_until_it_is_placed(site: Site) -> None:
    """1. A pod asks for more than any node has. 2. Its condition and an Event say so, in kube-scheduler's words. 3. A
    gang that lacks a pod says that. 4. The missing pod comes, and the condition turns.
    """
    async with beside(site, "beta") as api:
        await api.create(PODS, bare("large", site.namespace, cpu="17"))

        async def told(name: str) -> Json | None:
            return scheduled(await api.get(PODS, name, site.namespace)) or None

        condition = await until(lambda: told("large"), what="the pod says why it waits")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"] == "0/4 nodes are available: 4 Insufficient cpu."
        assert condition["lastTransitionTime"]

        async def event() -> Json | None:
            found = await api.list(EVENTS, site.namespace)
            return next((each for each in found if each["reason"] == "FailedScheduling"), None)

        failed = await until(event, what="there is an Event")
        assert (failed["regarding"]["name"], failed["note"]) == ("large", condition["message"])
        notes = {MIN_MEMBER: "2", keys.GROUP_NAME: "pair"}
        await api.create(PODS, bare("one", site.namespace, notes=notes))
        condition = await until(lambda: told("one"), what="the gang says that it is not complete")
        assert condition["message"] == "pod group is not ready: 1 of at least 2 pods exist"
        await api.create(PODS, bare("two", site.namespace, notes=notes))

        async def placed() -> bool:
            return bool(scheduled(await api.get(PODS, "one", site.namespace))["status"] == "True")

        await until(placed, what="it is placed")


async def test_a_gang_whose_images_cannot_be_pulled_is_bound_not_running_and_evicted_in_time(site: Site) -> None:
    """1. Its pods are bound, and their image can't be pulled. 2. The binding says bound, not running, and why; so do an
    Event and explain. 3. After its ready timeout it is taken back with the container's own words, and waits.
    """
    obj = job("unpulled", replicas=2, seconds=None)
    obj["metadata"]["annotations"] = {keys.READY_TIMEOUT: "3s"}
    obj["spec"]["tasks"][0]["template"]["metadata"]["annotations"]["atoll.sh/fail"] = "image"
    await site.submit(obj)
    seen: dict[str, Json] = {}

    async def said() -> bool:
        binding = await site.find(BINDINGS, "unpulled-job") or {}
        for each in (binding.get("status") or {}).get("conditions") or ():
            seen[f"{each['type']}={each['status']}"] = each
        return "Running=False" in seen

    await until(said, what="the binding says that its containers don't start")
    assert "Bound=True" in seen
    assert "Running=True" not in seen
    message = seen["Running=False"]["message"]
    assert "ImagePullBackOff (pod unpulled-worker-" in message
    assert "container c: Back-off pulling image" in message
    decision = await site.reason("unpulled", "NotReadyInTime")
    assert (decision["rounds"], "ImagePullBackOff" in decision["story"][-1]["text"]) == (1, True)

    async def waits() -> bool:
        found = await site.find(JOBS, "unpulled") or {}
        state = (found.get("status") or {}).get("state") or {}
        return (state.get("phase"), state.get("reason")) == ("Pending", "NotReadyInTime")

    await until(waits, what="the job waits and says why")
    assert not await site.pods("alpha") + await site.pods("beta")
    notes = [
        (each["reason"], each["note"])
        for each in await site.host.list(EVENTS, site.namespace)
        if each["type"] == "Warning"
    ]
    assert any(reason == "NotStarting" and "ImagePullBackOff" in note for reason, note in notes), notes
    assert any(reason == "NotReadyInTime" for reason, _ in notes), notes


async def test_a_pod_that_does_not_go_is_named_and_its_queue_gets_its_quota_back(site: Site) -> None:
    """1. A job that fills its queue is held while a finalizer keeps one of its pods. 2. The binding, an Event and
    explain name pod, node and finalizer. 3. After the queue's evict timeout its quota returns, and the next job runs
    while the pod is still there. 4. The finalizer goes, and the held job is suspended.
    """
    metadata = {"annotations": {keys.EVICT_TIMEOUT: "9s"}}
    queue = await site.queue("stuck", capability={"cpu": "1"})
    await site.host.merge_patch(QUEUES, queue, {"metadata": metadata})
    obj = job("keeps", replicas=2, cpu="500m", seconds=None, queue=queue)
    template = obj["spec"]["tasks"][0]["template"]
    template["spec"]["terminationGracePeriodSeconds"] = 0
    await site.submit(obj)
    await site.phase("keeps", "Running")
    member = await site.where("keeps")
    api = site.members[member]
    held = {"metadata": {"finalizers": ["example.com/keep"]}}
    await api.merge_patch(PODS, "keeps-worker-0", held, site.namespace)
    try:
        await site.host.merge_patch(JOBS, "keeps", {"metadata": {"annotations": {keys.HOLD: "true"}}}, site.namespace)
        await site.submit(job("next", cpu="500m", seconds=None, queue=queue))
        await site.reason("next", "QuotaExceeded")

        async def named() -> str | None:
            binding = await site.find(BINDINGS, "keeps-job") or {}
            conditions = (binding.get("status") or {}).get("conditions") or ()
            found = (each["message"] for each in conditions if (each["type"], each["status"]) == ("Released", "False"))
            return next(found, None)

        text = await until(named, what="the binding says which pod does not go")
        assert text.startswith(f"{member}: pod keeps-worker-0 on node {member}-n")
        assert "is terminating since 20" in text
        assert text.endswith(", finalizer example.com/keep")
        overdue = await site.reason("keeps", "EvictionOverdue")
        assert overdue["phase"] == "Leaving"
        assert "finalizer example.com/keep" in overdue["story"][-1]["text"]
        await site.phase("next", "Running")
        assert [pod["metadata"]["name"] for pod in await site.pods(member)].count("keeps-worker-0") == 1

        async def event() -> bool:
            found = await site.host.list(EVENTS, site.namespace)
            return any(each["reason"] == "PodsNotGone" and "example.com/keep" in each["note"] for each in found)

        await until(event, what="an Event names the finalizer")
    finally:
        await api.merge_patch(PODS, "keeps-worker-0", {"metadata": {"finalizers": None}}, site.namespace)
    await site.reason("keeps", "Held")
