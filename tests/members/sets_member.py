"""JobSet and LeaderWorkerSet in a member: their real managers with their webhooks, from the modules that jobset/go.mod and
lws/go.mod pin.

CRDs and webhook configurations come from the modules. The managers run beside the cluster, with certificates of its authority.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import NamedTuple

import yaml

from atoll.local.binaries import Tool
from atoll.local.federation import Federation
from atoll.local.layout import Member
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec
from tests.members.manifests import apply
from tests.members.modules import Json, documents, programs, sources, tool


class Project(NamedTuple):
    """Where one of them has what, in its module."""

    PROJECT: str
    MODULE: str
    TOOLS: tuple[Tool, ...]
    crds: str
    webhooks: str
    selected: str
    """Label of the pods that its webhook for pods is asked about."""


JOB_SET = Project(
    "jobset",
    "sigs.k8s.io/jobset",
    (tool("jobset", "sigs.k8s.io/jobset"),),
    "config/components/crd/bases",
    "config/components/webhook",
    "jobset.sigs.k8s.io/jobset-name",
)
LEADER_WORKER_SET = Project(
    "lws",
    "sigs.k8s.io/lws",
    (tool("cmd", "sigs.k8s.io/lws/cmd"),),
    "config/crd/bases",
    "config/webhook",
    "leaderworkerset.sigs.k8s.io/name",
)
PROJECTS = (JOB_SET, LEADER_WORKER_SET)


def crds() -> list[Json]:
    """Of both."""
    return [
        crd
        for each in PROJECTS
        for path in sorted((sources(each.PROJECT, each.MODULE) / each.crds).glob("*.yaml"))
        for crd in documents(path)
    ]


async def install(federation: Federation, member: Member) -> None:
    """Start both; returns once their webhooks answer."""
    await asyncio.gather(*(_install(federation, member, each) for each in PROJECTS))


async def _install(federation: Federation, member: Member, project: Project) -> None:
    paths = await asyncio.to_thread(programs, project.PROJECT, project.TOOLS)
    handle, authority = federation.members[member.name], federation.keys.authority
    port, health = free_ports(2)
    certificate, key = authority.issue(f"{member.name}-{project.PROJECT}")
    folder = handle.kubeconfig.parent / f"{project.PROJECT}-certificates"
    await asyncio.to_thread(_mount, folder, certificate, key)
    file = folder.parent / f"{project.PROJECT}.yaml"
    file.write_text(yaml.safe_dump(_configuration(project, folder, port, health)))
    await federation.start_processes(
        [
            ProcessSpec(
                name=f"{member.name}-{project.PROJECT}",
                argv=[
                    str(paths[project.TOOLS[0].name]),
                    f"--kubeconfig={handle.kubeconfig}",
                    f"--config={file}",
                    "--metrics-bind-address=0",
                    "--leader-elect=false",
                ],
                ready_url=f"http://127.0.0.1:{health}/readyz",
            )
        ],
        deadline_s=120,
    )
    hooks = await asyncio.to_thread(_webhooks, project, port, authority.path)
    await asyncio.to_thread(apply, handle, hooks)
    # One of them is ready before its webhooks are.
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


def _mount(folder: Path, certificate: Path, key: Path) -> None:
    folder.mkdir()
    (folder / "tls.crt").write_bytes(certificate.read_bytes())
    (folder / "tls.key").write_bytes(key.read_bytes())


def _configuration(project: Project, certificates: Path, port: int, health: int) -> Json:
    """Its own default, but for where it listens and whose certificate it has."""
    (path,) = (sources(project.PROJECT, project.MODULE) / "config").rglob("controller_manager_config.yaml")
    (default,) = documents(path)
    return default | {
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "internalCertManagement": {"enable": False},
    }


def _webhooks(project: Project, port: int, authority: Path) -> list[Json]:
    """What they ask about, as their installation has it: of pods only their own."""
    folder = sources(project.PROJECT, project.MODULE) / project.webhooks
    bundle = base64.b64encode(authority.read_bytes()).decode()
    configurations = documents(folder / "manifests.yaml")
    for each in configurations:
        each["metadata"] = {"name": f"{project.PROJECT}-{each['metadata']['name']}"}
        for webhook in each["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            if path.endswith("-v1-pod"):
                webhook["objectSelector"] = {"matchExpressions": [{"key": project.selected, "operator": "Exists"}]}
    return configurations
