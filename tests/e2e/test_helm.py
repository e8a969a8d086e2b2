"""Helm installs both charts on clusters whose nodes run containers; a job runs; upgrade, rollback, uninstall."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
import pytest_asyncio
import yaml

from atoll.cli import chart_files
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
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
    PODS,
    QUEUES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
)
from tests.atollctl import atollctl
from tests.e2e.charts import API_NAME, NEXT, SYSTEM, WAIT, Place, Ways, chart, drift, helm, place_of, values
from tests.e2e.jobs import job, shell, task
from tests.integration.federation import until
from tests.lacking import lacking

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400), pytest.mark.asyncio(loop_scope="module")]

PATIENCE = 600.0
MEMBERS = ("east", "west")
RUNNING = 20
"""Jobs that run while both charts are upgraded and one is rolled back."""
HUB_PORT = 6443
HUB_URL = f"https://{API_NAME}:{HUB_PORT}"
"""The hub for pods of members: a name in its certificate that they find, with a port that leads to the hub."""


class Pod(NamedTuple):
    """A pod of a workload in a member."""

    member: str
    name: str
    phase: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def places(able: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Place]]:
    """A hub and two members, with what managed clusters have; the images are on their nodes."""
    try:
        chart_files.find_helm(build=False)
    except OSError as error:
        pytest.skip(str(error))
    config = FederationConfig(members=[Member(name=name, real_nodes=1) for name in ("hub", *MEMBERS)])
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
            made[name] = await place_of(handle, ways)
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


async def _joined(places: dict[str, Place], name: str, folder: Path) -> list[str]:
    """Join a member with the keys of both clusters and install its agent; gives the values for Helm."""
    hub, member = places["hub"], places[name]
    ran = await atollctl(
        "join", name, f"--kubeconfig={hub.handle.kubeconfig}", f"--member-kubeconfig={member.handle.kubeconfig}",
        f"--out={folder}",
    )  # fmt: skip
    assert ran.code == 0, ran.said
    credentials = yaml.safe_load((folder / f"atoll-agent-{name}.host.kubeconfig").read_text())
    credentials["clusters"][0]["cluster"]["server"] = HUB_URL
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "atoll-host", "namespace": SYSTEM}}
    await member.api.create(SECRETS, {**secret, "stringData": {"kubeconfig": yaml.safe_dump(credentials)}})
    given = [values(folder, name, "agent", cluster=name)]
    await helm(member, "install", "atoll-agent", chart("atoll-agent"), "--take-ownership", *given, *WAIT)
    return given


async def _invited(places: dict[str, Place], name: str, folder: Path) -> list[str]:
    """As `_joined`, with each cluster's keys used for that cluster alone: the printed command is all that crosses."""
    hub, member = f"--kubeconfig={places['hub'].handle.kubeconfig}", places[name]
    invited = await atollctl("member", "invite", name, f"--host-url={HUB_URL}", hub)
    assert invited.code == 0, invited
    [line] = [each.strip() for each in invited.out.splitlines() if "helm install" in each]
    given = [*(each for each in shlex.split(line) if each.startswith("--set=")), values(folder, name, "agent")]
    await helm(member, "install", "atoll-agent", chart("atoll-agent"), "--create-namespace", *given)

    async def approved() -> bool:
        return (await atollctl("member", "approve", name, "--yes", f"--label=site={name}", hub)).code == 0

    await until(approved, deadline=PATIENCE, what=f"member {name} has asked and is approved")
    only = {keys.CLUSTER_AFFINITY: json.dumps({"matchLabels": {"site": name}})}
    queue = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": name, "annotations": only}}
    await places["hub"].api.create(QUEUES, {**queue, "spec": {}})
    return given


async def _pods(places: dict[str, Place]) -> dict[str, Pod]:
    """UID -> pod of a workload, in all members."""
    found = {}
    for name in MEMBERS:
        for pod in await places[name].api.list(PODS, "research"):
            found[pod["metadata"]["uid"]] = Pod(name, pod["metadata"]["name"], pod["status"].get("phase", ""))
    return found


