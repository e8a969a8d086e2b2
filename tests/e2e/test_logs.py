"""What containers write, read on the host by those who may."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest

from tests.e2e.jobs import PATIENCE, job, shell, task
from tests.integration.federation import Site, until


async def atollctl(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "atoll.cli", *words, "-n", site.namespace]
    search = os.pathsep.join(each for each in sys.path if each)
    environ = {**os.environ, "KUBECONFIG": str(site.federation.host.kubeconfig), "PYTHONPATH": search}
    return await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, text=True, check=False, timeout=PATIENCE, env=environ
    )


@pytest.mark.parametrize("member", ["east", "west"], ids=["a pull member", "a push member"])
async def test_the_output_of_a_job_is_read_on_the_host_followed_chosen_and_audited(site: Site, member: str) -> None:
    await site.only(member)
    script = "echo began $VC_TASK_INDEX; sleep 8; echo ends $VC_TASK_INDEX"
    await site.submit(job("talk", task("w", shell(script), replicas=2), plugins={"env": []}))
    await site.phase("talk", "Running", deadline=PATIENCE)
    followed = await atollctl(site, "job", "logs", "talk", "--task", "w", "--index", "1", "--follow")
    assert followed.stdout == "began 1\nends 1\n", followed.stderr
    await site.phase("talk", "Completed", deadline=PATIENCE)
    every = await atollctl(site, "job", "logs", "talk", "--tail", "1")
    assert sorted(every.stdout.splitlines()) == ["[talk-w-0] ends 0", "[talk-w-1] ends 1"], every.stderr
    asked = await atollctl(site, "job", "events", "talk", "-o", "json")
    assert asked.returncode == 0, asked.stderr
    told = json.loads(asked.stdout)
    assert {(each["cluster"], each["regarding"]["name"]) for each in told["events"] if each["reason"] == "Started"} == {
        (member, "talk-w-0"),
        (member, "talk-w-1"),
    }
    assert told["missing"] == []
    none = await atollctl(site, "job", "logs", "talk", "--task", "other")
    assert none.returncode == 1
    assert "it has no such pod" in none.stderr
    reads = [each for each in site.audit() if each.get("objectRef", {}).get("subresource") == "log"]
    assert {(each["user"]["username"], each["objectRef"]["name"]) for each in reads} == {("admin", "talk-job")}


async def test_who_may_not_read_logs_is_refused_with_what_is_missing(site: Site) -> None:
    await site.submit(job("secret", task("w", shell("echo password; sleep 600"))))
    await site.phase("secret", "Running", deadline=PATIENCE)
    path = f"/apis/query.atoll.sh/v1alpha1/namespaces/{site.namespace}/verdicts/secret-job/log"

    async def told(words: str) -> None:
        # The authorizer's answers are remembered for some seconds.
        async def look() -> bool:
            return words in site.both("get", "--raw", path, "--as", "eve")

        await until(look, deadline=PATIENCE, what=f"eve is told {words}")

    await told('cannot get resource "verdicts/log"')
    # That alone is not enough: whoever reads must be allowed to read logs of pods.
    site.kubectl("create", "role", "half", "-n", site.namespace, "--verb=get", "--resource=verdicts.query.atoll.sh/log")
    site.kubectl("create", "rolebinding", "half", "-n", site.namespace, "--role=half", "--user=eve")
    await told('"pods/log"')
    site.kubectl("create", "rolebinding", "whole", "-n", site.namespace, "--clusterrole=view", "--user=eve")
    await told("password")
    tunnel = f"/apis/query.atoll.sh/v1alpha1/tunnels/{await site.where('secret')}/proxy"
    assert "cannot get resource" in site.kubectl("get", "--raw", tunnel, "--as", "eve", ok=False)
