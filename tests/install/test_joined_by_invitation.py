"""The whole way of an invited member, by the commands of both administrators: asked, approved, and a job runs there."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec
from tests.atollctl import Ran, atollctl
from tests.integration.federation import Site, job, member, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]

LAYOUT = FederationConfig(members=[member("alpha", 2, tree=False)])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    """A host with its processes, and a cluster without an agent."""
    flags = {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION}
    directory = tmp_path_factory.mktemp("federation")
    async with AtollFederation(LAYOUT, directory, flags=flags, leave_out=["atoll-agent-alpha"]) as running:
        yield running


def agent(flags: list[str]) -> ProcessSpec:
    [port] = free_ports(1)
    return ProcessSpec(
        name="atoll-agent-east",
        argv=[sys.executable, "-m", "atoll.agent", *flags, f"--health-port={port}", *QUICK_ELECTION],
        env={"PYTHONPATH": os.pathsep.join(os.path.realpath(part) for part in sys.path if part)},
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

    await on_host("unjoin", "alpha", f"--member-kubeconfig={alpha}", "--force")
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
    ran = await asyncio.wait_for(asking, 90)
    assert ran.code == 0, ran
    assert "the request is approved" in ran.out
    command = shlex.split(ran.out.splitlines()[-1])
    assert command == [
        "atoll-agent", "--cluster=east", "--host-secret",
        f"--member-kubeconfig={tmp_path}/atoll-agent-east.member.kubeconfig",
    ]  # fmt: skip

    await own.federation.start_processes([agent(command[1:])], 90)
    async with await own.host.connect() as api, await own.members["alpha"].connect() as there:
        site = Site(own, api, {"alpha": there})
        await site.open()
        await site.submit(job("first", replicas=2))
        done = await site.phase("first", "Completed", deadline=120)
        assert done["status"]["succeeded"] == 2
        assert await site.where("first") == "east"
        await site.close()
