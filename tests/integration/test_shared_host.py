"""A cluster that runs work of its own as the host: all of it goes on in namespaces that opt in, either way.

The host is a whole cluster: all of Kubernetes' controllers, a scheduler, nodes; a Deployment, a StatefulSet, an HPA,
a CronJob and an operator. Nothing of it runs for the tests alone but the operator and the kubelets.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local import cluster
from atoll.local.atoll_federation import QUICK_ELECTION, Atoll
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig, Kubernetes
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec
from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CRON_JOBS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    PODS,
    STATEFUL_SETS,
    ApiResource,
)
from tests.integration.federation import Json, batch_job, member, until
from tests.integration.foreign_crds import bring, owner

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]

SCALERS = ApiResource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
DATABASES = ApiResource("db.example.com", "v1", "databases", "Database")
OPERATOR = "system:serviceaccount:databases:operator"
MINUTES = 240.0
"""Seconds in which a CronJob of each minute has made its Job, and that has run."""


@dataclass
class Host:
    """The cluster, its administrator's client, and Atoll on it."""

    handle: cluster.ClusterHandle
    api: ApiServer
    member: ApiServer
    atoll: Atoll
    older: frozenset[str]
    """Jobs that were there when the namespaces opted in."""

    def kubectl(self, *arguments: str) -> str:
        """Run plain kubectl; all that it says, whether it fails or not."""
        command = [str(ensure(report=lambda _: None).kubectl), f"--kubeconfig={self.handle.kubeconfig}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    async def reviews(self) -> float:
        """How many reviews the webhook has answered."""
        url = self.atoll.processes["atoll-webhook"].process.spec.ready_url
        assert url is not None
        async with ClientSession() as client, client.get(url.replace("/readyz", "/metrics")) as answer:
            lines = (await answer.text()).splitlines()
        found = [each for each in lines if each.startswith("atoll_webhook_review_seconds_count")]
        return sum(float(each.rsplit(" ", 1)[1]) for each in found)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    own = member("own", 2, tree=False).model_copy(update={"placer": "kube-scheduler"})
    config = FederationConfig(members=[own, member("alpha", 2, tree=False)])
    binaries, directory = ensure(), tmp_path_factory.mktemp("federation")
    async with Federation(config, directory=directory, binaries=binaries) as federation:
        await federation.populate()
        # The cluster that was made as a member is the host.
        federation.host = handle = federation.members.pop("own")
        federation.config = config.model_copy(update={"members": config.members[1:]})
        await federation.start_processes([_autoscaler(federation, handle)])
        async with await handle.connect() as api, await federation.members["alpha"].connect() as alpha:
            await bring([api], [DATABASES])
            await api.create(DEPLOYMENTS, _app(DEPLOYMENTS, "dns", "kube-system"))
            await _running(api, "kube-system", "dns", 1)
            for way in ("true", "labelled"):
                await _live_in(api, f"team-{way}")
            quick = {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION, "agent": QUICK_ELECTION}
            atoll = Atoll(federation, flags=quick)
            await atoll.start()
            try:
                for way in ("true", "labelled"):
                    labels = {keys.ENABLED: way}
                    await api.merge_patch(NAMESPACES, f"team-{way}", {"metadata": {"labels": labels}})
                older = frozenset(each["metadata"]["uid"] for each in await api.list(BATCH_JOBS))
                yield Host(handle, api, alpha, atoll, older)
            finally:
                await atoll.stop()


def _autoscaler(federation: Federation, handle: cluster.ClusterHandle) -> ProcessSpec:
    """The one controller that members go without."""
    address = str(urlsplit(handle.url).hostname)
    spec = cluster.controller_manager(
        ensure(), handle, federation.keys, free_ports(1, address)[0], Kubernetes(),
        ["horizontal-pod-autoscaler-controller"], ["--horizontal-pod-autoscaler-sync-period=1s"],
    )  # fmt: skip
    return replace(spec, name="own-autoscaler")


def _app(resource: ApiResource, name: str, namespace: str, labels: Json | None = None, **spec: object) -> Json:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template, **spec}
    if resource is STATEFUL_SETS:
        spec["serviceName"] = name
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _cron(namespace: str) -> Json:
    spec = batch_job("x")["spec"]
    about = {"apiVersion": CRON_JOBS.api_version, "kind": CRON_JOBS.kind}
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    return {**about, "metadata": {"name": "nightly", "namespace": namespace}, "spec": spec}


