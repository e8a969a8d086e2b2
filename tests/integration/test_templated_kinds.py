"""Kinds of replicated pod templates on real API servers: from the host to a member and back."""

from __future__ import annotations

import json

import orjson
import pytest
import pytest_asyncio

from atoll.cli.kinds import gather
from atoll.kinds import apps, job_set, kubeflow, ray
from atoll.kube import errors
from atoll.kube.transport import JSON_PATCH
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, POD_GROUPS, PODS, ApiResource
from tests.integration.federation import Json, Site, batch_job, until
from tests.integration.foreign_crds import bring, make, make_pods, owner, say
from tests.integration.member_policies import policy_on_jobs
from tests.integration.pod_templates import job_set_of, made, service, template

pytestmark = pytest.mark.integration

JOB_SETS = job_set.KIND.resource
PYTORCH_JOBS = kubeflow.KINDS[0].resource
RAY_CLUSTERS = ray.KINDS[1].resource
DEPLOYMENTS, STATEFUL_SETS = apps.DEPLOYMENT.resource, apps.STATEFUL_SET.resource


@pytest_asyncio.fixture(loop_scope="session")
async def with_crds(site: Site) -> Site:
    """The host has the CRDs, as two of three members have."""
    await bring([site.host], [JOB_SETS, PYTORCH_JOBS, RAY_CLUSTERS])
    return site


async def there(site: Site, resource: ApiResource, name: str) -> tuple[str, Json]:
    """The member that has the object, and it."""

    async def look() -> tuple[str, Json] | None:
        for member in site.members:
            # A member without the kind has none of it.
            if (found := await site.find(resource, name, member)) is not None:
                return member, found
        return None

    return await until(look, what=f"{resource.kind} {name} is in a member")


