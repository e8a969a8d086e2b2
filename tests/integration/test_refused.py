"""What a member's API server or admission refuses, of a workload and of its pods: told, tried elsewhere, given up."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import orjson
import pytest

from atoll.kube import errors
from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CLUSTERS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SERVICES,
    ApiResource,
)
from atoll.model.conditions import condition
from tests.integration.federation import Json, Site, accepting, batch_job, job, until
from tests.integration.member_policies import policy_on_jobs

pytestmark = pytest.mark.integration


async def only(site: Site, *members: str) -> None:
    """Send what this test submits to these members."""
    spec = {
        "resourceSelectors": [{"apiVersion": each.api_version, "kind": each.kind} for each in (JOBS, BATCH_JOBS)],
        "placement": {"clusterAffinity": {"clusterNames": list(members)}},
    }
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**about, "metadata": {"name": "only", "namespace": site.namespace}, "spec": spec})


async def quota(site: Site, member: str, **hard: str) -> None:
    """A ResourceQuota of the test's namespace in that member."""
    api = site.members[member]
    with contextlib.suppress(errors.AlreadyExists):
        await api.create(NAMESPACES, accepting(site.namespace))
    metadata = {"name": "small", "namespace": site.namespace}
    await api.create(
        RESOURCE_QUOTAS,
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}},
    )
    # No controller here fills in what is used, without which nothing is let in or refused.
    status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    await api.merge_patch(RESOURCE_QUOTAS, "small", status, site.namespace, subresource="status")


async def decided(site: Site, name: str, reason: str) -> Json:
    """Wait until a line of the story of a job has this reason; gives the decision."""

    async def look() -> Json | None:
        binding = await site.find(BINDINGS, f"{name}-job")
        text = ((binding or {}).get("metadata") or {}).get("annotations", {}).get(keys.DECISION)
        decision: Json = orjson.loads(text) if text else {}
        return decision if any(line["reason"] == reason for line in decision.get("story") or ()) else None

    return await until(look, what=f"{name} is {reason}")


@pytest.mark.parametrize("kind", [BATCH_JOBS, JOBS], ids=lambda resource: resource.group)
async def test_pods_that_a_quota_of_the_member_refuses_send_the_workload_elsewhere(
    site: Site, kind: ApiResource
) -> None:
    """It is taken back with the server's words, and runs in the other member; the next one goes there at once."""
    await only(site, "alpha", "beta")
    # Beta has less left over, so it comes first.
    await quota(site, "beta", pods="1")

    def two_pods(name: str) -> Json:
        one = batch_job(name, parallelism=2, seconds=None)
        return one if kind is BATCH_JOBS else job(name, replicas=2, seconds=None)

    await site.submit(two_pods("first"))
    decision = await decided(site, "first", "RefusedByMember")
    line = next(line for line in decision["story"] if line["reason"] == "RefusedByMember")
    assert "exceeded quota: small" in line["text"]
    assert "beta" in line["text"]

    async def elsewhere() -> bool:
        binding = await site.find(BINDINGS, "first-job")
        names = [each["name"] for each in (binding or {}).get("spec", {}).get("clusters") or ()]
        conditions = ((binding or {}).get("status") or {}).get("conditions") or ()
        return names == ["alpha"] and any(c["type"] == "Bound" and c["status"] == "True" for c in conditions)

    await until(elsewhere, what="it runs in the other member")
    events = await site.host.list(EVENTS, site.namespace)
    told = [each for each in events if each["reason"] == "RefusedByMember"]
    assert any("exceeded quota" in each["note"] for each in told)
    assert {each["regarding"]["kind"] for each in told} == {"Job"}
    await site.submit(two_pods("second"))
    assert await site.where("second") == "alpha"
    binding = await site.find(BINDINGS, "second-job")
    assert binding is not None
    assert binding["metadata"]["annotations"][keys.EPOCH] == "1"


async def test_a_workload_that_the_member_itself_refuses_says_why(site: Site) -> None:
    """Its object is refused: the member allows no more of that kind."""
    await only(site, "topo")
    await quota(site, "topo", **{"count/jobs.batch": "0"})
    await site.submit(batch_job("denied", seconds=None))
    decision = await decided(site, "denied", "RefusedByMember")
    assert "exceeded quota" in orjson.dumps(decision).decode()

    async def told() -> bool:
        found = await site.find(BATCH_JOBS, "denied")
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return any("exceeded quota" in (each.get("message") or "") for each in conditions)

    await until(told, what="the workload's status says so")
    site.kubectl("delete", "job", "denied", "-n", site.namespace)