async def _live_in(api: ApiServer, namespace: str) -> None:
    """What the cluster runs in a namespace before Atoll comes."""
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await api.create(DEPLOYMENTS, _app(DEPLOYMENTS, "web", namespace, replicas=2))
    await api.create(STATEFUL_SETS, _app(STATEFUL_SETS, "store", namespace))
    await api.create(CRON_JOBS, _cron(namespace))
    await _operate(api, namespace, "orders")
    for name, count in (("web", 2), ("store", 1), ("orders", 1)):
        await _running(api, namespace, name, count)


async def _operate(api: ApiServer, namespace: str, name: str, host: Host | None = None) -> None:
    """What an operator does for its object: make the object if it is not there, and the StatefulSet that it owns.

    With a host as its account, which Atoll knows from tenants.
    """
    about = {"apiVersion": DATABASES.api_version, "kind": DATABASES.kind}
    try:
        database = await api.create(DATABASES, {**about, "metadata": {"name": name, "namespace": namespace}})
    except errors.AlreadyExists:
        database = await api.get(DATABASES, name, namespace)
    made = _app(STATEFUL_SETS, name, namespace)
    made["metadata"]["ownerReferences"] = [owner(DATABASES, database)]
    if host is None:
        await api.create(STATEFUL_SETS, made)
        return
    file = host.atoll.credentials / f"{name}.json"
    file.write_text(json.dumps(made))
    said = host.kubectl("create", f"--as={OPERATOR}", "--as-group=system:masters", "-f", str(file))
    assert "created" in said, said


async def _running(
    api: ApiServer, namespace: str, app: str, count: int, *, but: frozenset[str] = frozenset()
) -> set[str]:
    """Wait until so many pods of an app run, none of them of these UIDs; their UIDs."""

    async def so() -> set[str] | None:
        pods = [each for each in await api.list(PODS, namespace, label_selector=f"app={app}")]
        found = {each["metadata"]["uid"] for each in pods if (each.get("status") or {}).get("phase") == "Running"}
        return found if len(found) == count == len(pods) and not found & but else None

    return await until(so, what=f"{count} pods of {app} run in {namespace}")


@pytest.mark.parametrize("way", ["true", "labelled"])
async def test_all_of_a_clusters_own_goes_on_in_a_namespace_that_opts_in(host: Host, way: str) -> None:
    api, namespace = host.api, f"team-{way}"
    # Pods that go are made again, a rollout makes others.
    pods = await _running(api, namespace, "store", 1)
    await api.delete(PODS, "store-0", namespace)
    await _running(api, namespace, "store", 1, but=frozenset(pods))
    pods = await _running(api, namespace, "web", 2)
    assert "restarted" in host.kubectl("rollout", "restart", "deployment/web", "-n", namespace)
    await _running(api, namespace, "web", 2, but=frozenset(pods))
    # The autoscaler scales.
    target = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "name": "web"}
    about = {"apiVersion": SCALERS.api_version, "kind": SCALERS.kind}
    spec = {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4}
    await api.create(SCALERS, {**about, "metadata": {"name": "web", "namespace": namespace}, "spec": spec})
    await _running(api, namespace, "web", 3)
    # The operator makes its own anew, and for a new object.
    pods = await _running(api, namespace, "orders", 1)
    await api.delete(STATEFUL_SETS, "orders", namespace)
    await until(lambda: _is_gone(api, PODS, namespace, "orders-0"), what="the pod is gone")
    for name in ("orders", "bills"):
        await _operate(api, namespace, name, host)
        await _running(api, namespace, name, 1, but=frozenset(pods))
    # The CronJob makes a Job, which runs: where all is Atoll's, in a member.
    job = await until(lambda: _ended(host, namespace), deadline=MINUTES, what="a Job of the CronJob has ended")
    manager = keys.CONTROLLER if way == "true" else None
    assert job["spec"].get("managedBy") == manager
    bound = {each["spec"]["resource"]["name"] for each in await api.list(BINDINGS, namespace)}
    assert all(each.startswith("nightly-") for each in bound), "nothing else is Atoll's"
    assert bool(bound) == (way == "true")
    events = [each for each in await api.list(EVENTS, namespace) if each.get("reason") == "NotServed"]
    assert events == []