async def test_a_job_set_runs_as_one_gang_where_its_crd_is_and_tells_its_end(with_crds: Site) -> None:
    site = with_crds
    await site.submit(job_set_of("train", workers=2))
    on_host = await site.find(JOB_SETS, "train")
    assert on_host is not None
    assert (on_host["spec"]["suspend"], on_host["spec"]["managedBy"]) == (True, keys.CONTROLLER)
    member, obj = await there(site, JOB_SETS, "train")
    assert member in ("alpha", "beta")
    assert obj["spec"]["suspend"] is False
    assert "managedBy" not in obj["spec"]
    api = site.members[member]
    jobs = [
        await make(api, BATCH_JOBS, f"train-{each['name']}-0", owner(JOB_SETS, obj), obj, {}, each["template"]["spec"])
        for each in obj["spec"]["replicatedJobs"]
    ]

    async def one_gang() -> list[Json] | None:
        pods = await site.pods(member)
        return pods if len(pods) == 3 and all(pod["spec"].get("nodeName") for pod in pods) else None

    pods = await until(one_gang, what="all pods have nodes")
    groups = await api.list(POD_GROUPS, site.namespace)
    assert [(each["spec"]["minMember"], each["metadata"]["ownerReferences"][0]["uid"]) for each in groups] == [
        (3, obj["metadata"]["uid"])
    ]
    assert {pod["metadata"]["annotations"][keys.GROUP_NAME] for pod in pods} == {groups[0]["metadata"]["name"]}

    async def lifted() -> bool:
        found = await site.find(JOB_SETS, "train")
        return found is not None and found["spec"]["suspend"] is False

    await until(lifted, what="the switch follows the dispatch")
    status = [{"name": "leader", "ready": 1, "succeeded": 0}, {"name": "worker", "ready": 1, "succeeded": 0}]
    await say(api, JOB_SETS, obj, {"replicatedJobsStatus": status, "restarts": 0})
    for each in jobs:

        async def complete(name: str = each["metadata"]["name"]) -> bool:
            found = await site.find(BATCH_JOBS, name, member)
            return bool(found and (found.get("status") or {}).get("completionTime"))

        await until(complete, what="the member's controller ran its Jobs")
    end = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "jobset completed"}
    end["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await say(api, JOB_SETS, obj, {"conditions": [end], "replicatedJobsStatus": status})
    site.kubectl("wait", "--for=condition=Completed", "jobset/train", "-n", site.namespace, "--timeout=30s")

    async def charged_no_more() -> bool:
        binding = await site.find(BINDINGS, "train-jobset")
        conditions = ((binding or {}).get("status") or {}).get("conditions") or ()
        return any((c["type"], c["status"]) == ("Finished", "True") for c in conditions)

    await until(charged_no_more, what="the binding is finished")
    site.kubectl("delete", "jobset", "train", "-n", site.namespace)

    async def gone() -> bool:
        return await site.find(JOB_SETS, "train", member) is None and not await site.pods(member)

    await until(gone, what="nothing of it is left in the member")


async def test_a_job_set_that_is_held_leaves_its_member_and_goes_again_when_it_is_released(with_crds: Site) -> None:
    site = with_crds
    await site.submit(job_set_of("pause"))
    member, first = await there(site, JOB_SETS, "pause")
    annotate = ("annotate", "jobset/pause", "-n", site.namespace, "--overwrite")
    site.kubectl(*annotate, f"{keys.HOLD}=true")

    async def withdrawn() -> bool:
        found = await site.find(JOB_SETS, "pause")
        gone = await site.find(JOB_SETS, "pause", member) is None
        return gone and found is not None and found["spec"]["suspend"] is True

    await until(withdrawn, what="it is suspended on the host and gone in the member")
    site.kubectl(*annotate, f"{keys.HOLD}-")
    _, again = await there(site, JOB_SETS, "pause")
    before, after = (int(each["metadata"]["annotations"][keys.EPOCH]) for each in (first, again))
    assert before < after


async def test_where_only_members_without_the_crd_are_left_a_job_set_waits_with_that_reason(
    with_crds: Site,
) -> None:
    site = with_crds
    await site.only("topo")
    await site.submit(job_set_of("nowhere"))

    async def why() -> str | None:
        found = await site.find(JOB_SETS, "nowhere")
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return next((c["reason"] for c in conditions if (c["type"], c["status"]) == ("Dispatched", "False")), None)

    async def lacking() -> bool:
        return await why() == "FeatureMissing"

    await until(lacking, what="it says that the member lacks the kind")
    told = {each["kind"]: each for each in await gather(site.host)}
    assert told["JobSet"]["host"]["served"]
    assert {name: bool(why) for name, why in told["JobSet"]["members"].items()} == {
        "alpha": False,
        "beta": False,
        "topo": True,
    }


async def test_a_deployment_is_charged_scaled_and_deleted_and_its_own_status_is_true_on_the_host(site: Site) -> None:
    labels = {"app": "web"}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template(None, app="web")}
    await site.submit(made(DEPLOYMENTS, "web", spec))
    site.kubectl("wait", "--for=condition=Available", "deployment/web", "-n", site.namespace, "--timeout=30s")
    member, _ = await there(site, DEPLOYMENTS, "web")
    groups = await site.members[member].list(POD_GROUPS, site.namespace)
    assert [(each["spec"]["minMember"], each["metadata"]["ownerReferences"][0]["kind"]) for each in groups] == [
        (2, "Deployment")
    ]
    assert await site.host.list(PODS, site.namespace) == []
    site.kubectl("scale", "deployment/web", "--replicas=4", "-n", site.namespace)
    site.kubectl("rollout", "status", "deployment/web", "-n", site.namespace, "--timeout=30s")

    async def grown() -> bool:
        found = await site.find(DEPLOYMENTS, "web")
        return found is not None and (found.get("status") or {}).get("readyReplicas") == 4

    await until(grown, what="the host shows four ready replicas")
    binding = await site.find(BINDINGS, "web-deployment")
    assert binding is not None
    assert binding["spec"]["clusters"][0]["replicas"] == 4
    site.kubectl("scale", "deployment/web", "--replicas=1", "-n", site.namespace)

    async def shrunk() -> bool:
        found = await site.find(DEPLOYMENTS, "web")
        return found is not None and (found.get("status") or {}).get("readyReplicas") == 1

    await until(shrunk, what="the host shows one ready replica")
    site.kubectl("delete", "deployment", "web", "-n", site.namespace)

    async def gone() -> bool:
        return await site.find(DEPLOYMENTS, "web", member) is None and not await site.pods(member)

    await until(gone, what="nothing of it is left in the member")


