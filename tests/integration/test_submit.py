"""`atollctl submit` and `job list --me` against a real host."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from atoll.model.apiresource import JOB_ARRAYS, JOBS, NAMESPACES
from tests import atollctl as commands
from tests.integration.command_line import atollctl
from tests.integration.federation import Site

pytestmark = pytest.mark.integration

WORDS = ("--image", "busybox:1", "--cpu", "100m")


async def test_a_gang_and_an_array_are_submitted_from_a_few_words(site: Site) -> None:
    queue = await site.queue()
    where = (f"--kubeconfig={site.federation.host.kubeconfig}", f"--namespace={site.namespace}")

    async def submit(name: str, *words: str) -> str:
        ran = await commands.atollctl("submit", *where, *WORDS, "--name", name, "-q", queue, *words)
        assert ran.code == 0, ran.said
        return ran.out

    said = await submit("gang", "--workers", "2", "--", "sleep", "9")
    assert said.strip() == "job.batch.volcano.sh/gang created"
    await site.phase("gang", "Running")
    await submit("sweep", "--array", "0-5%2", "--", "true")

    array = await site.host.get(JOB_ARRAYS, "sweep", site.namespace)
    assert (array["spec"]["indices"], array["spec"]["atOnce"]) == ("0-5", 2)
    listed = await atollctl(site, "job", "list", "--me", "--no-headers")
    assert {line.split()[0] for line in listed.splitlines()} == {"gang", "jobarray/sweep"}


@pytest.mark.parametrize("kind", [("--workers", "2"), ("--array", "0-1")], ids=["a gang", "an array"])
async def test_what_does_not_run_as_things_are_is_warned_of(site: Site, kind: tuple[str, ...]) -> None:
    queue = await site.queue()
    where = (f"--kubeconfig={site.federation.host.kubeconfig}", *WORDS, *kind)

    async def said(*words: str, namespace: str = site.namespace) -> list[str]:
        ran = await commands.atollctl("submit", *where, "-n", namespace, *words, "--", "true")
        assert ran.code == 0, ran.said
        return ran.said.splitlines()

    [warning] = await said("-q", f"{queue}x")
    assert f"queue '{queue}x' does not exist, and the workload waits until it does" in warning
    assert f"did you mean {queue}?" in warning
    [warning] = await said("-q", queue, "--within", "rak", "--dry-run")
    assert warning.startswith("Warning: --within rak: no member that it may use has such a tier")
    assert "did you mean rack?" in warning
    assert await said("-q", queue, "--within", "rack", "--dry-run") == []

    plain = f"{site.namespace}-plain"
    await site.host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plain}})
    [warning] = await said("-q", queue, namespace=plain)
    assert f"namespace {plain} is not opted in" in warning
    assert f"kubectl label namespace {plain} atoll.sh/enabled=true" in warning
    await site.host.delete(NAMESPACES, plain)


async def test_a_dry_run_creates_nothing_and_prints_a_manifest_that_the_host_takes(site: Site, tmp_path: Path) -> None:
    queue = await site.queue()
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH -A {queue} -N 2 -t 10\necho one\n")
    words = ("submit", "--image", "busybox:1", "--script", str(script), "--name", "dry")
    printed = await atollctl(site, *words, "--dry-run", "-o", "yaml")
    assert await site.find(JOBS, "dry") is None
    found = yaml.safe_load(printed)
    assert (found["spec"]["queue"], found["spec"]["minAvailable"]) == (queue, 2)
    await site.submit(found)
