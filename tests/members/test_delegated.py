"""Gangs from the host through Volcano's and Kueue's own programs: they run, are held or evicted, come back and end."""

from __future__ import annotations

import time

import pytest

from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CLUSTERS,
    JOBS,
    NAMESPACES,
    POLICIES,
    PRIORITY_CLASSES,
    QUEUES,
    ApiResource,
)
from tests.integration.federation import Json, Site, accepting, batch_job, job, until
from tests.members import kueue_member
from tests.members.forms import completed, completes, runs_both
from tests.members.modules import TIMEOUT_S

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(TIMEOUT_S),
    pytest.mark.members("volcano", "kueue", "own"),
]
# Where Volcano's programs can't be had, Kueue's are tried all the same.
KUEUE = pytest.mark.members("kueue", "own")
COMMIT_TIMEOUT_S = 30
"""The host's time for a gang to be bound, after which it takes the gang back."""
QUEUE_CLUSTERS = ApiResource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)


async def goes(site: Site, name: str, *members: str) -> None:
    """What this test submits under that name goes to one of these members."""
    selectors = [{"apiVersion": each.api_version, "kind": each.kind, "name": name} for each in (JOBS, BATCH_JOBS)]
    spec = {"resourceSelectors": selectors, "placement": {"clusterAffinity": {"clusterNames": list(members)}}}
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**about, "metadata": {"name": name, "namespace": site.namespace}, "spec": spec})


async def local_queue(site: Site) -> None:
    """The test's namespace in Kueue's member, with its LocalQueue."""
    api = site.members["kueue"]
    await api.create(NAMESPACES, accepting(site.namespace))
    await api.create(kueue_member.LOCAL_QUEUES, kueue_member.local_queue(site.namespace))


async def bound(site: Site, name: str) -> Json:
    """Wait until the host says that all of the gang is bound; its binding."""

    async def look() -> Json | None:
        found = await site.find(BINDINGS, f"{name}-job")
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return found if any(each["type"] == "Bound" and each["status"] == "True" for each in conditions) else None

    return await until(look, what=f"{name} is bound")


async def epoch(site: Site, name: str) -> int:
    """How often it was dispatched or taken back."""
    binding = await site.find(BINDINGS, f"{name}-job")
    assert binding is not None
    return int(binding["metadata"]["annotations"][keys.EPOCH])


async def story(site: Site, name: str) -> str:
    """What was decided on it."""
    binding = await site.find(BINDINGS, f"{name}-job")
    return str((binding or {}).get("metadata", {}).get("annotations", {}).get(keys.DECISION))


async def placer(site: Site, member: str) -> str:
    """What the host says of who places there."""
    conditions = (await site.host.get(CLUSTERS, member))["status"]["conditions"]
    return str(next(each["reason"] for each in conditions if each["type"] == "Placer"))


async def running(site: Site, member: str, name: str, count: int) -> list[Json]:
    """Wait until so many of its pods run there, none of them going."""

    async def look() -> list[Json]:
        pods = [pod for pod in await site.pods(member) if pod["metadata"]["name"].startswith(f"{name}-")]
        found = [
            pod for pod in pods if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]
        return found if len(found) == count else []

    return await until(look, what=f"{count} pods of {name} run in {member}")


async def nothing(site: Site, member: str, name: str) -> None:
    """Wait until the member has neither the Job nor a pod of it."""

    async def look() -> bool:
        jobs = [each for resource in (JOBS, BATCH_JOBS) if (each := await site.find(resource, name, member))]
        return not jobs and not any(pod["metadata"]["name"].startswith(f"{name}-") for pod in await site.pods(member))

    await until(look, what=f"{member} has nothing of {name}")


def hold(site: Site, kind: str, name: str, *, held: bool) -> None:
    """As `atollctl job hold` and `release` do."""
    note = f"{keys.HOLD}=true" if held else f"{keys.HOLD}-"
    site.kubectl("annotate", kind, name, note, "-n", site.namespace)


def written(site: Site, name: str) -> list[str]:
    """What Atoll's agent did to the Job in Kueue's member, oldest first; not what was refused."""
    events = [
        e
        for e in site.audit("kueue")
        if "atoll-agent" in e["user"]["username"]
        and e["verb"] not in ("get", "list")
        and e.get("responseStatus", {}).get("code", 0) < 400
    ]
    jobs = [e for e in events if e["objectRef"]["resource"] == "jobs" and e["objectRef"].get("name") == name]
    return [e["verb"] for e in jobs]


async def changes(site: Site, name: str) -> int:
    """How often the spec of the Job in Kueue's member was written, its creation included."""
    found = await site.find(BATCH_JOBS, name, "kueue")
    assert found is not None
    return int(found["metadata"]["generation"])


async def test_work_goes_through_a_member_with_volcano(member_site: Site) -> None:
    """Volcano's own controllers make the pods and its scheduler places them."""
    await runs_both(member_site, "volcano")
    assert await placer(member_site, "volcano") == "Volcano"