async def test_a_pod_group_that_pods_name_is_the_gang_and_goes_along(site: Site) -> None:
    queue = await site.queue()
    about = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind}
    metadata = {"name": "mine", "namespace": site.namespace}
    await site.host.create(POD_GROUPS, {**about, "metadata": metadata, "spec": {"minMember": 2, "queue": queue}})
    labels = {"app": "web"}
    pods = template(None, app="web")
    pods["metadata"]["annotations"][keys.GROUP_NAME] = "mine"
    await site.submit(made(DEPLOYMENTS, "web", {"replicas": 3, "selector": {"matchLabels": labels}, "template": pods}))
    site.kubectl("wait", "--for=condition=Available", "deployment/web", "-n", site.namespace, "--timeout=30s")
    binding = await site.find(BINDINGS, "web-deployment")
    assert binding is not None
    gang = json.loads(binding["metadata"]["annotations"][keys.GANG])
    assert (gang["minAvailable"], gang["queue"]) == (2, queue)
    member, _ = await there(site, DEPLOYMENTS, "web")
    [group] = await site.members[member].list(POD_GROUPS, site.namespace)
    assert (group["metadata"]["name"], group["spec"]["minMember"]) == ("mine", 2)
    assert {pod["metadata"]["annotations"][keys.GROUP_NAME] for pod in await site.pods(member)} == {"mine"}
    site.kubectl("delete", "deployment", "web", "-n", site.namespace)

    async def gone() -> bool:
        return not await site.members[member].list(POD_GROUPS, site.namespace)

    await until(gone, what="the PodGroup goes with the last pod")


async def test_a_stateful_set_starts_its_pods_in_order_and_scales(site: Site) -> None:
    labels = {"app": "db"}
    spec = {
        "replicas": 2,
        "serviceName": "db",
        "selector": {"matchLabels": labels},
        "template": template(None, app="db"),
    }
    await site.submit(made(STATEFUL_SETS, "db", spec))

    async def ready(count: int) -> bool:
        found = await site.find(STATEFUL_SETS, "db")
        return found is not None and (found.get("status") or {}).get("readyReplicas") == count

    await until(lambda: ready(2), what="the host shows two ready replicas")
    site.kubectl("scale", "statefulset/db", "--replicas=3", "-n", site.namespace)
    await until(lambda: ready(3), what="the host shows three ready replicas")
    member, _ = await there(site, STATEFUL_SETS, "db")
    assert sorted(pod["metadata"]["name"] for pod in await site.pods(member)) == ["db-0", "db-1", "db-2"]
    site.kubectl("delete", "statefulset", "db", "-n", site.namespace)

    async def gone() -> bool:
        return await site.find(STATEFUL_SETS, "db", member) is None and not await site.pods(member)

    await until(gone, what="nothing of it is left in the member")


