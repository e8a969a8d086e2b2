"""`uninstall` on a real API server: what it refuses, what it removes, what it leaves, and that `init` works again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atoll import install
from atoll.install.removal import _LABEL
from atoll.install.rights import ROLE_BINDINGS, ROLES
from atoll.kube.errors import Busy, NotFound
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model import keys
from atoll.model.apiresource import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    API_SERVICES,
    BATCH_JOBS,
    BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTERS,
    CRDS,
    ENDPOINT_SLICES,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    QUEUES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    WORKS,
    ApiResource,
)
from atoll.model.timestamps import rfc3339
from tests import atollctl as commands
from tests.integration.federation import batch_job, job, until

Json = dict[str, Any]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]

KINDS = (
    ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, API_SERVICES, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ENDPOINT_SLICES,
    MUTATING_WEBHOOKS, NAMESPACES, ROLES, ROLE_BINDINGS, SECRETS, SERVICES, SERVICE_ACCOUNTS, VALIDATING_WEBHOOKS, CRDS,
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    """A host, empty."""
    config = FederationConfig.model_construct(members=[])
    async with Federation(config, directory=tmp_path_factory.mktemp("federation"), binaries=ensure()) as federation:
        yield federation


@pytest_asyncio.fixture(loop_scope="module")
async def host(bare: Federation, tmp_path: Path) -> AsyncIterator[ApiServer]:
    """One that was initialised; credentials are in `tmp_path`."""
    async with await bare.host.connect() as api:
        await init(bare, api, tmp_path)
        yield api
        await install.uninstall(api, force=True)
        # CRDs stay where a test leaves them: an API server that failed to remove one tries again later and later.
        with contextlib.suppress(NotFound):
            for each in await api.list(JOBS):
                await api.delete(JOBS, each["metadata"]["name"], each["metadata"]["namespace"])


def in_default(obj: Json) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "namespace": "default"}}


async def init(bare: Federation, api: ApiServer, out: Path) -> None:
    at = await install.endpoint(bare.host.kubeconfig)
    # Nobody answers there: what a webhook that is left behind does to users shows.
    await install.init(api, at, out=out, webhook_client_config={"url": "https://127.0.0.1:1"}, enable=["default"])
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        await api.merge_patch(resource, keys.WEBHOOKS, {"webhooks": []})

    async def asks_nobody() -> bool:
        try:
            await api.create(JOBS, in_default(job("probe")), dry_run=True)
        except Busy:
            return False
        return True

    await until(asks_nobody, what="the API server knows that no webhook is there")


async def atollctl(bare: Federation, *args: str) -> tuple[int, str]:
    """Exit code and all output of a command as a user would type it."""
    ran = await commands.atollctl(*args, f"--kubeconfig={bare.host.kubeconfig}")
    return ran.code, ran.out + ran.said


async def labelled(host: ApiServer) -> dict[str, list[str]]:
    """Kind -> names of what carries our label, and of what goes without one."""
    found = {
        each.kind: [item["metadata"]["name"] for item in await host.list(each, label_selector=_LABEL)] for each in KINDS
    }
    for kind, resource, name in (
        ("APIService", API_SERVICES, keys.QUERY_API),
        ("Namespace", NAMESPACES, "atoll-system"),
    ):
        try:
            await host.get(resource, name)
        except NotFound:
            continue
        found[kind].append(name)
    return {kind: names for kind, names in found.items() if names}


async def register_query(host: ApiServer) -> None:
    """A leader did, and is dead."""
    spec = {
        "group": "query.atoll.sh", "version": "v1alpha1", "groupPriorityMinimum": 1000, "versionPriority": 10,
        "service": {"namespace": keys.SYSTEM_NAMESPACE, "name": keys.QUERY_SERVICE, "port": 443},
        "insecureSkipTLSVerify": True,
    }  # fmt: skip
    head = {"apiVersion": API_SERVICES.api_version, "kind": API_SERVICES.kind}
    await host.create(API_SERVICES, {**head, "metadata": {"name": keys.QUERY_API}, "spec": spec})


async def break_webhooks(host: ApiServer) -> None:
    """The webhook had registered for all batch Jobs, and nobody answers any more."""
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        hook = {
            "name": "jobs.atoll.sh",
            "clientConfig": {"url": "https://127.0.0.1:1/jobs"},
            "rules": [{"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"]}],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        await host.merge_patch(resource, "atoll", {"webhooks": [hook]})


async def put(host: ApiServer, resource: ApiResource, name: str, namespace: str | None = None, **content: Any) -> None:
    metadata = {"name": name, "namespace": namespace, **content.pop("metadata", {})}
    await host.create(
        resource, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}
    )


async def in_use(host: ApiServer) -> None:
    """A workload was dispatched to a member; no process runs any more."""
    await host.create(JOBS, in_default(job("train")))
    reference = {"apiVersion": JOBS.api_version, "kind": "Job", "name": "train", "namespace": "default"}
    glass = {keys.BREAK_GLASS: "a test"}
    ours = {"finalizers": [keys.BINDING_FINALIZER], "annotations": glass}
    await put(host, BINDINGS, "train-job", "default", spec={"resource": reference}, metadata=ours)
    execution = keys.execution_namespace("east")
    await put(host, CLUSTERS, "east", spec={"syncMode": "Pull", "apiEndpoint": "https://127.0.0.1:1"})
    await put(host, NAMESPACES, execution)
    manifest = in_default(job("train"))
    kept = {"finalizers": [keys.WORK_FINALIZER], "annotations": glass}
    await put(host, WORKS, "train", execution, metadata=kept, spec={"workload": {"manifests": [manifest]}})


async def test_all_that_init_made_goes_and_can_be_made_again(bare: Federation, host: ApiServer, tmp_path: Path) -> None:
    await register_query(host)
    await break_webhooks(host)
    await put(host, QUEUES, "research", spec={"weight": 1})
    await put(host, NAMESPACES, "by-hand", metadata={"labels": {keys.ENABLED: "true"}})
    before = await labelled(host)

    listed: list[str] = []
    await install.uninstall(host, crds=True, dry_run=True, credentials=tmp_path, progress=listed.append)
    assert await labelled(host) == before
    assert {line.split()[2] for line in listed} >= {*before} - {"CustomResourceDefinition"}
    assert "would delete CRD queues.scheduling.volcano.sh with 2 objects" in listed

    await install.uninstall(host, credentials=tmp_path)
    assert {*await labelled(host)} == {"CustomResourceDefinition"}
    assert not [process for process in install.PROCESSES if install.kubeconfig_of(tmp_path, process).exists()]
    opted = [each["metadata"]["name"] for each in await host.list(NAMESPACES, label_selector=keys.ENABLED)]
    assert opted == ["by-hand"], "what its owner opted in is its owner's"
    assert {each["metadata"]["name"] for each in await host.list(QUEUES)} == {"default", "research"}
    await host.create(BATCH_JOBS, in_default(batch_job("plain")))
    await install.uninstall(host, credentials=tmp_path)

    await init(bare, host, tmp_path)
    again = await labelled(host)
    assert {kind: sorted(names) for kind, names in again.items()} == {
        kind: sorted(names) for kind, names in before.items() if kind != "APIService"
    }
    code, said = await atollctl(bare, "uninstall", "--crds", "--yes", f"--out={tmp_path}")
    assert (code, said.splitlines()[-1]) == (0, "Atoll is off this host.")
    assert await labelled(host) == {}


async def test_what_is_in_use_stays_and_is_named(bare: Federation, host: ApiServer) -> None:
    await in_use(host)
    before = await labelled(host)
    code, said = await atollctl(bare, "uninstall")
    assert code == 1
    for text in ("1 member (east): atollctl unjoin", "1 binding (default/train-job)", "1 Work (karmada-es-east/train)"):
        assert text in said
    assert await labelled(host) == before


async def test_in_force_members_leave_and_nothing_keeps_objects_from_being_deleted(host: ApiServer) -> None:
    await in_use(host)
    assert await install.uninstall(host, force=True) == ["default/train"]
    assert {*await labelled(host)} == {"CustomResourceDefinition"}
    assert (await host.list(CLUSTERS), await host.list(BINDINGS), await host.list(WORKS)) == ([], [], [])
    assert [each["metadata"]["name"] for each in await host.list(JOBS)] == ["train"]


async def test_in_force_an_agent_that_was_stopped_a_moment_ago_is_not_waited_for(host: ApiServer) -> None:
    """Its sign of life is still fresh: that ends while members leave, and then their work is released without it."""
    await in_use(host)
    now = rfc3339(time.time()).replace("Z", "000Z")
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 3, "renewTime": now, "acquireTime": now}
    await put(host, LEASES, "atoll-agent", keys.execution_namespace("east"), spec=spec)
    assert await install.uninstall(host, force=True, timeout=20) == ["default/train"]
    assert {*await labelled(host)} == {"CustomResourceDefinition"}
    assert keys.execution_namespace("east") not in [each["metadata"]["name"] for each in await host.list(NAMESPACES)]


async def test_in_force_a_member_that_does_not_let_go_in_time_is_left_and_what_may_run_is_named(
    host: ApiServer,
) -> None:
    """Its agent gives signs of life all the time, and the pods don't go."""
    await in_use(host)
    now = rfc3339(time.time()).replace("Z", "000Z")
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now}
    await put(host, LEASES, "atoll-agent", keys.execution_namespace("east"), spec=spec)
    said: list[str] = []
    assert await install.uninstall(host, force=True, timeout=10, progress=said.append) == ["default/train"]
    assert any("not gone from east after 10 s; 1 workloads were released" in line for line in said)
    assert {*await labelled(host)} == {"CustomResourceDefinition"}
    assert (await host.list(CLUSTERS), await host.list(BINDINGS), await host.list(WORKS)) == ([], [], [])


async def test_it_waits_for_no_process_that_still_leads(host: ApiServer) -> None:
    now = rfc3339(time.time()).replace("Z", "000Z")
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": now, "acquireTime": now}
    await put(host, LEASES, "atoll-dispatcher", keys.SYSTEM_NAMESPACE, spec=spec)
    with pytest.raises(install.Refused, match="atoll-dispatcher still run"):
        await install.uninstall(host, force=True)
    await host.merge_patch(LEASES, "atoll-dispatcher", {"spec": {"holderIdentity": ""}}, keys.SYSTEM_NAMESPACE)
    await install.uninstall(host)
