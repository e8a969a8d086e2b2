"""Ordinary users: with the built-in role `edit` in one namespace, and nothing else, all of Atoll can be used there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atoll.control import install
from atoll.control.install.rights import ROLE_BINDINGS
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
    SERVICE_ACCOUNTS,
    WORKS,
    ApiResource,
)
from tests.integration.federation import Site, batch_job, job, until
from tests.integration.test_operations import argv

pytestmark = pytest.mark.integration

Json = dict[str, Any]


@dataclass
class Tenant:
    """An account with a built-in role in the test's namespace."""

    site: Site
    api: ApiServer
    kubeconfig: Path

    async def ctl(self, *args: str, ok: bool = True, namespace: str = "") -> str:
        """Run atollctl; its output, or its error text when it is expected to fail."""
        where = namespace or self.site.namespace
        process = await asyncio.create_subprocess_exec(
            *argv(*args, f"--kubeconfig={self.kubeconfig}", f"--namespace={where}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, said = (text.decode() for text in await process.communicate())
        assert (process.returncode == 0) == ok, f"atollctl {' '.join(args)}: {out}{said}"
        assert "Traceback" not in said
        return out if ok else said


async def made(site: Site, role: str) -> Tenant:
    name = f"tenant-{role}"
    metadata = {"name": name, "namespace": site.namespace}
    await site.host.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": site.namespace}
    head = {"apiVersion": ROLE_BINDINGS.api_version, "kind": ROLE_BINDINGS.kind, "metadata": metadata}
    await site.host.create(ROLE_BINDINGS, {**head, "roleRef": reference, "subjects": [subject]})
    token, _ = await install.issue_token(site.host, name, site.namespace)
    file = site.federation.atoll.credentials / f"{name}-{site.namespace}.kubeconfig"
    install.write_kubeconfig(file, await install.endpoint(site.federation.host.kubeconfig), name, token)
    return Tenant(site, await ApiServer.from_kubeconfig(file, user_agent="test-tenant"), file)


async def rights_count(tenant: Tenant) -> None:
    """The authorizer learns of new bindings by a watch."""

    async def look() -> bool:
        try:
            await tenant.api.list(JOBS, tenant.site.namespace)
        except errors.Forbidden:
            return False
        return True

    await until(look, what="the tenant's rights count")


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