async def test_what_every_member_refuses_again_and_again_is_deactivated_until_its_user_acts(site: Site) -> None:
    """A PriorityClass that is nowhere: its pods can't be made; the class is made at last, and its user says retry."""
    await only(site, "topo")
    missing = f"gold-{site.namespace}"
    bad = job("bad", seconds=None)
    bad["spec"]["tasks"][0]["template"]["spec"]["priorityClassName"] = missing
    await site.submit(bad)
    decision = await decided(site, "bad", "RefusedByMember")
    assert f"no PriorityClass with name {missing} was found" in orjson.dumps(decision).decode()
    # Another tenant's equal shape is not kept out.
    await site.submit(job("good", seconds=None))
    await site.phase("good", "Running")

    async def given_up() -> Json | None:
        found = await site.find(BINDINGS, "bad-job")
        text = ((found or {}).get("metadata") or {}).get("annotations", {}).get(keys.DECISION)
        decision: Json = orjson.loads(text) if text else {}
        return decision if decision.get("reason") == "Deactivated" else None

    await until(given_up, what="it is deactivated")

    async def pending() -> bool:
        found = await site.find(JOBS, "bad")
        state = ((found or {}).get("status") or {}).get("state") or {}
        return state.get("reason") == "Deactivated" and missing in state.get("message", "")

    await until(pending, what="its status says so")
    value = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": missing}, "value": 7}
    await site.members["topo"].create(PRIORITY_CLASSES, value)
    site.kubectl("annotate", "vcjob", "bad", "atoll.sh/retry=now", "-n", site.namespace)
    await site.phase("bad", "Running")
    await site.host.delete(JOBS, "bad", site.namespace)
    await site.members["topo"].delete(PRIORITY_CLASSES, missing)


async def limit_range(site: Site, member: str) -> None:
    """Containers of the test's namespace may have a twentieth of a processor in that member."""
    most = {"limits": [{"type": "Container", "max": {"cpu": "50m"}}]}
    metadata = {"name": "small", "namespace": site.namespace}
    about = {"apiVersion": LIMIT_RANGES.api_version, "kind": LIMIT_RANGES.kind}
    await site.members[member].create(LIMIT_RANGES, {**about, "metadata": metadata, "spec": most})


async def pod_security(site: Site, member: str) -> None:
    """Pods of the test's namespace are restricted in that member."""
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await site.members[member].merge_patch(NAMESPACES, site.namespace, labels)


async def policy(site: Site, member: str) -> None:
    """Wait until the member answers Volcano Jobs of the test's namespace with 422, as its policy says."""

    async def acts() -> bool:
        tried = {**job("try"), "metadata": {"name": "try", "namespace": site.namespace}}
        try:
            await site.members[member].request(
                "POST", JOBS.path(site.namespace), body=orjson.dumps(tried), params={"dryRun": "All"}
            )
        except errors.ApiError as error:
            return error.code == 422
        return False

    await until(acts, what="the member refuses Jobs as invalid")


@pytest.mark.parametrize(
    ("refuse", "words"),
    [
        (limit_range, "maximum cpu usage per Container is 50m"),
        (pod_security, 'violates PodSecurity "restricted'),
        (policy, "jobs are run on Mondays"),
    ],
    ids=["a LimitRange", "Pod Security", "a policy that finds it invalid"],
)
async def test_the_members_own_words_reach_the_workload_on_the_host(
    site: Site, refuse: Callable[[Site, str], Awaitable[None]], words: str
) -> None:
    """Its story, its Events and its status have them."""
    await only(site, "beta")
    await site.members["beta"].create(NAMESPACES, accepting(site.namespace))
    async with contextlib.AsyncExitStack() as stack:
        if refuse is policy:
            beta = site.members["beta"]
            denied = policy_on_jobs(beta, site.namespace, operation="CREATE", expression="false", message=words)
            await stack.enter_async_context(denied)
        await refuse(site, "beta")
        obj = job("limited", cpu="100m", seconds=None)
        [container] = obj["spec"]["tasks"][0]["template"]["spec"]["containers"]
        container["resources"]["limits"] = {"cpu": "100m"}
        await site.submit(obj)
        decision = await decided(site, "limited", "RefusedByMember")
        line = next(line for line in decision["story"] if line["reason"] == "RefusedByMember")
        assert "beta" in line["text"]
        assert words in line["text"]

        async def told() -> bool:
            found = await site.find(JOBS, "limited")
            state = ((found or {}).get("status") or {}).get("state") or {}
            return words in (state.get("message") or "")

        await until(told, what="the status of the Job says so")

        async def event() -> bool:
            events = await site.host.list(EVENTS, site.namespace)
            return any(each["reason"] == "RefusedByMember" and words in each["note"] for each in events)

        await until(event, what="an Event says so")
        await site.host.delete(JOBS, "limited", site.namespace)


