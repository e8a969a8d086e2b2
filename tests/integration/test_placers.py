"""Members in which another scheduler binds: kube-scheduler places the pods that Atoll has planned."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from atoll.install.placing import mark_nodes
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.layout import FederationConfig, Member, NodeGroup
from atoll.model import keys, quantity
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CLAIMS,
    CLUSTERS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    WORKS,
)
from tests.integration.federation import Json, Site, accepting, batch_job, job, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

CPUS = 8


def plain(name: str, nodes: int, **more: Any) -> Member:
    """A member of nodes with 8 CPUs each, where kube-scheduler places."""
    group = NodeGroup(count=nodes, prefix=f"{name}-n", allocatable={"cpu": str(CPUS), "memory": "32Gi", "pods": "110"})
    return Member(name=name, nodes=[group], **{"placer": "kube-scheduler", "strict_kubelets": True, **more})


LAYOUT = FederationConfig(members=[plain("plain", 3), plain("spare", 2)])
VOLCANO = {"scheduler": "vc-scheduler", "controllers": "vc-controller-manager"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def delegated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    quick = {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION, "agent": QUICK_ELECTION}
    async with AtollFederation(LAYOUT, tmp_path_factory.mktemp("placers"), flags=quick) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def here(delegated: AtollFederation) -> AsyncIterator[Site]:
    host = await delegated.host.connect()
    members: dict[str, ApiServer] = {name: await each.connect() for name, each in delegated.members.items()}
    made = Site(delegated, host, members)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
        await asyncio.gather(host.close(), *(api.close() for api in members.values()))


def foreign(
    name: str,
    namespace: str,
    *,
    cpu: str = "1",
    priority: str = "",
    seconds: float | None = None,
    notes: dict[str, str] | None = None,
) -> Json:
    """A pod that its user made in the member."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    spec: Json = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}
    annotations = {**(notes or {}), **({keys.RUN_TIME: f"{int(seconds * 1000)}ms"} if seconds else {})}
    if priority:
        spec["priorityClassName"] = priority
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": spec,
    }


async def only(site: Site, member: str) -> None:
    """Send what this test submits to that member."""
    spec = {
        "resourceSelectors": [{"apiVersion": each.api_version, "kind": each.kind} for each in (JOBS, BATCH_JOBS)],
        "placement": {"clusterAffinity": {"clusterNames": [member]}},
    }
    metadata = {"name": "only", "namespace": site.namespace}
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**about, "metadata": metadata, "spec": spec})


@contextlib.asynccontextmanager
async def beside(site: Site, member: str) -> AsyncIterator[ApiServer]:
    """The member's API server, with the test's namespace; pods that the test makes there are removed."""
    api = site.members[member]
    with contextlib.suppress(errors.AlreadyExists):
        await api.create(NAMESPACES, accepting(site.namespace))

    async def has_account() -> bool:
        return any(each["metadata"]["name"] == "default" for each in await api.list(SERVICE_ACCOUNTS, site.namespace))

    await until(has_account, what="the namespace is ready for pods")
    try:
        yield api
    finally:
        for pod in await api.list(PODS, site.namespace):
            if not pod["metadata"].get("ownerReferences"):
                await api.delete(PODS, pod["metadata"]["name"], site.namespace)


@contextlib.asynccontextmanager
async def without(site: Site, program: str) -> AsyncIterator[None]:
    """A process of the federation is stopped meanwhile, and starts anew, so that it sees everything at once."""
    process = next(each for each in site.federation.federation.processes.processes if each.spec.name == program)
    await process.stop()
    try:
        yield
    finally:
        await process.start()
        await process.wait_ready()


async def used(api: ApiServer) -> Counter[str]:
    """Node -> milli-CPU that its pods request."""
    found: Counter[str] = Counter()
    for pod in await api.list(PODS):
        if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            for container in pod["spec"]["containers"]:
                requests = container["resources"].get("requests") or {}
                found[pod["spec"]["nodeName"]] += quantity.ceil_units("cpu", requests.get("cpu", "0"))
    return found


async def running(site: Site, member: str, name: str) -> list[Json]:
    """Pods of a Job that run there."""
    pods = await site.pods(member)
    return [pod for pod in pods if pod["metadata"]["name"].startswith(name) and pod["status"]["phase"] == "Running"]


