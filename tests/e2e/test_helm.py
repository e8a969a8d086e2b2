"""Helm installs both charts on clusters whose nodes run containers; a job runs; upgrade, rollback, uninstall."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest
import pytest_asyncio
import yaml

from atoll.cli import chart_files
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.image import build
from atoll.local.layout import FederationConfig, Member
from atoll.local.realnodes import images, node
from atoll.model import keys
from atoll.model.apiresource import (
    ADMISSION_POLICIES,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
)
from tests.atollctl import atollctl
from tests.e2e.jobs import job, shell, task
from tests.integration.federation import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400), pytest.mark.asyncio(loop_scope="module")]

SYSTEM = keys.SYSTEM_NAMESPACE
API_NAME, API_ADDRESS = "kubernetes.default.svc", "10.96.0.1"
"""By which pods find their API server: a name in its certificate, and where the cluster's DNS says it is."""
PATIENCE = 600.0
NEXT = "next"
"""Tag of the image that is upgraded to."""


@dataclass
class Place:
    """One cluster with one real node."""

    handle: ClusterHandle
    api: ApiServer
    node_address: str
    outside: int = 0
    """Port on the address of the other cluster's node, by which that one reaches this API server."""


@dataclass
class Ways:
    """Connections passed on as kube-proxy and load balancers do elsewhere."""

    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def listen(self, address: str, target: Callable[[], Awaitable[tuple[str, int]]]) -> int:
        """Pass on to where `target` says; gives the port."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, LookupError):
                far_reader, far_writer = await asyncio.open_connection(*await target())
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            writer.close()

        server = await asyncio.start_server(serve, address, 0)
        self.stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    def translate(self, bridge: str, to: str) -> None:
        """Packets of this bridge to the Service of the API server go here."""
        rule = ["PREROUTING", "-i", bridge, "-d", API_ADDRESS, "-p", "tcp", "--dport", "443"]
        rule += ["-j", "DNAT", "--to-destination", to]
        subprocess.run(["iptables", "-t", "nat", "-A", *rule], check=True)
        self.stack.callback(subprocess.run, ["iptables", "-t", "nat", "-D", *rule], check=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


def _bridge(address: str) -> str:
    shown = json.loads(subprocess.run(["ip", "-j", "addr"], capture_output=True, check=True).stdout)
    return str(next(each["ifname"] for each in shown for one in each["addr_info"] if one.get("local") == address))


async def helm(place: Place, *words: str) -> str:
    """What Helm printed; fails with it where Helm does."""
    argv = [chart_files.find_helm(build=False), f"--kubeconfig={place.handle.kubeconfig}", f"--namespace={SYSTEM}"]
    run = await asyncio.to_thread(subprocess.run, [*argv, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr + await _logs(place)
    return run.stdout


async def _logs(place: Place) -> str:
    run = await asyncio.to_thread(
        subprocess.run,
        ["kubectl", f"--kubeconfig={place.handle.kubeconfig}", "-n", SYSTEM, "logs", "--prefix", "--tail=20",
         "-l", "app.kubernetes.io/part-of=atoll", "--ignore-errors"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return run.stdout + run.stderr


def chart(name: str) -> str:
    return str(chart_files.DEPLOY / "charts" / name)


def values(folder: Path, name: str, *processes: str, **more: object) -> str:
    """A file of values: pods find the API server by a name that its certificate has."""
    environment = [{"name": "KUBERNETES_SERVICE_HOST", "value": API_NAME}]
    environment += [{"name": "KUBERNETES_SERVICE_PORT", "value": "443"}]
    small = {"extraEnv": environment, "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}}}
    content = {
        "image": {"repository": build.REPOSITORY, "pullPolicy": "Never"},
        "hooks": {"extraEnv": environment},
        **{each: {**small, **more.pop(each, {})} for each in processes},  # type: ignore[dict-item]
        **more,
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content))
    return f"--values={file}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def places(able: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Place]]:
    """A hub and a member, both with what managed clusters have; the images are on their nodes."""
    try:
        chart_files.find_helm(build=False)
    except OSError as error:
        pytest.skip(str(error))
    config = FederationConfig(members=[Member(name="hub", real_nodes=1), Member(name="east", real_nodes=1)])
    folder, ways = tmp_path_factory.mktemp("helm"), Ways()
    built = [await asyncio.to_thread(build.build, print)]
    built.append(await asyncio.to_thread(build.build, print, tag=NEXT))
    async with Federation(config, directory=folder, binaries=ensure()) as federation, ways.stack:
        await federation.populate()
        made = {}
        for name, handle in federation.members.items():
            pid = next(each.pid for each in federation.processes.processes if each.spec.name == f"{name}-real0")
            assert pid is not None
            for each in built:
                await asyncio.to_thread(images.load, each.archive, node.containerd_socket(pid))
            api = await ways.stack.enter_async_context(await handle.connect())
            [found] = await api.list(NODES)
            addresses = {one["type"]: one["address"] for one in found["status"]["addresses"]}
            at = urlsplit(api.url)

            async def server(at: str = str(at.hostname), port: int = int(at.port or 443)) -> tuple[str, int]:
                return at, port

            port = await ways.listen(addresses["InternalIP"], server)
            ways.translate(_bridge(addresses["InternalIP"]), f"{addresses['InternalIP']}:{port}")
            made[name] = Place(handle, api, addresses["InternalIP"])
        at = urlsplit(made["hub"].api.url)

        async def hub() -> tuple[str, int]:
            return str(at.hostname), int(at.port or 443)

        made["hub"].outside = await ways.listen(made["east"].node_address, hub)
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def webhook_port(places: dict[str, Place]) -> AsyncIterator[int]:
    """Port on loopback behind which ready webhooks are."""
    ways, api = Ways(), places["hub"].api

    async def target() -> tuple[str, int]:
        query = {"labelSelector": "app.kubernetes.io/name=atoll-webhook"}
        pods = orjson.loads(await api.request("GET", f"/api/v1/namespaces/{SYSTEM}/pods", params=query))["items"]
        for pod in pods:
            conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
            if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
                return pod["status"]["podIP"], 9443
        raise LookupError("no webhook is ready")

    async with ways.stack:
        yield await ways.listen("127.0.0.1", target)


async def _phase(api: ApiServer, name: str) -> str:
    found = await api.get(JOBS, name, "research")
    return str(((found.get("status") or {}).get("state") or {}).get("phase"))


async def _reaches(api: ApiServer, name: str, phase: str) -> None:
    async def look() -> bool:
        return await _phase(api, name) == phase

    await until(look, deadline=PATIENCE, what=f"job {name} is {phase}")


async def test_helm_brings_a_federation_and_takes_it_off_again(
    places: dict[str, Place], webhook_port: int, tmp_path: Path
) -> None:
    """Install both, run a job, upgrade under a running one, roll back, be refused, leave nothing."""
    hub, east = places["hub"], places["east"]
    host_values = values(
        tmp_path, "host", "webhook", "control", "dispatcher",
        webhook={"url": f"https://127.0.0.1:{webhook_port}", "extraArgs": ["--host=0.0.0.0"]},
        dispatcher={"extraArgs": ["--query-port=0"]},
    )  # fmt: skip
    wait = ("--wait", "--timeout=15m")
    await helm(hub, "install", "atoll", chart("atoll"), "--create-namespace", host_values, *wait)
    await helm(hub, "test", "atoll")

    ran = await atollctl(
        "join", "east", f"--kubeconfig={hub.handle.kubeconfig}", f"--member-kubeconfig={east.handle.kubeconfig}",
        f"--out={tmp_path}",
    )  # fmt: skip
    assert ran.code == 0, ran.said
    credentials = yaml.safe_load((tmp_path / "atoll-agent-east.host.kubeconfig").read_text())
    cluster = credentials["clusters"][0]["cluster"]
    cluster |= {"server": f"https://{east.node_address}:{hub.outside}", "tls-server-name": "localhost"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "atoll-host", "namespace": SYSTEM}}
    await east.api.create(SECRETS, {**secret, "stringData": {"kubeconfig": yaml.safe_dump(credentials)}})
    agent_values = values(tmp_path, "member", "agent", cluster="east")
    await helm(east, "install", "atoll-agent", chart("atoll-agent"), "--take-ownership", agent_values, *wait)

    labels = {keys.ENABLED: "true"}
    research = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research", "labels": labels}}
    await hub.api.create(NAMESPACES, research)
    await hub.api.create(JOBS, _job("first", "true"))
    await _reaches(hub.api, "first", "Completed")

    await hub.api.create(JOBS, _job("long", "while ! test -e /tmp/end; do sleep 1; done"))
    await _reaches(hub.api, "long", "Running")
    await helm(hub, "upgrade", "atoll", chart("atoll"), host_values, f"--set=image.tag={NEXT}", *wait)
    await helm(east, "upgrade", "atoll-agent", chart("atoll-agent"), agent_values, f"--set=image.tag={NEXT}", *wait)
    assert await _phase(hub.api, "long") == "Running"
    await hub.api.create(JOBS, _job("second", "true"))
    await _reaches(hub.api, "second", "Completed")
    await helm(hub, "rollback", "atoll", "1", *wait)
    assert await _phase(hub.api, "long") == "Running"
    await helm(hub, "test", "atoll")

    with pytest.raises(AssertionError):
        await helm(hub, "uninstall", "atoll", "--timeout=3m")
    await helm(hub, "test", "atoll")
    for name in ("first", "second", "long"):
        await hub.api.delete(JOBS, name, "research")
    flags = (f"--kubeconfig={hub.handle.kubeconfig}", f"--member-kubeconfig={east.handle.kubeconfig}")

    async def left() -> bool:
        return (await atollctl("unjoin", "east", *flags, f"--out={tmp_path}")).code == 0

    await until(left, deadline=PATIENCE, what="member east has left")
    await helm(east, "uninstall", "atoll-agent", *wait)
    await helm(hub, "uninstall", "atoll", *wait)
    for place in places.values():
        for resource in (
            ADMISSION_POLICIES, CLUSTER_ROLES, DEPLOYMENTS, LEASES, MUTATING_WEBHOOKS, SECRETS, SERVICE_ACCOUNTS,
            VALIDATING_WEBHOOKS,
        ):  # fmt: skip
            found = [each["metadata"]["name"] for each in await place.api.list(resource)]
            # The Secret that a user made.
            assert [each for each in found if each.startswith("atoll") and each != "atoll-host"] == []


def _job(name: str, script: str) -> dict[str, object]:
    made = job(name, task("w", shell(script)))
    return {**made, "metadata": {**made["metadata"], "namespace": "research"}}
