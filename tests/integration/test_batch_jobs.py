"""batch/v1 Jobs on real API servers: from the host to a member and back, and held."""

from __future__ import annotations

import json

import pytest

from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CLUSTER_POLICIES,
    COMMANDS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    POLICIES,
    QUEUES,
    WORKS,
)
from tests.integration.federation import Json, Site, batch_job, job, until

pytestmark = pytest.mark.integration


async def condition(site: Site, name: str, type_: str, status: str = "True") -> Json:
    """Wait until the Job on the host has this condition."""

    async def look() -> Json | None:
        found = await site.find(BATCH_JOBS, name)
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return found if any((c["type"], c["status"]) == (type_, status) for c in conditions) else None

    return await until(look, what=f"batch job {name} is {type_}={status}")


async def running(site: Site, name: str, ready: int) -> Json:
    """Wait until the Job on the host is not suspended any more and shows these ready pods."""

    async def look() -> Json | None:
        found = await site.find(BATCH_JOBS, name)
        good = found and not found["spec"]["suspend"] and (found.get("status") or {}).get("ready") == ready
        return found if good else None

    return await until(look, what=f"batch job {name} has {ready} ready pods")


def types(found: Json) -> set[str]:
    return {c["type"] for c in found["status"]["conditions"] if c["status"] == "True"}


def chosen(binding: Json) -> list[str]:
    return [target["name"] for target in binding["spec"].get("clusters") or []]


async def test_a_batch_job_starts_no_pod_on_the_host_runs_in_a_member_and_ends_complete(site: Site) -> None:
    made = await site.submit(batch_job("train", parallelism=3))
    assert made["spec"]["suspend"] is True
    assert made["spec"]["managedBy"] == "atoll.sh/control"
    assert made["metadata"]["labels"][keys.QUEUE_LABEL] == "default"
    site.kubectl("wait", "--for=condition=complete", "job/train", "-n", site.namespace, "--timeout=30s")
    done = await site.find(BATCH_JOBS, "train")
    assert done is not None
    assert done["spec"]["suspend"] is False
    assert done["status"]["succeeded"] == 3
    assert {name: done["status"].get(name, 0) for name in ("active", "ready", "terminating", "failed")} == {
        "active": 0,
        "ready": 0,
        "terminating": 0,
        "failed": 0,
    }
    assert types(done) == {"SuccessCriteriaMet", "Complete"}
    assert done["status"]["completionTime"] >= done["status"]["startTime"]
    assert await site.host.list(PODS, site.namespace) == []
    member = await site.where("train")
    pods = await site.pods(member)
    assert len(pods) == 3
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"atoll"}
    binding = await site.find(BINDINGS, "train-job")
    assert binding is not None
    assert {pod["metadata"]["annotations"][keys.BINDING_UID] for pod in pods} == {binding["metadata"]["uid"]}
    assert {pod["metadata"]["annotations"][keys.EPOCH] for pod in pods} == {"1"}
    there = await site.find(BATCH_JOBS, "train", member)
    assert there is not None
    assert "managedBy" not in there["spec"]
    assert "Complete" in site.kubectl("get", "jobs", "-n", site.namespace)


async def test_its_pods_form_one_gang_in_the_member(site: Site) -> None:
    await site.submit(batch_job("gang", parallelism=3, seconds=None))
    await running(site, "gang", 3)
    groups = await site.members[await site.where("gang")].list(POD_GROUPS, site.namespace)
    assert [group["spec"]["minMember"] for group in groups] == [3]


async def test_more_completions_than_pods_at_once_are_counted_exactly(site: Site) -> None:
    await site.submit(batch_job("many", parallelism=2, completions=5, seconds=0.3))
    done = await condition(site, "many", "Complete")
    assert done["status"]["succeeded"] == 5
    assert done["status"].get("failed", 0) == 0


async def test_a_pod_killed_in_the_member_is_counted_as_failed_and_replaced(site: Site) -> None:
    await site.submit(batch_job("struck", parallelism=2, seconds=4))
    await running(site, "struck", 2)
    member = await site.where("struck")
    victim = (await site.pods(member))[0]
    await site.members[member].delete(PODS, victim["metadata"]["name"], site.namespace)
    done = await condition(site, "struck", "Complete")
    assert done["status"]["succeeded"] == 2
    assert done["status"]["failed"] == 1


