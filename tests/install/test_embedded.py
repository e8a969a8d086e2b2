"""An embedded host: its pods' own command lines run as processes here, and a carrier takes its objects."""

from __future__ import annotations

import asyncio
import base64
import shutil
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from cryptography import x509

from atoll.install import embedded, embedded_keys, embedding
from atoll.install.embedded import EmbeddedValues
from atoll.install.refusal import Refused
from atoll.install.rehearsal import Nowhere
from atoll.install.snapshots import keep_newest
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.ports import free_ports
from atoll.local.processes import Process, ProcessSpec
from atoll.model import keys
from atoll.model.apiresource import (
    API_SERVICES,
    BATCH_JOBS,
    BINDINGS,
    CONFIGMAPS,
    DEPLOYMENTS,
    NAMESPACES,
    SECRETS,
)
from tests.integration.federation import until

Json = dict[str, Any]
NOW = datetime(2026, 11, 28, tzinfo=UTC)
IMAGE = "registry.example.org/atoll:1"


def on_servers(test: Any) -> Any:
    return pytest.mark.integration(pytest.mark.asyncio(loop_scope="module")(test))


def secrets_of(values: EmbeddedValues, now: datetime = NOW) -> dict[str, Json]:
    found = {embedded.AUTHORITIES: embedded_keys.make_authorities(values, now)}
    return found | {each["metadata"]["name"]: each for each in embedded_keys.make_secrets(values, found, now)}


def file_of(secret: Json, name: str) -> bytes:
    return base64.b64decode(secret["data"][name])


def certificate(secret: Json, name: str = "tls.crt") -> x509.Certificate:
    return x509.load_pem_x509_certificate(file_of(secret, name))


# -- what is made ------------------------------------------------------------------------------------------------------


def test_every_secret_that_a_pod_mounts_is_made_and_may_be_renewed() -> None:
    values = EmbeddedValues(image=IMAGE)
    assert set(secrets_of(values)) == set(embedded.SECRETS)
    mounted = {
        volume["secret"]["secretName"]
        for template in templates(values).values()
        for volume in template["spec"]["volumes"]
        if "secret" in volume
    }
    assert mounted == set(embedded.SECRETS) - {embedded.AUTHORITIES}


def test_certificates_stay_until_two_thirds_of_their_life_are_over() -> None:
    values = EmbeddedValues(image=IMAGE)
    found = secrets_of(values)
    assert embedded_keys.make_secrets(values, found, NOW + timedelta(days=240)) == []
    later = NOW + timedelta(days=250)
    renewed = {each["metadata"]["name"]: each for each in embedded_keys.make_secrets(values, found, later)}
    assert set(renewed) == set(embedded.SECRETS) - {embedded.AUTHORITIES}
    assert certificate(renewed["atoll-etcd"]).not_valid_after_utc > NOW + timedelta(days=600)
    assert file_of(renewed["atoll-apiserver"], "sa.key") == file_of(found["atoll-apiserver"], "sa.key")
    assert embedded_keys.ends(found | renewed) == later + timedelta(days=365)


def test_new_endpoint_renews_the_servers_certificate_alone() -> None:
    values = EmbeddedValues(image=IMAGE)
    moved = msgspec.structs.replace(values, endpoint="https://[fd00::7]:6443")
    found = secrets_of(values)
    [renewed] = embedded_keys.make_secrets(moved, found, NOW)
    assert renewed["metadata"]["name"] == embedded.APISERVER
    names = certificate(renewed).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "fd00::7" in {str(each.value) for each in names}
    for file in ("etcd-client.crt", "front-proxy-client.crt"):
        assert file_of(renewed, file) == file_of(found[embedded.APISERVER], file)


def test_snapshots_beyond_the_newest_few_are_deleted(tmp_path: Path) -> None:
    for hour in range(4):
        (tmp_path / "new.db").write_text(str(hour))
        kept = keep_newest(tmp_path / "new.db", 2, NOW + timedelta(hours=hour))
    assert kept == ["etcd-20261128T020000Z.db", "etcd-20261128T030000Z.db"]
    assert sorted(each.name for each in tmp_path.iterdir()) == kept


@pytest.mark.asyncio
async def test_host_without_an_image_is_refused() -> None:
    with pytest.raises(Refused, match="no image of Atoll is published"):
        await embedding.embed(Nowhere(), {}, timeout=None)


# -- the command lines of its pods, as processes -----------------------------------------------------------------------


def templates(values: EmbeddedValues) -> dict[str, Json]:
    """Kind and name -> template of the pods."""
    found = {}
    for each in embedded.objects(values):
        spec = each.get("spec") or {}
        spec = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
        if "template" in spec:
            found[f"{each['kind']} {each['metadata']['name']}"] = spec["template"]
    return found