async def test_a_name_that_is_taken_in_every_member_is_refused_at_once_and_blames_none(site: Site) -> None:
    """1. Both members have Jobs of these names. 2. Three workloads are refused. 3. The names are free again: they run."""
    await only(site, "alpha", "beta")
    names = ["cf1", "cf2", "cf3"]
    for member in ("alpha", "beta"):
        with contextlib.suppress(errors.AlreadyExists):
            await site.members[member].create(NAMESPACES, accepting(site.namespace))
        for name in names:
            own = batch_job(name, seconds=None)
            own["metadata"]["namespace"] = site.namespace
            own["spec"]["suspend"] = True
            await site.members[member].create(BATCH_JOBS, own)
    for name in names:
        await site.submit(batch_job(name, seconds=None))

    async def refused_by_both(name: str) -> list[str]:
        decision = await decided(site, name, "RefusedByMember")
        lines = [line["text"] for line in decision["story"] if line["reason"] == "RefusedByMember"]
        return lines if len(lines) > 1 else []

    for name in names:
        first, second, *_ = await until(partial(refused_by_both, name), what=f"{name} is refused by both")
        assert f"Job {site.namespace}/{name} exists there and is not Atoll's" in first
        assert {"alpha" in first, "alpha" in second} == {True, False}
        decision = await decided(site, name, "RefusedByMember")
        assert "DeadlineExceeded" not in orjson.dumps(decision).decode()
    for member in ("alpha", "beta"):
        assert condition(await site.host.get(CLUSTERS, member), "TakesWork").get("status") != "False"
        for name in names:
            await site.members[member].delete(BATCH_JOBS, name, site.namespace)
    for name in names:
        # The pause of the second refusal ends at most a quarter of a minute later.
        await until(partial(site.where, name), what=f"{name} runs")
        await site.host.delete(BATCH_JOBS, name, site.namespace)


async def test_a_pod_and_a_service_of_another_owner_are_named(site: Site) -> None:
    await only(site, "topo")
    api = site.members["topo"]
    with contextlib.suppress(errors.AlreadyExists):
        await api.create(NAMESPACES, accepting(site.namespace))
    container = {"name": "c", "image": "busybox:1.36"}
    about = {"name": "pc-w-0", "namespace": site.namespace}
    await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": {"containers": [container]}})
    service = {"name": "sc", "namespace": site.namespace}
    spec = {"clusterIP": "None", "selector": {"app": "x"}}
    await api.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": service, "spec": spec})
    taken = job("pc", replicas=2, seconds=None)
    taken["spec"]["tasks"][0]["name"] = "w"
    await site.submit(taken)
    await site.submit(job("sc", seconds=None, plugins={"svc": []}))
    for name, which in (("pc", "Pod {}/pc-w-0"), ("sc", "Service {}/sc")):
        decision = await decided(site, name, "RefusedByMember")
        [line, *_] = [line["text"] for line in decision["story"] if line["reason"] == "RefusedByMember"]
        assert f"{which.format(site.namespace)} exists and is not of this Job" in line
        assert "DeadlineExceeded" not in orjson.dumps(decision).decode()
        await site.host.delete(JOBS, name, site.namespace)
    await api.delete(PODS, "pc-w-0", site.namespace)


async def test_pods_of_a_deployment_that_a_quota_of_the_member_refuses_are_told(site: Site) -> None:
    """Its ReplicaSet is refused them, and hears of it by an Event."""
    spec = {
        "resourceSelectors": [{"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind}],
        "placement": {"clusterAffinity": {"clusterNames": ["topo"]}},
    }
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**about, "metadata": {"name": "apps", "namespace": site.namespace}, "spec": spec})
    await quota(site, "topo", pods="1")
    container = {"name": "c", "image": "busybox:1.36", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    await site.submit(web)

    async def refused() -> bool:
        found = await site.find(BINDINGS, "web-deployment")
        text = ((found or {}).get("metadata") or {}).get("annotations", {}).get(keys.DECISION) or ""
        return "RefusedByMember" in text and "exceeded quota: small" in text

    await until(refused, what="the quota's words are on the binding")
    await site.host.delete(DEPLOYMENTS, "web", site.namespace)