async def bound(site: Site, member: str, count: int) -> None:
    """Wait until so many pods of the test have nodes in the member."""

    async def look() -> bool:
        pods = [pod for pod in await site.pods(member) if "deletionTimestamp" not in pod["metadata"]]
        return len(pods) == count and all(pod["spec"].get("nodeName") for pod in pods)

    await until(look, what=f"{count} pods have nodes in {member}")


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
async def test_a_pytorch_job_runs_in_a_member_and_stays_suspended_on_the_host(with_crds: Site, end: str) -> None:
    site = with_crds
    roles = {"Master": {"replicas": 1, "template": template()}, "Worker": {"replicas": 2, "template": template()}}
    await site.submit(made(PYTORCH_JOBS, "bert", {"pytorchReplicaSpecs": roles}))
    member, obj = await there(site, PYTORCH_JOBS, "bert")
    assert obj["spec"]["runPolicy"]["suspend"] is False
    api = site.members[member]
    for role, spec in obj["spec"]["pytorchReplicaSpecs"].items():
        await make_pods(api, PYTORCH_JOBS, obj, role.lower(), spec["replicas"], spec["template"])
    await bound(site, member, 3)
    said = [{"type": "Running", "status": "True"}]
    await say(api, PYTORCH_JOBS, obj, {"conditions": said, "replicaStatuses": {"Worker": {"active": 2}}})
    site.kubectl("wait", "--for=condition=Running", "pytorchjob/bert", "-n", site.namespace, "--timeout=30s")
    over = [{"type": end, "status": "True", "reason": "PyTorchJobEnded", "message": "it is over"}]
    await say(api, PYTORCH_JOBS, obj, {"conditions": over, "completionTime": "2026-01-01T00:00:00Z"})
    site.kubectl("wait", f"--for=condition={end}", "pytorchjob/bert", "-n", site.namespace, "--timeout=30s")
    on_host = await site.find(PYTORCH_JOBS, "bert")
    assert on_host is not None
    assert on_host["spec"]["runPolicy"]["suspend"] is True

    async def finished() -> bool:
        binding = await site.find(BINDINGS, "bert-pytorchjob")
        conditions = ((binding or {}).get("status") or {}).get("conditions") or ()
        return any((c["type"], c["status"]) == ("Finished", "True") for c in conditions)

    await until(finished, what="the binding is finished")


async def test_a_ray_cluster_is_charged_scaled_and_deleted(with_crds: Site) -> None:
    site = with_crds
    group = {"groupName": "small", "replicas": 1, "template": template()}
    spec = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [group]}
    await site.submit(made(RAY_CLUSTERS, "notebook", spec))
    member, obj = await there(site, RAY_CLUSTERS, "notebook")
    api = site.members[member]
    await make_pods(api, RAY_CLUSTERS, obj, "head", 1, obj["spec"]["headGroupSpec"]["template"])
    await make_pods(api, RAY_CLUSTERS, obj, "small", 1, obj["spec"]["workerGroupSpecs"][0]["template"])
    await bound(site, member, 2)
    await say(api, RAY_CLUSTERS, obj, {"state": "ready", "readyWorkerReplicas": 1})

    async def ready() -> bool:
        found = await site.find(RAY_CLUSTERS, "notebook")
        return ((found or {}).get("status") or {}).get("state") == "ready"

    await until(ready, what="the host shows that it is ready")
    change = '[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}]'
    site.kubectl("patch", "rayclusters", "notebook", "-n", site.namespace, "--type=json", "-p", change)

    async def grown() -> bool:
        _, found = await there(site, RAY_CLUSTERS, "notebook")
        return bool(found["spec"]["workerGroupSpecs"][0]["replicas"] == 3)

    await until(grown, what="the member's has three workers")
    binding = await site.find(BINDINGS, "notebook-raycluster")
    assert binding is not None
    counts = {each["name"]: each["replicas"] for each in binding["spec"]["clusters"][0]["components"]}
    assert counts == {"ray-head": 1, "small": 3}
    site.kubectl("delete", "rayclusters", "notebook", "-n", site.namespace)

    async def gone() -> bool:
        return await site.find(RAY_CLUSTERS, "notebook", member) is None and not await site.pods(member)

    await until(gone, what="nothing of it is left in the member")


