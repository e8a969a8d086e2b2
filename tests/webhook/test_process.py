"""The real process behind a real API server: what a user sees."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from atoll import install
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local.cluster import ClusterHandle
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    JOBS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    QUEUES,
    VALIDATING_WEBHOOKS,
)
from atoll.webhook import process
from atoll.webhook.settings import WebhookSettings
from tests.webhook.builders import Json, make_job, make_queue, make_task


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def prepare(api: ApiServer, kubeconfig: Path, port: int) -> Path:
    """What an installer does before the webhook starts; gives the credentials of the webhook."""
    address = {"url": f"https://127.0.0.1:{port}"}
    at = await install.endpoint(kubeconfig)
    # An earlier test of this host left the address of a webhook that has ended.
    await install.init(api, at, out=kubeconfig.parent, webhook_client_config=address, force=True)
    return install.kubeconfig_of(kubeconfig.parent, "webhook")


@asynccontextmanager
async def running_webhook(kubeconfig: Path) -> AsyncIterator[None]:
    """The process, registered; it must end in order when asked to."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "atoll.webhook"),
        *("--kubeconfig", str(kubeconfig), "--health-port", "0", "--linger-seconds", "0.2"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stderr is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(30):
            while not lines or json.loads(lines[-1])["event"] != "registered":
                lines.append(await child.stderr.readline())
                assert lines[-1], b"".join(lines).decode()
        yield
        child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            rest = await child.stderr.read()
            assert await child.wait() == 0, rest.decode()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def binding(namespace: str, name: str, suspension: Json, **metadata: Any) -> Json:
    resource = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"}
    return {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"resource": {**resource, "namespace": namespace}, "suspension": suspension},
    }


@pytest.mark.integration
async def test_what_users_see(bare_host: ClusterHandle) -> None:
    unique = uuid.uuid4().hex[:8]
    namespace, closed = f"team-{unique}", f"closed-{unique}"

    def job(name: str, **spec: Any) -> Json:
        made = make_job(make_task(replicas=2), name=name, **spec)
        return {**made, "metadata": {"name": name, "namespace": namespace}}

    async with await bare_host.connect() as api:
        credentials = await prepare(api, bare_host.kubeconfig, free_port())
        labels = {"atoll.sh/enabled": "true"}
        await api.create(NAMESPACES, {"metadata": {"name": namespace, "labels": labels}})
        await api.create(QUEUES, make_queue(closed))
        await api.merge_patch(QUEUES, closed, {"status": {"state": "Closed"}}, subresource="status")
        await api.create(QUEUES, make_queue(f"below-{unique}", parent=closed))
        try:
            async with running_webhook(credentials):
                made = await api.create(JOBS, job("train"))
                assert made["spec"]["minAvailable"] == 2
                assert made["spec"]["schedulerName"] == "atoll"

                with pytest.raises(errors.Invalid, match="minAvailable is more than the replicas"):
                    await api.create(JOBS, job("bad", minAvailable=9))
                with pytest.raises(errors.Forbidden, match=f"queue '{closed}' is Closed"):
                    await api.create(JOBS, job("late", queue=closed))
                with pytest.raises(errors.Forbidden, match=f"is below queue '{closed}', which is Closed"):
                    await api.create(JOBS, job("below", queue=f"below-{unique}"))
                with pytest.raises(errors.Forbidden, match="its master is task 'master', which is not there"):
                    await api.create(JOBS, job("mpi", plugins={"mpi": []}))

                kept = {"dispatchingOnClusters": {"clusterNames": ["m1"]}}
                ours = {keys.GANG: "{}", keys.BREAK_GLASS: "a test"}
                bound = await api.create(BINDINGS, binding(namespace, "train-job", kept, annotations=ours))
                assert bound["spec"]["suspension"] == {**kept, "scheduling": True}
                theirs = await api.create(BINDINGS, binding(namespace, "karmada", kept))
                assert theirs["spec"]["suspension"] == kept, "nobody would ever resume another system's binding"
        finally:
            for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
                await api.delete(resource, keys.WEBHOOKS)
            await api.delete(JOBS, "train", namespace)
            for name in ("train-job", "karmada"):
                await api.delete(BINDINGS, name, namespace)
            await api.delete(QUEUES, f"below-{unique}")
            await api.delete(QUEUES, closed)
            await api.delete(NAMESPACES, namespace)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_where_no_address_is_given_it_listens_on_all(address: str) -> None:
    if ":" in address and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with process._bound("", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        socket.create_connection((address, port), timeout=5).close()


@pytest.mark.parametrize(
    ("url", "host", "address"),
    [
        pytest.param("https://[::1]:9443", "", ("::1", 9443), id="loopback of IPv6"),
        pytest.param("https://[fd00::1]:9443", "", ("", 9443), id="an address of IPv6"),
        pytest.param("https://127.0.0.1", "", ("127.0.0.1", 9443), id="no port"),
        pytest.param("https://atoll.example:444", "::", ("::", 444), id="as the flag says"),
    ],
)
def test_where_it_listens_follows_from_its_url(url: str, host: str, address: tuple[str, int]) -> None:
    assert process._address({"url": url}, WebhookSettings(host=host)) == address
