"""Helm on clusters with real nodes, and connections passed on where no kube-proxy or load balancer runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from atoll.cli import chart_files
from atoll.kube.transport import ApiServer
from atoll.local.cluster import ClusterHandle
from atoll.local.image import build
from atoll.model import keys
from atoll.model.apiresource import NODES

SYSTEM = keys.SYSTEM_NAMESPACE
API_NAME, API_ADDRESS = "kubernetes.default.svc", "10.96.0.1"
"""By which pods find their API server: a name in its certificate, and where the cluster's DNS says it is."""
ENVIRONMENT = [
    {"name": "KUBERNETES_SERVICE_HOST", "value": API_NAME},
    {"name": "KUBERNETES_SERVICE_PORT", "value": "443"},
]
WAIT = ("--wait", "--timeout=15m")
NEXT = "next"
"""Tag of the image that is upgraded to."""


@dataclass
class Place:
    """One cluster with one real node."""

    handle: ClusterHandle
    api: ApiServer
    node_address: str

    async def server(self) -> tuple[str, int]:
        """Address and port of the API server, where no Service leads to it."""
        at = urlsplit(self.api.url)
        return str(at.hostname), int(at.port or 443)


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

    async def translate(self, node_address: str, port: int, target: Callable[[], Awaitable[tuple[str, int]]]) -> None:
        """Connections of a node's pods to this port of the API server's Service go to where `target` says."""
        to = f"{node_address}:{await self.listen(node_address, target)}"
        rule = ["PREROUTING", "-i", _bridge(node_address), "-d", API_ADDRESS, "-p", "tcp", "--dport", str(port)]
        rule += ["-j", "DNAT", "--to-destination", to]
        await asyncio.to_thread(subprocess.run, ["iptables", "-t", "nat", "-A", *rule], check=True)
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


async def helm(place: Place, *words: str, namespace: str = SYSTEM) -> str:
    """What Helm printed; fails with it where Helm does."""
    argv = [chart_files.find_helm(build=False), f"--kubeconfig={place.handle.kubeconfig}", f"--namespace={namespace}"]
    run = await asyncio.to_thread(subprocess.run, [*argv, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr + await _logs(place, namespace)
    return run.stdout


async def _logs(place: Place, namespace: str) -> str:
    run = await asyncio.to_thread(
        subprocess.run,
        ["kubectl", f"--kubeconfig={place.handle.kubeconfig}", "-n", namespace, "logs", "--prefix", "--tail=20",
         "-l", "app.kubernetes.io/part-of=atoll", "--ignore-errors"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return run.stdout + run.stderr


def chart(name: str) -> str:
    return str(chart_files.DEPLOY / "charts" / name)


def values(folder: Path, name: str, *processes: str, **more: object) -> str:
    """A file of values: pods find the API server by a name that its certificate has."""
    small = {"extraEnv": ENVIRONMENT, "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}}}
    content = {
        "image": {"repository": build.REPOSITORY, "pullPolicy": "Never"},
        "hooks": {"extraEnv": ENVIRONMENT},
        **{each: {**small, **more.pop(each, {})} for each in processes},  # type: ignore[dict-item]
        **more,
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content))
    return f"--values={file}"


async def place_of(handle: ClusterHandle, ways: Ways) -> Place:
    """A cluster of one real node, whose pods reach its API server from then on."""
    api = await ways.stack.enter_async_context(await handle.connect())
    [found] = await api.list(NODES)
    addresses = {one["type"]: one["address"] for one in found["status"]["addresses"]}
    place = Place(handle, api, addresses["InternalIP"])
    await ways.translate(place.node_address, 443, place.server)
    return place


async def drift(place: Place, release: str) -> str:
    """Differences that a GitOps tool would find at each sync, which applies the objects on the server by force."""
    objects = [each for each in yaml.safe_load_all(await helm(place, "get", "manifest", release)) if each]
    for each in objects:
        # Helm says so of all that it brings.
        each["metadata"].setdefault("labels", {})["app.kubernetes.io/managed-by"] = "Helm"
    flags = ["--server-side", "--force-conflicts", "--field-manager=argocd-controller"]
    run = await asyncio.to_thread(
        subprocess.run,
        ["kubectl", f"--kubeconfig={place.handle.kubeconfig}", "diff", *flags, "-f", "-"],
        input=yaml.safe_dump_all(objects), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return run.stdout + run.stderr if run.returncode else ""