async def placer_of(site: Site, member: str) -> tuple[str, str]:
    """(reason, message) of condition Placer."""
    cluster = await site.host.get(CLUSTERS, member)
    found = [each for each in cluster["status"]["conditions"] if each["type"] == "Placer"]
    return (found[0]["reason"], found[0]["message"]) if found else ("", "")


async def test_a_gang_is_planned_here_and_bound_by_kube_scheduler(here: Site) -> None:
    """1. A Volcano Job and a batch Job come. 2. All their pods run, bound by kube-scheduler where they were planned."""
    await only(here, "plain")
    await here.submit(job("gang", replicas=6, cpu="2", seconds=None))
    await here.submit(batch_job("batch", parallelism=2, cpu="2", seconds=None))
    await here.phase("gang", "Running")

    async def both_run() -> bool:
        return len(await running(here, "plain", "gang")) == 6 and len(await running(here, "plain", "batch")) == 2

    await until(both_run, what="all pods run")
    for pod in await here.pods("plain"):
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert pod["spec"]["nodeName"] == pod["metadata"]["annotations"][keys.PLANNED_NODE]
        assert not pod["spec"].get("schedulingGates")
    bindings = [e for e in here.audit("plain") if e["objectRef"].get("subresource") == "binding"]
    assert {event["user"]["username"] for event in bindings} == {"admin"}
    assert max((await used(here.members["plain"])).values()) <= CPUS * 1000


async def test_a_deployment_is_one_gang_whose_replica_sets_pods_kube_scheduler_binds_and_grows(here: Site) -> None:
    """1. It comes with three pods. 2. They are planned and bound. 3. A fourth is asked for, and comes."""
    await here.only("plain")
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    about = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind}
    await here.submit({**about, "metadata": {"name": "web"}, "spec": spec})

    async def run(count: int) -> bool:
        return len(await running(here, "plain", "web")) == count

    await until(lambda: run(3), what="three pods run")
    for pod in await here.pods("plain"):
        assert pod["spec"]["nodeName"] == pod["metadata"]["annotations"][keys.PLANNED_NODE]
    assert [each["spec"]["minMember"] for each in await here.members["plain"].list(POD_GROUPS, here.namespace)] == [3]
    here.kubectl("scale", "deployment/web", "--replicas=4", "-n", here.namespace)
    await until(lambda: run(4), what="four pods run")


async def test_claims_are_waited_for_at_the_gate_and_kube_scheduler_has_their_volumes_made(here: Site) -> None:
    """1. Its claim is missing: no gate is lifted. 2. It comes, of the class that waits for its first pod."""
    await only(here, "plain")
    made = job("gang", seconds=None)
    spec = made["spec"]["tasks"][0]["template"]["spec"]
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await here.submit(made)

    async def told() -> bool:
        status = ((await here.find(BINDINGS, "gang-job")) or {}).get("status") or {}
        placements = [
            (each.get("status") or {}).get("placement") or {} for each in status.get("aggregatedStatus") or ()
        ]
        return any('persistentvolumeclaim "data" not found' in each.get("waiting", "") for each in placements)

    await until(told, what="the host knows why")
    [pod] = await here.pods("plain")
    assert [gate["name"] for gate in pod["spec"]["schedulingGates"]] == [keys.GANG_GATE]
    resources = {"requests": {"storage": "1Gi"}}
    claim: Json = {"apiVersion": "v1", "kind": CLAIMS.kind, "metadata": {"name": "data", "namespace": here.namespace}}
    claim["spec"] = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    await here.members["plain"].create(CLAIMS, claim)
    await here.phase("gang", "Running")
    [found] = await here.members["plain"].list(CLAIMS, here.namespace)
    assert found["status"]["phase"] == "Bound"


async def test_no_node_is_overbooked_while_bare_pods_and_gangs_arrive_together(here: Site) -> None:
    """1. Bare pods come all the time, and gangs beside them. 2. No node ever has more than it can hold. 3. All gangs
    run to their end.
    """
    await only(here, "plain")
    async with beside(here, "plain") as api:
        most: Counter[str] = Counter()

        async def watch() -> None:
            while True:
                most.update({name: max(0, amount - most[name]) for name, amount in (await used(api)).items()})
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        for number in range(12):
            await api.create(PODS, foreign(f"bare-{number}", here.namespace, cpu=str(1 + number % 3), seconds=1.5))
            if number % 3 == 0:
                await here.submit(job(f"gang-{number}", replicas=3, cpu="3", seconds=1.0))
            await asyncio.sleep(0.1)
        for number in range(0, 12, 3):
            await here.phase(f"gang-{number}", "Completed")
        watching.cancel()
        assert most
        assert max(most.values()) <= CPUS * 1000, most