async def test_a_job_over_its_backoff_limit_ends_failed_with_the_members_reason(site: Site) -> None:
    failing = batch_job("failing", parallelism=1, seconds=0.2, backoffLimit=0)
    failing["spec"]["template"]["metadata"]["annotations"]["atoll.sh/fail"] = "true"
    await site.submit(failing)
    done = await condition(site, "failing", "Failed")
    assert types(done) == {"FailureTarget", "Failed"}
    assert {c["reason"] for c in done["status"]["conditions"] if c["type"] == "Failed"} == {"BackoffLimitExceeded"}
    assert done["status"]["failed"] == 1
    assert "completionTime" not in done["status"]


async def test_an_indexed_job_keeps_its_mode_and_tells_its_indices(site: Site) -> None:
    await site.submit(batch_job("indexed", parallelism=4, completionMode="Indexed", seconds=0.5))
    done = await condition(site, "indexed", "Complete")
    assert done["status"]["completedIndexes"] == "0-3"
    assert done["status"]["succeeded"] == 4
    there = await site.find(BATCH_JOBS, "indexed", await site.where("indexed"))
    assert there is not None
    assert (there["spec"]["completionMode"], there["spec"]["completions"]) == ("Indexed", 4)


async def test_a_job_deleted_on_the_host_is_gone_in_the_member(site: Site) -> None:
    await site.submit(batch_job("endless", parallelism=2, seconds=None))
    await running(site, "endless", 2)
    member = await site.where("endless")
    site.kubectl("delete", "job", "endless", "-n", site.namespace)

    async def gone() -> bool:
        left = [*await site.pods(member), await site.find(BATCH_JOBS, "endless", member)]
        left += await site.host.list(BINDINGS, site.namespace)
        return not any(left)

    await until(gone, what="job, pods and binding are gone")
    execution = keys.execution_namespace(member)
    assert not [w for w in await site.host.list(WORKS, execution) if site.namespace in str(w)]


async def test_a_volcano_job_and_a_batch_job_of_one_name_live_side_by_side(site: Site) -> None:
    await site.submit(job("twin"))
    await site.submit(batch_job("twin"))
    await condition(site, "twin", "Complete")
    await site.phase("twin", "Completed")
    assert len(await site.host.list(BINDINGS, site.namespace)) == 2


# -- holding ---------------------------------------------------------------------------------------------------------


async def test_a_job_created_suspended_is_held_until_it_is_released(site: Site) -> None:
    made = await site.submit(batch_job("later", suspend=True))
    assert made["metadata"]["annotations"][keys.HOLD] == "true"
    await site.reason("later", "Held")
    await condition(site, "later", "Suspended")
    site.kubectl("annotate", "job", "later", f"{keys.HOLD}-", "-n", site.namespace)
    done = await condition(site, "later", "Complete")
    assert [c["status"] for c in done["status"]["conditions"] if c["type"] == "Suspended"] == ["False"]


