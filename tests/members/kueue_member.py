"""Kueue in a member: its real manager with its webhooks, from the module that kueue/go.mod pins, and one queue.

Its CRDs and webhook configurations come from the module, named as its own installation names them. A Deployment stands for
the manager, which runs beside the cluster, since kwok runs no containers.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import yaml

from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.install import wait_until
from atoll.local.layout import Member
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec
from atoll.model.apiresource import SECRETS, ApiResource
from tests.members.manifests import apply
from tests.members.modules import Json, documents, outside, programs, sources, through, tool

PROJECT, MODULE = "kueue", "sigs.k8s.io/kueue"
TOOLS = (tool("kueue", f"{MODULE}/cmd/kueue"),)
QUEUE = "atoll"
"""The ClusterQueue over all nodes, and the name that a namespace's LocalQueue should have: see `local_queue`."""
VERSION = "kueue.x-k8s.io/v1beta2"
LOCAL_QUEUES = ApiResource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
WORKLOADS = ApiResource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
_NAMESPACE, _SERVICE, _SECRET = "kueue-system", "kueue-webhook-service", "kueue-webhook-server-cert"
_LABELS = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}


def crds() -> list[Json]:
    """Its CRDs, without the conversion that needs its webhook; `install` adds that."""
    return [crd for path in sorted((_config() / "crd" / "bases").glob("*.yaml")) for crd in documents(path)]


async def install(federation: Federation, member: Member) -> None:
    """Create what its installation creates, start it, and give it one ClusterQueue over all that the nodes have."""
    paths = await asyncio.to_thread(programs, PROJECT, TOOLS)
    handle = federation.members[member.name]
    port, health, metrics = free_ports(3)
    directory = handle.kubeconfig.parent
    await asyncio.to_thread(apply, handle, [_named("Namespace", "v1", _NAMESPACE, "")])
    await asyncio.to_thread(apply, handle, [*_conversions(port), *_objects(port)])
    (directory / "kueue.yaml").write_text(
        yaml.safe_dump(_configuration(directory / "kueue-certificates", port, health, metrics))
    )
    mounted = asyncio.create_task(_mount(handle, directory / "kueue-certificates"))
    await federation.start_processes(
        [
            ProcessSpec(
                name=f"{member.name}-kueue",
                argv=[
                    str(paths["kueue"]),
                    f"--kubeconfig={handle.kubeconfig}",
                    f"--config={directory / 'kueue.yaml'}",
                    "--feature-gates=VisibilityOnDemand=false",
                ],
                ready_url=f"http://127.0.0.1:{health}/readyz",
            )
        ],
        deadline_s=120,
    )
    await mounted
    await asyncio.to_thread(apply, handle, _queues(member), tries=20)


async def _mount(handle: ClusterHandle, folder: Path) -> None:
    """Write the Secret with Kueue's certificate to its folder, as a kubelet does."""
    await asyncio.to_thread(folder.mkdir)
    async with await handle.connect() as api:

        async def missing() -> str:
            data = (await api.get(SECRETS, _SECRET, _NAMESPACE)).get("data") or {}
            for name, content in data.items():
                (folder / name).write_bytes(base64.b64decode(content))
            return "" if data else "it is empty"

        await wait_until(missing, f"Secret {_SECRET}", 60)


def local_queue(namespace: str) -> Json:
    """What lets a namespace's Jobs through."""
    return _named("LocalQueue", VERSION, QUEUE, namespace) | {"spec": {"clusterQueue": QUEUE}}


def _config() -> Path:
    return sources(PROJECT, MODULE) / "config" / "components"


def _configuration(certificates: Path, port: int, health: int, metrics: int) -> Json:
    """Kueue's own default, but for where it listens."""
    (default,) = documents(_config() / "manager" / "controller_manager_config.yaml")
    return default | {
        "namespace": _NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True, "webhookServiceName": _SERVICE, "webhookSecretName": _SECRET},
    }


def _conversions(port: int) -> list[Json]:
    """The CRDs that its webhook converts."""
    patches = [each for path in (_config() / "crd" / "patches").glob("webhook_in_*.yaml") for each in documents(path)]
    by_name = {each["metadata"]["name"]: each["spec"]["conversion"] for each in patches}
    found = []
    for crd in crds():
        conversion = by_name.get(crd["metadata"]["name"])
        if conversion and len(crd["spec"]["versions"]) > 1:
            conversion["webhook"]["clientConfig"]["service"] |= {"namespace": _NAMESPACE, "name": _SERVICE}
            through(conversion["webhook"]["clientConfig"], port)
            found.append({**crd, "spec": {**crd["spec"], "conversion": conversion}})
    return found


def _objects(port: int) -> list[Json]:
    configurations = documents(_config() / "webhook" / "manifests.yaml")
    for each in configurations:
        each["metadata"] = {"name": f"kueue-{each['metadata']['name']}", "labels": _LABELS}
        for webhook in each["webhooks"]:
            webhook["clientConfig"]["service"] |= {"namespace": _NAMESPACE, "name": _SERVICE}
            through(webhook["clientConfig"], port)
    container = {
        "name": "manager",
        "image": "registry.k8s.io/kueue/kueue:v0.19.2",
        "resources": {"requests": {"cpu": "500m"}},
    }
    template = {"metadata": {"labels": _LABELS}, "spec": {"containers": [container]}}
    deployment = _named("Deployment", "apps/v1", "kueue-controller-manager", _NAMESPACE)
    return [
        _named("Secret", "v1", _SECRET, _NAMESPACE),
        outside(_named("Service", "v1", _SERVICE, _NAMESPACE)),
        # Before the webhooks: its pods would have to wait for them.
        deployment | {"spec": {"replicas": 1, "selector": {"matchLabels": _LABELS}, "template": template}},
        *configurations,
    ]


def _queues(member: Member) -> list[Json]:
    quota = [
        {
            "name": name,
            "nominalQuota": sum(
                int(group.allocatable[name].removesuffix("Gi")) * group.count for group in member.nodes
            ),
        }
        for name in ("cpu", "memory")
    ]
    quota[1]["nominalQuota"] = f"{quota[1]['nominalQuota']}Gi"
    flavors = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quota}]}
    return [
        _named("ResourceFlavor", VERSION, "default", ""),
        _named("ClusterQueue", VERSION, QUEUE, "") | {"spec": {"namespaceSelector": {}, "resourceGroups": [flavors]}},
    ]


def _named(kind: str, version: str, name: str, namespace: str) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": _LABELS}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