@KUEUE
async def test_a_batch_job_goes_through_a_member_with_kueue(member_site: Site) -> None:
    """Kueue admits it in the namespace's LocalQueue, once."""
    site = member_site
    await local_queue(site)
    await site.only("kueue")
    done = await completes(site, batch_job("batch", parallelism=2, cpu="3"))
    assert done["status"]["succeeded"] == 2
    (workload,) = await site.members["kueue"].list(kueue_member.WORKLOADS, site.namespace)
    assert {each["type"] for each in workload["status"]["conditions"] if each["status"] == "True"} >= {
        "Admitted",
        "Finished",
    }


@pytest.mark.long
async def test_what_runs_in_volcano_and_in_kueue_is_left_alone(member_site: Site) -> None:
    """1. A gang runs under each. 2. The host's time to be bound passes. 3. They run as they did: nothing was taken
    back, no pod was deleted, and nobody wrote the batch Job's spec but Kueue, once.
    """
    site = member_site
    await local_queue(site)
    await goes(site, "gang", "volcano")
    await goes(site, "batch", "kueue")
    await goes(site, "plain-batch", "volcano")
    await site.submit(job("gang", replicas=4, cpu="3", minAvailable=4, seconds=None))
    await site.submit(batch_job("batch", parallelism=4, cpu="3", seconds=None))
    await site.submit(batch_job("plain-batch", parallelism=2, cpu="500m", seconds=None))
    names = {"gang": ("volcano", 4), "batch": ("kueue", 4), "plain-batch": ("volcano", 2)}
    before = {}
    for name, (member, count) in names.items():
        await bound(site, name)
        before[name] = {pod["metadata"]["uid"] for pod in await running(site, member, name, count)}
    await site.phase("gang", "Running")
    since = time.monotonic()

    async def over() -> bool:
        assert [await epoch(site, name) for name in names] == [1, 1, 1]
        return time.monotonic() > since + COMMIT_TIMEOUT_S + 5

    await until(over, deadline=2 * COMMIT_TIMEOUT_S, what="the time in which it was to be bound is over")
    for name, (member, count) in names.items():
        assert {pod["metadata"]["uid"] for pod in await running(site, member, name, count)} == before[name]
    deleted = [
        e for each in ("volcano", "kueue") for e in site.audit(each)
        if e["verb"] == "delete" and e["objectRef"]["resource"] == "pods"
    ]  # fmt: skip
    assert deleted == []
    assert (written(site, "batch"), await changes(site, "batch")) == (["create"], 2)


@pytest.mark.long
async def test_a_gang_in_volcano_gives_way_to_a_higher_one_comes_back_and_ends(member_site: Site) -> None:
    """1. A gang runs under Volcano. 2. One of a higher priority comes to the host: the first is taken back whole, the
    other runs. 3. The first is dispatched again and runs to its end.
    """
    site = member_site
    high: Json = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, "value": 1000}
    priority = f"high-{site.namespace}"
    await site.host.create(PRIORITY_CLASSES, {**high, "metadata": {"name": priority}})
    queue = await site.queue(capability={"cpu": "12"})
    await site.host.merge_patch(QUEUES, queue, {"metadata": {"annotations": {keys.PROTECTED_FOR: "0s"}}})
    for name in ("low", "vip"):
        await goes(site, name, "volcano")
    await site.submit(job("low", replicas=4, cpu="3", seconds=8, queue=queue))
    await running(site, "volcano", "low", 4)
    await site.submit(job("vip", replicas=4, cpu="3", seconds=2, queue=queue, priorityClassName=priority))
    await site.phase("vip", "Completed")
    assert "Preempted" in await story(site, "low")
    await site.phase("low", "Completed")
    assert await site.where("low") == "volcano"
    groups = {pod["spec"]["schedulerName"] for pod in await site.pods("volcano")}
    assert groups == {"volcano"}
    await site.host.delete(PRIORITY_CLASSES, priority)


@pytest.mark.long
@pytest.mark.parametrize("member", ["volcano", pytest.param("kueue", marks=KUEUE)])
async def test_a_job_that_is_held_leaves_its_member_and_ends_when_it_is_released(
    member_site: Site, member: str
) -> None:
    site = member_site
    if member == "kueue":
        await local_queue(site)
    await goes(site, "held", member)
    await site.submit(batch_job("held", parallelism=2, cpu="3", seconds=4))
    await running(site, member, "held", 2)
    if member == "kueue":
        assert await changes(site, "held") == 2
    hold(site, "job", "held", held=True)
    await nothing(site, member, "held")
    if member == "kueue":

        async def forgotten() -> bool:
            return not await site.members[member].list(kueue_member.WORKLOADS, site.namespace)

        await until(forgotten, what="Kueue has forgotten the Job")
    hold(site, "job", "held", held=False)
    done = await completed(site, "held")
    assert (done["status"]["succeeded"], done["status"].get("failed", 0)) == (2, 0)
    if member == "kueue":
        assert written(site, "held") == ["create", "delete", "create"]