async def test_suspend_set_to_false_by_hand_has_no_effect(site: Site) -> None:
    queue = await site.queue(capability={"cpu": "50m"})
    await site.submit(batch_job("waits", metadata={"labels": {keys.QUEUE_LABEL: queue}}))
    await site.submit(batch_job("held", suspend=True))
    patch = ("-n", site.namespace, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    site.kubectl("patch", "job", "waits", *patch)
    site.kubectl("patch", "job", "held", *patch)
    for name in ("waits", "held"):
        found = await site.find(BATCH_JOBS, name)
        assert found is not None
        assert found["spec"]["suspend"] is True


@pytest.mark.parametrize("side", ["--server-side", "--server-side=false"])
async def test_a_manifest_that_is_applied_again_changes_nothing(site: Site, side: str) -> None:
    """As Argo CD, Flux and helm do, with an explicit suspend: first while it waits, then while it runs."""
    queue = await site.queue(capability={"cpu": "50m"})
    metadata = {"labels": {keys.QUEUE_LABEL: queue}, "namespace": site.namespace}
    manifest = json.dumps(batch_job("again", seconds=None, metadata=metadata, suspend=False))
    for _ in range(3):
        site.kubectl("apply", side, "-f", "-", stdin=manifest)
        found = await site.find(BATCH_JOBS, "again")
        assert found is not None
        assert (found["spec"]["suspend"], found["metadata"].get("annotations", {}).get(keys.HOLD)) == (True, None)
    await site.host.merge_patch(QUEUES, queue, {"spec": {"capability": {"cpu": "1"}}})
    await running(site, "again", 1)
    site.kubectl("apply", side, "-f", "-", stdin=manifest)
    found = await site.find(BATCH_JOBS, "again")
    assert found is not None
    assert found["spec"]["suspend"] is False


@pytest.mark.parametrize("side", ["--server-side", "--server-side=false"])
async def test_a_suspended_job_with_a_kueue_queue_runs_and_is_not_stopped_by_its_manifest(
    site: Site, side: str
) -> None:
    queue = await site.queue(capability={"cpu": "1"})
    metadata = {"labels": {keys.KUEUE_QUEUE_LABEL: queue}, "namespace": site.namespace}
    manifest = json.dumps(batch_job("kueued", seconds=None, metadata=metadata, suspend=True))
    site.kubectl("apply", side, "-f", "-", stdin=manifest)
    await running(site, "kueued", 1)
    # Server-side apply calls it a conflict with control's field without this flag, which Argo CD sets.
    force = ["--force-conflicts"] if side == "--server-side" else []
    site.kubectl("apply", side, *force, "-f", "-", stdin=manifest)
    found = await site.find(BATCH_JOBS, "kueued")
    assert found is not None
    assert (found["spec"]["suspend"], keys.HOLD in found["metadata"].get("annotations", {})) == (False, False)


async def test_a_running_job_that_its_user_suspends_is_evicted_and_goes_on_where_it_was(site: Site) -> None:
    await site.submit(batch_job("paused", parallelism=2, completions=4, seconds=3))

    async def half() -> Json | None:
        found = await site.find(BATCH_JOBS, "paused")
        return found if found and (found.get("status") or {}).get("succeeded") == 2 else None

    await until(half, what="two have succeeded")
    member = await site.where("paused")
    site.kubectl("patch", "job", "paused", "-n", site.namespace, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    found = await site.find(BATCH_JOBS, "paused")
    assert found is not None
    assert found["metadata"]["annotations"][keys.HOLD] == "true"

    async def gone() -> bool:
        return not await site.pods(member) and await site.find(BATCH_JOBS, "paused", member) is None

    await until(gone, what="the member has let go")
    await site.reason("paused", "Held")
    found = await condition(site, "paused", "Suspended")
    assert found["status"]["succeeded"] == 2
    # What was done is known to whoever takes over.
    await site.federation.process("control").restart()
    site.kubectl("annotate", "job", "paused", f"{keys.HOLD}-", "-n", site.namespace)
    done = await condition(site, "paused", "Complete")
    assert done["status"]["succeeded"] == 4
    assert done["status"].get("failed", 0) == 0
    there = await site.find(BATCH_JOBS, "paused", await site.where("paused"))
    assert there is not None
    assert there["spec"]["completions"] == 2


# -- whose job, which queue, which policy ----------------------------------------------------------------------------


async def queue_of(site: Site, name: str) -> str:
    async def look() -> str | None:
        binding = await site.find(BINDINGS, f"{name}-job")
        text = ((binding or {}).get("metadata") or {}).get("annotations", {}).get(keys.GANG)
        return str(json.loads(text)["queue"]) if text else None

    return await until(look, what=f"{name} has a binding")


async def test_the_queue_is_that_of_the_first_place_that_names_one(site: Site) -> None:
    a, b, c, d, e = [await site.queue(name) for name in "abcde"]
    patch = {"metadata": {"annotations": {keys.QUEUE_ANNOTATION: e}}}
    await site.host.merge_patch(NAMESPACES, site.namespace, patch)
    expected = {"by-kueue-label": a, "by-label": b, "by-annotation": c, "by-template": d, "by-namespace": e}
    wishes: dict[str, Json] = {
        "by-kueue-label": {"labels": {keys.KUEUE_QUEUE_LABEL: a, keys.QUEUE_LABEL: b}},
        "by-label": {"labels": {keys.QUEUE_LABEL: b}, "annotations": {keys.QUEUE_ANNOTATION: c}},
        "by-annotation": {"annotations": {keys.QUEUE_ANNOTATION: c}},
        "by-template": {},
        "by-namespace": {},
    }

    async def known() -> bool:
        # The webhook learns of the annotation a moment after it was written.
        made = await site.host.request(
            "POST",
            BATCH_JOBS.path(site.namespace),
            params={"dryRun": "All"},
            body=json.dumps(batch_job("probe")).encode(),
        )
        return e.encode() in made

    await until(known, what="the namespace's queue is known")
    for name, metadata in wishes.items():
        made = batch_job(name, metadata=metadata, seconds=0.1)
        if name == "by-template":
            made["spec"]["template"]["metadata"]["annotations"][keys.QUEUE_ANNOTATION] = d
        await site.submit(made)
    assert {name: await queue_of(site, name) for name in expected} == expected
    await site.submit(job("volcano"))
    assert await queue_of(site, "volcano") == e


async def test_an_unknown_queue_is_admitted_and_waits_and_a_closed_one_is_refused(site: Site) -> None:
    await site.submit(batch_job("early", metadata={"labels": {keys.KUEUE_QUEUE_LABEL: f"soon-{site.namespace}"}}))
    await site.reason("early", "QueueNotFound")
    await site.queue("soon")
    await condition(site, "early", "Complete")

    name = await site.queue("shut")

    async def opened() -> Json | None:
        found = await site.find(QUEUES, name)
        return found if found and (found.get("status") or {}).get("state") == "Open" else None

    queue = await until(opened, what="the queue is open")
    target = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "name": name, "uid": queue["metadata"]["uid"]}
    metadata = {"generateName": "close-", "namespace": "default", "ownerReferences": [target]}
    head = {"apiVersion": COMMANDS.api_version, "kind": COMMANDS.kind}
    await site.host.create(COMMANDS, {**head, "metadata": metadata, "action": "CloseQueue", "target": target})

    async def refused() -> bool:
        made = batch_job("late", metadata={"labels": {keys.QUEUE_LABEL: name}})
        try:
            await site.submit(made)
        except Exception as error:
            return "is Closed" in str(error) or "is Closing" in str(error)
        await site.host.delete(BATCH_JOBS, "late", site.namespace)
        return False

    await until(refused, what="a closed queue refuses batch jobs")


def policy(name: str, member: str, *, namespace: str = "", select: str = "") -> Json:
    """A policy that sends batch Jobs (of this name) to one member."""
    resource = POLICIES if namespace else CLUSTER_POLICIES
    selector = {"apiVersion": "batch/v1", "kind": "Job", **({"name": select} if select else {})}
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": {
            "resourceSelectors": [selector],
            "placement": {"clusterAffinity": {"clusterNames": [member]}},
        },
    }


