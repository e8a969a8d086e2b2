"""Time from nothing to the first job in three members: each command of docs/install.md, on clusters without Atoll."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.keeper import KeptProcess
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec, python_path
from atoll.model.apiresource import BINDINGS, JOBS
from tests.atollctl import Ran, atollctl
from tests.integration.federation import job, member, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]

MEMBERS = ("east", "west", "north")


@pytest_asyncio.fixture(loop_scope="module")
async def bare(tmp_path: Path) -> AsyncIterator[Federation]:
    config = FederationConfig(members=[member(name, 2, tree=False) for name in MEMBERS])
    async with Federation(config, directory=tmp_path / "federation", binaries=ensure()) as federation:
        await federation.populate()
        yield federation


async def run(*words: str) -> Ran:
    ran = await atollctl(*words)
    assert ran.code == 0, ran.said
    return ran


def process(command: str, folder: Path, *flags: str) -> KeptProcess:
    """A command that `init` or `join` prints."""
    program, *words = shlex.split(command)
    [port] = free_ports(1)
    name = program.removeprefix("atoll-")
    spec = ProcessSpec(
        name=name + "-".join(each.partition("=")[2] for each in words if each.startswith("--cluster=")),
        argv=[sys.executable, "-m", f"atoll.{name}", *words, f"--health-port={port}", *flags],
        env={"PYTHONPATH": python_path()},
        ready_url=f"http://127.0.0.1:{port}/readyz",
    )
    return KeptProcess(spec, folder)


async def kubectl(kubeconfig: Path, *words: str) -> None:
    program = await asyncio.create_subprocess_exec(str(ensure().kubectl), f"--kubeconfig={kubeconfig}", *words)
    assert await program.wait() == 0


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_thirteen_commands_lead_from_bare_clusters_to_a_job_in_each_of_three_members(
    bare: Federation, tmp_path: Path
) -> None:
    """`init`, three processes, three times `join` and an agent, a namespace with its label, and jobs."""
    host, began, steps = bare.host.kubeconfig, time.monotonic(), {}
    [port] = free_ports(1)
    flags = {"atoll-webhook": [f"--port={port}"], "atoll-dispatcher": ["--query-port=0"]}
    out = f"--out={tmp_path / 'credentials'}"

    def done(step: str) -> None:
        steps[step] = time.monotonic() - began

    async with AsyncExitStack() as stack:

        async def start(commands: list[str]) -> None:
            made = [process(each, tmp_path, *flags.get(each.split()[0], ())) for each in commands]
            for each in made:
                await each.start()
                stack.push_async_callback(each.stop)
            for each in made:
                await each.ready()

        said = await run("init", f"--kubeconfig={host}", f"--webhook-url=https://127.0.0.1:{port}", out)
        done("init")
        await start([line.strip() for line in said.out.splitlines() if line.startswith("  atoll-")])
        done("processes of the host are ready")
        agents = []
        for name in MEMBERS:
            there = f"--member-kubeconfig={bare.members[name].kubeconfig}"
            said = await run("join", name, f"--kubeconfig={host}", there, out)
            agents.append(said.out.splitlines()[-1].strip())
        done("three members are joined")
        await start(agents)
        done("agents are ready")
        await kubectl(host, "create", "namespace", "research")
        await kubectl(host, "label", "namespace", "research", "atoll.sh/enabled=true")
        # Each fills a member.
        names = [f"train-{name}" for name in MEMBERS]
        jobs = [job(name, replicas=2, cpu="15", queue="default", seconds=5) for name in names]
        (tmp_path / "jobs.yaml").write_text(
            yaml.safe_dump_all([{**each, "metadata": {**each["metadata"], "namespace": "research"}} for each in jobs])
        )
        await kubectl(host, "apply", "-f", str(tmp_path / "jobs.yaml"))
        done("jobs are submitted")
        async with await ApiServer.from_kubeconfig(host) as api:

            async def phases() -> set[str]:
                found = [(await api.get(JOBS, name, "research")).get("status") or {} for name in names]
                return {(each.get("state") or {}).get("phase", "") for each in found}

            async def runs() -> bool:
                return bool(await phases() & {"Running", "Completed"})

            async def completed() -> bool:
                return await phases() == {"Completed"}

            await until(runs, deadline=300, what="a job runs")
            done("the first job runs")
            await until(completed, deadline=300, what="all jobs are completed")
            done("all jobs are completed")
            bindings = await api.list(BINDINGS, "research")
            assert {each["spec"]["clusters"][0]["name"] for each in bindings} == set(MEMBERS)
    for step, seconds in steps.items():
        print(f"{seconds:6.1f} s  {step}")