@pytest.mark.long
async def test_a_volcano_job_that_is_held_leaves_volcano_and_ends_when_it_is_released(member_site: Site) -> None:
    site = member_site
    await goes(site, "held", "volcano")
    await site.submit(job("held", replicas=2, cpu="3", seconds=4))
    await running(site, "volcano", "held", 2)
    hold(site, "vcjob", "held", held=True)
    await nothing(site, "volcano", "held")
    hold(site, "vcjob", "held", held=False)
    await site.phase("held", "Completed")


@pytest.mark.long
@KUEUE
async def test_what_kueue_evicts_is_evicted_and_runs_elsewhere(member_site: Site) -> None:
    """1. A gang runs, admitted by Kueue. 2. Its ClusterQueue is drained: Kueue suspends the Job. 3. Nobody lifts that;
    the gang is taken back in time and runs in another member.
    """
    site = member_site
    await local_queue(site)
    await goes(site, "drained", "kueue")
    await site.submit(batch_job("drained", parallelism=4, cpu="3", seconds=None))
    await running(site, "kueue", "drained", 4)
    placement = {"spec": {"placement": {"clusterAffinity": {"clusterNames": ["kueue", "own"]}}}}
    await site.host.merge_patch(POLICIES, "drained", placement, site.namespace)
    api = site.members["kueue"]
    await api.merge_patch(QUEUE_CLUSTERS, kueue_member.QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}})
    try:
        await running(site, "own", "drained", 4)
        assert "lost their nodes in kueue" in await story(site, "drained")
        assert "the Job is suspended there" in await story(site, "drained")
        assert written(site, "drained") == ["create", "delete"]
        await nothing(site, "kueue", "drained")
    finally:
        await api.merge_patch(QUEUE_CLUSTERS, kueue_member.QUEUE, {"spec": {"stopPolicy": "None"}})


@pytest.mark.long
async def test_what_volcano_does_not_place_is_evicted_in_its_words_and_runs_elsewhere(member_site: Site) -> None:
    """1. The member's queue holds less than the gang. 2. Volcano places nothing of it, and says why. 3. It is taken back
    in time and runs in another member.
    """
    site = member_site
    small, note = f"small-{site.namespace}", keys.MEMBER_QUEUE
    about = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind}
    spec = {"capability": {"cpu": "1"}, "weight": 1, "reclaimable": True}
    await site.members["volcano"].create(QUEUES, {**about, "metadata": {"name": small}, "spec": spec})
    await site.host.merge_patch(CLUSTERS, "volcano", {"metadata": {"annotations": {note: small}}})
    try:
        await goes(site, "big", "volcano", "own")
        await site.host.merge_patch(CLUSTERS, "own", {"spec": {"taints": [{"key": "later", "effect": "NoSchedule"}]}})
        await site.submit(job("big", replicas=2, cpu="3", minAvailable=2, seconds=None))

        async def there() -> bool:
            return await site.find(JOBS, "big", "volcano") is not None

        await until(there, what="it is delivered to Volcano")
        await site.host.merge_patch(CLUSTERS, "own", {"spec": {"taints": None}})
        await running(site, "own", "big", 2)
        assert await epoch(site, "big") > 1
        assert await site.find(JOBS, "big", "volcano") is None
        assert f"Volcano has not let its PodGroup into queue {small}" in await story(site, "big")
    finally:
        await site.host.merge_patch(CLUSTERS, "own", {"spec": {"taints": None}})
        await site.host.merge_patch(CLUSTERS, "volcano", {"metadata": {"annotations": {note: None}}})
        await site.members["volcano"].delete(QUEUES, small)


@KUEUE
async def test_a_job_with_a_queue_of_the_host_is_not_taken_by_kueue_where_kube_scheduler_places(
    member_site: Site,
) -> None:
    """Its label would have Kueue suspend it; the label stays on the host, and the Job runs once."""
    site = member_site
    notes = {keys.PLACER: "kube-scheduler", keys.MEMBER_QUEUE: None}
    before = {keys.PLACER: "kueue", keys.MEMBER_QUEUE: kueue_member.QUEUE}

    async def becomes(reason: str) -> None:
        async def look() -> bool:
            return await placer(site, "kueue") == reason

        await until(look, what=f"the placer is {reason}")

    await site.host.merge_patch(CLUSTERS, "kueue", {"metadata": {"annotations": notes}})
    try:
        await becomes("KubeScheduler")
        queue = await site.queue()
        await goes(site, "labelled", "kueue")
        metadata = {"labels": {keys.KUEUE_QUEUE_LABEL: queue}}
        done = await completes(site, batch_job("labelled", parallelism=2, cpu="3", seconds=2, metadata=metadata))
        assert done["status"]["succeeded"] == 2
        assert (written(site, "labelled"), await changes(site, "labelled")) == (["create"], 1)
        assert await site.members["kueue"].list(kueue_member.WORKLOADS, site.namespace) == []
    finally:
        await site.host.merge_patch(CLUSTERS, "kueue", {"metadata": {"annotations": before}})
    await becomes("Kueue")