@pytest.mark.long
async def test_a_gang_that_loses_its_nodes_is_evicted_and_runs_elsewhere(here: Site) -> None:
    """1. A gang is planned; kube-scheduler is slow. 2. Pods of a higher priority come and are bound first. 3. The gang
    says why it waits, in kube-scheduler's words. 4. It is taken back whole, and runs in the other member.
    """
    priority: Json = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    name = f"high-{here.namespace}"
    members = {"plain": 3, "spare": 2}
    for api in here.members.values():
        await api.create(PRIORITY_CLASSES, {**priority, "metadata": {"name": name}})
    async with contextlib.AsyncExitStack() as stack:
        for member in members:
            await stack.enter_async_context(without(here, f"{member}-scheduler"))
        await here.submit(job("loser", replicas=2, cpu="5", seconds=None))
        first = await here.where("loser")

        async def lifted() -> bool:
            pods = await here.pods(first)
            return len(pods) == 2 and all(keys.PLANNED_NODE in pod["metadata"]["annotations"] for pod in pods)

        await until(lifted, what="the gang's gates are lifted")
        async with beside(here, first) as api:
            for number in range(members[first]):
                await api.create(PODS, foreign(f"high-{number}", here.namespace, cpu="7", priority=name))
            await stack.aclose()

            async def says_why() -> str:
                for work in await here.host.list(WORKS, keys.execution_namespace(first)):
                    for item in (work.get("status") or {}).get("manifestStatuses") or ():
                        waiting = item["status"].get("placement", {}).get("waiting", "")
                        if "default-scheduler has not bound" in waiting:
                            return str(waiting)
                return ""

            assert "Insufficient cpu" in await until(says_why, what="the member says why the gang waits")

            async def elsewhere() -> bool:
                binding = await here.find(BINDINGS, "loser-job")
                clusters = (binding or {}).get("spec", {}).get("clusters") or [{"name": first}]
                return bool(clusters[0]["name"] != first)

            await until(elsewhere, what="it is dispatched to the other member")
            await here.phase("loser", "Running")
            assert not await running(here, first, "loser")
    for api in here.members.values():
        await api.delete(PRIORITY_CLASSES, name)


@pytest.mark.long
async def test_a_gang_that_is_pushed_out_below_its_minimum_is_evicted_and_runs_elsewhere(here: Site) -> None:
    """1. A gang runs. 2. Pods of a higher priority push some of it out, and fill the member. 3. What is left of it is
    taken back in time, and it runs in the other member.
    """
    high: Json = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    name, members = f"push-{here.namespace}", {"plain": 3, "spare": 2}
    for api in here.members.values():
        await api.create(PRIORITY_CLASSES, {**high, "metadata": {"name": name}})
    await here.submit(job("pushed", replicas=2, cpu="5", seconds=None))
    first = await here.where("pushed")
    await here.phase("pushed", "Running")
    async with beside(here, first) as api:
        for number in range(members[first]):
            await api.create(PODS, foreign(f"push-{number}", here.namespace, cpu="7", priority=name))

        async def elsewhere() -> bool:
            clusters = ((await here.find(BINDINGS, "pushed-job")) or {})["spec"].get("clusters") or [{"name": first}]
            return bool(clusters[0]["name"] != first)

        await until(elsewhere, what="it is dispatched to the other member")
        await here.phase("pushed", "Running")
        binding = await here.find(BINDINGS, "pushed-job")
        assert binding is not None
        assert "lost their nodes" in binding["metadata"]["annotations"][keys.DECISION]
    for api in here.members.values():
        await api.delete(PRIORITY_CLASSES, name)