async def _ends(places: dict[str, Place], pod: Pod) -> None:
    argv = ["kubectl", f"--kubeconfig={places[pod.member].handle.kubeconfig}", "-n", "research", "exec", pod.name]
    run = await asyncio.to_thread(
        subprocess.run, [*argv, "--", "touch", "/tmp/end"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


async def test_helm_brings_a_federation_and_takes_it_off_again(
    places: dict[str, Place], webhook_port: int, tmp_path: Path
) -> None:
    """Install both, run jobs, upgrade under twenty running ones, roll back, be refused, leave nothing.

    One member joins by `atollctl join`, the other one by an invitation.
    """
    hub, ways = places["hub"], Ways()
    host_values = values(
        tmp_path, "host", "webhook", "control", "dispatcher",
        webhook={"url": f"https://127.0.0.1:{webhook_port}", "extraArgs": ["--host=0.0.0.0"]},
        dispatcher={"extraArgs": ["--query-port=0"]},
    )  # fmt: skip
    await helm(hub, "install", "atoll", chart("atoll"), "--create-namespace", host_values, *WAIT)
    await helm(hub, "test", "atoll")
    async with ways.stack:
        for name in MEMBERS:
            await ways.translate(places[name].node_address, HUB_PORT, hub.server)
        east, west = MEMBERS
        agents = {east: await _joined(places, east, tmp_path), west: await _invited(places, west, tmp_path)}
        labels = {keys.ENABLED: "true"}
        research = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research", "labels": labels}}
        await hub.api.create(NAMESPACES, research)
        await hub.api.create(JOBS, _job("first", "true"))
        await _reaches(hub.api, "first", "Completed")
        await hub.api.delete(JOBS, "first", "research")
        assert await drift(hub, "atoll") == ""
        assert [await drift(places[name], "atoll-agent") for name in MEMBERS] == [""] * len(MEMBERS)

        names = [f"long-{number}" for number in range(RUNNING)]
        for number, name in enumerate(names):
            queue = west if number % 2 else "default"
            await hub.api.create(JOBS, _job(name, "until test -e /tmp/end; do sleep 3; done", queue))
        for name in names:
            await _reaches(hub.api, name, "Running")
        before = await _pods(places)
        assert len(before) == RUNNING
        assert sum(pod.member == west for pod in before.values()) >= RUNNING // 2
        await helm(hub, "upgrade", "atoll", chart("atoll"), host_values, f"--set=image.tag={NEXT}", *WAIT)
        for member, given in agents.items():
            upgrade = ("upgrade", "atoll-agent", chart("atoll-agent"), *given, f"--set=image.tag={NEXT}")
            await helm(places[member], *upgrade, *WAIT)
        await hub.api.create(JOBS, _job("second", "true"))
        await _reaches(hub.api, "second", "Completed")
        await hub.api.delete(JOBS, "second", "research")
        await helm(hub, "rollback", "atoll", "1", *WAIT)
        await helm(hub, "test", "atoll")
        for name in names:
            assert await _phase(hub.api, name) == "Running"
        for pod in before.values():
            await _ends(places, pod)
        for name in names:
            await _reaches(hub.api, name, "Completed")
        after = await _pods(places)
        assert {uid: after[uid].phase for uid in before} == dict.fromkeys(before, "Succeeded")

        # Later an agent that is still there has no rights any more.
        assert {name: lacking(place.handle.audit_log) for name, place in places.items()} == {
            name: set() for name in places
        }
        with pytest.raises(AssertionError):
            await helm(hub, "uninstall", "atoll", "--timeout=3m")
        await helm(hub, "test", "atoll")
        for name in names:
            await hub.api.delete(JOBS, name, "research")
        for name in MEMBERS:
            flags = (f"--kubeconfig={hub.handle.kubeconfig}", f"--member-kubeconfig={places[name].handle.kubeconfig}")

            async def left(name: str = name, flags: tuple[str, ...] = flags) -> bool:
                return (await atollctl("unjoin", name, *flags, f"--out={tmp_path}")).code == 0

            await until(left, deadline=PATIENCE, what=f"member {name} has left")
            await helm(places[name], "uninstall", "atoll-agent", *WAIT)
        await helm(hub, "uninstall", "atoll", *WAIT)
    for place in places.values():
        for resource in (
            ADMISSION_POLICIES, CLUSTER_ROLES, DEPLOYMENTS, LEASES, MUTATING_WEBHOOKS, SECRETS, SERVICE_ACCOUNTS,
            VALIDATING_WEBHOOKS,
        ):  # fmt: skip
            found = [each["metadata"]["name"] for each in await place.api.list(resource)]
            # The Secret that a user made, or the agent, which is no object of the release.
            assert [each for each in found if each.startswith("atoll") and each != "atoll-host"] == []


def _job(name: str, script: str, queue: str = "default") -> dict[str, Any]:
    # Small ones: on a full node the kube-scheduler evicts one for the next agent.
    made: dict[str, Any] = job(name, task("w", shell(script)))
    return {**made, "metadata": {**made["metadata"], "namespace": "research"}, "spec": {**made["spec"], "queue": queue}}
