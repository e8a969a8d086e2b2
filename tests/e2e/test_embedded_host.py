"""An embedded host in containers: etcd, API server, controllers and Atoll's processes on a real node of the carrier."""

from __future__ import annotations

import asyncio
import subprocess
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
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, JOBS, NAMESPACES, PODS, SECRETS, SERVICES, VOLUMES
from atoll.model.release import VERSION
from tests.atollctl import atollctl
from tests.e2e.charts import NEXT, SYSTEM, WAIT, Place, Ways, chart, helm, place_of, values
from tests.e2e.jobs import job, shell, task
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
    await headless(carrier, values)


async def headless(carrier: ApiServer, values: EmbeddedValues) -> None:
    """Services whose names lead to pods."""
    for each in embedded.control_plane(values):
        if each["kind"] == SERVICES.kind:
            await carrier.create(SERVICES, {**each, "spec": {**each["spec"], "clusterIP": "None"}})


@pytest_asyncio.fixture(loop_scope="session")
async def carrier(tmp_path: Path) -> AsyncIterator[Federation]:
    """A cluster with one real node that has all images."""
    config = FederationConfig(members=[Member(name="carrier", real_nodes=1, nodes=[])])
    async with Federation(config, directory=tmp_path / "federation", binaries=ensure()) as federation:
        await federation.populate()
        for archive in (await asyncio.to_thread(build.build, print)).archive, control_plane_image(tmp_path):
            await load(federation, archive)
        yield federation


async def load(federation: Federation, archive: Path) -> None:
    [process] = [each for each in federation.processes.processes if each.spec.name == "carrier-real0"]
    assert process.pid is not None
    await asyncio.to_thread(images.load, archive, node.containerd_socket(process.pid))


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
    known = EmbeddedValues(storage_class=CLASS, image=image)
    async with await carrier.members["carrier"].connect() as api:
        await prepare(api, known, tmp_path)
        await install.embed(api, given, timeout=300, progress=print)
        selector = "app.kubernetes.io/component=apiserver"
        [pod] = await api.list(PODS, known.namespace, label_selector=selector)
        secret = await api.get(SECRETS, embedded.ADMIN, known.namespace)
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


async def host_at(carrier: ApiServer, namespace: str, folder: Path) -> Path:
    """A kubeconfig of the host's administrator, by the address of its pod."""
    [pod] = await carrier.list(PODS, namespace, label_selector="app.kubernetes.io/component=apiserver")
    secret = await carrier.get(SECRETS, embedded.ADMIN, namespace)
    file = folder / "host.kubeconfig"
    file.write_text(kubeconfig(secret, pod["status"]["podIP"]))
    return file


async def agent(place: Place, host: Path, folder: Path) -> str:
    """Join the carrier itself as a member and install its agent; gives the flag with its values."""
    ran = await atollctl(
        "join", "east", f"--kubeconfig={host}", f"--member-kubeconfig={place.handle.kubeconfig}", f"--out={folder}"
    )
    assert ran.code == 0, ran.said
    credentials = yaml.safe_load((folder / "atoll-agent-east.host.kubeconfig").read_text())
    credentials["clusters"][0]["cluster"]["server"] = f"https://{embedded.APISERVER}.{embedded.NAMESPACE}.svc:6443"
    secret = {"metadata": {"name": keys.HOST_SECRET, "namespace": SYSTEM}}
    await place.api.create(SECRETS, {**secret, "stringData": {"kubeconfig": yaml.safe_dump(credentials)}})
    given = values(folder, "east", "agent", cluster="east")
    await helm(place, "install", "atoll-agent", chart("atoll-agent"), "--take-ownership", given, *WAIT)
    return given


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_helm_brings_an_embedded_host_under_a_running_job_upgrades_it_and_takes_it_off(
    carrier: Federation, tmp_path: Path
) -> None:
    """Install the host and the agent of its carrier, run a job, upgrade, roll back, uninstall, and come back."""
    await load(carrier, (await asyncio.to_thread(build.build, print, tag=NEXT)).archive)
    programs = dict.fromkeys(("etcdImage", "apiserverImage", "controllerManagerImage"), CONTROL_PLANE)
    small = {"requests": {"cpu": "20m", "memory": "64Mi"}}
    components = ("etcd", "apiserver", "controller-manager", "webhook", "control", "dispatcher", "init")
    wanted = {**programs, "storageClass": CLASS, "replicas": 1, "resources": {each: small for each in components}}
    given = values(tmp_path, "host", host={"mode": "embedded", "embedded": wanted})
    known = EmbeddedValues(storage_class=CLASS, image=f"{build.REPOSITORY}:{VERSION}")
    ways = Ways()
    async with ways.stack:
        place = await place_of(carrier.members["carrier"], ways)
        await prepare(place.api, known, tmp_path)

        async def on_host(*words: str) -> None:
            await helm(place, *words, namespace=known.namespace)

        install_it = ("install", "atoll", chart("atoll"), "--take-ownership", given, *WAIT)
        await on_host(*install_it)
        await on_host("test", "atoll")
        host_file = await host_at(place.api, known.namespace, tmp_path)
        agent_values = await agent(place, host_file, tmp_path)
        async with await ApiServer.from_kubeconfig(host_file) as host:
            await host.create(NAMESPACES, {"metadata": {"name": "research", "labels": {keys.ENABLED: "true"}}})
            made = job("train", task("w", shell("until test -e /tmp/end; do sleep 1; done")))
            await host.create(JOBS, {**made, "metadata": {**made["metadata"], "namespace": "research"}})

            async def reaches(phase: str) -> None:
                async def look() -> bool:
                    found = (await host.get(JOBS, "train", "research")).get("status") or {}
                    return bool((found.get("state") or {}).get("phase") == phase)

                await until(look, deadline=300, what=f"the job is {phase}")

            await reaches("Running")
            [before] = await place.api.list(PODS, "research")
            await on_host("upgrade", "atoll", chart("atoll"), given, f"--set=image.tag={NEXT}", *WAIT)
            upgrade = ("upgrade", "atoll-agent", chart("atoll-agent"), agent_values, f"--set=image.tag={NEXT}")
            await helm(place, *upgrade, *WAIT)
            await on_host("rollback", "atoll", "1", *WAIT)
            await on_host("test", "atoll")
            await reaches("Running")
            [after] = await place.api.list(PODS, "research")
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            await asyncio.to_thread(end, place, after["metadata"]["name"])
            await reaches("Completed")

        await on_host("uninstall", "atoll", *WAIT)
        left = {each["metadata"]["name"] for each in await place.api.list(SECRETS, known.namespace)}
        assert embedded.AUTHORITIES in left

        async def gone() -> bool:
            return await place.api.list(PODS, known.namespace) == []

        await until(gone, deadline=300, what="all pods are gone")
        await headless(place.api, known)
        await on_host(*install_it)
        async with await ApiServer.from_kubeconfig(await host_at(place.api, known.namespace, tmp_path)) as host:
            assert (await host.get(JOBS, "train", "research"))["status"]["state"]["phase"] == "Completed"


def end(place: Place, pod: str) -> None:
    argv = [
        "kubectl",
        f"--kubeconfig={place.handle.kubeconfig}",
        "-n",
        "research",
        "exec",
        pod,
        "--",
        "touch",
        "/tmp/end",
    ]
    subprocess.run(argv, check=True, capture_output=True)