@contextlib.asynccontextmanager
async def own_placing(site: Site, nodes: str) -> AsyncIterator[None]:
    """Atoll places in member plain meanwhile: on the nodes with these labels, tainted as `join --nodes` does; or on all."""
    notes: dict[str, str | None] = {keys.PLACER: "atoll", keys.NODES: nodes or None}
    await mark_nodes(site.members["plain"], "plain", nodes, print)
    await site.host.merge_patch(CLUSTERS, "plain", {"metadata": {"annotations": notes}})
    try:
        await becomes(site, "Atoll")
        yield
    finally:
        await mark_nodes(site.members["plain"], "plain", "", print)
        notes = {keys.PLACER: "kube-scheduler", keys.NODES: None}
        await site.host.merge_patch(CLUSTERS, "plain", {"metadata": {"annotations": notes}})
        await becomes(site, "KubeScheduler")


async def test_own_nodes_take_gangs_only_and_the_others_everybody_elses_pods(here: Site) -> None:
    """1. Two of three nodes become Atoll's. 2. Bare pods and gangs come together. 3. Each stays on its own nodes, and
    none has more than it can hold.
    """
    await only(here, "plain")
    async with beside(here, "plain") as api:
        for name in ("plain-n0", "plain-n1"):
            await api.merge_patch(NODES, name, {"metadata": {"labels": {"pool": "batch"}}})
        async with own_placing(here, "pool=batch"):
            for number in range(6):
                await api.create(PODS, foreign(f"bare-{number}", here.namespace, cpu="2"))
            await here.submit(job("gang", replicas=4, cpu="4", seconds=None))
            await here.phase("gang", "Running")

            async def settled() -> bool:
                pods = [each for each in await here.pods("plain") if each["metadata"]["name"].startswith("bare-")]
                said = [each["status"].get("conditions") or [{}] for each in pods]
                refused = [each for each in said if each[0].get("reason") == "Unschedulable"]
                return len(refused) == 2 and len([each for each in pods if each["spec"].get("nodeName")]) == 4

            await until(settled, what="four bare pods have a node and two find none")
            nodes: dict[str, set[str]] = {"gang": set(), "bare": set()}
            for pod in await here.pods("plain"):
                nodes[pod["metadata"]["name"].partition("-")[0]].add(pod["spec"].get("nodeName", ""))
            assert nodes == {"gang": {"plain-n0", "plain-n1"}, "bare": {"plain-n2", ""}}
            assert max((await used(api)).values()) <= CPUS * 1000
            await here.host.delete(JOBS, "gang", here.namespace)
        for name in ("plain-n0", "plain-n1"):
            await api.merge_patch(NODES, name, {"metadata": {"labels": {"pool": None}}})

        async def placed() -> bool:
            return all(each["spec"].get("nodeName") for each in await here.pods("plain"))

        await until(placed, what="the nodes are open to all pods again")


async def test_room_that_kube_scheduler_makes_is_left_to_the_pod_that_it_is_made_for(here: Site) -> None:
    """1. All nodes are full. 2. kube-scheduler evicts a pod for one of a higher priority; it takes long to go. 3. A pod
    waits for our scheduler. 4. The victim goes while kube-scheduler is slow: a pod that fits beside the preemptor gets
    the rest, ours that does not waits on. 5. The preemptor gets its node.
    """
    name = f"above-{here.namespace}"
    about = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, "metadata": {"name": name}}
    finalizer = {"metadata": {"finalizers": ["tests.example.com/stays"]}}
    full = [f"full-{number}" for number in range(3)]
    async with beside(here, "plain") as api, own_placing(here, ""):
        await api.create(PRIORITY_CLASSES, {**about, "value": 1000})
        try:
            for each in full:
                pod = foreign(each, here.namespace, cpu="8")
                pod["metadata"] |= finalizer["metadata"]
                await api.create(PODS, pod)

            async def bound(*names: str) -> bool:
                return all([(await api.get(PODS, each, here.namespace))["spec"].get("nodeName") for each in names])

            await until(lambda: bound(*full), what="all nodes are full")
            await api.create(PODS, foreign("above", here.namespace, cpu="6", priority=name))

            async def nominated() -> str:
                pod = await api.get(PODS, "above", here.namespace)
                return str(pod["status"].get("nominatedNodeName") or "")

            node = await until(nominated, what="a node is nominated")
            ours = foreign("ours", here.namespace, cpu="5")
            ours["spec"]["schedulerName"] = keys.SCHEDULER_NAME
            await api.create(PODS, ours)

            async def waits() -> bool:
                conditions = (await api.get(PODS, "ours", here.namespace))["status"].get("conditions") or ()
                return any(each.get("reason") == "Unschedulable" for each in conditions)

            await until(waits, what="our pod waits")
            (victim,) = [
                each for each in full if (await api.get(PODS, each, here.namespace))["spec"]["nodeName"] == node
            ]
            async with without(here, "plain-scheduler"):
                await api.merge_patch(PODS, victim, {"metadata": {"finalizers": None}}, here.namespace)
                small = foreign("small", here.namespace, cpu="2")
                small["spec"]["schedulerName"] = keys.SCHEDULER_NAME
                await api.create(PODS, small)
                await until(lambda: bound("small"), what="a pod of ours has what is left beside the preemptor")
                assert not await bound("ours")
            await until(lambda: bound("above"), what="the preemptor has the node that was nominated")
            assert not await bound("ours")
            assert max((await used(api)).values()) <= CPUS * 1000
        finally:
            for each in full:
                with contextlib.suppress(errors.NotFound):
                    await api.merge_patch(PODS, each, {"metadata": {"finalizers": None}}, here.namespace)
            await api.delete(PRIORITY_CLASSES, name)


