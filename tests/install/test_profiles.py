"""ClusterProfiles on a real API server: members are published, and clusters of another inventory join."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from atoll import install
from atoll.control.caches import Caches
from atoll.control.profiles import Profiles
from atoll.control.settings import ProfileSettings
from atoll.install.credentials import ensure_account
from atoll.kube.errors import NotFound
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model import keys
from atoll.model.apiresource import CLUSTER_PROFILES, CLUSTER_ROLE_BINDINGS, CLUSTERS, CRDS
from atoll.model.profiles import IDENTITY
from tests.atollctl import Ran, atollctl
from tests.integration.federation import until

Json = dict[str, Any]

CRD = Path(__file__).with_name("clusterprofiles.yaml")
SYSTEM = keys.SYSTEM_NAMESPACE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("credentials")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory, out: Path) -> AsyncIterator[Federation]:
    """A host, and a cluster that is no member."""
    config = FederationConfig.model_validate({"members": [{"name": "east"}]})
    async with Federation(config, directory=tmp_path_factory.mktemp("federation"), binaries=ensure()) as federation:
        async with await federation.host.connect() as api:
            at = await install.endpoint(federation.host.kubeconfig)
            await install.init(api, at, out=out, webhook_client_config={"url": "https://127.0.0.1:1"})
        yield federation


@contextlib.asynccontextmanager
async def publishing(out: Path, namespace: str) -> AsyncIterator[None]:
    """The controller at work, with no rights but control's own."""
    async with (
        await ApiServer.from_kubeconfig(install.kubeconfig_of(out, "control")) as api,
        asyncio.TaskGroup() as group,
    ):
        caches = Caches(api)
        profiles = Profiles(api, caches, settings=ProfileSettings(namespace=namespace))
        running = [group.create_task(caches.run())]
        await caches.wait()
        running.append(group.create_task(profiles.run()))
        yield
        for each in running:
            each.cancel()


async def serve_profiles(host: ApiServer) -> None:
    await host.apply(CRDS, yaml.safe_load(CRD.read_text()), field_manager="inventory")

    async def served() -> bool:
        with contextlib.suppress(NotFound):
            await host.list(CLUSTER_PROFILES)
            return True
        return False

    await until(served, deadline=60, what="ClusterProfiles are served")


async def profiles_in(host: ApiServer) -> dict[str, Json]:
    return {each["metadata"]["name"]: each for each in await host.list(CLUSTER_PROFILES, SYSTEM)}


async def test_members_are_published_once_the_crd_is_there_and_what_others_manage_is_left_alone(
    host: ApiServer, out: Path
) -> None:
    """1. Control runs. 2. The CRD comes. 3. A member is ready. 4. It leaves. Another manager's profile stays."""
    spec = {"syncMode": "Pull", "id": "uid-of-north", "region": "eu-1", "zones": ["a", "b"]}
    head = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind}
    await host.create(CLUSTERS, {**head, "metadata": {"name": "north"}, "spec": spec})
    async with publishing(out, SYSTEM):
        await serve_profiles(host)

        async def published() -> bool:
            return bool((await profiles_in(host)).get("north", {}).get("status"))

        await until(published, deadline=60, what="the member has a ClusterProfile")
        foreign = {
            "apiVersion": CLUSTER_PROFILES.api_version,
            "kind": CLUSTER_PROFILES.kind,
            "metadata": {"name": "south", "namespace": SYSTEM},
            "spec": {"clusterManager": {"name": "other"}},
        }
        await host.create(CLUSTER_PROFILES, foreign)
        await host.create(CLUSTERS, {**head, "metadata": {"name": "south"}, "spec": {"syncMode": "Pull"}})
        ready = {
            "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "it reports",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        status = {"status": {"conditions": [ready], "kubernetesVersion": "v1.36.3"}}
        await host.merge_patch(CLUSTERS, "north", status, subresource="status")

        async def healthy() -> bool:
            found = (await profiles_in(host))["north"]
            return bool(found["status"]["conditions"][0]["status"] == "True")

        await until(healthy, deadline=60, what="its profile follows the member's condition")
        found = (await profiles_in(host))["north"]
        assert found["spec"] == {"displayName": "north", "clusterManager": {"name": "atoll"}}
        assert found["metadata"]["labels"] == {"x-k8s.io/cluster-manager": "atoll"}
        assert found["status"]["version"] == {"kubernetes": "v1.36.3"}
        assert found["status"]["conditions"][0]["reason"] == "ClusterReady"
        assert found["status"]["properties"] == [
            {"name": IDENTITY, "value": "uid-of-north"},
            {"name": "atoll.sh/region", "value": "eu-1"},
            {"name": "atoll.sh/zones", "value": "a,b"},
        ]
        for name in ("north", "south"):
            await host.delete(CLUSTERS, name)

        async def gone() -> bool:
            return "north" not in await profiles_in(host)

        await until(gone, deadline=60, what="the profile goes with its member")
    south = (await profiles_in(host))["south"]
    assert (south["spec"], south.get("status")) == (foreign["spec"], None)
    await host.delete(CLUSTER_PROFILES, "south", SYSTEM)


async def test_nothing_is_published_where_no_namespace_is_named(host: ApiServer, out: Path) -> None:
    await serve_profiles(host)
    async with publishing(out, ""):
        head = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind}
        await host.create(CLUSTERS, {**head, "metadata": {"name": "north"}, "spec": {"syncMode": "Pull"}})
    assert await profiles_in(host) == {}
    await host.delete(CLUSTERS, "north")