@dataclass
class Here:
    """This machine in the place of the carrier: paths, names and ports of pods become its own."""

    folder: Path
    values: EmbeddedValues
    address: str
    ports: Mapping[int, int]
    running: list[Process] = field(default_factory=list)

    def rewrite(self, text: str, keys_folder: Path) -> str:
        namespace = self.values.namespace
        names = {
            f"https://$(POD_NAME).{embedded.ETCD}.{namespace}.svc": "https://localhost",
            f"https://{embedded.ETCD}-0.{embedded.ETCD}.{namespace}.svc": "https://localhost",
            f"https://{embedded.ETCD}.{namespace}.svc": "https://localhost",
            self.values.server: f"https://{self.address}:6443",
            self.values.webhook_url: f"https://{self.address}:9443",
            "$(POD_NAME)": f"{embedded.ETCD}-0",
            "$(POD_IP)": self.address,
            f"{embedded.KEYS}/": f"{keys_folder}/",
            "/var/lib/etcd": f"{self.folder}/data",
            "/backup/": f"{self.folder}/backup/",
        }
        for old, new in names.items():
            text = text.replace(old, new)
        for old_port, new_port in self.ports.items():
            for before in (":", "port="):
                text = text.replace(f"{before}{old_port}", f"{before}{new_port}")
        return text

    def mount(self, secrets: Mapping[str, Json]) -> None:
        """Write what the kubelet would mount."""
        for name, secret in secrets.items():
            folder = self.folder / "keys" / name
            folder.mkdir(parents=True, exist_ok=True)
            for file, content in secret["data"].items():
                text = base64.b64decode(content).decode()
                (folder / file).write_text(self.rewrite(text, folder) if file == "kubeconfig" else text)

    def argv(self, template: Json, container: Json) -> list[str]:
        [name] = {each["secret"]["secretName"] for each in template["spec"]["volumes"] if "secret" in each} or {""}
        words = [*container["command"], *container["args"]]
        return [self.rewrite(each, self.folder / "keys" / name) for each in words]

    def program(self, argv: list[str]) -> list[str]:
        binaries = ensure(report=lambda _: None)
        known = {
            "python3": sys.executable,
            "etcd": str(binaries.etcd),
            "kube-apiserver": str(binaries.kube_apiserver),
            "kube-controller-manager": str(binaries.kube_controller_manager),
        }
        own = Path(sys.executable).parent / argv[0]
        return [known.get(argv[0]) or (str(own) if own.exists() else argv[0]), *argv[1:]]

    async def run(self, workload: str, container: str) -> str:
        """Run one container of a workload to its end; return what it printed."""
        template = templates(self.values)[workload]
        spec = template["spec"]
        [found] = [each for each in (*spec.get("initContainers", ()), *spec["containers"]) if each["name"] == container]
        child = await asyncio.create_subprocess_exec(
            *self.program(self.argv(template, found)), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await child.communicate()
        assert child.returncode == 0, out.decode()
        return out.decode()

    async def start(self, workload: str, wait: str) -> Process:
        """Start a workload's only container and wait until a probe of it passes."""
        template = templates(self.values)[workload]
        [container] = template["spec"]["containers"]
        # The variables of a kubeconfig here would be the user's own.
        process = Process(
            ProcessSpec(container["name"], self.program(self.argv(template, container)), env={"KUBECONFIG": ""}),
            self.folder / "logs" / f"{container['name']}.log",
        )
        self.running.append(process)
        await process.start()
        if wait:
            await self.probe(process, container[wait]["httpGet"])
        return process

    async def probe(self, process: Process, check: Json) -> None:
        import aiohttp

        url = f"{check['scheme'].lower()}://{self.address}:{self.ports[check['port']]}{check['path']}"

        async def passes() -> bool:
            assert process.running, process.failure()
            try:
                async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await until(passes, deadline=120, what=f"{url}: {process.log.read_text()[-2000:]}")


def own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Here]:
    """etcd, API server, controllers, webhook, control and dispatcher by the command lines of their pods."""
    try:
        address = own_address()
    except OSError:
        pytest.skip("this machine has no address but loopback, which no EndpointSlice may hold")
    asked = (2379, 2380, 2381, 6443, 10257, 9443, 8443, 8081, 8082, 8083)
    ports = dict(zip(asked, free_ports(len(asked)), strict=True))
    values = EmbeddedValues(image=IMAGE, endpoint=f"https://{address}:{ports[6443]}")
    folder = tmp_path_factory.mktemp("embedded")
    made = Here(folder, values, address, ports)
    made.mount(secrets_of(values, datetime.now(UTC)))
    try:
        await made.start("StatefulSet atoll-etcd", "readinessProbe")
        await made.start("Deployment atoll-apiserver", "readinessProbe")
        init = await made.start("Job atoll-host-init", "")
        assert await init.wait() == 0, init.log.read_text()
        await made.start("Deployment atoll-controller-manager", "readinessProbe")
        for process in ("webhook", "control", "dispatcher"):
            await made.start(f"Deployment atoll-{process}", "readinessProbe")
        yield made
    finally:
        for each in reversed(made.running):
            await each.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def host(here: Here) -> AsyncIterator[ApiServer]:
    async with await ApiServer.from_kubeconfig(here.folder / "keys" / embedded.ADMIN / "kubeconfig") as api:
        yield api