async def test_a_namespaced_policy_wins_over_a_cluster_policy_and_that_over_the_queues_default(site: Site) -> None:
    mine = site.namespace
    default, wide = f"default-{mine}", f"wide-{mine}"
    queue = await site.queue()
    try:
        # As default: it selects nothing by itself.
        await site.host.create(CLUSTER_POLICIES, policy(default, "beta", select="nobody"))
        await site.host.merge_patch(QUEUES, queue, {"metadata": {"annotations": {keys.DEFAULT_POLICY: default}}})
        await site.host.create(CLUSTER_POLICIES, policy(wide, "alpha", select=f"wide-{mine}"))
        await site.host.create(CLUSTER_POLICIES, policy(f"both-{mine}", "alpha", select=f"both-{mine}"))
        await site.host.create(POLICIES, policy("narrow", "beta", namespace=mine, select=f"both-{mine}"))
        for name in ("plain", "wide", "both"):
            await site.submit(batch_job(f"{name}-{mine}", seconds=0.1, metadata={"labels": {keys.QUEUE_LABEL: queue}}))
        places = {name: await site.where(f"{name}-{mine}") for name in ("plain", "wide", "both")}
        assert places == {"plain": "beta", "wide": "alpha", "both": "beta"}
        # A default policy may be a namespaced one.
        await site.host.create(POLICIES, policy("other", "alpha", namespace=mine, select="nobody"))
        patch = {"metadata": {"annotations": {keys.DEFAULT_POLICY: f"{mine}/other"}}}
        await site.host.merge_patch(QUEUES, queue, patch)

        async def follows() -> bool:
            binding = await site.find(BINDINGS, f"plain-{mine}-job")
            return bool(binding and binding["spec"]["placement"]["clusterAffinity"]["clusterNames"] == ["alpha"])

        await until(follows, what="the binding follows the new default policy")
    finally:
        for each in (default, wide, f"both-{mine}"):
            await site.host.delete(CLUSTER_POLICIES, each)