async def test_a_cluster_of_an_inventory_joins_by_the_administrators_plug_in_alone(
    bare: Federation, host: ApiServer, east: ApiServer, out: Path, tmp_path: Path
) -> None:
    """1. Its manager lists it, and names a program. 2. It is offered. 3. It joins by another program."""
    await serve_profiles(host)
    await ensure_account(east, "administrator", "kube-system")
    rbac = "rbac.authorization.k8s.io"
    await east.create(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "administrator"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "administrator"}],
        },
    )
    token, _ = await install.issue_token(east, "administrator", "kube-system")
    touched = tmp_path / "executed"
    script = tmp_path / "plugin.py"
    script.write_text(
        "import json, os, sys\n"
        "assert 'MORE' not in os.environ and sys.argv[1:] == ['--cluster=east'], sys.argv\n"
        "credential = {'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential'}\n"
        f"print(json.dumps({{**credential, 'status': {{'token': {token!r}}}}}))\n"
    )
    admin = yaml.safe_load(bare.members["east"].kubeconfig.read_text())["clusters"][0]["cluster"]
    wicked = {"command": "touch", "args": [str(touched)]}
    extensions = [
        {"name": "client.authentication.k8s.io/exec", "extension": wicked},
        {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-args", "extension": {"args": ["--more"]}},
        {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs", "extension": {"MORE": "1"}},
    ]
    ways = [
        {"name": "good", "cluster": {**admin, "extensions": extensions}},
        {"name": "blind", "cluster": {"server": admin["server"], "insecure-skip-tls-verify": True}},
        {"name": "file", "cluster": {"server": admin["server"], "certificate-authority": "/etc/hostname"}},
        {"name": "plain", "cluster": {"server": "http://127.0.0.1:1"}},
    ]
    profile = {
        "apiVersion": CLUSTER_PROFILES.api_version,
        "kind": CLUSTER_PROFILES.kind,
        "metadata": {"name": "e-1", "namespace": "default"},
        "spec": {"clusterManager": {"name": "fleet"}},
    }
    await host.create(CLUSTER_PROFILES, profile)
    status = {"status": {"accessProviders": ways, "version": {"kubernetes": "v1.36.3"}}}
    await host.merge_patch(CLUSTER_PROFILES, "e-1", status, "default", subresource="status")

    async def run(*words: str, code: int = 0) -> Ran:
        ran = await atollctl(*words, f"--kubeconfig={bare.host.kubeconfig}")
        assert ran.code == code, ran
        return ran

    offered = (await run("member", "offers", "--no-headers")).out.split()
    assert offered == ["default/e-1", "fleet", "v1.36.3", "Unknown", "good,blind,file,plain", "<none>"]
    command = f"--access-command={sys.executable} {script} --cluster=east"
    joining = ("join", "east", "--cluster-profile=default/e-1", command, f"--out={out}")
    assert "choose one: blind, file, good, plain" in (await run(*joining, code=1)).said
    for name, why in (("blind", "verified servers alone"), ("file", "another machine"), ("plain", "no https URL")):
        assert why in (await run(*joining, f"--access-provider={name}", code=1)).said
    assert "go together" in (await run("join", "east", "--cluster-profile=default/e-1", code=2)).said
    assert "Member east is joined" in (await run(*joining, "--access-provider=good")).out
    assert not touched.exists()
    assert (await run("member", "offers", "--no-headers")).out.split()[-1] == "east"
    await install.unjoin(host, east, "east", force=True)
