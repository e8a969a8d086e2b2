"""An embedded host in containers: etcd, API server, controllers and Atoll's processes on a real node of the carrier."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from atoll import install
from atoll.install import embedded, embedded_keys
from atoll.install.embedded import EmbeddedValues
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.image import build
from atoll.local.layout import FederationConfig, Member
from atoll.local.realnodes import images, node
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, NAMESPACES, PODS, SECRETS, SERVICES, VOLUMES
from atoll.model.release import VERSION
from tests.integration.federation import until

Json = dict[str, Any]
CONTROL_PLANE = "atoll.local/control-plane:1"
CLASS = "by-hand"


def control_plane_image(folder: Path) -> Path:
    """An archive with the programs of this machine where the published images have theirs."""
    found = ensure(report=lambda _: None)
    layer, target = folder / "layer.tar", folder / "control-plane.tar"
    with tarfile.open(layer, "w") as tar:
        for program in (found.etcd, found.kube_apiserver, found.kube_controller_manager):
            tar.add(program, f"usr/local/bin/{program.name}", filter=images.as_root)
    images.archive(images.Recipe(name=CONTROL_PLANE), [layer], folder, target)
    return target


async def prepare(carrier: ApiServer, values: EmbeddedValues, folder: Path) -> None:
    """What this carrier lacks: volumes, and addresses of Services, as no kube-proxy runs here."""
    for name, claim in (("etcd", "data-atoll-etcd-0"), ("backup", embedded.BACKUP)):
        path = folder / name
        path.mkdir()
        path.chmod(0o777)
        spec = {
            "storageClassName": CLASS,
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(path)},
            "claimRef": {"namespace": values.namespace, "name": claim},
        }
        await carrier.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
    await carrier.create(NAMESPACES, embedded.foundation(values)[0])
    for each in embedded.control_plane(values):
        if each["kind"] == SERVICES.kind:
            headless = {"clusterIP": "None"}
            await carrier.create(SERVICES, {**each, "spec": {**each["spec"], **headless}})


@pytest_asyncio.fixture(loop_scope="session")
async def carrier(tmp_path: Path) -> AsyncIterator[Federation]:
    """A cluster with one real node that has all images."""
    config = FederationConfig(members=[Member(name="carrier", real_nodes=1, nodes=[])])
    async with Federation(config, directory=tmp_path / "federation", binaries=ensure()) as federation:
        await federation.populate()
        [process] = [each for each in federation.processes.processes if each.spec.name == "carrier-real0"]
        assert process.pid is not None
        socket = node.containerd_socket(process.pid)
        for archive in (await asyncio.to_thread(build.build, print)).archive, control_plane_image(tmp_path):
            await asyncio.to_thread(images.load, archive, socket)
        yield federation


def kubeconfig(secret: Json, address: str) -> str:
    content = yaml.safe_load(embedded_keys.admin_kubeconfig(secret, f"https://{address}:6443"))
    # The pod's address is in no certificate.
    content["clusters"][0]["cluster"]["tls-server-name"] = embedded.APISERVER
    return yaml.safe_dump(content)


@pytest.mark.timeout(900)
async def test_job_is_queued_by_a_host_that_runs_in_containers(carrier: Federation, tmp_path: Path) -> None:
    image = f"{build.REPOSITORY}:{VERSION}"
    programs = dict.fromkeys(("etcdImage", "apiserverImage", "controllerManagerImage"), CONTROL_PLANE)
    given = {"image": image, **programs, "storageClass": CLASS, "replicas": 1}
    values = EmbeddedValues(storage_class=CLASS, image=image)
    async with await carrier.members["carrier"].connect() as api:
        await prepare(api, values, tmp_path)
        await install.embed(api, given, timeout=300, progress=print)
        selector = "app.kubernetes.io/component=apiserver"
        [pod] = await api.list(PODS, values.namespace, label_selector=selector)
        secret = await api.get(SECRETS, embedded.ADMIN, values.namespace)
    (tmp_path / "host.yaml").write_text(kubeconfig(secret, pod["status"]["podIP"]))
    async with await ApiServer.from_kubeconfig(tmp_path / "host.yaml") as host:
        await host.create(NAMESPACES, {"metadata": {"name": "research", "labels": {keys.ENABLED: "true"}}})
        pod_spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
        metadata = {"name": "train", "namespace": "research", "labels": {keys.QUEUE_LABEL: "default"}}
        await host.create(BATCH_JOBS, {"metadata": metadata, "spec": {"template": {"spec": pod_spec}}})

        async def bound() -> list[Json]:
            return await host.list(BINDINGS, "research")

        [binding] = await until(bound, deadline=120, what="control makes a binding")
        assert binding["spec"]["suspension"]["scheduling"] is True
