"""Volcano Jobs of real containers, and what containerd holds of them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from atoll.local.atoll_federation import AtollFederation
from atoll.local.realnodes import leftovers, node
from atoll.local.realnodes.images import BUSYBOX
from atoll.model.apiresource import JOBS

Json = dict[str, Any]

PATIENCE = 120.0
"""Seconds that a container may take to start, run and be told of on a machine that does much else."""


def part_of_node(share: float) -> int:
    """So much of the processors of a node, which offers those of the machine; milli-CPU."""
    return int((os.cpu_count() or 1) * 1000 * share)


def shell(script: str, *, image: str = BUSYBOX, memory: str = "64Mi", cpu: int = 20, **fields: Any) -> Json:
    """A container that runs a script and asks for so much milli-CPU; `fields` are further ones of it."""
    resources = {"requests": {"cpu": f"{cpu}m", "memory": "16Mi"}, "limits": {"memory": memory}}
    command = ["sh", "-c", script]
    return {"name": "main", "image": image, "command": command, "resources": resources, **fields}


def task(name: str, *containers: Json, replicas: int = 1, pod: Json | None = None, **fields: Any) -> Json:
    """A task of such containers; `pod` are further fields of the pod's spec, `fields` of the task."""
    # A container that ignores SIGTERM would hold up each test by its grace period.
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": list(containers), **(pod or {})}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **fields}


def job(name: str, *tasks: Json, **spec: Any) -> Json:
    """A Volcano Job."""
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name},
        "spec": {"tasks": list(tasks), **spec},
    }


async def left(federation: AtollFederation, name: str, namespace: str) -> list[str]:
    """What a real node has of a namespace's pods: containers, sandboxes included; and addresses and mounts of none."""
    mine = await _containers(federation, name, f'labels."io.kubernetes.pod.namespace"=={namespace}')
    return mine + _without_container(federation, name, set(await _containers(federation, name)))


def _without_container(federation: AtollFederation, name: str, known: set[str]) -> list[str]:
    folder = federation.federation.directory / leftovers.FOLDER / name / "addresses" / "pods"
    owners = {each.name: each.read_text().split()[0] for each in folder.glob("*.*.*.*")}
    mounts = Path(f"/proc/{pid_of(federation, name)}/mounts").read_text()
    mounted = set(re.findall(r"/([0-9a-f]{64})/(?:rootfs|shm)", mounts))
    return [*(address for address, owner in owners.items() if owner not in known), *(mounted - known)]


async def _containers(federation: AtollFederation, name: str, *filters: str) -> list[str]:
    socket = node.containerd_socket(pid_of(federation, name))
    argv = ["ctr", f"--address={socket}", "--namespace=k8s.io", "containers", "list", "--quiet", *filters]
    run = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=True)
    return run.stdout.split()


async def kill(federation: AtollFederation, name: str, pod: Json) -> None:
    """End the first process of a pod's container on that real node as the kernel would: SIGKILL, from outside."""
    [status] = pod["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    socket = node.containerd_socket(pid_of(federation, name))
    argv = ["ctr", f"--address={socket}", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", container]
    await asyncio.to_thread(subprocess.run, argv, check=True)


def pid_of(federation: AtollFederation, name: str) -> int:
    """The process that a real node is."""
    pid = next(each.pid for each in federation.federation.processes.processes if each.spec.name == name)
    assert pid is not None
    return pid