async def test_the_parts_of_a_divided_job_add_up_to_its_completions(site: Site) -> None:
    divided = policy("divided", "alpha", namespace=site.namespace)
    divided["spec"]["placement"] = {
        "clusterAffinity": {"clusterNames": ["alpha", "beta"]},
        "replicaScheduling": {"replicaSchedulingType": "Divided"},
    }
    await site.host.create(POLICIES, divided)
    # alpha has room for 16 of these pods, beta for 8.
    await site.submit(batch_job("wide", parallelism=20, completions=27, cpu="8"))
    done = await condition(site, "wide", "Complete")
    assert done["status"]["succeeded"] == 27
    there = {name: await site.find(BATCH_JOBS, "wide", name) for name in ("alpha", "beta")}
    shares = {name: found["spec"]["completions"] for name, found in there.items() if found is not None}
    assert set(shares) == {"alpha", "beta"}
    assert sum(shares.values()) == 27


async def test_an_indexed_job_is_not_divided_even_where_its_policy_divides(site: Site) -> None:
    divided = policy("divided", "alpha", namespace=site.namespace)
    divided["spec"]["placement"] = {"replicaScheduling": {"replicaSchedulingType": "Divided"}}
    await site.host.create(POLICIES, divided)
    await site.submit(batch_job("indices", parallelism=20, cpu="8", completionMode="Indexed"))
    await site.reason("indices", "InsufficientResources")


async def test_a_job_evicted_again_and_again_counts_every_completion_once(site: Site) -> None:
    await site.submit(batch_job("often", parallelism=3, completions=12, seconds=0.4))
    seen = [0]

    async def beyond() -> Json | None:
        found = await site.find(BATCH_JOBS, "often")
        status = (found or {}).get("status") or {}
        seen.append(status.get("succeeded", 0))
        return found if seen[-1] > last or "completionTime" in status else None

    async def suspended_or_done() -> bool:
        binding, found = await site.find(BINDINGS, "often-job"), await site.find(BATCH_JOBS, "often")
        held = '"reason":"Held"' in (binding or {}).get("metadata", {}).get("annotations", {}).get(keys.DECISION, "")
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        true = {each["type"] for each in conditions if each["status"] == "True"}
        return "Complete" in true or (held and "Suspended" in true)

    for _ in range(4):
        last = seen[-1]
        found = await until(beyond, what=f"more than {last} have succeeded")
        if "completionTime" in found["status"]:
            break
        await site.host.merge_patch(
            BATCH_JOBS, "often", {"metadata": {"annotations": {keys.HOLD: "true"}}}, site.namespace
        )
        # Its last pods may be faster than the hold.
        await until(suspended_or_done, what="it is taken back, or ends")
        await site.host.merge_patch(
            BATCH_JOBS, "often", {"metadata": {"annotations": {keys.HOLD: None}}}, site.namespace
        )
    done = await condition(site, "often", "Complete")
    assert done["status"]["succeeded"] == 12
    assert done["status"].get("failed", 0) == 0
    assert seen == sorted(seen), "no count ever fell"
    there = await site.find(BATCH_JOBS, "often", await site.where("often"))
    work = [
        w for w in await site.host.list(WORKS) if w["metadata"]["annotations"][keys.BINDING_NAMESPACE] == site.namespace
    ]
    assert there is not None
    carried = json.loads(work[0]["metadata"]["annotations"].get(keys.CARRIED, "{}"))
    assert carried.get("succeeded", 0) + there["status"]["succeeded"] == 12