@on_servers
async def test_job_is_accepted_and_suspended_on_the_embedded_host(host: ApiServer) -> None:
    await host.create(NAMESPACES, {"metadata": {"name": "research", "labels": {keys.ENABLED: "true"}}})
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "research", "labels": {keys.QUEUE_LABEL: "default"}},
        "spec": {"template": {"spec": pod}},
    }
    made = await host.create(BATCH_JOBS, job)
    assert made["spec"]["managedBy"] == keys.CONTROLLER

    async def bound() -> list[Json]:
        return await host.list(BINDINGS, "research")

    [binding] = await until(bound, what="control makes a binding")
    assert binding["spec"]["suspension"]["scheduling"] is True


@on_servers
async def test_deployments_are_not_refused_as_no_controller_of_the_host_runs_them(host: ApiServer) -> None:
    labels = {"app": "notebook"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}},
    }
    await host.create(NAMESPACES, {"metadata": {"name": "teams", "labels": {keys.ENABLED: "true"}}})
    await host.create(DEPLOYMENTS, {"metadata": {"name": "notebook", "namespace": "teams"}, "spec": spec})
    assert (await host.get(NAMESPACES, keys.SYSTEM_NAMESPACE))["metadata"]["labels"].get(keys.HOST_PROFILE) is None


@on_servers
async def test_query_api_is_reached_at_the_address_of_the_dispatchers_pod(host: ApiServer) -> None:
    async def available() -> bool:
        found = await host.list(API_SERVICES)
        status = [each.get("status") or {} for each in found if each["metadata"]["name"] == keys.QUERY_API]
        return any(
            each["type"] == "Available" and each["status"] == "True"
            for one in status
            for each in one.get("conditions") or ()
        )

    await until(available, what="the query API is available")


@on_servers
async def test_controllers_delete_namespaces_and_publish_the_authority(host: ApiServer) -> None:
    await host.create(NAMESPACES, {"metadata": {"name": "passing"}})

    async def published() -> bool:
        return bool(await host.list(CONFIGMAPS, "passing"))

    await until(published, what="ConfigMap kube-root-ca.crt")
    await host.delete(NAMESPACES, "passing")

    async def gone() -> bool:
        return "passing" not in [each["metadata"]["name"] for each in await host.list(NAMESPACES)]

    await until(gone, what="the namespace is gone")


@on_servers
async def test_backup_is_a_snapshot_of_etcd(here: Here, host: ApiServer) -> None:
    if shutil.which("etcdctl") is None:
        pytest.skip("etcdctl is not installed")
    (here.folder / "backup").mkdir()
    await here.run("CronJob atoll-etcd-backup", "snapshot")
    [name] = (await here.run("CronJob atoll-etcd-backup", "backup")).split()
    assert name.startswith("etcd-20")
    assert (here.folder / "backup" / name).stat().st_size > 100_000


@on_servers
async def test_repeated_init_changes_nothing(here: Here, host: ApiServer) -> None:
    before = await host.get(SECRETS, "atoll-webhook-ca", keys.SYSTEM_NAMESPACE)
    init = await here.start("Job atoll-host-init", "")
    assert await init.wait() == 0, init.log.read_text()
    assert await host.get(SECRETS, "atoll-webhook-ca", keys.SYSTEM_NAMESPACE) == before


@on_servers
async def test_renewed_certificates_are_served_without_a_restart(here: Here, host: ApiServer) -> None:
    found = secrets_of(here.values, datetime.now(UTC))
    folder = here.folder / "keys"
    for name in found:
        for file in found[name]["data"]:
            found[name]["data"][file] = base64.b64encode((folder / name / file).read_bytes()).decode()
    later = datetime.now(UTC) + timedelta(days=250)
    renewed = {each["metadata"]["name"]: each for each in embedded_keys.make_secrets(here.values, found, later)}
    # Such a certificate begins in the future; this one is like it, and begins now.
    now = datetime.now(UTC)
    for name in renewed:
        for file in [each for each in found[name]["data"] if each.startswith(("tls.", "etcd-client."))]:
            del found[name]["data"][file]
    fresh = {each["metadata"]["name"]: each for each in embedded_keys.make_secrets(here.values, found, now)}
    here.mount(fresh)
    for port, name in ((2379, "atoll-etcd"), (6443, "atoll-apiserver")):
        wanted = certificate(fresh[name]).serial_number

        async def served(port: int = port, wanted: int = wanted) -> bool:
            pem = await asyncio.to_thread(ssl.get_server_certificate, (here.address, here.ports[port]))
            return x509.load_pem_x509_certificate(pem.encode()).serial_number == wanted

        await until(served, deadline=150, what=f"{name} serves its new certificate")
    await host.create(NAMESPACES, {"metadata": {"name": "afterwards"}})
    assert all(process.running for process in here.running if process.spec.name != "init")