async def _is_gone(api: ApiServer, resource: ApiResource, namespace: str, name: str) -> bool:
    return name not in {each["metadata"]["name"] for each in await api.list(resource, namespace)}


async def _ended(host: Host, namespace: str) -> Json | None:
    for each in await host.api.list(BATCH_JOBS, namespace):
        conditions = (each.get("status") or {}).get("conditions") or ()
        new = each["metadata"]["name"].startswith("nightly-") and each["metadata"]["uid"] not in host.older
        if new and any(one["type"] == "Complete" for one in conditions):
            return each
    return None


async def test_what_names_no_queue_costs_a_labelled_namespace_nothing_and_needs_no_webhook(host: Host) -> None:
    namespace = "team-labelled"
    # A default of the namespace is for what is Atoll's.
    said = {"metadata": {"annotations": {keys.QUEUE_ANNOTATION: "default"}}}
    await host.api.merge_patch(NAMESPACES, namespace, said)
    webhook = host.atoll.processes["atoll-webhook"]
    before = await host.reviews()
    created = host.kubectl("create", "deployment", "notebook", "--image=busybox", "-n", namespace)
    assert "deployment.apps/notebook created" in created
    made = await host.api.create(BATCH_JOBS, _named(batch_job("plain"), namespace))
    assert "managedBy" not in made["spec"] or made["spec"]["managedBy"] == "kubernetes.io/job-controller"
    assert keys.QUEUE_LABEL not in made["metadata"].get("labels", {})
    pod = _app(DEPLOYMENTS, "alone", namespace)["spec"]["template"]
    pod["metadata"] |= {"name": "alone", "namespace": namespace}
    made = await host.api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod})
    assert not made["spec"].get("schedulingGates")
    await _running(host.api, namespace, "notebook", 1)
    await _running(host.api, namespace, "alone", 1)
    assert await host.reviews() == before, "the API server asked nobody"
    await webhook.stop()
    try:
        assert "scaled" in host.kubectl("scale", "deployment/notebook", "--replicas=2", "-n", namespace)
        assert "created" in host.kubectl("create", "deployment", "second", "--image=busybox", "-n", namespace)
        await _running(host.api, namespace, "notebook", 2)
    finally:
        await webhook.start()
        await webhook.ready()
    names = {each["spec"]["resource"]["name"] for each in await host.api.list(BINDINGS, namespace)}
    assert not names & {"notebook", "second", "plain", "alone"}


async def test_in_a_labelled_namespace_what_names_a_queue_runs_in_a_member(host: Host) -> None:
    namespace = "team-labelled"
    label = {keys.KUEUE_QUEUE_LABEL: "default"}
    made = await host.api.create(BATCH_JOBS, _named(batch_job("queued", metadata={"labels": label}), namespace))
    assert made["spec"]["managedBy"] == keys.CONTROLLER

    async def done() -> bool:
        found = await host.api.get(BATCH_JOBS, "queued", namespace)
        conditions = (found.get("status") or {}).get("conditions") or ()
        return any((each["type"], each["status"]) == ("Complete", "True") for each in conditions)

    await until(done, what="it has run")
    assert await host.api.list(PODS, namespace, label_selector="job-name=queued") == []
    assert await host.member.list(PODS, namespace) != []
    gone = host.kubectl("label", "job/queued", f"{keys.QUEUE_LABEL}-", f"{keys.KUEUE_QUEUE_LABEL}-", "-n", namespace)
    assert "names no queue any more" in gone
    for name in ("deployment/web", "pod/store-0"):
        said = host.kubectl("label", name, f"{keys.QUEUE_LABEL}=default", "-n", namespace)
        assert "this one is the host's" in said


@pytest.mark.parametrize(
    ("way", "labels", "words"),
    [
        pytest.param("labelled", {keys.QUEUE_LABEL: "default"}, "without a queue it is the host's", id="with a queue"),
        pytest.param("true", {}, "atoll.sh/enabled=labelled", id="where all is Atoll's"),
    ],
)
async def test_what_the_hosts_controllers_would_run_too_is_refused_in_words(
    host: Host, way: str, labels: Json, words: str
) -> None:
    for resource in (DEPLOYMENTS, STATEFUL_SETS):
        with pytest.raises(errors.ApiError, match="own controllers") as refused:
            await host.api.create(resource, _app(resource, "twice", f"team-{way}", labels))
        assert words in refused.value.said


def _named(obj: Json, namespace: str) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
