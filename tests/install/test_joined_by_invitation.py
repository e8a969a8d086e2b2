"""The whole way of an invited member, by the commands of both administrators: asked, approved, and a job runs there."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atoll import install
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec, python_path
from atoll.model import keys
from atoll.model.apiresource import SECRETS
from tests.atollctl import Ran, atollctl
from tests.install.rendered import is_hook, template
from tests.install.served import apply
from tests.integration.federation import Site, job, member, until

Json = dict[str, Any]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration, pytest.mark.timeout(900)]

LAYOUT = FederationConfig(members=[member("alpha", 2, tree=False), member("beta", 2, tree=False)])

AGENTS = ["atoll-agent-alpha", "atoll-agent-beta"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    """A host with its processes, and two clusters without agents."""
    flags = {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION}
    directory = tmp_path_factory.mktemp("federation")
    async with AtollFederation(LAYOUT, directory, flags=flags, leave_out=AGENTS) as running:
        host = running.host.kubeconfig
        for name, cluster in running.members.items():
            words = ("unjoin", name, f"--member-kubeconfig={cluster.kubeconfig}", "--force", f"--kubeconfig={host}")
            ran = await atollctl(*words)
            assert ran.code == 0, ran
        yield running


def agent(name: str, flags: list[str]) -> ProcessSpec:
    [port] = free_ports(1)
    return ProcessSpec(
        name=f"atoll-agent-{name}",
        argv=[sys.executable, "-m", "atoll.agent", *flags, f"--health-port={port}", *QUICK_ELECTION],
        env={"PYTHONPATH": python_path()},
        ready_url=f"http://127.0.0.1:{port}/readyz",
    )


async def test_a_job_completes_in_a_member_whose_administrator_never_had_the_hosts_keys(
    own: AtollFederation, tmp_path: Path
) -> None:
    """1. The host invites. 2. The cluster asks. 3. The host approves. 4. The printed command starts the agent."""
    host, alpha = own.host.kubeconfig, own.members["alpha"].kubeconfig

    async def on_host(*words: str, code: int = 0) -> Ran:
        ran = await atollctl(*words, f"--kubeconfig={host}")
        assert ran.code == code, ran
        return ran

    invitation = (await on_host("member", "invite", "east")).out
    [line] = [each.strip() for each in invitation.splitlines() if "member request" in each]
    words = shlex.split(line.replace("--member-kubeconfig=FILE", f"--member-kubeconfig={alpha}"))
    assert str(host) not in line
    assert "Invited" in (await on_host("member", "requests")).out
    assert "no cluster has asked yet" in (await on_host("member", "approve", "east", "--yes", code=1)).said

    # Nothing of the host is known there but what the command says.
    environment = {"KUBECONFIG": "", "HOME": str(tmp_path)}
    asking = asyncio.create_task(
        atollctl(*words[1:], f"--out={tmp_path}", "--label", "gpu=h100", environment=environment)
    )

    async def asked() -> bool:
        assert not asking.done(), await asking
        return "Asked" in (await on_host("member", "requests")).out

    await until(asked, what="the request is listed")
    assert "give --yes" in (await on_host("member", "approve", "east", code=2)).said
    said = (await on_host("member", "approve", "east", "--yes")).out
    assert re.search(r"UID of kube-system: [-0-9a-f]{36}\n", said)
    assert "Labels: gpu=h100\n" in said
    ran = await asyncio.wait_for(asking, 180)
    assert ran.code == 0, ran
    assert "the request is approved" in ran.out
    command = shlex.split(ran.out.splitlines()[-1])
    assert command == [
        "atoll-agent", "--cluster=east", "--host-secret",
        f"--member-kubeconfig={tmp_path}/atoll-agent-east.member.kubeconfig",
    ]  # fmt: skip

    await own.federation.start_processes([agent("east", command[1:])], 180)
    await completes(own, "alpha", "east", gpu="h100")


async def test_member_joins_by_the_objects_of_the_agents_chart(own: AtollFederation, tmp_path: Path) -> None:
    """1. The host invites. 2. `helm install`: hook, objects, two pods ask. 3. The host approves. 4. The pods go on."""
    host, beta = own.host.kubeconfig, own.members["beta"].kubeconfig

    async def run(*words: str) -> Ran:
        ran = await atollctl(*words)
        assert ran.code == 0, ran
        return ran

    invitation = (await run("member", "invite", "west", f"--kubeconfig={host}")).out
    [line] = [each.strip() for each in invitation.splitlines() if "helm install" in each]
    assert str(host) not in line
    given = [each for each in shlex.split(line) if each.startswith("--set=")]
    given += ["--set=image.repository=registry.example.org/atoll", "--set=agent.settings.join.labels=gpu=a100"]
    chart = template("atoll-agent", {}, *given)

    async with await own.members["beta"].connect() as api:

        async def credentials(account: str) -> Path:
            token, _ = await install.issue_token(api, account, keys.SYSTEM_NAMESPACE)
            file = tmp_path / f"{account}.kubeconfig"
            at = await install.endpoint(beta)
            install.write_kubeconfig(file, at, account, token, namespace=keys.SYSTEM_NAMESPACE)
            return file

        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": keys.SYSTEM_NAMESPACE}}
        await apply(api, [namespace, *(each for each in chart if is_hook(each) and each["kind"] != "Job")])
        [prepare] = [
            each for each in chart if each["kind"] == "Job" and each["metadata"]["name"] == "atoll-installer-prepare"
        ]
        [hook] = prepare["spec"]["template"]["spec"]["containers"]
        await run(*hook["command"][1:], *hook["args"], f"--kubeconfig={await credentials('atoll-installer')}")
        await apply(api, [each for each in chart if not is_hook(each)])
        secret = await api.get(SECRETS, "atoll-join", keys.SYSTEM_NAMESPACE)
        [settings] = [each["data"] for each in chart if each["metadata"]["name"] == "atoll-agent-settings"]
        (tmp_path / "token").write_bytes(base64.b64decode(secret["data"]["token"]))
        (tmp_path / "settings.yaml").write_text(settings["settings.yaml"])
        account = await credentials("atoll-agent")

        [spec] = [each["spec"]["template"]["spec"] for each in chart if each["kind"] == "Deployment"]
        [first], [main] = spec["initContainers"], spec["containers"]

        def flags(container: Json) -> list[str]:
            """The args of a container, with files here in the place of mounted ones."""
            found = [
                each.replace("/etc/atoll/join/", f"{tmp_path}/").replace("/etc/atoll/settings/", f"{tmp_path}/")
                for each in container["args"]
            ]
            return [*found, f"--member-kubeconfig={account}"]

        async def ask() -> None:
            words = [sys.executable, "-m", "atoll.agent", *flags(first)]
            process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
            _, said = await asyncio.wait_for(process.communicate(), 300)
            assert process.returncode == 0, said.decode()

        asking = [asyncio.create_task(ask()) for _ in range(2)]

        async def asked() -> bool:
            assert not any(each.done() for each in asking), await asyncio.gather(*asking)
            return "Asked" in (await run("member", "requests", f"--kubeconfig={host}")).out

        await until(asked, deadline=180, what="the request is listed")
        said = (await run("member", "approve", "west", "--yes", f"--kubeconfig={host}")).out
        assert "Labels: gpu=a100\n" in said
        await asyncio.gather(*asking)
        # Pods of a later day find the Secret, and the token over.
        await ask()

    main_flags = [each for each in flags(main) if not each.startswith("--health-host=")]
    await own.federation.start_processes([agent("west", main_flags)], 180)
    await completes(own, "beta", "west", gpu="a100")


async def completes(own: AtollFederation, cluster: str, name: str, *, gpu: str) -> None:
    """Let a job of a queue for Clusters with that label run in the member to its end."""
    async with await own.host.connect() as api, await own.members[cluster].connect() as there:
        site = Site(own, api, {cluster: there})
        await site.open()
        only = {keys.CLUSTER_AFFINITY: json.dumps({"matchLabels": {"gpu": gpu}})}
        queue = await site.queue(annotations=only)
        await site.submit(job("first", replicas=2, queue=queue))
        done = await site.phase("first", "Completed", deadline=300)
        assert done["status"]["succeeded"] == 2
        assert await site.where("first") == name
        await site.close()
