"""Ordinary users: with the built-in role `edit` in one namespace, and nothing else, all of Atoll can be used there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    API_SERVICES,
    BATCH_JOBS,
    BINDINGS,
    CAPACITIES,
    COMMANDS,
    JOBS,
    POLICIES,
    QUEUES,
    WORKS,
    ApiResource,
)
from atoll.model.release import VERSION
from tests.integration.command_line import atollctl
from tests.integration.federation import Site, batch_job, job, until
from tests.integration.tenants import Tenant, made, rights_count

pytestmark = pytest.mark.integration

Json = dict[str, Any]


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(site: Site) -> AsyncIterator[Tenant]:
    """With `edit`, once the query API is served."""

    async def available() -> bool:
        found = await site.find(API_SERVICES, keys.QUERY_API)
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    await until(available, what="the query API is available")
    found = await made(site, "edit")
    await rights_count(found)
    yield found
    await found.api.close()
    found.kubeconfig.unlink()


@pytest_asyncio.fixture(loop_scope="session")
async def reader(site: Site) -> AsyncIterator[Tenant]:
    """With `view`."""
    found = await made(site, "view")
    await rights_count(found)
    yield found
    await found.api.close()
    found.kubeconfig.unlink()


# -- what edit allows, and what it does not ------------------------------------------------------------------------------


async def test_edit_is_enough_to_submit_to_look_and_to_choose_members(tenant: Tenant) -> None:
    site, api = tenant.site, tenant.api
    for workload, resource in ((job("mine"), JOBS), (batch_job("mine"), BATCH_JOBS)):
        await api.create(resource, {**workload, "metadata": {**workload["metadata"], "namespace": site.namespace}})
    policy = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": "only-beta", "namespace": site.namespace},
        "spec": {
            "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": "Job"}],
            "placement": {"clusterAffinity": {"clusterNames": ["beta"]}},
        },
    }
    await api.create(POLICIES, policy)
    await site.phase("mine", "Completed")
    assert await api.list(BINDINGS, site.namespace)
    assert "default" in [each["metadata"]["name"] for each in await api.list(QUEUES)]


@pytest.mark.parametrize(
    ("resource", "namespace"),
    [
        pytest.param(BINDINGS, "", id="a binding"),
        pytest.param(WORKS, "karmada-es-alpha", id="a Work"),
        pytest.param(CAPACITIES, "karmada-es-alpha", id="a capacity"),
        pytest.param(QUEUES, None, id="a queue"),
        pytest.param(JOBS, "default", id="a job in another namespace"),
    ],
)
async def test_edit_does_not_write(tenant: Tenant, resource: ApiResource, namespace: str | None) -> None:
    metadata = {"name": "forged"}
    if namespace is not None:
        metadata["namespace"] = namespace or tenant.site.namespace
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": {}}
    with pytest.raises(errors.Forbidden, match="cannot create resource"):
        await tenant.api.create(resource, body)


async def test_who_may_send_commands_may_not_close_a_queue(tenant: Tenant) -> None:
    queue = await tenant.site.queue()

    async def close(api: ApiServer, *, namespace: str, api_version: str) -> None:
        target = {"apiVersion": api_version, "kind": "Queue", "name": queue, "uid": ""}
        body = {"apiVersion": COMMANDS.api_version, "kind": COMMANDS.kind, "action": "CloseQueue", "target": target}
        await api.create(COMMANDS, {**body, "metadata": {"generateName": "close-", "namespace": namespace}})

    for version in (QUEUES.api_version, ""):
        with pytest.raises(errors.Forbidden, match=f"a Command on queue {queue} needs the right to update"):
            await close(tenant.api, namespace=tenant.site.namespace, api_version=version)
    await close(tenant.site.host, namespace=tenant.site.namespace, api_version=QUEUES.api_version)

    async def closed() -> bool:
        return bool((await tenant.site.host.get(QUEUES, queue)).get("status", {}).get("state") == "Closed")

    await until(closed, what="the administrator's Command is obeyed")


# -- the command line ----------------------------------------------------------------------------------------------------


async def test_a_tenant_explains_its_own_job(tenant: Tenant) -> None:
    site = tenant.site
    queue = await site.queue(capability={"cpu": "2"})
    await site.submit(job("runs", cpu="2", seconds=None, queue=queue))
    await site.phase("runs", "Running")
    await site.submit(job("waits", cpu="1", queue=queue))
    await site.reason("waits", "QuotaExceeded")

    async def counted() -> str | None:
        text = await tenant.ctl("explain", "waits")
        return text if f"Queue {queue}: Open, 1 running, 1 waiting" in text else None

    waits = await until(counted, what="the queue's status follows")
    assert f"limit     queue {queue}: 1 cpu needed, 0 left, 1 short" in waits
    assert f"would help: higher limits, by what is short (queue {queue}: 1 cpu)" in waits
    assert "2 of 2" in waits
    assert "not shown" not in waits
    runs = await tenant.ctl("explain", "vcjob/runs")
    assert "1 running" in runs
    assert "not shown  Works: " in runs


async def test_a_tenant_uses_its_jobs_from_the_command_line(tenant: Tenant, tmp_path: Path) -> None:
    site = tenant.site
    queue = await site.queue(capability={"cpu": "4"})
    await site.submit(job("work", cpu="1", seconds=None, queue=queue))
    await site.phase("work", "Running")
    assert await tenant.ctl("job", "hold", "work") == "job.batch.volcano.sh/work held\n"
    await site.reason("work", "Held")
    assert await tenant.ctl("job", "release", "work") == "job.batch.volcano.sh/work released\n"
    await site.phase("work", "Running")
    assert await tenant.ctl("job", "abort", "work") == "job.batch.volcano.sh/work aborted\n"
    assert await tenant.ctl("job", "resume", "work") == "job.batch.volcano.sh/work resumed\n"
    await site.phase("work", "Running")
    listed = await tenant.ctl("job", "list", "-o", "wide")
    assert "work" in listed
    assert queue in listed
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job("more", cpu="1", queue=queue)))
    assert "would start now" in await tenant.ctl("what-if", "-f", str(file))
    assert queue in await tenant.ctl("queue", "list")
    assert queue in await tenant.ctl("queue", "get", queue)
    described = await tenant.ctl("queue", "describe", queue)
    assert "1 of 4" in described
    assert "work-job" in described
    assert "not shown" in described
    assert await tenant.ctl("job", "delete", "work") == "job.batch.volcano.sh/work deleted\n"


async def test_a_tenant_has_what_kubectl_users_expect(tenant: Tenant) -> None:
    site = tenant.site
    queue, other = await site.queue(capability={"cpu": "2"}), await site.queue("other", capability={"cpu": "1"})
    for name in ("runs", "waits", "also"):
        wish = job(name, cpu="2" if name == "runs" else "1", seconds=None, queue=queue)
        wish["metadata"]["labels"] = {"sweep": "no" if name == "runs" else "yes"}
        await site.submit(wish)
        await (site.phase(name, "Running") if name == "runs" else site.reason(name, "QuotaExceeded"))

    async def placed() -> str | None:
        said = await tenant.ctl("job", "pods", "runs")
        return said if "1 running" in said else None

    pods = await until(placed, what="the member's report reaches the host")
    member = await site.where("runs")
    assert pods.splitlines()[0].split() == ["CLUSTER", "NODE", "PODS", "DOMAIN"]
    assert f"{member}: 1 running of 1" in pods
    assert f"kubectl get pods -n {site.namespace} -l volcano.sh/job-name=runs" in pods
    assert await tenant.ctl("job", "pods", "waits") == "no member has pods of it\n"

    said = await tenant.ctl("job", "move", "runs", "--queue", other, ok=False)
    assert f"is dispatched, and queue {queue} pays for it" in said
    assert "atollctl job hold runs" in said
    assert await tenant.ctl("job", "move", "-l", "sweep=yes", "-q", other) == (
        f"job.batch.volcano.sh/also moved to queue {other}\njob.batch.volcano.sh/waits moved to queue {other}\n"
    )
    listed = await tenant.ctl("job", "list", "-l", "sweep", "--sort-by", ".spec.queue", "-o", "name")
    assert listed.splitlines()[-1] == "job.batch.volcano.sh/runs" if other < queue else "job.batch.volcano.sh/waits"
    columns = "custom-columns=N:.metadata.name,Q:.spec.queue,P:.status.state.phase"

    async def same() -> bool:
        theirs = site.kubectl("get", "vcjob", "-n", site.namespace, "-o", columns, "--sort-by=.metadata.name")
        return await tenant.ctl("job", "list", "-o", columns) == theirs

    await until(same, what="both list the same")
    assert await tenant.ctl("job", "hold", "-l", "sweep=nobody") == ""
    assert "name jobs, or select them by label" in await tenant.ctl("job", "hold", ok=False)

    # What is an administrator's says so in a sentence.
    for args in (("queue", "create", "x", "--dry-run=server"), ("cluster", "list"), ("cluster", "cordon", "alpha")):
        assert "ask an administrator of the host for that right" in await tenant.ctl(*args, ok=False), args
    assert "(dry run)" in await tenant.ctl("queue", "create", "x", "--dry-run=client")
    versions = await tenant.ctl("version")
    assert "host       Kubernetes v" in versions
    assert "not shown  atoll-control and atoll-dispatcher (no right to list leases" in versions
    administrators = await atollctl(site, "--version")
    for name in ("atoll-control", "atoll-dispatcher", "alpha: agent"):
        assert f"{name} {VERSION}" in administrators
    assert "skew" not in administrators


def saved(file: str) -> Json:
    found: Json = yaml.safe_load(Path(file).read_text("utf-8"))
    return found


async def test_who_may_not_change_queues_keeps_what_was_edited(
    tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_EDITOR", "sed -i 's/^  weight: .*/  weight: 7/'")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    said = await tenant.ctl("queue", "edit", "default", ok=False)
    assert "ask an administrator of the host for that right" in said
    assert "no valid changes" not in said, "it is not opened again: no other text would help"
    assert saved(said.partition("has been stored to ")[2].split()[0])["spec"]["weight"] == 7


async def test_a_reader_sees_and_changes_nothing(reader: Tenant) -> None:
    await reader.site.submit(job("work", seconds=None))
    await reader.site.phase("work", "Running")
    assert "work" in await reader.ctl("job", "list")
    assert "running" in await reader.ctl("explain", "work")
    for verb in ("hold", "abort", "delete"):
        said = await reader.ctl("job", verb, "work", ok=False)
        assert "is forbidden: User" in said
        assert "ask an administrator of the host for that right" in said


async def test_what_a_tenant_may_not_is_said_in_words(tenant: Tenant) -> None:
    for args in (
        ("queue", "create", "x"),
        ("queue", "close", "default"),
        ("queue", "update", "default", "--weight", "2"),
    ):
        said = await tenant.ctl(*args, ok=False)
        assert "Forbidden" in said, args
    assert "ask an administrator of the host for that right" in await tenant.ctl("job", "list", "-A", ok=False)
    assert "ask an administrator" in await tenant.ctl("explain", "x", ok=False, namespace="default")
