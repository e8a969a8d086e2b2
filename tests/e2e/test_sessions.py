"""Commands in pods and connections to their ports, from the host, for those who may."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import subprocess
import sys

import pytest

from tests.e2e.jobs import PATIENCE, job, shell, task
from tests.integration.federation import Site, until


async def submit(site: Site, member: str, script: str = "sleep 600", replicas: int = 1) -> None:
    await site.only(member)
    await site.submit(job("live", task("w", shell(script), replicas=replicas)))
    await site.phase("live", "Running", deadline=PATIENCE)


async def atollctl(site: Site, verb: str, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "atoll.cli", "job", verb, "live", "-n", site.namespace, *words]
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False, timeout=PATIENCE)
    return await asyncio.to_thread(run, argv, env=environ(site), input=text)


def environ(site: Site) -> dict[str, str]:
    search = os.pathsep.join(each for each in sys.path if each)
    return {**os.environ, "KUBECONFIG": str(site.federation.host.kubeconfig), "PYTHONPATH": search}


BOTH = pytest.mark.parametrize("member", ["east", "west"], ids=["a pull member", "a push member"])


@BOTH
async def test_a_command_runs_in_a_pod_with_its_input_output_and_exit_code(site: Site, member: str) -> None:
    await submit(site, member, replicas=2)
    several = await atollctl(site, "exec", "--", "hostname")
    assert several.returncode == 1
    assert "live-w-0, live-w-1" in several.stderr
    said = await atollctl(site, "exec", "--index", "1", "--", "hostname")
    assert (said.returncode, said.stdout) == (0, "live-w-1\n"), said.stderr
    failed = await atollctl(site, "exec", "--index", "0", "--", "sh", "-c", "echo oh >&2; exit 3")
    assert (failed.returncode, failed.stderr) == (3, "oh\n")
    missing = await atollctl(site, "exec", "--index", "0", "--", "/no/such/program")
    assert missing.returncode != 0
    given = await atollctl(site, "exec", "--index", "0", "-i", "--", "sort", text="b\na\n" * 20_000)
    assert given.stdout == "a\n" * 20_000 + "b\n" * 20_000, given.stderr
    asked = [each for each in site.audit() if each.get("objectRef", {}).get("subresource") == "exec"]
    assert {(each["user"]["username"], each["objectRef"]["name"]) for each in asked} == {("admin", "live-job")}
    assert any("command=hostname" in each["requestURI"] for each in asked), "the audit log says what was run"


@BOTH
async def test_a_port_of_a_pod_is_reached_from_the_host(site: Site, member: str) -> None:
    await submit(site, member, "while true; do echo hello | nc -l -p 7000; done")
    argv = [sys.executable, "-m", "atoll.cli", "job", "port-forward", "live", "0:7000", "-n", site.namespace]
    process = await asyncio.create_subprocess_exec(
        *argv, env=environ(site), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
        port = int(line.split()[2].rpartition(":")[2])

        async def answers() -> bool:
            def ask() -> bytes:
                with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                    connection.settimeout(5)
                    try:
                        return connection.recv(100)
                    except TimeoutError:
                        return b""

            return await asyncio.to_thread(ask) == b"hello\n"

        await until(answers, deadline=PATIENCE, what="the pod answers on its port")
    finally:
        process.terminate()
        await process.wait()