@pytest.mark.parametrize("resource", [DEPLOYMENTS, STATEFUL_SETS], ids=lambda each: each.kind)
async def test_a_change_that_the_member_refuses_is_not_rolled_out(site: Site, resource: ApiResource) -> None:
    name = f"{resource.kind.lower()}/web"
    rollout = ("rollout", "status", name, "-n", site.namespace)
    await site.only("alpha")
    await site.submit(service(resource, "web", 1))
    site.kubectl(*rollout, "--timeout=60s")
    rule = "object.spec.template.spec.containers.all(c, !c.image.endsWith(':latest'))"
    api = site.members["alpha"]
    async with policy_on_jobs(
        api, site.namespace, operation="UPDATE", expression=rule, message="no latest", resource=resource
    ):

        async def guarded() -> bool:
            image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "busybox:latest"}]
            try:
                path = resource.path(site.namespace, "web", None)
                await api.request(
                    "PATCH", path, body=orjson.dumps(image), content_type=JSON_PATCH, params={"dryRun": "All"}
                )
            except errors.Invalid:
                return True
            return False

        await until(guarded, what="the policy acts")
        site.kubectl("set", "image", name, "c=busybox:latest", "-n", site.namespace)
        # At once, and once the member has said no.
        assert "timed out" in site.kubectl(*rollout, "--timeout=2s", ok=False)
        on_host = await site.find(resource, "web")
        assert on_host is not None
        assert on_host["status"]["observedGeneration"] < on_host["metadata"]["generation"]
    site.kubectl("set", "image", name, "c=busybox:1.37", "-n", site.namespace)
    site.kubectl(*rollout, "--timeout=60s")


@pytest.mark.parametrize("resource", [DEPLOYMENTS, STATEFUL_SETS], ids=lambda each: each.kind)
async def test_one_that_is_held_or_asks_for_no_pods_says_so(site: Site, resource: ApiResource) -> None:
    """1. It runs. 2. It is held: it shows no pods. 3. It runs again. 4. It asks for none: it is done, as a new one is."""
    word = resource.kind.lower()
    rollout = ("rollout", "status", "-n", site.namespace, "--timeout=60s")
    await site.submit(service(resource, "web", 1))
    site.kubectl(*rollout, f"{word}/web")
    hold = ("annotate", f"{word}/web", "-n", site.namespace, "--overwrite")
    site.kubectl(*hold, f"{keys.HOLD}=true")

    async def pods() -> int:
        found = await site.find(resource, "web")
        return int(((found or {}).get("status") or {}).get("replicas") or 0)

    async def shows_none() -> bool:
        return await pods() == 0

    await until(shows_none, what="the host shows no pods of what is held")
    site.kubectl(*hold, f"{keys.HOLD}-")

    async def shows_one() -> bool:
        return await pods() == 1

    await until(shows_one, what="the host shows the pod of what was released")
    site.kubectl("scale", f"{word}/web", "--replicas=0", "-n", site.namespace)
    await site.submit(service(resource, "zero", 0))

    async def gone() -> bool:
        found = await site.find(resource, "web")
        status = (found or {}).get("status") or {}
        return found is not None and status.get("observedGeneration") == found["metadata"]["generation"]

    await until(gone, what="it has observed that it asks for no pods")
    assert await pods() == 0
    assert not any([await site.pods(member) for member in site.members])
    for name in ("web", "zero"):
        site.kubectl(*rollout, f"{word}/{name}")
        if resource == DEPLOYMENTS:
            site.kubectl("wait", "--for=condition=Available", f"{word}/{name}", "-n", site.namespace, "--timeout=5s")
    assert "collisionCount" not in ((await site.find(resource, "web")) or {})["status"]


async def test_a_job_that_others_keep_shows_no_pods_once_it_is_deleted(site: Site) -> None:
    keeps = {"finalizers": ["tests.example.com/stays"]}
    await site.submit(batch_job("kept", seconds=None, metadata=keeps))

    async def active() -> int:
        found = await site.find(BATCH_JOBS, "kept")
        return int(((found or {}).get("status") or {}).get("active") or 0)

    await until(active, what="it runs")
    await site.host.delete(BATCH_JOBS, "kept", site.namespace)

    async def idle() -> bool:
        return await active() == 0

    try:
        await until(idle, what="it shows no pods")
        assert not any([await site.pods(member) for member in site.members])
    finally:
        await site.host.merge_patch(BATCH_JOBS, "kept", {"metadata": {"finalizers": None}}, site.namespace)