async def test_a_gang_that_is_held_leaves_a_member_of_kube_scheduler_and_ends_when_it_is_released(here: Site) -> None:
    await only(here, "plain")
    await here.submit(job("held", replicas=3, cpu="3", seconds=3))

    async def three() -> bool:
        return len(await running(here, "plain", "held")) == 3

    await until(three, what="it runs")
    here.kubectl("annotate", "vcjob", "held", f"{keys.HOLD}=true", "-n", here.namespace)

    async def nothing() -> bool:
        return not await here.pods("plain") and await here.find(JOBS, "held", "plain") is None

    await until(nothing, what="it has left")
    here.kubectl("annotate", "vcjob", "held", f"{keys.HOLD}-", "-n", here.namespace)
    await here.phase("held", "Completed")


async def test_a_pod_that_its_kubelet_rejects_is_made_again_and_is_no_failure(here: Site) -> None:
    """1. A node's kubelet rejects what comes. 2. The gang's pod there is made again, until it starts. 3. Nothing of
    that counts: no failed pod, no retry.
    """
    await only(here, "plain")
    api = here.members["plain"]
    await api.merge_patch(NODES, "plain-n0", {"metadata": {"annotations": {"atoll.sh/fail": "OutOfcpu"}}})
    try:
        policies = [{"event": "PodFailed", "action": "TerminateJob"}]
        await here.submit(job("rejected", replicas=3, cpu="5", seconds=None, policies=policies))

        async def remade() -> bool:
            events = here.audit("plain")
            made = [e for e in events if e["verb"] == "create" and e["objectRef"]["resource"] == "pods"]
            return len([e for e in made if not e["objectRef"].get("subresource")]) >= 5

        await until(remade, what="the pod is made again")
    finally:
        await api.merge_patch(NODES, "plain-n0", {"metadata": {"annotations": {"atoll.sh/fail": None}}})

    async def all_run() -> bool:
        return len(await running(here, "plain", "rejected")) == 3

    await until(all_run, what="the whole gang runs")
    status = (await here.phase("rejected", "Running"))["status"]
    assert (status.get("failed", 0), status.get("retryCount", 0)) == (0, 0)


def becomes(site: Site, reason: str, why: str = "") -> Any:
    async def look() -> bool:
        found = await placer_of(site, "plain")
        return found[0] == reason and why in found[1]

    return until(look, what=f"the placer is {reason}")


async def test_what_volcano_runs_is_delivered_for_it_and_reported_in_its_words(here: Site) -> None:
    """The test does what Volcano does: its controllers copy the template's annotations, and its queue must exist.

    1. A Job is delivered for Volcano's scheduler and queue; its dispatch is on the pods' template. 2. Volcano says why the
    gang waits: the host hears it. 3. Volcano binds and runs the pods: the gang is bound and runs.
    """
    await only(here, "plain")
    async with beside(here, "plain") as api:
        for part, image in VOLCANO.items():
            await api.create(DEPLOYMENTS, deployment(f"batch-{part}", here.namespace, image))
        await here.host.merge_patch(CLUSTERS, "plain", {"metadata": {"annotations": {keys.PLACER: "auto"}}})
        await becomes(here, "Volcano")
        await here.submit(job("theirs", replicas=2, seconds=None))

        async def delivered() -> Json | None:
            return await here.find(JOBS, "theirs", "plain")

        there = await until(delivered, what="the Job is delivered")
        task = there["spec"]["tasks"][0]
        assert (there["spec"]["schedulerName"], there["spec"]["queue"]) == ("volcano", "default")
        identity = {key: there["metadata"]["annotations"][key] for key in (keys.BINDING_UID, keys.EPOCH)}
        assert identity.items() <= task["template"]["metadata"]["annotations"].items()
        owner = {"apiVersion": JOBS.api_version, "kind": "Job", "name": "theirs", "uid": there["metadata"]["uid"]}
        about = {"namespace": here.namespace, "ownerReferences": [{**owner, "controller": True}]}
        group = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "spec": {"minMember": 2}}
        await api.create(POD_GROUPS, {**group, "metadata": {**about, "name": "pg", "annotations": identity}})
        waits = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "2/2 tasks wait"}
        await api.merge_patch(POD_GROUPS, "pg", {"status": {"phase": "Inqueue", "conditions": [waits]}}, here.namespace)
        names = [f"theirs-worker-{index}" for index in range(2)]
        for name in names:
            notes = {**task["template"]["metadata"]["annotations"], keys.GROUP_NAME: "pg", keys.TASK_SPEC: "worker"}
            metadata = {**about, "name": name, "annotations": notes}
            spec = {**task["template"]["spec"], "terminationGracePeriodSeconds": 0}
            await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

        async def says_why() -> bool:
            [work] = await here.host.list(WORKS, keys.execution_namespace("plain"))
            items: list[Json] = (work.get("status") or {}).get("manifestStatuses") or [{}]
            waiting = ((items[0].get("status") or {}).get("placement") or {}).get("waiting", "")
            return bool(waiting == "2/2 tasks wait")

        await until(says_why, what="the host hears Volcano's reason")
        for name in names:
            target = {"apiVersion": "v1", "kind": "Node", "name": "plain-n1"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await api.create_in(PODS, name, here.namespace, "binding", binding)
        status = {"state": {"phase": "Running"}, "minAvailable": 2, "running": 2}
        await api.merge_patch(JOBS, "theirs", {"status": status}, here.namespace, subresource="status")
        await here.phase("theirs", "Running")

        async def bound() -> bool:
            found = await here.find(BINDINGS, "theirs-job")
            conditions = ((found or {}).get("status") or {}).get("conditions") or ()
            return any(each["type"] == "Bound" and each["status"] == "True" for each in conditions)

        await until(bound, what="the gang is bound")
        for part in VOLCANO:
            await api.delete(DEPLOYMENTS, f"batch-{part}", here.namespace)
    await here.host.merge_patch(CLUSTERS, "plain", {"metadata": {"annotations": {keys.PLACER: "kube-scheduler"}}})
    await becomes(here, "KubeScheduler")


async def test_kueue_gets_jobs_suspended_in_its_queue_and_suspend_is_its_own_from_then_on(here: Site) -> None:
    """The test does what Kueue does: it lifts the suspension, takes it back, and lifts it again.

    1. A batch Job is delivered suspended, with the LocalQueue's label. 2. Whatever becomes of suspend there stays so.
    3. Its pods run: it is bound. 4. A Volcano Job is not sent there, and says why.
    """
    await only(here, "plain")
    notes: dict[str, str | None] = {keys.PLACER: "kueue", keys.MEMBER_QUEUE: "team"}
    await here.host.merge_patch(CLUSTERS, "plain", {"metadata": {"annotations": notes}})
    await becomes(here, "Kueue")
    try:
        await here.submit(batch_job("admitted", parallelism=2, seconds=None))

        async def delivered() -> Json | None:
            return await here.find(BATCH_JOBS, "admitted", "plain")

        there = await until(delivered, what="the Job is delivered")
        assert there["spec"]["suspend"] is True
        assert there["metadata"]["labels"][keys.KUEUE_QUEUE_LABEL] == "team"
        assert there["spec"]["template"]["spec"]["schedulerName"] == "default-scheduler"
        for suspend in (False, True, False):
            patch = {"spec": {"suspend": suspend}}
            await here.members["plain"].merge_patch(BATCH_JOBS, "admitted", patch, here.namespace)

        async def bound() -> bool:
            found = await here.find(BINDINGS, "admitted-job")
            conditions = ((found or {}).get("status") or {}).get("conditions") or ()
            return any(each["type"] == "Bound" and each["status"] == "True" for each in conditions)

        await until(bound, what="its pods are bound")
        agent = [e for e in here.audit("plain") if "atoll-agent" in e["user"]["username"]]
        jobs = [
            e["verb"]
            for e in agent
            if (e["objectRef"]["resource"], e["objectRef"].get("apiGroup")) == ("jobs", "batch")
        ]
        assert "patch" not in jobs
        await here.submit(job("unknown-there", seconds=None))

        async def says_why() -> str:
            found = await here.find(BINDINGS, "unknown-there-job")
            for each in ((found or {}).get("status") or {}).get("conditions") or ():
                if each["type"] == "FullyApplied" and each["status"] == "False":
                    return str(each["message"])
            return ""

        assert "does not know Volcano Jobs" in await until(says_why, what="the Volcano Job says why it is not there")
    finally:
        notes = {keys.PLACER: "kube-scheduler", keys.MEMBER_QUEUE: None}
        await here.host.merge_patch(CLUSTERS, "plain", {"metadata": {"annotations": notes}})
    await becomes(here, "KubeScheduler")


async def test_volcano_is_known_whatever_it_is_called_and_its_pods_are_its_own(here: Site) -> None:
    """1. Volcano comes, under a name of its own. 2. The placer is Volcano, our job controller rests, and others' pods
    and PodGroups are not written. 3. It goes, and the Job there gets its pods.
    """
    await here.host.merge_patch(CLUSTERS, "plain", {"metadata": {"annotations": {keys.PLACER: "auto"}}})

    try:
        await becomes(here, "KubeScheduler", "detected")
        async with beside(here, "plain") as api:
            for part, image in VOLCANO.items():
                await api.create(DEPLOYMENTS, deployment(f"team-batch-{part}", here.namespace, image))
            await becomes(here, "Volcano")
            assert f"{here.namespace}/team-batch-scheduler" in (await placer_of(here, "plain"))[1]
            notes = {keys.GROUP_NAME: "theirs"}
            group = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind}
            await api.create(
                POD_GROUPS,
                {**group, "metadata": {"name": "theirs", "namespace": here.namespace}, "spec": {"minMember": 1}},
            )
            theirs = foreign("theirs", here.namespace, notes=notes)
            theirs["spec"]["schedulerName"] = "volcano"
            await api.create(PODS, theirs)
            direct = job("direct", seconds=None, schedulerName="volcano", minAvailable=1)
            direct["metadata"]["namespace"] = here.namespace
            await api.create(JOBS, direct)
            # Something of ours that comes later is through, so all of theirs was looked at.
            ours = foreign("ours", here.namespace)
            ours["spec"]["schedulerName"] = "atoll"
            await api.create(PODS, ours)

            async def bound(name: str) -> bool:
                return bool((await api.get(PODS, name, here.namespace))["spec"].get("nodeName"))

            await until(lambda: bound("ours"), what="our own pod is placed")
            assert not await bound("theirs")
            agent = [e for e in here.audit("plain") if "atoll-agent" in e["user"]["username"]]
            written = {(e["objectRef"]["resource"], e["objectRef"].get("name", "")) for e in agent}
            assert {name for _, name in written} & {"theirs", "direct", "direct-worker-0"} == set()
            for part in VOLCANO:
                await api.delete(DEPLOYMENTS, f"team-batch-{part}", here.namespace)
            await becomes(here, "KubeScheduler", "detected")
            await until(lambda: bound("direct-worker-0"), what="the Job's pod is made and placed here")
            await api.delete(JOBS, "direct", here.namespace)
            await api.delete(POD_GROUPS, "theirs", here.namespace)
    finally:
        await here.host.merge_patch(CLUSTERS, "plain", {"metadata": {"annotations": {keys.PLACER: "kube-scheduler"}}})
    await becomes(here, "KubeScheduler", "set by annotation")
    table = here.kubectl("get", "clusters", "plain")
    assert "PLACER" in table
    assert "KubeScheduler" in table


def deployment(name: str, namespace: str, image: str) -> Json:
    """One that runs this program."""
    labels = {"team": name}
    container = {"name": "c", "image": f"registry.example.com/mirror/{image}:v9"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
